"""Cases of sum, mean, amax, argmax, softmax and the normalisations."""
import math
import warnings

import torch
import torch.nn.functional as F

from .table import FLOATS, INTEGERS

INF, NAN = math.inf, math.nan
REDUCE = {"sum": (torch.sum, "sum"), "mean": (torch.mean, "sum"), "amax": (torch.amax, "exact")}


def reduce(t, name, op, x, dims, keepdim, limit=None):
    fn, usual = REDUCE[op]
    t.case(name, op, [x], lambda v: fn(v, tuple(dims) if dims else tuple(range(v.dim())), keepdim), limit or usual,
           {"dim": list(dims), "keepdim": int(keepdim)})


def reduce_cases(t):
    for op in REDUCE:
        for dtype in FLOATS:
            reduce(t, f"last.{dtype}", op, t.gen(dtype, 5, 37), [1], False)
            reduce(t, f"first.{dtype}", op, t.gen(dtype, 37, 5), [0], True)
            reduce(t, f"all.{dtype}", op, t.gen(dtype, 3, 4, 5), [], False)
        reduce(t, "all_kept.f32", op, t.gen("f32", 3, 4, 5), [], True)
        reduce(t, "two.f32", op, t.gen("f32", 3, 4, 5, 2), [-1, 1], False)
        reduce(t, "two_kept.f32", op, t.gen("f32", 3, 4, 5, 2), [0, 2], True)
        reduce(t, "strided.f32", op, t.gen("f32", 4, 6, 5).permute(2, 0, 1).slice(2, 1, 6, 2), [2], False)
        reduce(t, "middle_strided.f32", op, t.gen("f32", 4, 6, 5).permute(2, 1, 0), [1], True)
        reduce(t, "expanded.f32", op, t.gen("f32", 3, 1).expand(2, 3, 4), [0, 2], False)
        reduce(t, "channels_last.f32", op, t.gen("f32", 2, 3, 4, 5).channels_last(), [1], True)
        reduce(t, "scalar.f32", op, t.gen("f32"), [], False)
        reduce(t, "one.f32", op, t.gen("f32", 3, 1), [1], False)
        reduce(t, "long.f32", op, t.gen("f32", 3001), [0], False)
        reduce(t, "empty_kept.f32", op, t.gen("f32", 0, 3), [1], False)
        rows = [[1.0, NAN, 2.0], [INF, 1.0, 2.0], [INF, -INF, 1.0], [-INF, -INF, -INF], [NAN, INF, 1.0], [-0.0, -0.0, -0.0]]
        for dtype in FLOATS:
            reduce(t, f"special.{dtype}", op, t.data(rows, dtype), [1], False)
    for op in ("sum", "mean"):
        reduce(t, "empty.f32", op, t.gen("f32", 0, 3), [0], False)
        reduce(t, "cancels.f32", op, t.data([1e8, 1.0, -1e8, 1.0], "f32"), [0], False)
    for dtype in INTEGERS + ("bool",):
        for op in ("sum", "amax"):
            reduce(t, f"rows.{dtype}", op, t.gen(dtype, 4, 7), [1], False, "bits")
            reduce(t, f"all.{dtype}", op, t.gen(dtype, 4, 7).permute(1, 0), [], False, "bits")
    reduce(t, "wide.i64", "sum", t.data([2**62, 2**62 - 1, 5], "i64"), [0], False, "bits")
    reduce(t, "wide.i64", "amax", t.data([2**53, 2**53 + 1, -5], "i64"), [0], False, "bits")
    reduce(t, "full.u8", "sum", t.data([255] * 300, "u8"), [0], True, "bits")

    def argmax(name, x, dim, keepdim=False):
        t.case(name, "argmax", [x], lambda v: torch.argmax(v, dim, keepdim), "bits", {"dim": dim, "keepdim": int(keepdim)}, "i64")

    for dtype in FLOATS + INTEGERS:
        argmax(f"last.{dtype}", t.gen(dtype, 5, 9), 1)
        argmax(f"first.{dtype}", t.gen(dtype, 9, 5), 0, True)
    for dtype in FLOATS:
        argmax(f"special.{dtype}",
               t.data([[1.0, NAN, NAN], [INF, INF, 2.0], [-INF, -INF, -INF], [0.0, -0.0, 0.0], [3.0, 3.0, NAN]], dtype), -1)
    argmax("ties.i32", t.data([[2, 7, 7, 1], [5, 5, 5, 5]], "i32"), 1)
    argmax("wide.i64", t.data([2**53, 2**53 + 1, 2**53 + 1], "i64"), 0)
    argmax("scalar.f32", t.gen("f32"), -1)
    argmax("strided.f32", t.gen("f32", 4, 5, 6).permute(2, 0, 1).slice(1, 0, 4, 2), 1)
    argmax("empty_kept.f32", t.gen("f32", 0, 3), 1)


def softmax_cases(t):
    def softmax(name, x, dim):
        t.case(name, "softmax", [x], lambda v: F.softmax(v, dim), "function", {"dim": dim})

    for dtype in FLOATS:
        softmax(f"last.{dtype}", t.gen(dtype, 3, 77, scale=4.0), -1)
        softmax(f"first.{dtype}", t.gen(dtype, 9, 5), 0)
        softmax(f"special.{dtype}", t.data([[1.0, NAN, 2.0], [INF, 1.0, 2.0], [-INF, 1.0, -INF], [-INF] * 3, [100.0, -100.0, 99.0],
                                           [6e4, 6e4, -6e4]], dtype), 1)
    softmax("large.f32", t.data([[3e38, 3e38, -3e38], [88.0, 89.0, 90.0], [-1e5, -1e5 - 1, -1e5 - 2]], "f32"), 1)
    softmax("middle.f32", t.gen("f32", 2, 7, 3), 1)
    softmax("strided.f32", t.gen("f32", 5, 8, 3).permute(2, 0, 1).slice(2, 0, 8, 3), 2)
    softmax("channels_last.f32", t.gen("f32", 2, 5, 3, 2).channels_last(), 1)
    softmax("expanded.f32", t.gen("f32", 3, 1).expand(3, 6), 1)
    softmax("one.f32", t.gen("f32", 4, 1), 1)
    softmax("scalar.f32", t.gen("f32"), 0)
    softmax("empty.f32", t.gen("f32", 0, 3), 0)
    softmax("empty_row.f32", t.gen("f32", 3, 0), 1)
    softmax("long.f32", t.gen("f32", 2, 1153), 1)


def norm_cases(t):
    def layer(name, x, n, w, b, eps=1e-5):
        t.case(name, "layer_norm", [x, w, b], lambda v, p, q: F.layer_norm(v, v.shape[-n:], p, q, eps), "sum",
               {"normalized_ndim": n, "eps": eps})

    def rms(name, x, n, w, eps=1e-6):
        t.case(name, "rms_norm", [x, w], lambda v, p: F.rms_norm(v, v.shape[-n:], p, eps), "sum", {"normalized_ndim": n, "eps": eps})

    def group(name, x, groups, w, b, eps=1e-5):
        t.case(name, "group_norm", [x, w, b], lambda v, p, q: F.group_norm(v, groups, p, q, eps), "sum", {"num_groups": groups, "eps": eps})

    for dtype in FLOATS:
        layer(f"plain.{dtype}", t.gen(dtype, 3, 45), 1, t.gen(dtype, 45), t.gen(dtype, 45))
        rms(f"plain.{dtype}", t.gen(dtype, 3, 45), 1, t.gen(dtype, 45))
        group(f"plain.{dtype}", t.gen(dtype, 2, 6, 5, 3), 3, t.gen(dtype, 6), t.gen(dtype, 6))
        group(f"channels_last.{dtype}", t.gen(dtype, 2, 12, 5, 3).channels_last(), 4, t.gen(dtype, 12), t.gen(dtype, 12), 1e-6)
    layer("two.f32", t.gen("f32", 3, 4, 5), 2, t.gen("f32", 4, 5), t.gen("f32", 4, 5))
    layer("bare.f32", t.gen("f32", 2, 3, 19), 1, None, None)
    layer("no_bias.f32", t.gen("f32", 2, 19), 1, t.gen("f32", 19), None)
    layer("no_weight.f32", t.gen("f32", 2, 19), 1, None, t.gen("f32", 19))
    layer("other_dtypes.f32", t.gen("f32", 2, 19), 1, t.gen("f16", 19), t.gen("bf16", 19))
    layer("half.f16", t.gen("f16", 2, 19), 1, t.gen("f32", 19), t.gen("f32", 19))
    layer("eps.f32", t.gen("f32", 2, 19, scale=0.0009765625), 1, t.gen("f32", 19), None, 0.5)
    layer("constant.f32", t.gen("f32", 3, 1).expand(3, 8), 1, t.gen("f32", 8), t.gen("f32", 8))
    layer("offset.f32", t.data([[1000.0, 1001.0, 1002.0, 1000.5], [-4096.0, -4095.0, -4095.5, -4096.0]], "f32"), 1, None, None)
    layer("one.f32", t.gen("f32", 3, 1), 1, t.gen("f32", 1), t.gen("f32", 1))
    layer("strided.f32", t.gen("f32", 7, 3, 4).permute(1, 2, 0), 1, t.gen("f32", 14).slice(0, 0, 14, 2), t.gen("f32", 1).expand(7))
    layer("empty.f32", t.gen("f32", 0, 5), 1, t.gen("f32", 5), None)
    layer("empty_row.f32", t.gen("f32", 5, 0), 1, None, None)
    layer("nan.f32", t.data([[1.0, NAN, 2.0], [INF, 1.0, 2.0], [1.0, 2.0, 3.0]], "f32"), 1, None, None)
    layer("wide.f32", t.gen("f32", 2, 3, 320), 1, t.gen("f32", 320), t.gen("f32", 320))
    rms("bare.f32", t.gen("f32", 2, 3, 19), 1, None)
    rms("two.f32", t.gen("f32", 3, 4, 5), 2, t.gen("f32", 4, 5), 0.25)
    rms("other_dtype.f16", t.gen("f16", 2, 19), 1, t.gen("f32", 19))
    rms("strided.f32", t.gen("f32", 8, 3).permute(1, 0), 1, t.gen("f32", 8))
    rms("zeros.f32", t.data([[0.0, 0.0, 0.0], [NAN, 1.0, 2.0]], "f32"), 1, None)
    rms("empty.f32", t.gen("f32", 3, 0), 1, None)
    group("vector.f32", t.gen("f32", 3, 6), 2, t.gen("f32", 6), t.gen("f32", 6))
    group("line.f32", t.gen("f32", 2, 8, 9), 8, t.gen("f32", 8), None)
    group("one_group.f32", t.gen("f32", 2, 5, 3, 3), 1, None, t.gen("f32", 5))
    group("bare.f32", t.gen("f32", 2, 4, 3, 3), 2, None, None, 0.1)
    group("volume.f32", t.gen("f32", 2, 4, 2, 3, 2), 2, t.gen("f32", 4), t.gen("f32", 4))
    group("other_dtypes.f32", t.gen("f32", 1, 4, 3, 3), 2, t.gen("bf16", 4), t.gen("f16", 4))
    group("strided.f32", t.gen("f32", 3, 2, 3, 8).permute(1, 3, 0, 2), 4, t.gen("f32", 16).slice(0, 0, 16, 2), t.gen("f32", 8))
    group("sliced.f32", t.gen("f32", 2, 8, 3, 6).slice(3, 0, 6, 2), 2, t.gen("f32", 8), t.gen("f32", 8))
    group("empty_batch.f32", t.gen("f32", 0, 4, 2, 2), 2, t.gen("f32", 4), None)
    group("unet.f32", t.gen("f32", 1, 64, 4, 4).channels_last(), 32, t.gen("f32", 64), t.gen("f32", 64))


def add(t):
    reduce_cases(t)
    softmax_cases(t)
    norm_cases(t)


def mean_and_variance(v, groups):
    n, c = v.shape[:2]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of groups without elements: NaN is what is wanted
        variance, mean = torch.var_mean(v.reshape(n, groups, c // groups * math.prod(v.shape[2:])), 2, correction=0)
    return torch.stack([mean, variance], 2)


def apply_stats(v, stats, weight, bias, eps):
    n, c, g, rest = *v.shape[:2], stats.shape[1], v.shape[2:]
    mean, variance = (stats[..., i].reshape(n, g, *[1] * (v.dim() - 1)) for i in (0, 1))
    y = ((v.reshape(n, g, c // g, *rest) - mean) / torch.sqrt(variance.clamp(min=0) + eps)).reshape(v.shape)
    by_channel = (1, c, *[1] * len(rest))
    y = y if weight is None else y * weight.reshape(by_channel)
    return y if bias is None else y + bias.reshape(by_channel)


def add_group_norm_halves(t):
    def stats(name, x, groups, limit="function"):
        t.case(name, "group_norm_stats", [x], lambda v: mean_and_variance(v, groups), limit, {"num_groups": groups}, "f32")

    def apply(name, x, s, w, b, eps=1e-5, limit="sum"):
        t.case(name, "group_norm_apply", [x, s, w, b], lambda v, m, p, q: apply_stats(v, m, p, q, eps), limit, {"eps": eps})

    def given(*shape):
        return t.gen("f32", *shape, 2, positive=True)

    for dtype in FLOATS:
        stats(f"plain.{dtype}", t.gen(dtype, 2, 6, 5, 3), 3)
        stats(f"channels_last.{dtype}", t.gen(dtype, 2, 12, 5, 3).channels_last(), 4)
        stats(f"line.{dtype}", t.gen(dtype, 2, 8, 9), 8)
        apply(f"plain.{dtype}", t.gen(dtype, 2, 6, 5, 3), given(2, 3), t.gen(dtype, 6), t.gen(dtype, 6))
        apply(f"channels_last.{dtype}", t.gen(dtype, 2, 12, 5, 3).channels_last(), given(2, 4), t.gen(dtype, 12), t.gen(dtype, 12), 1e-6)
    # Quarters about 1000, as many as a power of two: sums about any of them are exact, so nothing but roundings of the result is allowed.
    far = (1000 + torch.round(t.gen("f32", 2, 4, 8, 4).tensor * 4) / 4).contiguous()
    rest = t.data(mean_and_variance(far.double(), 2).float(), "f32")
    for order in ("contiguous", "channels_last"):
        x = t.data(far, "f32") if order == "contiguous" else t.data(far, "f32").channels_last()
        stats(f"far_{order}.f32", x, 2, "round")
        apply(f"far_{order}.f32", x, rest, None, None, limit="function")
        apply(f"no_weight_{order}.f32", x, rest, None, t.gen("f32", 4))
        apply(f"no_bias_{order}.f32", x, rest, t.gen("f32", 4), None)
    # channels of one group that are far from each other
    steps = (t.gen("f32", 2, 6, 5, 3).tensor + 64 * torch.arange(6.0).reshape(1, 6, 1, 1)).contiguous()
    stats("steps.f32", t.data(steps, "f32"), 2)
    stats("steps_channels_last.f32", t.data(steps, "f32").channels_last(), 2)
    # more than a block of pixels, more than a run of partial sums
    stats("blocks.f32", t.gen("f32", 2, 8, 19, 28).channels_last(), 4)
    stats("runs.f32", t.gen("f32", 1, 4, 80, 64), 2)
    stats("vector.f32", t.gen("f32", 3, 6), 2)
    stats("single.f32", t.gen("f32", 3, 6), 6)
    stats("one_group.f32", t.gen("f32", 2, 5, 3, 3), 1)
    stats("volume.f32", t.gen("f32", 2, 4, 2, 3, 2), 2)
    stats("strided.f32", t.gen("f32", 3, 2, 3, 8).permute(1, 3, 0, 2), 4)
    stats("sliced.f16", t.gen("f16", 2, 8, 3, 6).slice(3, 0, 6, 2), 2)
    stats("band.f32", t.gen("f32", 1, 8, 6, 5).channels_last().slice(2, 1, 4), 2)
    stats("constant.f32", t.gen("f32", 2, 1, 1, 1).expand(2, 4, 3, 3), 2)
    stats("special.f32", t.data([[[1.0, NAN], [2.0, 3.0]], [[1.0, INF], [2.0, 3.0]]], "f32"), 2)
    stats("empty_batch.f32", t.gen("f32", 0, 4, 2, 2), 2)
    stats("no_channels.f32", t.gen("f32", 2, 0, 3), 2)
    apply("vector.f32", t.gen("f32", 3, 6), given(3, 2), t.gen("f32", 6), t.gen("f32", 6))
    apply("line.f32", t.gen("f32", 2, 8, 9), given(2, 8), t.gen("f32", 8), t.gen("f32", 8))
    apply("one_group.f32", t.gen("f32", 2, 5, 3, 3), given(2, 1), None, t.gen("f32", 5))
    apply("bare.f32", t.gen("f32", 2, 4, 3, 3), given(2, 2), None, None, 0.1)
    apply("volume.f32", t.gen("f32", 2, 4, 2, 3, 2), given(2, 2), t.gen("f32", 4), t.gen("f32", 4))
    apply("other_dtypes.f32", t.gen("f32", 1, 4, 3, 3), given(1, 2), t.gen("bf16", 4), t.gen("f16", 4))
    apply("strided.f32", t.gen("f32", 3, 2, 3, 8).permute(1, 3, 0, 2), given(2, 4), t.gen("f32", 16).slice(0, 0, 16, 2), t.gen("f32", 8))
    apply("band.f32", t.gen("f32", 1, 8, 6, 5).channels_last().slice(2, 1, 4), given(1, 2), t.gen("f32", 8), t.gen("f32", 8))
    apply("strided_stats.f32", t.gen("f32", 2, 6, 3, 3), t.gen("f32", 2, 3, 2, positive=True).permute(2, 1, 0), t.gen("f32", 6), None)
    apply("expanded_stats.f32", t.gen("f32", 2, 6, 3, 3).channels_last(), given(1, 3).expand(2, 3, 2), t.gen("f32", 6), None)
    apply("negative_variance.f32", t.gen("f32", 2, 6, 3, 3), t.data([[[0.5, -1.0], [0.25, -1e-9], [1.0, 2.0]]] * 2, "f32"), None, None, 0.25)
    apply("negative_variance_channels_last.f32", t.gen("f32", 2, 6, 3, 3).channels_last(),
          t.data([[[0.5, -1.0], [0.25, -1e-9], [1.0, 2.0]]] * 2, "f32"), t.gen("f32", 6), None, 0.25)
    apply("special.f32", t.gen("f32", 1, 4, 2, 2), t.data([[[NAN, 1.0], [0.5, NAN], [0.0, INF], [INF, 1.0]]], "f32"), None, None)
    apply("empty_batch.f32", t.gen("f32", 0, 4, 2, 2), given(0, 2), t.gen("f32", 4), None)
    apply("empty.f32", t.gen("f32", 2, 4, 0, 3), given(2, 2), t.gen("f32", 4), None)
    apply("no_channels.f32", t.gen("f32", 2, 0, 3), given(2, 2), None, None)
    apply("unet.f32", t.gen("f32", 1, 64, 4, 4).channels_last(), given(1, 32), t.gen("f32", 64), t.gen("f32", 64))
