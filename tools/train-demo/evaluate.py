"""How often the model paints what held-out prompts say, judged by check/.

python evaluate.py --model OUT --prompts 200 [--report out.json] [--png sheet.png] [--seen]
Four groups of prompts in equal parts, half of each Chinese: object (one, with its colour), pair (two, with
their relation), time (of day), count (two or three).  place is measured on the objects.
"""
import argparse
import itertools
import json
import pathlib
import random
import time
from collections import defaultdict

import numpy as np
import torch

from captions import EN, ZH, caption, color_word, time_words
from check.judge import judge
from parallel import wait_while_paused
from sample import Painter
from sheet import save_sheet
from world import spec, spec_held_out

GROUPS = {
    'object': lambda s: len(s['objects']) == 1 and s['objects'][0]['count'] == 1,
    'pair': lambda s: len(s['objects']) == 2,
    'time': lambda s: s['type'] == 'scene',
    'count': lambda s: len(s['objects']) == 1 and s['objects'][0]['count'] > 1,
}
FIRST_SCENE = 90_000_000  # training indices are far below
BATCH = 8


def full_caption(scene, language, rng):
    """A wording that says every colour, the time of day and the relation."""
    for _ in range(100):
        text = caption(scene, language, rng, vague=0.)
        colors = all(color_word(x['color'], language) in text for x in scene['objects'])
        if colors and (scene['type'] != 'scene' or any(w in text for w in time_words(scene['time'], language))):
            return text
    return None


def test_prompts(group, count, held_out=True):
    """[(prompt, language, scene)], English and Chinese in turn; no rain or snow (their strokes hide edges)."""
    out, make = [], spec_held_out if held_out else spec
    for i in itertools.count(FIRST_SCENE):
        if len(out) == count:
            return out
        scene, language = make(i), (EN, ZH)[len(out) % 2]
        if scene.get('weather') in ('rain', 'snow') or not GROUPS[group](scene):
            continue
        text = full_caption(scene, language, random.Random(i))
        if text:
            out.append((text, language, scene))


def share(values):
    """Mean and its standard error."""
    v = np.asarray(values, float)
    return round(float(v.mean()), 3), round(float(v.std() / max(len(v), 1) ** .5), 3)


def evaluate(painter, per_group, steps, cfg, held_out):
    """Rows {group, prompt, language, answers}, and the pictures."""
    rows, pictures = [], []
    for group in GROUPS:
        prompts = test_prompts(group, per_group, held_out)
        for k in range(0, len(prompts), BATCH):
            wait_while_paused()
            part = prompts[k:k + BATCH]
            painted = painter([p for p, _, _ in part], range(k, k + len(part)), steps, cfg)
            for picture, (text, language, scene) in zip(painted, part):
                answers = {name: bool(v) for name, v in judge(picture, scene).items()}
                rows.append({'group': group, 'prompt': text, 'language': language, 'answers': answers})
                print('yes' if answers[group] else ' no', group, text, flush=True)
            pictures += list(painted)
    return rows, pictures


def summary(rows):
    """{measure: {all, en, zh: (share, standard error)}}."""
    values = defaultdict(lambda: defaultdict(list))
    for row in rows:
        names = {row['group']} | ({'place'} if row['group'] == 'object' else set())
        for name in names:
            for language in ('all', row['language']):
                values[name][language].append(row['answers'][name])
    return {name: {language: share(v) for language, v in by.items()} for name, by in values.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--model', required=True)
    ap.add_argument('--prompts', type=int, default=200)
    ap.add_argument('--steps', type=int, default=20)
    ap.add_argument('--cfg', type=float, default=4.)
    ap.add_argument('--seen', action='store_true', help='scenes of the training distribution instead')
    ap.add_argument('--report', type=pathlib.Path)
    ap.add_argument('--png')
    ap.add_argument('--bf16', action='store_true', help='the UNet in bf16')
    ap.add_argument('--threads', type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    start = time.time()
    painter = Painter(args.model, torch.bfloat16 if args.bf16 else torch.float32)
    rows, pictures = evaluate(painter, args.prompts // len(GROUPS), args.steps, args.cfg, not args.seen)
    result = {'steps': args.steps, 'cfg': args.cfg, 'held_out': not args.seen, 'seconds': round(time.time() - start),
              'shares': summary(rows)}
    print(json.dumps(result, indent=1))
    if args.report:
        args.report.write_text(json.dumps({**result, 'rows': rows}, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')
    if args.png:
        save_sheet(pictures, args.png, columns=8)


if __name__ == '__main__':
    main()
