"""Cases of interpolate, avg_pool2d and max_pool2d."""
import math

import torch
import torch.nn.functional as F

from .table import FLOATS, TORCH

INF, NAN = math.inf, math.nan


def interpolate_cases(t):
    def resize(name, x, size=None, scale=None, mode="nearest", align=False):
        kwargs = {"size": size, "scale_factor": scale, "mode": mode}
        if mode == "bilinear":
            kwargs["align_corners"] = align
        h, w = scale if isinstance(scale, tuple) else (scale, scale)
        attrs = {"size": list(size or (0, 0)), "mode": int(mode == "bilinear"), "align_corners": int(align), "scale_h": float(h or 0),
                 "scale_w": float(w or 0)}
        # nearest copies bits, and its index rule is f32 arithmetic: torch computes it in the input's own dtype
        t.case(name, "interpolate", [x], lambda v: F.interpolate(v, **kwargs), "function" if mode == "bilinear" else "bits", attrs)

    for dtype in FLOATS:
        resize(f"twice.{dtype}", t.gen(dtype, 2, 3, 4, 5), scale=2.0)
        resize(f"twice_last.{dtype}", t.gen(dtype, 2, 9, 4, 5).channels_last(), scale=2.0)
        resize(f"size.{dtype}", t.gen(dtype, 1, 3, 5, 7), (8, 3))
        resize(f"bilinear.{dtype}", t.gen(dtype, 2, 3, 4, 5), (7, 9), mode="bilinear")
        resize(f"bilinear_corners.{dtype}", t.gen(dtype, 2, 3, 4, 5), (7, 9), mode="bilinear", align=True)
    resize("size.u8", t.gen("u8", 1, 3, 5, 7, low=0, high=256), (8, 3))
    picture = t.gen("f32", 1, 2, 5, 7)
    for h, w in ((0.3, 1.7), (1.1, 1.0), (1.3, 2.0), (0.5, 3.0), (2.5, 0.2), (1.9999999, 2.0000001)):
        resize(f"scale_{h}_{w}.f32", picture, scale=(h, w))
        resize(f"bilinear_scale_{h}_{w}.f32", picture, scale=(h, w), mode="bilinear")
        resize(f"corners_scale_{h}_{w}.f32", picture, scale=(h, w), mode="bilinear", align=True)
    # sizes and scales at which floor(o * step) is another one in f64, or with the exact quotient
    for n, out in ((2, 82), (2, 98), (3, 123), (3, 147), (6, 74), (2, 214)):
        resize(f"rounded_{n}_{out}.f32", t.gen("f32", 1, 1, 1, n), (1, out))
    for n, scale in ((6, 7.4), (6, 9.8), (11, 3.7), (11, 4.9)):
        resize(f"rounded_{n}_by_{scale}.f32", t.gen("f32", 1, 1, 1, n), scale=(1.0, scale))
    for n in range(1, 8):
        resize(f"small_{n}.f32", t.gen("f32", 1, 1, n, 3), (5, n))
        resize(f"bilinear_small_{n}.f32", t.gen("f32", 1, 1, n, 3), (5, n), mode="bilinear")
    resize("same.f32", picture, (5, 7))
    resize("bilinear_same.f32", picture, (5, 7), mode="bilinear")
    resize("to_one.f32", picture, (1, 1))
    resize("corners_to_one.f32", picture, (1, 1), mode="bilinear", align=True)
    resize("bilinear_to_one.f32", picture, (1, 1), mode="bilinear")
    resize("from_one.f32", t.gen("f32", 2, 2, 1, 1), (3, 4), mode="bilinear")
    resize("strided.f32", t.gen("f32", 5, 2, 6, 4).permute(1, 3, 2, 0).slice(2, 0, 6, 2), (5, 9))
    resize("bilinear_strided.f32", t.gen("f32", 5, 2, 6, 4).permute(1, 3, 2, 0), (5, 9), mode="bilinear")
    resize("bilinear_last.f32", t.gen("f32", 2, 9, 4, 5).channels_last(), (6, 7), mode="bilinear")
    resize("expanded.f32", t.gen("f32", 1, 1, 3, 1).expand(2, 2, 3, 4), (5, 5))
    resize("no_batch.f32", t.gen("f32", 0, 2, 3, 3), scale=2.0)
    resize("nan.f32", t.data([[[[NAN, 1.0], [INF, -0.0]]]], "f32"), scale=2.0)


def pool_cases(t):
    def pair(v):
        return list(v) if isinstance(v, tuple) else [v, v]

    def average(name, x, kernel, stride=None, padding=0, ceil=False, include=True):
        t.case(name, "avg_pool2d", [x], lambda v: F.avg_pool2d(v, kernel, stride, padding, ceil, include), "sum",
               {"kernel_size": pair(kernel), "stride": pair(stride or kernel), "padding": pair(padding), "ceil_mode": int(ceil),
                "count_include_pad": int(include)})

    def largest(name, x, kernel, stride=None, padding=0, dilation=1, ceil=False):
        t.case(name, "max_pool2d", [x], lambda v: F.max_pool2d(v, kernel, stride, padding, dilation, ceil), "bits",
               {"kernel_size": pair(kernel), "stride": pair(stride or kernel), "padding": pair(padding), "dilation": pair(dilation),
                "ceil_mode": int(ceil)})

    for dtype in FLOATS:
        x = t.gen(dtype, 2, 3, 7, 6)
        average(f"plain.{dtype}", x, 2)
        average(f"padded.{dtype}", x, 3, 2, 1)
        largest(f"plain.{dtype}", x, 2)
        largest(f"padded.{dtype}", x, 3, 2, 1)
    x = t.gen("f32", 2, 3, 7, 6)
    for include in (True, False):
        for ceil in (True, False):
            name = f"{'ceil' if ceil else 'floor'}_{'with' if include else 'without'}_pad"
            average(f"{name}.f32", x, 3, 2, 1, ceil, include)
            average(f"{name}_uneven.f32", x, (3, 2), (2, 5), (1, 0), ceil, include)
            average(f"{name}_4.f32", x, 4, 3, 2, ceil, include)
    for ceil in (True, False):
        name = "ceil" if ceil else "floor"
        largest(f"{name}.f32", x, 3, 2, 1, 1, ceil)
        largest(f"{name}_uneven.f32", x, (3, 2), (2, 5), (1, 0), (1, 2), ceil)
        largest(f"{name}_dilated.f32", x, 2, 3, 1, 3, ceil)
    for op in (average, largest):
        op("overlap.f32", x, 3, 1, 1)
        op("whole.f32", x, (7, 6))
        op("one.f32", x, 1)
        op("gaps.f32", x, 1, 3)
        op("channels_last.f32", t.gen("f32", 2, 9, 5, 4).channels_last(), 2)
        op("strided.f32", t.gen("f32", 5, 2, 6, 4).permute(1, 3, 2, 0).slice(2, 0, 6, 2), 2, 1)
        op("no_batch.f32", t.gen("f32", 0, 2, 3, 3), 2)
        op("special.f32",
           t.data([[[[NAN, 1.0, 2.0, -INF], [3.0, INF, -INF, -INF], [1.0, 2.0, -1.0, -2.0], [0.5, 5.0, -3.0, -4.0]]]], "f32"), 2)
    for dtype in ("i8", "u8", "i32", "i64"):
        largest(f"plain.{dtype}", t.gen(dtype, 1, 2, 5, 5, low=0 if dtype == "u8" else -90, high=90), 3, 2, 1)
    wide = torch.tensor([[[[2**53, 2**53 + 1], [5, -(2**63)]]]], dtype=TORCH["i64"])
    largest("wide.i64", t.data(wide, "i64"), 2)


def add(t):
    interpolate_cases(t)
    pool_cases(t)
