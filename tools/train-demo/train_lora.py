"""A LoRA that paints the world of the demo model in neon at night.  -> OUT

Trains low-rank updates of the UNet's attention projections and of the 3x3 convolutions of its residual blocks, on
scenes whose pictures got that style; the words stay the same.  Everything else is as exported.  The file is what
diffusers' save_lora_weights writes (f16, under 1 MB).  Seeded by (step, process); goes on from W/lora/neon.pt.

python train_lora.py --work W --model MODEL --out neon.safetensors --steps 1200
"""
import argparse
import os
import pathlib
import time
import zlib

import numpy as np
import torch
from diffusers import StableDiffusionPipeline, UNet2DConditionModel
from diffusers.utils import convert_state_dict_to_diffusers
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from transformers import BertModel, CLIPTextModel

import parallel
from batches import FREE_WORDING, Scenes, Tokens, encode_text
from make_latents import encode, load_encoder
from models import load_tokenizers, make_scheduler
from paint import paint
from train_denoiser import noised
from world import spec

NAME, LIMIT = 'neon', 1_000_000  # bytes
TARGETS = ['to_q', 'to_k', 'to_v', 'to_out.0', 'conv1', 'conv2']
DROPOUT = .1  # share of empty captions, so that guidance works on the style, too
SAVE_SECONDS, LOG_STEPS = 120, 50


def neon(picture):
    """(H, W, 3) uint8 in that style: edges glow in the brightest colour beside them, all else is dark."""
    x = picture.astype(np.float32) / 255
    padded = np.pad(x, ((2, 2), (2, 2), (0, 0)), mode='edge')
    h, w, _ = x.shape
    near = np.stack([padded[dy:dy + h, dx:dx + w] for dy in range(0, 5, 2) for dx in range(0, 5, 2)])
    brightest, darkest = near.max(0), near.min(0)
    edge = (brightest - darkest).max(-1, keepdims=True)
    hue = brightest / (brightest.max(-1, keepdims=True) + 1e-3)
    glow = np.clip(edge * 2.2, 0, 1)
    night = x * np.array((.22, .20, .40), np.float32) + np.array((.02, .01, .06), np.float32)
    return (np.clip(night * (1 - glow) + hue * glow, 0, 1) * 255).astype(np.uint8)


def style_latents(work, count, device):
    """Latents (count, 4, 32, 32) f32 of the first scenes in the style; made once."""
    path = work / 'lora' / f'{NAME}-{count}.npy'
    if not path.exists():
        vae, parts = load_encoder(work, device), []
        for i in range(count):
            parallel.wait_while_paused()
            parts.append(encode(vae, [neon(paint(spec(i)))]))
        np.save(path.with_suffix('.tmp.npy'), np.concatenate(parts))
        os.replace(path.with_suffix('.tmp.npy'), path)
    return torch.from_numpy(np.load(path)).float().to(device)


def load_unet(model, rank, device):
    """The exported UNet in bf16, with an adapter in f32 that is all that trains."""
    unet = UNet2DConditionModel.from_pretrained(model / 'unet', torch_dtype=torch.bfloat16).to(device).requires_grad_(False)
    unet.add_adapter(LoraConfig(r=rank, lora_alpha=rank, target_modules=TARGETS, init_lora_weights='gaussian'), NAME)
    for p in unet.parameters():
        if p.requires_grad:
            p.data = p.data.float()
    return unet.train()


def save_lora(unet, path):
    """In diffusers' format, f16; the size in bytes."""
    layers = {k: v.half() for k, v in get_peft_model_state_dict(unet, adapter_name=NAME).items()}
    StableDiffusionPipeline.save_lora_weights(path.parent, unet_lora_layers=convert_state_dict_to_diffusers(layers), weight_name=path.name)
    path.chmod(0o644)  # safetensors makes it readable for the owner only
    return path.stat().st_size


class Checkpoint:
    """The adapter, the optimizer and the step, in one file.  That of another base (CRC-32 of the UNet's file) is not taken up."""

    def __init__(self, path, base, unet, optimizer):
        self.path, self._base, self._unet, self._optimizer, self.step = path, base, unet, optimizer, 0
        saved = torch.load(path, weights_only=False) if path.exists() else {}
        if saved.get('base') == base:
            set_peft_model_state_dict(unet, saved['lora'], adapter_name=NAME)
            optimizer.load_state_dict(saved['optimizer'])
            self.step = saved['step']

    def save(self):
        torch.save({'lora': get_peft_model_state_dict(self._unet, adapter_name=NAME), 'optimizer': self._optimizer.state_dict(),
                    'step': self.step, 'base': self._base}, self.path.with_suffix('.tmp'))
        os.replace(self.path.with_suffix('.tmp'), self.path)


def train(args, unet, scenes, latents, encoders):
    parameters = [p for p in unet.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=args.rate, weight_decay=0)
    base = zlib.crc32((args.model / 'unet/diffusion_pytorch_model.safetensors').read_bytes())
    state, alphas = Checkpoint(args.work / 'lora' / f'{NAME}.pt', base, unet, optimizer), make_scheduler().alphas_cumprod.to(args.device)

    def worker(rank, sync):
        sync.attach(rank, parameters)
        losses, saved, start = [], time.time(), time.time()
        while state.step < args.steps:
            start += parallel.wait_while_paused()
            seed = state.step * sync.world + rank
            torch.manual_seed(seed)
            indices, english, chinese = scenes.batch(seed, args.batch // sync.world, 1., FREE_WORDING, DROPOUT)
            noisy, steps, wanted = noised(latents[torch.tensor(indices)], alphas)
            with torch.no_grad():
                text = encode_text(*encoders, english, chinese, args.device).bfloat16()
            loss = ((unet(noisy.bfloat16(), steps, text).sample.float() - wanted) ** 2).mean()
            sync.reduce(torch.autograd.grad(loss, parameters))
            for g in optimizer.param_groups:
                g['lr'] = args.rate * min(1, (state.step + 1) / 30) * (1 - .95 * state.step / args.steps)
            sync.clip(1.)
            optimizer.step()
            state.step += 1
            losses.append(loss.item())
            if rank == 0 and state.step % LOG_STEPS == 0:
                print(f'step {state.step} {time.time() - start:.0f} s loss {np.mean(losses[-LOG_STEPS:]):.4f}', flush=True)
            if rank == 0 and time.time() - saved > SAVE_SECONDS:
                state.save()
                saved = time.time()
        if rank == 0:
            state.save()

    parallel.launch(worker, sum(p.numel() for p in parameters), args.processes)
    return sum(p.numel() for p in parameters)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    ap.add_argument('--model', required=True, type=pathlib.Path, help='the exported folder')
    ap.add_argument('--out', required=True, type=pathlib.Path)
    ap.add_argument('--scenes', type=int, default=2000)
    ap.add_argument('--steps', type=int, default=1200)
    ap.add_argument('--batch', type=int, default=16)
    ap.add_argument('--rank', type=int, default=8)
    ap.add_argument('--rate', type=float, default=1e-3)
    ap.add_argument('--device', default='cpu')
    ap.add_argument('--processes', type=int, default=2, help='1 on a GPU')
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    (args.work / 'lora').mkdir(exist_ok=True)
    latents, tokenizers = style_latents(args.work, args.scenes, args.device), load_tokenizers(args.work)
    encoders = [kind.from_pretrained(args.model / folder).float().to(args.device).eval()
                for kind, folder in ((CLIPTextModel, 'text_encoder'), (BertModel, 'zh/text_encoder'))]
    unet = load_unet(args.model, args.rank, args.device)
    count = train(args, unet, Scenes(args.scenes, Tokens(*tokenizers)), latents, encoders)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    size = save_lora(unet, args.out)
    print(f'{count} parameters, {size / 1e6:.2f} MB in {args.out}')
    if size > LIMIT:
        raise SystemExit(f'more than {LIMIT / 1e6:.0f} MB')


if __name__ == '__main__':
    main()
