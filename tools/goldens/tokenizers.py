"""tests/data/tokenizers: ids of the fast tokenizers for 10,000 texts; models/tokenizers/data: the CLIP vocabulary."""
import gzip
import json
import struct
import sys
import tempfile
import zlib
from pathlib import Path

import numpy as np
from transformers import BertTokenizerFast, CLIPTokenizer

from .common import DATA, REPO, fresh, write_json
from .texts import RANGES, WORDS, texts
from .tiny_tokenizer import clip_vocab, write_clip
from .unicode_tables import tables

SHIPPED = REPO / "models" / "tokenizers" / "data" / "clip_merges.z"
BPE = Path(sys.prefix) / "share" / "clip" / "bpe_simple_vocab_16e6.txt.gz"  # tools/goldens-venv puts it there
ZH_VOCAB = DATA / "tokenizers" / "bert-zh" / "vocab.txt"  # the demo model's; kept, not made
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def clip_merges():
    """The merges that CLIP uses: the first 48894 after the file's first line."""
    lines = gzip.decompress(BPE.read_bytes()).decode("utf-8").split("\n")
    return [tuple(line.split()) for line in lines[1:49152 - 256 - 2 + 1]]


def compact(merges):
    """zlib of four planes, a byte a merge: left id high, left id low, right id high, right id low."""
    vocab = clip_vocab(merges)
    assert len(vocab) == 49408 and all(vocab[a + b] == 512 + i for i, (a, b) in enumerate(merges))
    pairs = np.array([[vocab[a], vocab[b]] for a, b in merges], dtype=np.uint16)
    planes = [pairs[:, 0] >> 8, pairs[:, 0] & 255, pairs[:, 1] >> 8, pairs[:, 1] & 255]
    return zlib.compress(b"".join(p.astype(np.uint8).tobytes() for p in planes), 9)


def wide_vocab():
    """A BERT vocabulary over many scripts: letters at the start and inside of words, pieces, 3000 Chinese ones."""
    letters = [chr(c) for c in range(33, 127) if not chr(c).isupper()]
    for name in ("latin", "greek", "cyrillic", "jamo", "kana", "devanagari", "arabic", "hebrew"):
        low, high = RANGES[name]
        letters += [chr(c) for c in range(max(low, 0xA1), high + 1) if chr(c).isprintable()]
    words = sorted({"".join(ch for ch in w.lower() if ch.isalpha()) for w in WORDS} - {""})
    pieces = sorted({w[i:] for w in words for i in range(1, len(w) - 1)})[::3]
    out = [*SPECIAL, "[unused0]", *letters, *words, *(f"##{ch}" for ch in letters), *(f"##{p}" for p in pieces)]
    out += [chr(c) for c in range(0x4E00, 0x4E00 + 7 * 3000, 7)]
    return list(dict.fromkeys(out))


def pack_texts(rows):
    parts = [struct.pack("<I", len(rows))]
    for row in rows:
        data = row.encode("utf-8")
        parts += [struct.pack("<I", len(data)), data]
    return zlib.compress(b"".join(parts), 9)


def pack_ids(rows, base):
    """Where a row is that of `base`, its count is 0xFFFFFFFF and no ids follow."""
    parts = [struct.pack("<I", len(rows))]
    for i, row in enumerate(rows):
        if base and base[i] == row:
            parts.append(struct.pack("<I", 0xFFFFFFFF))
            continue
        parts += [struct.pack("<I", len(row)), np.array(row, dtype="<u2").tobytes()]
    return zlib.compress(b"".join(parts), 9)


def bert(folder, vocab):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n", "utf-8")
    config = {"tokenizer_class": "BertTokenizer", "model_max_length": 512, "do_lower_case": True,
              "tokenize_chinese_chars": True, "pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]",
              "sep_token": "[SEP]", "mask_token": "[MASK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
    return BertTokenizerFast.from_pretrained(folder)


def make(root):
    folder, merges = fresh(root / "tokenizers"), clip_merges()
    rows = texts(["".join(m).replace("</w>", "") for m in merges if "".join(m).isascii()])
    (folder / "texts.z").write_bytes(pack_texts(rows))
    write_json(folder / "unicode.json", tables())
    if root == DATA:
        SHIPPED.parent.mkdir(parents=True, exist_ok=True)
        SHIPPED.write_bytes(compact(merges))
    assert SHIPPED.read_bytes() == compact(merges), SHIPPED

    def keep(name, tokenizer, base=None):
        ids = [tokenizer(t).input_ids for t in rows]
        assert max(max(r) for r in ids) < 65536
        (folder / f"{name}.ids.z").write_bytes(pack_ids(ids, base))
        return ids

    base = None
    with tempfile.TemporaryDirectory() as tmp:
        for name, pad in (("clip", "<|endoftext|>"), ("clip-pad-exclamation", "!")):
            write_clip(Path(tmp) / name, merges, 77, pad)
            base = keep(name, CLIPTokenizer.from_pretrained(Path(tmp) / name), base)
    for name, vocab in (("bert-zh", ZH_VOCAB.read_text("utf-8").split("\n")[:-1]), ("bert-wide", wide_vocab())):
        keep(name, bert(folder / name, vocab))
