"""Cases of embedding, gather, full, arange, rand and randn."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from goldens.random_numbers import CUDA_SEED_0, KNOWN_ANSWERS, philox4x32

from .table import FLOATS, INTEGERS, NUMBER, TORCH, round_once

INF, NAN = math.inf, math.nan
ALL = FLOATS + INTEGERS + ("bool",)


def embedding_cases(t):
    def embedding(name, ids, w):
        def fn(i, table):  # outside the table: zeros
            inside = (i >= 0) & (i < table.shape[0])
            return torch.where(inside[..., None], F.embedding(torch.where(inside, i, 0), table), torch.zeros((), dtype=table.dtype))
        t.case(name, "embedding", [ids, w], fn, "bits")

    for dtype in FLOATS + ("i32", "i64"):
        embedding(f"plain.{dtype}", t.gen("i64", 2, 5, low=0, high=7), t.gen(dtype, 7, 6))
    embedding("i32_ids.f32", t.gen("i32", 3, low=0, high=7), t.gen("f32", 7, 33))
    embedding("one_id.f32", t.data(3, "i64"), t.gen("f32", 7, 4))
    embedding("outside.f32", t.data([0, -1, 7, 6, 2**40, -(2**63)], "i64"), t.gen("f32", 7, 5))
    embedding("outside.f16", t.data([0, -1, 7, 6], "i32"), t.gen("f16", 7, 5))
    embedding("no_ids.f32", t.gen("i64", 2, 0), t.gen("f32", 7, 4))
    embedding("no_columns.f32", t.gen("i64", 2, low=0, high=2), t.gen("f32", 7, 0))
    embedding("strided.f32", t.gen("i64", 4, 6, low=0, high=9).permute(1, 0).slice(0, 0, 6, 2), t.gen("f32", 5, 9).permute(1, 0))
    embedding("expanded.bf16", t.gen("i64", 1, 3, low=0, high=9).expand(2, 3), t.gen("bf16", 18, 5).slice(0, 0, 18, 2))
    embedding("many.f32", t.gen("i64", 77, low=0, high=50), t.gen("f32", 50, 16))


def gather_cases(t):
    def gather(name, x, dim, index):
        def fn(v, i):  # outside x: zero
            inside = (i >= 0) & (i < (v.shape[dim] if v.dim() else 1))
            taken = torch.gather(v, dim, torch.where(inside, i, 0).long()) if i.numel() and v.numel() else v.new_zeros(i.shape)
            return torch.where(inside, taken, torch.zeros((), dtype=v.dtype))
        t.case(name, "gather", [x, index], fn, "bits", {"dim": dim})

    for dtype in ALL:
        gather(f"rows.{dtype}", t.gen(dtype, 4, 5), 0, t.gen("i64", 3, 5, low=0, high=4))
    gather("columns.f32", t.gen("f32", 4, 5), -1, t.gen("i64", 4, 7, low=0, high=5))
    gather("middle.f32", t.gen("f32", 2, 4, 3), 1, t.gen("i32", 2, 6, 3, low=0, high=4))
    gather("smaller.f32", t.gen("f32", 4, 5, 3), 1, t.gen("i64", 2, 2, 1, low=0, high=5))
    gather("outside.f32", t.gen("f32", 3, 2), 0, t.data([[0, -1], [3, 2], [2**40, -(2**63)]], "i64"))
    gather("scalar.f32", t.gen("f32"), 0, t.data(0, "i64"))
    gather("no_index.f32", t.gen("f32", 3, 4), 0, t.gen("i64", 0, 4))
    gather("from_empty.f32", t.gen("f32", 0, 2), 0, t.data([[0, 1]], "i64"))
    gather("strided.f32", t.gen("f32", 6, 4).permute(1, 0), 1, t.gen("i64", 4, 6, low=0, high=6).slice(1, 0, 6, 2))
    gather("expanded.f32", t.gen("f32", 4, 1).expand(4, 5), 0, t.gen("i64", 1, 5, low=0, high=4).expand(3, 5))


def made_cases(t):
    def full(name, dtype, shape, value):
        def fn():  # beyond the largest f16: infinity (torch refuses some of these numbers)
            return round_once(torch.full(shape, value, dtype=torch.float64), dtype) if dtype in FLOATS else torch.full(shape, value,
                                                                                                                       dtype=TORCH[dtype])
        t.case(f"{name}.{dtype}", "full", [], fn, "bits",
               {"shape": shape, "dtype": NUMBER[dtype], "fill_value": float(value)}, dtype)

    for dtype in ALL:
        full("three", dtype, (3, 5), 3)
    for dtype in FLOATS:
        for value in (NAN, INF, -INF, -0.0, 0.1, 1e10, 65520.0, 1e-41):
            full(f"value{value}", dtype, (2,), value)
    full("scalar", "f32", (), 0.1)
    full("empty", "f32", (2, 0, 3), 1.0)
    full("truncates", "i32", (2,), -1.9)
    full("low", "i8", (2,), -128)
    full("high", "u8", (2,), 255)
    full("wide", "i64", (2,), -(2**62))
    full("fraction", "bool", (2,), 0.25)

    def arange(name, dtype, start, end, step=1.0):
        def fn():
            if dtype in FLOATS:
                n = max(0, math.ceil((end - start) / step))
                return start + torch.arange(n, dtype=torch.float64) * step
            return torch.arange(start, end, step, dtype=TORCH[dtype])
        limit = "round" if dtype in FLOATS else "bits"
        expected = fn()
        if dtype in FLOATS:
            assert expected.shape == torch.arange(start, end, step, dtype=TORCH[dtype]).shape, name
            expected = round_once(expected, dtype)
        t.case(f"{name}.{dtype}", "arange", [], lambda: expected, limit,
               {"start": float(start), "end": float(end), "step": float(step), "dtype": NUMBER[dtype]}, dtype)

    for dtype in ALL[:-1]:
        arange("plain", dtype, 0, 10)
        arange("steps", dtype, 3, 20, 4)
        arange("down", dtype, 20, 3, -5)
        arange("none", dtype, 4, 4)
    for dtype in FLOATS:
        arange("tenths", dtype, 0, 1, 0.1)
        arange("beyond", dtype, 0, 1.0000000001, 0.1)
        arange("thirds", dtype, -1, 1, 1 / 3)
    arange("fractions", "i64", 0.5, 5, 1.5)
    arange("half_steps", "i32", 0, 3, 0.5)
    arange("negative_start", "i32", -0.5, 3)
    arange("wraps", "u8", -3, 2)
    arange("wraps", "i8", 0, 300, 100)
    arange("one", "f32", 5, 5.0001, 7)
    arange("long", "f32", 0, 999, 1)
    arange("wide", "i64", 2**52, 2**52 + 4)


def words(seed, offset, count):
    """Two words of each counter (offset, i), key seed."""
    i = np.arange(count, dtype=np.uint64)
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    x, y, _, _ = philox4x32((np.full(count, offset & 0xFFFFFFFF), np.full(count, offset >> 32), i & np.uint64(0xFFFFFFFF),
                             i >> np.uint64(32)), key)
    return x, y


def normals(seed, offset, count):
    """cuRAND's Box-Muller of f32 uniforms, the functions in f64."""
    x, y = words(seed, offset, count)
    inv, tau = np.float32(2.0**-32), np.float32(2.3283064e-10) * np.float32(6.2831855)
    u = (x.astype(np.float32).astype(np.float64) * inv + inv / 2).astype(np.float32).astype(np.float64)
    v = (y.astype(np.float32).astype(np.float64) * tau + tau / 2).astype(np.float32).astype(np.float64)
    return (np.sqrt(-2 * np.log(u)) * np.sin(v)).astype(np.float32)


def uniforms(seed, offset, count):
    x, _ = words(seed, offset, count)
    u = (x.astype(np.float32).astype(np.float64) * 2.0**-32 + 2.0**-33).astype(np.float32)
    return np.where(u == 1, np.float32(0), u)


def random_cases(t):
    for counter, key, expected in KNOWN_ANSWERS:
        assert tuple(philox4x32([[c] for c in counter], key)[:, 0]) == expected, "Random123 known answers"
    assert np.abs(normals(0, 0, 12) - CUDA_SEED_0).max() < 1e-6, "torch.randn on a GPU"
    for op, fn, limit in (("randn", normals, "normal"), ("rand", uniforms, "exact")):
        for name, shape, seed, offset in (("plain", (3, 7), 42, 0), ("scalar", (), 1, 0), ("empty", (0, 2), 1, 0), ("later", (33,), 42, 5),
                                          ("wide_seed", (9,), 2**63 - 1, 3), ("negative_seed", (9,), -5, 0), ("wide_offset", (9,), 7,
                                                                                                              2**40 + 1),
                                          ("picture", (1, 4, 13, 9), 0, 1)):
            t.case(f"{name}.f32", op, [], lambda s=shape, k=seed, o=offset, f=fn: torch.from_numpy(f(k, o, int(np.prod(s)))).reshape(s),
                   limit,
                   {"shape": shape, "seed": seed, "offset": offset}, "f32")


def add(t):
    embedding_cases(t)
    gather_cases(t)
    made_cases(t)
    random_cases(t)
