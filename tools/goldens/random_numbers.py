"""tests/data/random: PyTorch's CPU generator, and Philox as PyTorch's CUDA generator uses it."""
import numpy as np
import torch

from .common import fresh, generator, write_json, write_tensors

SEEDS = (0, 1, 42, 2**32 - 1, 2**32 + 5, 2**63 - 1, -1, -5)
LARGE = ((1, 4, 64, 64), (1, 4, 96, 64), (3, 4, 13, 9), (1, 4, 128, 128), (1, 3, 257, 255))
EDGE = 64  # values kept from each end of a large draw

# One generator, drawn from again and again. Counts under 16 keep half a Box-Muller pair for later.
SEQUENCES = (
    [("randn", 1)] * 6,
    [("randn", 5), ("randn", 16), ("randn", 3), ("randn", 37), ("randn", 8)],
    [("randn", 3), ("rand", 5), ("randn", 1), ("rand", 16), ("randn", 20), ("randn", 2)],
    [("rand", 1), ("rand", 2), ("rand", 624), ("rand", 7)],
    [("randn", 192), ("randn", 192), ("randn", 192)],
    [("randn", 700), ("randn", 7), ("randn", 700), ("randn", 15)],
)

# Random123, kat_vectors: philox4x32 10, counter, key, result.
KNOWN_ANSWERS = (
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
)
# The first values that PyTorch gives on a GPU: torch.manual_seed(0); torch.randn(12, device="cuda")
CUDA_SEED_0 = (-0.92466259, -0.42534415, -2.6438457, 0.14518388, -0.12086647, -0.57972564,
               -0.62285122, -0.32838709, -1.07454231, -0.36314407, -1.67105067, 2.26550497)


def philox4x32(counter, key):
    """Philox 4x32-10 [Salmon 2011]. counter (4, n), key (2,) as uint32 -> (4, n) uint32."""
    low = np.uint64(0xFFFFFFFF)
    c = [np.asarray(x, dtype=np.uint64) for x in counter]
    k = [int(x) for x in key]
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), p1 & low,
             (p0 >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), p0 & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c).astype(np.uint32)


def cuda_randn(seed, offset, count):
    """Normals of the draw number `offset`: counter (offset, 0, i, 0), key = seed, one value per counter.

    Uniforms are f32 as in cuRAND: u = x 2^-32 + 2^-33, v = 2 pi (y 2^-32 + 2^-33); value = sqrt(-2 ln u) sin v."""
    i = np.arange(count)
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    x, y, _, _ = philox4x32((np.full(count, offset), i * 0, i, i * 0), key)
    inv, tau_inv = np.float32(2.0**-32), np.float32(2.3283064e-10) * np.float32(6.2831855)
    u = (x.astype(np.float32).astype(np.float64) * inv + inv / 2).astype(np.float32)
    v = (y.astype(np.float32).astype(np.float64) * tau_inv + tau_inv / 2).astype(np.float32)
    normal = np.sqrt(-2 * np.log(u.astype(np.float64))) * np.sin(v.astype(np.float64))
    return torch.from_numpy(normal.astype(np.float32))


def draw(kind, count, g):
    return getattr(torch, kind)(count, generator=g)


def cpu(folder):
    tensors, cases = {}, []

    def keep(name, value, **facts):
        count = value.numel()
        row = {"name": name, **facts, "count": count}
        if count > 1000:
            row.update(kept=EDGE, sum=float(value.double().sum()), sum_abs=float(value.double().abs().sum()))
            value = torch.cat([value.flatten()[:EDGE], value.flatten()[-EDGE:]])
        tensors[name] = value.flatten()
        cases.append(row)

    for seed in SEEDS:
        for count in range(1, 41):
            keep(f"randn.{seed}.{count}", draw("randn", count, generator(seed)), kind="randn", seed=seed)
        for count in (1, 15, 16, 17, 40):
            keep(f"rand.{seed}.{count}", draw("rand", count, generator(seed)), kind="rand", seed=seed)
    for seed in (42, 2**32 - 1):
        for shape in LARGE:
            for kind in ("randn", "rand"):
                value = getattr(torch, kind)(shape, generator=generator(seed))
                keep(f"{kind}.{seed}.{value.numel()}", value, kind=kind, seed=seed)

    sequences = []
    for n, draws in enumerate(SEQUENCES):
        for seed in (42, 2**32 + 5):
            g, name = generator(seed), f"sequence.{n}.{seed}"
            tensors[name] = torch.cat([draw(kind, count, g) for kind, count in draws])
            sequences.append({"name": name, "seed": seed, "draws": [list(d) for d in draws]})
    write_json(folder / "cpu.json", {"single": cases, "sequences": sequences})
    write_tensors(folder / "cpu.safetensors", tensors)


def philox(folder):
    for counter, key, expected in KNOWN_ANSWERS:
        assert tuple(philox4x32([[c] for c in counter], key)[:, 0]) == expected, "Random123 known answers"
    assert np.abs(cuda_randn(0, 0, 12).numpy() - CUDA_SEED_0).max() < 1e-6, "torch.randn on a GPU"

    tensors, cases = {}, []
    for seed in SEEDS[:6]:
        for offset, count in ((0, 1), (0, 17), (0, 256), (1, 256), (5, 40)):
            name = f"randn.{seed}.{offset}.{count}"
            tensors[name] = cuda_randn(seed, offset, count)
            cases.append({"name": name, "seed": seed, "offset": offset, "count": count})
    value = cuda_randn(42, 0, 16384)
    tensors["randn.42.0.16384"] = torch.cat([value[:EDGE], value[-EDGE:]])
    cases.append({"name": "randn.42.0.16384", "seed": 42, "offset": 0, "count": 16384, "kept": EDGE,
                  "sum": float(value.double().sum()), "sum_abs": float(value.double().abs().sum())})
    known = [{"counter": list(c), "key": list(k), "result": list(r)} for c, k, r in KNOWN_ANSWERS]
    write_json(folder / "philox.json", {"philox4x32_10": known, "randn": cases})
    write_tensors(folder / "philox.safetensors", tensors)


def make(root):
    folder = fresh(root / "random")
    cpu(folder)
    philox(folder)
