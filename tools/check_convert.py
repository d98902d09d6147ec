"""What `tern convert` writes, read by diffusers and transformers: the same tensors, rounded as torch rounds them; whole pipelines that
paint the same; the tokenizer's files, which give the ids of tests/data/tokenizers.

usage (in the environment of tools/goldens-venv): tools/check_convert.py PATH/TO/tern"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

os.environ.update(HF_HUB_DISABLE_PROGRESS_BARS="1", HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", DIFFUSERS_VERBOSITY="error")

import numpy as np
import torch
from diffusers import AutoencoderKL, DiffusionPipeline, StableDiffusionPipeline, StableDiffusionXLPipeline, UNet2DConditionModel
from diffusers.loaders.single_file_utils import convert_open_clip_checkpoint
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, CLIPTextModel, CLIPTextModelWithProjection

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


def widen(folder):
    """CLIP's vocabulary and length: other models get no tokenizer."""
    for part in ("text_encoder", "text_encoder_2"):
        config, file = folder / part / "config.json", folder / part / "model.safetensors"
        if not config.exists():
            continue
        facts, state = json.loads(config.read_text()), load_file(file)
        for name, rows in (("token_embedding", 49408), ("position_embedding", 77)):
            key = next(k for k in state if k.endswith(f"embeddings.{name}.weight"))
            state[key] = torch.cat([state[key], state[key][:1].repeat(rows, 1)])[:rows].contiguous()
        state = {k: v for k, v in state.items() if not k.endswith("position_ids")}
        config.write_text(json.dumps({**facts, "vocab_size": 49408, "max_position_embeddings": 77}))
        save_file(state, file, {"format": "pt"})


def paint(pipe):
    """Latents of two steps."""
    pipe.set_progress_bar_config(disable=True)
    return pipe(prompt="a red boat", negative_prompt="text", num_inference_steps=2, width=64, height=64,
                generator=torch.Generator().manual_seed(1), output_type="latent").images


def pipeline_from_single(single, folder, what):
    """The whole model by from_single_file, without network: configurations and tokenizers are those of the folder that tern made of it."""
    xl = (folder / "text_encoder_2").exists()
    cls = StableDiffusionXLPipeline if xl else StableDiffusionPipeline
    given = {"torch_dtype": torch.float32, "local_files_only": True, **({} if xl else {"safety_checker": None})}
    expected = cls.from_pretrained(folder, **given)
    read = cls.from_single_file(single, config=str(folder), **given)
    read.scheduler = expected.scheduler.from_config(expected.scheduler.config)
    a, b = paint(read), paint(expected)
    assert torch.isfinite(a).all() and torch.equal(a, b), f"{what}: {(a - b).abs().max()}"
    print(f"{what}: {cls.__name__}.from_single_file paints what from_pretrained of the folder paints")


def unpack(path):
    data, at = zlib.decompress(path.read_bytes()), 4
    for _ in range(struct.unpack_from("<I", data)[0]):
        n, at = struct.unpack_from("<I", data, at)[0], at + 4
        yield n, at, data
        at += 0 if n == 0xFFFFFFFF else n if path.name == "texts.z" else 2 * n


def tokenizers_agree(folder, what):
    """Ids of 10,000 texts by the files that a folder got: those of CLIP's own files."""
    texts = [data[at:at + n].decode("utf-8") for n, at, data in unpack(DATA / "tokenizers/texts.z")]
    ids = [np.frombuffer(data, "<u2", n, at).tolist() for n, at, data in unpack(DATA / "tokenizers/clip.ids.z")]
    exclamation = [ids[i] if n == 0xFFFFFFFF else np.frombuffer(data, "<u2", n, at).tolist()
                   for i, (n, at, data) in enumerate(unpack(DATA / "tokenizers/clip-pad-exclamation.ids.z"))]
    for part in sorted(folder.glob("tokenizer*")):
        tokenizer = AutoTokenizer.from_pretrained(part, local_files_only=True)
        expected = ids if tokenizer.pad_token == "<|endoftext|>" else exclamation
        wrong = [t for t, row in zip(texts, expected) if tokenizer(t).input_ids != row]
        assert len(texts) == 10000 and not wrong, f"{what} {part.name}: {len(wrong)} texts, the first is {wrong[0]!r}"
        assert tokenizer.model_max_length == 77 and len(tokenizer) == 49408
        print(f"{what} {part.name}: {type(tokenizer).__name__}, {len(texts)} texts, pad token {tokenizer.pad_token}")


def main(tool):
    torch.set_grad_enabled(False)
    with tempfile.TemporaryDirectory() as tmp:
        tmp = Path(tmp)
        for model, source in (("mini", "formats/mini"), ("sd2", "models/sd2"), ("sdxl", "models/sdxl")):
            folder = tmp / model
            shutil.copytree(DATA / source, folder)
            widen(folder)
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
                pipeline_loads(back, f"{what} folder")
                if not name:
                    pipeline_from_single(single, back, what)
                    tokenizers_agree(back, what)
                tern(tool, folder, tmp / f"{model}-{name}-copy", "--folder", *option)
                check_folder(folder, tmp / f"{model}-{name}-copy", names, dtype, f"{what} copy")
                if model != "mini":
                    pipeline_loads(tmp / f"{model}-{name}-copy", f"{what} copy")


if __name__ == "__main__":
    main(sys.argv[1])
