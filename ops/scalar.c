/* Element-wise ops of one tensor and numbers. On floating-point tensors the numbers count as f32, as in PyTorch: the
 * shape rules round them, so that every kernel sees the same value. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

typedef double (*double_fn)(double x, const union tern_op_attrs *attrs);
typedef int64_t (*integer_fn)(int64_t x, const union tern_op_attrs *attrs);

static void run(const struct tern_kernel_args *a, double_fn f, integer_fn g)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    const union tern_op_attrs *attrs = &a->desc->attrs;
    const void *src = tern_arg_host(&a->in[0]);
    void *dst = tern_arg_host(&a->out);
    int64_t n = tern_meta_numel(out);
    for (int64_t p = 0; p < n; p++) {
        int64_t from = tern_meta_offset(x, p), to = tern_meta_offset(out, p);
        if (tern_dtype_is_float(x->dtype))
            tern_store(out->dtype, dst, to, f(tern_load(x->dtype, src, from), attrs));
        else
            tern_store_i64(out->dtype, dst, to, g(tern_load_i64(x->dtype, src, from), attrs));
    }
}

/* An integer tensor takes whole numbers; PyTorch would promote it to a floating-point one. */
static enum tern_status whole(struct tern_context *ctx, const struct tern_op_desc *d, const char *name, double value)
{
    if (value == trunc(value) && fabs(value) < 0x1p63)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_INVALID, "%s: %s is %g, x is %s: expected a whole number; cast x to a floating-point dtype with tern_cast",
                     tern_rule_op(d), name, value, tern_dtype_name(d->in[0].dtype));
}

/* One number, one output of x's dtype. */
static enum tern_status shape(struct tern_context *ctx, struct tern_op_desc *d, const char *name, double *value)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_NO_BOOL);
    if (!st && tern_dtype_is_float(d->in[0].dtype))
        *value = (float)*value;
    else if (!st)
        st = whole(ctx, d, name, *value);
    return st ? st : tern_rule_out_like(ctx, d, d->in[0].dtype);
}

#define SCALAR(name, argument, value, integer_value)                                                 \
    static double name##_value(double x, const union tern_op_attrs *p) { return value; }             \
    static int64_t name##_integer(int64_t x, const union tern_op_attrs *p) { return integer_value; } \
    void tern_ref_##name(const struct tern_kernel_args *a) { run(a, name##_value, name##_integer); } \
    tern_tensor *tern_##name(tern_tensor *x, double argument)                                        \
    {                                                                                                \
        const union tern_op_attrs attrs = {.name = {.argument = argument}};                          \
        return tern_call_unary(TERN_OP_##name, x, &attrs);                                           \
    }

/* PyTorch takes the root where the exponent is one half: -inf gives NaN, -0 stays. */
static double power(double x, double exponent)
{
    if (exponent == 0.5)
        return sqrt(x);
    return exponent == -0.5 ? 1 / sqrt(x) : pow(x, exponent);
}

static int64_t power_integer(int64_t x, double exponent)
{
    uint64_t result = 1, base = (uint64_t)x;
    for (uint64_t e = (uint64_t)exponent; e; e >>= 1) {
        result *= e & 1 ? base : 1;
        base *= base;
    }
    return (int64_t)result;
}

SCALAR(add_scalar, other, x + p->add_scalar.other, (int64_t)((uint64_t)x + (uint64_t)(int64_t)p->add_scalar.other))
SCALAR(mul_scalar, other, x * p->mul_scalar.other, (int64_t)((uint64_t)x *(uint64_t)(int64_t)p->mul_scalar.other))
SCALAR(pow_scalar, exponent, power(x, p->pow_scalar.exponent), power_integer(x, p->pow_scalar.exponent))

enum tern_status tern_shape_add_scalar(struct tern_context *ctx, struct tern_op_desc *d)
{
    return shape(ctx, d, "other", &d->attrs.add_scalar.other);
}

enum tern_status tern_shape_mul_scalar(struct tern_context *ctx, struct tern_op_desc *d)
{
    return shape(ctx, d, "other", &d->attrs.mul_scalar.other);
}

enum tern_status tern_shape_pow_scalar(struct tern_context *ctx, struct tern_op_desc *d)
{
    double *exponent = &d->attrs.pow_scalar.exponent;
    if (!tern_dtype_is_float(d->in[0].dtype) && *exponent < 0)
        return tern_fail(ctx, TERN_E_INVALID, "pow_scalar: exponent is %g, x is %s: expected 0 or more for integers; cast x with tern_cast",
                         *exponent, tern_dtype_name(d->in[0].dtype));
    return shape(ctx, d, "exponent", exponent);
}

/* min(max(x, low), high): high wins where they cross; NaN in x or in a limit gives NaN. */
static double clamp_value(double x, const union tern_op_attrs *p)
{
    double low = p->clamp.min, high = p->clamp.max;
    if (x != x || low != low || high != high)
        return NAN;
    x = x < low ? low : x;
    return x > high ? high : x;
}

static int64_t clamp_integer(int64_t x, const union tern_op_attrs *p)
{
    /* a limit beyond i64 is as good as none */
    int64_t low = p->clamp.min < -0x1p63 ? INT64_MIN : p->clamp.min >= 0x1p63 ? INT64_MAX : (int64_t)p->clamp.min;
    int64_t high = p->clamp.max < -0x1p63 ? INT64_MIN : p->clamp.max >= 0x1p63 ? INT64_MAX : (int64_t)p->clamp.max;
    x = x < low ? low : x;
    return x > high ? high : x;
}

void tern_ref_clamp(const struct tern_kernel_args *a) { run(a, clamp_value, clamp_integer); }

enum tern_status tern_shape_clamp(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_clamp_attrs *p = &d->attrs.clamp;
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_NO_BOOL);
    if (!st && tern_dtype_is_float(d->in[0].dtype)) {
        p->min = (float)p->min;
        p->max = (float)p->max;
    } else if (!st) {
        if (!isinf(p->min))
            st = whole(ctx, d, "min", p->min);
        if (!st && !isinf(p->max))
            st = whole(ctx, d, "max", p->max);
    }
    return st ? st : tern_rule_out_like(ctx, d, d->in[0].dtype);
}

tern_tensor *tern_clamp(tern_tensor *x, double min, double max)
{
    const union tern_op_attrs attrs = {.clamp = {.min = min, .max = max}};
    return tern_call_unary(TERN_OP_clamp, x, &attrs);
}
