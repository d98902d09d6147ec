"""Cases of the element-wise ops: unary, scalar, binary, comparisons, where."""
import math

import numpy as np
import torch
import torch.nn.functional as F

from .table import FLOATS

INF, NAN = math.inf, math.nan
ORDINARY = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.0, -7.0, 0.0625, 100.0, -100.0, 40.0, -9.0, 11.0, 1e-3, -1e-3]
SPECIAL = [NAN, INF, -INF]
DENORMAL = {"f32": [1e-40, -1e-45], "f16": [6e-8, -3e-5], "bf16": [1e-40, -9.2e-41]}
LARGEST = {"f32": [3.4028234663852886e38, -3.4028234663852886e38], "f16": [65504.0, -65504.0], "bf16": [3.3895313892515355e38, -1e38]}


def quick_gelu(x):
    return x * torch.sigmoid(1.702 * x)


# op: (function, limit, wants only positive numbers, takes the largest numbers and denormals)
UNARY = {
    "neg": (torch.neg, "exact", False, True), "abs": (torch.abs, "exact", False, True), "exp": (torch.exp, "function", False, False),
    "log": (torch.log, "function", True, False), "sqrt": (torch.sqrt, "round", True, False), "rsqrt": (torch.rsqrt, "function", True,
                                                                                                       False),
    "reciprocal": (torch.reciprocal, "round", False, False), "square": (torch.square, "round", False, False),
    "sin": (torch.sin, "function", False, False), "cos": (torch.cos, "function", False, False), "tanh": (torch.tanh, "function", False,
                                                                                                         True),
    "erf": (torch.erf, "function", False, True), "floor": (torch.floor, "exact", False, False), "ceil": (torch.ceil, "exact", False, False),
    "round": (torch.round, "exact", False, True), "sigmoid": (torch.sigmoid, "function", False, True), "relu": (F.relu, "exact", False,
                                                                                                                True),
    "silu": (F.silu, "function", False, True), "quick_gelu": (quick_gelu, "function", False, True),
    "logical_not": (torch.logical_not, "bits", False, False),
}


def special(dtype, extremes):
    return SPECIAL + ORDINARY + (LARGEST[dtype] + DENORMAL[dtype] if extremes else [])


def unary(t, op, fn, limit, positive, extremes, attrs=None, name=""):
    how = {"scale": 2.0, "positive": True} if positive else {"scale": 2.0}
    for dtype in FLOATS:
        t.case(f"{name}special.{dtype}", op, [t.data(special(dtype, extremes), dtype)], fn, limit, attrs)
        t.case(f"{name}plain.{dtype}", op, [t.gen(dtype, 3, 19, **how)], fn, limit, attrs)
    t.case(f"{name}strided.f32", op, [t.gen("f32", 4, 6, 5, **how).permute(2, 0, 1).slice(2, 1, 6, 2)], fn, limit, attrs)
    t.case(f"{name}channels_last.bf16", op, [t.gen("bf16", 2, 3, 3, 2, **how).channels_last()], fn, limit, attrs)
    t.case(f"{name}expanded.f16", op, [t.gen("f16", 1, 3, **how).expand(2, 4, 3)], fn, limit, attrs)
    t.case(f"{name}scalar.f32", op, [t.gen("f32", **how)], fn, limit, attrs)
    t.case(f"{name}empty.f32", op, [t.gen("f32", 3, 0, 2)], fn, limit, attrs)


def unary_cases(t):
    for op, (fn, limit, positive, extremes) in UNARY.items():
        unary(t, op, fn, limit, positive, extremes)
    t.case("long.f32", "silu", [t.gen("f32", 3001, scale=4.0)], F.silu, "function")
    t.case("long.bf16", "exp", [t.gen("bf16", 1031, scale=4.0)], torch.exp, "function")
    for number, approximate in enumerate(("none", "tanh")):
        unary(t, "gelu", lambda x, a=approximate: F.gelu(x, approximate=a), "function", False, False, {"approximate": number},
              approximate + ".")
    edges = {"i8": [-128, -127, -1, 0, 1, 127, 100], "u8": [0, 1, 2, 128, 200, 255],
             "i32": [-2**31, -2**31 + 1, -3, 0, 5, 2**31 - 1, 70000],
             "i64": [-2**63, -2**63 + 1, -3, 0, 5, 2**63 - 1, 2**53 + 1]}
    for dtype, values in edges.items():
        for op in ("neg", "abs", "square", "relu"):
            t.case(f"edges.{dtype}", op, [t.data(values, dtype)], UNARY[op][0], "bits")
        t.case(f"edges.{dtype}", "logical_not", [t.data(values, dtype)], torch.logical_not, "bits")
    t.case("bool", "logical_not", [t.gen("bool", 7)], torch.logical_not, "bits")


def f32(v):
    return float(np.float32(v))


def scalar_cases(t):
    for other in (0.1, -3.0, 0.0):
        name = f"by{other}"
        unary(t, "add_scalar", lambda x, o=f32(other): x + o, "round", False, False, {"other": other}, name + ".")
        unary(t, "mul_scalar", lambda x, o=f32(other): x * o, "round", False, False, {"other": other}, name + ".")
    # the number counts as f32: -0.1f + 0.1 is 0
    t.case("cancels.f32", "add_scalar", [t.data([-0.1, 0.1], "f32")], lambda x: x + f32(0.1), "round", {"other": 0.1})
    t.case("infinite.f32", "mul_scalar", [t.data(SPECIAL + [0.0, 2.0, -2.0], "f32")], lambda x: x * INF, "round", {"other": INF})
    for exponent in (0.0, 1.0, 2.0, 3.0, 0.5, -0.5, -1.0, -2.0, INF):
        fn = lambda x, e=exponent: torch.pow(x, e)  # noqa: E731
        t.case(f"special.{exponent}.f32", "pow_scalar", [t.data(SPECIAL + ORDINARY, "f32")], fn, "function", {"exponent": exponent})
    for exponent in (2.0, 0.5, 1.7, -0.3):
        for dtype in FLOATS:
            t.case(f"positive.{exponent}.{dtype}", "pow_scalar", [t.gen(dtype, 3, 11, positive=True)],
                   lambda x, e=f32(exponent): torch.pow(x, e), "function", {"exponent": exponent})
    for dtype, values in {"i8": [-128, -3, 0, 7, 127], "u8": [0, 3, 200, 255], "i32": [-2**31, -3, 9, 2**31 - 1],
                          "i64": [-2**63, 2**53 + 1, -7, 3, 2**63 - 1]}.items():
        x = t.data(values, dtype)
        for e in (0, 1, 2, 3, 5):
            t.case(f"by{e}.{dtype}", "pow_scalar", [x], lambda x, e=e: torch.pow(x, e), "bits", {"exponent": float(e)})
        t.case(f"wraps.{dtype}", "add_scalar", [x], lambda x: x + 100, "bits", {"other": 100.0})
        t.case(f"wraps.{dtype}", "mul_scalar", [x], lambda x: x * -3, "bits", {"other": -3.0})
        t.case(f"both.{dtype}", "clamp", [x], lambda x: x.clamp(2, 100), "bits", {"min": 2.0, "max": 100.0})
        t.case(f"open.{dtype}", "clamp", [x], lambda x: x.clamp(max=7), "bits", {"min": -INF, "max": 7.0})
    t.case("beyond.i8", "clamp", [t.data([-128, 5, 127], "i8")], lambda x: x.clamp(-300, 300), "bits", {"min": -300.0, "max": 300.0})
    for low, high in ((-0.5, 0.75), (-INF, 1.0), (0.0, INF), (2.0, -2.0), (NAN, 1.0), (0.0, NAN), (0.1, 0.3)):
        unary(t, "clamp", lambda x, a=f32(low), b=f32(high): x.clamp(a, b), "exact", False, True, {"min": low, "max": high},
              f"{low}to{high}.")


# op: (function, limit, dtypes beyond the floating-point ones)
ANY = ("i8", "u8", "i32", "i64", "bool")
BINARY = {
    "add": (torch.add, "round", ANY), "sub": (torch.sub, "round", ANY[:4]), "mul": (torch.mul, "round", ANY), "div": (torch.div, "round",
                                                                                                                      ()),
    "maximum": (torch.maximum, "exact", ANY), "minimum": (torch.minimum, "exact", ANY), "eq": (torch.eq, "bits", ANY),
    "ne": (torch.ne, "bits", ANY), "lt": (torch.lt, "bits", ANY), "le": (torch.le, "bits", ANY), "gt": (torch.gt, "bits", ANY),
    "ge": (torch.ge, "bits", ANY), "logical_and": (torch.logical_and, "bits", ANY), "logical_or": (torch.logical_or, "bits", ANY),
}
PAIRS = {"i8": [-128, -1, 0, 1, 100, 127], "u8": [0, 1, 2, 128, 255], "i32": [-2**31, -1, 0, 1, 2**31 - 1, 65537],
         "i64": [-2**63, -1, 0, 2**53, 2**53 + 1, 2**63 - 1], "bool": [False, True]}
FLOAT_PAIRS = SPECIAL + [0.0, -0.0, 1.0, -1.0, 2.5, -3.0, 0.0625, 1000.0]


def binary_cases(t):
    for op, (fn, limit, others) in BINARY.items():
        for dtype in FLOATS:
            t.case(f"pairs.{dtype}", op, [t.data([[v] for v in FLOAT_PAIRS], dtype), t.data(FLOAT_PAIRS, dtype)], fn, limit)
            t.case(f"plain.{dtype}", op, [t.gen(dtype, 5, 13), t.gen(dtype, 5, 13)], fn, limit)
        t.case("broadcast.f32", op, [t.gen("f32", 3, 1, 5), t.gen("f32", 4, 1)], fn, limit)
        t.case("picture.f32", op, [t.gen("f32", 2, 5, 3, 3).channels_last(), t.gen("f32", 2, 5, 1, 1)], fn, limit)
        t.case("row.f16", op, [t.gen("f16", 3, 17), t.gen("f16", 17)], fn, limit)
        t.case("strided.f32", op, [t.gen("f32", 6, 4).permute(1, 0), t.gen("f32", 4, 11).slice(1, 0, 11, 2)], fn, limit)
        t.case("expanded.bf16", op, [t.gen("bf16", 3, 1).expand(2, 3, 4), t.gen("bf16", 2, 3, 4)], fn, limit)
        t.case("empty.f32", op, [t.gen("f32", 0, 3), t.gen("f32", 1, 3)], fn, limit)
        t.case("scalars.f32", op, [t.gen("f32"), t.gen("f32")], fn, limit)
        for dtype in others:
            t.case(f"pairs.{dtype}", op, [t.data([[v] for v in PAIRS[dtype]], dtype), t.data(PAIRS[dtype], dtype)], fn, "bits")
    base = [0.0, 0.25, 1.0, 2.0, 3.5]
    for dtype in FLOATS:
        t.case(f"pairs.{dtype}", "pow", [t.data([[v] for v in base], dtype), t.data([-2.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0], dtype)],
               torch.pow,
               "function")
        t.case(f"plain.{dtype}", "pow", [t.gen(dtype, 4, 9, positive=True), t.gen(dtype, 4, 9)], torch.pow, "function")
    t.case("negative.f32", "pow", [t.data([[-2.0], [-1.0], [-0.5]], "f32"), t.data([0.0, 1.0, 2.0, 3.0, 0.5], "f32")], torch.pow,
           "function")
    t.case("nan.f32", "pow", [t.data([[NAN], [1.0], [2.0]], "f32"), t.data([NAN, 0.0, 1.0], "f32")], torch.pow, "function")
    t.case("broadcast.f32", "pow", [t.gen("f32", 3, 1, positive=True), t.gen("f32", 2, 1, 4)], torch.pow, "function")
    t.case("long.f32", "add", [t.gen("f32", 7, 331), t.gen("f32", 7, 331)], torch.add, "round")


def where_cases(t):
    for dtype in FLOATS + ANY:
        t.case(f"plain.{dtype}", "where", [t.gen("bool", 3, 5), t.gen(dtype, 3, 5), t.gen(dtype, 3, 5)], torch.where, "bits")
    t.case("broadcast.f32", "where", [t.gen("bool", 4, 1), t.gen("f32", 2, 1, 3), t.gen("f32", 3)], torch.where, "bits")
    t.case("scalars.i64", "where", [t.gen("bool", 5), t.data(2**53 + 1, "i64"), t.data(-(2**62), "i64")], torch.where, "bits")
    t.case("nan.f32", "where", [t.data([True, False, True], "bool"), t.data([NAN, NAN, -0.0], "f32"), t.data([1.0, 2.0, 3.0], "f32")],
           torch.where, "bits")
    t.case("strided.f16", "where", [t.gen("bool", 3, 4).permute(1, 0), t.gen("f16", 4, 6).slice(1, 0, 6, 2), t.gen("f16", 1).expand(4, 3)],
           torch.where, "bits")
    t.case("empty.f32", "where", [t.gen("bool", 0, 1), t.gen("f32", 3), t.gen("f32", 1, 3)], torch.where, "bits")


def add(t):
    unary_cases(t)
    scalar_cases(t)
    binary_cases(t)
    where_cases(t)
