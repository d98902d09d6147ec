"""UNet and both text encoders together, on cached latents.  -> W/denoiser.pt, every two minutes

Deterministic for given latents and start: every step draws from generators seeded by (step, process), so
a stopped run goes on exactly as if it had not been stopped.  The schedule is counted in samples;
raising --samples of a running schedule raises the learning rate again.

python train_denoiser.py --work W --samples 1000000     starts, or goes on from W/denoiser.pt
python train_denoiser.py --work W --samples 4000000 --batch 512 --device cuda --processes 1 --feeders 12
"""
import argparse
import math
import os
import pathlib
import time

import numpy as np
import torch
from diffusers.models.attention_processor import AttnProcessor

import fused_norm
import parallel
from batches import FREE_WORDING, PLAIN_WORDING, Scenes, Tokens, batches, encode_text
from models import half_copy, load_exported, load_tokenizers, make_scheduler, make_text_encoders, make_unet

DROPOUT = .12  # share of empty captions, for classifier-free guidance
SAVE_SECONDS = 120
LOG_STEPS = 100
SNR_CAP = 10.  # v loss is flat over the noise levels, but falls where the signal is this much above the noise


class Denoiser:
    """Weights in f32 for the optimizer, a bf16 copy of the UNet that runs, and a moving average."""

    def __init__(self, args):
        self.args = args
        self.tokenizers = load_tokenizers(args.work)
        self.unet = make_unet().to(args.device)
        self.clip, self.bert = (m.to(args.device) for m in make_text_encoders(*self.tokenizers))
        self.running = half_copy(make_unet(), args.device).train()
        if args.device == 'cpu':
            fused_norm.use(self.running)
            self.running.set_attn_processor(AttnProcessor())  # faster there than fused attention, both ways
        self._unet_parameters = list(self.unet.parameters())
        self._text_parameters = [*self.clip.parameters(), *self.bert.parameters()]
        self.parameters = self._unet_parameters + self._text_parameters
        self.differentiated = list(self.running.parameters()) + self._text_parameters
        self.optimizer = torch.optim.AdamW(
            [{'params': self._unet_parameters, 'peak': args.rate}, {'params': self._text_parameters, 'peak': args.text_rate}],
            lr=args.rate, betas=(.9, .99), weight_decay=.01, fused=True)
        self.state = {'step': 0, 'samples': 0, 'seconds': 0.}
        self._load()
        self.refresh()

    def _load(self):
        path, text = self.args.work / 'denoiser.pt', self.args.work / 'text.pt'
        if path.exists():
            saved = torch.load(path, weights_only=False, map_location=self.args.device)
            for name in ('unet', 'clip', 'bert', 'optimizer'):
                getattr(self, name).load_state_dict(saved[name])
            self.average, self.state = saved['average'], saved['state']
            for group, rate in zip(self.optimizer.param_groups, (self.args.rate, self.args.text_rate)):
                group['peak'] = rate
            return
        if self.args.init:
            load_exported(self.args.init, self.unet, self.clip, self.bert)
        if text.exists():
            saved = torch.load(text, weights_only=False, map_location=self.args.device)
            self.clip.load_state_dict(saved['clip'])
            self.bert.load_state_dict(saved['bert'])
        self.average = [p.detach().clone() for p in self.parameters]

    def save(self):
        path = self.args.work / 'denoiser.pt'
        torch.save({'unet': self.unet.state_dict(), 'clip': self.clip.state_dict(), 'bert': self.bert.state_dict(),
                    'optimizer': self.optimizer.state_dict(), 'average': self.average, 'state': self.state}, path.with_suffix('.tmp'))
        os.replace(path.with_suffix('.tmp'), path)

    @torch.no_grad()
    def refresh(self):
        torch._foreach_copy_(list(self.running.parameters()), self._unet_parameters)

    @torch.no_grad()
    def update_average(self):
        step = self.state['step']
        decay = min(self.args.average, (step + 1) / (step + 8))
        torch._foreach_lerp_(self.average, [p.data for p in self.parameters], 1 - decay)

    def set_rate(self, progress):
        warm_up = min(1, (self.state['step'] + 1) / 200)
        for group in self.optimizer.param_groups:
            group['lr'] = group['peak'] * warm_up * (.5 + .5 * math.cos(math.pi * min(progress, 1)) + .01)


def noised(latents, alphas):
    """Latents (N, 4, 32, 32) at random steps: noisy latents, steps (N), the v to predict."""
    steps = torch.randint(0, len(alphas), (len(latents),), device=latents.device)
    signal = alphas[steps].view(-1, 1, 1, 1)
    noise = torch.randn_like(latents)
    return signal.sqrt() * latents + (1 - signal).sqrt() * noise, steps, signal.sqrt() * noise - (1 - signal).sqrt() * latents


def loss_of(model, batch, latents, alphas):
    """Weighted loss, and per picture the plain v error and the step."""
    indices, english, chinese = batch
    clean = latents[torch.tensor(indices)].to(alphas.device).float()
    noisy, steps, wanted = noised(clean, alphas)
    text = encode_text(model.clip, model.bert, english, chinese, alphas.device).bfloat16()
    got = model.running(noisy.bfloat16().contiguous(memory_format=torch.channels_last), steps, text, return_dict=False)[0].float()
    error = ((got - wanted) ** 2).mean((1, 2, 3))
    weight = (SNR_CAP * (1 - alphas[steps]) / alphas[steps]).clamp(max=1)
    return (error * weight).mean(), error.detach(), steps


class Log:
    """Means over LOG_STEPS steps, on the terminal."""

    def __init__(self):
        self.start, self.rows, self.bins = time.time(), [], torch.zeros(4, 2)

    def add(self, loss, norm, error, steps):
        self.rows.append(torch.stack([loss.detach().cpu(), torch.tensor(norm)]))
        quarters = (steps // 250).cpu()
        self.bins[:, 0].index_add_(0, quarters, error.cpu())
        self.bins[:, 1].index_add_(0, quarters, torch.ones(len(steps)))

    def line(self, state, batch):
        loss, norm = torch.stack(self.rows).mean(0).tolist()
        speed = batch * len(self.rows) / (time.time() - self.start)
        quarters = [round(v, 3) for v in (self.bins[:, 0] / self.bins[:, 1].clamp(min=1)).tolist()]
        self.__init__()
        return (f"step {state['step']} {state['seconds']:.0f} s samples {state['samples']} {speed:.1f}/s loss {loss:.4f} "
                f'gradient {norm:.2f} v error by quarter of t {quarters}')


def train(model, scenes, latents):
    args, state = model.args, model.state
    alphas = make_scheduler().alphas_cumprod.to(args.device)

    def worker(rank, sync):
        def make(step):
            progress = step * args.batch / args.samples
            wording = PLAIN_WORDING if progress < .4 else FREE_WORDING
            return scenes.batch(step * sync.world + rank, args.batch // sync.world, progress, wording, DROPOUT)

        sync.attach(rank, model.parameters)
        log, saved, begin = Log(), time.time(), time.time() - state['seconds']
        for batch in batches(make, range(state['step'], -(-args.samples // args.batch)), args.feeders):
            begin += parallel.wait_while_paused()
            torch.manual_seed(state['step'] * sync.world + rank)
            loss, error, steps = loss_of(model, batch, latents, alphas)
            gradients = torch.autograd.grad(loss, model.differentiated, allow_unused=True)
            state['seconds'], = sync.reduce(gradients, time.time() - begin)
            model.set_rate(state['samples'] / args.samples)
            norm = sync.clip(1.)
            model.optimizer.step()
            model.refresh()
            state['step'] += 1
            state['samples'] += args.batch
            if rank:
                continue
            model.update_average()
            log.add(loss, norm, error, steps)
            if state['step'] % LOG_STEPS == 0:
                print(log.line(state, args.batch), flush=True)
            if time.time() - saved > SAVE_SECONDS:
                model.save()
                saved = time.time()
        if rank == 0:
            model.save()
            print('done', state, flush=True)

    parallel.launch(worker, sum(p.numel() for p in model.parameters), args.processes)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    ap.add_argument('--samples', type=int, default=400_000, help='length of the whole schedule')
    ap.add_argument('--batch', type=int, default=32)
    ap.add_argument('--rate', type=float, default=1e-3, help='highest learning rate of the UNet')
    ap.add_argument('--text-rate', type=float, default=5e-4, help='and of the text encoders')
    ap.add_argument('--average', type=float, default=.999, help='decay per step of the averaged weights')
    ap.add_argument('--device', default='cpu')
    ap.add_argument('--processes', type=int, default=2, help='1 on a GPU')
    ap.add_argument('--feeders', type=int, default=0, help='processes that make captions ahead, for a GPU')
    ap.add_argument('--init', help='exported folder to start from, where there is no checkpoint')
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    latents = np.load(args.work / 'latents.npy')
    model = Denoiser(args)
    scenes = Scenes(len(latents), Tokens(*model.tokenizers))
    train(model, scenes, torch.from_numpy(latents).to(args.device))


if __name__ == '__main__':
    main()
