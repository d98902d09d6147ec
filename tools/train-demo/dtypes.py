"""What another dtype, or DeepCache, does to the demo model's pictures: how often they still show what the prompt says, judged by check/, and
how like those of f32 they are (PSNR, and SSIM [Wang 2004]: windows of 11 x 11, of each channel).

python dtypes.py TERN [--dtypes bf16,int8] [--prompts 200] [--steps 20] [--plot FILE.svg]
A dtype with + and int8 or int4 behind it has --weights of that ("auto+int4"), with + and a file *.json --recipe ("f32+recipe.json"); then
/3 is --deepcache 3, /5quad the same with the schedule quad:0:1.4 ("int8/3").
TERN: the command. Prompts are those of evaluate.py, English and Chinese in turn, in four groups; each picture has its own seed. Writes a
Markdown table on standard output, and bars of the mean SSIM and of prompt match to FILE.svg.
"""
import argparse
import math
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from captions import EN
from check.judge import judge
from prompts import GROUPS, test_prompts

sys.path.append(str(pathlib.Path(__file__).parents[2] / 'bench/peers'))
import chart  # noqa: E402


def paint(tern, text, language, seed, steps, dtype, out):
    model = 'demo' if language == EN else 'demo-zh'
    cached = re.fullmatch(r'(.*)/(\d+)(quad)?', dtype)
    dtype, interval, uneven = cached.groups() if cached else (dtype, None, None)
    dtype, _, weights = dtype.partition('+')
    kept = ['--recipe' if weights.endswith('.json') else '--weights', weights] if weights else []
    if interval:
        kept += ['--deepcache', interval] + ['--deepcache-schedule', 'quad:0:1.4'] * bool(uneven)
    subprocess.run([tern, 'txt2img', model, '-q', '-p', text, '--seed', str(seed), '--steps', str(steps), '--dtype', dtype, *kept,
                    '--device', 'cpu', '-o', str(out)], check=True)
    return np.asarray(Image.open(out).convert('RGB'))


def ssim(a, b):
    """Of two pictures of bytes, in f64."""
    x = torch.arange(11, dtype=torch.float64) - 5
    g = torch.exp(-x * x / (2 * 1.5 ** 2))
    window = (torch.outer(g, g) / g.sum() ** 2).expand(3, 1, 11, 11)
    a, b = (torch.from_numpy(p.astype(np.float64)).permute(2, 0, 1)[None] for p in (a, b))
    blur = lambda v: F.conv2d(v, window, groups=3)  # noqa: E731
    ma, mb = blur(a), blur(b)
    va, vb, cov = blur(a * a) - ma * ma, blur(b * b) - mb * mb, blur(a * b) - ma * mb
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    return float((((2 * ma * mb + c1) * (2 * cov + c2)) / ((ma * ma + mb * mb + c1) * (va + vb + c2))).mean())


def psnr(a, b):
    error = ((a.astype(np.float64) - b) ** 2).mean()
    return 10 * math.log10(255 ** 2 / error) if error else math.inf


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('tern')
    ap.add_argument('--dtypes', default='bf16,int8')
    ap.add_argument('--prompts', type=int, default=200)
    ap.add_argument('--steps', type=int, default=20)
    ap.add_argument('--plot')
    args = ap.parse_args()
    dtypes = args.dtypes.split(',')
    match, likeness = {d: [] for d in ['f32', *dtypes]}, {d: [] for d in dtypes}
    with tempfile.TemporaryDirectory() as tmp:
        for group in GROUPS:
            for seed, (text, language, scene) in enumerate(test_prompts(group, args.prompts // len(GROUPS))):
                pictures = {d: paint(args.tern, text, language, seed, args.steps, d, pathlib.Path(tmp) / 'picture.png') for d in match}
                for d, picture in pictures.items():
                    match[d].append(bool(judge(picture, scene)[group]))
                for d in dtypes:
                    likeness[d].append((ssim(pictures['f32'], pictures[d]), psnr(pictures['f32'], pictures[d])))
    print(f'{len(match["f32"])} prompts, {args.steps} steps\n')
    print('| dtype | prompt match | mean SSIM to f32 | least | PSNR, median | least |\n|---|---|---|---|---|---|')
    print(f'| f32 | {100 * np.mean(match["f32"]):.1f} % | | | | |')
    for d in dtypes:
        s, p = zip(*likeness[d])
        print(f'| {d} | {100 * np.mean(match[d]):.1f} % | {np.mean(s):.4f} | {min(s):.3f} | {np.median(p):.1f} dB | {min(p):.1f} dB |')
    if args.plot:
        bars = [('mean SSIM to f32', '', [(d, float(np.mean([s for s, _ in likeness[d]]))) for d in dtypes]),
                ('prompt match', '%', [(d, 100 * float(np.mean(m))) for d, m in match.items()])]
        pathlib.Path(args.plot).write_text(chart.bars(f'The demo model, {len(match["f32"])} prompts, {args.steps} steps', bars))


if __name__ == '__main__':
    main()
