"""What a case is made of: inputs (generated or stored), the torch function in float64, one rounding, the file format.

cases.json: {"limits": {class: {dtype: [abs, rel, scaled]}}, "cases": [case, ...]}
    case    name, op, in, attrs and either out and limit, or status and error (a part of the message)
    in      null (absent) or {dtype, shape, ...} with "at" (offset in values.bin) or "seed" (see `generate`), then views
            of it: "view": [["permute", d...], ["slice", dim, start, end, step], ["expand", size...], ["channels_last"]]
    limit   |found - expected| <= abs + rel |expected| + scaled (largest |expected|); class "bits": the same bits, NaN
            equal to NaN. Infinities must be equal, NaN where NaN is expected.
values.bin: arrays in little-endian byte order, row-major, at multiples of 8."""
import json

import numpy as np
import torch

FLOATS = ("f32", "f16", "bf16")
INTEGERS = ("i8", "u8", "i32", "i64")
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32,
         "i64": torch.int64, "bool": torch.bool}
NAMES = {v: k for k, v in TORCH.items()}
NUMBER = {k: i for i, k in enumerate(("f32", "f16", "bf16", "i8", "u8", "i32", "i64", "bool"))}  # enum tern_dtype
SIGNIFICANT_BITS = {"f32": 24, "f16": 11, "bf16": 8}

# The least normal f32: devices may flush what is smaller.
TINY = 1.2e-38
LIMITS = {
    "bits": {},
    # one operation whose result needs no rounding
    "exact": {"f32": [TINY, 0, 0], "f16": [0, 0, 0], "bf16": [TINY, 0, 0]},
    # one rounded operation
    "round": {"f32": [TINY, 2.4e-7, 0], "f16": [6e-8, 1e-3, 0], "bf16": [TINY, 8e-3, 0]},
    # transcendental functions, softmax
    "function": {"f32": [1e-6, 5e-6, 0], "f16": [1e-4, 2e-3, 0], "bf16": [1e-3, 1.6e-2, 0]},
    "normal": {"f32": [1e-5, 1e-5, 0]},
    # sums of products and what is built on them
    "sum": {"f32": [1e-7, 1e-6, 5e-6], "f16": [1e-4, 1e-3, 1e-3], "bf16": [1e-3, 8e-3, 8e-3]},
    # sdpa that may compute in int8, against the exact one: of the largest result
    "int8": {"f32": [1e-3, 0, 0.1], "f16": [1e-3, 0, 0.1], "bf16": [1e-3, 0, 0.1]},
    # convolutions may go by way of Winograd's transforms
    "conv": {"f32": [1e-6, 1e-6, 2e-5], "f16": [1e-4, 1e-3, 2e-3], "bf16": [1e-3, 8e-3, 1.6e-2]},
}


def hash32(seed, n):
    """n 32-bit numbers: the finaliser of a 32-bit hash over seed * 0x9E3779B9 + i."""
    x = (np.arange(n, dtype=np.uint64) + np.uint64(seed * 0x9E3779B9 & 0xFFFFFFFF)) & np.uint64(0xFFFFFFFF)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        x = (x ^ x >> np.uint64(shift)) * np.uint64(factor) & np.uint64(0xFFFFFFFF)
    return x


def generate(dtype, shape, seed, scale=1.0, positive=False, low=-100, high=100):
    """Floats: [-2, 2) times a power of two, all significant bits in use; positive: |x| + 1/4. Integers: low..high-1."""
    n = int(np.prod(shape, dtype=np.int64))
    h = hash32(seed, n)
    if dtype in FLOATS:
        p = SIGNIFICANT_BITS[dtype]
        v = ((h >> np.uint64(32 - p)).astype(np.float64) - 2.0 ** (p - 1)) / 2.0 ** (p - 2)
        v = (np.abs(v) + 0.25 if positive else v) * scale
        return torch.from_numpy(v).reshape(shape).to(TORCH[dtype])
    if dtype == "bool":
        return torch.from_numpy((h >> np.uint64(16) & np.uint64(1)).astype(bool)).reshape(shape)
    v = low + (h % np.uint64(high - low)).astype(np.int64)
    return torch.from_numpy(v).reshape(shape).to(TORCH[dtype])


def round_once(x, dtype):
    """float64 -> dtype with one rounding to nearest even (torch goes to f16 and bf16 by way of f32)."""
    a = x.numpy()
    with np.errstate(over="ignore"):
        if dtype == "f16":
            return torch.from_numpy(a.astype(np.float16))
        f = a.astype(np.float32)
        if dtype == "f32":
            return torch.from_numpy(f)
        # bf16: first to f32 with the last bit set where that is inexact ("to odd"), then to nearest even
        toward_zero = np.where(np.abs(f.astype(np.float64)) > np.abs(a), np.nextafter(f, np.float32(0)), f).astype(np.float32)
    bits = toward_zero.reshape(-1).view(np.uint32).astype(np.uint64)
    bits |= (toward_zero.astype(np.float64) != a).reshape(-1)
    bits = (bits + np.uint64(0x7FFF) + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    bits = np.where(np.isnan(a.reshape(-1)), np.uint64(0x7FC0), bits).astype(np.uint16)
    return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16).reshape(x.shape)


def number(v):
    """JSON has no NaN and no infinities."""
    if isinstance(v, float) and (v != v or v in (float("inf"), float("-inf"))):
        return "nan" if v != v else "inf" if v > 0 else "-inf"
    return v


class Input:
    """One input: its description and the torch tensor."""

    def __init__(self, spec, tensor):
        self.spec, self.tensor = spec, tensor

    def _view(self, step, tensor):
        spec = dict(self.spec)
        spec["view"] = spec.get("view", []) + [step]
        return Input(spec, tensor)

    def permute(self, *dims):
        return self._view(["permute", *dims], self.tensor.permute(dims))

    def slice(self, dim, start, end, step=1):
        index = [slice(None)] * self.tensor.dim()
        index[dim] = slice(start, end, step)
        return self._view(["slice", dim, start, end, step], self.tensor[tuple(index)])

    def expand(self, *shape):
        return self._view(["expand", *shape], self.tensor.expand(shape))

    def channels_last(self):
        return self._view(["channels_last"], self.tensor)


class Table:
    def __init__(self):
        self.cases, self.values, self.known, self.seed = [], bytearray(), {}, 0

    def store(self, tensor):
        raw = tensor.contiguous()
        raw = raw.view(torch.int16) if raw.dtype == torch.bfloat16 else raw
        content = raw.numpy().tobytes()
        key = (str(tensor.dtype), content)
        if key not in self.known:
            self.values.extend(b"\0" * (-len(self.values) % 8))
            self.known[key] = len(self.values)
            self.values.extend(content)
        return self.known[key]

    def data(self, values, dtype):
        """A stored input: special values, ids, rounding ties."""
        t = values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=TORCH[dtype])
        return Input({"dtype": dtype, "shape": list(t.shape), "at": self.store(t)}, t)

    def gen(self, dtype, *shape, **how):
        """A generated input; each has a seed of its own."""
        self.seed += 1
        return Input({"dtype": dtype, "shape": list(shape), "seed": self.seed, **how}, generate(dtype, shape, self.seed, **how))

    def case(self, name, op, inputs, fn, limit, attrs=None, out_dtype=None):
        """fn gets the inputs, floats widened to float64 (limit "bits": as they are), and gives the expected tensor."""
        wide = [None if i is None else i.tensor.double() if i.tensor.is_floating_point() and limit != "bits" else i.tensor for i in inputs]
        expected = fn(*wide)
        dtype = out_dtype or NAMES.get(expected.dtype) or inputs[0].spec["dtype"]
        if expected.dtype == torch.float64:
            dtype = out_dtype or inputs[0].spec["dtype"]
            expected = round_once(expected.contiguous(), dtype)
        assert NAMES[expected.dtype] == dtype, (name, expected.dtype, dtype)
        out = {"dtype": dtype, "shape": list(expected.shape), "at": self.store(expected)}
        self._add(name, op, inputs, attrs, {"out": out, "limit": limit})

    def error(self, name, op, inputs, attrs, status, message):
        self._add(name, op, inputs, attrs, {"status": status, "error": message})

    def _add(self, name, op, inputs, attrs, rest):
        full = f"{op}.{name}"
        assert all(c["name"] != full for c in self.cases), full
        attrs = {k: [number(x) for x in v] if isinstance(v, (list, tuple)) else number(v) for k, v in (attrs or {}).items()}
        self.cases.append({"name": full, "op": op, "in": [None if i is None else i.spec for i in inputs], "attrs": attrs, **rest})

    def files(self):
        rows = ",\n".join(json.dumps(c, separators=(",", ":")) for c in self.cases)
        text = '{"limits":' + json.dumps(LIMITS) + ',\n"cases":[\n' + rows + "\n]}\n"
        return {"cases.json": text.encode(), "values.bin": bytes(self.values)}
