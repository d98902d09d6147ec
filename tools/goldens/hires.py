"""tests/data/hires: AUTOMATIC1111's hires fix, written as its rules: sizes, steps, noise, prompts of the second pass; around diffusers' UNet
and schedulers, and k-diffusion's sampler of an SDE. Latent upscalers are torch's interpolate."""
import numpy as np
import torch
from diffusers import EulerDiscreteScheduler, StableDiffusionPipeline, StableDiffusionXLPipeline

from . import a1111, prompts
from .common import fresh, generator, randn, write_json, write_tensors
from .kdiffusion import sampling
from .schedulers import scheduler

UPSCALERS = {
    "Latent": ("bilinear", False), "Latent (antialiased)": ("bilinear", True), "Latent (bicubic)": ("bicubic", False),
    "Latent (bicubic antialiased)": ("bicubic", True), "Latent (nearest)": ("nearest", False), "Latent (nearest-exact)": ("nearest-exact", False),
}
SIZES = (((5, 6), (8, 9)), ((5, 6), (10, 12)), ((7, 9), (3, 4)), ((4, 5), (4, 11)), ((1, 2), (3, 5)))
LINES = ((64, 96), (64, 83), (37, 101), (90, 64), (52, 73), (41, 123), (3, 29))
DEFAULTS = {"model": "sd1", "schedule": "default", "width": 48, "height": 40, "steps": 4, "cfg": 5.0, "seed": 42, "batch": 1, "negative": "",
            "hires": {}}
# "plain": prompts without syntax
RUNS = {
    "scale": {"prompt": "a cat in the snow", "plain": True, "sampler": "euler", "batch": 2, "hires": {"hr_scale": 1.5, "denoising_strength": 0.6}},
    "steps": {"prompt": "a [cat:dog:0.5] (in [the snow:rain:1.4]:1.3) by [day:night:13]", "negative": "[bad|blurry]", "sampler": "heun",
              "hires": {"hr_scale": 1.3, "hr_second_pass_steps": 3, "hr_upscaler": "Latent (bicubic antialiased)"}},
    "cut": {"model": "sdxl", "prompt": "a cat", "negative": "blurry", "sampler": "euler",
            "hires": {"hr_resize_x": 80, "hr_resize_y": 40, "hr_upscaler": "Latent (nearest-exact)", "denoising_strength": 0.5,
                      "hr_prompt": "a (dog:1.2)", "hr_negative_prompt": "text"}},
    "height": {"model": "sdxl", "prompt": "a cat", "plain": True, "sampler": "dpm++2m",
               "hires": {"hr_resize_x": 40, "hr_resize_y": 60, "denoising_strength": 1.0, "hr_second_pass_steps": 2}},
    "width": {"model": "sd2", "prompt": "a cat", "plain": True, "sampler": "ddim", "hires": {
        "hr_resize_x": 70, "hr_upscaler": "Latent (nearest)", "denoising_strength": 0.37}},
    "ancestral": {"prompt": "a cat", "plain": True, "sampler": "euler_a", "batch": 2, "hires": {
        "hr_scale": 1.3, "hr_upscaler": "Latent (antialiased)", "denoising_strength": 0.7}},
    "sde": {"prompt": "a cat", "plain": True, "sampler": "dpm++2m_sde", "hires": {
        "hr_scale": 1.5, "hr_upscaler": "Latent (bicubic)", "denoising_strength": 0.55}},
    "others": {"prompt": "a cat AND a dog :0.5", "sampler": "ddim", "hires": {
        "hr_scale": 1.5, "hr_sampler": "euler", "hr_cfg": 2.5, "denoising_strength": 0.8}},
}
PROMPTS = ("a [b:c:0.5] d", "[a:b:1.0]", "[a:b:1.5]", "[a:b:1.55]", "[a:b:2.0]", "[a:b:2.5]", "[a:b:6]", "[a:b:7]", "[a:b:9]", "[a:b:3]", "[a:b:99]",
           "[a:b:-1]", "[a|b|c]", "[[a:b:1.2]|c]", "[a:[b:c:1.8]:1.3]", "[a::8] [b:0.2]", "[a:b:1e999]", "[a:b:1.1e0]")


def target(case):
    """((width, height) that the latents are resized to, latent pixels to cut off across and down)"""
    h, w, height = case["hires"], case["width"], case["height"]
    x, y = h.get("hr_resize_x", 0), h.get("hr_resize_y", 0)
    if not x and not y:
        return (int(w * h["hr_scale"]), int(height * h["hr_scale"])), (0, 0)
    if not y:
        return (x, x * height // w), (0, 0)
    if not x:
        return (y * w // height, y), (0, 0)
    to = (x, x * height // w) if w / height < x / y else (y * w // height, y)
    return to, ((to[0] - x) // 8, (to[1] - y) // 8)


def last_steps(steps, strength):
    """(all steps, those that are not done)"""
    total = int(steps / min(strength, 0.999))
    return total, total - steps


class Pass:
    """One pass: what the UNet predicts at a call."""

    def __init__(self, pipe, text, case, prompt, negative, cfg, calls, before, size):
        self.pipe, self.case, self.cfg = pipe, case, cfg
        self.xl = case["model"] == "sdxl"
        self.size = torch.tensor([[size[1], size[0], 0, 0, size[1], size[0]]]).float()
        self.joined = [[prompt, 1.0]] if case.get("plain") else a1111.compose(prompt)
        self.guided = cfg > 1 or len(self.joined) > 1 or self.joined[0][1] != 1
        texts = [negative, *(t for t, _ in self.joined)]
        self.conditions = [text.conditions(t, calls, before) for t in texts]
        self.zeros = self.xl and negative == "" and not case.get("plain")

    def row(self, condition, call, x, t, zeros):
        states, pooled = condition(call)
        if zeros:
            states, pooled = torch.zeros_like(states), torch.zeros_like(pooled)
        n = len(x)
        more = {"text_embeds": pooled[None].expand(n, -1), "time_ids": self.size.expand(n, -1)} if self.xl else None
        return self.pipe.unet(x, t, states[None].expand(n, -1, -1), added_cond_kwargs=more).sample

    def predict(self, call, x, t):
        outputs = [self.row(c, call, x, t, self.zeros and i == 0) for i, c in enumerate(self.conditions) if i or self.guided]
        if not self.guided:
            return outputs[0]
        return outputs[0] + sum(self.cfg * w * (o - outputs[0]) for o, (_, w) in zip(outputs[1:], self.joined))


def run_diffusers(one, sampler, x, noise, steps, skipped, generators):
    """x None: from noise alone."""
    s = scheduler(sampler, dict(one.pipe.scheduler.config), False)
    s.set_timesteps(steps)
    begin = skipped * s.order
    if x is None:
        x = noise * s.init_noise_sigma
    else:
        if hasattr(s, "set_begin_index"):
            s.set_begin_index(begin)
        x = s.add_noise(x, noise, s.timesteps[begin:begin + 1].expand(len(x)))
    more = {"generator": generators} if sampler == "euler_a" else {}
    for call, t in enumerate(s.timesteps[begin:]):
        x = s.step(one.predict(call, s.scale_model_input(x, t), t), t, x, **more).prev_sample
    return x


def run_sde(one, x, noise, steps, skipped, seeds):
    """Levels of diffusers' Euler; the motion lies over all of them, as in A1111's create_noise_sampler."""
    s = EulerDiscreteScheduler.from_config(dict(one.pipe.scheduler.config))
    s.set_timesteps(steps)
    train = np.log(np.array(((1 - s.alphas_cumprod) / s.alphas_cumprod) ** 0.5))
    x = noise * s.init_noise_sigma if x is None else x + noise * s.sigmas[skipped]
    positive = s.sigmas[s.sigmas > 0]
    tree = sampling.BrownianTreeNoiseSampler(x, positive.min(), positive.max(), seed=seeds)
    calls = []

    def model(x, sigma):
        calls.append(sigma)
        v = float(sigma[0])
        t = torch.tensor(float(EulerDiscreteScheduler._sigma_to_t(s, np.float64(v), train)))
        return x - v * one.predict(len(calls) - 1, x / (v ** 2 + 1) ** 0.5, t)

    return sampling.sample_dpmpp_2m_sde(model, x, s.sigmas[skipped:].double(), noise_sampler=tree, disable=True).float()


def run_pass(one, sampler, x, shape, steps, skipped, case):
    seeds = [case["seed"] + i for i in range(case["batch"])]
    generators = [generator(s) for s in seeds]
    noise = torch.cat([torch.randn((1, *shape), generator=g) for g in generators])
    if sampler == "dpm++2m_sde":
        return run_sde(one, x, noise, steps, skipped, seeds)
    return run_diffusers(one, sampler, x, noise, steps, skipped, generators)


def resize(x, size, cut, upscaler):
    mode, antialias = UPSCALERS[upscaler]
    x = torch.nn.functional.interpolate(x, size=(size[1] // 8, size[0] // 8), mode=mode, antialias=antialias)
    return x[:, :, cut[1] // 2:x.shape[2] - (cut[1] + 1) // 2, cut[0] // 2:x.shape[3] - (cut[0] + 1) // 2]


def run(root, case):
    folder, h = root / "models" / case["model"], case["hires"]
    cls, more = (StableDiffusionXLPipeline, {}) if case["model"] == "sdxl" else (StableDiffusionPipeline, {"safety_checker": None})
    pipe = cls.from_pretrained(folder, dtype=torch.float32, **more)
    text = prompts.Encoders(prompts.encoders(root, case["model"]))
    second, steps = h.get("hr_sampler", case["sampler"]), h.get("hr_second_pass_steps", 0) or case["steps"]
    twice = {"heun": 2}
    before = case["steps"] * twice.get(case["sampler"], 1)
    one = Pass(pipe, text, case, case["prompt"], case["negative"], case["cfg"], before, 0, (case["width"], case["height"]))
    x = run_pass(one, case["sampler"], None, (4, case["height"] // 8, case["width"] // 8), case["steps"], 0, case)
    size, cut = target(case)
    x = resize(x, size, cut, h.get("hr_upscaler", "Latent"))
    two = Pass(pipe, text, case, h.get("hr_prompt") or case["prompt"], h.get("hr_negative_prompt") or case["negative"],
               h.get("hr_cfg", case["cfg"]), steps * twice.get(second, 1), before, size)
    x = run_pass(two, second, x, x.shape[1:], *last_steps(steps, h.get("denoising_strength", 0.7)), case)
    assert torch.isfinite(x).all()
    return x


def upscaled():
    """Each upscaler on planes of some sizes, and which value of a line the nearest ones take."""
    for n, (of, to) in enumerate(SIZES):
        x = randn(n, 1, 2, *of)
        yield f"{n}.from", x[0]
        for name, (mode, antialias) in UPSCALERS.items():
            yield f"{n}.{name}", torch.nn.functional.interpolate(x, size=to, mode=mode, antialias=antialias)[0]
    for of, to in LINES:
        x = torch.arange(of, dtype=torch.float32).reshape(1, 1, 1, of)
        for name in ("Latent (nearest)", "Latent (nearest-exact)"):
            yield f"{of}.{to}.{name}", torch.nn.functional.interpolate(x, size=(1, to), mode=UPSCALERS[name][0]).flatten().to(torch.uint8)


def make(root):
    folder = fresh(root / "hires")
    write_tensors(folder / "upscaled.safetensors", dict(upscaled()))
    rows = [{"name": name, **DEFAULTS, **facts} for name, facts in RUNS.items()]
    write_json(folder / "cases.json", rows)
    write_json(folder / "prompts.json", [{"text": t, "schedule": a1111.schedule(t, 5, 6)} for t in PROMPTS])
    write_tensors(folder / "latents.safetensors", {case["name"]: run(root, case) for case in rows})
