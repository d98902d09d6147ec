"""tests/data/formats: one small model in every container; tests/data/components/sd1-mini: its goldens."""
import collections
import io
import os
import shutil

import torch
from diffusers.loaders.single_file_utils import convert_open_clip_checkpoint
from safetensors.torch import load_file, save_file

from .common import fresh, generator, write_json
from .components import write_cases
from .models import CROSS_DOWN, DOWN, build, old_vae_attention, unet, vae, write_model_index
from .schedulers import SD15
from .single_file import open_clip_tensors, vae_tensors, whole

# Widths for which the conventions of single files hold: 8 heads in the UNet, gcd(32, first width) groups in UNet and
# VAE (32 in every real model), width / 64 heads in CLIP, quick_gelu.
MINI = {
    "seed": 400, "max_length": 77, "scheduler": SD15,
    "unet": unet([CROSS_DOWN, DOWN], block_out_channels=[8, 16], layers_per_block=1, norm_num_groups=8,
                 attention_head_dim=8, cross_attention_dim=64, sample_size=8),
    "vae": vae([8, 8, 8], layers_per_block=1, norm_num_groups=8, sample_size=64),
    "text": dict(hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=1,
                 hidden_act="quick_gelu", projection_dim=64, bos_token_id=0, eos_token_id=2, pad_token_id=1),
}
VOCAB = 128
FILES = {"unet": "diffusion_pytorch_model", "vae": "diffusion_pytorch_model", "text_encoder": "model"}


class StorageKeys(str):
    """Numbers for the addresses that torch's old format uses as keys, so that a file is the same every time."""
    seen = {}

    def __new__(cls, value):
        return str.__new__(str, 94000000000000 + 64 * cls.seen.setdefault(value, len(cls.seen)))


def save_legacy(obj, path):
    buffer, StorageKeys.seen = io.BytesIO(), {}
    torch.serialization.str = StorageKeys
    try:
        torch.save(obj, buffer, _use_new_zipfile_serialization=False)
    finally:
        del torch.serialization.str
    path.write_bytes(buffer.getvalue())


def state(module):
    return collections.OrderedDict((k, v.clone()) for k, v in module.state_dict().items())


def save_folder(folder, parts, **how):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    write_model_index(folder, SD15)
    for name, module in parts.items():
        module.save_pretrained(folder / name, **{k: v for k, v in how.items() if k != "max_shard_size" or name == "unet"})
    for f in folder.rglob("*.safetensors"):
        f.chmod(0o644)


def save_bin_folder(folder, parts):
    """As older diffusers wrote it: pickles; the VAE's attention by its old names."""
    save_folder(folder, parts)
    for name in parts:
        (folder / name / f"{FILES[name]}.safetensors").unlink()
        tensors = state(parts[name])
        if name == "vae":
            tensors = collections.OrderedDict((old_vae_attention(k), v) for k, v in tensors.items())
        stem = "pytorch_model" if name == "text_encoder" else FILES[name]
        torch.save(tensors, folder / name / f"{stem}.bin")


def checkpoint(tensors):
    """What a training run leaves around the weights."""
    extra = {"betas": torch.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2, "model_ema.decay": torch.tensor(0.9999),
             "model_ema.num_updates": torch.tensor(12345, dtype=torch.int32)}
    return {"epoch": 3, "global_step": 470000, "pytorch-lightning_version": "1.4.2",
            "state_dict": collections.OrderedDict({**extra, **tensors}),
            "callbacks": {"ModelCheckpoint": {"monitor": "val/loss_simple_ema", "best_model_score": None,
                                              "best_model_path": "logs/checkpoints/last.ckpt", "current_score": 0.1375}},
            "optimizer_states": [], "lr_schedulers": [{"base_lrs": [1e-4], "last_epoch": 3, "verbose": False}],
            "hparams": ("ddpm", True, {"big": 2**70, "negative": -7, "none": None})}


def odd_tensors():
    """Every dtype, and the shapes and strides that a pickle can hold."""
    g = generator(9)
    base, f32 = torch.randn(6, 10, generator=g), torch.randn(3, 5, generator=g)
    return {
        "f32": f32, "f16": f32.half(), "bf16": f32.bfloat16(), "f64": f32.double(), "i64": torch.tensor([2**62, -1, 0]),
        "i32": torch.tensor([2**31 - 1, -2**31]), "i16": torch.tensor([32767, -32768], dtype=torch.int16),
        "i8": torch.tensor([127, -128], dtype=torch.int8), "u8": torch.tensor([0, 255], dtype=torch.uint8),
        "bool": torch.tensor([True, False, True]), "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4),
        "special": torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-45, 3.4028235e38]),
        "view.transposed": base.T, "view.slice": base[1:5:2, 3:9], "view.expanded": base[:1, :1].expand(4, 3),
        "view.shared": base, "parameter": torch.nn.Parameter(f32 * 2, requires_grad=True),
    }


class Foreign:
    """Pickles as a call of os.system: a reader has to refuse it by name."""

    def __reduce__(self):
        return os.system, ("echo this must never run",)


def write_odd(folder):
    tensors = odd_tensors()
    torch.save(tensors, folder / "odd.pt")
    save_legacy(tensors, folder / "odd-legacy.pt")
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, folder / "odd.safetensors",
              metadata={"note": "caf\u00e9 \U0001f408"})
    good = {"weight": torch.ones(2)}
    torch.save({"state_dict": good, "run": Foreign()}, folder / "foreign-global.ckpt")
    save_legacy({"state_dict": good, "run": Foreign()}, folder / "foreign-global-legacy.pt")
    write_json(folder / "odd.json", {k: {"shape": list(v.shape), "stride": list(v.stride()), "dtype": str(v.dtype)[6:]}
                                     for k, v in tensors.items()})


def write_open_clip(folder, model):
    """The text encoder of a folder as it lies in a file of Stable Diffusion 2: with the last layer, which is not used,
    and the projection. diffusers' own conversion has to give the folder's tensors back."""
    prefix, g = "cond_stage_model.model.", generator(77)
    text = load_file(model / "text_encoder/model.safetensors")
    layers = 1 + max(int(k.split(".")[3]) for k in text if ".layers." in k)
    last = {k.replace(f"layers.{layers - 1}.", f"layers.{layers}."): torch.randn(v.shape, generator=g).half()
            for k, v in text.items() if f".layers.{layers - 1}." in k}
    width = text["text_model.final_layer_norm.bias"].numel()
    last["text_projection.weight"] = torch.randn(width, width, generator=g).half()
    tensors = {prefix + k: v for k, v in open_clip_tensors({**text, **last}).items()}
    back = convert_open_clip_checkpoint(None, tensors, prefix)
    assert all(torch.equal(back[k], v) for k, v in text.items())
    save_file(tensors, folder / "sd2-text.safetensors", metadata={"format": "pt"})


def make(root):
    folder = fresh(root / "formats")
    parts = {k: m.half() for k, m in build(MINI, VOCAB).items()}
    save_folder(folder / "mini", parts)
    save_bin_folder(folder / "mini-bin", parts)
    save_folder(folder / "mini-sharded", parts, max_shard_size="40KB")
    save_folder(folder / "mini-fp16", parts, variant="fp16")
    write_cases(root / "components" / "sd1-mini", folder / "mini", 2000, most=1)

    states = {k: state(m) for k, m in parts.items()}
    tensors = whole(states["unet"], MINI["unet"]["layers_per_block"], states["vae"], states["text_encoder"])
    position = {"cond_stage_model.transformer.text_model.embeddings.position_ids": torch.arange(77)[None]}
    save_file({**tensors, **position}, folder / "mini.safetensors", metadata={"format": "pt"})
    torch.save(checkpoint({**tensors, **position}), folder / "mini.ckpt")
    f32 = {k: v.float().contiguous() for k, v in vae_tensors(states["vae"]).items()}
    save_legacy({"global_step": 840000, "state_dict": collections.OrderedDict(f32)}, folder / "mini-vae.pt")
    assert len(tensors) == sum(len(s) for s in states.values())
    write_odd(folder)
    write_open_clip(folder, root / "models" / "sd2")
    for f in folder.glob("*.safetensors"):
        f.chmod(0o644)
