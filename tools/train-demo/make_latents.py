"""Scenes through the VAE encoder, once: W/latents.npy (N, 4, 32, 32) f16, latent i of scene spec(i).

python make_latents.py --work W --scenes 40000     goes on after a stop
"""
import argparse
import multiprocessing as mp
import os
import pathlib
import time

import numpy as np
import torch
from diffusers import AutoencoderKL

import fused_norm
from models import half_copy
from paint import paint
from parallel import wait_while_paused
from world import spec

BATCH, CHUNK = 8, 400


def to_tensor(pictures):
    """uint8 (N, H, W, 3) -> f32 (N, 3, H, W) in -1..1."""
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float().div_(127.5).sub_(1)


def load_encoder(work, device):
    vae = half_copy(AutoencoderKL.from_pretrained(work / 'vae'), device).eval()
    return fused_norm.use(vae) if device == 'cpu' else vae


@torch.no_grad()
def encode(vae, pictures):
    """Latents (N, 4, 32, 32) f16 of pictures (N, 256, 256, 3) uint8: the mean, without noise."""
    x = to_tensor(pictures).to(vae.device).bfloat16().contiguous(memory_format=torch.channels_last)
    return (vae.encode(x).latent_dist.mode().float() * vae.config.scaling_factor).half().cpu().numpy()


def _paint_one(index):
    return paint(spec(index))


def on_device(work, count, device, painters):
    """All latents: `painters` processes draw, the device encodes."""
    batch = 64
    with mp.get_context('fork').Pool(painters) as pool:
        vae, out = load_encoder(work, device), []
        pictures = pool.imap(_paint_one, range(count), chunksize=16)
        for k in range(0, count, batch):
            out.append(encode(vae, [next(pictures) for _ in range(min(batch, count - k))]))
    return np.concatenate(out)


def _encode_chunks(work, chunks):
    torch.set_num_threads(1)
    vae = load_encoder(work, 'cpu')
    for k, path in chunks:
        wait_while_paused()
        start, first = time.time(), k * CHUNK
        parts = [encode(vae, [_paint_one(i) for i in range(a, a + BATCH)]) for a in range(first, first + CHUNK, BATCH)]
        np.save(path.with_suffix('.tmp.npy'), np.concatenate(parts))
        os.replace(path.with_suffix('.tmp.npy'), path)
        print(f'chunk {k}: {CHUNK / (time.time() - start):.1f} scenes/s', flush=True)


def on_cpu(work, count, processes):
    """All latents, in files of CHUNK scenes, so that a stopped run goes on."""
    folder = work / 'latents'
    folder.mkdir(exist_ok=True)
    paths = [folder / f'{k:04}.npy' for k in range(-(-count // CHUNK))]
    missing = [(k, p) for k, p in enumerate(paths) if not p.exists()]
    workers = [mp.get_context('fork').Process(target=_encode_chunks, args=(work, missing[r::processes])) for r in range(processes)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    if any(w.exitcode for w in workers):
        raise SystemExit('a worker failed')
    return np.concatenate([np.load(p) for p in paths])[:count]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--work', required=True, type=pathlib.Path)
    ap.add_argument('--scenes', type=int, default=40000)
    ap.add_argument('--device', default='cpu')
    ap.add_argument('--processes', type=int, default=2, help='that encode on a CPU, or paint for a GPU')
    args = ap.parse_args()
    start = time.time()
    if args.device == 'cpu':
        latents = on_cpu(args.work, args.scenes, args.processes)
    else:
        latents = on_device(args.work, args.scenes, args.device, args.processes)
    np.save(args.work / 'latents.tmp.npy', latents)
    os.replace(args.work / 'latents.tmp.npy', args.work / 'latents.npy')
    print(f'{len(latents)} latents, {time.time() - start:.0f} s, standard deviation {latents[:500].astype(np.float32).std():.3f}')


if __name__ == '__main__':
    main()
