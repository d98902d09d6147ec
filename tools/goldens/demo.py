"""tests/data/demo: pictures of the trained demo model, English and Chinese."""
import os
from pathlib import Path

import torch
from PIL import Image

from .common import REPO, fresh, write_json, write_tensors
from .pipelines import pipeline, run

MODEL = Path(os.environ.get("TERN_DEMO_MODEL", REPO.parent / "shared/demo-training/weights-preview"))
CASES = (("", "a red house in a meadow by day", 1), ("", "a lighthouse by the sea at sunset", 2),
         ("", "a black cat in the snow at night with a moon", 3), ("zh", "夜晚，海上有一艘红色的船，满天星星", 4))


def make(root):
    if not MODEL.is_dir():
        print(f"demo: no model at {MODEL} (set TERN_DEMO_MODEL); left out")
        return
    folder, rows, latents = fresh(root / "demo"), [], {}
    english = pipeline("txt2img", MODEL)
    shared = {k: getattr(english, k) for k in ("unet", "vae", "scheduler")}
    pipes = {"": english, "zh": pipeline("txt2img", MODEL / "zh", **shared)}
    config = dict(english.scheduler.config)
    for side, prompt, seed in CASES:
        name = f"{side or 'en'}-{seed}"
        case = {"name": name, "mode": "txt2img", "model": side, "prompt": prompt, "negative": None, "width": 256,
                "height": 256, "steps": 20, "cfg": 5.0, "seed": seed, "sampler": "ddim", "schedule": "default", "batch": 1}
        latents[name], pictures = run(pipes[side], case, None, config)
        Image.fromarray(pictures[0].numpy()).save(folder / f"{name}.png", optimize=True)
        ids = pipes[side].tokenizer(prompt, padding="max_length", truncation=True).input_ids
        rows.append({**case, "picture": f"{name}.png", "ids": ids})
    assert all(torch.isfinite(v).all() for v in latents.values())
    write_json(folder / "cases.json", rows)
    write_tensors(folder / "latents.safetensors", latents)
