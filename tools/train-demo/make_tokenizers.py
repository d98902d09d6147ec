"""The two vocabularies, from captions of the generator.  -> W/tokenizer (CLIP byte pairs), W/tokenizer_zh (WordPiece)

Byte pairs are merged until every word of the captions is one token; any other text still works, in pieces.
Chinese is one token per character.

python make_tokenizers.py --work W
"""
import argparse
import json
import pathlib
import re
from collections import Counter

from captions import EN, ZH, caption
from models import TOKENS
from world import spec

FIRST_SCENE, SCENES = 7_000_000, 30_000
MORE_WORDS = 'sky moon sun cloud clouds field village beach green grass ocean blue river'.split()
MORE_CHARACTERS = '。、0123456789abcdefghijklmnopqrstuvwxyz'


def count_words():
    """(English words, Chinese characters) of the captions, with how often they come."""
    english, chinese = Counter(), Counter()
    for i in range(FIRST_SCENE, FIRST_SCENE + SCENES):
        scene = spec(i)
        english.update(re.findall(r'[a-z]+|[^\sa-z]+', caption(scene, EN).lower()))
        chinese.update(caption(scene, ZH))
    english.update(MORE_WORDS)
    return english, chinese


def byte_characters():
    """GPT-2's printable character for each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in printable]
    return [chr(b) for b in printable] + [chr(256 + n) for n in range(len(rest))]


def merge_pairs(counts):
    """Byte-pair merges, most frequent pair first, until each word is one token."""
    words = {w: [*w[:-1], w[-1] + '</w>'] for w in counts}
    merges = []
    while True:
        pairs = Counter()
        for word, parts in words.items():
            for pair in zip(parts, parts[1:]):
                pairs[pair] += counts[word]
        if not pairs:
            return merges
        a, b = max(pairs.items(), key=lambda item: (item[1], item[0]))[0]
        merges.append((a, b))
        for word, parts in words.items():
            out, k = [], 0
            while k < len(parts):
                joined = parts[k:k + 2] == [a, b]
                out.append(a + b if joined else parts[k])
                k += 2 if joined else 1
            words[word] = out


def _write_json(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')


def write_clip(folder, counts):
    folder.mkdir(parents=True, exist_ok=True)
    base, merges = byte_characters(), merge_pairs(counts)
    start, end = '<|startoftext|>', '<|endoftext|>'
    vocabulary = list(dict.fromkeys(base + [c + '</w>' for c in base] + [a + b for a, b in merges])) + [start, end]
    special = {'bos_token': start, 'eos_token': end, 'unk_token': end, 'pad_token': end}
    _write_json(folder / 'vocab.json', {t: i for i, t in enumerate(vocabulary)})
    (folder / 'merges.txt').write_text('#version: 0.2\n' + ''.join(f'{a} {b}\n' for a, b in merges), encoding='utf-8')
    _write_json(folder / 'special_tokens_map.json', special)
    _write_json(folder / 'tokenizer_config.json', {'tokenizer_class': 'CLIPTokenizer', 'model_max_length': TOKENS, 'do_lower_case': True,
                                                   'add_prefix_space': False, 'errors': 'replace', **special})
    return len(vocabulary)


def write_bert(folder, counts):
    folder.mkdir(parents=True, exist_ok=True)
    special = {'pad_token': '[PAD]', 'unk_token': '[UNK]', 'cls_token': '[CLS]', 'sep_token': '[SEP]', 'mask_token': '[MASK]'}
    characters = [c for c, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if c.strip()]
    latin = 'abcdefghijklmnopqrstuvwxyz0123456789'
    vocabulary = list(dict.fromkeys([*special.values(), *characters, *MORE_CHARACTERS, *('##' + c for c in latin)]))
    (folder / 'vocab.txt').write_text('\n'.join(vocabulary) + '\n', encoding='utf-8')
    _write_json(folder / 'tokenizer_config.json', {'tokenizer_class': 'BertTokenizer', 'model_max_length': TOKENS, 'do_lower_case': True,
                                                   'tokenize_chinese_chars': True, **special})
    return len(vocabulary)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    args = ap.parse_args()
    english, chinese = count_words()
    sizes = write_clip(args.work / 'tokenizer', english), write_bert(args.work / 'tokenizer_zh', chinese)
    print('vocabularies: %d English, %d Chinese' % sizes)


if __name__ == '__main__':
    main()
