"""tests/data/lora: LoRA files in the forms that are in use, for the model sd1, and what diffusers makes of them."""
import logging
import warnings

import torch
from diffusers import StableDiffusionPipeline
from diffusers.utils.logging import disable_progress_bar
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from safetensors.torch import load_file

from .common import fresh, generator, write_tensors
from .components import Draw, text_ids

ATTENTION = ["attn1.to_q", "attn1.to_out.0", "attn2.to_k", "attn2.to_v"]
# Every kind of layer that LoCon changes; proj_in and proj_out are 1x1 convolutions here.
CONV = ["conv_in", "conv_out", "conv1", "conv2", "conv_shortcut", "time_emb_proj", "downsamplers.0.conv", "upsamplers.0.conv",
        "proj_in", "proj_out", "linear_1"]
BLOCKS = {"unet": {"down": 0.5, "mid": 0.0, "up": {"block_1": [0.1, 2.0, -1.0], "block_2": 1.5}}, "text_encoder": 0.25}
# case -> {adapter: scale}; the table of tests/test_lora.c
CASES = {"a-0.7": {"a": 0.7}, "a-negative": {"a": -1.5}, "conv-1": {"conv": 1.0}, "a-and-conv": {"a": 0.6, "conv": 0.9},
         "a-blocks": {"a": BLOCKS}}
WITH_TEXT = ("a-0.7", "a-negative", "a-blocks")


def pipeline(root):
    logging.disable(logging.WARNING)
    disable_progress_bar()
    warnings.filterwarnings("ignore")
    return StableDiffusionPipeline.from_pretrained(root / "models" / "sd1", torch_dtype=torch.float32, safety_checker=None)


def add(net, name, seed, **config):
    """An adapter with lively matrices that are exact in f16."""
    net.add_adapter(LoraConfig(init_lora_weights=False, **config), name)
    g = generator(seed)
    for key, p in net.named_parameters():
        if f".lora_A.{name}" in key:
            p.copy_((torch.randn(p.shape, generator=g) / p[0].numel() ** 0.5).half())
        elif f".lora_B.{name}" in key:
            p.copy_((0.4 * torch.randn(p.shape, generator=g)).half())


def add_a(pipe):
    add(pipe.unet, "a", 1, r=2, lora_alpha=3, target_modules=[*ATTENTION, "ff.net.2"],
        alpha_pattern={"attn2.to_k": 5, "^up_blocks.1.attentions.0.transformer_blocks.0.attn1.to_q": 1})
    add(pipe.text_encoder, "a", 2, r=3, lora_alpha=2, target_modules=["q_proj", "out_proj", "fc1"],
        use_rslora=True)


def add_conv(pipe):
    add(pipe.unet, "conv", 3, r=2, lora_alpha=1, target_modules=CONV)


def modules(net, name, prefix):
    """[(module, A, B, alpha, scaling)] of an adapter."""
    for key, m in net.named_modules():
        if name in getattr(m, "lora_A", {}):
            yield prefix + key, m.lora_A[name].weight, m.lora_B[name].weight, float(m.lora_alpha[name]), m.scaling[name]


def all_modules(pipe, name):
    text = "" if hasattr(pipe.text_encoder, "text_model") else "text_model."
    for key, a, b, alpha, scaling in [*modules(pipe.unet, name, "unet."),
                                      *modules(pipe.text_encoder, name, f"text_encoder.{text}")]:
        yield key, a, b, alpha, scaling


def kohya(pipe, name):
    """As kohya's scripts write it: underscores, an alpha for each module such that alpha / rank is PEFT's scaling."""
    out = {}
    for key, a, b, _, scaling in all_modules(pipe, name):
        part, module = key.split(".", 1)
        stem = f"lora_{'unet' if part == 'unet' else 'te'}_{module.replace('.', '_')}"
        out[f"{stem}.lora_down.weight"], out[f"{stem}.lora_up.weight"] = a.half(), b.half()
        out[f"{stem}.alpha"] = torch.tensor(scaling * len(a), dtype=torch.float32)
    return out


def ldm_name(name, layers=2, levels=3):
    """lora_unet_… with the block numbers of the LDM code, as some tools write it."""
    words = name.split("_")
    if words[2] == "mid":
        return name.replace("mid_block_attentions_0", "middle_block_1").replace("mid_block_resnets_0", "middle_block_0")
    if words[1] != "unet" or words[3] != "blocks":
        return name
    block, layer, rest = int(words[4]), int(words[6]), "_".join(words[7:])
    number = 1 + block * (layers + 1) + layer if words[2] == "down" else block * (layers + 1) + layer
    return f"lora_unet_{'input' if words[2] == 'down' else 'output'}_blocks_{number}_1_{rest}"


def old(pipe, name):
    """As diffusers wrote it before PEFT: attention processors, and no alpha."""
    out = {}
    for key, a, b, _, scaling in all_modules(pipe, name):
        stem, last = key.rsplit(".", 1)
        if ".attn" in key:
            stem, last = (stem[:-len(".to_out")], "to_out") if key.endswith("to_out.0") else (stem, last)
            begin = f"{stem}.processor.{last}_lora"
        elif ".self_attn" in key:
            begin = f"{stem}.to_{last.removesuffix('_proj')}_lora"
        elif ".mlp" in key:
            begin = f"{key}.lora_linear_layer"
        else:
            begin = f"{key}.lora"
        out[f"{begin}.down.weight"], out[f"{begin}.up.weight"] = a.clone(), b * scaling
    return out


def mid(net, seed):
    """LoCon with a factor between (lora_mid), and the differences of the weights that it stands for."""
    g, out, deltas = generator(seed), {}, {}
    for key in ("down_blocks.0.resnets.1.conv1", "mid_block.resnets.0.conv2", "up_blocks.2.resnets.0.conv1"):
        w = net.get_submodule(key).weight
        r, q, stem = 2, 3, "lora_unet_" + key.replace(".", "_")
        down = (torch.randn(q, w.shape[1], 1, 1, generator=g) / w.shape[1] ** 0.5).half()
        core, up = (torch.randn(r, q, 3, 3, generator=g) / 5).half(), (torch.randn(len(w), r, 1, 1, generator=g) / 2).half()
        out |= {f"{stem}.lora_down.weight": down, f"{stem}.lora_mid.weight": core, f"{stem}.lora_up.weight": up,
                f"{stem}.alpha": torch.tensor(6.0)}
        factors = [t.double() for t in (up[:, :, 0, 0], core, down[:, :, 0, 0])]
        deltas[key] = 6.0 / q * torch.einsum("op,pqkl,qi->oikl", *factors)
    return out, deltas


def unet_inputs():
    d = Draw(77)
    return {"sample": d.normal(2, 4, 9, 6), "timestep": torch.tensor([731.0]), "encoder_hidden_states": d.normal(2, 11, 40)}


def text_inputs(net):
    return {"input_ids": text_ids(net, Draw(78), 1, 9, [6])}


def run(pipe):
    out = pipe.text_encoder(**text_inputs(pipe.text_encoder), output_hidden_states=True)
    text = {"last_hidden_state": out.last_hidden_state, "pooler_output": out.pooler_output,
            **{f"hidden_states.{i}": h for i, h in enumerate(out.hidden_states)}}
    return {"unet": {"sample": pipe.unet(**unet_inputs()).sample}, "text_encoder": text}


def write_case(folder, name, parts, text_encoder):
    for part, outs in parts.items():
        ins = unet_inputs() if part == "unet" else text_inputs(text_encoder)
        write_tensors(folder / f"{part}.{name}.safetensors", {**ins, **{f"expected.{k}": v for k, v in outs.items()}})


def nmse(a, b):
    return float(((a - b) ** 2).sum() / (b**2).sum())


def without_alpha(tensors):
    """The same with alpha = rank everywhere: diffusers 0.42 takes kohya's alphas only when all are equal."""
    out = {k: v.float() for k, v in tensors.items()}
    for k in [k for k in out if k.endswith(".alpha")]:
        stem = k.removesuffix(".alpha")
        out[f"{stem}.lora_up.weight"] *= out.pop(k) / len(out[f"{stem}.lora_down.weight"])
    return out


def check_forms(root, folder, want):
    """diffusers itself reads each form (but not LDM's block numbers), and gives the same outputs."""
    as_kohya = without_alpha(load_file(folder / "a-kohya.safetensors"))
    for what in ("a.safetensors", "a-old.bin", as_kohya):
        pipe, name = pipeline(root), what if isinstance(what, str) else "kohya"
        more = {"weight_name": what, "use_safetensors": what.endswith("safetensors")} if isinstance(what, str) else {}
        pipe.load_lora_weights(folder if more else what, adapter_name="x", **more)
        pipe.set_adapters(["x"], [0.7])
        got = run(pipe)
        for part, key in (("unet", "sample"), ("text_encoder", "last_hidden_state")):
            assert nmse(got[part][key], want[part][key]) < 1e-9, (name, part, nmse(got[part][key], want[part][key]))


def save_peft(pipe, folder):
    def state(net):
        return {k: v.half() for k, v in get_peft_model_state_dict(net, adapter_name="a").items()}

    StableDiffusionPipeline.save_lora_weights(
        folder, state(pipe.unet), state(pipe.text_encoder), weight_name="a.safetensors",
        unet_lora_adapter_metadata=metadata(pipe.unet), text_encoder_lora_adapter_metadata=metadata(pipe.text_encoder))
    (folder / "a.safetensors").chmod(0o644)


def metadata(net):
    """What counts of the LoraConfig, as diffusers keeps it."""
    config = net.peft_config["a"].to_dict()
    keys = ("peft_type", "r", "lora_alpha", "rank_pattern", "alpha_pattern", "bias", "use_rslora", "use_dora")
    return {k: config[k] for k in keys} | {"target_modules": sorted(config["target_modules"])}


def merged(pipe, scale):
    """Every matrix with its change, rounded to f16, as it is in a model of f16."""
    weights = dict(pipe.unet.named_parameters(prefix="unet")) | dict(pipe.text_encoder.named_parameters(prefix="text_encoder"))
    out = {}
    for key, a, b, _, scaling in all_modules(pipe, "a"):
        key = key if f"{key}.base_layer.weight" in weights else key.replace(".text_model.", ".")
        w = weights[f"{key}.base_layer.weight"]
        out[f"{key}.weight"] = (w.double() + scale * scaling * (b.double() @ a.double())).half().float()
    return out


def run_merged(root, weights):
    pipe = pipeline(root)
    for key, w in weights.items():
        part, name = key.split(".", 1)
        getattr(pipe, part).get_parameter(name).copy_(w)
    return run(pipe)


def make(root):
    folder = fresh(root / "lora")
    pipe = pipeline(root)
    add_a(pipe)
    save_peft(pipe, folder)
    add_conv(pipe)
    write_case(folder, "a-0.7-f16", run_merged(root, merged(pipe, 0.7)), pipe.text_encoder)  # before scales are set
    as_kohya = kohya(pipe, "a")
    write_tensors(folder / "a-kohya.safetensors", as_kohya)
    write_tensors(folder / "a-ldm.safetensors", {f"{ldm_name(k.split('.')[0])}.{k.split('.', 1)[1]}": v for k, v in as_kohya.items()})
    write_tensors(folder / "conv.safetensors", kohya(pipe, "conv"))
    torch.save(old(pipe, "a"), folder / "a-old.bin")
    outs = {}
    for name, adapters in CASES.items():
        if adapters == {"a": BLOCKS}:  # diffusers has no block for conv_in of the other one
            pipe = pipeline(root)
            add_a(pipe)
        pipe.set_adapters(list(adapters), list(adapters.values()))
        outs[name] = run(pipe)
        write_case(folder, name, {p: o for p, o in outs[name].items() if p == "unet" or name in WITH_TEXT}, pipe.text_encoder)
    check_forms(root, folder, outs["a-0.7"])
    plain = pipeline(root)
    tensors, deltas = mid(plain.unet, 4)
    write_tensors(folder / "mid.safetensors", tensors)
    for key, delta in deltas.items():
        w = plain.unet.get_submodule(key).weight
        w.copy_((w.double() + 0.8 * delta).float())
    write_case(folder, "mid-0.8", {"unet": run(plain)["unet"]}, plain.text_encoder)
