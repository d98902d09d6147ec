"""Calls that must be refused: the status and a part of the message."""
import math

INF, NAN = math.inf, math.nan
I64_MAX = 2**63 - 1


def pointwise(t):
    x, i, b = t.gen("f32", 2, 3), t.gen("i32", 2, 3), t.gen("bool", 2, 3)
    for op in ("exp", "log", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "erf", "floor", "ceil", "round", "sigmoid", "silu",
               "quick_gelu"):
        t.error("integer", op, [i], {}, "dtype", f"{op}: x is i32: expected f32, f16 or bf16; cast it with tern_cast")
    for op in ("neg", "abs", "square", "relu"):
        t.error("bool", op, [b], {}, "dtype", f"{op}: x is bool: expected a number dtype")
    t.error("integer", "gelu", [i], {"approximate": 0}, "dtype", "gelu: x is i32")
    t.error("approximate", "gelu", [x], {"approximate": 2}, "invalid", "gelu: approximate is 2: expected 0 (none) or 1 (tanh)")
    t.error("bool", "clamp", [b], {"min": 0.0, "max": 1.0}, "dtype", "clamp: x is bool")
    t.error("fraction", "clamp", [i], {"min": 0.5, "max": 2.0}, "invalid", "clamp: min is 0.5, x is i32: expected a whole number")
    t.error("nan", "clamp", [i], {"min": 0.0, "max": NAN}, "invalid", "clamp: max is nan, x is i32")
    for op, name in (("add_scalar", "other"), ("mul_scalar", "other"), ("pow_scalar", "exponent")):
        t.error("bool", op, [b], {name: 1.0}, "dtype", f"{op}: x is bool")
        t.error("fraction", op, [i], {name: 1.5}, "invalid", f"{op}: {name} is 1.5, x is i32: expected a whole number")
        t.error("infinite", op, [i], {name: INF}, "invalid", f"{op}: {name} is inf, x is i32")
    t.error("negative", "pow_scalar", [i], {"exponent": -1.0}, "invalid", "pow_scalar: exponent is -1, x is i32: expected 0 or more")
    for op in ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or"):
        t.error("dtypes", op, [x, t.gen("f16", 2, 3)], {}, "dtype", f"{op}: x is f32, other is f16: expected equal dtypes")
        t.error("shapes", op, [x, t.gen("f32", 2, 2)], {}, "shape",
                f"{op}: other does not broadcast: expected sizes equal to those of (2, 3) f32 or 1, found (2, 2) f32")
    t.error("bool", "sub", [b, b], {}, "dtype", "sub: x is bool")
    for op in ("div", "pow"):
        t.error("integer", op, [i, i], {}, "dtype", f"{op}: x is i32: expected f32, f16 or bf16")
    wide = t.gen("u8", 1).expand(2**40, 1)
    t.error("overflow", "add", [wide, t.gen("u8", 1).expand(1, 2**40)], {}, "shape", "add: other does not broadcast")
    t.error("condition", "where", [x, x, x], {}, "dtype", "where: condition is f32: expected bool")
    t.error("dtypes", "where", [b, x, i], {}, "dtype", "where: x is f32, other is i32: expected equal dtypes")
    t.error("shapes", "where", [b, x, t.gen("f32", 4)], {}, "shape", "where: other does not broadcast")


def layout(t):
    x = t.gen("f32", 2, 3, 4)
    t.error("dtype", "cast", [x], {"dtype": 8}, "invalid", "cast: dtype is 8: expected 0..7")
    t.error("negative", "cast", [x], {"dtype": -1}, "invalid", "cast: dtype is -1")
    t.error("format", "contiguous", [x], {"memory_format": 2}, "invalid", "contiguous: memory_format is 2")
    t.error("three", "contiguous", [x], {"memory_format": 1}, "shape",
            "contiguous: x has 3 dimensions: expected (N, C, H, W), found (2, 3, 4) f32")
    t.error("count", "reshape", [x], {"shape": [5, 5]}, "shape",
            "reshape: x (2, 3, 4) f32 has 24 elements: expected as many, found (5, 5) f32")
    t.error("quotient", "reshape", [x], {"shape": [-1, 5]}, "shape",
            "reshape: x (2, 3, 4) f32 has 24 elements: expected as many (a size of -1")
    t.error("two_unknown", "reshape", [x], {"shape": [-1, -1]}, "invalid",
            "reshape: size -1 at 1: expected sizes of at least 0 and at most one -1")
    t.error("negative", "reshape", [x], {"shape": [-2, 12]}, "invalid", "reshape: size -2 at 0")
    t.error("ambiguous", "reshape", [t.gen("f32", 0, 3)], {"shape": [-1, 0]}, "shape", "reshape: x (0, 3) f32 has 0 elements")
    t.error("overflow", "reshape", [x], {"shape": [2**40, 2**40]}, "shape", "reshape: the sizes' product does not fit")
    t.error("hidden_overflow", "reshape", [t.gen("f32", 0)], {"shape": [0, 2**40, 2**40]}, "shape",
            "reshape: the output would be (0, 1099511627776")
    t.error("many", "reshape", [x], {"shape_n": 9}, "invalid", "reshape: 9 dimensions were given: expected 0..8")
    t.error("few", "permute", [x], {"dims": [1, 0]}, "invalid", "permute: 2 dimensions were given: expected each of the 3 of x")
    t.error("twice", "permute", [x], {"dims": [0, 1, -2]}, "invalid", "permute: dimension 1 is there twice")
    t.error("range", "permute", [x], {"dims": [0, 1, 3]}, "invalid", "permute: dim 3 is out of range: expected -3..2")
    t.error("few", "expand", [x], {"shape": [3, 4]}, "shape", "expand: 2 sizes were given: expected at least the 3 of x (2, 3, 4) f32")
    t.error("size", "expand", [x], {"shape": [2, 5, 4]}, "shape", "expand: size 5 at 1 does not fit: expected 3, as only sizes of 1 expand")
    t.error("new", "expand", [x], {"shape": [-1, 2, 3, 4]}, "invalid", "expand: size -1 at 0")
    t.error("overflow", "expand", [t.gen("u8", 1, 1)], {"shape": [2**40, 2**40]}, "shape", "expand: the output would be")
    t.error("many", "expand", [x], {"shape_n": -1}, "invalid", "expand: -1 dimensions were given")
    t.error("dim", "slice", [x], {"dim": 3, "start": 0, "end": 1, "step": 1}, "invalid", "slice: dim 3 is out of range")
    t.error("step", "slice", [x], {"dim": 0, "start": 0, "end": 1, "step": 0}, "invalid", "slice: step is 0: expected 1 or more")
    t.error("scalar", "slice", [t.gen("f32")], {"dim": 0, "start": 0, "end": 1, "step": 1}, "shape", "slice: x is a scalar")
    t.error("sizes", "cat", [x, t.gen("f32", 2, 5, 5)], {"dim": 1}, "shape",
            "cat: tensors[1] does not fit: expected the sizes of (2, 3, 4) f32 but in dim 1, found (2, 5, 5) f32")
    t.error("ndim", "cat", [x, t.gen("f32", 2, 3)], {"dim": 0}, "shape", "cat: tensors[1] does not fit")
    t.error("dtypes", "cat", [x, t.gen("f16", 2, 3, 4)], {"dim": 0}, "dtype",
            "cat: tensors[0] is f32, tensors[1] is f16: expected equal dtypes")
    t.error("scalar", "cat", [t.gen("f32")], {"dim": 0}, "shape", "cat: tensors[0] is a scalar")
    t.error("dim", "cat", [x], {"dim": -4}, "invalid", "cat: dim -4 is out of range: expected -3..2")
    huge = t.gen("u8", 1).expand(2**58)
    t.error("overflow", "cat", [huge] * 8, {"dim": 0}, "shape", "cat: the output would be")
    t.error("odd", "pad", [x], {"pad": [1]}, "invalid",
            "pad: 1 amounts were given: expected pairs, at most one for each of the 3 dimensions of x")
    t.error("many", "pad", [t.gen("f32", 2)], {"pad": [1, 1, 1, 1]}, "invalid", "pad: 4 amounts were given")
    t.error("crop", "pad", [x], {"pad": [-3, -2]}, "shape", "pad: -3 and -2 in dim 2 crop more than is there: expected at most 4")
    t.error("crop_and_pad", "pad", [x], {"pad": [-5, 9]}, "shape", "pad: -5 and 9 in dim 2 crop more than is there")
    t.error("value", "pad", [t.gen("i8", 3)], {"pad": [1, 0], "value": 300.0}, "invalid",
            "pad: value is 300: expected a value that i8 can hold")
    t.error("amount", "pad", [x], {"pad": [I64_MAX, I64_MAX]}, "invalid", "pad: 9223372036854775807 and 9223372036854775807 in dim 2")


def reductions(t):
    x, i, b = t.gen("f32", 2, 3), t.gen("i32", 2, 3), t.gen("bool", 2, 3)
    for op in ("sum", "mean", "amax"):
        t.error("range", op, [x], {"dim": [2]}, "invalid", f"{op}: dim 2 is out of range: expected -2..1")
        t.error("twice", op, [x], {"dim": [1, -1]}, "invalid", f"{op}: dimension 1 is there twice")
        t.error("many", op, [x], {"dim_n": 9}, "invalid", f"{op}: 9 dimensions were given")
    t.error("integer", "mean", [i], {"dim": [0]}, "dtype", "mean: x is i32")
    t.error("empty", "amax", [t.gen("f32", 0, 3)], {"dim": [0]}, "shape",
            "amax: dimension 0 of x is empty: expected at least one element, found (0, 3) f32")
    t.error("empty", "argmax", [t.gen("f32", 3, 0)], {"dim": 1}, "shape", "argmax: dimension 1 of x is empty")
    t.error("bool", "argmax", [b], {"dim": 1}, "dtype", "argmax: x is bool")
    t.error("range", "argmax", [x], {"dim": -3}, "invalid", "argmax: dim -3 is out of range: expected -2..1")
    t.error("integer", "softmax", [i], {"dim": 1}, "dtype", "softmax: x is i32")
    t.error("range", "softmax", [x], {"dim": 2}, "invalid", "softmax: dim 2 is out of range")
    for op in ("layer_norm", "rms_norm"):
        rest = [None, None] if op == "layer_norm" else [None]
        t.error("ndim", op, [x, *rest], {"normalized_ndim": 3, "eps": 1e-5}, "invalid",
                f"{op}: normalized_ndim is 3: expected 1..2, the dimensions of x")
        t.error("none", op, [x, *rest], {"normalized_ndim": 0, "eps": 1e-5}, "invalid", f"{op}: normalized_ndim is 0")
        t.error("integer", op, [i, *rest], {"normalized_ndim": 1, "eps": 1e-5}, "dtype", f"{op}: x is i32")
        t.error("weight", op, [x, t.gen("f32", 2), *rest[1:]], {"normalized_ndim": 1, "eps": 1e-5}, "shape",
                f"{op}: weight does not fit the last 1 dimensions of x: expected (3,) f32, found (2,) f32")
    t.error("bias_dtype", "layer_norm", [x, None, t.gen("i32", 3)], {"normalized_ndim": 1, "eps": 1e-5}, "dtype", "layer_norm: bias is i32")
    y = t.gen("f32", 2, 6, 3)
    t.error("groups", "group_norm", [y, None, None], {"num_groups": 4, "eps": 1e-5}, "shape",
            "group_norm: num_groups is 4, x has 6 channels: expected a divisor of them, x is (2, 6, 3) f32")
    t.error("no_groups", "group_norm", [y, None, None], {"num_groups": 0, "eps": 1e-5}, "shape", "group_norm: num_groups is 0")
    t.error("vector", "group_norm", [t.gen("f32", 6), None, None], {"num_groups": 2, "eps": 1e-5}, "shape",
            "group_norm: x has 1 dimensions: expected (N, C, ...), found (6,) f32")
    t.error("weight", "group_norm", [y, t.gen("f32", 3), None], {"num_groups": 2, "eps": 1e-5}, "shape",
            "group_norm: weight does not fit: expected (6,), found (3,) f32")
    t.error("bias", "group_norm", [y, None, t.gen("f32", 6, 1)], {"num_groups": 2, "eps": 1e-5}, "shape", "group_norm: bias does not fit")
    t.error("empty", "group_norm", [t.gen("f32", 2, 6, 0), None, None], {"num_groups": 2, "eps": 1e-5}, "shape",
            "group_norm: dimension 2 of x is empty")
    t.error("integer", "group_norm", [t.gen("i32", 2, 6), None, None], {"num_groups": 2, "eps": 1e-5}, "dtype", "group_norm: x is i32")


def products(t):
    a = t.gen("f32", 2, 3)
    t.error("columns", "matmul", [a, t.gen("f32", 4, 3)], {}, "shape",
            "matmul: x ends in 3 columns, other has 4 rows: expected (..., M, K) and (..., K, N), found (2, 3) f32 and (4, 3) f32")
    t.error("batch", "matmul", [t.gen("f32", 2, 2, 3), t.gen("f32", 3, 3, 2)], {}, "shape",
            "matmul: the leading dimensions do not broadcast")
    t.error("scalar", "matmul", [t.gen("f32"), a], {}, "shape", "matmul: a scalar")
    t.error("dtypes", "matmul", [a, t.gen("f16", 3, 3)], {}, "dtype", "matmul: x is f32, other is f16")
    t.error("integer", "matmul", [t.gen("i32", 2, 2), t.gen("i32", 2, 2)], {}, "dtype", "matmul: x is i32")
    t.error("overflow", "matmul", [t.gen("f32", 1).expand(2**40, 1), t.gen("f32", 1).expand(1, 2**40)], {}, "shape",
            "matmul: the output would be")
    t.error("columns", "linear", [a, t.gen("f32", 5, 4), None], {}, "shape",
            "linear: weight has 4 columns: expected x (..., 4), found x (2, 3) f32 and weight (5, 4) f32")
    t.error("weight", "linear", [a, t.gen("f32", 3), None], {}, "shape", "linear: weight has 1 dimensions: expected (N, K), found (3,) f32")
    t.error("bias", "linear", [a, t.gen("f32", 5, 3), t.gen("f32", 3)], {}, "shape",
            "linear: bias does not fit: expected (5,), found (3,) f32")
    t.error("integer", "linear", [a, t.gen("i8", 5, 3), None], {}, "dtype", "linear: weight is i8")
    t.error("scalar", "linear", [t.gen("f32"), t.gen("f32", 5, 3), None], {}, "shape", "linear: weight has 3 columns")


def conv(t):
    ones = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
    x, w = t.gen("f32", 1, 16, 5, 5), t.gen("f32", 32, 16, 3, 3)

    def bad(name, inputs, attrs, status, message):
        t.error(name, "conv2d", inputs, {**ones, **attrs}, status, message)

    bad("channels", [x, t.gen("f32", 32, 8, 3, 3), None], {}, "shape",
        "conv2d: weight has 8 input channels, x has 16 with groups 1: expected weight (O, 16, kh, kw), found (32, 8, 3, 3) f32")
    bad("groups", [x, t.gen("f32", 32, 5, 3, 3), None], {"groups": 3}, "shape",
        "conv2d: weight has 5 input channels, x has 16 with groups 3: "
        "expected weight (O, 5, kh, kw) and groups that divide x's channels")
    bad("out_groups", [x, t.gen("f32", 9, 8, 3, 3), None], {"groups": 2}, "shape",
        "conv2d: weight has 9 output channels, groups is 2: expected a multiple of it")
    bad("no_out", [x, t.gen("f32", 0, 16, 3, 3), None], {}, "shape", "conv2d: weight has 0 output channels")
    bad("x_dims", [t.gen("f32", 16, 5, 5), w, None], {}, "shape", "conv2d: x has 3 dimensions: expected (N, C, H, W), found (16, 5, 5) f32")
    bad("weight_dims", [x, t.gen("f32", 32, 16, 3), None], {}, "shape", "conv2d: weight has 3 dimensions: expected (O, C / groups, kh, kw)")
    bad("bias", [x, w, t.gen("f32", 16)], {}, "shape", "conv2d: bias does not fit: expected (32,), found (16,) f32")
    bad("integer", [t.gen("i32", 1, 16, 5, 5), w, None], {}, "dtype", "conv2d: x is i32")
    bad("integer_weight", [x, t.gen("i8", 32, 16, 3, 3), None], {}, "dtype", "conv2d: weight is i8")
    bad("kernel", [x, t.gen("f32", 32, 16, 7, 7), None], {}, "shape",
        "conv2d: a kernel of 7 with dilation 1 does not fit: expected at most 5 (input 5, padding 0)")
    bad("dilated", [x, w, None], {"dilation": [1, 3], "padding": [0, 0]}, "shape", "conv2d: a kernel of 3 with dilation 3 does not fit")
    bad("empty_kernel", [x, t.gen("f32", 32, 16, 0, 3), None], {}, "invalid", "conv2d: kernel size is 0: expected 1..2147483647")
    bad("stride", [x, w, None], {"stride": [1, 0]}, "invalid", "conv2d: stride is 0: expected 1..2147483647")
    bad("padding", [x, w, None], {"padding": [-1, 0]}, "invalid", "conv2d: padding is -1: expected 0..2147483647")
    bad("dilation", [x, w, None], {"dilation": [0, 1]}, "invalid", "conv2d: dilation is 0: expected 1..2147483647")
    bad("no_groups", [x, w, None], {"groups": 0}, "invalid", "conv2d: groups is 0: expected 1..2147483647")
    bad("wide_padding", [x, w, None], {"padding": [I64_MAX, 0]}, "invalid", "conv2d: padding is 9223372036854775807")
    bad("overflow", [x, w, None], {"padding": [2**31 - 1, 2**31 - 1]}, "shape",
        "conv2d: the output would be (1, 32, 4294967297, 4294967297) f32")
    bad("no_pixels", [t.gen("f32", 1, 16, 0, 5), w, None], {"padding": [3, 3]}, "shape", "conv2d: x has no pixels")

    ones = {**ones, "output_padding": [0, 0]}

    def bad_transpose(name, inputs, attrs, status, message):
        t.error(name, "conv_transpose2d", inputs, {**ones, **attrs}, status, message)

    v = t.gen("f32", 16, 8, 3, 3)
    bad_transpose("channels", [x, t.gen("f32", 8, 8, 3, 3), None], {}, "shape",
                  "conv_transpose2d: weight has 8 input channels, x has 16 with groups 1: "
                  "expected weight (16, O / groups, kh, kw), found (8, 8, 3, 3) f32")
    bad_transpose("groups", [x, v, None], {"groups": 3}, "shape", "conv_transpose2d: weight has 16 input channels, x has 16 with groups 3")
    bad_transpose("no_out", [x, t.gen("f32", 16, 0, 3, 3), None], {}, "shape", "conv_transpose2d: 0 output channels a group")
    bad_transpose("output_padding", [x, v, None], {"output_padding": [1, 0]}, "invalid",
                  "conv_transpose2d: output_padding is 1: expected less than stride 1 or dilation 1")
    bad_transpose("negative_output_padding", [x, v, None], {"output_padding": [0, -1]}, "invalid", "conv_transpose2d: output_padding is -1")
    bad_transpose("padding", [x, v, None], {"padding": [4, 4]}, "shape",
                  "conv_transpose2d: the output size would be -1: expected at least 1")
    bad_transpose("stride", [x, v, None], {"stride": [0, 1]}, "invalid", "conv_transpose2d: stride is 0")
    bad_transpose("bias", [x, v, t.gen("f32", 16)], {}, "shape", "conv_transpose2d: bias does not fit: expected (8,)")
    bad_transpose("integer", [x, t.gen("i32", 16, 8, 3, 3), None], {}, "dtype", "conv_transpose2d: weight is i32")
    bad_transpose("dims", [x, t.gen("f32", 16, 8, 3), None], {}, "shape", "conv_transpose2d: weight has 3 dimensions")
    huge = t.gen("f32", 1, 1, 1, 1).expand(1, 1, 2**40, 1)
    k = t.gen("f32", 1, 1, 1, 1)
    bad_transpose("overflow", [huge, k, None], {"stride": [2**31 - 1, 1]}, "shape",
                  "conv_transpose2d: input size 1099511627776 with stride 2147483647")
    bad_transpose("large", [x, v, None], {"stride": [2**31 - 1, 2**31 - 1]}, "shape", "conv_transpose2d: the output would be")


def sdpa(t):
    q, k, v = t.gen("f32", 2, 3, 8), t.gen("f32", 2, 5, 8), t.gen("f32", 2, 5, 4)
    plain = {"is_causal": 0, "scale": 0.0}

    def bad(name, inputs, attrs, status, message):
        t.error(name, "sdpa", inputs, {**plain, **attrs}, status, message)

    bad("e", [q, t.gen("f32", 2, 5, 7), v, None], {}, "shape",
        "sdpa: the shapes do not fit together: expected query (..., L, E), key (..., S, E), "
        "value (..., S, Ev) with equal leading sizes (tern_expand), found (2, 3, 8) f32, (2, 5, 7) f32, (2, 5, 4) f32")
    bad("s", [q, k, t.gen("f32", 2, 6, 4), None], {}, "shape", "sdpa: the shapes do not fit together")
    bad("batch", [q, t.gen("f32", 1, 5, 8), v, None], {}, "shape", "sdpa: the shapes do not fit together")
    bad("ndim", [t.gen("f32", 8), t.gen("f32", 8), t.gen("f32", 8), None], {}, "shape", "sdpa: the shapes do not fit together")
    bad("dtypes", [q, t.gen("f16", 2, 5, 8), v, None], {}, "dtype", "sdpa: query is f32, key is f16: expected equal dtypes")
    bad("integer", [t.gen("i32", 2, 3, 8), k, v, None], {}, "dtype", "sdpa: query is i32")
    bad("mask_shape", [q, k, v, t.gen("bool", 3, 4)], {}, "shape",
        "sdpa: attn_mask does not fit: expected a shape that broadcasts to (..., L, S) (2, 3, 5) f32, found (3, 4) bool")
    bad("mask_wide", [q, k, v, t.gen("bool", 4, 2, 3, 5)], {}, "shape", "sdpa: attn_mask does not fit")
    bad("mask_dtype", [q, k, v, t.gen("f16", 3, 5)], {}, "dtype", "sdpa: attn_mask is f16: expected bool or query's f32")
    bad("mask_and_causal", [q, k, v, t.gen("bool", 3, 5)], {"is_causal": 1}, "invalid",
        "sdpa: is_causal and attn_mask: expected one of them")
    bad("scale", [q, k, v, None], {"scale": NAN}, "invalid", "sdpa: scale is nan")


def pictures(t):
    x = t.gen("f32", 1, 2, 5, 5)
    size = {"size": [0, 0], "mode": 0, "align_corners": 0, "scale_h": 0.0, "scale_w": 0.0}

    def resize(name, inputs, attrs, status, message):
        t.error(name, "interpolate", inputs, {**size, **attrs}, status, message)

    resize("nothing", [x], {}, "invalid", "interpolate: the output size is 0: expected 1..2147483647; give size or a scale factor")
    resize("both", [x], {"size": [7, 7], "scale_h": 2.0}, "invalid", "interpolate: size 7 and scale 2: expected one of them")
    resize("small_scale", [x], {"scale_h": 0.1, "scale_w": 1.0}, "invalid", "interpolate: the output size is 0")
    resize("negative_scale", [x], {"scale_h": -1.0, "scale_w": 1.0}, "invalid", "interpolate: scale is -1")
    resize("nan_scale", [x], {"scale_h": NAN, "scale_w": 1.0}, "invalid", "interpolate: scale is nan")
    resize("infinite_scale", [x], {"scale_h": INF, "scale_w": 1.0}, "invalid", "interpolate: scale is inf")
    resize("negative", [x], {"size": [-1, 5]}, "invalid", "interpolate: the output size is -1")
    resize("mode", [x], {"mode": 2, "size": [2, 2]}, "invalid", "interpolate: mode is 2: expected 0 (nearest) or 1 (bilinear)")
    resize("corners", [x], {"align_corners": 1, "size": [2, 2]}, "invalid", "interpolate: align_corners with mode nearest")
    resize("dims", [t.gen("f32", 2, 5, 5)], {"size": [2, 2]}, "shape", "interpolate: x has 3 dimensions: expected (N, C, H, W)")
    resize("integer", [t.gen("i32", 1, 2, 5, 5)], {"size": [2, 2]}, "dtype", "interpolate: x is i32")
    resize("bilinear_u8", [t.gen("u8", 1, 2, 5, 5)], {"mode": 1, "size": [2, 2]}, "dtype", "interpolate: x is u8")
    resize("empty", [t.gen("f32", 1, 2, 0, 5)], {"size": [2, 2]}, "shape", "interpolate: x is empty")
    resize("overflow", [x], {"size": [2**31 - 1, 2**31 - 1]}, "shape", "interpolate: the output would be")
    pool = {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": 0}
    for op, extra in (("avg_pool2d", {"count_include_pad": 1}), ("max_pool2d", {"dilation": [1, 1]})):
        def bad(name, inputs, attrs, status, message, op=op, extra=extra):
            t.error(name, op, inputs, {**pool, **extra, **attrs}, status, f"{op}: {message}")
        bad("padding", [x], {"padding": [2, 0]}, "invalid", "padding is 2, kernel_size 2: expected at most half of kernel_size")
        bad("kernel", [x], {"kernel_size": [6, 2]}, "shape", "a kernel of 6 with dilation 1 does not fit: expected at most 5")
        bad("no_kernel", [x], {"kernel_size": [0, 0]}, "invalid", "kernel size is 0: expected 1..2147483647")
        bad("stride", [x], {"stride": [2, -1]}, "invalid", "stride is -1")
        bad("negative_padding", [x], {"padding": [0, -1]}, "invalid", "padding is -1")
        bad("dims", [t.gen("f32", 5, 5)], {}, "shape", "x has 2 dimensions: expected (N, C, H, W), found (5, 5) f32")
        bad("empty", [t.gen("f32", 1, 0, 5, 5)], {}, "shape", "x is empty: expected at least one channel and one pixel")
        bad("bool", [t.gen("bool", 1, 1, 5, 5)], {}, "dtype", "x is bool")
    t.error("integer", "avg_pool2d", [t.gen("i64", 1, 1, 5, 5)], {**pool, "count_include_pad": 1}, "dtype", "avg_pool2d: x is i64")
    t.error("dilation", "max_pool2d", [x], {**pool, "dilation": [0, 1]}, "invalid", "max_pool2d: dilation is 0")


def lookups(t):
    w, ids = t.gen("f32", 7, 4), t.gen("i64", 3, low=0, high=7)
    t.error("ids", "embedding", [t.gen("f32", 3), w], {}, "dtype", "embedding: input is f32: expected i32 or i64")
    t.error("small_ids", "embedding", [t.gen("u8", 3), w], {}, "dtype", "embedding: input is u8")
    t.error("weight", "embedding", [ids, t.gen("f32", 7)], {}, "shape",
            "embedding: weight has 1 dimensions: expected (V, E), found (7,) f32")
    t.error("many", "embedding", [t.gen("i64", *[1] * 8), w], {}, "shape",
            "embedding: the output would have 9 dimensions: expected at most 8")
    index = t.gen("i64", 3, 4, low=0, high=3)
    t.error("index", "gather", [w, t.gen("f32", 3, 4)], {"dim": 0}, "dtype", "gather: index is f32: expected i64 or i32")
    t.error("dim", "gather", [w, index], {"dim": 2}, "invalid", "gather: dim 2 is out of range: expected -2..1")
    t.error("ndim", "gather", [w, ids], {"dim": 0}, "shape", "gather: index does not fit: expected as many dimensions as x (7, 4) f32")
    t.error("sizes", "gather", [w, t.gen("i64", 3, 5)], {"dim": 0}, "shape", "gather: index does not fit")
    t.error("dtype", "full", [], {"shape": [2], "dtype": 9, "fill_value": 0.0}, "invalid", "full: dtype is 9: expected 0..7")
    t.error("value", "full", [], {"shape": [2], "dtype": 3, "fill_value": 128.0}, "invalid",
            "full: fill_value is 128: expected a value that i8 can hold")
    t.error("nan", "full", [], {"shape": [2], "dtype": 5, "fill_value": NAN}, "invalid",
            "full: fill_value is nan: expected a value that i32 can hold")
    t.error("high", "full", [], {"shape": [2], "dtype": 6, "fill_value": 2.0**63}, "invalid", "full: fill_value is 9.22337e+18")
    t.error("negative", "full", [], {"shape": [-2], "dtype": 0, "fill_value": 0.0}, "shape", "full: the output would be (-2,) f32")
    t.error("overflow", "full", [], {"shape": [2**40, 2**40], "dtype": 0, "fill_value": 0.0}, "shape", "full: the output would be")
    t.error("many", "full", [], {"shape_n": 9, "dtype": 0, "fill_value": 0.0}, "invalid", "full: 9 dimensions were given")

    def bad(name, start, end, step, dtype, message, status="invalid"):
        t.error(name, "arange", [], {"start": start, "end": end, "step": step, "dtype": dtype}, status, "arange: " + message)

    bad("no_step", 0.0, 1.0, 0.0, 0, "from 0 to 1 by 0: expected finite numbers and a step, not 0, that leads to the end")
    bad("direction", 0.0, 1.0, -1.0, 0, "from 0 to 1 by -1")
    bad("infinite", 0.0, INF, 1.0, 0, "from 0 to inf by 1")
    bad("nan", NAN, 1.0, 1.0, 0, "from nan to 1 by 1")
    bad("overflow", 0.0, 1e300, 1.0, 0, "from 0 to 1e+300 by 1: expected a range that fits")
    bad("long", 0.0, 2.0**61, 1.0, 0, "the output would be", "shape")
    bad("bool", 0.0, 1.0, 1.0, 7, "dtype is bool: expected a number dtype", "dtype")
    bad("dtype", 0.0, 1.0, 1.0, -1, "dtype is -1")
    for op in ("rand", "randn"):
        t.error("negative", op, [], {"shape": [2, -1], "seed": 0, "offset": 0}, "shape", f"{op}: the output would be (2, -1) f32")
        t.error("many", op, [], {"shape_n": 9, "seed": 0, "offset": 0}, "invalid", f"{op}: 9 dimensions were given")
        t.error("overflow", op, [], {"shape": [2**62], "seed": 0, "offset": 0}, "shape", f"{op}: the output would be")


def add(t):
    for part in (pointwise, layout, reductions, products, conv, sdpa, pictures, lookups):
        part(t)


def add_group_norm_halves(t):
    def stats(name, x, groups, status, message):
        t.error(name, "group_norm_stats", [x], {"num_groups": groups}, status, f"group_norm_stats: {message}")

    def apply(name, inputs, status, message):
        t.error(name, "group_norm_apply", inputs, {"eps": 1e-5}, status, f"group_norm_apply: {message}")

    y, s = t.gen("f32", 2, 6, 3), t.gen("f32", 2, 3, 2)
    stats("groups", y, 4, "shape", "num_groups is 4, x has 6 channels: expected a divisor of them, x is (2, 6, 3) f32")
    stats("no_groups", y, 0, "shape", "num_groups is 0")
    stats("negative", y, -3, "shape", "num_groups is -3")
    stats("vector", t.gen("f32", 6), 2, "shape", "x has 1 dimensions: expected (N, C, ...), found (6,) f32")
    stats("empty", t.gen("f32", 2, 6, 0), 2, "shape", "dimension 2 of x is empty")
    stats("integer", t.gen("i32", 2, 6), 2, "dtype", "x is i32")
    stats("overflow", t.gen("f32", 2, 0, 3), I64_MAX, "shape", "the output would be (2, 9223372036854775807, 2) f32")
    apply("vector", [t.gen("f32", 6), s, None, None], "shape", "x has 1 dimensions: expected (N, C, ...), found (6,) f32")
    apply("integer", [t.gen("i32", 2, 6), s, None, None], "dtype", "x is i32")
    apply("stats_dimensions", [y, t.gen("f32", 2, 6), None, None], "shape", "stats has 2 dimensions: expected (N, G, 2), found (2, 6) f32")
    apply("stats_batch", [y, t.gen("f32", 1, 3, 2), None, None], "shape",
          "stats does not fit: expected (2, a divisor of 6, 2), found (1, 3, 2) f32")
    apply("stats_groups", [y, t.gen("f32", 2, 4, 2), None, None], "shape",
          "stats does not fit: expected (2, a divisor of 6, 2), found (2, 4, 2) f32")
    apply("stats_empty", [y, t.gen("f32", 2, 0, 2), None, None], "shape",
          "stats does not fit: expected (2, a divisor of 6, 2), found (2, 0, 2) f32")
    apply("stats_last", [y, t.gen("f32", 2, 3, 3), None, None], "shape", "stats does not fit")
    apply("stats_dtype", [t.gen("f16", 2, 6, 3), t.gen("f16", 2, 3, 2), None, None], "dtype",
          "stats is f16: expected f32, as group_norm_stats gives it")
    apply("weight", [y, s, t.gen("f32", 3), None], "shape", "weight does not fit: expected (6,), found (3,) f32")
    apply("bias", [y, s, None, t.gen("f32", 6, 1)], "shape", "bias does not fit")
    apply("bias_dtype", [y, s, None, t.gen("i32", 6)], "dtype", "bias is i32")


def add_linear_geglu(t):
    a = t.gen("f32", 2, 3)
    t.error("odd", "linear_geglu", [a, t.gen("f32", 5, 3), None], {}, "shape",
            "linear_geglu: weight has 5 rows: expected as many for values as for gates, found (5, 3) f32")
    t.error("columns", "linear_geglu", [a, t.gen("f32", 4, 4), None], {}, "shape",
            "linear_geglu: weight has 4 columns: expected x (..., 4), found x (2, 3) f32 and weight (4, 4) f32")
    t.error("bias", "linear_geglu", [a, t.gen("f32", 4, 3), t.gen("f32", 2)], {}, "shape",
            "linear_geglu: bias does not fit: expected (4,), found (2,) f32")
    t.error("integer", "linear_geglu", [a, t.gen("i8", 4, 3), None], {}, "dtype", "linear_geglu: weight is i8")
