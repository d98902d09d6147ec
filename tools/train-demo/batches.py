"""Captions as token ids, and which scenes go into a batch."""
import multiprocessing as mp
import random
import re

import numpy as np
import torch

from captions import EN, ZH, caption
from models import TOKENS
from world import spec

# (type, number of objects): share of a batch in the first third of the training, and later.
# Pairs are half of everything: which colour belongs to which object is learned last.
MIX = {('shapes', 1): (.16, .12), ('shapes', 2): (.24, .20), ('scene', 0): (.05, .04), ('scene', 1): (.25, .30), ('scene', 2): (.30, .34)}
# Shares of captions.caption(vague, inverted): the plain wording first, the rest when that is understood.
PLAIN_WORDING = {'vague': 0., 'inverted': 0.}
FREE_WORDING = {'vague': .12, 'inverted': .25}
ENGLISH = .5  # share of English captions


class Tokens:
    """Captions to ids of fixed length, as the tokenizers give them, with every word looked up once."""

    def __init__(self, clip_tokenizer, bert_tokenizer):
        self._clip, self._bert = clip_tokenizer, bert_tokenizer
        self._words, self._characters = {}, bert_tokenizer.get_vocab()

    def _english(self, text):
        ids = [self._clip.bos_token_id]
        for word in re.findall(r'[a-z]+|[^\sa-z]+', text.lower()):
            if word not in self._words:
                self._words[word] = self._clip(word, add_special_tokens=False).input_ids
            ids += self._words[word]
        ids = ids[:TOKENS - 1] + [self._clip.eos_token_id]
        return ids + [self._clip.pad_token_id] * (TOKENS - len(ids))

    def _chinese(self, text):
        v = self._characters
        ids = [v['[CLS]']] + [v.get(c, v['[UNK]']) for c in text][:TOKENS - 2] + [v['[SEP]']]
        return ids + [v['[PAD]']] * (TOKENS - len(ids))

    def __call__(self, texts, language):
        """(N, TOKENS) i32."""
        return np.array([(self._english if language == EN else self._chinese)(t) for t in texts], np.int32)


class Scenes:
    """The training scenes 0 .. count - 1, drawn by kind, with their captions as token ids."""

    def __init__(self, count, tokens):
        self.specs, self._tokens = [spec(i) for i in range(count)], tokens
        self._pools = {k: [i for i, s in enumerate(self.specs) if (s['type'], len(s['objects'])) == k] for k in MIX}

    def _ids(self, rng, indices, language, wording, dropout):
        texts = ['' if rng.random() < dropout else caption(self.specs[i], language, rng, **wording) for i in indices]
        return self._tokens(texts, language)

    def batch(self, seed, size, progress, wording, dropout=0.):
        """Scene indices, English ids of the first ones, Chinese ids of the rest; `progress` 0..1 of the training."""
        rng = random.Random(seed)
        kinds = rng.choices(list(MIX), [m[progress > 1 / 3] for m in MIX.values()], k=size)
        indices = [rng.choice(self._pools[k]) for k in kinds]
        part = round(size * ENGLISH)
        return indices, self._ids(rng, indices[:part], EN, wording, dropout), self._ids(rng, indices[part:], ZH, wording, dropout)


def batches(make, steps, processes):
    """make(step) for each step, in order; computed ahead by `processes` others (0: here, one by one)."""
    if not processes:
        yield from map(make, steps)
        return
    global _make  # for the forked workers: a closure cannot be sent
    _make = make
    with mp.get_context('fork').Pool(processes) as pool:
        yield from pool.imap(_call_make, steps, chunksize=4)


def _call_make(step):
    return _make(step)


def encode_text(clip, bert, english, chinese, device='cpu'):
    """States (N, TOKENS, WIDTH) f32 of both parts."""
    english, chinese = (torch.from_numpy(x).to(device) for x in (english, chinese))
    with torch.autocast(torch.device(device).type, torch.bfloat16):
        return torch.cat([clip(english)[0], bert(chinese)[0]]).float()
