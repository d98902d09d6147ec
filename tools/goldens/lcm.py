"""tests/data/lcm: a latent consistency model, whose UNet is told the guidance scale, as a difference from models/sd1; one forward of it and
latents and pictures of whole jobs."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from diffusers import LatentConsistencyModelPipeline, LCMScheduler, UNet2DConditionModel

from .common import fresh, generator, write_json, write_tensors
from .models import load
from .pipelines import DEFAULTS, pipeline, run

WIDTH = 12


def told(net):
    config = {k: v for k, v in net.config.items() if not k.startswith("_")}
    out = UNet2DConditionModel.from_config({**config, "time_cond_proj_dim": WIDTH}).eval()
    state = dict(net.state_dict())
    state["time_embedding.cond_proj.weight"] = (0.5 * torch.randn(net.config.block_out_channels[0], WIDTH, generator=generator(900))).half().float()
    out.load_state_dict(state)
    return out


def derive(root, folder, work):
    kept = root / "models/sd1"
    shutil.copytree(kept, work)
    net = told(load(kept, "unet"))
    net.half().save_pretrained(work / "unet")
    index = json.loads((work / "model_index.json").read_text())
    (work / "model_index.json").write_text(json.dumps({**index, "_class_name": "LatentConsistencyModelPipeline"}, indent=2) + "\n")
    config = json.loads((kept / "unet/config.json").read_text())
    write_json(folder / "unet.json", {**config, "time_cond_proj_dim": WIDTH})
    shutil.copy(folder / "unet.json", work / "unet/config.json")
    shutil.copy(work / "model_index.json", folder / "model_index.json")
    write_tensors(folder / "unet.safetensors", {"time_embedding.cond_proj.weight": net.state_dict()["time_embedding.cond_proj.weight"].half()})


def cases():
    base = {"model": "sd1-lcm", "mode": "txt2img", "sampler": "lcm", "steps": 4, "cfg": 8.5, "width": 48, "height": 40}
    yield "lcm", {**base, "pictures": True}
    yield "batch2", {**base, "batch": 2, "cfg": 3.0}
    yield "cfg-1", {**base, "cfg": 1.0}
    yield "img2img", {**base, "mode": "img2img", "init_image": "init-48x40.png", "strength": 0.5, "steps": 6, "pictures": True}
    yield "ddim", {**base, "sampler": "ddim", "steps": 5, "negative": "text"}


def make(root):
    folder, latents, pictures, rows = fresh(root / "lcm"), {}, {}, []
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp) / "sd1-lcm"
        (folder / "sd1-lcm").mkdir(exist_ok=True)
        derive(root, folder / "sd1-lcm", work)
        pipes = {mode: pipeline(mode, work) for mode in ("txt2img", "img2img")}
        config = dict(pipes["txt2img"].scheduler.config)
        for name, facts in cases():
            case = {"name": name, **DEFAULTS, **facts}
            latents[name], shown = run(pipes[case["mode"]], case, root / "pipelines", config)
            assert torch.isfinite(latents[name]).all() and shown.float().std() > 10, name
            if case.get("pictures"):
                pictures[name] = shown
            rows.append(case)
        with torch.no_grad():
            pipe = pipes["txt2img"]
            x = {"sample": torch.randn(2, 4, 6, 5, generator=generator(901)), "timestep": torch.tensor([801, 3]),
                 "encoder_hidden_states": torch.randn(2, 7, pipe.unet.config.cross_attention_dim, generator=generator(902)),
                 "timestep_cond": torch.randn(2, WIDTH, generator=generator(903))}
            with_it = pipe.unet(**x).sample
            without = pipe.unet(**{k: v for k, v in x.items() if k != "timestep_cond"}).sample
            pipe.scheduler = LCMScheduler.from_config(config)
            lcm = LatentConsistencyModelPipeline(**{**pipe.components, "requires_safety_checker": False})
            lcm.set_progress_bar_config(disable=True)
            # the pipeline of such models paints what the plain one does
            first = next(r for r in rows if r["name"] == "lcm")
            other = lcm(first["prompt"], width=48, height=40, num_inference_steps=4, guidance_scale=8.5, output_type="latent",
                        generator=torch.Generator().manual_seed(first["seed"])).images
            assert torch.allclose(other, latents["lcm"].reshape(other.shape), atol=1e-5), (other - latents["lcm"]).abs().max()
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
    write_tensors(folder / "unet.safetensors", {**x, "out": with_it, "out.untold": without})
