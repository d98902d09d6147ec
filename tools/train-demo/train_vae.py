"""Trains the VAE on rendered scenes.  -> W/vae (mean 0, variance 1 latents; scaling_factor 1)

First on scenes of half size, then full size; always whole pictures (crops are often one flat colour, and
their GroupNorm statistics differ).  A fixed latent noise takes the place of a learned posterior, which
would first have to shrink; a covariance penalty takes the place of the KL term.

python train_vae.py --work W --steps 3000                     starts, or goes on from W/vae.pt
python train_vae.py --work W --steps 3000 --decoder-only      sharper pictures from the same latents
python train_vae.py --work W --steps 6000 --batch 32 --device cuda --processes 1
"""
import argparse
import math
import os
import pathlib
import random
import shutil
import time

import numpy as np
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL

import fused_norm
import parallel
import vae_start
from make_latents import to_tensor
from models import half_copy, make_vae
from paint import paint
from world import spec

RATE = 1.5e-3
NOISE = .08  # standard deviation added to every latent
COVARIANCE, LOG_VARIANCE = .03, 1e-4  # loss weights
HALF_SIZE = .3  # part of the schedule on half-size scenes, twice as many per step
FIRST_SCENE, FIRST_TEST = 5_000_000, 6_000_000
SAVE_STEPS, LOG_STEPS = 300, 100


def _scenes(first, count):
    return to_tensor([paint(spec(first + k)) for k in range(count)])


@torch.no_grad()
def latents_of(vae, pictures):
    return torch.cat([vae.encode(x).latent_dist.mode() for x in pictures.split(8)])


@torch.no_grad()
def psnr(vae, pictures):
    """Mean and worst PSNR in dB over pictures, without latent noise."""
    values = []
    for x in pictures.split(8):
        y = vae.decode(vae.encode(x).latent_dist.mode()).sample.clamp(-1, 1)
        values += (10 * torch.log10(4 / ((x - y) ** 2).mean((1, 2, 3)))).tolist()
    return float(np.mean(values)), float(np.min(values))


def loss_of(model, x):
    """L1 + squares + edges, latents apart and of unit size.  x (N, 3, H, W) f32."""
    posterior = model.encode(x.bfloat16().contiguous(memory_format=torch.channels_last)).latent_dist
    z = posterior.mean + NOISE * torch.randn_like(posterior.mean)
    d = model.decode(z).sample.float() - x
    mean = posterior.mean.float().permute(1, 0, 2, 3).reshape(4, -1)
    covariance = ((mean @ mean.T / mean.shape[1] - torch.eye(4, device=x.device)) ** 2).mean()
    spread = ((posterior.logvar.float() - 2 * math.log(NOISE)) ** 2).mean()  # so that sampling is sane
    edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    squares = (d ** 2).mean()
    return d.abs().mean() + 2 * squares + .4 * edges + COVARIANCE * covariance + LOG_VARIANCE * spread, squares


class Trainer:
    def __init__(self, args):
        self.args, self.checkpoint = args, args.work / ('decoder.pt' if args.decoder_only else 'vae.pt')
        self.master = AutoencoderKL.from_pretrained(args.work / 'vae') if args.decoder_only else make_vae()
        self.state = {'step': 0, 'seconds': 0.}
        saved = torch.load(self.checkpoint, weights_only=False, map_location=args.device) if self.checkpoint.exists() else None
        if not args.decoder_only and not saved:
            vae_start.start(self.master, _scenes(5_800_000, 16))
            small = F.avg_pool2d(_scenes(5_900_000, 64), 2)
            vae_start.whiten(self.master, latents_of(self.master, small))
            with torch.no_grad():
                self.master.quant_conv.weight[4:] *= .1
                self.master.quant_conv.bias[4:] = 2 * math.log(NOISE)
        self.master.to(args.device)
        self.model = half_copy(AutoencoderKL.from_config(self.master.config), args.device)
        if args.device == 'cpu':
            fused_norm.use(self.model)
        for name, p in self.model.named_parameters():
            p.requires_grad_(not args.decoder_only or name.startswith(('decoder', 'post_quant')))
        self.parameters, self.running = list(self.master.parameters()), list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=RATE, betas=(.9, .99), weight_decay=0, fused=True)
        self.average = [p.detach().clone() for p in self.parameters]
        if saved:
            self.master.load_state_dict(saved['vae'])
            self.optimizer.load_state_dict(saved['optimizer'])
            self.average, self.state = saved['average'], saved['state']
        self.refresh()

    @torch.no_grad()
    def refresh(self):
        torch._foreach_copy_([p.data for p in self.running], [p.data for p in self.parameters])

    @torch.no_grad()
    def averaged(self):
        vae = AutoencoderKL.from_config(self.master.config)
        torch._foreach_copy_([p.data for p in vae.parameters()], [p.cpu() for p in self.average])
        return vae.eval()

    def save(self):
        torch.save({'vae': self.master.state_dict(), 'optimizer': self.optimizer.state_dict(), 'average': self.average,
                    'state': self.state}, self.checkpoint.with_suffix('.tmp'))
        os.replace(self.checkpoint.with_suffix('.tmp'), self.checkpoint)

    def update(self, sync):
        """One optimizer step from the gradients in .grad."""
        step, state = self.state['step'], self.state
        for g in self.optimizer.param_groups:
            g['lr'] = RATE * min(1, (step + 1) / 100) * (.5 + .5 * math.cos(math.pi * step / self.args.steps) + .01)
        sync.clip(1.)
        self.optimizer.step()
        self.refresh()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, [p.data for p in self.parameters], 1 - min(.998, (step + 1) / (step + 20)))
        state['step'] += 1


def train(trainer, pictures):
    args, state = trainer.args, trainer.state

    def worker(rank, sync):
        sync.attach(rank, trainer.parameters)
        begin, squares = time.time() - state['seconds'], []
        while state['step'] < args.steps:
            begin += parallel.wait_while_paused()
            rng = random.Random(state['step'] * sync.world + rank)
            torch.manual_seed(state['step'] * sync.world + rank)
            full = args.decoder_only or state['step'] > HALF_SIZE * args.steps
            count = args.batch // sync.world * (1 if full else 2)
            x = pictures[[rng.randrange(len(pictures)) for _ in range(count)]].to(args.device)
            x = x if full else F.avg_pool2d(x, 2)
            loss, error = loss_of(trainer.model, x.flip(3) if rng.random() < .5 else x)
            loss.backward()
            state['seconds'], = sync.reduce([p.grad for p in trainer.running], time.time() - begin)
            for p in trainer.running:
                p.grad = None
            trainer.update(sync)
            squares.append(error.item())
            if rank == 0 and state['step'] % LOG_STEPS == 0:
                size, noisy = 'full' if full else 'half', 10 * math.log10(4 / np.mean(squares))
                print(f"step {state['step']} {state['seconds']:.0f} s {size} size, PSNR with noise {noisy:.2f} dB", flush=True)
                squares.clear()
            if rank == 0 and state['step'] % SAVE_STEPS == 0:
                trainer.save()
        if rank == 0:
            trainer.save()

    parallel.launch(worker, sum(p.numel() for p in trainer.parameters), args.processes)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    ap.add_argument('--steps', type=int, default=3000)
    ap.add_argument('--batch', type=int, default=4, help='full-size pictures per step')
    ap.add_argument('--device', default='cpu')
    ap.add_argument('--processes', type=int, default=2, help='1 on a GPU')
    ap.add_argument('--scenes', type=int, default=3000)
    ap.add_argument('--decoder-only', action='store_true', help='keep the encoder of W/vae and its latents')
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    trainer = Trainer(args)
    train(trainer, _scenes(FIRST_SCENE, args.scenes))
    vae = trainer.averaged()
    if not args.decoder_only:
        vae_start.standardize(vae, latents_of(vae, _scenes(FIRST_SCENE, 64)))
    print('PSNR on scenes never seen, mean and worst: %.2f, %.2f dB' % psnr(vae, _scenes(FIRST_TEST, 24)))
    vae.save_pretrained(args.work / 'vae.new')
    shutil.rmtree(args.work / 'vae', ignore_errors=True)
    (args.work / 'vae.new').rename(args.work / 'vae')


if __name__ == '__main__':
    main()
