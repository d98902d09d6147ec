"""The exported folder is what it says: diffusers' own pipeline loads it and paints the same pictures as sample.py.

python verify.py --model OUT [--f32 OUT32]     OUT32: the same weights exported with --f32
"""
import argparse

import numpy as np
import torch
from diffusers import StableDiffusionPipeline

from sample import Painter

PROMPTS = ['a red house in a meadow by day', '夜晚，海上有一艘红色的船']
SEED, STEPS, CFG = 1, 20, 4.
LEAST_PSNR = 40  # dB


def psnr(a, b):
    return 10 * np.log10(255 ** 2 / max(((a.astype(float) - b) ** 2).mean(), 1e-9))


def pipelines(folder):
    """English, and Chinese with the shared parts passed in."""
    english = StableDiffusionPipeline.from_pretrained(folder, torch_dtype=torch.float32)
    chinese = StableDiffusionPipeline.from_pretrained(f'{folder}/zh', unet=english.unet, vae=english.vae, scheduler=english.scheduler,
                                                      torch_dtype=torch.float32)
    return english, chinese


def painted(pipeline, prompt):
    pipeline.set_progress_bar_config(disable=True)
    latents = torch.randn(1, 4, 32, 32, generator=torch.Generator().manual_seed(SEED))
    return np.asarray(pipeline(prompt, num_inference_steps=STEPS, guidance_scale=CFG, height=256, width=256, latents=latents).images[0])


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--model', required=True)
    ap.add_argument('--f32')
    args = ap.parse_args()
    torch.set_num_threads(1)
    own = [Painter(args.model)([p], [SEED], STEPS, CFG)[0] for p in PROMPTS]
    pairs = {'diffusers pipeline': [painted(pipe, p) for pipe, p in zip(pipelines(args.model), PROMPTS)]}
    if args.f32:
        pairs['f32 weights'] = [Painter(args.f32)([p], [SEED], STEPS, CFG)[0] for p in PROMPTS]
    for name, pictures in pairs.items():
        values = [psnr(a, b) for a, b in zip(own, pictures)]
        print(f'against {name}: PSNR', [round(float(v), 1) for v in values], 'dB')
        if min(values) < LEAST_PSNR:
            raise SystemExit(1)


if __name__ == '__main__':
    main()
