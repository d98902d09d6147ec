"""tests/data/xl-negative: sizes that SDXL's negative rows are told, latents of whole jobs on models/sdxl and xl/sdxl-refiner."""
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from .common import fresh, write_json, write_tensors
from .pipelines import DEFAULTS, run
from .xl import pipes_of

WEIGHTS = "unet/diffusion_pytorch_model.safetensors"


def restore_refiner(root, work):
    """The refiner of tests/data/xl from what differs there."""
    folder, kept = work / "sdxl-refiner", root / "xl/sdxl-refiner"
    shutil.copytree(root / "models/sdxl", folder)
    for part in ("text_encoder", "tokenizer"):
        shutil.rmtree(folder / part)
    shutil.copy(kept / "model_index.json", folder / "model_index.json")
    shutil.copy(kept / "unet.json", folder / "unet/config.json")
    save_file({**load_file(folder / WEIGHTS), **load_file(kept / "unet.safetensors")}, folder / WEIGHTS)


def cases():
    text = {"prompt": "a cat! in the snow!!", "negative": "text", "width": 40, "sampler": "euler", "cfg": 4.0, "steps": 3, "model": "sdxl"}
    sizes = {"negative_original_size": (24, 64), "negative_target_size": (96, 32)}
    positive = {"original_size": (96, 64), "crops_coords_top_left": (8, 16)}
    crop = {"negative_crops_coords_top_left": (40, 12)}
    yield "txt2img.sizes", {**text, "mode": "txt2img", "more": sizes}
    yield "txt2img.all", {**text, "mode": "txt2img", "negative": None, "batch": 2, "more": {**sizes, **crop, **positive}}
    image = {**text, "mode": "img2img", "init_image": "init-48x40.png", "strength": 0.7, "width": 48, "steps": 4}
    yield "img2img.original", {**image, "more": {"negative_original_size": (24, 64), **positive}}
    yield "img2img.sizes", {**image, "more": {**sizes, **positive, "target_size": (48, 56)}}
    yield "inpaint.sizes", {**image, "mode": "inpaint", "mask_image": "mask-48x40.png", "more": {**sizes, **positive}}
    yield "img2img.refiner", {**image, "model": "sdxl-refiner",
                              "more": {"negative_original_size": (24, 64), **crop, **positive, "negative_aesthetic_score": 1.5}}


def latents_of(pipe, case, images):
    """One picture after the other: of a batch diffusers' txt2img gives positive rows the negative sizes."""
    seeds = range(case["seed"], case["seed"] + case["batch"])
    return torch.cat([run(pipe[0], {**case, "seed": s, "batch": 1}, images, pipe[1])[0] for s in seeds])


def make(root):
    folder, pipes, latents, rows = fresh(root / "xl-negative"), {}, {}, []
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)
        shutil.copytree(root / "models/sdxl", work / "sdxl")
        restore_refiner(root, work)
        for name, facts in cases():
            case = {"name": name, **DEFAULTS, **facts}
            key = case["model"], case["mode"]
            if key not in pipes:
                pipes[key] = pipes_of(*key, work)
            latents[name] = latents_of(pipes[key], case, root / "pipelines")
            more = {k: v for k, v in case["more"].items() if "negative" not in k}
            plain = latents_of(pipes[key], {**case, "more": more}, root / "pipelines")
            change = torch.mean((plain - latents[name]) ** 2) / torch.mean(plain**2)
            assert torch.isfinite(latents[name]).all() and change > 1e-5, (name, change)
            rows.append(case)
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
