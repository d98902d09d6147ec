"""tests/data/schedulers: timesteps, sigmas and whole trajectories of every sampler."""
import warnings

import torch
from diffusers import (DDIMScheduler, DPMSolverMultistepScheduler, EulerAncestralDiscreteScheduler,
                       EulerDiscreteScheduler, HeunDiscreteScheduler, LCMScheduler, LMSDiscreteScheduler,
                       PNDMScheduler, UniPCMultistepScheduler)

from .common import f32_list, fresh, generator, randn, write_json, write_tensors

# tern's name -> (class, has Karras sigmas)
SAMPLERS = {
    "ddim": (DDIMScheduler, False),
    "pndm": (PNDMScheduler, False),
    "euler": (EulerDiscreteScheduler, True),
    "euler_a": (EulerAncestralDiscreteScheduler, False),
    "dpm++2m": (DPMSolverMultistepScheduler, True),
    "heun": (HeunDiscreteScheduler, True),
    "lms": (LMSDiscreteScheduler, True),
    "unipc": (UniPCMultistepScheduler, True),
    "lcm": (LCMScheduler, False),
}

# scheduler_config.json of Stable Diffusion 1.5, as it is on disk.
SD15 = {
    "_class_name": "PNDMScheduler", "_diffusers_version": "0.6.0",
    "beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085,
    "num_train_timesteps": 1000, "set_alpha_to_one": False, "skip_prk_steps": True,
    "steps_offset": 1, "trained_betas": None, "clip_sample": False,
}
SDXL = {
    "_class_name": "EulerDiscreteScheduler", "_diffusers_version": "0.19.0.dev0",
    "beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": False,
    "interpolation_type": "linear", "num_train_timesteps": 1000, "prediction_type": "epsilon",
    "sample_max_value": 1.0, "set_alpha_to_one": False, "skip_prk_steps": True, "steps_offset": 1,
    "timestep_spacing": "leading", "trained_betas": None, "use_karras_sigmas": False,
}
SPACINGS = ("leading", "linspace", "trailing")
CONFIGS = {
    "sd15": SD15,
    "sdxl": SDXL,
    **{f"sd15-{s}": {**SD15, "timestep_spacing": s} for s in SPACINGS},
    "sd15-v": {**SD15, "prediction_type": "v_prediction"},
    "sd15-sample": {**SD15, "prediction_type": "sample"},
    # Keys left to the classes' defaults: clip_sample, set_alpha_to_one, steps_offset.
    "bare": {"_class_name": "DDIMScheduler", "beta_end": 0.012, "beta_schedule": "scaled_linear",
             "beta_start": 0.00085, "skip_prk_steps": True},
    "linear-500": {"_class_name": "DDIMScheduler", "beta_end": 0.02, "beta_schedule": "linear",
                   "beta_start": 0.0001, "clip_sample": False, "num_train_timesteps": 500,
                   "set_alpha_to_one": True, "skip_prk_steps": True, "steps_offset": 0},
    "cosine": {"_class_name": "DDIMScheduler", "beta_schedule": "squaredcos_cap_v2", "clip_sample": False,
               "num_train_timesteps": 1000, "prediction_type": "v_prediction", "skip_prk_steps": True,
               "steps_offset": 1},
    "zero-snr": {**SD15, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True,
                 "timestep_spacing": "trailing"},
}
TABLE_CONFIGS = ("sd15", "sd15-leading", "sd15-linspace", "sd15-trailing", "linear-500", "cosine", "zero-snr")
PATH_CONFIGS = ("sd15", "sdxl", "sd15-linspace", "sd15-trailing", "sd15-v", "sd15-sample", "bare", "linear-500",
                "cosine", "zero-snr")
SHAPE = (1, 4, 4, 4)
NOISE_SEED = 7


def scheduler(sampler, config, karras=False):
    cls, _ = SAMPLERS[sampler]
    return cls.from_config(config, **({"use_karras_sigmas": True} if karras else {}))


def kinds():
    for sampler, (_, has_karras) in SAMPLERS.items():
        for karras in (False, True) if has_karras else (False,):
            yield sampler, karras


def facts(sampler, karras, config, steps):
    return {"sampler": sampler, "schedule": "karras" if karras else "default", "config": config, "steps": steps}


def table(sampler, karras, config, steps):
    """What set_timesteps computes. `sigmas` is there for the samplers that have them."""
    s = scheduler(sampler, CONFIGS[config], karras)
    s.set_timesteps(steps)
    row = facts(sampler, karras, config, steps)
    row["timesteps"] = [int(t) if float(t).is_integer() else f32_list([t])[0] for t in s.timesteps]
    if sampler not in ("ddim", "pndm", "lcm"):
        row["sigmas"] = f32_list(s.sigmas)
    row["init_noise_sigma"] = f32_list([s.init_noise_sigma])[0]
    return row


def draws_made(g, most):
    """How many tensors of SHAPE were drawn from the generator."""
    twin = generator(NOISE_SEED)
    for n in range(most + 1):
        if torch.equal(g.get_state(), twin.get_state()):
            return n
        torch.randn(SHAPE, generator=twin)
    raise AssertionError("more draws than calls")


def path(sampler, karras, config, steps, shared, strength=None):
    """Steps from noise (or, with a strength, from the noised `original`) on given model outputs."""
    s = scheduler(sampler, CONFIGS[config], karras)
    s.set_timesteps(steps)
    g, name = generator(NOISE_SEED), f"{sampler}.{'karras' if karras else 'default'}.{config}.{steps}"
    row, begin = facts(sampler, karras, config, steps), 0
    if strength is None:
        x = shared["sample"] * s.init_noise_sigma
    else:  # StableDiffusionImg2ImgPipeline.get_timesteps and prepare_latents
        begin = max(steps - min(int(steps * strength), steps), 0) * s.order
        s.set_begin_index(begin) if hasattr(s, "set_begin_index") else None
        name += f".from{begin}"
        row["strength"] = strength
        x = s.add_noise(shared["original"], torch.randn(SHAPE, generator=g), s.timesteps[begin:begin + 1])
    tensors = {f"{name}.start": x}
    scaled, prev = [], []
    for i, t in enumerate(s.timesteps[begin:]):
        scaled.append(s.scale_model_input(x, t))
        extra = {"generator": g} if sampler in ("ddim", "euler", "euler_a", "dpm++2m", "lcm") else {}
        x = s.step(shared["model_output"][i], t, x, **extra).prev_sample
        prev.append(x)
    assert torch.isfinite(torch.stack(prev)).all(), name
    if any(not torch.equal(a, b) for a, b in zip(scaled, [tensors[f"{name}.start"], *prev])):
        tensors[f"{name}.scaled"] = torch.stack(scaled)
    tensors[f"{name}.prev"] = torch.stack(prev)
    row.update(name=name, begin=begin, calls=len(prev), draws=draws_made(g, len(prev) + 1))
    return row, tensors


def attempt(refused, what, f):
    """Runs f; a combination that diffusers refuses is noted with its reason."""
    try:
        return f()
    except (ValueError, NotImplementedError, IndexError, AssertionError, ZeroDivisionError, TypeError) as e:
        refused.append({**what, "why": f"{type(e).__name__}: {e}".split("\n")[0][:160]})
        return None


def make(root):
    warnings.simplefilter("ignore")
    folder = fresh(root / "schedulers")
    rows, refused = [], []
    for sampler, karras in kinds():
        for config in TABLE_CONFIGS:
            for steps in (1, 2, 4, 20, 50) if config == "sd15" else (1, 4, 13):
                row = attempt(refused, facts(sampler, karras, config, steps),
                              lambda: table(sampler, karras, config, steps))
                rows += [row] if row else []
    write_json(folder / "tables.json", {"configs": CONFIGS, "tables": rows, "refused": refused})

    shared = {"sample": randn(1, *SHAPE), "original": randn(2, *SHAPE) * 0.7, "model_output": randn(3, 16, *SHAPE)}
    g = generator(NOISE_SEED)
    shared["noise"] = torch.stack([torch.randn(SHAPE, generator=g) for _ in range(9)])
    tensors, rows, refused = dict(shared), [], []

    def add(sampler, karras, config, steps, strength=None):
        got = attempt(refused, facts(sampler, karras, config, steps),
                      lambda: path(sampler, karras, config, steps, shared, strength))
        if got:
            rows.append(got[0])
            tensors.update(got[1])

    for sampler, karras in kinds():
        for config in PATH_CONFIGS if not karras else ("sd15", "sd15-v", "sd15-sample"):
            add(sampler, karras, config, 5)
        for steps in (1, 2) if karras else (1, 2, 8):
            add(sampler, karras, "sd15", steps)
        add(sampler, karras, "sd15", 6, strength=0.6)
        add(sampler, karras, "sdxl", 6, strength=0.5)
    write_json(folder / "paths.json", {"configs": CONFIGS, "paths": rows, "refused": refused})
    write_tensors(folder / "paths.safetensors", tensors)
    from . import schedules  # which reads this module
    schedules.make(folder)
