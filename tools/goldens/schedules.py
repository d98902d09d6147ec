"""tests/data/schedulers/more: A1111's schedules with every sampler that takes one, and diffusers' exponential and beta sigmas."""
import warnings

import numpy as np
import torch
from diffusers import (DDPMScheduler, EulerDiscreteScheduler, KDPM2AncestralDiscreteScheduler,
                       KDPM2DiscreteScheduler, TCDScheduler)

from .common import f32_list, generator, randn, write_json, write_tensors
from .kdiffusion import external
from .schedulers import CONFIGS, SAMPLERS as FIRST, attempt

SHAPE = (1, 1, 4, 4)
NOISE_SEED = 11
FLAGS = {"karras": "use_karras_sigmas", "exponential": "use_exponential_sigmas", "beta": "use_beta_sigmas"}
SAMPLERS = {
    **{name: cls for name, (cls, _) in FIRST.items()},
    "dpm2": KDPM2DiscreteScheduler,
    "dpm2_a": KDPM2AncestralDiscreteScheduler,
    "ddpm": DDPMScheduler,
    "tcd": TCDScheduler,
}
NEW = ("dpm2", "dpm2_a")
SIGMA_SAMPLERS = ("euler", "euler_a", "dpm++2m", "heun", "lms", "unipc")
SOLVERS = ("dpm++2m", "unipc")
TABLES = ("ddpm", "tcd")  # without sigmas
AYS = [14.615, 6.475, 3.861, 2.697, 1.886, 1.396, 0.963, 0.652, 0.399, 0.152, 0.029]


def log_linear(n):
    """The levels of Align Your Steps for n steps: linear in the logarithm, from the lowest level up."""
    up = np.log(AYS[::-1])
    return np.exp(np.interp(np.linspace(0, 1, n), np.linspace(0, 1, len(up)), up))[::-1]


def a1111_levels(schedule, n, alphas_cumprod):
    """modules/sd_schedulers.py of AUTOMATIC1111's stable-diffusion-webui 1.10 by its formulas, on k-diffusion's wrapper."""
    wrap = external.DiscreteSchedule(((1 - alphas_cumprod) / alphas_cumprod) ** 0.5, quantize=False)
    first, last, count = wrap.sigma_to_t(wrap.sigma_max), wrap.sigma_to_t(wrap.sigma_min), len(wrap.sigmas)
    if schedule == "sgm_uniform":
        return [float(wrap.t_to_sigma(t)) for t in torch.linspace(first, last, n + 1)[:-1]]
    if schedule == "normal":
        return [float(wrap.t_to_sigma(t)) for t in torch.linspace(first, last, n)]
    if schedule == "simple":
        return [float(wrap.sigmas[-1 - int(i * (count / n))]) for i in range(n)]
    if schedule == "ddim_uniform":
        return [float(s) for s in wrap.sigmas[1::max(count // n, 1)].flip(0)]
    return list(log_linear(n))


A1111 = ("sgm_uniform", "simple", "normal", "ddim_uniform", "align_your_steps")


def impose(s, sampler, levels):
    """Gives a scheduler these levels and the timesteps that belong to them, laid out as its class does it."""
    train = np.log(np.array(((1 - s.alphas_cumprod) / s.alphas_cumprod) ** 0.5))
    t = torch.tensor([float(EulerDiscreteScheduler._sigma_to_t(s, np.float64(v), train)) for v in levels])
    sigmas = torch.tensor([*levels, 0.0], dtype=torch.float32)
    if sampler == "heun":
        sigmas = torch.cat([sigmas[:1], sigmas[1:-1].repeat_interleave(2), sigmas[-1:]])
        t = torch.cat([t[:1], t[1:].repeat_interleave(2)])
    s.sigmas, s.timesteps, s.num_inference_steps = sigmas, t, len(levels)


def scheduler(sampler, config, schedule, steps):
    cls = SAMPLERS[sampler]
    flag = FLAGS.get(schedule)
    if flag and sampler != "euler_a":
        s = cls.from_config(CONFIGS[config], **{flag: True})
        s.set_timesteps(steps)
        return s
    s = cls.from_config(CONFIGS[config])
    s.set_timesteps(steps)
    if flag:  # the class has no such sigmas: Euler's, whose timesteps are the same
        euler = EulerDiscreteScheduler.from_config(CONFIGS[config], **{flag: True})
        euler.set_timesteps(steps)
        s.sigmas, s.timesteps = euler.sigmas, euler.timesteps
    elif schedule != "default":
        impose(s, sampler, a1111_levels(schedule, steps, s.alphas_cumprod))
    return s


def call_sigmas(s):
    """The noise level of each call and the last one; of KDPM2 the interpolated ones where the class uses them."""
    if not hasattr(s, "sigmas_interpol"):
        return s.sigmas
    n, shift = len(s.timesteps), isinstance(s, KDPM2DiscreteScheduler)
    return [s.sigmas_interpol[i - 1 + shift] if i % 2 else s.sigmas[i] for i in range(n)] + [0.0]


def facts(sampler, schedule, config, steps):
    return {"sampler": sampler, "schedule": schedule, "config": config, "steps": steps}


def table(sampler, schedule, config, steps):
    s = scheduler(sampler, config, schedule, steps)
    row = facts(sampler, schedule, config, steps)
    row["timesteps"] = [int(t) if float(t).is_integer() else f32_list([t])[0] for t in s.timesteps]
    if sampler not in TABLES:
        row["sigmas"] = f32_list(call_sigmas(s))
    assert np.isfinite(row.get("sigmas", 0)).all(), "not a number"  # dpm2_a down from a level that is large beside the next
    row["init_noise_sigma"] = f32_list([s.init_noise_sigma])[0]
    return row


def path(sampler, schedule, config, steps, shared, strength=None):
    """Steps from noise (or, with a strength, from the noised `original`) on given model outputs."""
    s = scheduler(sampler, config, schedule, steps)
    g, name = generator(NOISE_SEED), f"{sampler}.{schedule}.{config}.{steps}"
    begin, row = 0, facts(sampler, schedule, config, steps)
    scaled, prev, draws = [], [], 0
    if strength is None:
        s.set_begin_index(0) if hasattr(s, "set_begin_index") else None
        x = shared["sample"] * s.init_noise_sigma
    else:  # as in schedulers.py
        begin = max(steps - min(int(steps * strength), steps), 0) * s.order
        s.set_begin_index(begin) if hasattr(s, "set_begin_index") else None
        name, row["strength"], draws = f"{name}.from{begin}", strength, 1
        x = s.add_noise(shared["original"], torch.randn(SHAPE, generator=g), s.timesteps[begin:begin + 1])
    tensors = {f"{name}.start": x}
    for i, t in enumerate(s.timesteps[begin:]):
        scaled.append(s.scale_model_input(x, t))
        before = g.get_state()
        extra = {"generator": g} if sampler in ("euler", "euler_a", "dpm++2m", "dpm2_a", *TABLES) else {}
        x = s.step(shared["model_output"][i], t, x, **extra).prev_sample
        draws += not torch.equal(before, g.get_state())
        prev.append(x)
    assert torch.isfinite(torch.stack(prev)).all(), name
    if sampler not in SOLVERS + TABLES:
        tensors[f"{name}.scaled"] = torch.stack(scaled)
    tensors[f"{name}.prev"] = torch.stack(prev)
    return {**row, "name": name, "begin": begin, "calls": len(prev), "draws": draws}, tensors


def cases():
    for sampler in SIGMA_SAMPLERS:
        for schedule in ("karras",) * (sampler == "euler_a") + ("exponential", "beta") + A1111:
            yield sampler, schedule


def make(folder):
    warnings.simplefilter("ignore")
    tables, paths, refused = [], [], []
    shared = {"sample": randn(21, *SHAPE), "original": randn(22, *SHAPE) * 0.7, "model_output": randn(23, 17, *SHAPE)}
    g = generator(NOISE_SEED)
    shared["noise"] = torch.stack([torch.randn(SHAPE, generator=g) for _ in range(9)])
    tensors = dict(shared)
    for sampler, schedule in cases():
        whole = sampler in ("euler", "dpm++2m")
        for config, steps in (("sd15", 1), ("sd15", 20), ("sd15-leading", 13), ("cosine", 4), ("zero-snr", 4)) if whole else (("sd15", 4),):
            row = attempt(refused, facts(sampler, schedule, config, steps), lambda: table(sampler, schedule, config, steps))
            tables += [row] if row else []
        row, more = path(sampler, schedule, "sd15", 5, shared)
        paths.append(row)
        tensors.update(more)
    for sampler in NEW:
        for config, schedule, steps in (("sd15", "default", 20), ("sd15-leading", "default", 13), ("cosine", "default", 4),
                                        ("sd15", "karras", 4), ("sd15", "exponential", 4), ("sd15", "beta", 4)):
            row = attempt(refused, facts(sampler, schedule, config, steps), lambda: table(sampler, schedule, config, steps))
            tables += [row] if row else []
        for config, schedule, steps, strength in (
                ("sd15", "default", 1, None), ("sd15", "default", 2, None), ("sd15", "default", 5, None), ("sdxl", "default", 5, None),
                ("sd15-trailing", "default", 5, None), ("sd15-v", "default", 5, None), ("linear-500", "default", 4, None),
                ("sd15", "karras", 5, None), ("sd15", "exponential", 4, None), ("sd15-v", "beta", 4, None),
                ("sd15", "default", 6, 0.6), ("sdxl", "default", 6, 0.5)):
            row, more = path(sampler, schedule, config, steps, shared, strength)
            paths.append(row)
            tensors.update(more)
    for sampler in TABLES:
        for config, steps in (("sd15", 1), ("sd15", 20), ("sd15-linspace", 13), ("linear-500", 4), ("zero-snr", 4)):
            row = attempt(refused, facts(sampler, "default", config, steps), lambda: table(sampler, "default", config, steps))
            tables += [row] if row else []
        for config, steps, strength in (("sd15", 1, None), ("sd15", 5, None), ("sd15-trailing", 5, None), ("sd15-v", 4, None),
                                        ("sd15-sample", 4, None), ("bare", 4, None), ("linear-500", 4, None), ("zero-snr", 4, None),
                                        ("sd15", 6, 0.6)):
            row, more = path(sampler, "default", config, steps, shared, strength)
            paths.append(row)
            tensors.update(more)
    configs = {row["config"]: CONFIGS[row["config"]] for row in tables + paths}
    write_json(folder / "more.json", {"configs": configs, "tables": tables, "paths": paths, "refused": refused})
    write_tensors(folder / "more.safetensors", tensors)
