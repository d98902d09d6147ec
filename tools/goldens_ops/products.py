"""Cases of matmul, linear, conv2d, conv_transpose2d and sdpa."""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from .table import FLOATS

INF, NAN = math.inf, math.nan


def matmul_cases(t):
    def mm(name, a, b):
        t.case(name, "matmul", [a, b], torch.matmul, "sum")

    for dtype in FLOATS:
        mm(f"plain.{dtype}", t.gen(dtype, 7, 13), t.gen(dtype, 13, 5))
        mm(f"batch.{dtype}", t.gen(dtype, 2, 3, 4, 9), t.gen(dtype, 2, 3, 9, 6))
        mm(f"transposed.{dtype}", t.gen(dtype, 2, 17, 8), t.gen(dtype, 2, 11, 8).permute(0, 2, 1))
    mm("broadcast.f32", t.gen("f32", 3, 1, 4, 5), t.gen("f32", 2, 5, 6))
    mm("broadcast_x.f32", t.gen("f32", 4, 5), t.gen("f32", 3, 2, 5, 6))
    mm("x_transposed.f32", t.gen("f32", 9, 7).permute(1, 0), t.gen("f32", 9, 4))
    mm("heads.f32", t.gen("f32", 2, 6, 3, 8).permute(0, 2, 1, 3), t.gen("f32", 2, 5, 3, 8).permute(0, 2, 3, 1))
    mm("sliced.f32", t.gen("f32", 6, 20).slice(1, 1, 20, 2), t.gen("f32", 10, 9).slice(1, 0, 9, 3))
    mm("expanded.f32", t.gen("f32", 1, 4, 5).expand(3, 4, 5), t.gen("f32", 3, 5, 2))
    mm("vectors.f32", t.gen("f32", 33), t.gen("f32", 33))
    mm("vector_matrix.f32", t.gen("f32", 5), t.gen("f32", 2, 5, 3))
    mm("matrix_vector.f16", t.gen("f16", 2, 4, 5), t.gen("f16", 5))
    mm("strided_vector.f32", t.gen("f32", 10).slice(0, 0, 10, 2), t.gen("f32", 5, 3))
    mm("row.f32", t.gen("f32", 1, 65), t.gen("f32", 65, 33))
    mm("column.f32", t.gen("f32", 33, 65), t.gen("f32", 65, 1))
    mm("no_k.f32", t.gen("f32", 2, 0), t.gen("f32", 0, 3))
    mm("no_rows.f32", t.gen("f32", 0, 4), t.gen("f32", 4, 3))
    mm("no_batch.f32", t.gen("f32", 0, 2, 4), t.gen("f32", 4, 3))
    mm("no_vector.f32", t.gen("f32", 0), t.gen("f32", 0))
    mm("nan.f32", t.data([[NAN, 1.0], [INF, 1.0], [1.0, 2.0]], "f32"), t.data([[1.0, 0.0], [-INF, 2.0]], "f32"))
    mm("large.f32", t.gen("f32", 65, 257), t.gen("f32", 257, 34))
    mm("large.bf16", t.gen("bf16", 33, 129), t.gen("bf16", 129, 65))
    mm("large.f16", t.gen("f16", 34, 128), t.gen("f16", 128, 64))


def linear_cases(t):
    def linear(name, x, w, b):
        t.case(name, "linear", [x, w, b], F.linear, "sum")

    for dtype in FLOATS:
        linear(f"plain.{dtype}", t.gen(dtype, 4, 13), t.gen(dtype, 7, 13), t.gen(dtype, 7))
        linear(f"bare.{dtype}", t.gen(dtype, 2, 3, 16), t.gen(dtype, 9, 16), None)
        for other in FLOATS:
            if other != dtype:
                linear(f"weight_{other}.{dtype}", t.gen(dtype, 3, 24), t.gen(other, 10, 24), t.gen(other, 10))
    linear("vector.f32", t.gen("f32", 11), t.gen("f32", 5, 11), t.gen("f32", 5))
    linear("one_out.f32", t.gen("f32", 6, 11), t.gen("f32", 1, 11), t.gen("f32", 1))
    linear("one_in.f32", t.gen("f32", 6, 1), t.gen("f32", 5, 1), t.gen("f32", 5))
    linear("strided.f32", t.gen("f32", 12, 5).permute(1, 0), t.gen("f32", 12, 7).permute(1, 0), t.gen("f32", 14).slice(0, 0, 14, 2))
    linear("sliced.f32", t.gen("f32", 3, 4, 12).slice(2, 2, 10), t.gen("f32", 5, 16).slice(1, 0, 16, 2), None)
    linear("expanded.f32", t.gen("f32", 1, 6).expand(4, 6), t.gen("f32", 3, 6), t.gen("f32", 1).expand(3))
    linear("no_k.f32", t.gen("f32", 2, 0), t.gen("f32", 3, 0), t.gen("f32", 3))
    linear("no_rows.f32", t.gen("f32", 0, 4), t.gen("f32", 3, 4), t.gen("f32", 3))
    linear("no_out.f32", t.gen("f32", 2, 4), t.gen("f32", 0, 4), None)
    linear("eight.f32", t.gen("f32", 1, 2, 1, 2, 1, 2, 1, 5), t.gen("f32", 3, 5), t.gen("f32", 3))
    linear("large.f32", t.gen("f32", 2, 77, 96), t.gen("f32", 33, 96), t.gen("f32", 33))
    linear("large.bf16", t.gen("bf16", 37, 320), t.gen("bf16", 70, 320), t.gen("bf16", 70))
    linear("deep.f32", t.gen("f32", 5, 1280), t.gen("f32", 33, 1280), t.gen("f32", 33))


def conv_attrs(stride, padding, dilation, groups):
    pair = lambda v: list(v) if isinstance(v, tuple) else [v, v]  # noqa: E731
    return {"stride": pair(stride), "padding": pair(padding), "dilation": pair(dilation), "groups": groups}


def conv_cases(t):
    def conv(name, x, w, b, stride=1, padding=0, dilation=1, groups=1):
        t.case(name, "conv2d", [x, w, b], lambda v, k, c: F.conv2d(v, k, c, stride, padding, dilation, groups), "conv",
               conv_attrs(stride, padding, dilation, groups))

    for dtype in FLOATS:
        conv(f"3x3.{dtype}", t.gen(dtype, 2, 5, 7, 6), t.gen(dtype, 4, 5, 3, 3), t.gen(dtype, 4), padding=1)
        conv(f"1x1.{dtype}", t.gen(dtype, 2, 9, 5, 3), t.gen(dtype, 7, 9, 1, 1), t.gen(dtype, 7))
        conv(f"stride2.{dtype}", t.gen(dtype, 1, 6, 8, 9), t.gen(dtype, 5, 6, 3, 3), None, 2, 1)
        conv(f"channels_last.{dtype}", t.gen(dtype, 2, 16, 6, 5).channels_last(), t.gen(dtype, 8, 16, 3, 3), t.gen(dtype, 8), padding=1)
        for other in FLOATS:
            if other != dtype:
                conv(f"weight_{other}.{dtype}", t.gen(dtype, 1, 8, 4, 5), t.gen(other, 6, 8, 3, 3), t.gen(other, 6), padding=1)
    x, w = t.gen("f32", 2, 4, 9, 8), t.gen("f32", 6, 4, 3, 2)
    conv("no_padding.f32", x, w, None)
    conv("uneven.f32", x, w, t.gen("f32", 6), (2, 3), (1, 2), (2, 1))
    conv("wide_padding.f32", x, w, None, 1, 4)
    conv("dilated.f32", x, w, None, 1, 2, 3)
    conv("long_stride.f32", x, w, None, 7, 0, 1)
    conv("whole.f32", t.gen("f32", 2, 3, 4, 5), t.gen("f32", 6, 3, 4, 5), t.gen("f32", 6))
    conv("groups.f32", t.gen("f32", 2, 6, 5, 5), t.gen("f32", 4, 3, 3, 3), t.gen("f32", 4), 1, 1, 1, 2)
    conv("depthwise.f32", t.gen("f32", 2, 5, 6, 6), t.gen("f32", 10, 1, 3, 3), t.gen("f32", 10), 1, 1, 1, 5)
    conv("groups_last.f32", t.gen("f32", 2, 8, 5, 5).channels_last(), t.gen("f32", 12, 2, 3, 3), None, 2, 1, 1, 4)
    conv("row_kernel.f32", t.gen("f32", 1, 3, 6, 7), t.gen("f32", 2, 3, 1, 5), None, 1, (0, 2))
    conv("column_kernel.f32", t.gen("f32", 1, 3, 6, 7), t.gen("f32", 2, 3, 5, 1), None, 1, (2, 0))
    conv("7x7.f32", t.gen("f32", 1, 3, 9, 9), t.gen("f32", 4, 3, 7, 7), t.gen("f32", 4), 2, 3)
    conv("one_pixel.f32", t.gen("f32", 3, 4, 1, 1), t.gen("f32", 5, 4, 3, 3), t.gen("f32", 5), 1, 1)
    conv("strided.f32", t.gen("f32", 5, 6, 2, 4).permute(2, 3, 0, 1), t.gen("f32", 3, 3, 5, 4).permute(2, 3, 0, 1), None, 1, 1)
    conv("sliced.f32", t.gen("f32", 2, 8, 5, 10).slice(3, 0, 10, 2).slice(1, 0, 8, 2), t.gen("f32", 3, 4, 3, 3),
         t.gen("f32", 6).slice(0, 0, 6, 2))
    conv("weight_last.f32", t.gen("f32", 1, 4, 5, 5), t.gen("f32", 3, 4, 3, 3).channels_last(), None, 1, 1)
    conv("expanded.f32", t.gen("f32", 1, 1, 4, 4).expand(2, 3, 4, 4), t.gen("f32", 2, 3, 3, 3), t.gen("f32", 1).expand(2))
    conv("no_batch.f32", t.gen("f32", 0, 4, 5, 5), t.gen("f32", 3, 4, 3, 3), None)
    # no input channels: the bias (torch gives no channels at all)
    t.case("no_channels.f32", "conv2d", [t.gen("f32", 2, 0, 3, 3), t.gen("f32", 3, 0, 1, 1), t.gen("f32", 3)],
           lambda v, k, c: c.reshape(1, 3, 1, 1).expand(2, 3, 3, 3), "conv", conv_attrs(1, 0, 1, 1))
    conv("nan.f32", t.data([[[[1.0, NAN, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, INF]]]], "f32"), t.gen("f32", 1, 1, 2, 2), None)
    conv("many.f32", t.gen("f32", 1, 35, 12, 11), t.gen("f32", 34, 35, 3, 3), t.gen("f32", 34), 1, 1)
    conv("many_last.f32", t.gen("f32", 1, 64, 9, 7).channels_last(), t.gen("f32", 48, 64, 3, 3), t.gen("f32", 48), 1, 1)
    conv("many_last.bf16", t.gen("bf16", 1, 64, 9, 7).channels_last(), t.gen("bf16", 48, 64, 3, 3), t.gen("bf16", 48), 1, 1)
    conv("many_1x1.f32", t.gen("f32", 2, 96, 5, 5).channels_last(), t.gen("f32", 64, 96, 1, 1), None)
    conv("latents.f32", t.gen("f32", 1, 4, 13, 9), t.gen("f32", 32, 4, 3, 3), t.gen("f32", 32), 1, 1)
    conv("to_latents.f32", t.gen("f32", 1, 32, 13, 9).channels_last(), t.gen("f32", 4, 32, 3, 3), t.gen("f32", 4), 1, 1)


def conv_transpose_cases(t):
    def conv(name, x, w, b, stride=1, padding=0, extra=0, dilation=1, groups=1):
        attrs = conv_attrs(stride, padding, dilation, groups)
        attrs["output_padding"] = list(extra) if isinstance(extra, tuple) else [extra, extra]
        t.case(name, "conv_transpose2d", [x, w, b], lambda v, k, c: F.conv_transpose2d(v, k, c, stride, padding, extra, groups, dilation),
               "conv", attrs)

    for dtype in FLOATS:
        conv(f"plain.{dtype}", t.gen(dtype, 2, 4, 5, 4), t.gen(dtype, 4, 3, 3, 3), t.gen(dtype, 3))
        conv(f"doubles.{dtype}", t.gen(dtype, 1, 4, 5, 4), t.gen(dtype, 4, 6, 4, 4), None, 2, 1)
    conv("weight_f16.f32", t.gen("f32", 1, 4, 3, 4), t.gen("f16", 4, 3, 3, 3), t.gen("bf16", 3), 2, 1, 1)
    x, w = t.gen("f32", 2, 4, 5, 4), t.gen("f32", 4, 3, 3, 2)
    conv("uneven.f32", x, w, t.gen("f32", 3), (2, 3), (1, 0), (1, 2), (1, 2))
    conv("dilated.f32", x, w, None, 1, 1, 0, 3)
    conv("extra_by_dilation.f32", x, w, None, 1, 0, 1, 2)
    conv("gaps.f32", x, w, t.gen("f32", 3), 4)
    conv("wide_padding.f32", x, w, None, 1, (3, 2))
    conv("groups.f32", t.gen("f32", 2, 6, 3, 3), t.gen("f32", 6, 2, 3, 3), t.gen("f32", 6), 2, 1, 0, 1, 3)
    conv("depthwise.f32", t.gen("f32", 1, 4, 3, 3), t.gen("f32", 4, 1, 2, 2), None, 2, 0, 0, 1, 4)
    conv("1x1.f32", t.gen("f32", 1, 5, 3, 3), t.gen("f32", 5, 2, 1, 1), None)
    conv("channels_last.f32", t.gen("f32", 2, 8, 4, 3).channels_last(), t.gen("f32", 8, 5, 3, 3), t.gen("f32", 5), 2, 1, 1)
    conv("strided.f32", t.gen("f32", 3, 4, 2, 4).permute(2, 3, 0, 1), t.gen("f32", 3, 2, 4, 3).permute(2, 1, 0, 3), None)
    conv("one_pixel.f32", t.gen("f32", 1, 3, 1, 1), t.gen("f32", 3, 2, 4, 4), None)
    conv("no_batch.f32", t.gen("f32", 0, 3, 2, 2), t.gen("f32", 3, 2, 2, 2), None)


def sdpa_cases(t):
    def sdpa(name, q, k, v, mask=None, causal=False, scale=0.0):
        def fn(a, b, c, m):
            with sdpa_kernel(SDPBackend.MATH):  # the definition; torch's flash kernel turns a row of NaN into zeros
                return F.scaled_dot_product_attention(a, b, c, attn_mask=m, is_causal=causal, scale=scale or None)
        t.case(name, "sdpa", [q, k, v, mask], fn, "sum", {"is_causal": int(causal), "scale": scale})

    def qkv(dtype, lead, l, s, e, ev=None):
        return t.gen(dtype, *lead, l, e), t.gen(dtype, *lead, s, e), t.gen(dtype, *lead, s, ev or e)

    for dtype in FLOATS:
        sdpa(f"plain.{dtype}", *qkv(dtype, (2, 3), 7, 7, 8))
        sdpa(f"cross.{dtype}", *qkv(dtype, (1, 2), 9, 13, 8))
        sdpa(f"causal.{dtype}", *qkv(dtype, (2, 2), 9, 9, 8), causal=True)
        sdpa(f"bool_mask.{dtype}", *qkv(dtype, (2, 2), 5, 7, 4), t.gen("bool", 2, 2, 5, 7))
        sdpa(f"float_mask.{dtype}", *qkv(dtype, (2, 2), 5, 7, 4), t.gen(dtype, 5, 7))
    keep = [[True] * 4, [False] * 4, [False, True, False, False]]
    holes = [[0.0] * 4, [-INF] * 4, [-INF, 0.5, -INF, -INF]]
    sdpa("masked_row.f32", *qkv("f32", (1, 2), 3, 4, 8), t.data(keep, "bool"))
    sdpa("masked_row_added.f32", *qkv("f32", (1, 2), 3, 4, 8), t.data(holes, "f32"))
    sdpa("masked_row.bf16", *qkv("bf16", (1, 2), 3, 4, 8), t.data(keep, "bool"))
    sdpa("padding_mask.f32", *qkv("f32", (2, 3), 5, 6, 8), t.gen("bool", 2, 1, 1, 6))
    sdpa("head_mask.f32", *qkv("f32", (2, 3), 5, 6, 8), t.gen("f32", 3, 1, 6))
    sdpa("expanded_mask.f32", *qkv("f32", (2, 3), 5, 6, 8), t.gen("f32", 5, 1).expand(2, 3, 5, 6))
    sdpa("causal_wide.f32", *qkv("f32", (1, 2), 4, 9, 8), causal=True)
    sdpa("causal_tall.f32", *qkv("f32", (1, 2), 9, 4, 8), causal=True)
    sdpa("scale.f32", *qkv("f32", (1, 2), 5, 6, 8), scale=0.3)
    sdpa("negative_scale.f32", *qkv("f32", (1, 2), 5, 6, 8), scale=-1.0)
    sdpa("large_scores.f32", *qkv("f32", (1, 2), 5, 6, 8), scale=64.0)
    sdpa("other_ev.f32", *qkv("f32", (2, 2), 5, 6, 8, 3))
    sdpa("no_batch.f32", *qkv("f32", (), 5, 6, 8))
    sdpa("three.f32", *qkv("f32", (3,), 5, 6, 8))
    sdpa("five.f32", *qkv("f32", (2, 1, 2), 3, 4, 8))
    sdpa("one.f32", *qkv("f32", (1, 1), 1, 1, 4))
    q, k, v = (t.gen("f32", 2, n, 3, 8).permute(0, 2, 1, 3) for n in (6, 5, 5))
    sdpa("heads.f32", q, k, v)
    q, k, v = (t.gen("f16", 2, n, 3, 8).permute(0, 2, 1, 3) for n in (6, 5, 5))
    sdpa("heads.f16", q, k, v)
    sdpa("strided.f32", t.gen("f32", 2, 8, 5).permute(0, 2, 1), t.gen("f32", 2, 12, 8).slice(1, 0, 12, 2),
         t.gen("f32", 1, 6, 8).expand(2, 6, 8))
    sdpa("no_columns.f32", *qkv("f32", (1, 2), 3, 0, 4))
    sdpa("no_rows.f32", *qkv("f32", (1, 2), 0, 3, 4))
    sdpa("no_heads.f32", *qkv("f32", (1, 0), 2, 3, 4))
    sdpa("nan.f32", t.data([[[1.0, NAN], [1.0, 2.0]]], "f32"), t.gen("f32", 1, 3, 2), t.gen("f32", 1, 3, 2))
    sdpa("clip.f32", *qkv("f32", (1, 2), 77, 77, 64), causal=True)
    sdpa("unet.f32", *qkv("f32", (1, 2), 35, 77, 40))
    sdpa("unet.bf16", *qkv("bf16", (1, 2), 35, 77, 80))
    sdpa("long.f32", *qkv("f32", (1, 1), 19, 301, 32))
    sdpa("wide_values.f32", *qkv("f32", (1, 1), 4, 5, 8, 260))
    sdpa("vae.f32", *qkv("f32", (1, 1), 12, 12, 512))


def add(t):
    matmul_cases(t)
    linear_cases(t)
    conv_cases(t)
    conv_transpose_cases(t)
    sdpa_cases(t)


def add_linear_geglu(t):
    def geglu(name, x, w, b=None):
        def values_and_gates(x, w, b):
            values, gates = F.linear(x, w, b).chunk(2, -1)
            return values * F.gelu(gates)
        t.case(name, "linear_geglu", [x, w, b], values_and_gates, "sum")

    for dtype in FLOATS:
        geglu(f"plain.{dtype}", t.gen(dtype, 4, 13), t.gen(dtype, 14, 13), t.gen(dtype, 14))
        geglu(f"bare.{dtype}", t.gen(dtype, 2, 3, 16), t.gen(dtype, 18, 16))
        for other in FLOATS:
            if other != dtype:
                geglu(f"weight_{other}.{dtype}", t.gen(dtype, 3, 24), t.gen(other, 10, 24), t.gen(other, 10))
        geglu(f"panels.{dtype}", t.gen(dtype, 33, 40), t.gen(dtype, 2 * 81, 40), t.gen(dtype, 2 * 81))  # whole panels and a narrow one
        geglu(f"wide_panels.{dtype}", t.gen(dtype, 19, 33), t.gen(dtype, 2 * 94, 33), t.gen(dtype, 2 * 94))
    geglu("one.f32", t.gen("f32", 1), t.gen("f32", 2, 1), t.gen("f32", 2))
    geglu("strided.f32", t.gen("f32", 12, 5).permute(1, 0), t.gen("f32", 12, 14).permute(1, 0), t.gen("f32", 28).slice(0, 0, 28, 2))
    geglu("expanded.f32", t.gen("f32", 1, 6).expand(4, 6), t.gen("f32", 4, 6), t.gen("f32", 1).expand(4))
    geglu("no_k.f32", t.gen("f32", 2, 0), t.gen("f32", 4, 0), t.gen("f32", 4))
    geglu("no_rows.f32", t.gen("f32", 0, 4), t.gen("f32", 6, 4), t.gen("f32", 6))
    geglu("no_out.f32", t.gen("f32", 2, 4), t.gen("f32", 0, 4))
    geglu("large.f32", t.gen("f32", 2, 77, 96), t.gen("f32", 66, 96), t.gen("f32", 66))
    geglu("large.bf16", t.gen("bf16", 37, 320), t.gen("bf16", 140, 320), t.gen("bf16", 140))
    geglu("deep.f32", t.gen("f32", 5, 1280), t.gen("f32", 66, 1280), t.gen("f32", 66))
    geglu("deep.bf16", t.gen("bf16", 65, 1280), t.gen("bf16", 66, 1280), t.gen("bf16", 66))
    geglu("special.f32", t.data([[1.0, INF, 2.0], [NAN, 1.0, -0.0], [-INF, 1.0, 3.0]], "f32"), t.gen("f32", 4, 3, positive=True), t.gen("f32", 4))
    geglu("tiny.f32", t.data([[1e-40, -0.0, 1.0], [-1e-45, 2.0, 0.0]], "f32"), t.gen("f32", 4, 3))


def add_conv_halves(t):
    """Channels-last pictures in f16 and bf16 with vectors in f32, as models have them."""
    def conv(name, dtype, x, w, bias, padding):
        b = t.gen("f32", w[0]) if bias else None
        t.case(f"last_{name}.{dtype}", "conv2d", [t.gen(dtype, *x).channels_last(), t.gen(dtype, *w), b],
               lambda v, k, c: F.conv2d(v, k, c, 1, padding), "conv", conv_attrs(1, padding, 1, 1))
    for dtype in FLOATS[1:]:
        conv("halves_3x3", dtype, (2, 5, 7, 6), (4, 5, 3, 3), True, 1)
        conv("halves_no_bias", dtype, (1, 33, 9, 5), (50, 33, 3, 3), False, 1)
        conv("halves_wide", dtype, (1, 12, 6, 11), (150, 12, 3, 3), True, (0, 2))
        conv("halves_one_pixel", dtype, (3, 4, 1, 1), (5, 4, 3, 3), True, 1)
