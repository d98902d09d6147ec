"""What `tern convert` writes, read by diffusers and transformers: the same tensors, rounded as torch rounds them.

usage (in the environment of tools/goldens-venv): tools/check_convert.py PATH/TO/tern"""
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DiffusionPipeline, UNet2DConditionModel
from diffusers.loaders.single_file_utils import convert_open_clip_checkpoint
from safetensors.torch import load_file
from transformers import CLIPTextModel, CLIPTextModelWithProjection

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
DTYPES = {None: None, "f16": torch.float16, "bf16": torch.bfloat16}
CLASSES = {"unet": UNet2DConditionModel, "vae": AutoencoderKL}
OPEN_CLIP = {"sd2": ("text_encoder", CLIPTextModel, "cond_stage_model.model."),
             "sdxl": ("text_encoder_2", CLIPTextModelWithProjection, "conditioner.embedders.1.model.")}


def tern(tool, *args):
    subprocess.run([tool, "convert", "-q", *map(str, args)], check=True)


def same(a, b, dtype, what):
    assert a.keys() == b.keys(), f"{what}: {set(a) ^ set(b)}"
    for k in a:
        if a[k].is_floating_point():
            a[k] = a[k].to(dtype or torch.float32)
            b[k] = b[k] if dtype else b[k].float()
        assert a[k].dtype == b[k].dtype and torch.equal(a[k], b[k]), f"{what}: {k}"
    print(f"{what}: {len(a)} tensors")


def state(folder, name, dtype=None):
    cls = CLASSES.get(name) or (CLIPTextModelWithProjection if name == "text_encoder_2" else CLIPTextModel)
    return cls.from_pretrained(folder / name, torch_dtype=dtype or torch.float32).state_dict()


def check_single(model, folder, single, dtype, what):
    for name, cls in CLASSES.items():
        read = cls.from_single_file(single, config=str(folder), subfolder=name, torch_dtype=dtype, local_files_only=True)
        same(state(folder, name), read.state_dict(), dtype, f"{what} {name}")
    if model not in OPEN_CLIP:
        return
    name, cls, prefix = OPEN_CLIP[model]
    encoder = cls(cls.config_class.from_pretrained(folder / name)).to(dtype or torch.float32)
    read = convert_open_clip_checkpoint(encoder, load_file(single), prefix=prefix)
    expected = state(folder, name)
    short = {k.removeprefix("text_model."): v for k, v in read.items() if "position_ids" not in k}
    short = {k: v for k, v in short.items() if k in {e.removeprefix("text_model.") for e in expected}}
    same({k.removeprefix("text_model."): v for k, v in expected.items() if "position_ids" not in k}, short, dtype, f"{what} {name}")


def check_folder(source, folder, names, dtype, what):
    for name in names:
        kinds = [{v.dtype for f in (d / name).glob("*.safetensors") for v in load_file(f).values() if v.is_floating_point()}
                 for d in (source, folder)]
        assert kinds[1] == ({dtype} if dtype else kinds[0]), f"{what} {name}: {kinds}"
        same(state(source, name), state(folder, name, dtype), dtype, f"{what} {name}")


def pipeline_loads(folder, what):
    pipe = DiffusionPipeline.from_pretrained(folder, safety_checker=None, local_files_only=True)
    print(f"{what}: {type(pipe).__name__} with {sorted(k for k, v in pipe.components.items() if v is not None)}")


def main(tool):
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        for model, source in (("mini", "formats/mini"), ("sd2", "models/sd2"), ("sdxl", "models/sdxl")):
            folder = tmp / model
            shutil.copytree(DATA / source, folder)
            if model != "mini":  # the heads that a reader takes single files of such widths to have
                for part, key in (("unet", "attention_head_dim"), ("text_encoder", "num_attention_heads"), ("text_encoder_2", "num_attention_heads")):
                    path = folder / part / "config.json"
                    if path.exists():
                        path.write_text(json.dumps({**json.loads(path.read_text()), key: 1}))
            names = [n for n in ("unet", "vae", "text_encoder", "text_encoder_2") if (folder / n).exists()]
            for name, dtype in DTYPES.items():
                option = ["--dtype", name] if name else []
                what, single, back = f"{model} {name or 'as it is'}", tmp / f"{model}-{name}.safetensors", tmp / f"{model}-{name}"
                tern(tool, folder, single, *option)
                check_single(model, folder, single, dtype, f"{what} single")
                tern(tool, single, back)
                check_folder(folder, back, names, dtype, f"{what} folder")
                tern(tool, folder, tmp / f"{model}-{name}-copy", "--folder", *option)
                check_folder(folder, tmp / f"{model}-{name}-copy", names, dtype, f"{what} copy")
                if model != "mini":
                    pipeline_loads(tmp / f"{model}-{name}-copy", f"{what} copy")


if __name__ == "__main__":
    main(sys.argv[1])
