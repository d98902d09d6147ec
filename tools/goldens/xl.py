"""tests/data/xl: what else there is of Stable Diffusion XL, as differences from models/sdxl: an inpainting UNet, a refiner,
schedulers of distilled models, a text encoder under the names of single files; whole pictures of each."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from diffusers import UNet2DConditionModel
from diffusers.loaders.single_file_utils import convert_open_clip_checkpoint
from safetensors.torch import load_file
from transformers import CLIPTextConfig

from .common import fresh, generator, write_json, write_tensors
from .components import UNET, Draw
from .models import SDXL, added_conditions, load, teach_noise, text_tensors
from .pipelines import DEFAULTS, pipeline, run
from .single_file import open_clip_tensors

# As stabilityai/sdxl-turbo and ByteDance/SDXL-Lightning say.
TURBO = {**SDXL, "_class_name": "EulerAncestralDiscreteScheduler", "timestep_spacing": "trailing"}
LIGHTNING = {**SDXL, "timestep_spacing": "trailing"}
REFINER = {"_class_name": "StableDiffusionXLImg2ImgPipeline", "force_zeros_for_empty_prompt": False,
           "requires_aesthetics_score": True, "text_encoder": [None, None], "tokenizer": [None, None]}
NUMBERS = {"sdxl-inpaint": 6, "sdxl-refiner": 5}  # that the UNet is told beside the pooled text


def inpaint_state(base, g):
    """Mask and masked picture come in by five more channels."""
    wide = dict(base)
    more = 0.15 * torch.randn(len(base["conv_in.weight"]), 5, 3, 3, generator=g)
    wide["conv_in.weight"] = torch.cat([base["conv_in.weight"], more.half().float()], 1)
    return {"in_channels": 9}, wide


def refiner_state(base, config):
    """The second text encoder alone, and five numbers: the columns of the others go."""
    narrow, width = dict(base), 24
    pooled = config.projection_class_embeddings_input_dim - config.addition_time_embed_dim
    for name, value in base.items():
        if ".attn2.to_k." in name or ".attn2.to_v." in name:
            narrow[name] = value[:, -width:]
    narrow["add_embedding.linear_1.weight"] = base["add_embedding.linear_1.weight"][:, :pooled]
    return {"cross_attention_dim": width, "projection_class_embeddings_input_dim": pooled}, narrow


def derive(name, root, folder, work):
    """The whole model in `work`, what differs from sdxl in `folder`."""
    base = load(root / "models/sdxl", "unet")
    state = base.state_dict()
    changes, state = inpaint_state(state, generator(610)) if name == "sdxl-inpaint" else refiner_state(state, base.config)
    kept = {k: v for k, v in base.config.items() if k != "_name_or_path"}  # which would say where they were made
    net = UNet2DConditionModel.from_config({**kept, **changes}).eval()
    net.load_state_dict(state)
    teach_noise(net, 611, NUMBERS[name], weak=True)
    shutil.copytree(root / "models/sdxl", work / name)
    net.half().save_pretrained(work / name / "unet")
    index = json.loads((work / name / "model_index.json").read_text())
    if name == "sdxl-refiner":
        index.update(REFINER)
        for part in ("text_encoder", "tokenizer"):
            shutil.rmtree(work / name / part)
    else:
        index["_class_name"] = "StableDiffusionXLInpaintPipeline"
    (work / name / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    old = load_file(root / "models/sdxl/unet/diffusion_pytorch_model.safetensors")
    new = load_file(work / name / "unet/diffusion_pytorch_model.safetensors")
    differ = {k: v for k, v in new.items() if old[k].shape != v.shape or not torch.equal(old[k], v)}
    assert old.keys() == new.keys()
    write_tensors(folder / name / "unet.safetensors", differ)
    shutil.copy(work / name / "unet/config.json", folder / name / "unet.json")
    shutil.copy(work / name / "model_index.json", folder / name / "model_index.json")


def write_unet_cases(name, folder, work):
    net, draw = load(work / name, "unet"), Draw(2600)
    c = net.config
    for case in ("square", "odd-13x9"):
        n, h, w, length, times = UNET[case]
        ins = {"sample": draw.normal(n, c.in_channels, h, w), "timestep": torch.tensor(times),
               "encoder_hidden_states": draw.normal(n, length, c.cross_attention_dim)}
        added = added_conditions(c, n, draw.g, NUMBERS[name])
        out = net(**ins, added_cond_kwargs=added).sample
        write_tensors(folder / name / f"components/unet.{case}.safetensors", {**ins, **added, "expected.sample": out})


def write_open_clip(root, folder):
    """diffusers' own conversion has to give the folder's tensors back."""
    prefix, path = "conditioner.embedders.1.model.", root / "models/sdxl/text_encoder_2"
    text = text_tensors(path / "model.safetensors", 0, False)
    text["text_projection.weight"] = text.pop("text_model.text_projection.weight")
    tensors = {prefix + k: v for k, v in open_clip_tensors(text).items()}
    width = CLIPTextConfig.from_pretrained(path).hidden_size
    back = convert_open_clip_checkpoint(None, {k: v for k, v in tensors.items() if "in_proj" not in k}, prefix)
    for name, value in back.items():
        assert torch.equal(text[name], value), name
    for name, value in tensors.items():  # diffusers splits by the projection's width, which here is another
        if "in_proj" in name:
            layer, leaf = name.split(".")[6], name.rsplit("_", 1)[1]
            for part, rows in zip("qkv", value.split(width)):
                assert torch.equal(text[f"text_model.encoder.layers.{layer}.self_attn.{part}_proj.{leaf}"], rows), name
    write_tensors(folder / "text-2.safetensors", tensors)


def cases():
    base = {"prompt": "a cat! in the snow!!", "width": 40, "sampler": "euler", "cfg": 4.0, "steps": 4}
    text = {**base, "mode": "txt2img", "model": "sdxl"}
    sizes = {"original_size": (96, 64), "crops_coords_top_left": (8, 16), "target_size": (48, 56)}
    yield "txt2img.sdxl.sizes", {**text, "more": sizes}
    masked = {**base, "mode": "inpaint", "init_image": "init-48x40.png", "mask_image": "mask-48x40.png", "width": 48}
    for model in ("sdxl", "sdxl-inpaint"):
        yield f"inpaint.{model}.euler", {**masked, "model": model, "strength": 1.0}
        yield f"inpaint.{model}.strength-0.6-batch2", {**masked, "model": model, "strength": 0.6, "sampler": "euler_a", "batch": 2}
        yield f"inpaint.{model}.cfg-off", {**masked, "model": model, "strength": 0.8, "cfg": 1.0, "sampler": "ddim"}
    image = {**base, "mode": "img2img", "model": "sdxl-refiner", "init_image": "init-48x40.png", "strength": 0.5, "width": 48, "steps": 6}
    yield "img2img.sdxl-refiner.euler", image
    yield "img2img.sdxl-refiner.negative", {**image, "negative": "text, blurry!", "strength": 0.3, "steps": 7}
    yield "img2img.sdxl-refiner.cfg-off", {**image, "cfg": 1.0, "sampler": "dpm++2m"}
    yield "img2img.sdxl-refiner.scores", {**image, "more": {"aesthetic_score": 7.5, "negative_aesthetic_score": 1.25,
                                                            "original_size": (96, 64), "crops_coords_top_left": (8, 16)}}
    fast = {**text, "sampler": "default", "cfg": 0.0}
    yield "txt2img.sdxl-turbo.1-step", {**fast, "model": "sdxl-turbo", "steps": 1}
    yield "txt2img.sdxl-turbo.2-steps", {**fast, "model": "sdxl-turbo", "steps": 2}
    yield "img2img.sdxl-turbo.2-steps", {**fast, "model": "sdxl-turbo", "steps": 2, "mode": "img2img", "strength": 0.5,
                                         "init_image": "init-48x40.png", "width": 48}
    yield "txt2img.sdxl-lightning.4-steps", {**fast, "model": "sdxl-lightning"}
    for sampler in ("euler", "dpm++2m"):
        stages = {"mode": "txt2img", "steps": 6, "width": 48, "sampler": sampler}
        yield f"stages.{sampler}.base", {**text, **stages, "more": {"denoising_end": 0.6}}
        yield f"stages.{sampler}.refiner", {**text, **stages, "mode": "img2img", "model": "sdxl-refiner", "strength": 0.3,
                                            "latents": f"stages.{sampler}.base", "more": {"denoising_start": 0.6}}
    for sampler in ("euler", "euler_a"):
        both = {**masked, "steps": 6, "sampler": sampler, "strength": 1.0}
        yield f"stages.inpaint.{sampler}.base", {**both, "model": "sdxl", "more": {"denoising_end": 0.6}}
        yield f"stages.inpaint.{sampler}.refiner", {**both, "model": "sdxl-refiner", "latents": f"stages.inpaint.{sampler}.base",
                                                    "encoded": True, "more": {"denoising_start": 0.6}}


def pipes_of(name, mode, work):
    folder = work / name
    more = {"text_encoder": None, "tokenizer": None, "requires_aesthetics_score": True,
            "force_zeros_for_empty_prompt": False} if name == "sdxl-refiner" else {}
    pipe = pipeline(mode, folder, **more)
    return pipe, dict(pipe.scheduler.config)


def make(root):
    folder, images = fresh(root / "xl"), root / "pipelines"
    write_open_clip(root, folder)
    pipes, latents, pictures, rows = {}, {}, {}, []
    with tempfile.TemporaryDirectory() as tmp:
        work = Path(tmp)
        shutil.copytree(root / "models/sdxl", work / "sdxl")
        for name in NUMBERS:
            derive(name, root, folder, work)
            write_unet_cases(name, folder, work)
        for name, scheduler in (("sdxl-turbo", TURBO), ("sdxl-lightning", LIGHTNING)):
            shutil.copytree(root / "models/sdxl", work / name)
            write_json(folder / name / "scheduler_config.json", scheduler)
            shutil.copy(folder / name / "scheduler_config.json", work / name / "scheduler/scheduler_config.json")
            index = json.loads((work / name / "model_index.json").read_text())
            index["scheduler"][1] = scheduler["_class_name"]
            (work / name / "model_index.json").write_text(json.dumps(index))
        for name, facts in cases():
            case = {"name": name, **DEFAULTS, **facts}
            key = case["model"], case["mode"]
            if key not in pipes:
                pipes[key] = pipes_of(*key, work)
            if "latents" in case:
                case["more"] = {**case["more"], "image": latents[case["latents"]]}
            got = run(pipes[key][0], case, images, pipes[key][1])
            assert torch.isfinite(got[0]).all() and got[1].float().std() > 10, name
            latents[name], pictures[name] = got
            case.get("more", {}).pop("image", None)
            rows.append(case)
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
