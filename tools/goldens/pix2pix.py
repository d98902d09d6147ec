"""tests/data/pix2pix: instruct-pix2pix models as differences from models/sd1 and models/sdxl, latents and pictures of whole jobs."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from diffusers import (StableDiffusionInstructPix2PixPipeline, StableDiffusionXLInstructPix2PixPipeline, UNet2DConditionModel)
from safetensors.torch import load_file

from .common import fresh, generator, write_json, write_tensors
from .models import load, teach_noise
from .pipelines import DEFAULTS, run

WEIGHTS = "unet/diffusion_pytorch_model.safetensors"
BASES = {"sd1-pix2pix": "sd1", "sdxl-pix2pix": "sdxl", "sdxl-cosxl": "sdxl"}  # the last is sdxl-pix2pix but for model_index.json
CLASSES = {"sd1": StableDiffusionInstructPix2PixPipeline, "sdxl": StableDiffusionXLInstructPix2PixPipeline}


def widen(net, seed):
    """The picture comes in by four more channels."""
    state = dict(net.state_dict())
    more = 0.2 * torch.randn(len(state["conv_in.weight"]), 4, 3, 3, generator=generator(seed))
    state["conv_in.weight"] = torch.cat([state["conv_in.weight"], more.half().float()], 1)
    config = {k: v for k, v in net.config.items() if k != "_name_or_path"}  # which would say where it was made
    wide = UNet2DConditionModel.from_config({**config, "in_channels": 8}).eval()
    wide.load_state_dict(state)
    teach_noise(wide, seed + 1, weak=True)
    return wide


def derive(base, root, folder, work):
    """The whole model in `work`, what differs from its base in `folder`."""
    kept = root / "models" / base
    shutil.copytree(kept, work)
    widen(load(kept, "unet"), 800).half().save_pretrained(work / "unet")
    index = json.loads((work / "model_index.json").read_text())
    index["_class_name"] = CLASSES[base].__name__
    (work / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    old, new = load_file(kept / WEIGHTS), load_file(work / WEIGHTS)
    assert old.keys() == new.keys()
    write_tensors(folder / "unet.safetensors", {k: v for k, v in new.items() if not torch.equal(old[k].reshape(-1), v.reshape(-1))})
    config = json.loads((kept / "unet/config.json").read_text())
    write_json(folder / "unet.json", {**config, "in_channels": 8})
    shutil.copy(folder / "unet.json", work / "unet/config.json")
    shutil.copy(work / "model_index.json", folder / "model_index.json")


def mark_cosxl(folder, work):
    index = json.loads((work / "model_index.json").read_text())
    (work / "model_index.json").write_text(json.dumps({**index, "is_cosxl_edit": True}, indent=2) + "\n")
    folder.mkdir(exist_ok=True)
    shutil.copy(work / "model_index.json", folder / "model_index.json")


def cases():
    base = {"mode": "txt2img", "init_image": "init-48x40.png", "steps": 4}
    one = {**base, "model": "sd1-pix2pix", "sampler": "euler", "cfg": 7.5}
    yield "sd1.euler", {**one, "pictures": True}
    yield "sd1.negative-batch2", {**one, "sampler": "euler_a", "negative": "text", "batch": 2, "more": {"image_guidance_scale": 1.2}}
    yield "sd1.image-1", {**one, "sampler": "ddim", "negative": "text", "more": {"image_guidance_scale": 1.0}}
    yield "sd1.image-below-1", {**one, "sampler": "ddim", "more": {"image_guidance_scale": 0.5}}
    yield "sd1.cfg-off", {**one, "cfg": 1.0, "more": {"image_guidance_scale": 2.0}}
    yield "sd1.karras", {**one, "sampler": "dpm++2m", "schedule": "karras", "more": {"image_guidance_scale": 2.5}}
    yield "sd1.heun", {**one, "sampler": "heun", "steps": 3}
    yield "sd1.old-scheduler", {**one, "sampler": "ddim", "scheduler": {"steps_offset": 0, "clip_sample": True}}
    yield "sd1.pndm", {**one, "sampler": "pndm", "seed": 7}
    xl = {**base, "model": "sdxl-pix2pix", "prompt": "a cat! in the snow!!", "sampler": "euler", "cfg": 4.0}
    yield "xl.euler", {**xl, "pictures": True}
    yield "xl.negative-batch2", {**xl, "negative": "text, blurry!", "batch": 2, "sampler": "dpm++2m", "more": {"image_guidance_scale": 1.2}}
    yield "xl.other-size", {**xl, "width": 40, "height": 56, "more": {"original_size": (96, 64), "crops_coords_top_left": (8, 16),
                                                                      "target_size": (48, 56)}}
    yield "xl.image-below-1", {**xl, "more": {"image_guidance_scale": 0.9}}
    yield "xl.cosxl", {**xl, "model": "sdxl-cosxl"}


def open_pipe(folder, base):
    parts = {"add_watermarker": False} if base == "sdxl" else {"safety_checker": None}
    pipe = CLASSES[base].from_pretrained(folder, dtype=torch.float32, **parts)
    pipe.set_progress_bar_config(disable=True)
    return pipe, dict(pipe.scheduler.config)


def make(root):
    folder, pipes, latents, pictures, rows = fresh(root / "pix2pix"), {}, {}, {}, []
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)
        for name in ("sd1-pix2pix", "sdxl-pix2pix"):
            derive(BASES[name], root, folder / name, work / name)
        shutil.copytree(work / "sdxl-pix2pix", work / "sdxl-cosxl")
        mark_cosxl(folder / "sdxl-cosxl", work / "sdxl-cosxl")
        for name, base in BASES.items():
            pipes[name] = open_pipe(work / name, base)
        for name, facts in cases():
            case = {"name": name, **DEFAULTS, **facts}
            pipe, config = pipes[case["model"]]
            latents[name], shown = run(pipe, case, root / "pipelines", {**config, **case.get("scheduler", {})})
            assert torch.isfinite(latents[name]).all() and shown.float().std() > 10, name
            if case.get("pictures"):
                pictures[name] = shown
            rows.append(case)
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
