"""Writes unicode_tables.c: how the reference (Hugging Face tokenizers) classes every code point.
usage: tools/unicode_tables.py > models/tokenizers/unicode_tables.c   (environment: tools/goldens-venv)

Each part of the reference has a Unicode version of its own (regular expressions 16, lower case 17, BERT's categories 8,
normalisation 9), so the classes are asked of the reference, code point by code point, and not of any one database."""
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(points):
    rows = []
    for c in points:
        if rows and rows[-1][1] == c - 1:
            rows[-1][1] = c
        else:
            rows.append([c, c])
    return rows


def matched(pattern):
    split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True).pre_tokenize_str
    return ranges(c for c in POINTS if split(chr(c)))


def bert(**flags):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **flags}).normalize_str


def normalising():
    """Ranges that hold every code point which the reference's NFC and NFD know, and none that a newer database gives a
    combining class or a decomposition. Code points that stay the same in both may be inside or outside; outside are two:
    U+11935, which newer databases compose, and U+11A7, which utf8proc 2.8 takes for a final consonant."""
    nfd = normalizers.NFD().normalize_str
    active = set()
    for c in POINTS:
        if nfd(chr(c)) != chr(c):
            active |= {c, *map(ord, nfd(chr(c)))}
            parts = unicodedata.decomposition(chr(c)).split()
            if len(parts) == 2:
                active |= {int(p, 16) for p in parts}
        elif nfd("\u0345" + chr(c))[0] == chr(c) or nfd(chr(c) + "\u0334") == "\u0334" + chr(c):
            active.add(c)  # moves in front of class 240, or behind class 1
    active |= {0x334, 0x345}
    rows, outside = [], True
    for c in POINTS:
        if c in active:
            if outside:
                rows.append([c, c])
            rows[-1][1], outside = c, False
        elif (unicodedata.category(chr(c)) == "Cn" or unicodedata.combining(chr(c))
              or unicodedata.normalize("NFD", chr(c)) != chr(c) or c in (0x11935, 0x11A7)):
            outside = True
    return rows


def words():
    """Ranges of what stands inside a word (\\w) and is no letter; letters may be inside or outside of the ranges."""
    t = tokenizers.Tokenizer(tokenizers.models.BPE(vocab={"a": 0}, merges=[]))
    t.add_tokens([tokenizers.AddedToken("<>", single_word=True)])
    letter = pre_tokenizers.Split(Regex(r"\p{L}"), behavior="removed", invert=True).pre_tokenize_str
    rows, outside = [], True
    for c in POINTS:
        if 1 in t.encode(chr(c) + "<>").ids:
            outside = True
        elif not letter(chr(c)):
            if outside:
                rows.append([c, c])
            rows[-1][1], outside = c, False
    return rows


def lower_rows():
    """[first, last, step, difference] of the mappings to one code point."""
    lower = normalizers.Lowercase().normalize_str
    rows = []
    for c in POINTS:
        to = lower(chr(c))
        if to == chr(c) or len(to) != 1:
            assert len(to) == 1 or (c, to) == (0x130, "i\u0307")
            continue
        d = ord(to) - c
        step = c - rows[-1][1] if rows else 0
        if rows and rows[-1][3] == d and (step == rows[-1][2] or rows[-1][0] == rows[-1][1] and step in (1, 2)):
            rows[-1][1:3] = c, step
        else:
            rows.append([c, c, 1, d])
    return rows


def emit(kind, name, rows, show, note):
    print(f"\n/* {note} */\nstatic const struct {kind} {name}[] = {{")
    line = "   "
    for row in rows:
        cell = f" {{{show(row)}}},"
        if len(line) + len(cell) > 140:
            print(line)
            line = "   "
        line += cell
    print(f"{line}\n}};")


def main():
    print("/* How the reference classes code points. Made by tools/unicode_tables.py from tokenizers "
          f"{tokenizers.__version__};\n * do not edit. Ranges are inclusive and sorted. */")
    print('#include "models/tokenizers/unicode_tables.h"\n\n// clang-format off')
    marks = bert(strip_accents=True)
    clean = bert(clean_text=True)
    punctuation = pre_tokenizers.BertPreTokenizer().pre_tokenize_str
    tables = [
        ("LETTER", matched(r"\p{L}"), "\\p{L} in a regular expression"),
        ("NUMBER", matched(r"\p{N}"), "\\p{N}"),
        ("SPACE", matched(r"\s"), "\\s, and what splits BERT's words"),
        ("MARK", ranges(c for c in POINTS if marks(chr(c)) == ""), "what BERT's strip_accents removes"),
        ("PUNCTUATION", ranges(c for c in POINTS if len(punctuation(f"a{chr(c)}a")) == 3), "what BERT splits off as a word"),
        ("DROPPED", ranges(c for c in POINTS if clean(chr(c)) == ""), "what BERT's clean_text removes"),
        ("WORD", words(), "what else is inside a word (\\w), besides letters"),
        ("NORMALISING", normalising(), "what normalisation knows; everything else passes through it as a barrier"),
    ]
    for name, rows, note in tables:
        emit("tern_range", name.lower(), rows, lambda r: f"0x{r[0]:x}, 0x{r[1]:x}", note)
    emit("tern_case_range", "lower", lower_rows(), lambda r: f"0x{r[0]:x}, 0x{r[1]:x}, {r[2]}, {r[3]}",
         "lower case: every step-th code point of the range plus a difference; U+0130 is not here")
    print("\n#define TABLE(t) {t, sizeof(t) / sizeof(*(t))}")
    print("const struct tern_range_table tern_range_tables[TERN_CP_CLASS_COUNT] = {")
    for name, _, _ in tables:
        print(f"    [TERN_CP_{name}] = TABLE({name.lower()}),")
    print("};\nconst struct tern_case_table tern_lower_table = TABLE(lower);")


if __name__ == "__main__":
    sys.exit(main())
