"""tests/data/taesd: an AutoencoderTiny with random weights in the place of models/sd1's VAE, its halves, whole pictures."""
import numpy as np
import torch
from diffusers import AutoencoderTiny

from .common import fresh, write_json, write_tensors
from .components import Draw
from .models import randomise
from .pipelines import DEFAULTS, pipeline, run

CHANNELS = 6
# name -> (batch, height, width)
DECODER = {"odd-5x3": (1, 5, 3), "batch2": (2, 2, 3)}
ENCODER = {"no-multiple-37x21": (1, 37, 21), "batch2": (2, 16, 24)}
IMAGE = {"init_image": "init-48x40.png", "strength": 0.7, "steps": 6}
# Images are those of pipelines/.
CASES = {
    "txt2img": {"mode": "txt2img", "model": "sd1", "sampler": "euler", "steps": 4},
    "img2img.batch2": {"mode": "img2img", "model": "sd1", "sampler": "euler_a", "batch": 2, **IMAGE},
    "inpaint": {"mode": "inpaint", "model": "sd1", "sampler": "ddim", **IMAGE, "mask_image": "mask-48x40.png"},
}


def build():
    """Weaker branches and a grey middle, so that pictures use their range."""
    net = AutoencoderTiny(encoder_block_out_channels=(CHANNELS,) * 4, decoder_block_out_channels=(CHANNELS,) * 4,
                          num_encoder_blocks=(1, 2, 1, 2), num_decoder_blocks=(2, 1, 2, 1))
    randomise(net, 700)
    for name, p in net.named_parameters():
        if name.endswith("conv.4.weight"):
            p.copy_((0.5 * p).half())
    last = net.decoder.layers[-1]
    last.weight.copy_((0.8 * last.weight).half())
    last.bias.add_(0.5).copy_(last.bias.half())
    return net


def write_cases(folder, net):
    draw = Draw(701)
    for name, (n, h, w) in DECODER.items():
        latent = 3 * draw.normal(n, 4, h, w)
        write_tensors(folder / f"vae_decoder.{name}.safetensors", {"latent": latent, "expected.sample": net.decode(latent).sample})
    for name, (n, h, w) in ENCODER.items():
        sample = draw.image(n, 3, h, w)
        write_tensors(folder / f"vae_encoder.{name}.safetensors", {"sample": sample, "expected.latents": net.encode(sample).latents})


def make(root):
    folder = fresh(root / "taesd")
    net = build()
    net.half().save_pretrained(folder / "vae")
    (folder / "vae/diffusion_pytorch_model.safetensors").chmod(0o644)
    net = AutoencoderTiny.from_pretrained(folder / "vae", dtype=torch.float32).eval()
    write_cases(folder, net)
    rows, latents, pictures = [], {}, {}
    for name, facts in CASES.items():
        case = {"name": name, **DEFAULTS, **facts}
        pipe = pipeline(case["mode"], root / "models" / case["model"], vae=net)
        latents[name], pictures[name] = run(pipe, case, root / "pipelines", dict(pipe.scheduler.config))
        std = np.std(pictures[name].float().numpy())
        assert torch.isfinite(latents[name]).all() and std > 15, (name, std)
        rows.append(case)
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
