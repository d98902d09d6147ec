"""diffusers names -> names of the original (LDM) checkpoints, for any number of blocks and layers."""
import re

import torch

RESNET = {"norm1": "in_layers.0", "conv1": "in_layers.2", "norm2": "out_layers.0", "conv2": "out_layers.3",
          "time_emb_proj": "emb_layers.1", "conv_shortcut": "skip_connection"}
TOP = {"time_embedding.linear_1": "time_embed.0", "time_embedding.linear_2": "time_embed.2",
       "conv_in": "input_blocks.0.0", "conv_norm_out": "out.0", "conv_out": "out.2"}


def unet_name(name, layers, has_attention):
    """has_attention: for each up block. A block of `layers` resnets takes layers + 1 places on each side."""
    module, leaf = name.rsplit(".", 1)
    if module in TOP:
        return f"{TOP[module]}.{leaf}"
    side, rest = name.split(".", 1)
    if side == "mid_block":
        kind, index, rest = rest.split(".", 2)
        place = f"middle_block.{2 * int(index) if kind == 'resnets' else 2 * int(index) + 1}"
    else:
        block, kind, index, rest = rest.split(".", 3)
        block, index = int(block), int(index)
        if side == "down_blocks":
            at = 1 + block * (layers + 1)
            if kind == "downsamplers":
                return f"input_blocks.{at + layers}.0.{rest.replace('conv', 'op')}"
            place = f"input_blocks.{at + index}"
        else:
            at = block * (layers + 1)
            if kind == "upsamplers":
                return f"output_blocks.{at + layers}.{2 if has_attention[block] else 1}.{rest}"
            place = f"output_blocks.{at + index}"
        place += ".0" if kind == "resnets" else ".1"
    if kind == "resnets":
        part, rest = rest.split(".", 1)
        rest = f"{RESNET[part]}.{rest}"
    return f"{place}.{rest}"


def unet_tensors(tensors, layers):
    blocks = 1 + max(int(k.split(".")[1]) for k in tensors if k.startswith("up_blocks."))
    attention = [any(k.startswith(f"up_blocks.{b}.attentions.") for k in tensors) for b in range(blocks)]
    return {unet_name(k, layers, attention): v for k, v in tensors.items()}


VAE_RULES = (
    (r"^(en|de)coder\.(down|up)_blocks\.(\d+)\.resnets\.(\d+)", r"\1coder.\2.\3.block.\4"),
    (r"^encoder\.down_blocks\.(\d+)\.downsamplers\.0", r"encoder.down.\1.downsample"),
    (r"^decoder\.up_blocks\.(\d+)\.upsamplers\.0", r"decoder.up.\1.upsample"),
    (r"mid_block\.resnets\.0", "mid.block_1"), (r"mid_block\.resnets\.1", "mid.block_2"),
    (r"mid_block\.attentions\.0", "mid.attn_1"), (r"conv_norm_out", "norm_out"), (r"conv_shortcut", "nin_shortcut"),
    (r"attn_1\.group_norm", "attn_1.norm"), (r"attn_1\.to_([qkv])\.", r"attn_1.\1."),
    (r"attn_1\.to_out\.0", "attn_1.proj_out"),
)


def vae_tensors(tensors):
    """The decoder counts its levels from the other end; attention matrices are 1x1 convolutions."""
    levels = 1 + max(int(k.split(".")[2]) for k in tensors if k.startswith("decoder.up_blocks."))
    out = {}
    for name, value in tensors.items():
        for old, new in VAE_RULES:
            name = re.sub(old, new, name)
        name = re.sub(r"^decoder\.up\.(\d+)", lambda m: f"decoder.up.{levels - 1 - int(m[1])}", name)
        if ".attn_1." in name and value.ndim == 2:
            value = value[:, :, None, None]
        out[name] = value
    return out


def text_tensors(tensors):
    return {f"transformer.{k if k.startswith('text_model.') else f'text_model.{k}'}": v for k, v in tensors.items()}


OPEN_CLIP_LAYER = (("layer_norm1", "ln_1"), ("layer_norm2", "ln_2"), ("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj"),
                   ("self_attn.out_proj", "attn.out_proj"))
OPEN_CLIP_TOP = {"text_model.embeddings.token_embedding.weight": "token_embedding.weight",
                 "text_model.embeddings.position_embedding.weight": "positional_embedding",
                 "text_model.final_layer_norm.weight": "ln_final.weight",
                 "text_model.final_layer_norm.bias": "ln_final.bias"}


def open_clip_tensors(tensors):
    """A transformers text encoder (names with text_model.) under OpenCLIP's names: q, k and v in one matrix, the
    projection transposed."""
    out = {}
    for name, value in tensors.items():
        if name in OPEN_CLIP_TOP:
            out[OPEN_CLIP_TOP[name]] = value
        elif name == "text_projection.weight":
            out["text_projection"] = value.T
        elif ".self_attn.q_proj." in name:
            layer, leaf = name.split(".")[3], name.rsplit(".", 1)[1]
            three = [tensors[name.replace("q_proj", p)] for p in ("q_proj", "k_proj", "v_proj")]
            out[f"transformer.resblocks.{layer}.attn.in_proj_{leaf}"] = torch.cat(three)
        elif not any(p in name for p in (".k_proj.", ".v_proj.")):
            name = name.replace("text_model.encoder.layers.", "transformer.resblocks.")
            for new, old in OPEN_CLIP_LAYER:
                name = name.replace(new, old)
            out[name] = value
    return {k: v.contiguous() for k, v in {**out, "logit_scale": torch.tensor(4.6052)}.items()}


def whole(unet, layers, vae, text):
    """One state dict with the prefixes of Stable Diffusion 1.x checkpoints."""
    parts = {"model.diffusion_model.": unet_tensors(unet, layers), "first_stage_model.": vae_tensors(vae),
             "cond_stage_model.": text_tensors(text)}
    return {prefix + k: v.contiguous() for prefix, part in parts.items() for k, v in part.items()}
