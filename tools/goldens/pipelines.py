"""tests/data/pipelines: whole txt2img, img2img and inpaint, final latents and pictures."""
import numpy as np
import torch
from diffusers import (StableDiffusionImg2ImgPipeline, StableDiffusionInpaintPipeline, StableDiffusionPipeline,
                       StableDiffusionXLImg2ImgPipeline, StableDiffusionXLInpaintPipeline, StableDiffusionXLPipeline,
                       UNet2DConditionModel)
from PIL import Image

from .common import fresh, generator, write_json, write_tensors
from .schedulers import kinds, scheduler

MODES = {"txt2img": StableDiffusionPipeline, "img2img": StableDiffusionImg2ImgPipeline,
         "inpaint": StableDiffusionInpaintPipeline}
XL_MODES = {"txt2img": StableDiffusionXLPipeline, "img2img": StableDiffusionXLImg2ImgPipeline,
            "inpaint": StableDiffusionXLInpaintPipeline}
PROMPT = "a red house in a green meadow by day"
DEFAULTS = {"prompt": PROMPT, "negative": None, "width": 48, "height": 40, "steps": 5, "cfg": 5.0, "seed": 42,
            "sampler": "ddim", "schedule": "default", "batch": 1}
LONG = "a photo of two boats under a blue hot-air balloon, highly detailed, " * 4


def sampler_cases(mode, model, samplers=None, **more):
    for sampler, karras in kinds():
        if samplers is None or sampler in samplers:
            schedule = "karras" if karras else "default"
            name = f"{mode}.{model}.{sampler}" + (".karras" if karras else "")
            yield name, {"mode": mode, "model": model, "sampler": sampler, "schedule": schedule, **more}


def txt2img_cases():
    yield from sampler_cases("txt2img", "sd1")
    yield from sampler_cases("txt2img", "sd1-heads", ("ddim", "pndm", "euler_a", "dpm++2m", "unipc"), steps=4)
    one = {"mode": "txt2img", "model": "sd1"}
    yield "txt2img.sd1.cfg-off", {**one, "cfg": 1.0, "negative": "blurry"}
    yield "txt2img.sd1.cfg-below-1", {**one, "cfg": 0.5, "sampler": "euler"}
    yield "txt2img.sd1.negative", {**one, "negative": "blurry, low quality, bad anatomy", "cfg": 7.5}
    yield "txt2img.sd1.wide-72x40", {**one, "width": 72, "sampler": "dpm++2m", "schedule": "karras"}
    yield "txt2img.sd1.tall-40x104", {**one, "width": 40, "height": 104, "sampler": "euler"}
    yield "txt2img.sd1.batch3", {**one, "batch": 3, "sampler": "euler_a", "negative": "text"}
    yield "txt2img.sd1.batch3-lcm-cfg-off", {**one, "batch": 3, "sampler": "lcm", "cfg": 1.0, "seed": 2**32 - 2}
    yield "txt2img.sd1.empty-prompt", {**one, "prompt": "", "sampler": "pndm"}
    yield "txt2img.sd1.long-prompt", {**one, "prompt": LONG, "sampler": "unipc"}
    yield "txt2img.sd1.unicode-prompt", {**one, "prompt": "  Ünïcödé \t東京 cat's  🐈\u200d⬛ <|endoftext|> 42 ", "seed": 0}
    yield "txt2img.sd1.one-step", {**one, "steps": 1, "sampler": "dpm++2m", "seed": 2**32 + 5}
    yield "txt2img.sd1.20-steps", {**one, "steps": 20, "sampler": "dpm++2m", "schedule": "karras"}
    yield "txt2img.sd1-heads.default-size", {"mode": "txt2img", "model": "sd1-heads", "width": 56, "height": 40,
                                             "prompt": "a cat! in the snow!!", "negative": "text"}
    yield from sampler_cases("txt2img", "sd2", ("ddim", "euler", "dpm++2m"), steps=4, width=40)
    two = {"mode": "txt2img", "model": "sd2", "prompt": "a cat! in the snow!!", "width": 40}
    yield "txt2img.sd2.negative", {**two, "negative": "text, blurry!", "cfg": 7.5}
    yield "txt2img.sd2.cfg-off", {**two, "cfg": 1.0, "sampler": "pndm"}
    yield "txt2img.sd2.default-size", {**two, "width": 64, "height": 64, "steps": 2}
    yield from sampler_cases("txt2img", "sdxl", ("ddim", "euler"), steps=4, width=40)
    xl = {"mode": "txt2img", "model": "sdxl", "prompt": "a cat! in the snow!!", "width": 40, "sampler": "euler"}
    yield "txt2img.sdxl.negative", {**xl, "negative": "text, blurry!", "cfg": 7.5}
    yield "txt2img.sdxl.empty-negative", {**xl, "negative": "", "steps": 3}
    yield "txt2img.sdxl.cfg-off", {**xl, "cfg": 1.0}
    yield "txt2img.sdxl.tall-batch2", {**xl, "width": 24, "height": 56, "batch": 2, "sampler": "dpm++2m"}
    yield "txt2img.sdxl.default-size", {**xl, "width": 64, "height": 64, "steps": 2}


def image_cases():
    image = {"init_image": "init-48x40.png", "strength": 0.7, "steps": 6}
    yield from sampler_cases("img2img", "sd1", **image)
    one = {"mode": "img2img", "model": "sd1", **image}
    yield "img2img.sd1.strength-1", {**one, "strength": 1.0, "sampler": "euler"}
    yield "img2img.sd1.strength-low", {**one, "strength": 0.2, "sampler": "dpm++2m"}
    yield "img2img.sd1.cfg-off", {**one, "cfg": 1.0, "sampler": "pndm"}
    yield "img2img.sd1.batch3", {**one, "batch": 3, "sampler": "euler_a"}
    yield "img2img.sd1-heads.ddim", {**one, "model": "sd1-heads", "sampler": "ddim"}
    yield "img2img.sd2.ddim", {**one, "model": "sd2", "sampler": "ddim"}
    yield "img2img.sdxl.euler", {**one, "model": "sdxl", "sampler": "euler"}

    masked = {"init_image": "init-48x40.png", "mask_image": "mask-48x40.png"}
    some = ("ddim", "pndm", "euler_a", "dpm++2m", "heun", "lcm")
    yield from sampler_cases("inpaint", "sd1", some, strength=1.0, **masked)
    one = {"mode": "inpaint", "model": "sd1", **masked}
    yield "inpaint.sd1.strength-0.6", {**one, "strength": 0.6, "sampler": "euler", "steps": 6}
    yield "inpaint.sd1.batch3", {**one, "strength": 0.8, "sampler": "euler_a", "batch": 3}
    yield from sampler_cases("inpaint", "sd1-inpaint", some, strength=1.0, **masked)
    one = {**one, "model": "sd1-inpaint"}
    yield "inpaint.sd1-inpaint.strength-0.6", {**one, "strength": 0.6, "sampler": "euler", "steps": 6}
    yield "inpaint.sd1-inpaint.cfg-off-batch3", {**one, "strength": 1.0, "sampler": "unipc", "cfg": 1.0, "batch": 3}


def write_images(folder):
    """A smooth picture with some noise, and a mask of three grey levels with edges off the 8-pixel grid."""
    w, h = 48, 40
    y, x = np.mgrid[0:h, 0:w]
    noise = torch.randint(0, 40, (h, w, 3), generator=generator(w)).numpy()
    waves = [np.sin(x / (5 + c) + c) * np.cos(y / (7 - c)) for c in range(3)]
    rgb = np.clip(np.stack(waves, -1) * 90 + 110 + noise, 0, 255)
    Image.fromarray(np.round(rgb).astype(np.uint8)).save(folder / f"init-{w}x{h}.png")
    mask = np.zeros((h, w), np.uint8)
    mask[5:29, 13:37] = 255
    mask[26:38, 3:19] = 127  # below one half: kept
    mask[0:9, 39:48] = 128   # above: painted
    Image.fromarray(mask).save(folder / f"mask-{w}x{h}.png")


def pipeline(mode, folder, **parts):
    if mode != "txt2img":  # diffusers 0.42 compares sample_size with 64 here, which a [height, width] does not survive
        parts["unet"] = UNet2DConditionModel.from_pretrained(folder / "unet", sample_size=64, dtype=torch.float32)
    if (folder / "text_encoder_2").exists():
        pipe = XL_MODES[mode].from_pretrained(folder, add_watermarker=False, dtype=torch.float32, **parts)
    else:
        pipe = MODES[mode].from_pretrained(folder, safety_checker=None, dtype=torch.float32, **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def run(pipe, case, images, config):
    """(latents, u8 pictures (N, H, W, 3)) of a case, as the pipeline gives them."""
    own = case["sampler"] == "default"
    pipe.scheduler = type(pipe.scheduler).from_config(config) if own else scheduler(case["sampler"], config,
                                                                                    case["schedule"] == "karras")
    seeds = [generator(case["seed"] + i) for i in range(case["batch"])]
    for g in seeds if case.get("encoded") else ():  # tern has drawn for the encoding of the picture that is kept
        torch.randn(1, 4, case["height"] // 8, case["width"] // 8, generator=g)
    given = {"prompt": case["prompt"], "negative_prompt": case["negative"], "num_inference_steps": case["steps"],
             "guidance_scale": case["cfg"], "num_images_per_prompt": case["batch"],
             "generator": seeds if case["batch"] > 1 else seeds[0], "output_type": "latent"}
    if case["mode"] != "img2img":
        given.update(width=case["width"], height=case["height"])
    if case["mode"] != "txt2img":
        given["strength"] = case["strength"]
    if "init_image" in case:
        given["image"] = Image.open(images / case["init_image"]).convert("RGB")
    if case["mode"] == "inpaint":
        given.update(mask_image=Image.open(images / case["mask_image"]))
        given["image"] = [given["image"]] * case["batch"]  # else the first generator alone draws the posteriors
    latents = pipe(**{**given, **case.get("more", {})}).images
    decoded = pipe.vae.decode(latents / pipe.vae.config.scaling_factor).sample
    pictures = pipe.image_processor.postprocess(decoded, output_type="pil")
    return latents, torch.stack([torch.from_numpy(np.array(p)) for p in pictures])


def make(root):
    folder = fresh(root / "pipelines")
    write_images(folder)
    pipes, latents, pictures, rows, prompts = {}, {}, {}, [], {}
    for name, facts in (*txt2img_cases(), *image_cases()):
        case, key = {"name": name, **DEFAULTS, **facts}, (facts["mode"], facts["model"])
        if key not in pipes:
            pipe = pipeline(facts["mode"], root / "models" / facts["model"])
            pipes[key] = pipe, dict(pipe.scheduler.config)
        latents[name], pictures[name] = run(pipes[key][0], case, folder, pipes[key][1])
        assert torch.isfinite(latents[name]).all() and pictures[name].float().std() > 10, name
        rows.append(case)
        for text in {case["prompt"], case["negative"] or ""}:
            prompts[facts["model"], text] = pipes[key][0].tokenizer(text, padding="max_length", truncation=True).input_ids
    write_json(folder / "cases.json", rows)
    write_json(folder / "prompts.json", [{"model": m, "text": t, "ids": ids} for (m, t), ids in sorted(prompts.items())])
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
