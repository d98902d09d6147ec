"""Cases of int8: quantize_scale, quantize, quantized_linear, quantized_linear_geglu and quantized_conv2d."""
import math

import torch
import torch.nn.functional as F

from .products import conv_attrs
from .table import FLOATS

INF, NAN = math.inf, math.nan


def rounded(x, most):
    """Values of x (any shape, as f32) by the f32 rule of ops/quantized.c, and what they are multiples of; most broadcasts."""
    up, down = 127 / most, most / 127
    known = torch.isfinite(most)
    usable = known & torch.isfinite(up)
    q = torch.where(usable, torch.round(x * up), torch.zeros(()))
    return q.double(), torch.where(usable, down, torch.where(known, torch.zeros(()), torch.full((), NAN))).double()


def most_of(x, dims):
    return x.abs().amax(dims, keepdim=True) if x.numel() else torch.zeros([1 if i in dims else n for i, n in enumerate(x.shape)])


def weight_of(w, scale):
    """int8 and scales; floats are quantised by output channel, in f32."""
    if scale is not None:
        return w.double(), scale
    w = w.float()
    scale = w.abs().reshape(w.shape[0], -1).amax(1) / 127
    each = scale.reshape(-1, *[1] * (w.dim() - 1))
    return torch.where(each > 0, torch.round(w / each).nan_to_num().clamp(-127, 127), torch.zeros(())).double(), scale.double()


def by_rows(x, w, scale, bias):
    x = x.float()
    w, scale = weight_of(w, scale)
    q, factor = rounded(x, most_of(x, (x.dim() - 1,)))
    y = F.linear(q, w.double()) * (factor * scale)
    return y if bias is None else y + bias


def by_pictures(x, w, scale, bias, **how):
    x = x.float()
    w, scale = weight_of(w, scale)
    q, factor = rounded(x, most_of(x, (1, 2, 3)))
    y = F.conv2d(q, w.double(), None, **how) * (factor * scale.reshape(1, -1, 1, 1))
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def weights(t, *shape):
    return t.gen("i8", *shape, low=-127, high=128)


def scales(t, n):
    return t.gen("f32", n, positive=True, scale=0.01)


def add_weights(t):
    def scale(name, x):
        t.case(name, "quantize_scale", [x], lambda v: (v.float().abs().reshape(v.shape[0], -1).amax(1) / 127 if v.numel() else torch.zeros(v.shape[0])),
               "round", out_dtype="f32")

    def quantize(name, x, s):
        def values(v, s):
            s = s.float().reshape(-1, *[1] * (v.dim() - 1))
            q = torch.where(s > 0, torch.round(v.float() / s).nan_to_num().clamp(-127, 127), torch.zeros(()))
            return q.to(torch.int8)
        t.case(name, "quantize", [x, s], values, "round", out_dtype="i8")

    for dtype in FLOATS:
        scale(f"matrix.{dtype}", t.gen(dtype, 5, 7))
        scale(f"filter.{dtype}", t.gen(dtype, 4, 5, 3, 3))
        quantize(f"matrix.{dtype}", t.gen(dtype, 5, 37), scales(t, 5))
        quantize(f"filter.{dtype}", t.gen(dtype, 4, 5, 3, 3), scales(t, 4))
    scale("one.f32", t.gen("f32", 1, 1))
    scale("vector.f32", t.gen("f32", 6))
    scale("strided.f32", t.gen("f32", 7, 5).permute(1, 0))
    scale("expanded.f32", t.gen("f32", 1, 5).expand(3, 5))
    scale("last.f32", t.gen("f32", 3, 5, 2, 2).channels_last())
    scale("special.f32", t.data([[NAN, 1.0], [INF, 1.0], [-0.0, 0.0], [1e-40, -1e-40], [-2.0, 1.0]], "f32"))
    scale("none.f32", t.gen("f32", 0, 3))
    scale("large.f32", t.gen("f32", 3, 1100))
    quantize("vector.f32", t.gen("f32", 6), scales(t, 6))
    quantize("strided.f32", t.gen("f32", 7, 5).permute(1, 0), scales(t, 10).slice(0, 0, 10, 2))
    quantize("expanded.f32", t.gen("f32", 1, 5).expand(3, 5), scales(t, 1).expand(3))
    quantize("last.f32", t.gen("f32", 3, 5, 2, 2).channels_last(), scales(t, 3))
    quantize("ties.f32", t.data([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, -126.5, 300.0, -300.0]], "f32"), t.data([1.0], "f32"))
    quantize("special.f32", t.data([[NAN, INF, -INF, -0.0], [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0], [1e-40, 0.0, 1.0, -1.0]], "f32"),
             t.data([1.0, 0.0, NAN, 1.0], "f32"))
    quantize("none.f32", t.gen("f32", 0, 3), scales(t, 0))
    quantize("large.f32", t.gen("f32", 3, 1100), scales(t, 3))


def add_linear(t):
    def linear(name, x, w, s=None, b=None):
        t.case(name, "quantized_linear", [x, w, s, b], by_rows, "sum")

    def geglu(name, x, w, s=None, b=None):
        def values_and_gates(*inputs):
            values, gates = by_rows(*inputs).chunk(2, -1)
            return values * F.gelu(gates)
        t.case(name, "quantized_linear_geglu", [x, w, s, b], values_and_gates, "sum")

    for case, parts in ((linear, 1), (geglu, 2)):
        for dtype in FLOATS:
            case(f"plain.{dtype}", t.gen(dtype, 4, 13), weights(t, 6 * parts, 13), scales(t, 6 * parts), t.gen(dtype, 6 * parts))
            case(f"bare.{dtype}", t.gen(dtype, 2, 3, 16), weights(t, 9 * parts, 16), scales(t, 9 * parts))
        case("one.f32", t.gen("f32", 1), weights(t, parts, 1), scales(t, parts), t.gen("f32", parts))
        case("strided.f32", t.gen("f32", 12, 5).permute(1, 0), weights(t, 12, 7 * parts).permute(1, 0),
             scales(t, 14 * parts).slice(0, 0, 14 * parts, 2), t.gen("f32", 14 * parts).slice(0, 0, 14 * parts, 2))
        case("expanded.f32", t.gen("f32", 1, 6).expand(4, 6), weights(t, 4, 6), scales(t, 1).expand(4), t.gen("f32", 1).expand(4))
        case("no_k.f32", t.gen("f32", 2, 0), weights(t, 4, 0), scales(t, 4), t.gen("f32", 4))
        case("no_rows.f32", t.gen("f32", 0, 4), weights(t, 6, 4), scales(t, 6))
        case("no_out.f32", t.gen("f32", 2, 4), weights(t, 0, 4), scales(t, 0))
        case("panels.f32", t.gen("f32", 35, 70), weights(t, 37 * parts, 70), scales(t, 37 * parts), t.gen("f32", 37 * parts))
        case("deep.bf16", t.gen("bf16", 33, 1290), weights(t, 17 * parts, 1290), scales(t, 17 * parts), t.gen("bf16", 17 * parts))
        case("most.f32", t.data([[127.0] * 300, [-127.0] * 300], "f32"), t.data([[127] * 300, [-127] * 300], "i8"), t.data([1.0, 2.0], "f32"))
        case("special.f32", t.data([[1.0, INF, 2.0], [NAN, 1.0, -0.0], [0.0, 0.0, 0.0], [1e-40, 0.0, -1e-40], [3.0, 1.0, 2.0]], "f32"),
             weights(t, 4, 3), scales(t, 4), t.gen("f32", 4))
        for dtype in FLOATS:
            case(f"float.{dtype}", t.gen("f32", 3, 37), t.gen(dtype, 8 * parts, 37), None, t.gen(dtype, 8 * parts))
        case("float_panels.bf16", t.gen("bf16", 17, 70), t.gen("f16", 37 * parts, 70))
        case("float_special.f32", t.gen("f32", 2, 3), t.data([[1.0, NAN, 2.0], [0.0, 0.0, -0.0], [INF, 1.0, 2.0], [3.0, -1.0, 0.5]], "f32"))
        case("scale.f32", t.gen("f32", 2, 5), weights(t, 4, 5), t.data([0.0, NAN, INF, 1.0], "f32"))


def add_conv(t):
    def conv(name, x, w, s=None, b=None, stride=1, padding=0, dilation=1, groups=1):
        how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        t.case(name, "quantized_conv2d", [x, w, s, b], lambda *inputs: by_pictures(*inputs, **how), "conv",
               conv_attrs(stride, padding, dilation, groups))

    for dtype in FLOATS:
        conv(f"3x3.{dtype}", t.gen(dtype, 2, 5, 7, 6), weights(t, 4, 5, 3, 3), scales(t, 4), t.gen(dtype, 4), padding=1)
        conv(f"1x1.{dtype}", t.gen(dtype, 2, 9, 5, 3), weights(t, 7, 9, 1, 1), scales(t, 7), t.gen(dtype, 7))
        conv(f"last.{dtype}", t.gen(dtype, 2, 16, 6, 5).channels_last(), weights(t, 8, 16, 3, 3), scales(t, 8), None, 2, 1)
    conv("strips.bf16", t.gen("bf16", 1, 64, 3, 16).channels_last(), weights(t, 33, 64, 3, 3), scales(t, 33), t.gen("bf16", 33), 1, 1)
    conv("strips_of_two.f32", t.gen("f32", 2, 66, 2, 32).channels_last(), weights(t, 5, 66, 3, 3), scales(t, 5), t.gen("f32", 5), 1, 1)
    conv("strided_strips.f32", t.gen("f32", 1, 64, 4, 32).channels_last(), weights(t, 8, 64, 3, 3), scales(t, 8), None, 2, 1)
    conv("uneven.f32", t.gen("f32", 2, 4, 9, 8), weights(t, 6, 4, 3, 2), scales(t, 6), t.gen("f32", 6), (2, 3), (1, 2), (2, 1))
    conv("wide_padding.f32", t.gen("f32", 1, 3, 4, 5), weights(t, 2, 3, 3, 3), scales(t, 2), None, 1, 4)
    conv("groups.f32", t.gen("f32", 2, 6, 5, 5), weights(t, 4, 3, 3, 3), scales(t, 4), t.gen("f32", 4), 1, 1, 1, 2)
    conv("deep.f32", t.gen("f32", 1, 640, 2, 3).channels_last(), weights(t, 5, 640, 3, 3), scales(t, 5), None, 1, 1)
    conv("strided.f32", t.gen("f32", 5, 6, 2, 4).permute(2, 3, 0, 1), weights(t, 3, 3, 5, 4).permute(2, 3, 0, 1),
         scales(t, 10).slice(0, 0, 10, 2), None, 1, 1)
    conv("expanded.f32", t.gen("f32", 1, 1, 4, 4).expand(2, 3, 4, 4), weights(t, 2, 3, 3, 3), scales(t, 1).expand(2), t.gen("f32", 1).expand(2))
    conv("large.f32", t.gen("f32", 1, 8, 12, 13), weights(t, 7, 8, 3, 3), scales(t, 7), None, 1, 1)
    conv("one.f32", t.gen("f32", 1, 1, 1, 1), weights(t, 1, 1, 1, 1), scales(t, 1))
    conv("no_batch.f32", t.gen("f32", 0, 4, 5, 5), weights(t, 3, 4, 3, 3), scales(t, 3))
    for dtype in FLOATS:
        conv(f"float.{dtype}", t.gen("f32", 1, 5, 4, 3).channels_last(), t.gen(dtype, 6, 5, 3, 3), None, t.gen(dtype, 6), padding=1)
    conv("float_strips.bf16", t.gen("bf16", 1, 70, 2, 16).channels_last(), t.gen("f16", 33, 70, 3, 3), None, None, 1, 1)
    conv("special.f32", t.data([[[[1.0, NAN]]], [[[INF, 1.0]]], [[[0.0, -0.0]]], [[[1e-40, 0.0]]], [[[2.0, 1.0]]]], "f32"),
         weights(t, 2, 1, 1, 1), scales(t, 2), t.gen("f32", 2))


def add_errors(t):
    x, w, s = t.gen("f32", 2, 3), weights(t, 4, 3), scales(t, 4)
    for op in ("quantized_linear", "quantized_linear_geglu"):
        t.error("float", op, [x, t.gen("f32", 4, 3), s, None], {}, "dtype", f"{op}: weight is f32: expected i8; tern_quantize makes it")
        t.error("no_scale", op, [x, w, None, None], {}, "invalid", f"{op}: weight is i8, scale is missing: expected (4,) f32")
        t.error("scale", op, [x, w, scales(t, 2), None], {}, "shape", f"{op}: scale does not fit: expected (4,), found (2,) f32")
        t.error("bias", op, [x, w, s, t.gen("f32", 3)], {}, "shape", f"{op}: bias does not fit: expected (4,)")
        t.error("columns", op, [x, weights(t, 4, 4), s, None], {}, "shape", f"{op}: weight has 4 columns")
    t.error("odd", "quantized_linear_geglu", [x, weights(t, 5, 3), scales(t, 5), None], {}, "shape",
            "quantized_linear_geglu: weight has 5 rows: expected as many for values as for gates")
    picture = t.gen("f32", 1, 3, 4, 4)
    plain = conv_attrs(1, 0, 1, 1)
    t.error("float", "quantized_conv2d", [picture, t.gen("f16", 4, 3, 3, 3), s, None], plain, "dtype", "quantized_conv2d: weight is f16: expected i8")
    t.error("scale", "quantized_conv2d", [picture, weights(t, 4, 3, 3, 3), scales(t, 3), None], plain, "shape",
            "quantized_conv2d: scale does not fit: expected (4,)")
    t.error("channels", "quantized_conv2d", [picture, weights(t, 4, 2, 3, 3), s, None], plain, "shape",
            "quantized_conv2d: weight has 2 input channels, x has 3 with groups 1")
    t.error("integer", "quantize_scale", [t.gen("i8", 3)], {}, "dtype", "quantize_scale: x is i8")
    t.error("scalar", "quantize_scale", [t.gen("f32")], {}, "shape", "quantize_scale: x is a scalar: expected (N, ...)")
    t.error("scale", "quantize", [x, scales(t, 3)], {}, "shape", "quantize: scale does not fit: expected (2,), found (3,) f32")
    t.error("integer", "quantize", [t.gen("i32", 2, 3), scales(t, 2)], {}, "dtype", "quantize: x is i32")


def add(t):
    for part in (add_weights, add_linear, add_conv, add_errors):
        part(t)


def add_denormals(t):
    """Floats whose scale is one or two of the least f32: the quotient may be above 127."""
    x, w = t.data([[1e30, 2e30, 3e30]], "f32"), t.data([[2.5e-43, -2.5e-43, 1e-43], [4e-45, 1e-44, -3e-43]], "f32")
    t.case("float_denormal.f32", "quantized_linear", [x, w, None, None], by_rows, "round")


def add_winograd(t):
    """Convolutions that may make int8 of Winograd's transforms, against exact ones of the int8 weights: odd sizes, edges, many channels, many tiles."""
    def conv(name, x, w, s, b, padding=1):
        def exact(x, w, s, b):
            w, s = weight_of(w, s)
            return F.conv2d(x.float().double(), w * s.reshape(-1, 1, 1, 1).double(), None if b is None else b.double(), 1, padding)
        t.case(name, "quantized_conv2d", [x, w, s, b], exact, "int8", {**conv_attrs(1, padding, 1, 1), "winograd": 1})

    for dtype in FLOATS:
        conv(f"winograd.{dtype}", t.gen(dtype, 2, 5, 7, 6).channels_last(), weights(t, 4, 5, 3, 3), scales(t, 4), t.gen(dtype, 4))
    conv("winograd_floats.bf16", t.gen("bf16", 1, 70, 5, 3).channels_last(), t.gen("f16", 18, 70, 3, 3), None, t.gen("f32", 18))
    conv("winograd_deep.bf16", t.gen("bf16", 1, 1290, 2, 3).channels_last(), weights(t, 5, 1290, 3, 3), scales(t, 5), None)
    conv("winograd_tiles.f32", t.gen("f32", 1, 9, 14, 15).channels_last(), weights(t, 2, 9, 3, 3), scales(t, 2), None)
    conv("winograd_panels.bf16", t.gen("bf16", 1, 16, 2, 2).channels_last(), weights(t, 81, 16, 3, 3), scales(t, 81), t.gen("bf16", 81))
    conv("winograd_bare.f32", t.gen("f32", 2, 8, 3, 5).channels_last(), weights(t, 3, 8, 3, 3), scales(t, 3), None, 0)
    conv("winograd_padded.f32", t.gen("f32", 1, 8, 2, 1).channels_last(), weights(t, 3, 8, 3, 3), scales(t, 3), None, 3)


def add_sdpa(t):
    """Attention that may compute in int8: many keys, few, sizes that fill nothing up, keys far from zero."""
    def sdpa(name, q, k, v):
        t.case(name, "sdpa", [q, k, v, None], F.scaled_dot_product_attention, "int8", {"is_causal": 0, "scale": 0.0, "int8": 1})

    for dtype in FLOATS:
        sdpa(f"int8.{dtype}", t.gen(dtype, 1, 2, 9, 40), t.gen(dtype, 1, 2, 300, 40), t.gen(dtype, 1, 2, 300, 40))
    sdpa("int8_few.bf16", t.gen("bf16", 1, 2, 5, 16), t.gen("bf16", 1, 2, 7, 16), t.gen("bf16", 1, 2, 7, 16))
    sdpa("int8_odd.bf16", t.gen("bf16", 2, 1, 17, 33), t.gen("bf16", 2, 1, 257, 33), t.gen("bf16", 2, 1, 257, 19))
    sdpa("int8_positive.bf16", t.gen("bf16", 1, 1, 3, 80), t.gen("bf16", 1, 1, 512, 80, positive=True), t.gen("bf16", 1, 1, 512, 80))
