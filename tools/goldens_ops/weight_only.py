"""Cases of weights in few bits: weight_only_linear, weight_only_linear_geglu and weight_only_conv2d; pack_weight and unpack_weight."""
import math

import torch
import torch.nn.functional as F

from .products import conv_attrs
from .table import FLOATS

INF, NAN = math.inf, math.nan
LEAST = 2.0**-126


def known(scale):
    scale = torch.where(torch.isfinite(scale), scale, torch.full((), NAN))
    return torch.where(scale.abs() < LEAST, torch.zeros(()), scale)


def whole(x, scale, least, most):
    q = torch.round(x / scale).clamp(least, most)
    return torch.where(torch.isfinite(scale) & (scale != 0), q, torch.zeros(()))


def numbers(w, bits):
    """Rows of whole numbers, tap by tap and channel by channel there, and the scale of each group, by the rule of ops/weight_only.h. With 4
    bits groups are filled with zeros."""
    w = w.float()
    rows = w.permute(0, *range(2, w.dim()), 1).reshape(w.shape[0], math.prod(w.shape[1:]))
    if bits == 8:
        most = rows.abs().amax(1, keepdim=True) if rows.numel() else torch.zeros(w.shape[0], 1)
        scale = known(most / 127)
        return whole(rows, scale, -127, 127), scale
    groups = F.pad(rows, (0, -rows.shape[1] % 32)).reshape(w.shape[0], -1, 32)
    if not groups.numel():
        return rows, rows
    size = groups.abs()
    most = groups.gather(2, torch.where(size.isnan(), torch.full((), INF), size).argmax(2, keepdim=True))
    most = torch.where(size.isnan().any(2, keepdim=True), torch.full((), NAN), most)
    scale = known(most / -8).to(torch.bfloat16).float()
    return whole(groups, scale, -8, 7).reshape(w.shape[0], -1), scale[..., 0]


def kept(w, bits):
    """What a weight (O, C, ...) of floats stands for."""
    if not w.numel():
        return w.double()
    q, scale = numbers(w, bits)
    rows = (q.reshape(*scale.shape, -1).double() * scale.double().unsqueeze(-1)).reshape(w.shape[0], -1)[:, :math.prod(w.shape[1:])]
    return rows.reshape(w.shape[0], *w.shape[2:], w.shape[1]).permute(0, w.dim() - 1, *range(1, w.dim() - 1))


def words(parts, bits):
    """Numbers below 2^bits, the first in the low bits of a word."""
    parts = F.pad(parts, (0, -parts.shape[1] % (32 // bits))).long() % 2**bits
    return (parts.reshape(parts.shape[0], -1, 32 // bits) << torch.arange(0, 32, bits)).sum(2)


def packed(w, bits):
    """The words of a weight."""
    q, scale = numbers(w, bits)
    if bits == 8:
        return torch.cat([torch.where(scale.isnan(), torch.full((), 0x7fc00000), scale.view(torch.int32).long()), words(q, 8)], 1).to(torch.int32)
    odd = -scale.shape[1] % 2  # two groups go together
    bf16 = torch.where(scale.isnan(), torch.full((), 0x7fc0), scale.to(torch.bfloat16).view(torch.int16).long())
    values = words(F.pad(q, (0, odd * 32)) + 8, 4).reshape(w.shape[0], (scale.shape[1] + odd) // 2, 8)
    both = torch.cat([words(F.pad(bf16, (0, odd)), 16).unsqueeze(2), values], 2)
    return both.reshape(w.shape[0], -1).to(torch.int32)


def add_linear(t):
    for bits in (8, 4):
        def linear(name, x, w, b=None):
            t.case(f"{name}.{bits}", "weight_only_linear", [x, w, b], lambda v, k, c: F.linear(v, kept(k, bits), c), "sum", {"bits": bits})

        def geglu(name, x, w, b=None):
            def values_and_gates(v, k, c):
                values, gates = F.linear(v, kept(k, bits), c).chunk(2, -1)
                return values * F.gelu(gates)
            t.case(f"{name}.{bits}", "weight_only_linear_geglu", [x, w, b], values_and_gates, "sum", {"bits": bits})

        for case, parts in ((linear, 1), (geglu, 2)):
            for dtype in FLOATS if bits == 8 else ("f32",):
                case(f"plain.{dtype}", t.gen(dtype, 3, 13), t.gen(dtype, 5 * parts, 13), t.gen(dtype, 5 * parts))
            case("weight_f16.bf16", t.gen("bf16", 33, 70), t.gen("f16", 9 * parts, 70), t.gen("f32", 9 * parts))
            case("panels.f32", t.gen("f32", 3, 77), t.gen("f32", 37 * parts, 77), t.gen("f32", 37 * parts))
            case("deep.bf16", t.gen("bf16", 2, 1290), t.gen("bf16", 49 * parts, 1290))
            case("deep.f32", t.gen("f32", 14, 1290), t.gen("bf16", 9 * parts, 1290))
        linear("strided.f32", t.gen("f32", 12, 5).permute(1, 0), t.gen("f32", 12, 7).permute(1, 0))
    geglu("strided.f32", t.gen("f32", 12, 5).permute(1, 0), t.gen("f32", 12, 6).permute(1, 0))


def add_special(t):
    x = t.data([[1.0, -0.0, 2.0], [1e-40, 3.0, 1.0]], "f32")
    w = t.data([[1.0, NAN, 2.0], [0.0, 0.0, -0.0], [INF, 1.0, 2.0], [3.0, -3.0, 0.5], [1e-40, -1e-41, 3e-39], [3e38, -3e38, 1.0]], "f32")
    halves = t.data([[1.0, NAN, 2.0], [6e-8, -1.2e-7, 0.0], [-INF, 1.0, 2.0], [65504.0, 6e-5, 1.0]], "f16")
    for bits in (8, 4):
        how = {"bits": bits}
        for name, weight in (("special", w), ("halves", halves)):
            t.case(f"{name}.f32.{bits}", "weight_only_linear", [x, weight, None], lambda v, k, c: F.linear(v, kept(k, bits)), "sum", how)
            t.case(f"{name}.f32.{bits}", "weight_only_linear_geglu", [x, weight, None],
                   lambda v, k, c: (lambda y: y[0] * F.gelu(y[1]))(F.linear(v, kept(k, bits)).chunk(2, -1)), "sum", how)
        picture, filters = t.data([[[[1.0, -0.0]], [[2.0, 1e-40]]]], "f32"), t.data([[[[NAN]], [[1.0]]], [[[INF]], [[1.0]]], [[[1.0]], [[-2.0]]]], "f32")
        t.case(f"special.f32.{bits}", "weight_only_conv2d", [picture, filters, None], lambda v, k, c: F.conv2d(v, kept(k, bits)), "conv",
               {**conv_attrs(1, 0, 1, 1), **how})
    for op, parts in (("weight_only_linear", 1), ("weight_only_linear_geglu", 2)):
        def product(v, k, c):
            y = F.linear(v, kept(k, 4), c)
            return y if parts == 1 else y[..., : y.shape[-1] // 2] * F.gelu(y[..., y.shape[-1] // 2:])
        for name, inputs in (("one.f32", [t.gen("f32", 1), t.gen("f32", parts, 1), t.gen("f32", parts)]),
                             ("expanded.f32", [t.gen("f32", 1, 6).expand(4, 6), t.gen("f32", 1, 6).expand(4, 6), None]),
                             ("no_k.f32", [t.gen("f32", 2, 0), t.gen("f32", 4, 0), t.gen("f32", 4)]),
                             ("no_rows.f32", [t.gen("f32", 0, 4), t.gen("f32", 6, 4), None])):
            t.case(name, op, inputs, product, "sum", {"bits": 4})


def add_conv(t):
    for bits in (8, 4):
        def conv(name, x, w, b=None, stride=1, padding=0, dilation=1, groups=1):
            t.case(f"{name}.{bits}", "weight_only_conv2d", [x, w, b], lambda v, k, c: F.conv2d(v, kept(k, bits), c, stride, padding, dilation, groups),
                   "conv", {**conv_attrs(stride, padding, dilation, groups), "bits": bits})

        for dtype in FLOATS if bits == 8 else ("f32",):
            conv(f"3x3.{dtype}", t.gen(dtype, 2, 5, 4, 3), t.gen(dtype, 4, 5, 3, 3), t.gen(dtype, 4), padding=1)
        conv("weight_f16.bf16", t.gen("bf16", 1, 70, 3, 3).channels_last(), t.gen("f16", 33, 70, 3, 3), t.gen("f32", 33), padding=1)
        conv("last.f32", t.gen("f32", 2, 16, 6, 5).channels_last(), t.gen("f32", 8, 16, 3, 3), None, 2, 1)
        conv("strips.bf16", t.gen("bf16", 1, 64, 2, 16).channels_last(), t.gen("bf16", 20, 64, 3, 3), t.gen("bf16", 20), 1, 1)
        conv("deep_strips.bf16", t.gen("bf16", 1, 640, 2, 16).channels_last(), t.gen("bf16", 5, 640, 3, 3), None, 1, 1)
        conv("deep.f32", t.gen("f32", 1, 640, 2, 3).channels_last(), t.gen("f32", 5, 640, 3, 3), None, 1, 1)
        conv("groups.f32", t.gen("f32", 1, 6, 3, 3), t.gen("f32", 4, 3, 3, 3), t.gen("f32", 4), 1, 1, 1, 2)
    conv("uneven.f32", t.gen("f32", 1, 4, 9, 8), t.gen("f32", 6, 4, 3, 2), t.gen("f32", 6), (2, 3), (1, 2), (2, 1))
    conv("strided.f32", t.gen("f32", 5, 6, 1, 4).permute(2, 3, 0, 1), t.gen("f32", 3, 3, 2, 4).permute(2, 3, 0, 1), None, 1, 1)
    conv("expanded.f32", t.gen("f32", 1, 1, 4, 4).expand(1, 3, 4, 4), t.gen("f32", 2, 3, 3, 3), t.gen("f32", 1).expand(2))
    conv("one.f32", t.gen("f32", 1, 1, 1, 1), t.gen("f32", 1, 1, 1, 1))
    conv("no_batch.f32", t.gen("f32", 0, 4, 5, 5), t.gen("f32", 3, 4, 3, 3))


def add_errors(t):
    x, w = t.gen("f32", 2, 3), t.gen("f32", 4, 3)
    plain = conv_attrs(1, 0, 1, 1)
    for op in ("weight_only_linear", "weight_only_linear_geglu"):
        for bits in (3, 2**31):
            t.error(f"bits_{bits}", op, [x, w, None], {"bits": bits}, "invalid", f"{op}: bits: expected 8 or 4, found {bits}")
        t.error("integer", op, [x, t.gen("i8", 4, 3), None], {"bits": 8}, "dtype", f"{op}: weight is i8")
    picture, filters = t.gen("f32", 1, 3, 4, 4), t.gen("f32", 4, 3, 3, 3)
    for bits in (0, -4):
        t.error(f"bits_{bits}", "weight_only_conv2d", [picture, filters, None], {**plain, "bits": bits}, "invalid",
                f"weight_only_conv2d: bits: expected 8 or 4, found {bits}")
    t.error("channels", "weight_only_conv2d", [picture, t.gen("f32", 4, 2, 3, 3), None], {**plain, "bits": 8}, "shape",
            "weight_only_conv2d: weight has 2 input channels, x has 3 with groups 1")
    t.error("stride", "weight_only_conv2d", [picture, filters, None], {**conv_attrs(2**31, 0, 1, 1), "bits": 8}, "invalid", "weight_only_conv2d")


SPECIAL = [[1.0, NAN, 2.0], [0.0, 0.0, -0.0], [INF, 1.0, 2.0], [3.0, -3.0, 0.5], [1e-40, -1e-41, 3e-39], [3e38, -3e38, 1.0], [2.0**-123, 1e-38, 0.0]]


def add_packed(t):
    def both(name, w, bits, dtypes=("f32",)):
        t.case(f"{name}.{bits}", "pack_weight", [w], lambda v: packed(v, bits), "bits", {"bits": bits})
        for dtype in dtypes:
            t.case(f"{name}.{bits}.to_{dtype}", "unpack_weight", [t.data(packed(w.tensor, bits), "i32")], lambda _: kept(w.tensor, bits), "round",
                   {"shape": list(w.tensor.shape), "dtype": FLOATS.index(dtype), "bits": bits}, dtype)

    for bits in (8, 4):
        for dtype in FLOATS:
            both(f"matrix.{dtype}", t.gen(dtype, 5, 77), bits, FLOATS)
        both("filters.f32", t.gen("f32", 3, 5, 3, 3), bits, FLOATS)
        both("filters_last.f16", t.gen("f16", 3, 24, 3, 3).channels_last(), bits)
        both("uneven.bf16", t.gen("bf16", 2, 7, 2, 5), bits)
        both("deep.f32", t.gen("f32", 2, 1300), bits)
        both("pairs.f32", t.gen("f32", 3, 128), bits)
        both("half_a_pair.f32", t.gen("f32", 3, 96), bits)
        both("strided.f32", t.gen("f32", 40, 6).permute(1, 0), bits)
        both("expanded.f32", t.gen("f32", 1, 6).expand(4, 6), bits)
        both("one.f32", t.gen("f32", 1, 1), bits)
        both("special.f32", t.data(SPECIAL, "f32"), bits)
        both("tiny.f16", t.data([[6e-5, -3e-5, 1e-6, 0.0], [1e-5, 2e-5, -2e-5, 3e-6]], "f16"), bits, FLOATS)
        both("one_word.f32", t.data([[-0.5]], "f32"), bits)
        for name, turn in (("strided", lambda x: x.permute(1, 0)), ("expanded", lambda x: x.expand(3, x.tensor.shape[1]))):
            w = t.gen("f32", 1 if name == "expanded" else 3, 70).tensor
            rows = packed(w, bits).T.contiguous() if name == "strided" else packed(w, bits)
            w = w.expand(3, 70)
            t.case(f"{name}.{bits}", "unpack_weight", [turn(t.data(rows, "i32"))], lambda _: kept(w, bits), "round",
                   {"shape": [3, 70], "dtype": 0, "bits": bits}, "f32")
        t.case(f"special.f16.{bits}", "pack_weight", [t.data([[1.0, NAN, 2.0], [6e-8, -1.2e-7, 0.0], [-INF, 1.0, 2.0], [65504.0, 6e-5, 1.0]], "f16")],
               lambda v: packed(v, bits), "bits", {"bits": bits})
        t.case(f"no_rows.f32.{bits}", "pack_weight", [t.gen("f32", 0, 5)], lambda _: torch.zeros(0, 3 if bits == 8 else 9, dtype=torch.int32), "bits",
               {"bits": bits})
        t.case(f"no_depth.f32.{bits}", "pack_weight", [t.gen("f32", 3, 0)], lambda _: torch.zeros(3, bits // 8, dtype=torch.int32), "bits",
               {"bits": bits})
        t.case(f"no_rows.{bits}", "unpack_weight", [t.gen("i32", 0, 3 if bits == 8 else 9)], lambda _: torch.zeros(0, 8).double(), "round",
               {"shape": [0, 8], "dtype": 0, "bits": bits}, "f32")


def add_packed_wide(t):
    """Channels by eight, which a text may store at once."""
    for bits in (8, 4):
        for name, shape in (("wide", (3, 200)), ("wide_filters", (2, 40, 3, 3))):
            w = t.gen("f32", *shape).tensor
            for dtype in ("f16", "bf16"):
                t.case(f"{name}.{bits}.to_{dtype}", "unpack_weight", [t.data(packed(w, bits), "i32")], lambda _: kept(w, bits), "round",
                       {"shape": list(shape), "dtype": FLOATS.index(dtype), "bits": bits}, dtype)


def add_packed_errors(t):
    for bits in (5, 2**31):
        t.error(f"bits_{bits}", "pack_weight", [t.gen("f32", 2, 3)], {"bits": bits}, "invalid", f"pack_weight: bits: expected 8 or 4, found {bits}")
        t.error(f"bits_{bits}", "unpack_weight", [t.gen("i32", 2, 3)], {"shape": [2, 8], "dtype": 0, "bits": bits}, "invalid",
                f"unpack_weight: bits: expected 8 or 4, found {bits}")
    t.error("integer", "pack_weight", [t.gen("i32", 2, 3)], {"bits": 8}, "dtype", "pack_weight: weight is i32")
    for shape in ((3,), (2, 3, 4), (1, 1, 1, 1, 1)):
        t.error(f"dims_{len(shape)}", "pack_weight", [t.gen("f32", *shape)], {"bits": 8}, "shape", "pack_weight: weight: expected (O, C) or (O, C, kh, kw), found")
        t.error(f"dims_{len(shape)}", "unpack_weight", [t.gen("i32", 2, 3)], {"shape": list(shape), "dtype": 0, "bits": 8}, "shape",
                f"unpack_weight: shape: expected (O, C) or (O, C, kh, kw), found {len(shape)} dimensions")
    for name, found, shape, bits, expected in (("rows", (3, 3), [2, 8], 8, "(2, 3)"), ("words", (2, 3), [2, 9], 8, "(2, 4)"),
                                               ("words_4", (2, 9), [2, 65], 4, "(2, 18)"), ("dims", (2, 3, 1), [2, 8], 8, "(2, 3)")):
        t.error(name, "unpack_weight", [t.gen("i32", *found)], {"shape": shape, "dtype": 0, "bits": bits}, "shape",
                f"unpack_weight: packed: expected {expected}, found ({', '.join(map(str, found))})")
    t.error("floats", "unpack_weight", [t.gen("f32", 2, 3)], {"shape": [2, 8], "dtype": 0, "bits": 8}, "dtype", "unpack_weight: packed is f32: expected i32")
    for dtype in (3, -1, 2**40):
        t.error(f"dtype_{dtype}", "unpack_weight", [t.gen("i32", 2, 3)], {"shape": [2, 8], "dtype": dtype, "bits": 8}, "dtype", f"unpack_weight: dtype is {dtype}")
    for shape in ([2, -8], [2**62, 8]):
        t.error(f"shape_{shape[0]}", "unpack_weight", [t.gen("i32", 2, 3)], {"shape": shape, "dtype": 0, "bits": 8}, "shape", "unpack_weight")


def add(t):
    for part in (add_linear, add_special, add_conv, add_errors):
        part(t)
