"""tests/data/lora-models: LoRAs for other architectures than SD 1, the models sdxl and sd2, and what diffusers makes of them."""
import warnings

import torch
from diffusers import StableDiffusionPipeline, StableDiffusionXLPipeline
from diffusers.utils.logging import disable_progress_bar
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file

from .common import fresh, write_tensors
from .components import Draw, text_ids
from .lora import add, metadata, modules, nmse, without_alpha
from .models import added_conditions
from .single_file import unet_name

CLASSES = {"sdxl": StableDiffusionXLPipeline, "sd2": StableDiffusionPipeline}
BLOCKS = {"unet": {"down": {"block_1": 0.5}, "mid": 2.0, "up": {"block_0": [0.1, -1.0]}}, "text_encoder": 0.25, "text_encoder_2": 1.5}
UP_ATTENTION = {"sdxl": [True, False]}


def pipeline(root, model):
    disable_progress_bar()
    warnings.filterwarnings("ignore")
    return CLASSES[model].from_pretrained(root / "models" / model, torch_dtype=torch.float32)


def parts(pipe):
    return {name: net for name in ("unet", "text_encoder", "text_encoder_2") if (net := getattr(pipe, name, None)) is not None}


def add_all(pipe, model, blocks=False):
    """blocks: attention alone; diffusers' strengths by block do not take other layers."""
    unet = ["attn2.to_k", "attn1.to_out.0", "proj_in"]
    if model == "sdxl" and not blocks:
        unet += ["mid_block.resnets.0.conv1", "time_embedding.linear_1", "add_embedding.linear_1", "upsamplers.0.conv", "downsamplers.0.conv", "conv_in"]
    add(pipe.unet, "a", 31, r=2, lora_alpha=3, target_modules=unet)
    add(pipe.text_encoder, "a", 32, r=2, lora_alpha=3, target_modules=["q_proj", "fc1"])
    if model == "sdxl":
        add(pipe.text_encoder_2, "a", 33, r=2, lora_alpha=3, target_modules=["out_proj", "fc2"])


def kohya(pipe, model, ldm):
    """kohya's names; SDXL's UNet has the block numbers of LDM there."""
    prefixes = {"unet": "lora_unet_", "text_encoder": "lora_te1_" if model == "sdxl" else "lora_te_", "text_encoder_2": "lora_te2_"}
    out = {}
    for part, net in parts(pipe).items():
        for key, a, b, _, scaling in modules(net, "a", ""):
            if key.startswith("add_embedding.") and ldm:
                key = key.replace("add_embedding.linear_1", "label_emb.0.0")
            elif part == "unet" and ldm:
                key = unet_name(f"{key}.weight", net.config.layers_per_block, UP_ATTENTION[model]).removesuffix(".weight")
            elif part != "unet" and not key.startswith("text_model."):
                key = f"text_model.{key}"
            stem = prefixes[part] + key.replace(".", "_")
            out[f"{stem}.lora_down.weight"], out[f"{stem}.lora_up.weight"] = a.half(), b.half()
            out[f"{stem}.alpha"] = torch.tensor(scaling * len(a))
    return out


def save(pipe, model, folder, name):
    more = {}
    for part, net in parts(pipe).items():
        more[f"{part}_lora_layers"] = {k: v.half() for k, v in get_peft_model_state_dict(net, adapter_name="a").items()}
        more[f"{part}_lora_adapter_metadata"] = metadata(net)
    CLASSES[model].save_lora_weights(folder, weight_name=name, **more)
    (folder / name).chmod(0o644)


def inputs(pipe, part):
    net = getattr(pipe, part)
    if part != "unet":
        return {"input_ids": text_ids(net, Draw(78), 1, 9, [6])}
    d = Draw(77)
    ins = {"sample": d.normal(1, 4, 6, 4), "timestep": torch.tensor([731.0]), "encoder_hidden_states": d.normal(1, 5, net.config.cross_attention_dim)}
    return {**ins, **(added_conditions(net.config, 1, d.g) or {})}


def run(pipe):
    outs = {}
    for part, net in parts(pipe).items():
        ins = inputs(pipe, part)
        if part == "unet":
            plain = {k: ins[k] for k in ("sample", "timestep", "encoder_hidden_states")}
            added = {k: v for k, v in ins.items() if k not in plain}
            outs[part] = {"sample": net(**plain, added_cond_kwargs=added or None).sample}
            continue
        out = net(**ins, output_hidden_states=True)
        pooled = {"text_embeds": out.text_embeds} if hasattr(out, "text_embeds") else {"pooler_output": out.pooler_output}
        outs[part] = {"last_hidden_state": out.last_hidden_state, **pooled,
                      **{f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}}
    return outs


def write_case(pipe, folder, name, strengths):
    pipe.set_adapters(["a"], [strengths])
    for part, outs in run(pipe).items():
        write_tensors(folder / f"{part}.{name}.safetensors", {**inputs(pipe, part), **{f"expected.{k}": v for k, v in outs.items()}})


def make(root):
    folder = fresh(root / "lora-models")
    for model in CLASSES:
        pipe = pipeline(root, model)
        add_all(pipe, model)
        save(pipe, model, folder, f"{model}.safetensors")
        write_tensors(folder / f"{model}-kohya.safetensors", kohya(pipe, model, model in UP_ATTENTION))
        write_case(pipe, folder, f"{model}-0.7", 0.7)
        check_reading(root, folder, model)
    pipe = pipeline(root, "sdxl")
    add_all(pipe, "sdxl", blocks=True)
    save(pipe, "sdxl", folder, "sdxl-blocks.safetensors")
    write_case(pipe, folder, "sdxl-blocks", BLOCKS)


def check_reading(root, folder, model):
    """diffusers reads both files and gives the same outputs; not for CLIPTextModel, whose kohya names it confuses with transformers 5."""
    want = None
    for name in (f"{model}.safetensors", f"{model}-kohya.safetensors"):
        tensors = without_alpha(load_file(folder / name))
        pipe = pipeline(root, model)
        pipe.load_lora_weights({k: v for k, v in tensors.items() if not k.startswith(("lora_te1_", "lora_te_"))}, adapter_name="a")
        pipe.set_adapters(["a"], [0.7 * (1 if want else 1.5)])  # the first without its header: alpha 3, rank 2
        got = run(pipe)
        want = want or got
        for part, key in (("unet", "sample"), ("text_encoder_2", "text_embeds")):
            if part in got:
                assert nmse(got[part][key], want[part][key]) < 1e-9, (model, part, nmse(got[part][key], want[part][key]))
