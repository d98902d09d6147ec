"""Which properties the cases of each op have, and which they lack but could have: printed by tools/goldens_ops.py --matrix."""
import numpy as np

FLOATS, SMALL = ("f32", "f16", "bf16"), 1000
INTEGERS = ("i8", "u8", "i32", "i64")
SIZES = {"f32": 4, "f16": 2, "bf16": 2, "i8": 1, "u8": 1, "i32": 4, "i64": 8, "bool": 1}
PROPERTIES = ("f32", "f16", "bf16", "integer", "bool", "odd", "one", "empty", "large", "strided", "broadcast", "last", "nan", "inf", "-0",
              "denormal", "limits", "refused")
MADE = ("full", "arange", "randn", "rand")
RANDOM = ("randn", "rand")

UNARY = ("neg abs exp log sqrt rsqrt reciprocal square sin cos tanh erf floor ceil round sigmoid relu silu gelu quick_gelu logical_not "
         "clamp add_scalar mul_scalar pow_scalar").split()
NUMBERS = "neg abs square relu clamp add_scalar mul_scalar pow_scalar sub argmax".split()  # integers, but not bool
ANYTHING = ("logical_not add mul maximum minimum eq ne lt le gt ge logical_and logical_or where cast contiguous reshape permute expand slice "
            "cat pad sum amax gather full").split()
PLAIN = "add sub mul div pow maximum minimum eq ne lt le gt ge logical_and logical_or where".split()  # no attributes
NO_ATTRIBUTES = PLAIN + [op for op in UNARY if op not in ("gelu", "clamp", "add_scalar", "mul_scalar", "pow_scalar")] + \
    ["matmul", "linear", "linear_geglu", "embedding", "quantize_scale", "quantize", "quantized_linear", "quantized_linear_geglu"]
FEW_ATTRIBUTES = ["weight_only_linear", "weight_only_linear_geglu", "pack_weight"]  # of two values


def cannot(op):
    """The properties that an op cannot have."""
    out = set()
    if op not in NUMBERS + ANYTHING + ["max_pool2d", "interpolate", "embedding", "arange"]:
        out.add("integer")
    if op not in ANYTHING:
        out.add("bool")
    if op in RANDOM:
        out |= {"f16", "bf16", "integer", "nan", "inf", "-0", "denormal"}
    if op == "arange":
        out |= {"nan", "inf", "-0", "denormal", "bool"}
    if op in MADE:
        out |= {"strided", "broadcast", "last"}
    if op in ("embedding", "linear", "linear_geglu", "quantized_linear", "quantized_linear_geglu", "weight_only_linear", "weight_only_linear_geglu",
              "matmul", "sdpa", "layer_norm", "rms_norm"):
        out.add("last")  # its operands are rows, not pictures
    if op == "unpack_weight":
        out |= {"last", "inf"}  # of a matrix of words whose scales are none
    if op in NO_ATTRIBUTES + FEW_ATTRIBUTES:
        out.add("limits")
    if op == "logical_not":
        out.add("refused")  # it takes everything
    return out


def values_of(spec, values):
    """The elements of a stored input or output as f64; None for generated ones, which have no special values."""
    if "at" not in spec or spec["dtype"] not in FLOATS:
        return None
    n = int(np.prod(spec["shape"], dtype=np.int64))
    raw = values[spec["at"]:spec["at"] + n * SIZES[spec["dtype"]]]
    if spec["dtype"] == "bf16":
        return (np.frombuffer(raw, np.uint16).astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, np.float32 if spec["dtype"] == "f32" else np.float16)


def special(spec, values):
    v, out = values_of(spec, values), set()
    if v is None or not v.size:
        return out
    tiny = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}[spec["dtype"]]
    with np.errstate(invalid="ignore"):
        for name, has in (("nan", np.isnan(v)), ("inf", np.isinf(v)), ("-0", (v == 0) & np.signbit(v)),
                          ("denormal", (v != 0) & (np.abs(v) < tiny))):
            if has.any():
                out.add(name)
    return out


def properties(case, values):
    if "error" in case:
        return {"refused"}
    given, out = [i for i in case["in"] if i], set()
    specs = given + [case["out"]] if case["op"] == "unpack_weight" else given or [case["out"]]
    for s in specs:
        n = int(np.prod(s["shape"], dtype=np.int64))
        out |= {"integer" if s["dtype"] in INTEGERS else s["dtype"]} | special(s, values)
        out |= {"odd"} if any(d % 2 and d > 1 for d in s["shape"]) else set()
        out |= {"one"} if n == 1 else set()
        out |= {"empty"} if n == 0 else set()
        out |= {"large"} if n >= SMALL else set()
        for step in s.get("view", []):
            out.add({"permute": "strided", "slice": "strided", "expand": "broadcast", "channels_last": "last"}[step[0]])
    shapes = [s["shape"] for s in given]
    if case["op"] in PLAIN + ["matmul", "sdpa"] and any(s != shapes[0] for s in shapes) and case["op"] != "sdpa":
        out.add("broadcast")
    return out | special(case["out"], values)


def has_limits(op, cases):
    """At least five calls that differ in their attributes."""
    return len({str(sorted(c["attrs"].items())) for c in cases if c["op"] == op and "error" not in c}) >= (2 if op in ("gelu", "contiguous") else 5)


def matrix(cases, values):
    """Prints a line for each op; returns the number of properties that are missing."""
    ops = list(dict.fromkeys(c["op"] for c in cases))
    lacking = 0
    print(f"{'op':18}{'cases':>6}  " + " ".join(PROPERTIES))
    for op in ops:
        found = set().union(*(properties(c, values) for c in cases if c["op"] == op))
        found |= {"limits"} if has_limits(op, cases) else set()
        marks = []
        for p in PROPERTIES:
            mark = "x" if p in found else "." if p in cannot(op) else "LACKS"
            lacking += mark == "LACKS"
            marks.append(mark.center(len(p)))
        print(f"{op:18}{sum(c['op'] == op for c in cases):6}  " + " ".join(marks))
    print(f"{len(cases)} cases of {len(ops)} ops; {lacking} properties are missing")
    return lacking
