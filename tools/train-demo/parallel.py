"""Data-parallel training in a few single-threaded processes with one shared gradient buffer.

On a busy machine this is faster and far steadier than one process with OpenMP threads, which loses
most of its time at barriers.  A file named by TERN_DEMO_PAUSE stops all workers while it exists.
"""
import multiprocessing as mp
import os
import time

import torch

_BARRIER_TIMEOUT = 4 * 3600  # seconds; long enough for a pause


def wait_while_paused():
    """Sleeps while the pause file exists; seconds slept."""
    path = os.environ.get('TERN_DEMO_PAUSE')
    start = time.time()
    while path and os.path.exists(path):
        time.sleep(1)
    slept = time.time() - start
    return slept if slept > .5 else 0.


class Alone:
    """What Sync does, for a single process on any device."""

    world = 1

    def attach(self, rank, parameters):
        self.rank, self._parameters = rank, parameters

    def reduce(self, gradients, *values):
        for g, p in zip(gradients, self._parameters):
            p.grad = torch.zeros_like(p) if g is None else g.to(p.dtype)
        return list(values)

    def clip(self, limit):
        return torch.nn.utils.clip_grad_norm_(self._parameters, limit).item()


class Sync:
    """Averages gradients over processes.  Two buffers in turn, so that one barrier per step is enough."""

    def __init__(self, parameters, world):
        self.world = world
        self._gradients = [[torch.zeros(parameters).share_memory_() for _ in range(world)] for _ in range(2)]
        self._values = [torch.zeros(8, dtype=torch.float64).share_memory_() for _ in range(2)]
        self._barrier = mp.get_context('fork').Barrier(world)
        self._turn = 0

    def attach(self, rank, parameters):
        """The f32 parameters of this process; their .grad become views of one flat tensor."""
        self.rank, self._parameters = rank, parameters
        self._flat = torch.zeros(sum(p.numel() for p in parameters))
        at = 0
        for p in parameters:
            p.grad = self._flat[at:at + p.numel()].view_as(p)
            at += p.numel()

    def reduce(self, gradients, *values):
        """Mean gradient into .grad (None counts as zero); returns rank 0's values for all."""
        n, turn, at = self._flat.numel(), self._turn, 0
        mine = self._gradients[turn][self.rank][:n]
        for g, p in zip(gradients, self._parameters):
            part = mine[at:at + p.numel()]
            part.zero_() if g is None else part.copy_(g.reshape(-1))
            at += p.numel()
        if self.rank == 0:
            self._values[turn][:len(values)] = torch.tensor(values, dtype=torch.float64)
        self._barrier.wait(_BARRIER_TIMEOUT)
        torch.mul(self._gradients[turn][0][:n], 1 / self.world, out=self._flat)
        for r in range(1, self.world):
            self._flat.add_(self._gradients[turn][r][:n], alpha=1 / self.world)
        self._turn ^= 1
        return self._values[turn][:len(values)].tolist()

    def clip(self, limit):
        """Scales the gradient down to norm `limit`; returns the norm before."""
        norm = self._flat.norm().item()
        if norm > limit:
            self._flat.mul_(limit / norm)
        return norm


def launch(worker, parameters, world):
    """Runs worker(rank, sync) in `world` processes; this one is rank 0.  `parameters`: most gradients ever reduced."""
    if world == 1:
        worker(0, Alone())
        return
    torch.set_num_threads(1)
    sync = Sync(parameters, world)
    others = [mp.get_context('fork').Process(target=worker, args=(r, sync), daemon=True) for r in range(1, world)]
    for p in others:
        p.start()
    worker(0, sync)
    for p in others:
        p.join(30)
