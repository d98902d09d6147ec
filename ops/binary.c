/* Element-wise ops of two inputs, with PyTorch's broadcasting. One row a function: the value in double and in i64. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

typedef double (*double_fn)(double x, double y);
typedef int64_t (*integer_fn)(int64_t x, int64_t y);

static enum tern_status shape(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype_class allowed, bool to_bool)
{
    enum tern_status st = tern_rule_same_dtype(ctx, d, 0, 1);
    if (!st)
        st = tern_rule_dtype(ctx, d, 0, allowed);
    return st ? st : tern_rule_out_broadcast(ctx, d, to_bool ? TERN_BOOL : d->in[0].dtype, 2);
}

static void run(const struct tern_kernel_args *a, double_fn f, integer_fn g)
{
    const struct tern_meta *x = &a->desc->in[0], *y = &a->desc->in[1], *out = &a->desc->out;
    const void *xs = tern_arg_host(&a->in[0]), *ys = tern_arg_host(&a->in[1]);
    void *dst = tern_arg_host(&a->out);
    int64_t n = tern_meta_numel(out), x_stride[TERN_MAX_DIMS], y_stride[TERN_MAX_DIMS];
    tern_broadcast_strides(x, out, x_stride);
    tern_broadcast_strides(y, out, y_stride);
    for (int64_t p = 0; p < n; p++) {
        int64_t ix = tern_offset_of(p, out->ndim, out->shape, x_stride), iy = tern_offset_of(p, out->ndim, out->shape, y_stride);
        int64_t to = tern_meta_offset(out, p);
        if (tern_dtype_is_float(x->dtype))
            tern_store(out->dtype, dst, to, f(tern_load(x->dtype, xs, ix), tern_load(y->dtype, ys, iy)));
        else
            tern_store_i64(out->dtype, dst, to, g(tern_load_i64(x->dtype, xs, ix), tern_load_i64(y->dtype, ys, iy)));
    }
}

#define BINARY(name, allowed, to_bool, value, integer_value)                                                                         \
    static double name##_value(double x, double y) { return value; }                                                                 \
    static int64_t name##_integer(int64_t x, int64_t y) { return integer_value; }                                                    \
    void tern_ref_##name(const struct tern_kernel_args *a) { run(a, name##_value, name##_integer); }                                 \
    enum tern_status tern_shape_##name(struct tern_context *ctx, struct tern_op_desc *d) { return shape(ctx, d, allowed, to_bool); } \
    tern_tensor *tern_##name(tern_tensor *x, tern_tensor *other) { return tern_call_binary(TERN_OP_##name, x, other); }

/* Sums and products of integers wrap; those of bools are or and and, as in PyTorch. */
#define WRAP(x, operator, y) ((int64_t)((uint64_t)(x) operator(uint64_t)(y)))
BINARY(add, TERN_ANY_DTYPE, false, x + y, WRAP(x, +, y))
BINARY(sub, TERN_NO_BOOL, false, x - y, WRAP(x, -, y))
BINARY(mul, TERN_ANY_DTYPE, false, x *y, WRAP(x, *, y))
BINARY(div, TERN_FLOAT_ONLY, false, x / y, 0)
BINARY(pow, TERN_FLOAT_ONLY, false, pow(x, y), 0)

BINARY(maximum, TERN_ANY_DTYPE, false, x != x || y != y ? NAN : x > y ? x : y, x > y ? x : y)
BINARY(minimum, TERN_ANY_DTYPE, false, x != x || y != y ? NAN : x < y ? x : y, x < y ? x : y)

#define COMPARISON(name, operator) BINARY(name, TERN_ANY_DTYPE, true, x operator y, x operator y)
COMPARISON(eq, ==)
COMPARISON(ne, !=)
COMPARISON(lt, <)
COMPARISON(le, <=)
COMPARISON(gt, >)
COMPARISON(ge, >=)

BINARY(logical_and, TERN_ANY_DTYPE, true, x != 0 && y != 0, x &&y)
BINARY(logical_or, TERN_ANY_DTYPE, true, x != 0 || y != 0, x || y)
