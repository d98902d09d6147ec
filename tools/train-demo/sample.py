"""Pictures from an exported folder.

python sample.py --model OUT --png sheet.png [--prompts FILE] [--steps 20] [--cfg 4] [--seed 1]
"""
import argparse
import pathlib
import time

import torch
from diffusers import AutoencoderKL, DDIMScheduler, UNet2DConditionModel
from transformers import BertModel, BertTokenizer, CLIPTextModel, CLIPTokenizer

from sheet import save_sheet

PROMPTS = [
    'a red house in a meadow by day', 'a lighthouse by the sea at sunset', 'a black cat in the snow at night with a moon',
    'a yellow boat at sea under a blue hot-air balloon', 'a blue house to the left of an orange tree', 'three purple flowers in the hills',
    'a red circle inside a blue square on a white background', 'a yellow star above a green ring in a night sky',
    'mountains at sunset with clouds', 'a pink triangle to the right of a black circle',
    '夜晚，海上有一艘红色的船，满天星星', '草地上，一座白色的房子在一棵绿色的树右边，下雨',
]


def is_chinese(text):
    return any(ord(c) > 0x2e80 for c in text)


class Painter:
    """Text to pictures; `dtype` is the UNet's, the rest is f32."""

    def __init__(self, folder, dtype=torch.float32):
        self.folder = folder = pathlib.Path(folder)
        last = torch.channels_last
        self.unet = UNet2DConditionModel.from_pretrained(folder / 'unet').to(dtype).to(memory_format=last).eval()
        self.vae = AutoencoderKL.from_pretrained(folder / 'vae').float().to(memory_format=last).eval()
        self._english = CLIPTokenizer.from_pretrained(folder / 'tokenizer'), CLIPTextModel.from_pretrained(folder / 'text_encoder').eval()
        self._chinese = BertTokenizer.from_pretrained(folder / 'zh/tokenizer'), BertModel.from_pretrained(folder / 'zh/text_encoder').eval()
        self.scheduler, self.dtype = DDIMScheduler.from_pretrained(folder / 'scheduler'), dtype

    def _states(self, text, chinese):
        tokenizer, encoder = self._chinese if chinese else self._english
        ids = tokenizer(text, padding='max_length', max_length=tokenizer.model_max_length, truncation=True).input_ids
        return encoder.float()(torch.tensor([ids]))[0][0]

    @torch.no_grad()
    def __call__(self, prompts, seeds, steps=20, cfg=4., size=256):
        """(N, size, size, 3) uint8; picture k depends on prompts[k] and seeds[k] alone."""
        s = self.scheduler
        s.set_timesteps(steps)
        empty = torch.stack([self._states('', is_chinese(p)) for p in prompts])
        said = torch.stack([self._states(p, is_chinese(p)) for p in prompts])
        text = torch.cat([empty, said]).to(self.dtype)
        x = torch.stack([torch.randn(4, size // 8, size // 8, generator=torch.Generator().manual_seed(k)) for k in seeds])
        for t in s.timesteps:
            both = torch.cat([x, x]).to(self.dtype).contiguous(memory_format=torch.channels_last)
            without, with_text = self.unet(both, t, text).sample.float().chunk(2)
            x = s.step(without + cfg * (with_text - without), t, x).prev_sample
        pictures = torch.cat([self.vae.decode(z / self.vae.config.scaling_factor).sample for z in x.split(4)])
        return (pictures.clamp(-1, 1) * 127.5 + 127.5).round().byte().permute(0, 2, 3, 1).numpy()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--model', required=True)
    ap.add_argument('--png', required=True)
    ap.add_argument('--prompts', type=pathlib.Path, help='one prompt per line')
    ap.add_argument('--steps', type=int, default=20)
    ap.add_argument('--cfg', type=float, default=4.)
    ap.add_argument('--seed', type=int, default=1, help='of the first picture')
    ap.add_argument('--size', type=int, default=256)
    ap.add_argument('--threads', type=int, default=1)
    args = ap.parse_args()
    torch.set_num_threads(args.threads)
    prompts = PROMPTS
    if args.prompts:
        prompts = [line for line in args.prompts.read_text(encoding='utf-8').splitlines() if line.strip()]
    painter, start = Painter(args.model), time.time()
    pictures = painter(prompts, range(args.seed, args.seed + len(prompts)), args.steps, args.cfg, args.size)
    print(f'{len(prompts)} pictures in {time.time() - start:.1f} s')
    save_sheet(pictures, args.png)


if __name__ == '__main__':
    main()
