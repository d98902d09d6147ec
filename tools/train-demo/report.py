"""The figures of docs/demo-model.md, between its two markers: match rates, failures with a sheet, VAE, variety, checker."""
import itertools
import json

import numpy as np
import torch
from PIL import Image

from check_self import measure
from make_latents import to_tensor
from paint import paint
from parallel import wait_while_paused
from prompts import GROUPS
from world import spec_held_out

BEGIN, END = '<!-- figures:begin -->', '<!-- figures:end -->'
# measure: (how the page calls it, share wanted)
MEASURES = {'object': ('one object with its colour', .90), 'pair': ('two objects with their relation', .75), 'time': ('time of day', .85),
            'place': ('place of one object', None), 'count': ('two or three of a kind', None)}
LANGUAGE_GAP, OWN, OTHER, LEAST_PSNR = .10, .97, .03, 28  # goals
FIRST_SCENE, SCENES = 95_000_000, 60  # for the VAE
VARIETY = ['a red boat on the sea at sunset', 'a yellow house in a meadow by day', 'mountains at night with stars',
           '白天，草地上有一座黄色的房子']
SEEDS = 8  # of each prompt of VARIETY
SHOWN, COLUMNS, SIDE = 6, 6, 128  # failures shown of each group; size of one in the sheet


def _percent(value_and_error):
    value, error = value_and_error
    return f'{100 * value:.0f} ± {100 * error:.0f} %'


def _verdict(short, unit):
    return 'reached' if short <= 0 else f'{short:.{1 if unit == "dB" else 0}f} {unit} short'


def match_table(shares):
    lines = ['| prompt match | goal | English | Chinese | both | |', '|---|---|---|---|---|---|']
    for name, (title, goal) in MEASURES.items():
        got = shares[name]
        verdict = _verdict(round(100 * (goal - got['all'][0]), 1), 'points') if goal else ''
        wanted = f'{100 * goal:.0f} %' if goal else ''
        lines.append(f"| {title} | {wanted} | {_percent(got['en'])} | {_percent(got['zh'])} | {_percent(got['all'])} | {verdict} |")
    gap = max(100 * (shares[n]['en'][0] - shares[n]['zh'][0]) for n, (_, goal) in MEASURES.items() if goal)
    lines.append(f"\nChinese is at most {max(gap, 0):.0f} points behind English in the first three rows (goal: {100 * LANGUAGE_GAP:.0f}).")
    return lines


@torch.no_grad()
def vae_psnr(vae):
    """PSNR in dB of each of SCENES scenes that nothing was trained on."""
    out = []
    for i in range(FIRST_SCENE, FIRST_SCENE + SCENES):
        picture = paint(spec_held_out(i))
        y = vae.decode(vae.encode(to_tensor([picture])).latent_dist.mode()).sample
        again = (y.clamp(-1, 1) * 127.5 + 127.5).round()[0].permute(1, 2, 0).numpy()
        out.append(10 * np.log10(255 ** 2 / max(((again - picture) ** 2).mean(), 1e-9)))
    return out


def variety(painter, args):
    """Mean absolute difference (of 255) of each two pictures of one prompt."""
    out = []
    for prompt in VARIETY:
        wait_while_paused()
        pictures = painter([prompt] * SEEDS, range(SEEDS), args.steps, args.cfg).astype(float)
        out += [np.abs(a - b).mean() for a, b in itertools.combinations(pictures, 2)]
    return out


def checker_table(renders):
    lines = ['| the checker itself | yes on its own prompt | on another prompt | on one wrong word |', '|---|---|---|---|']
    good = True
    for group in GROUPS:
        answers = measure(group, renders)
        own, other = np.mean(answers['own']), np.mean(answers['other'])
        wrong = np.mean([v for k, values in answers.items() if k.startswith('wrong') for v in values])
        good = good and own >= OWN and max(other, wrong) <= OTHER
        lines.append(f'| {MEASURES[group][0]} | {100 * own:.1f} % | {100 * other:.1f} % | {100 * wrong:.1f} % |')
    lines.append(f"\nOn {renders} true renders of each kind; goals: at least {100 * OWN:.0f} %, at most {100 * OTHER:.0f} %: "
                 f"{'reached' if good else 'not reached'}.")
    return lines


def failures(rows, pictures, path):
    """A sheet of the first failures of each group, and a line for each."""
    chosen = []
    for group in GROUPS:
        chosen += [k for k, r in enumerate(rows) if r['group'] == group and not r['answers'][group]][:SHOWN]
    lines = []
    for group in GROUPS:
        wrong = sum(r['group'] == group and not r['answers'][group] for r in rows)
        lines.append(f"{MEASURES[group][0]}: {wrong} of {sum(r['group'] == group for r in rows)}")
    lines = ['Failures: ' + '; '.join(lines) + '.']
    if not chosen:
        return lines
    small = [np.asarray(Image.fromarray(pictures[k]).resize((SIDE, SIDE), Image.Resampling.LANCZOS)) for k in chosen]
    small += [np.full_like(small[0], 255)] * (-len(small) % COLUMNS)
    sheet = np.concatenate([np.concatenate(small[k:k + COLUMNS], 1) for k in range(0, len(small), COLUMNS)])
    Image.fromarray(sheet).save(path, quality=88)
    lines += [f'The first {SHOWN} of each kind at most, row by row:\n', f'![failures](images/{path.name})\n']
    return lines + [f"{n + 1}. {rows[k]['group']}: {rows[k]['prompt']}" for n, k in enumerate(chosen)]


def write_figures(args, painter, rows, pictures, result):
    """Replaces what stands between the markers; the sheet of failures goes to images/ beside the page."""
    text = args.markdown.read_text(encoding='utf-8')
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f'{args.markdown}: expected one {BEGIN} and one {END}')
    files = json.loads((painter.folder / 'manifest.json').read_text(encoding='utf-8'))['files']
    unet = files['unet/diffusion_pytorch_model.safetensors']['crc32']
    quality, differences = vae_psnr(painter.vae), variety(painter, args)
    (args.markdown.parent / 'images').mkdir(exist_ok=True)
    lines = [f'`evaluate.py --model MODEL --prompts {args.prompts} --skip {args.skip} --markdown docs/demo-model.md`, for the weights whose',
             f"UNet has the CRC-32 {unet}: {args.prompts} prompts a language that training never saw, {result['steps']} steps, guidance "
             f"{result['cfg']:g}; mean and its standard error." + (f' The first {args.skip} of each kind are left out: the checker was tuned on'
             ' 100 of them.' if args.skip else '') + '\n']
    lines += match_table(result['shares'])
    lines += [f"\nVAE, {SCENES} scenes never seen: PSNR {np.mean(quality):.1f} dB, the worst {min(quality):.1f} dB "
              f"(goal {LEAST_PSNR}: {_verdict(LEAST_PSNR - np.mean(quality), 'dB')}).",
              f"Variety: two pictures of one prompt differ by {np.mean(differences):.1f} of 255 a value (mean absolute difference, "
              f"{len(VARIETY)} prompts, {SEEDS} seeds), the two that are most alike by {min(differences):.1f}.\n"]
    lines += checker_table(args.renders)
    lines += ['', *failures(rows, pictures, args.markdown.parent / 'images/demo-failures.jpg')]
    head, tail = text.split(BEGIN)[0], text.split(END)[1]
    args.markdown.write_text(head + BEGIN + '\n' + '\n'.join(lines) + '\n' + END + tail, encoding='utf-8')
