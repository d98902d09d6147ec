"""Paths, seeded draws and deterministic writers that every part uses."""
import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

REPO = Path(__file__).resolve().parents[2]
DATA = REPO / "tests" / "data"


def fresh(folder):
    """Creates the folder and removes the files that stood directly in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        if old.is_file():
            old.unlink()
    return folder


def generator(seed):
    return torch.Generator("cpu").manual_seed(seed)


def randn(seed, *shape):
    return torch.randn(*shape, generator=generator(seed))


def write_tensors(path, tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.detach().clone().contiguous() for k, v in tensors.items()}, path)
    path.chmod(0o644)


def write_json(path, obj):
    """One line for each list of numbers and for each small object, so that a diff can be read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_render(obj, "") + "\n", encoding="utf-8")


def _render(obj, pad):
    flat = json.dumps(obj, ensure_ascii=False)
    scalars = isinstance(obj, list) and all(not isinstance(v, (dict, list)) for v in obj)
    if not isinstance(obj, (dict, list)) or not obj or scalars or len(flat) + len(pad) <= 110:
        return flat
    deeper = pad + " "
    if isinstance(obj, dict):
        rows = [f"{deeper}{json.dumps(k)}: {_render(v, deeper)}" for k, v in obj.items()]
        return "{\n" + ",\n".join(rows) + f"\n{pad}}}"
    return "[\n" + ",\n".join(deeper + _render(v, deeper) for v in obj) + f"\n{pad}]"


def f32_list(values):
    """Shortest decimals that give the same f32 when read as double and rounded."""
    return [float(str(v)) for v in np.asarray(values, dtype=np.float32)]
