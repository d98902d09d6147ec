/* Element-wise ops of one input. One row a function: the value in double and, where integers are allowed, in i64
 * (written so that it wraps instead of overflowing, as PyTorch's integers do). */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

#define SQRT_HALF 0.70710678118654752440
#define SQRT_2_OVER_PI 0.79788456080286535588

typedef double (*double_fn)(double);
typedef int64_t (*integer_fn)(int64_t);

static enum tern_status shape(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype_class allowed)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, allowed);
    return st ? st : tern_rule_out_like(ctx, d, d->in[0].dtype);
}

static void run(const struct tern_kernel_args *a, double_fn f, integer_fn g)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    const void *src = tern_arg_host(&a->in[0]);
    void *dst = tern_arg_host(&a->out);
    int64_t n = tern_meta_numel(out);
    for (int64_t p = 0; p < n; p++) {
        int64_t from = tern_meta_offset(x, p), to = tern_meta_offset(out, p);
        if (g && !tern_dtype_is_float(x->dtype))
            tern_store_i64(out->dtype, dst, to, g(tern_load_i64(x->dtype, src, from)));
        else
            tern_store(out->dtype, dst, to, f(tern_load(x->dtype, src, from)));
    }
}

#define UNARY_COMMON(name, integer, allowed)                                                  \
    void tern_ref_##name(const struct tern_kernel_args *a) { run(a, name##_value, integer); } \
    enum tern_status tern_shape_##name(struct tern_context *ctx, struct tern_op_desc *d) { return shape(ctx, d, allowed); }
#define PUBLIC(name) \
    tern_tensor *tern_##name(tern_tensor *x) { return tern_call_unary(TERN_OP_##name, x, NULL); }

#define UNARY(name, value)                                 \
    static double name##_value(double x) { return value; } \
    UNARY_COMMON(name, NULL, TERN_FLOAT_ONLY)              \
    PUBLIC(name)
#define UNARY_NUMBER(name, value, integer_value)                       \
    static double name##_value(double x) { return value; }             \
    static int64_t name##_integer(int64_t x) { return integer_value; } \
    UNARY_COMMON(name, name##_integer, TERN_NO_BOOL)                   \
    PUBLIC(name)

static int64_t wrap_neg(int64_t x) { return (int64_t)(0 - (uint64_t)x); }

UNARY_NUMBER(neg, -x, wrap_neg(x))
UNARY_NUMBER(abs, fabs(x), x < 0 ? wrap_neg(x) : x)
UNARY_NUMBER(square, x *x, (int64_t)((uint64_t)x *(uint64_t)x))
UNARY_NUMBER(relu, x < 0 ? 0 : x, x < 0 ? 0 : x) /* NaN stays */

UNARY(exp, exp(x))
UNARY(log, log(x))
UNARY(sqrt, sqrt(x))
UNARY(rsqrt, 1 / sqrt(x))
UNARY(reciprocal, 1 / x)
UNARY(sin, sin(x))
UNARY(cos, cos(x))
UNARY(tanh, tanh(x))
UNARY(erf, erf(x))
UNARY(floor, floor(x))
UNARY(ceil, ceil(x))
UNARY(round, nearbyint(x)) /* half to even in C's default rounding mode */
UNARY(sigmoid, 1 / (1 + exp(-x)))
UNARY(silu, x / (1 + exp(-x)))
UNARY(quick_gelu, x / (1 + exp(-1.702 * x)))

/* gelu has two forms [Hendrycks 2016] */
static double gelu_erf(double x) { return 0.5 * x * (1 + erf(x * SQRT_HALF)); }
static double gelu_tanh(double x) { return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x))); }

void tern_ref_gelu(const struct tern_kernel_args *a) { run(a, a->desc->attrs.gelu.approximate ? gelu_tanh : gelu_erf, NULL); }

enum tern_status tern_shape_gelu(struct tern_context *ctx, struct tern_op_desc *d)
{
    int64_t approximate = d->attrs.gelu.approximate;
    if (approximate != TERN_GELU_NONE && approximate != TERN_GELU_TANH)
        return tern_fail(ctx, TERN_E_INVALID, "gelu: approximate is %lld: expected 0 (none) or 1 (tanh)", (long long)approximate);
    return shape(ctx, d, TERN_FLOAT_ONLY);
}

tern_tensor *tern_gelu(tern_tensor *x, enum tern_gelu_approximate approximate)
{
    const union tern_op_attrs attrs = {.gelu = {.approximate = approximate}};
    return tern_call_unary(TERN_OP_gelu, x, &attrs);
}

/* any dtype to bool; NaN counts as true */
static double logical_not_value(double x) { return x == 0; }
static int64_t logical_not_integer(int64_t x) { return x == 0; }
PUBLIC(logical_not)

void tern_ref_logical_not(const struct tern_kernel_args *a) { run(a, logical_not_value, logical_not_integer); }

enum tern_status tern_shape_logical_not(struct tern_context *ctx, struct tern_op_desc *d) { return tern_rule_out_like(ctx, d, TERN_BOOL); }
