"""tests/data/deepcache: whole pictures with the reference's helper around diffusers' UNet, final latents; and which calls of the UNet
are whole when their distances are not even."""
import warnings

import numpy as np
import torch
from DeepCache import DeepCacheSDHelper

from .common import fresh, write_json, write_tensors
from .pipelines import DEFAULTS, pipeline, run

IMAGE = {"init_image": "init-48x40.png", "strength": 0.7, "steps": 8}
MASKED = {**IMAGE, "mask_image": "mask-48x40.png", "strength": 1.0}


def cases():
    one = {"mode": "txt2img", "model": "sd1", "steps": 7}
    for branch in range(9):
        yield f"sd1.ddim.2.branch-{branch}", {**one, "cache": (2, branch)}
    for sampler in ("pndm", "euler", "dpm++2m", "unipc", "heun", "lcm"):
        yield f"sd1.{sampler}.3", {**one, "sampler": sampler, "cache": (3, 1)}
    yield "sd1.heun.2", {**one, "sampler": "heun", "cache": (2, 0)}
    yield "sd1.batch3.odd", {**one, "sampler": "euler_a", "batch": 3, "width": 72, "cache": (2, 4)}
    yield "sd1.cfg-off", {**one, "cfg": 1.0, "cache": (3, 0)}
    yield "sd1.quad", {**one, "steps": 20, "cache": (5, 0, 6, 1.4)}
    yield "sd1.quad.first", {**one, "sampler": "dpm++2m", "steps": 12, "cache": (3, 2, 0, 2.5)}
    yield "img2img.sd1", {**IMAGE, "mode": "img2img", "model": "sd1", "sampler": "euler", "cache": (2, 0)}
    yield "img2img.sd1.heun", {**IMAGE, "mode": "img2img", "model": "sd1", "sampler": "heun", "cache": (3, 1)}
    yield "inpaint.sd1", {**MASKED, "mode": "inpaint", "model": "sd1", "cache": (2, 1)}
    yield "inpaint.sd1-inpaint", {**MASKED, "mode": "inpaint", "model": "sd1-inpaint", "batch": 2, "cache": (3, 0)}
    small = {"mode": "txt2img", "width": 40, "steps": 6}
    for branch in range(6):
        yield f"sd2.branch-{branch}", {**small, "model": "sd2", "cache": (2, branch)}
        yield f"sdxl.branch-{branch}", {**small, "model": "sdxl", "sampler": "euler", "cache": (3, branch)}
    yield "sdxl.quad", {**small, "model": "sdxl", "sampler": "euler", "steps": 14, "batch": 2, "cache": (4, 0, 4, 1.3)}


def uneven(total, interval, center, power):
    """The whole calls of a job of `total`: roots of the distance from `center`, evenly spaced; the power falls until the points cut to
    whole numbers are as many as they have to be. Roots of negative numbers are complex, and their real parts count."""
    wanted = -(-total // interval)
    while power > 1:
        ends = [d ** (1 / power) for d in (-center, total - center)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            points = np.unique(np.int32(np.linspace(*ends, wanted + 1) ** power))
        whole = [0, *(int(p) + center for p in points[1:-1])]
        if len(whole) == wanted:
            return whole
        power -= 0.02
    return None


class Helper(DeepCacheSDHelper):
    """The reference's, which knows even distances alone, with a list of whole calls."""
    whole = None

    def is_skip_step(self, block_i, layer_i, blocktype="down"):
        if self.start_timestep is None:
            self.start_timestep = self.cur_timestep
        if self.whole is not None and self.cur_timestep - self.start_timestep in self.whole:
            return False
        return super().is_skip_step(block_i, layer_i, blocktype)


def cached(pipe, case, images, config, interval, branch, *more):
    helper = Helper(pipe)
    helper.set_params(cache_interval=interval, cache_branch_id=branch, skip_mode="list" if more else "uniform")
    helper.whole = uneven(case["steps"], interval, *more) if more else None
    helper.enable()
    latents, _ = run(pipe, case, images, config)
    helper.disable()
    return latents


def distances():
    for total in (1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 50, 100):
        for interval, center, power in ((2, 0, 1.4), (3, total // 2, 1.2), (5, 3 * total // 10, 1.4), (4, total, 2.0), (2, total // 4, 4.0)):
            yield total, interval, center, power
    yield from ((20, 2, 10, 2.0), (25, 4, 2, 2.0), (20, 2, 6, 4.0), (25, 5, 0, 3.0), (100, 10, 0, 2.5))  # the last bits decide
    yield 200, 10, 61, 2.37
    yield 999, 7, 300, 1.02
    yield 1000, 3, 1000, 3.0


def make(root):
    folder, images = fresh(root / "deepcache"), root / "pipelines"
    pipes, latents, rows = {}, {}, []
    for name, facts in cases():
        facts = dict(facts)
        cache, key = facts.pop("cache"), (facts["mode"], facts["model"])
        case = {"name": name, **DEFAULTS, **facts}
        if key not in pipes:
            pipe = pipeline(case["mode"], root / "models" / case["model"])
            pipes[key] = pipe, dict(pipe.scheduler.config)
        latents[name] = cached(pipes[key][0], case, images, pipes[key][1], *cache)
        plain = run(pipes[key][0], case, images, pipes[key][1])[0]
        assert torch.isfinite(latents[name]).all(), name
        change = float(((latents[name] - plain) ** 2).mean() / plain.var())
        assert change > 1e-4, (name, change)
        names = ("cache_interval", "cache_branch_id", "cache_center", "cache_pow")
        rows.append({**case, "more": dict(zip(names, cache))})
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_json(folder / "distances.json", [[*d, uneven(*d)] for d in distances()])
