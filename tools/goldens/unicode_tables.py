"""Character classes as the tokenizers library has them (its parts come from different versions of Unicode)."""
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(1, 0x110000) if not 0xD800 <= c < 0xE000]


def ranges(points):
    """[first, last] pairs."""
    out = []
    for c in points:
        if out and c == out[-1][1] + 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def regex_class(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed")
    return ranges(c for c in POINTS if not split.pre_tokenize_str(chr(c)))


def bert(**on):
    off = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    return normalizers.BertNormalizer(**{**off, **on})


def changes(normalizer):
    """[code point, what it becomes, as code points ...] where that is not the code point itself."""
    rows = ((c, normalizer.normalize_str(chr(c))) for c in POINTS)
    return [[c, *map(ord, s)] for c, s in rows if s != chr(c)]


def tables():
    lower, bert_lower = changes(normalizers.Lowercase()), changes(bert(lowercase=True))
    assert lower == bert_lower
    clean, accents, split = changes(bert(clean_text=True)), bert(strip_accents=True), pre_tokenizers.BertPreTokenizer()
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    assert all(nfc.normalize_str(chr(c)) == unicodedata.normalize("NFC", chr(c)) for c in POINTS)
    return {
        "clip.letter": regex_class(r"\p{L}"), "clip.number": regex_class(r"\p{N}"), "clip.space": regex_class(r"\s"),
        "lower": lower,
        "bert.removed": ranges(row[0] for row in clean if len(row) == 1),
        "bert.to_blank": ranges(row[0] for row in clean if row[1:] == [32]),
        "bert.accent": ranges(c for c in POINTS if not accents.normalize_str(chr(c))),
        "bert.punctuation": ranges(c for c in POINTS if len(split.pre_tokenize_str(f"a{chr(c)}b")) == 3),
        "bert.chinese": ranges(row[0] for row in changes(bert(handle_chinese_chars=True))),
        "nfd_unlike_unicode": [[c, *map(ord, nfd.normalize_str(chr(c)))] for c in POINTS
                               if nfd.normalize_str(chr(c)) != unicodedata.normalize("NFD", chr(c))],
    }
