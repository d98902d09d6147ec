"""Cases for what tools/goldens_ops.py --matrix found missing: sizes, layouts, special values, attributes at their limits.

Denormals of f16 must count. Those of f32 and bf16 may be flushed to zero, so they stand only where that is within the limit, or
where values are moved and not computed with."""
import math

import torch
import torch.nn.functional as F

from .layout import ALL
from .lookups import normals, uniforms
from .pointwise import BINARY, UNARY, f32, quick_gelu, unary
from .products import conv_attrs
from .reductions import apply_stats, mean_and_variance
from .table import FLOATS, NUMBER

INF, NAN = math.inf, math.nan
TINY_F16 = [6e-8, -6e-8, 3e-5, -3e-5, 6.1e-5]
MOVED = [NAN, INF, -INF, -0.0, 1e-40, -1e-45, 1.5, 0.0]  # for ops that move values


def pointwise(t):
    for op, (fn, limit, positive, _) in UNARY.items():
        how = {"positive": True} if positive else {}
        if op not in ("exp", "silu"):
            t.case("long.f32", op, [t.gen("f32", 1021, scale=2.0, **how)], fn, limit)
        tiny = [abs(v) for v in TINY_F16] if positive else TINY_F16
        t.case("tiny.f16", op, [t.data(tiny, "f16")], fn, limit)
    t.case("long.f32", "gelu", [t.gen("f32", 1021, scale=2.0)], F.gelu, "function", {"approximate": 0})
    t.case("tiny.f16", "gelu", [t.data(TINY_F16, "f16")], F.gelu, "function", {"approximate": 0})
    t.case("long.f16", "quick_gelu", [t.gen("f16", 1021)], quick_gelu, "function")
    for op, fn in (("add_scalar", lambda x, o: x + o), ("mul_scalar", lambda x, o: x * o)):
        t.case("long.f32", op, [t.gen("f32", 1021)], lambda x, f=fn: f(x, f32(0.7)), "round", {"other": 0.7})
        t.case("tiny.f16", op, [t.data(TINY_F16, "f16")], lambda x, f=fn: f(x, 0.5), "round", {"other": 0.5})
        for name, other in (("largest", f32(3.4028234663852886e38)), ("lowest", f32(-3.4028234663852886e38)), ("least", f32(1.2e-38))):
            t.case(f"{name}.f32", op, [t.gen("f32", 3, 7)], lambda x, f=fn, o=other: f(x, o), "round", {"other": other})
    t.case("infinite.f32", "add_scalar", [t.data([NAN, INF, -INF, 0.0, 2.0], "f32")], lambda x: x - INF, "round", {"other": -INF})
    t.case("long.f32", "clamp", [t.gen("f32", 1021)], lambda x: x.clamp(-1, 1), "exact", {"min": -1.0, "max": 1.0})
    for e in (2.0, 0.5):
        unary(t, "pow_scalar", lambda x, e=e: torch.pow(x, e), "function", e == 0.5, False, {"exponent": e}, f"by{e}.")
    t.case("long.f32", "pow_scalar", [t.gen("f32", 1021, positive=True)], lambda x: torch.pow(x, f32(1.3)), "function", {"exponent": 1.3})
    t.case("tiny.f16", "pow_scalar", [t.data(TINY_F16[::2], "f16")], lambda x: torch.pow(x, 0.5), "function", {"exponent": 0.5})


def pairs(t):
    for op, (fn, limit, _) in BINARY.items():
        if op != "add":
            t.case("long.f32", op, [t.gen("f32", 7, 149), t.gen("f32", 7, 149)], fn, limit)
        t.case("tiny.f16", op, [t.data([[v] for v in TINY_F16 + [0.0, 1.0]], "f16"), t.data(TINY_F16 + [0.5], "f16")], fn, limit)
    base, power = t.data([[0.0], [-0.0], [1.0]], "f32"), t.data([0.5, 1.0, 2.0, 3.0, 0.0], "f32")
    t.case("zeros.f32", "pow", [base, power], torch.pow, "function")
    t.case("tiny.f16", "pow", [t.data([[6e-8], [3e-5]], "f16"), t.data([0.5, 0.25, 1.0, 0.0], "f16")], torch.pow, "function")
    positive = {"positive": True}
    for name, shape in (("long.f32", (7, 149)), ("one.f32", (1,)), ("empty.f32", (0, 3)), ("scalars.f32", ())):
        t.case(name, "pow", [t.gen("f32", *shape, **positive), t.gen("f32", *shape)], torch.pow, "function")
    t.case("strided.f32", "pow", [t.gen("f32", 6, 4, **positive).permute(1, 0), t.gen("f32", 4, 11).slice(1, 0, 11, 2)], torch.pow,
           "function")
    t.case("picture.f32", "pow", [t.gen("f32", 2, 5, 3, 3, **positive).channels_last(), t.gen("f32", 2, 5, 1, 1)], torch.pow, "function")
    t.case("long.f16", "where", [t.gen("bool", 7, 149), t.gen("f16", 7, 149), t.gen("f16", 149)], torch.where, "bits")
    t.case("moved.f32", "where", [t.gen("bool", 8), t.data(MOVED, "f32"), t.data(MOVED[::-1], "f32")], torch.where, "bits")
    t.case("picture.f32", "where", [t.gen("bool", 2, 3, 2, 3), t.gen("f32", 2, 3, 2, 3).channels_last(), t.gen("f32", 3, 1, 1)],
           torch.where, "bits")


def moved(t):
    """Ops that move values: every special value arrives, from every layout."""
    def copy(name, op, xs, fn, attrs):
        t.case(name, op, xs, fn, "bits", attrs)

    def picture():
        return t.gen("f32", 2, 3, 5, 3).channels_last()

    special = t.data([MOVED[:4], MOVED[4:]], "f32")
    long = t.gen("f16", 7, 149)
    one = t.gen("f32", 1)
    copy("long.f32", "cast", [t.gen("f32", 1021)], lambda v: v.bfloat16(), {"dtype": NUMBER["bf16"]})
    copy("one.f32", "contiguous", [t.gen("f32", 1, 1, 1, 1)], lambda v: v, {"memory_format": 1})
    copy("moved.f32", "contiguous", [special.permute(1, 0)], lambda v: v, {"memory_format": 0})
    copy("moved.f32", "reshape", [special.permute(1, 0)], lambda v: v.reshape(8), {"shape": [8]})
    copy("long.f16", "reshape", [long.permute(1, 0)], lambda v: v.reshape(7, 149), {"shape": [7, 149]})
    copy("moved.f32", "permute", [special], lambda v: v.permute(1, 0), {"dims": [1, 0]})
    copy("long.f16", "permute", [long], lambda v: v.permute(1, 0), {"dims": [1, 0]})
    copy("channels_last.f32", "permute", [picture()], lambda v: v.permute(0, 2, 3, 1), {"dims": [0, 2, 3, 1]})
    copy("moved.f32", "expand", [special], lambda v: v.expand(3, 2, 4), {"shape": [3, 2, 4]})
    copy("long.u8", "expand", [t.gen("u8", 1021, 1)], lambda v: v.expand(1021, 2), {"shape": [1021, 2]})
    copy("again.f32", "expand", [t.gen("f32", 3, 1).expand(3, 2)], lambda v: v.expand(2, 3, 2), {"shape": [2, 3, 2]})
    copy("channels_last.f32", "expand", [picture()], lambda v: v.expand(2, 2, 3, 5, 3), {"shape": [2, 2, 3, 5, 3]})
    copy("one.f32", "slice", [one], lambda v: v, {"dim": 0, "start": 0, "end": 1, "step": 1})
    copy("long.f16", "slice", [long], lambda v: v[:, 1::3], {"dim": 1, "start": 1, "end": 149, "step": 3})
    copy("moved.f32", "slice", [special], lambda v: v[:, ::2], {"dim": 1, "start": 0, "end": 4, "step": 2})
    copy("channels_last.f32", "slice", [picture()], lambda v: v[:, :, 1:4], {"dim": 2, "start": 1, "end": 4, "step": 1})
    copy("ones.f32", "cat", [one, t.gen("f32", 1)], lambda a, b: torch.cat((a, b)), {"dim": 0})
    copy("long.f16", "cat", [long, t.gen("f16", 7, 2)], lambda a, b: torch.cat((a, b), 1), {"dim": 1})
    copy("moved.f32", "cat", [special, special.permute(1, 0).slice(0, 0, 2)], lambda a, b: torch.cat((a, b), 1), {"dim": -1})
    for dim in (-4, 3):
        copy(f"dim{dim}.f32", "cat", [picture(), t.gen("f32", 2, 3, 5, 3)], lambda a, b, d=dim: torch.cat((a, b), d), {"dim": dim})
    copy("one.f32", "pad", [one], lambda v: F.pad(v, (0, 1), value=2.0), {"pad": [0, 1], "value": 2.0})
    copy("long.f16", "pad", [long], lambda v: F.pad(v, (1, 2, 1, 0)), {"pad": [1, 2, 1, 0], "value": 0.0})
    copy("moved.f32", "pad", [special], lambda v: F.pad(v, (1, 1), value=-0.0), {"pad": [1, 1], "value": -0.0})
    copy("expanded.f32", "pad", [t.gen("f32", 3, 1).expand(3, 4)], lambda v: F.pad(v, (1, 0)), {"pad": [1, 0], "value": 0.0})
    copy("moved.f32", "interpolate", [t.data([[[MOVED[:4], MOVED[4:]]]], "f32")], lambda v: F.interpolate(v, scale_factor=2.0),
         {"size": [0, 0], "mode": 0, "align_corners": 0, "scale_h": 2.0, "scale_w": 2.0})
    for name, shape in (("one.f32", (1, 1, 1, 1)), ("long.f16", (1, 16, 8, 8))):
        copy(name, "interpolate", [t.gen(name[-3:], *shape)], lambda v: F.interpolate(v, scale_factor=2.0),
             {"size": [0, 0], "mode": 0, "align_corners": 0, "scale_h": 2.0, "scale_w": 2.0})


def lookups(t):
    rows = t.data([MOVED, MOVED[::-1]], "f32")
    t.case("moved.f32", "embedding", [t.data([1, 0, 1], "i64"), rows], lambda i, w: F.embedding(i, w), "bits")
    t.case("long.f16", "embedding", [t.gen("i64", 7, low=0, high=50), t.gen("f16", 50, 149)], lambda i, w: F.embedding(i, w), "bits")

    def gather(name, x, dim, index):
        t.case(name, "gather", [x, index], lambda v, i: torch.gather(v, dim, i.long()), "bits", {"dim": dim})
    gather("moved.f32", rows, 1, t.gen("i64", 2, 5, low=0, high=8))
    gather("long.f16", t.gen("f16", 7, 149), 1, t.gen("i32", 7, 149, low=0, high=149))
    gather("channels_last.f32", t.gen("f32", 2, 3, 5, 3).channels_last(), 2, t.gen("i64", 2, 3, 4, 3, low=0, high=5))
    for dim in (-4, 3):
        gather(f"dim{dim}.f32", t.gen("f32", 2, 3, 5, 3), dim, t.gen("i64", 2, 3, 5, 2, low=0, high=2))
    t.case("long.f16", "full", [], lambda: torch.full((7, 149), 0.25, dtype=torch.float16), "bits",
           {"shape": [7, 149], "dtype": NUMBER["f16"], "fill_value": 0.25}, "f16")
    t.case("longer.i32", "arange", [], lambda: torch.arange(-500, 521, dtype=torch.int32), "bits",
           {"start": -500.0, "end": 521.0, "step": 1.0, "dtype": NUMBER["i32"]}, "i32")
    for op, fn, limit in (("randn", normals, "normal"), ("rand", uniforms, "exact")):
        t.case("long.f32", op, [], lambda f=fn: torch.from_numpy(f(42, 1, 1021)), limit, {"shape": [1021], "seed": 42, "offset": 1}, "f32")


def reductions(t):
    tiny = [[1e-40, -0.0, 0.0], [-1e-45, 1e-40, 1e-39]]
    for op, fn, limit in (("sum", torch.sum, "sum"), ("mean", torch.mean, "sum"), ("amax", torch.amax, "exact")):
        t.case("tiny.f32", op, [t.data(tiny, "f32")], lambda v, f=fn: f(v, (1,)), limit, {"dim": [1], "keepdim": 0})
        t.case("eight.f32", op, [t.gen("f32", 1, 2, 1, 3, 1, 2, 1, 5)], lambda v, f=fn: f(v, (0, 7, 3)), limit,
               {"dim": [-8, 7, 3], "keepdim": 0})

    def argmax(name, x, dim, keepdim=0):
        t.case(name, "argmax", [x], lambda v: torch.argmax(v, dim, bool(keepdim)), "bits", {"dim": dim, "keepdim": keepdim}, "i64")
    argmax("tiny.f16", t.data([[0.0, 6e-8, -6e-8], [-3e-5, -6e-8, -1.0]], "f16"), 1)
    argmax("long.f32", t.gen("f32", 3, 1021), 1)
    argmax("expanded.f32", t.gen("f32", 3, 1).expand(2, 3, 4), 1)
    argmax("channels_last.f32", t.gen("f32", 2, 3, 5, 3).channels_last(), -4, 1)
    argmax("last_dim.f32", t.gen("f32", 2, 3, 5, 3), 3, 1)

    def softmax(name, x, dim):
        t.case(name, "softmax", [x], lambda v: F.softmax(v, dim), "function", {"dim": dim})
    softmax("zeros.f32", t.data([[-0.0, 0.0, 1e-40], [-0.0, -0.0, -0.0]], "f32"), 1)
    for dim in (-4, 3):
        softmax(f"dim{dim}.f32", t.gen("f32", 2, 3, 5, 3).channels_last(), dim)


def norms(t):
    tiny = t.data([[1e-40, -0.0, 0.0, -1e-45], [1.0, -0.0, 2.0, 1e-39]], "f32")
    bad = t.data([[1.0, INF, 2.0, -1.0], [-INF, NAN, 2.0, 0.5]], "f32")

    def layer(name, x, n, w=None, b=None, eps=1e-5):
        t.case(name, "layer_norm", [x, w, b], lambda v, p, q: F.layer_norm(v, v.shape[-n:], p, q, eps), "sum",
               {"normalized_ndim": n, "eps": eps})

    def rms(name, x, n, w=None, eps=1e-6):
        t.case(name, "rms_norm", [x, w], lambda v, p: F.rms_norm(v, v.shape[-n:], p, eps), "sum", {"normalized_ndim": n, "eps": eps})
    for norm in (layer, rms):
        norm("tiny.f32", tiny, 1)
        norm("no_eps.f32", t.gen("f32", 3, 19), 1, eps=0.0)
        norm("little_eps.f32", t.gen("f32", 3, 19), 1, eps=1e-12)
        norm("large_eps.f32", t.gen("f32", 3, 19), 1, eps=1e3)
        norm("eight.f32", t.gen("f32", 1, 2, 1, 3, 1, 2, 1, 5), 8, t.gen("f32", 1, 2, 1, 3, 1, 2, 1, 5))
    rms("special.f32", bad, 1)
    rms("one.f32", t.gen("f32", 1, 1), 1)
    rms("long.f32", t.gen("f32", 2, 1021), 1)
    rms("expanded.f32", t.gen("f32", 1, 19).expand(3, 19), 1, t.gen("f32", 19))

    def group(name, x, groups, w=None, b=None, eps=1e-5):
        t.case(name, "group_norm", [x, w, b], lambda v, p, q: F.group_norm(v, groups, p, q, eps), "sum", {"num_groups": groups, "eps": eps})
    group("tiny.f32", tiny, 2)
    group("special.f32", bad, 2)
    group("expanded.f32", t.gen("f32", 2, 4, 1, 1).expand(2, 4, 3, 3), 2)
    # a group of one element is its mean (torch does not take a picture of one element)
    t.case("one.f32", "group_norm", [t.gen("f32", 1, 1, 1, 1), t.gen("f32", 1), t.gen("f32", 1)], lambda v, p, q: q.reshape(1, 1, 1, 1),
           "sum", {"num_groups": 1, "eps": 1e-5})
    for name, x, groups in (("one.f32", t.gen("f32", 1, 1), 1), ("tiny.f32", tiny, 2)):
        t.case(name, "group_norm_stats", [x], lambda v, g=groups: mean_and_variance(v, g), "function", {"num_groups": groups}, "f32")

    def apply(name, x, s, eps):
        t.case(name, "group_norm_apply", [x, s, None, None], lambda v, m, p, q: apply_stats(v, m, p, q, eps), "sum", {"eps": eps})
    apply("one.f32", t.gen("f32", 1, 1), t.gen("f32", 1, 1, 2, positive=True), 1e-5)
    apply("tiny.f32", tiny, t.gen("f32", 2, 2, 2, positive=True), 1e-5)
    for name, eps in (("no_eps.f32", 0.0), ("little_eps.f32", 1e-12), ("large_eps.f32", 1e3)):
        apply(name, t.gen("f32", 2, 6, 3, 3), t.gen("f32", 2, 3, 2, positive=True), eps)


def products(t):
    tiny = t.data([[1e-40, -0.0, 1.0], [-1e-45, 2.0, 0.0]], "f32")
    bad = t.data([[1.0, INF, 2.0], [NAN, 1.0, -0.0], [-INF, 1.0, 3.0]], "f32")
    t.case("one.f32", "matmul", [t.gen("f32", 1, 1), t.gen("f32", 1, 1)], torch.matmul, "sum")
    t.case("tiny.f32", "matmul", [tiny, t.gen("f32", 3, 4)], torch.matmul, "sum")
    t.case("tiny.f16", "matmul", [t.data([TINY_F16, TINY_F16[::-1]], "f16"), t.gen("f16", 5, 3, scale=64.0)], torch.matmul, "sum")
    t.case("special.f32", "linear", [bad, t.gen("f32", 4, 3, positive=True), t.gen("f32", 4)], F.linear, "sum")
    t.case("tiny.f32", "linear", [tiny, t.gen("f32", 4, 3), None], F.linear, "sum")
    unit = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
    t.case("tiny.f32", "conv2d", [t.data([[[[1e-40, -0.0, 1.0], [-1e-45, 2.0, 0.0]]]], "f32"), t.gen("f32", 2, 1, 1, 2), None],
           lambda v, k, c: F.conv2d(v, k), "conv", unit)

    def transposed(name, x, w, bias=None, padding=0):
        t.case(name, "conv_transpose2d", [x, w, bias], lambda v, k, c: F.conv_transpose2d(v, k, c, padding=padding), "conv",
               {**unit, "padding": [padding, padding], "output_padding": [0, 0]})
    transposed("one.f32", t.gen("f32", 1, 1, 1, 1), t.gen("f32", 1, 1, 1, 1), t.gen("f32", 1))
    transposed("tiny.f32", t.data([[[[1e-40, -0.0], [-1e-45, 2.0]]]], "f32"), t.gen("f32", 1, 2, 2, 2))
    transposed("special.f32", t.data([[[[NAN, 1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, INF]]]], "f32"), t.gen("f32", 1, 1, 2, 2, positive=True))
    transposed("expanded.f32", t.gen("f32", 1, 1, 3, 3).expand(2, 4, 3, 3), t.gen("f32", 4, 3, 3, 3))
    transposed("large.f32", t.gen("f32", 1, 17, 9, 7), t.gen("f32", 17, 9, 3, 3), t.gen("f32", 9), 1)

    def sdpa(name, q, k, v):
        t.case(name, "sdpa", [q, k, v, None], lambda a, b, c, m: F.scaled_dot_product_attention(a, b, c), "sum",
               {"is_causal": 0, "scale": 0.0})
    sdpa("single.f32", t.gen("f32", 1, 1, 1, 1), t.gen("f32", 1, 1, 3, 1), t.gen("f32", 1, 1, 3, 1))
    sdpa("tiny.f32", t.data([[[1e-40, -0.0], [1.0, -1e-45]]], "f32"), t.gen("f32", 1, 3, 2), t.gen("f32", 1, 3, 2))


def convolutions(t):
    """Channels-last, as convolutions choose it: each attribute for the kernels that take nothing else."""
    def conv(name, x, w, bias=True, stride=1, padding=0, dilation=1, groups=1, dtype="f32"):
        b = t.gen(dtype, w[0]) if bias else None
        t.case(f"last_{name}.{dtype}", "conv2d", [t.gen(dtype, *x).channels_last(), t.gen(dtype, *w), b],
               lambda v, k, c: F.conv2d(v, k, c, stride, padding, dilation, groups), "conv", conv_attrs(stride, padding, dilation, groups))
    conv("no_padding", (2, 5, 7, 6), (4, 5, 3, 3))
    conv("stride2", (1, 6, 8, 9), (5, 6, 3, 3), False, 2, 1)
    conv("uneven", (2, 4, 9, 8), (6, 4, 3, 2), True, (2, 3), (1, 2), (2, 1))
    conv("wide_padding", (1, 4, 5, 4), (3, 4, 3, 3), False, 1, 4)
    conv("dilated", (1, 4, 9, 8), (6, 4, 3, 2), False, 1, 2, 3)
    conv("long_stride", (2, 4, 9, 8), (6, 4, 3, 2), False, 7)
    conv("whole", (2, 3, 4, 5), (6, 3, 4, 5))
    conv("row_kernel", (1, 3, 6, 7), (2, 3, 1, 5), False, 1, (0, 2))
    conv("column_kernel", (1, 3, 6, 7), (2, 3, 5, 1), False, 1, (2, 0))
    conv("7x7", (1, 3, 9, 9), (4, 3, 7, 7), True, 2, 3)
    conv("one_pixel", (3, 4, 1, 1), (5, 4, 3, 3), True, 1, 1)
    conv("one_channel", (1, 1, 6, 5), (1, 1, 3, 3), True, 1, 1)
    conv("depthwise", (2, 5, 6, 6), (10, 1, 3, 3), True, 1, 1, 1, 5)
    conv("no_batch", (0, 4, 5, 5), (3, 4, 3, 3))
    # whole and cut tiles of 4 x 4 outputs
    for h, w, pad in ((4, 4, 1), (5, 9, 1), (6, 6, 0), (8, 3, 2)):
        conv(f"tiles_{h}x{w}_{pad}", (2, 17, h, w), (19, 17, 3, 3), True, 1, pad)
    for dtype in FLOATS[1:]:
        conv("stride2", (1, 6, 8, 9), (5, 6, 3, 3), False, 2, 1, dtype=dtype)
        conv("1x1", (2, 9, 5, 3), (7, 9, 1, 1), dtype=dtype)


def pools(t):
    tiny = t.data([[[[1e-40, -0.0, 1e-39, 0.0], [-1e-45, -0.0, -0.0, -0.0]]]], "f32")
    for op, fn, limit, more in (("avg_pool2d", F.avg_pool2d, "sum", {"count_include_pad": 1}),
                                ("max_pool2d", F.max_pool2d, "exact", {"dilation": [1, 1]})):
        def pool(name, x, kernel, op=op, fn=fn, limit=limit, more=more):
            t.case(name, op, [x], lambda v: fn(v, kernel), limit,
                   {"kernel_size": [kernel] * 2, "stride": [kernel] * 2, "padding": [0, 0], "ceil_mode": 0, **more})
        pool("pixel.f32", t.gen("f32", 1, 1, 1, 1), 1)
        pool("tiny.f32", tiny, 2)
        pool("expanded.f32", t.gen("f32", 1, 3, 1, 4).expand(2, 3, 6, 4), 2)
        pool("large.f32", t.gen("f32", 1, 17, 9, 11), 2)


def more_dtypes(t):
    """Every dtype through every layout, for the copies."""
    for dtype in ALL:
        t.case(f"layouts.{dtype}", "cat", [t.gen(dtype, 3, 4).permute(1, 0), t.gen(dtype, 4, 5).slice(1, 0, 5, 2)],
               lambda a, b: torch.cat((a, b), 1), "bits", {"dim": 1})
        t.case(f"from_last.{dtype}", "reshape", [t.gen(dtype, 2, 3, 2, 3).channels_last()], lambda v: v.reshape(6, 6), "bits",
               {"shape": [6, 6]})
    for dtype in FLOATS[1:]:
        for mode in (0, 1):
            t.case(f"large.{dtype}.{mode}", "contiguous", [t.gen(dtype, 1, 33, 7, 5)], lambda v: v, "bits", {"memory_format": mode})


def add(t):
    for part in (pointwise, pairs, moved, lookups, reductions, norms, products, pools, more_dtypes, convolutions):
        part(t)
