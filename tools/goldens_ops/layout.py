"""Cases of cast, contiguous, reshape, permute, expand, slice, cat and pad."""
import math

import torch
import torch.nn.functional as F

from .table import FLOATS, INTEGERS, NUMBER, TORCH, round_once

ALL = FLOATS + INTEGERS + ("bool",)

# What lies on and beside the boundaries between two values of f16 and of bf16, and where their ranges end.
TIES = [1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1.0 + 2.0**-11 + 2.0**-23, 1.0 + 2.0**-11 - 2.0**-23, 1.0 + 2.0**-8, 1.0 + 3 * 2.0**-8,
        1.0 + 2.0**-8 + 2.0**-23, 65504.0, 65519.0, 65520.0, 65519.996, 2.0**-14, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001, 3 * 2.0**-25,
        2.0**-14 - 2.0**-25, 3.3895313892515355e38, 3.3961775292304957e38, 3.39617e38, 1e-40, 9.2e-41, 4.59e-41, 4.6e-41, 2.0**-149]
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0]
# As doubles these round to the middle between two f32 values.
WIDE = [2**53 + 2**29 + 1, -(2**53 + 2**29 + 1), 2**53 + 1, 2**63 - 1, -(2**63), 2**24 + 1, 16777219, 257, 2049, 2051, 65519, 65520, 0, -1]


def cast(t, name, x, to):
    wide = x.tensor.is_floating_point() and to in FLOATS
    fn = (lambda v, d=to: round_once(v.double(), d)) if wide else (lambda v, d=to: v.to(TORCH[d]))
    t.case(f"{name}.{to}", "cast", [x], fn, "bits", {"dtype": NUMBER[to]}, to)


def cast_cases(t):
    for src in ALL:
        for dst in ALL:
            if src != dst:
                how = {} if src in FLOATS + ("bool",) else {"low": 0 if "u8" in (src, dst) else -90, "high": 90}
                x = t.gen(src, 3, 5, scale=32.0, positive=dst == "u8") if src in FLOATS else t.gen(src, 3, 5, **how)
                cast(t, f"plain.{src}", x, dst)
    ties = torch.tensor(TIES + [-v for v in TIES] + SPECIAL)
    for dst in ("f16", "bf16"):
        cast(t, "ties.f32", t.data(ties, "f32"), dst)
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16)
    some = every[torch.cat([torch.arange(0, 40), torch.arange(1000, 65536, 97)])]  # NaN payloads are part of them
    for src in ("f16", "bf16"):
        for dst in FLOATS:
            if src != dst:
                cast(t, f"bits.{src}", t.data(some.view(TORCH[src]), src), dst)
        cast(t, f"special.{src}", t.data(torch.tensor(SPECIAL + [0.5, -0.25]).to(TORCH[src]), src), "bool")
    cast(t, "special.f32", t.data(SPECIAL + [1e-40, 0.5], "f32"), "bool")
    truncated = [0.99, -0.99, 1.5, -1.5, 100.999, -100.999, 2.0**-20, -0.0]
    for dst in ("i8", "i32", "i64"):
        cast(t, "truncates.f32", t.data(truncated, "f32"), dst)
    cast(t, "truncates.f32", t.data([abs(v) for v in truncated] + [255.5], "f32"), "u8")
    cast(t, "large.f32", t.data([2.0**62, -(2.0**63), 2.0**24 + 2, 16777216.0], "f32"), "i64")
    for dst in ("f32", "f16", "bf16", "i32", "i8", "u8", "bool"):
        cast(t, "wide.i64", t.data(WIDE, "i64"), dst)
    cast(t, "wide.i32", t.data([2**31 - 1, -(2**31), 2**24 + 1, 65519, 65520, 257, 2049, 128, 255, 256, -129], "i32"), "f32")
    cast(t, "wide.i32", t.data([2**31 - 1, -(2**31), 65519, 65520, 257, 2049, 2051], "i32"), "f16")
    cast(t, "wide.i32", t.data([300, -129, 128, 255, 256], "i32"), "i8")
    cast(t, "strided.f32", t.gen("f32", 2, 3, 4, 5).channels_last().slice(3, 1, 5, 2), "bf16")
    cast(t, "expanded.bf16", t.gen("bf16", 1, 3).expand(2, 2, 3), "f32")
    cast(t, "scalar.i64", t.data(-7, "i64"), "f16")
    cast(t, "empty.f32", t.gen("f32", 0, 3), "i8")


def contiguous_cases(t):
    for dtype in ALL:
        for number, name in enumerate(("contiguous", "channels_last")):
            t.case(f"{name}.permuted.{dtype}", "contiguous", [t.gen(dtype, 3, 4, 2, 5).permute(1, 3, 0, 2)], lambda x: x.clone(), "bits",
                   {"memory_format": number})
    for number in range(2):
        t.case(f"sliced.{number}.f32", "contiguous", [t.gen("f32", 2, 9, 3, 4).slice(1, 1, 9, 3)], lambda x: x.clone(), "bits",
               {"memory_format": number})
        t.case(f"empty.{number}.f32", "contiguous", [t.gen("f32", 2, 0, 3, 4).permute(0, 2, 1, 3)], lambda x: x.clone(), "bits",
               {"memory_format": number})
    t.case("last.f32", "contiguous", [t.gen("f32", 2, 33, 7, 5).channels_last()], lambda x: x.clone(), "bits", {"memory_format": 0})
    t.case("first.f16", "contiguous", [t.gen("f16", 2, 33, 7, 5)], lambda x: x.clone(), "bits", {"memory_format": 1})
    t.case("expanded.f32", "contiguous", [t.gen("f32", 3, 1).expand(4, 3, 6)], lambda x: x.clone(), "bits", {"memory_format": 0})
    t.case("vector.i64", "contiguous", [t.gen("i64", 17).slice(0, 0, 17, 4)], lambda x: x.clone(), "bits", {"memory_format": 0})
    t.case("nan.f32", "contiguous", [t.data([[math.nan, 1.0], [-0.0, 1e-45]], "f32").permute(1, 0)], lambda x: x.clone(), "bits",
           {"memory_format": 0})


def view_cases(t):
    def reshape(name, x, *shape):
        t.case(name, "reshape", [x], lambda v: v.reshape(shape), "bits", {"shape": shape})

    reshape("plain.f32", t.gen("f32", 2, 3, 4), 4, 6)
    reshape("inferred.f16", t.gen("f16", 2, 3, 4), 3, -1)
    reshape("same.i64", t.gen("i64", 2, 3), 2, 3)
    reshape("ones.f32", t.gen("f32", 2, 3), 1, 2, 1, 3, 1)
    reshape("drop_ones.bf16", t.gen("bf16", 1, 2, 1, 3), 2, 3)
    reshape("to_scalar.f32", t.gen("f32", 1, 1))
    reshape("from_scalar.f32", t.gen("f32"), 1, 1, -1)
    reshape("empty.f32", t.gen("f32", 0, 3), 5, 0)
    reshape("empty_inferred.f32", t.gen("f32", 2, 0, 3), -1, 3)
    reshape("permuted_copies.f32", t.gen("f32", 2, 3, 4).permute(2, 0, 1), 8, 3)
    reshape("permuted_view.f32", t.gen("f32", 2, 3, 4).permute(2, 0, 1), 2, 2, 2, 3)
    reshape("heads.f16", t.gen("f16", 2, 5, 3, 4).permute(0, 2, 1, 3), 2, 3, 20)
    reshape("sliced.i8", t.gen("i8", 4, 6).slice(1, 1, 6, 2), 12)
    reshape("rows.u8", t.gen("u8", 6, 4).slice(0, 0, 6, 2), 3, 2, 2)
    reshape("expanded.f32", t.gen("f32", 3, 1).expand(2, 3, 4), 6, 4)
    reshape("expanded_merge.f32", t.gen("f32", 1, 1).expand(2, 3), 6)
    reshape("channels_last.bf16", t.gen("bf16", 2, 3, 2, 2).channels_last(), 2, 12)
    reshape("eight.bool", t.gen("bool", 2, 2, 2, 2, 2, 2, 2, 2), 16, 16)
    for dtype in ALL:
        reshape(f"merges.{dtype}", t.gen(dtype, 3, 4, 2).permute(1, 0, 2), 24)

    def permute(name, x, *dims):
        t.case(name, "permute", [x], lambda v: v.permute(dims), "bits", {"dims": dims})

    for dtype in ALL:
        permute(f"plain.{dtype}", t.gen(dtype, 2, 3, 4), 2, 0, 1)
    permute("negative.f32", t.gen("f32", 2, 3, 4, 5), 0, -1, 1, -2)
    permute("scalar.f32", t.gen("f32"))
    permute("empty.f32", t.gen("f32", 0, 3), 1, 0)
    permute("twice.f32", t.gen("f32", 2, 3, 4).permute(1, 2, 0), 1, 0, 2)
    permute("expanded.f16", t.gen("f16", 2, 1).expand(3, 2, 4), 2, 1, 0)
    permute("eight.i32", t.gen("i32", 1, 2, 1, 2, 1, 2, 1, 2), 7, 6, 5, 4, 3, 2, 1, 0)

    def expand(name, x, *shape):
        t.case(name, "expand", [x], lambda v: v.expand(shape), "bits", {"shape": shape})

    for dtype in ALL:
        expand(f"plain.{dtype}", t.gen(dtype, 3, 1), 2, 3, 4)
    expand("kept.f32", t.gen("f32", 2, 1, 3), -1, 4, -1)
    expand("scalar.f32", t.gen("f32"), 2, 2)
    expand("to_empty.f32", t.gen("f32", 1, 2), 0, 2)
    expand("empty.f32", t.gen("f32", 0, 1), 0, 3)
    expand("strided.f32", t.gen("f32", 4, 3).permute(1, 0).slice(1, 0, 1), 3, 5)
    expand("same.i64", t.gen("i64", 2, 3), 2, 3)

    def slice_(name, x, dim, start, end, step):
        index = [slice(None)] * x.tensor.dim()
        near = [max(-1000, min(1000, v)) for v in (start, end, step)]  # torch does not take the largest numbers
        index[dim] = slice(*near)
        t.case(name, "slice", [x], lambda v: v[tuple(index)], "bits", {"dim": dim, "start": start, "end": end, "step": step})

    for dtype in ALL:
        slice_(f"plain.{dtype}", t.gen(dtype, 4, 7), 1, 1, 6, 2)
    slice_("all.f32", t.gen("f32", 4, 7), 0, 0, 2**63 - 1, 1)
    slice_("negative.f32", t.gen("f32", 4, 7), -1, -3, -1, 1)
    slice_("clamped.f32", t.gen("f32", 4, 7), 0, -100, 100, 3)
    slice_("beyond.f32", t.gen("f32", 4, 7), 0, 9, 20, 1)
    slice_("crossed.f32", t.gen("f32", 4, 7), 1, 5, 2, 1)
    slice_("long_step.f32", t.gen("f32", 4, 7), 1, 2, 7, 2**62)
    slice_("empty.f32", t.gen("f32", 0, 3), 0, 0, 5, 1)
    slice_("lowest.f32", t.gen("f32", 5), 0, -(2**63), 2, 1)
    slice_("strided.f16", t.gen("f16", 5, 4).permute(1, 0), 1, 1, 5, 3)
    slice_("expanded.f16", t.gen("f16", 5, 1).expand(5, 4), 1, 1, 3, 1)


def cat_cases(t):
    def cat(name, xs, dim):
        t.case(name, "cat", xs, lambda *v: torch.cat(v, dim), "bits", {"dim": dim})

    for dtype in ALL:
        cat(f"pair.{dtype}", [t.gen(dtype, 2, 3), t.gen(dtype, 2, 4)], 1)
    cat("one.f32", [t.gen("f32", 2, 3)], 0)
    cat("eight.f16", [t.gen("f16", 2, i, 3) for i in (1, 2, 0, 3, 1, 1, 5, 2)], -2)
    cat("first.i64", [t.gen("i64", 1, 3), t.gen("i64", 4, 3), t.gen("i64", 2, 3)], 0)
    cat("channels.f32", [t.gen("f32", 2, 5, 3, 4), t.gen("f32", 2, 3, 3, 4)], 1)
    cat("channels_last.f32", [t.gen("f32", 2, 5, 3, 4).channels_last(), t.gen("f32", 2, 3, 3, 4).channels_last()], 1)
    cat("mixed_formats.f32", [t.gen("f32", 2, 5, 3, 4).channels_last(), t.gen("f32", 2, 3, 3, 4)], 1)
    cat("channels_last_width.bf16", [t.gen("bf16", 2, 5, 3, 4).channels_last(), t.gen("bf16", 2, 5, 3, 2).channels_last()], 3)
    cat("strided.f32", [t.gen("f32", 3, 4).permute(1, 0), t.gen("f32", 4, 9).slice(1, 0, 9, 4), t.gen("f32", 4, 1).expand(4, 2)], 1)
    cat("empty.f32", [t.gen("f32", 0, 3), t.gen("f32", 0, 3)], 0)


def pad_cases(t):
    def pad(name, x, amounts, value=0.0):
        t.case(name, "pad", [x], lambda v: F.pad(v, amounts, value=value), "bits", {"pad": amounts, "value": value})

    for dtype in ALL:
        pad(f"plain.{dtype}", t.gen(dtype, 2, 3), (1, 2), 1.0)
    pad("picture.f32", t.gen("f32", 2, 3, 4, 5), (1, 2, 3, 0), -1.5)
    pad("vae.f32", t.gen("f32", 1, 3, 4, 4), (0, 1, 0, 1))
    pad("channels_last.f32", t.gen("f32", 2, 3, 4, 5).channels_last(), (0, 1, 2, 1), 0.5)
    pad("channels.f16", t.gen("f16", 2, 3, 4, 5), (0, 0, 1, 0, 2, 1), 0.25)
    pad("all.f32", t.gen("f32", 2, 3), (1, 1, 2, 2), math.inf)
    pad("nan.bf16", t.gen("bf16", 3), (1, 1), math.nan)
    pad("crop.f32", t.gen("f32", 5, 6), (-1, -2, 1, -1), 9.0)
    pad("crop_all.f32", t.gen("f32", 5, 2), (-2, 5), 9.0)
    pad("to_empty.f32", t.gen("f32", 5, 2), (-1, -1))
    pad("from_empty.f32", t.gen("f32", 0, 2), (0, 0, 2, 1), 3.0)
    pad("none.f32", t.gen("f32", 2, 2), ())
    pad("strided.f32", t.gen("f32", 4, 3).permute(1, 0).slice(1, 0, 4, 2), (1, 1, 1, 1), 7.0)
    pad("truncates.i32", t.gen("i32", 3), (1, 1), 1.5)
    pad("limits.i8", t.gen("i8", 3), (1, 0), -128.0)
    pad("true.bool", t.gen("bool", 3), (1, 1), 2.0)


def add(t):
    cast_cases(t)
    contiguous_cases(t)
    view_cases(t)
    cat_cases(t)
    pad_cases(t)
