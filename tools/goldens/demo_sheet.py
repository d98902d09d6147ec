"""tests/data/demo-sheet: the pictures of tools/contact-sheet.txt as diffusers paints them with models/demo, in f32."""
import numpy as np
from PIL import Image

from .common import REPO, fresh, write_json
from .pipelines import pipeline, run

MODEL = REPO / "models" / "demo"
LIST = REPO / "tools" / "contact-sheet.txt"


def make(root):
    folder, rows = fresh(root / "demo-sheet"), []
    english = pipeline("txt2img", MODEL)
    shared = {k: getattr(english, k) for k in ("unet", "vae", "scheduler")}
    pipes = {"demo": english, "demo-zh": pipeline("txt2img", MODEL / "zh", **shared)}
    config = dict(english.scheduler.config)
    for line in LIST.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        model, seed, prompt = line.split(maxsplit=2)
        name = f"{model}-{seed}"
        case = {"name": name, "mode": "txt2img", "model": "zh" if model == "demo-zh" else "", "prompt": prompt, "negative": None,
                "width": 256, "height": 256, "steps": 20, "cfg": 4.0, "seed": int(seed), "sampler": "ddim", "schedule": "default",
                "batch": 1}
        _, pictures = run(pipes[model], case, None, config)
        Image.fromarray(pictures[0].numpy()).save(folder / f"{name}.webp", lossless=True, quality=100, method=6)
        assert np.array_equal(np.asarray(Image.open(folder / f"{name}.webp").convert("RGB")), pictures[0].numpy())
        rows.append({**case, "picture": f"{name}.webp"})
    assert len(rows) == 12
    write_json(folder / "cases.json", rows)
