"""tests/data/bk-sdm: a UNet without a mid block, as BK-SDM's small ones have it: models/sd1's without that block; runs of it, whole pictures."""
import torch
from diffusers import UNet2DConditionModel

from .common import fresh, write_json, write_tensors
from .components import Draw, unet_cases
from .models import load
from .pipelines import DEFAULTS, pipeline, run

RUNS = ("unet.odd-13x9", "unet.tiny-2x3")
CASES = {
    "txt2img": {"mode": "txt2img", "model": "bk-sdm", "sampler": "euler", "steps": 4},
    "batch2": {"mode": "txt2img", "model": "bk-sdm", "sampler": "dpm++2m", "steps": 5, "batch": 2},
}


def build(whole):
    config = {k: v for k, v in whole.config.items() if not k.startswith("_")}
    net = UNet2DConditionModel.from_config({**config, "mid_block_type": None}).eval()
    assert net.mid_block is None
    net.load_state_dict({k: v for k, v in whole.state_dict().items() if not k.startswith("mid_block.")})
    return net


@torch.no_grad()
def make(root):
    folder, kept = fresh(root / "bk-sdm"), root / "models/sd1"
    net = build(load(kept, "unet"))
    for name, ins, outs in unet_cases(net, Draw(910)):
        if name in RUNS:
            write_tensors(folder / f"{name}.safetensors", {**ins, **{f"expected.{k}": v for k, v in outs.items()}})
    rows, latents, pictures = [], {}, {}
    for name, facts in CASES.items():
        case = {"name": name, **DEFAULTS, **facts}
        pipe = pipeline(case["mode"], kept, unet=net)
        latents[name], pictures[name] = run(pipe, case, root / "pipelines", dict(pipe.scheduler.config))
        assert torch.isfinite(latents[name]).all() and pictures[name].float().std() > 10, name
        rows.append(case)
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
    write_tensors(folder / "pictures.safetensors", pictures)
