"""Text pretraining: from the text states alone, say what is where.  -> W/text.pt

One attention layer with a learned question per fact (time, ground, kind and colour in each place ...)
answers from the states of both encoders, so that English and Chinese share one space before the UNet
sees anything.  The layer is dropped afterwards.

python train_text.py --work W --steps 1500
"""
import argparse
import os
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import parallel
from batches import FREE_WORDING, PLAIN_WORDING, Scenes, Tokens, encode_text
from models import WIDTH, load_tokenizers, make_text_encoders
from world import COLORS, GROUNDS, KINDS, PLAIN, SHAPES, TIMES, WEATHERS

LOG_STEPS = 100
_KIND_NAMES, _COLOR_NAMES, _BACKGROUNDS = ['none', *KINDS, *SHAPES], ['none', *COLORS], [*TIMES, *PLAIN]
_SLOTS = ['left', 'right', 'top', 'bottom', 'center', 'inner']
_SLOT_OF_POSITION = {'left': 'left', 'right': 'right', 'middle': 'center'}
_SLOTS_OF_RELATION = {'left of': ('left', 'right'), 'right of': ('right', 'left'), 'above': ('top', 'bottom'),
                      'below': ('bottom', 'top'), 'inside': ('inner', 'center')}
_FACTS = {'time': 1 + len(TIMES), 'ground': 1 + len(GROUNDS), 'weather': 1 + len(WEATHERS), 'background': 1 + len(_BACKGROUNDS),
          'count': 4, 'sun or moon': 2, 'stars': 2}
for _slot in _SLOTS:
    _FACTS |= {f'kind {_slot}': len(_KIND_NAMES), f'color {_slot}': len(_COLOR_NAMES)}
_FIRST_SLOT = len(_FACTS) - 2 * len(_SLOTS)


def answers(scene):
    """The right class for each of _FACTS."""
    objects, plain = scene['objects'], scene['type'] == 'shapes'
    count = objects[0]['count'] if len(objects) == 1 else 0
    if plain:
        out = [0, 0, 0, 1 + _BACKGROUNDS.index(scene['bg']), count, 0, 0]
    else:
        out = [1 + TIMES.index(scene['time']), 1 + GROUNDS.index(scene['ground']), 1 + WEATHERS.index(scene['weather']), 0,
               count, int(scene['sunmoon']), int(scene['stars'])]
    where = {}
    if len(objects) == 1:
        where = {_SLOT_OF_POSITION[objects[0]['pos']]: objects[0]}
    elif len(objects) == 2:
        where = dict(zip(_SLOTS_OF_RELATION[scene['rel']], objects))
    for slot in _SLOTS:
        thing = where.get(slot, {'kind': 'none', 'color': 'none'})
        out += [_KIND_NAMES.index(thing['kind']), _COLOR_NAMES.index(thing['color'])]
    return out


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.questions = nn.Parameter(torch.randn(len(_FACTS), WIDTH) * .5)
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.answers = nn.ModuleList([nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, n)) for n in _FACTS.values()])

    def forward(self, states):
        """(N, TOKENS, WIDTH) -> per fact (N, classes)."""
        y = self.attention(self.questions.expand(len(states), -1, -1), states, states, need_weights=False)[0]
        return [a(y[:, k]) for k, a in enumerate(self.answers)]


def _slot_accuracy(right, wanted):
    """Share of objects of which kind and colour are read in the right place: English, Chinese."""
    right, there = right[_FIRST_SLOT:], wanted.T[_FIRST_SLOT:] > 0
    both = (right[0::2] & right[1::2]) & there[0::2]
    half = wanted.shape[0] // 2
    return [(both[:, s].sum() / there[0::2, s].sum().clamp(min=1)).item() for s in (slice(half), slice(half, None))]


class Log:
    """Means since the last line: loss, and what is read back right."""

    def __init__(self):
        self.rows = []

    def add(self, loss, out, wanted):
        right = torch.stack([o.argmax(1) == wanted[:, k] for k, o in enumerate(out)]).cpu()
        slots = _slot_accuracy(right, wanted.cpu())
        self.rows.append([loss.item(), right[0].float().mean().item(), right[1].float().mean().item(), *slots])

    def line(self):
        values = np.round(np.mean(self.rows, 0), 3).tolist()
        self.rows = []
        return 'loss %s, time %s, ground %s, objects English %s, objects Chinese %s' % tuple(values)


def train(args, scenes, clip, bert):
    device = args.device
    reader = Reader().to(device)
    parameters = [*clip.parameters(), *bert.parameters(), *reader.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=args.rate, weight_decay=.01, fused=True)

    def worker(rank, sync):
        sync.attach(rank, parameters)
        log, begin = Log(), time.time()
        for step in range(args.steps):
            begin += parallel.wait_while_paused()
            done = step / args.steps
            wording = PLAIN_WORDING if done < .5 else {'vague': 0., 'inverted': FREE_WORDING['inverted']}
            indices, english, chinese = scenes.batch(step * sync.world + rank, args.batch // sync.world, 0., wording)
            wanted = torch.tensor([answers(scenes.specs[i]) for i in indices], device=device)
            out = reader(encode_text(clip, bert, english, chinese, device))
            loss = sum(F.cross_entropy(o, wanted[:, k]) for k, o in enumerate(out)) / len(_FACTS)
            sync.reduce(torch.autograd.grad(loss, parameters, allow_unused=True))
            for g in optimizer.param_groups:
                g['lr'] = args.rate * min(1, (step + 1) / 100) * (1 - .8 * done)
            sync.clip(1.)
            optimizer.step()
            log.add(loss, out, wanted)
            if rank == 0 and (step + 1) % LOG_STEPS == 0:
                print(f'step {step + 1} {time.time() - begin:.0f} s: {log.line()}', flush=True)
        if rank == 0:
            torch.save({'clip': clip.state_dict(), 'bert': bert.state_dict()}, args.work / 'text.tmp')
            os.replace(args.work / 'text.tmp', args.work / 'text.pt')

    parallel.launch(worker, sum(p.numel() for p in parameters), args.processes)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    ap.add_argument('--steps', type=int, default=1500)
    ap.add_argument('--batch', type=int, default=48)
    ap.add_argument('--rate', type=float, default=7e-4)
    ap.add_argument('--scenes', type=int, default=20000)
    ap.add_argument('--device', default='cpu')
    ap.add_argument('--processes', type=int, default=2, help='1 on a GPU')
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tokenizers = load_tokenizers(args.work)
    clip, bert = (m.to(args.device) for m in make_text_encoders(*tokenizers))
    train(args, Scenes(args.scenes, Tokens(*tokenizers)), clip, bert)


if __name__ == '__main__':
    main()
