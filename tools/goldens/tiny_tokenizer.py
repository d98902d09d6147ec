"""A CLIP tokenizer folder with a small vocabulary of its own, in the files of Stable Diffusion 1.5."""
import collections
import json
import re

SENTENCES = """a red house in a green meadow by day. a photo of an astronaut riding a horse on mars.
the old lighthouse by the sea at sunset, oil painting, highly detailed. a black cat sleeps in the snow.
two boats under a blue hot-air balloon. don't look now: it's the cat's third birthday, we're late!
portrait of a woman with flowers in her hair, soft light, 35mm film. blurry, low quality, bad anatomy, text.
a castle on a hill above the clouds, 8k, trending. three purple flowers and one yellow star in the night sky.
mountains at sunset with clouds over the water. a robot reads a book in the library, watercolor.
an image of the city in the rain, neon lights reflected on the street. painting of a forest in autumn."""


def byte_units():
    """GPT-2's printable stand-ins for the 256 bytes, in the order of the CLIP vocabulary."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) for b in shown] + [chr(256 + n) for n in range(len(hidden))], [*shown, *hidden]


def learn_merges(count):
    """Byte pair merges of SENTENCES; ties go to the pair that sorts first."""
    words = collections.Counter(re.findall(r"'(?:s|t|re|ve|m|ll|d)|[a-z]+|[0-9]|[^\sa-z0-9]+", SENTENCES.lower()))
    split = {w: [*w[:-1], w[-1] + "</w>"] for w in words}
    merges = []
    while len(merges) < count:
        pairs = collections.Counter()
        for w, n in words.items():
            for pair in zip(split[w], split[w][1:]):
                pairs[pair] += n
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for w, parts in split.items():
            i = 0
            while i + 1 < len(parts):
                if (parts[i], parts[i + 1]) == best:
                    parts[i:i + 2] = [parts[i] + parts[i + 1]]
                i += 1
    return merges


def clip_vocab(merges):
    """Order of openai/clip-vit-large-patch14: bytes, bytes ending a word, merges, the two special tokens."""
    units, _ = byte_units()
    tokens = units + [u + "</w>" for u in units] + ["".join(m) for m in merges]
    return {t: i for i, t in enumerate([*tokens, "<|startoftext|>", "<|endoftext|>"])}


def added(content, typed):
    kind = {"__type": "AddedToken"} if typed else {}
    return {**kind, "content": content, "lstrip": False, "normalized": True, "rstrip": False, "single_word": False}


def write_clip(folder, merges, max_length, pad="<|endoftext|>"):
    """The four files as they are in Stable Diffusion 1.5 (with pad "!" as in 2.x). Returns the vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    vocab = clip_vocab(merges)
    start, end = "<|startoftext|>", "<|endoftext|>"
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, separators=(",", ":")), "utf-8")
    lines = ["#version: 0.2", *(" ".join(m) for m in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", "utf-8")
    special = {"bos_token": added(start, False), "eos_token": added(end, False), "pad_token": pad,
               "unk_token": added(end, False)}
    config = {"add_prefix_space": False, "bos_token": added(start, True), "do_lower_case": True,
              "eos_token": added(end, True), "errors": "replace", "model_max_length": max_length,
              "name_or_path": "openai/clip-vit-large-patch14", "pad_token": pad,
              "special_tokens_map_file": "./special_tokens_map.json", "tokenizer_class": "CLIPTokenizer",
              "unk_token": added(end, True)}
    for name, obj in (("special_tokens_map", special), ("tokenizer_config", config)):
        (folder / f"{name}.json").write_text(json.dumps(obj, indent=2) + "\n", "utf-8")
    return vocab
