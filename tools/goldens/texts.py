"""10,000 texts that try a tokenizer's every rule: a sweep over Unicode, and seeded mixtures of hard things."""
import random
import unicodedata

from .tiny_tokenizer import SENTENCES

COUNT = 10_000
WORDS = SENTENCES.replace("\n", " ").split()
SPECIAL = ("<|startoftext|>", "<|endoftext|>", "<|STARTOFTEXT|>", "<|EndOfText|>", "<|endoftext|", "|endoftext|>",
           "<|startoftext|><|endoftext|>", "<| endoftext |>", "<|endoftext|>s", "[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]",
           "[cls]", "[ MASK ]", "!", "!!", "</w>", "##a", "<|sta\u0327rtoftext|>", "<|startofte\u0301xt|>")
CONTRACTIONS = ("don't", "DON'T", "it's", "'s's", "\u2019s", "'S", "'\u017f", "we're", "I'll", "'ll'd", "they'VE", "'m'm",
                "o'clock", "'t'", "''re", "rock'n'roll", "l'\u00e9t\u00e9", "'d1", "1's", "'s\u0301")
DIGITS = ("12345", "3.14", "1,000", "\uff11\uff12\uff13", "\u00b2\u00b3", "\u2167", "\u00bd", "\u0663\u0664", "\u4e09\u5341", "8k",
          "35mm", "1st", "\U0001d7d8\U0001d7d9", "\u3289", "\u2460x", "0x1F", "1e-5", "\u09ea\u0966")
EMOJI = ("\U0001f408\u200d\u2b1b", "\U0001f469\U0001f3fd\u200d\U0001f680", "\U0001f1e9\U0001f1ea", "\U0001f1ea\U0001f1fa\U0001f1fa",
         "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "1\ufe0f\u20e3", "\u2764\ufe0f",
         "\u2764\ufe0e", "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f600\U0001f3ff", "\U0001fae8\U0001f6dc")
SPACES = (" ", "  ", "\t", "\n", "\r\n", "\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\u2028", "\u2029", "\u0085", "\u1680",
          "\u180e", "\x0b", "\x0c", "\x1c", "\x1f", "\u2060", "\u00ad", "\u202e", "\u200f", "\u061c")
CASES = ("\u0130stanbul", "\u0399\u03a3\u03a5\u03a3", "\u03a3", "\u1e9e", "STRASSE", "\u01c5", "\u01f0", "\u13a0\uab70", "\u10a0\u1c90",
         "\U00010400\U00010428", "\u2160\u24b6", "\u212b\u2126\u212a", "\ufb01\ufb03", "\u0345\u0399", "\u1fbe\u1f88", "\ua64a", "\u0149",
         "I\u0307", "\u0131\u017f", "\uff21\uff22", "\u1e9b\u0323", "\u0390\u1fd3", "\U0001e900", "\u0422\u0415\u0421\u0422")
RANGES = {"latin": (0x20, 0x24F), "greek": (0x370, 0x3FF), "cyrillic": (0x400, 0x52F), "hebrew": (0x5B0, 0x5F4),
          "arabic": (0x600, 0x6FF), "devanagari": (0x900, 0x97F), "thai": (0xE01, 0xE5B), "tibetan": (0xF00, 0xFBC),
          "jamo": (0x1100, 0x11FF), "khmer": (0x1780, 0x17F9), "greek-ext": (0x1F00, 0x1FFE), "punct": (0x2000, 0x206F),
          "symbols": (0x2100, 0x27BF), "kana": (0x3041, 0x30FF), "cjk": (0x4E00, 0x9FFF), "hangul": (0xAC00, 0xD7A3),
          "compat": (0xF900, 0xFAFF), "forms": (0xFB00, 0xFFEF), "math": (0x1D400, 0x1D7FF), "emoji": (0x1F300, 0x1FAFF)}
MARKS = [chr(c) for low, high in (
    (0x300, 0x36F), (0x483, 0x487), (0x591, 0x5BD), (0x610, 0x61A), (0x64B, 0x65F), (0x93C, 0x93C), (0x94D, 0x94D),
    (0xE38, 0xE3A), (0xF71, 0xF74), (0x1AB0, 0x1ABD), (0x1DC0, 0x1DF5), (0x20D0, 0x20F0), (0x302A, 0x302F),
    (0x3099, 0x309A), (0xA8E0, 0xA8F1), (0xFE20, 0xFE2F), (0x110B9, 0x110BA), (0x1D165, 0x1D169), (0x1E8D0, 0x1E8D6),
) for c in range(low, high + 1)]


def sweep(rng):
    """Every code point of plane 0, half of plane 1, samples of the others; each group has its own joiner."""
    alike = ((0x12000, 0x13400), (0x14480, 0x16000), (0x17000, 0x18AC0), (0x18D40, 0x1AFC0), (0x1B300, 0x1BC00))
    plane1 = [c for c in range(0x10000, 0x20000) if c % 16 == 5 or not any(a <= c < b for a, b in alike)]
    rest = [*range(0x20000, 0x34000, 37), *range(0x2EBE0, 0x2EE60, 9), *range(0xE0000, 0xE01F0), *range(0x40000, 0x110000, 4801)]
    rest += [p * 0x10000 + c for p in range(1, 17) for c in (0, 0xFFFD, 0xFFFE, 0xFFFF)]
    plane0 = [c for c in range(0x10000) if not 0xD800 <= c < 0xE000]
    for points, size in ((plane0, 16), (plane1, 64), (sorted(rest), 24)):
        for i in range(0, len(points), size):
            yield rng.choice(("", "", " ", "x", "1")).join(chr(c) for c in points[i:i + size])


def anything(rng):
    c = rng.choice((rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)))
    return chr(c) if not 0xD800 <= c < 0xE000 else "?"


def script(rng):
    low, high = rng.choice(list(RANGES.values()))
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 10)))


def word(rng):
    w = rng.choice(WORDS)
    return rng.choice((w, w, w, w.upper(), w.title(), w + rng.choice(".,;:!?()-_*#")))


def marked(rng):
    """Letters with marks in any order, composed or not: normalisation has to sort and compose them."""
    base = rng.choice("aeioucnsyAEIOU\u00e9\u1ea5\u03b1\u0438\u304b\u30cf\u0928\u1100\u0627")
    text = base + "".join(rng.choice(MARKS) for _ in range(rng.randint(1, 4)))
    return rng.choice((text, unicodedata.normalize("NFD", text), unicodedata.normalize("NFC", text)))


def cjk(rng):
    return "".join(rng.choice((chr(rng.randint(0x4E00, 0x5200)), chr(rng.randint(0x4E00, 0x9FFF)), "\uff0c", "\u3002", "a", "7"))
                   for _ in range(rng.randint(1, 12)))


def letters(rng):
    """A made-up word, lower case: what the merges make of it is not known beforehand."""
    return "".join(rng.choice("aabcdeeefghiijklmnoopqrsstuuvwxyz") for _ in range(rng.randint(2, 12)))


def pick(*choices):
    return lambda rng: rng.choice(choices)


PARTS = (word, word, letters, letters, anything, script, marked, cjk, pick(*SPECIAL), pick(*CONTRACTIONS), pick(*DIGITS), pick(*EMOJI),
         pick(*SPACES), pick(*CASES), lambda rng: "".join(rng.choice("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") for _ in range(3)))


def mixture(rng, parts):
    """Up to a dozen parts of one to three kinds, with or without blanks between them."""
    kinds, joiner = rng.sample(parts, rng.randint(1, 3)), rng.choice(("", " ", " ", "  "))
    return joiner.join(rng.choice(kinds)(rng) for _ in range(min(rng.randint(1, 12), rng.randint(1, 12))))


def long_texts(rng):
    yield "a" * 5000
    yield "supercalifragilistic" * 150
    yield "x" * 99 + " " + "y" * 100 + " " + "z" * 101
    yield "\u4e2d" * 2000
    yield "e\u0301" * 1000 + "\u0301" * 1000
    yield " " * 3000 + "end"
    yield "0123456789" * 300
    yield "!" * 2000
    yield "\U0001f408\u200d\u2b1b" * 300
    yield "<|endoftext|>" * 100
    yield " ".join(word(rng) for _ in range(3000))
    yield "".join(anything(rng) for _ in range(2000))


def texts(pieces):
    """pieces: what words are made of besides SENTENCES and single letters (entries of a vocabulary)."""
    rng = random.Random(20240229)
    parts = (*PARTS, pick(*pieces), lambda r: r.choice(pieces) + r.choice(pieces))
    out = ["", " ", "\n", "\0", "a", "A\0b", "\ufeffa", *SPECIAL, *CONTRACTIONS, *DIGITS, *EMOJI, *SPACES, *CASES]
    out += [*long_texts(rng), *sweep(rng)]
    seen = dict.fromkeys(out)
    while len(seen) < COUNT:
        seen[mixture(rng, parts)] = None
    assert len(seen) == COUNT, len(seen)
    return list(seen)
