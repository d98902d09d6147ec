"""How often the model paints what held-out prompts say, judged by check/; and all that docs/demo-model.md says in numbers.

python evaluate.py --model OUT [--prompts 200] [--report out.json] [--png sheet.png] [--seen]
python evaluate.py --model OUT --prompts 800 --markdown ../../docs/demo-model.md     writes the page's figures, too
Four groups of prompts in equal parts: object (one, with its colour), pair (two, with their relation), time (of day),
count (two or three).  place is measured on the objects, time on every landscape.
"""
import argparse
import json
import pathlib
import time
from collections import defaultdict

import numpy as np
import torch

from check.judge import judge
from parallel import wait_while_paused
from prompts import GROUPS, test_prompts
from report import write_figures
from sample import Painter
from sheet import save_sheet

BATCH = 8


def share(values):
    """Mean and its standard error."""
    v = np.asarray(values, float)
    return round(float(v.mean()), 3), round(float(v.std() / max(len(v), 1) ** .5), 3)


def evaluate(painter, per_group, steps, cfg, held_out, skip):
    """Rows {group, prompt, language, answers}, and the pictures."""
    rows, pictures = [], []
    for group in GROUPS:
        prompts = test_prompts(group, per_group, held_out, skip)
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
        names = {row['group']} | ({'place'} if row['group'] == 'object' else set()) | ({'time'} & row['answers'].keys())
        for name in names:
            for language in ('all', row['language']):
                values[name][language].append(row['answers'][name])
    return {name: {language: share(v) for language, v in by.items()} for name, by in values.items()}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--model', required=True)
    ap.add_argument('--prompts', type=int, default=200, help='per language, in four groups')
    ap.add_argument('--steps', type=int, default=20)
    ap.add_argument('--cfg', type=float, default=4.)
    ap.add_argument('--skip', type=int, default=0, help='prompts of each group to leave out first: those that the checker was tuned on')
    ap.add_argument('--seen', action='store_true', help='scenes of the training distribution instead')
    ap.add_argument('--report', type=pathlib.Path)
    ap.add_argument('--png')
    ap.add_argument('--markdown', type=pathlib.Path, help='the page whose figures are written')
    ap.add_argument('--renders', type=int, default=600, help='with --markdown: for the rates of the checker, of each group')
    ap.add_argument('--bf16', action='store_true', help='the UNet in bf16')
    ap.add_argument('--threads', type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    start = time.time()
    painter = Painter(args.model, torch.bfloat16 if args.bf16 else torch.float32)
    rows, pictures = evaluate(painter, 2 * args.prompts // len(GROUPS), args.steps, args.cfg, not args.seen, args.skip)
    result = {'steps': args.steps, 'cfg': args.cfg, 'held_out': not args.seen, 'seconds': round(time.time() - start),
              'shares': summary(rows)}
    print(json.dumps(result, indent=1))
    if args.report:
        args.report.write_text(json.dumps({**result, 'rows': rows}, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')
    if args.png:
        save_sheet(pictures, args.png, columns=8)
    if args.markdown:
        write_figures(args, painter, rows, pictures, result)


if __name__ == '__main__':
    main()
