"""tests/data/ksamplers/brownian: k-diffusion's BrownianTreeNoiseSampler (torchsde 0.2.6), and NumPy's SeedSequence."""
import warnings

import numpy as np
import torch
from torchsde._brownian import brownian_interval

from .common import write_json, write_tensors
from .kdiffusion import sampling
from .random_numbers import cuda_randn

KARRAS = [14.614647, 10.1234567, 6.0821586, 3.3, 2.2321615, 0.69257396, 0.16975796, 0.029167535]
DOWN = list(zip(KARRAS, KARRAS[1:]))
# (kind, seed, low, high, values, spans); a span outside the range counts as the range's end
ROWS = (
    ("cpu", 0, KARRAS[-1], KARRAS[0], 24, DOWN),
    ("cpu", 42, KARRAS[-1], KARRAS[0], 64, [*DOWN, (KARRAS[0], 8.5), (KARRAS[0], KARRAS[-1]), (0.5, 0.50001), (0.029, 14.615), (2.0, 3.0)]),
    ("cpu", 2**40 + 9, 0.0064, 700.25, 24, [(700.25, 80.0), (80.0, 1.5), (1.5, 0.0064)]),
    ("cpu", 2**64 - 1, 0.03, 4096.0, 24, [(4096.0, 1.0), (0.04, 0.03)]),  # node numbers of more than 32 bits
    ("cpu", 7, 0.25, 0.2500005, 24, [(0.2500005, 0.25)]),
    ("cpu", 5, 0.5, 10.0, 6, [(10.0, 2.0), (2.0, 0.5)]),  # f64 Box-Muller
    ("cuda", 42, KARRAS[-1], KARRAS[0], 24, DOWN[:4]),
)
SEQUENCES = ((0, ()), (5, ()), (0, (0, 0)), (2**40 + 7, (3, 2)), (2**64 - 1, (2**33 + 5, 34)))


def divided(sampler, a, b):
    """sampler(a, b) with a root that is rounded correctly, which torch's is not on every CPU."""
    out = torch.from_numpy(sampler.tree(a, b).numpy() / np.sqrt(np.abs((b - a).numpy())))
    assert torch.allclose(out, sampler(a, b), rtol=3e-7, atol=0)
    return out


def noises(kind, seed, low, high, values, spans):
    cpu = brownian_interval._randn
    if kind == "cuda":  # as A1111 does it with "RNG: NV"
        brownian_interval._randn = lambda size, dtype, device, seed: cuda_randn(int(seed), 0, values).reshape(size)
    sampler = sampling.BrownianTreeNoiseSampler(torch.zeros(1, values), torch.tensor(low), torch.tensor(high), seed=[seed])
    out = torch.cat([divided(sampler, torch.tensor(a), torch.tensor(b)) for a, b in spans])
    brownian_interval._randn = cpu
    return out


def make(folder):
    warnings.simplefilter("ignore")
    tensors, rows = {}, []
    for i, (kind, seed, low, high, values, spans) in enumerate(ROWS):
        low, high, *flat = torch.tensor([low, high, *(v for span in spans for v in span)]).double().tolist()  # of f32, in full
        spans = list(zip(flat[::2], flat[1::2]))
        tensors[f"noise.{i}"] = noises(kind, seed, low, high, values, spans)
        rows.append({"kind": kind, "seed": str(seed), "low": low, "high": high, "spans": [list(s) for s in spans]})
    seeds = [{"entropy": str(e), "spawn_key": list(key),
              "state": np.random.SeedSequence(e, spawn_key=key, pool_size=24).generate_state(4).tolist()} for e, key in SEQUENCES]
    write_json(folder / "brownian.json", {"rows": rows, "seed_sequence": seeds})
    write_tensors(folder / "brownian.safetensors", tensors)
