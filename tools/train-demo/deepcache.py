"""How often --deepcache auto holds the quality that is asked for, with the demo model: SSIM of its pictures to those without DeepCache.

python deepcache.py TERN [--qualities 0.9,0.95,0.98] [--prompts 20] [--steps 20]
TERN: the command. Prompts are those of evaluate.py, in four groups. Of each: one picture, for which a trial in few steps is made; and four,
of which the first is measured, and the others have its interval. Nothing is remembered from one to the next. Writes a Markdown table.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np
from PIL import Image

from captions import EN
from dtypes import ssim
from prompts import GROUPS, test_prompts


def paint(tern, tmp, prompt, seed, steps, count, *more):
    """Pictures, and the interval that was chosen."""
    text, language, _ = prompt
    model = 'demo' if language == EN else 'demo-zh'
    shutil.rmtree(tmp / 'tern' / 'deepcache', ignore_errors=True)
    env = dict(os.environ, XDG_CACHE_HOME=str(tmp))
    out = subprocess.run([tern, 'txt2img', model, '--json', '-p', text, '--seed', str(seed), '--steps', str(steps), '-b', str(count), '--device',
                          'cpu', '-o', str(tmp / 'p.png'), *more], check=True, capture_output=True, text=True, env=env).stdout
    events = [json.loads(line) for line in out.splitlines()]
    pictures = [np.asarray(Image.open(e['path']).convert('RGB')) for e in events if e['event'] == 'image']
    chosen = [int(e['value'].split()[0]) for e in events if e['event'] == 'choice']
    return pictures, chosen[0] if chosen else 1


def row(name, quality, found, intervals):
    held = 100 * np.mean([x >= quality for x in found])
    print(f'| {quality} | {name} | {np.median(intervals):g} ({min(intervals)} to {max(intervals)}) | {held:.0f} % | {np.mean(found):.3f} | '
          f'{min(found):.3f} |', flush=True)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('tern')
    ap.add_argument('--qualities', default='0.9,0.95,0.98')
    ap.add_argument('--prompts', type=int, default=20)
    ap.add_argument('--steps', type=int, default=20)
    args = ap.parse_args()
    each = args.prompts // len(GROUPS)
    prompts = [(seed, p) for g in GROUPS for seed, p in enumerate(test_prompts(g, each))]
    print('| asked | pictures | N | held | mean SSIM | least |\n|---|---|---|---|---|---|')
    with tempfile.TemporaryDirectory() as folder:
        tmp = pathlib.Path(folder)
        whole = [paint(args.tern, tmp, p, seed, args.steps, 4) for seed, p in prompts]
        for quality in (float(q) for q in args.qualities.split(',')):
            auto = ('--deepcache', 'auto', '--quality', str(quality))
            single = [paint(args.tern, tmp, p, seed, args.steps, 1, *auto) for seed, p in prompts]
            four = [paint(args.tern, tmp, p, seed, args.steps, 4, *auto) for seed, p in prompts]
            like = [[ssim(a, b) for a, b in zip(w[0], f[0])] for w, f in zip(whole, four)]
            row('one', quality, [ssim(w[0][0], s[0][0]) for w, s in zip(whole, single)], [s[1] for s in single])
            row('the first of four', quality, [x[0] for x in like], [f[1] for f in four])
            row('its three others', quality, [v for x in like for v in x[1:]], [f[1] for f in four])


if __name__ == '__main__':
    main()
