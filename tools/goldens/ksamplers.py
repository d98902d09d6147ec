"""tests/data/ksamplers: the samplers that only k-diffusion has, run by its package (0.1.1.post1) on given model outputs and noise."""
import functools
import warnings

import numpy as np
import torch
from diffusers import DDIMScheduler, EulerDiscreteScheduler

from . import brownian
from .common import f32_list, fresh, generator, randn, write_json, write_tensors
from .kdiffusion import sampling
from .schedulers import CONFIGS
from .schedules import scheduler

SHAPE = (1, 1, 4, 4)
OUTPUTS, NOISES = 24, 40
SAMPLERS = {
    "dpm++2s_a": sampling.sample_dpmpp_2s_ancestral,
    "dpm++sde": sampling.sample_dpmpp_sde,
    "dpm++2m_sde": sampling.sample_dpmpp_2m_sde,
    "dpm++2m_sde_heun": functools.partial(sampling.sample_dpmpp_2m_sde, solver_type="heun"),
    "dpm++3m_sde": sampling.sample_dpmpp_3m_sde,
    "dpm_fast": sampling.sample_dpm_fast,
    "dpm_adaptive": sampling.sample_dpm_adaptive,
    "euler": sampling.sample_euler,
    "euler_a": sampling.sample_euler_ancestral,
    "heun": sampling.sample_heun,
    "dpm2": sampling.sample_dpm_2,
    "dpm2_a": sampling.sample_dpm_2_ancestral,
}
CHURNING = ("euler", "heun", "dpm2")
SINGLE = ("dpm++2s_a", "dpm++sde", "heun", "dpm2", "dpm2_a")  # two calls a step
MULTI = ("dpm++2m_sde", "dpm++2m_sde_heun", "dpm++3m_sde")  # one
RANGE = ("dpm_fast", "dpm_adaptive")  # between two levels, without a schedule
# (sampler, config, schedule, steps, more): more may have strength, and the model "gaussian" instead of the given outputs
RUNS = [("dpm++2s_a", *rest, {}) for rest in (
    ("sd15", "default", 1), ("sd15", "default", 2), ("sd15", "default", 5), ("sdxl", "default", 5), ("sd15-v", "default", 5),
    ("linear-500", "default", 4), ("sd15", "karras", 6), ("sd15", "exponential", 4), ("sd15", "simple", 4),
    ("sd15-v", "align_your_steps", 8))] + [("dpm++2s_a", "sd15", "default", 6, {"strength": 0.6})]
RUNS += [(sampler, *rest) for sampler in ("dpm++sde", *MULTI) for rest in (
    ("sd15", "default", 2, {}), ("sd15", "default", 5, {}), ("sdxl", "default", 4, {}), ("sd15-v", "karras", 6, {}),
    ("linear-500", "exponential", 5, {}), ("sd15", "default", 6, {"strength": 0.6}))]
RUNS += [("dpm_fast", *rest) for rest in (
    *(("sd15", "default", steps, {}) for steps in (1, 2, 3, 4, 5, 9, 13)), ("sdxl", "default", 6, {}), ("sd15-v", "default", 7, {}),
    ("linear-500", "default", 8, {}), ("sd15", "default", 12, {"strength": 0.6}))]
RUNS += [("dpm_adaptive", *rest) for rest in (
    ("sd15", "default", 20, {"model": "gaussian"}), ("linear-500", "default", 20, {"model": "gaussian"}),
    ("sd15", "default", 10, {"model": "gaussian", "strength": 0.5}))]

CHURN = {"s_churn": 0.9, "s_tmin": 0.1, "s_tmax": 10.0, "s_noise": 1.1}
RUNS += [(sampler, "sd15", schedule, 5, {"options": options}) for sampler, schedule, options in (
    *((s, "karras", {"eta": 0.5, "s_noise": 1.1}) for s in ("dpm++2s_a", "dpm++sde", *MULTI, "euler_a", "dpm2_a")),
    *((s, "karras", {"eta": 0.0}) for s in ("dpm++2s_a", "dpm++sde", *MULTI, "euler_a", "dpm2_a")),
    ("dpm_fast", "default", {"eta": 0.5}), ("dpm_fast", "default", {"eta": 0.0}),
    *((s, "default", CHURN) for s in CHURNING), *((s, "karras", {"s_churn": 40.0}) for s in CHURNING))]
RUNS += [("dpm_adaptive", "sd15", "default", 5, {"model": "gaussian", "options": {"eta": 0.0}}),
         ("heun", "sd15-v", "default", 6, {"strength": 0.6, "options": CHURN})]
# the highest level is 4096, from which steps to small ones have few digits: those two begin lower
RUNS += [(sampler, "zero-snr", *rest) for sampler, *rest in (
    *((s, "default", 4, {}) for s in ("dpm++sde", *MULTI)), ("dpm++2s_a", "exponential", 12, {}), ("dpm++2m_sde", "karras", 4, {}),
    ("dpm_fast", "default", 12, {"strength": 0.6}), ("dpm_adaptive", "default", 10, {"model": "gaussian", "strength": 0.5}))]


class Torch:
    """torch for k-diffusion, with this noise."""

    def __init__(self, noise):
        self.randn_like = lambda x: noise()

    def __getattr__(self, name):
        return getattr(torch, name)


class Run:
    """What one run asked of the model and drew: noise levels and samples of the calls, number of draws."""

    def __init__(self, prediction, shared, model=None):
        self.prediction, self.shared, self.kind = prediction, shared, model
        self.levels, self.samples, self.draws, self.spans = [], [], 0, []

    def model(self, x, sigma):
        s = sigma[0]
        if self.kind == "gaussian":  # knows that each value has mean 0 and that deviation
            square = self.shared["model_output"][0] ** 2
            output = x * s / (square + s ** 2)
            output = output if self.prediction == "epsilon" else output * (1 - square) / (s ** 2 + 1) ** 0.5
        else:
            output = self.shared["model_output"][len(self.levels)]
        self.levels.append(float(s))
        self.samples.append(x)
        if self.prediction == "epsilon":  # as in k-diffusion's external.py
            return x - s * output
        return output * (-s / (s ** 2 + 1) ** 0.5) + x / (s ** 2 + 1)

    def noise(self, *span):
        self.draws += 1
        self.spans += [f32_list(span)] if span else []
        return self.shared["noise"][self.draws - 1]


def row_of(sampler, config, schedule, steps, more, shared):
    """The table and the trajectory of a run; the levels are those that diffusers' Euler has."""
    s = scheduler("euler", config, schedule, steps)
    run = Run(s.config.prediction_type, shared, more.get("model"))
    row = {"sampler": sampler, "schedule": schedule, "config": config, "steps": steps}
    name, begin, init = f"{sampler}.{schedule}.{config}.{steps}", 0, s.init_noise_sigma
    if sampler in RANGE:  # Euler's rule for the highest level
        init = (train_sigmas(s)[-1] ** 2 + (s.config.timestep_spacing == "leading")) ** 0.5
    x = shared["sample"] * init
    if "strength" in more:  # as in schedulers.py
        begin = steps - min(int(steps * more["strength"]), steps)
        name, row["strength"] = f"{name}.from{begin}", more["strength"]
        x = shared["original"] + run.noise() * s.sigmas[begin]
    row_name, tensors = name, {f"{name}.start": x}
    sigmas = s.sigmas[begin:].double() if sampler in MULTI else s.sigmas[begin:]  # f32 would lose digits of their differences
    options = dict(more.get("options", {}))
    if sampler in RANGE:
        end = run_range(sampler, run, x, s, begin, options.get("eta", 1.0))
    else:
        sampling.torch = Torch(run.noise)
        given = {} if sampler in CHURNING else {"noise_sampler": run.noise}
        end = SAMPLERS[sampler](run.model, x, sigmas, disable=True, **given, **options)
        sampling.torch = torch
    if sampler == "euler_a":  # diffusers draws noise for the last step, too, and multiplies it with 0
        run.draws += 1
    if options.get("eta") == 0:  # what is drawn and multiplied with 0 is not drawn
        run.draws, run.spans = int("strength" in more), []
    train = np.log(np.array(((1 - s.alphas_cumprod) / s.alphas_cumprod) ** 0.5))
    known = {float(v): float(t) for v, t in zip(s.sigmas, s.timesteps)}
    t = [known[v] if v in known else float(EulerDiscreteScheduler._sigma_to_t(s, np.float64(v), train)) for v in run.levels]
    tensors[f"{name}.scaled"] = torch.stack([x / (v ** 2 + 1) ** 0.5 for x, v in zip(run.samples, run.levels)])
    tensors[f"{name}.prev"] = torch.stack([*run.samples[1:], end])
    assert torch.isfinite(tensors[f"{name}.prev"]).all(), name
    table = {**row, "timesteps": f32_list(t), "sigmas": f32_list([*run.levels, train_sigmas(s)[0] if sampler in RANGE else s.sigmas[-1]]),
             "init_noise_sigma": f32_list([init])[0]}
    path = {**row, "name": name, "begin": 0 if sampler in RANGE else begin * (1 + (sampler in SINGLE)), "calls": len(run.levels), "draws": run.draws,
            **({"spans": run.spans} if "sde" in sampler else {})}
    for key in ("model", "options"):
        if key in more:
            path[key] = more[key]
    if "s_churn" in options:
        path["timesteps"] = f32_list(t)
    if options:
        path["name"] = name = f"{name}.{len(shared['names'])}"
        tensors = {key.replace(row_name, name): value for key, value in tensors.items()}
    shared["names"].append(name)
    return [] if "strength" in more or options or sampler == "dpm_adaptive" or ill(sampler, s.sigmas) else [table], path, tensors


def train_sigmas(s):
    return ((1 - s.alphas_cumprod) / s.alphas_cumprod) ** 0.5


def run_range(sampler, run, x, s, begin, eta):
    """From the highest training level, or the one that the first step of img2img has, to the lowest, with A1111's eta of 1 unless told."""
    train = train_sigmas(s)
    high = float(s.sigmas[begin] if begin else train[-1])
    torch.set_default_dtype(torch.float64)  # of the times: f32 would lose digits; samples stay f32
    steps = {"n": len(s.timesteps) - begin} if sampler == "dpm_fast" else {}
    end = SAMPLERS[sampler](run.model, x, float(train[0]), high, **steps, disable=True, eta=eta, noise_sampler=run.noise)
    torch.set_default_dtype(torch.float32)
    run.draws -= 1  # that of the last step is multiplied with 0
    return end


def ill(sampler, sigmas):
    """Whether f32 leaves few digits of how far an ancestral step goes down, from a level that is large beside the next."""
    return sampler == "dpm++2s_a" and any(b > 0 and a / b > 10 for a, b in zip(sigmas, sigmas[1:]))


def ddim_row(eta, shared):
    """diffusers' DDIM with noise."""
    s, x, name = DDIMScheduler.from_config(CONFIGS["sd15"]), shared["sample"], "ddim.default.sd15.5.eta"
    s.set_timesteps(5)
    prev = [x]
    for i, t in enumerate(s.timesteps):
        prev.append(s.step(shared["model_output"][i], t, prev[-1], eta=eta, variance_noise=shared["noise"][i]).prev_sample)
    row = {"sampler": "ddim", "schedule": "default", "config": "sd15", "steps": 5, "name": name, "begin": 0, "calls": 5, "draws": 5}
    return {**row, "options": {"eta": eta}}, {f"{name}.start": x, f"{name}.prev": torch.stack(prev[1:])}


def make(root):
    warnings.simplefilter("ignore")
    folder = fresh(root / "ksamplers")
    g = generator(13)
    shared = {"sample": randn(31, *SHAPE), "original": randn(32, *SHAPE) * 0.7, "model_output": randn(33, OUTPUTS, *SHAPE),
              "noise": torch.stack([torch.randn(SHAPE, generator=g) for _ in range(NOISES)])}
    tables, paths, tensors, shared = [], [], dict(shared), {**shared, "names": []}
    for run in RUNS:
        table, path, more = row_of(*run, shared)
        tables += table
        paths.append(path)
        tensors.update(more)
    row, more = ddim_row(0.7, shared)
    paths.append(row)
    tensors.update(more)
    configs = {row["config"]: CONFIGS[row["config"]] for row in tables + paths}
    write_json(folder / "runs.json", {"configs": configs, "tables": tables, "paths": paths})
    write_tensors(folder / "runs.safetensors", tensors)
    brownian.make(folder)
