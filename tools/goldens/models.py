"""tests/data/models: small models with random weights, as diffusers folders."""
import json
import shutil

import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors.torch import load_file
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

from .common import generator, write_tensors
from .schedulers import SD15
from .tiny_tokenizer import learn_merges, write_clip

CROSS_DOWN, DOWN = "CrossAttnDownBlock2D", "DownBlock2D"
CROSS_UP, UP = "CrossAttnUpBlock2D", "UpBlock2D"
UNET_KEYS = ("act_fn", "attention_head_dim", "block_out_channels", "center_input_sample", "cross_attention_dim",
             "down_block_types", "downsample_padding", "flip_sin_to_cos", "freq_shift", "in_channels",
             "layers_per_block", "mid_block_scale_factor", "norm_eps", "norm_num_groups", "out_channels",
             "sample_size", "up_block_types")
VAE_KEYS = ("act_fn", "block_out_channels", "down_block_types", "in_channels", "latent_channels",
            "layers_per_block", "norm_num_groups", "out_channels", "sample_size", "up_block_types")


def unet(blocks, **more):
    """blocks: the down block types; the up blocks mirror them."""
    up = [CROSS_UP if b == CROSS_DOWN else UP for b in reversed(blocks)]
    return {"down_block_types": blocks, "up_block_types": up, "in_channels": 4, "out_channels": 4, **more}


def vae(channels, **more):
    n = len(channels)
    return {"down_block_types": ["DownEncoderBlock2D"] * n, "up_block_types": ["UpDecoderBlock2D"] * n,
            "block_out_channels": channels, "latent_channels": 4, **more}


# As stabilityai/stable-diffusion-2-1 has it.
SD21 = {"_class_name": "DDIMScheduler", "_diffusers_version": "0.8.0", "beta_end": 0.012,
        "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": False,
        "num_train_timesteps": 1000, "prediction_type": "v_prediction", "set_alpha_to_one": False,
        "skip_prk_steps": True, "steps_offset": 1, "trained_betas": None}

# As stabilityai/stable-diffusion-xl-base-1.0 has it.
SDXL = {"_class_name": "EulerDiscreteScheduler", "_diffusers_version": "0.19.0.dev0", "beta_end": 0.012,
        "beta_schedule": "scaled_linear", "beta_start": 0.00085, "clip_sample": False, "interpolation_type": "linear",
        "num_train_timesteps": 1000, "prediction_type": "epsilon", "sample_max_value": 1.0, "set_alpha_to_one": False,
        "skip_prk_steps": True, "steps_offset": 1, "timestep_spacing": "leading", "trained_betas": None,
        "use_karras_sigmas": False}

# as_sd15: the keys, names and extra tensors that the files of Stable Diffusion 1.5 have on the hub.
MODELS = {
    "sd1": {
        "seed": 100, "as_sd15": True, "merges": 150, "max_length": 32, "pad": "<|endoftext|>", "scheduler": SD15,
        "unet": unet([CROSS_DOWN, CROSS_DOWN, DOWN], block_out_channels=[8, 16, 24], layers_per_block=2,
                     norm_num_groups=4, attention_head_dim=4, cross_attention_dim=40, sample_size=8),
        "vae": vae([8, 12, 16, 16], layers_per_block=2, norm_num_groups=4, sample_size=64),
        "text": dict(hidden_size=40, intermediate_size=96, num_hidden_layers=3, num_attention_heads=5,
                     hidden_act="quick_gelu", projection_dim=40, bos_token_id=0, eos_token_id=2, pad_token_id=1),
    },
    "sd1-heads": {
        "seed": 200, "as_sd15": False, "merges": 90, "max_length": 24, "pad": "!",
        "scheduler": SD21,
        "unet": unet([DOWN, CROSS_DOWN, CROSS_DOWN], block_out_channels=[8, 12, 20], layers_per_block=1,
                     norm_num_groups=4, attention_head_dim=[4, 3, 5], transformer_layers_per_block=[1, 2, 1],
                     use_linear_projection=True, cross_attention_dim=36, sample_size=[10, 14], norm_eps=1e-6,
                     flip_sin_to_cos=False, freq_shift=1),
        "vae": vae([8, 12, 20], layers_per_block=1, norm_num_groups=4, sample_size=40, scaling_factor=0.31,
                   mid_block_add_attention=False, use_quant_conv=False, use_post_quant_conv=False),
        "text": dict(hidden_size=36, intermediate_size=100, num_hidden_layers=2, num_attention_heads=3,
                     hidden_act="gelu", projection_dim=20, eos_token_id="end", pad_token_id=0, layer_norm_eps=1e-6),
    },
    "sd1-inpaint": {
        "seed": 300, "as_sd15": True, "merges": 60, "max_length": 16, "pad": "<|endoftext|>", "scheduler": SD15,
        "unet": unet([CROSS_DOWN, DOWN], block_out_channels=[8, 16], layers_per_block=1, norm_num_groups=4,
                     attention_head_dim=2, cross_attention_dim=24, sample_size=8) | {"in_channels": 9},
        "vae": vae([4, 8, 8, 8], layers_per_block=1, norm_num_groups=2, sample_size=64),
        "text": dict(hidden_size=24, intermediate_size=48, num_hidden_layers=2, num_attention_heads=2,
                     hidden_act="quick_gelu", projection_dim=24, bos_token_id=0, eos_token_id=2, pad_token_id=1),
    },
    # cases: so many of each component. Groups, heads of CLIP and of the VAE are what single files are taken to have.
    "sd2": {
        "seed": 500, "as_sd15": False, "merges": 40, "max_length": 20, "pad": "!", "scheduler": SD21, "cases": 2,
        "unet": unet([CROSS_DOWN, DOWN], block_out_channels=[8, 16], layers_per_block=1, norm_num_groups=8,
                     attention_head_dim=[2, 4], use_linear_projection=True, cross_attention_dim=32, sample_size=8),
        "vae": vae([4, 8, 8, 8], layers_per_block=1, norm_num_groups=4, sample_size=64),
        "text": dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=1,
                     hidden_act="gelu", projection_dim=16, bos_token_id=0, eos_token_id=2, pad_token_id=1),
    },
    "sdxl": {
        "seed": 600, "as_sd15": False, "merges": 30, "max_length": 18, "pad": "<|endoftext|>", "scheduler": SDXL, "cases": 2,
        "unet": unet([DOWN, CROSS_DOWN], block_out_channels=[8, 16], layers_per_block=1, norm_num_groups=8,
                     attention_head_dim=[2, 4], transformer_layers_per_block=[1, 2], use_linear_projection=True,
                     cross_attention_dim=40, sample_size=8, addition_embed_type="text_time",
                     addition_time_embed_dim=8, projection_class_embeddings_input_dim=20 + 6 * 8),
        "vae": vae([4, 8, 8, 8], layers_per_block=1, norm_num_groups=4, sample_size=64, scaling_factor=0.13025),
        "text": dict(hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                     hidden_act="quick_gelu", projection_dim=16, bos_token_id=0, eos_token_id=2, pad_token_id=1),
        "text_2": dict(hidden_size=24, intermediate_size=48, num_hidden_layers=3, num_attention_heads=3,
                       hidden_act="gelu", projection_dim=20, bos_token_id=0, eos_token_id=2, pad_token_id=1),
    },
}
CLASSES = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel,
           "text_encoder_2": CLIPTextModelWithProjection}


def randomise(module, seed):
    """Lively weights: matrices keep the variance, norms and biases are not 1 and 0. Rounded to f16."""
    g = generator(seed)
    for name, p in module.named_parameters():
        r = torch.randn(p.shape, generator=g)
        if name.endswith("bias"):
            r = 0.1 * r
        elif "embedding.weight" in name:
            r = r * (0.3 if "position" in name else 0.7)
        elif p.ndim == 1:
            r = 1 + 0.25 * r
        else:
            sharper = 1.5 if any(k in name for k in ("to_q", "to_k", "q_proj", "k_proj")) else 1.0
            r = r * sharper / p[0].numel() ** 0.5
        p.copy_(r.half())
    return module.eval()


def added_conditions(config, n, g, numbers=6):
    """SDXL's: the pooled text, and the sizes that a picture was made with (the refiner's: five numbers)."""
    if config.addition_embed_type is None:
        return None
    width = config.projection_class_embeddings_input_dim - numbers * config.addition_time_embed_dim
    return {"text_embeds": torch.randn(n, width, generator=g),
            "time_ids": torch.randint(0, 1024, (n, numbers), generator=g).float()}


def weaken(net, g):
    for name, p in net.named_parameters():
        if name.endswith(("conv2.weight", "proj_out.weight", "conv_in.weight")):
            p.copy_((0.4 * p).half())
    net.conv_in.weight[:, :4, 1, 1] += (0.6 * torch.randn(len(net.conv_in.weight), 4, generator=g)).half()
    net.conv_in.weight.copy_(net.conv_in.weight.half())


def teach_noise(net, seed, numbers=6, weak=False):
    """Weaker branches and a least-squares conv_out, so that the output follows the noise in the input and sampling
    shrinks it: with a random output the first noise would hide errors of the network in the final latents.
    weak: the branches are so already."""
    g, c, n = generator(seed), net.config, 48
    noise, rest = torch.randn(n, 4, 8, 8, generator=g), torch.randn(n, c.in_channels, 8, 8, generator=g)
    level = 1 - 0.4 * torch.rand(n, 1, 1, 1, generator=g)
    x = torch.cat([level * noise + (1 - level**2).sqrt() * rest[:, :4], rest[:, 4:]], 1)
    if not weak:
        weaken(net, g)
    features = []
    hook = net.conv_out.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    context = torch.randn(n, 9, c.cross_attention_dim, generator=g)
    net(x, (level.flatten() * 999).round(), context, added_cond_kwargs=added_conditions(c, n, g, numbers))
    hook.remove()
    rows = torch.nn.functional.unfold(features[0], 3, padding=1).double().transpose(1, 2).flatten(0, 1)
    rows = torch.cat([rows, torch.ones(len(rows), 1)], 1)
    target = noise.double().permute(0, 2, 3, 1).flatten(0, 2)
    gram = rows.T @ rows + 1e-3 * len(rows) * torch.eye(rows.shape[1])
    fit = torch.linalg.solve(gram, rows.T @ target).T.half().float()
    net.conv_out.weight.copy_(fit[:, :-1].reshape(net.conv_out.weight.shape))
    net.conv_out.bias.copy_(fit[:, -1])


def text_config(spec, vocab_size):
    if spec["eos_token_id"] == "end":
        spec = {**spec, "bos_token_id": vocab_size - 2, "eos_token_id": vocab_size - 1}
    return CLIPTextConfig(vocab_size=vocab_size, **spec)


def build(spec, vocab_size):
    """The three networks of a description, in f32 with f16-exact weights."""
    parts = {
        "unet": UNet2DConditionModel(**spec["unet"]),
        "vae": AutoencoderKL(**spec["vae"]),
        "text_encoder": CLIPTextModel(text_config({"max_position_embeddings": spec["max_length"], **spec["text"]},
                                                  vocab_size)),
    }
    if "text_2" in spec:
        parts["text_encoder_2"] = CLIPTextModelWithProjection(
            text_config({"max_position_embeddings": spec["max_length"], **spec["text_2"]}, vocab_size))
    for n, module in enumerate(parts.values()):
        randomise(module, spec["seed"] + n)
    if spec["scheduler"].get("prediction_type", "epsilon") == "epsilon":
        teach_noise(parts["unet"], spec["seed"] + 9)
    return parts


def prune_config(path, keys):
    """Only the keys that a config of Stable Diffusion 1.5 has; the rest are the classes' defaults."""
    config = json.loads(path.read_text())
    kept = {"_class_name": config["_class_name"], "_diffusers_version": "0.20.0", **{k: config[k] for k in keys}}
    path.write_text(json.dumps(kept, indent=2) + "\n")


def old_vae_attention(name):
    for new, old in (("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")):
        name = name.replace(f"attentions.0.{new}.", f"attentions.0.{old}.")
    return name


def text_tensors(path, max_length, as_sd15):
    """The prefix that the hub's files have and transformers 5 leaves out; position_ids as SD 1.5 has."""
    out = {k if k.startswith("text_model.") else f"text_model.{k}": v for k, v in load_file(path).items()}
    if as_sd15:
        out["text_model.embeddings.position_ids"] = torch.arange(max_length)[None]
    return out


def write_model_index(folder, scheduler, xl=False):
    index = {"_class_name": "StableDiffusionPipeline", "_diffusers_version": "0.20.0",
             "feature_extractor": [None, None], "safety_checker": [None, None],
             "scheduler": ["diffusers", scheduler["_class_name"]], "text_encoder": ["transformers", "CLIPTextModel"],
             "tokenizer": ["transformers", "CLIPTokenizer"], "unet": ["diffusers", "UNet2DConditionModel"],
             "vae": ["diffusers", "AutoencoderKL"]}
    if xl:
        index = {**index, "_class_name": "StableDiffusionXLPipeline", "force_zeros_for_empty_prompt": True,
                 "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
                 "tokenizer_2": ["transformers", "CLIPTokenizer"]}
        del index["safety_checker"]
    (folder / "model_index.json").write_text(json.dumps(index, indent=2) + "\n")
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text(json.dumps(scheduler, indent=2) + "\n")


def save(folder, spec):
    shutil.rmtree(folder, ignore_errors=True)
    vocab = write_clip(folder / "tokenizer", learn_merges(spec["merges"]), spec["max_length"], spec["pad"])
    for name, module in build(spec, len(vocab)).items():
        module.half().save_pretrained(folder / name)
    write_model_index(folder, spec["scheduler"], "text_2" in spec)
    if "text_2" in spec:
        write_clip(folder / "tokenizer_2", learn_merges(spec["merges"]), spec["max_length"], "!")
        (folder / "text_encoder_2/model.safetensors").chmod(0o644)
    text, decoder = folder / "text_encoder/model.safetensors", folder / "vae/diffusion_pytorch_model.safetensors"
    (folder / "unet/diffusion_pytorch_model.safetensors").chmod(0o644)
    decoder.chmod(0o644)
    write_tensors(text, text_tensors(text, spec["max_length"], spec["as_sd15"]))
    if spec["as_sd15"]:
        prune_config(folder / "unet" / "config.json", UNET_KEYS)
        prune_config(folder / "vae" / "config.json", VAE_KEYS)
        write_tensors(decoder, {old_vae_attention(k): v for k, v in load_file(decoder).items()})


def load(folder, part):
    """One network in f32."""
    cls = CLASSES[part]
    return cls.from_pretrained(folder / part, dtype=torch.float32).eval()


def make(root):
    for name, spec in MODELS.items():
        save(root / "models" / name, spec)
