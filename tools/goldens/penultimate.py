"""tests/data/penultimate: noise levels without the last but one, as AUTOMATIC1111's get_sigmas takes them of one step more, and where
k-diffusion's samplers end on them. The model knows that each value has mean 0 and deviation DEVIATION."""
import torch
from diffusers import EulerDiscreteScheduler

from .common import f32_list, fresh, randn, write_json
from .kdiffusion import sampling
from .schedules import A1111, a1111_levels
from .schedulers import SD15

DEVIATION = 0.5
SAMPLERS = {"euler": (sampling.sample_euler, {}), "heun": (sampling.sample_heun, {}), "dpm2": (sampling.sample_dpm_2, {}),
            "dpm2_a": (sampling.sample_dpm_2_ancestral, {"eta": 0.0}), "euler_a": (sampling.sample_euler_ancestral, {"eta": 0.0})}
STEPS = (1, 2, 5, 20)


def levels(schedule, steps, alphas_cumprod):
    """Those of steps + 1, without the last one before 0."""
    sigmas = torch.tensor([*a1111_levels(schedule, steps + 1, alphas_cumprod), 0.0], dtype=torch.float32)
    return torch.cat([sigmas[:-2], sigmas[-1:]])


def model(x, sigma, **_):
    return x * DEVIATION ** 2 / (DEVIATION ** 2 + sigma[0] ** 2)


def make(root):
    folder = fresh(root / "penultimate")
    alphas = EulerDiscreteScheduler.from_config(SD15).alphas_cumprod
    start, rows = randn(3, 1, 4), []
    for schedule in A1111:
        for steps in STEPS:
            sigmas = levels(schedule, steps, alphas)
            ends = {name: f32_list(f(model, start * sigmas[0], sigmas, disable=True, **more)[0]) for name, (f, more) in SAMPLERS.items()}
            rows.append({"schedule": schedule, "steps": steps, "sigmas": f32_list(sigmas), "ends": ends})
    write_json(folder / "runs.json", {"start": f32_list(start[0]), "rows": rows})
