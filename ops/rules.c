/* Checks that shape rules share. Every message: op, what is wrong, expected, found. */
#include "ops/rules.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char *tern_rule_input(const struct tern_op_desc *d, int i, char out[32])
{
    const char *names = tern_op_get(d->op).inputs, *end;
    for (int k = 0; k < i && strchr(names, ' '); k++)
        names = strchr(names, ' ') + 1;
    for (end = names; *end && !strchr(" ?*", *end); end++)
        ;
    if (*end == '*')
        snprintf(out, 32, "%.*s[%d]", (int)(end - names), names, i);
    else
        snprintf(out, 32, "%.*s", (int)(end - names), names);
    return out;
}

enum tern_status tern_rule_dtype(struct tern_context *ctx, const struct tern_op_desc *d, int i, enum tern_dtype_class allowed)
{
    char name[32];
    enum tern_dtype dtype = d->in[i].dtype;
    if (allowed == TERN_FLOAT_ONLY && !tern_dtype_is_float(dtype))
        return tern_fail(ctx, TERN_E_DTYPE, "%s: %s is %s: expected f32, f16 or bf16; cast it with tern_cast", tern_rule_op(d),
                         tern_rule_input(d, i, name), tern_dtype_name(dtype));
    if (allowed == TERN_I8_ONLY && dtype != TERN_I8)
        return tern_fail(ctx, TERN_E_DTYPE, "%s: %s is %s: expected i8; tern_quantize makes it", tern_rule_op(d),
                         tern_rule_input(d, i, name), tern_dtype_name(dtype));
    if (allowed == TERN_NO_BOOL && dtype == TERN_BOOL)
        return tern_fail(ctx, TERN_E_DTYPE, "%s: %s is bool: expected a number dtype; cast it with tern_cast", tern_rule_op(d),
                         tern_rule_input(d, i, name));
    return TERN_OK;
}

enum tern_status tern_rule_same_dtype(struct tern_context *ctx, const struct tern_op_desc *d, int i, int j)
{
    char a[32], b[32];
    if (d->in[i].dtype == d->in[j].dtype)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_DTYPE, "%s: %s is %s, %s is %s: expected equal dtypes; cast one with tern_cast", tern_rule_op(d),
                     tern_rule_input(d, i, a), tern_dtype_name(d->in[i].dtype), tern_rule_input(d, j, b), tern_dtype_name(d->in[j].dtype));
}

enum tern_status tern_rule_ndim(struct tern_context *ctx, const struct tern_op_desc *d, int i, int ndim, const char *expected)
{
    char name[32], text[TERN_META_TEXT];
    if (d->in[i].ndim == ndim)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_SHAPE, "%s: %s has %d dimensions: expected %s, found %s", tern_rule_op(d), tern_rule_input(d, i, name),
                     d->in[i].ndim, expected, tern_meta_text(&d->in[i], text));
}

enum tern_status tern_rule_vector(struct tern_context *ctx, const struct tern_op_desc *d, int i, int64_t n)
{
    char name[32], text[TERN_META_TEXT];
    if (!d->present[i])
        return TERN_OK;
    if (d->in[i].ndim != 1 || d->in[i].shape[0] != n)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: %s does not fit: expected (%lld,), found %s", tern_rule_op(d), tern_rule_input(d, i, name),
                         (long long)n, tern_meta_text(&d->in[i], text));
    return tern_rule_dtype(ctx, d, i, TERN_FLOAT_ONLY);
}

enum tern_status tern_rule_dim(struct tern_context *ctx, const struct tern_op_desc *d, int64_t *dim, int ndim)
{
    int n = ndim ? ndim : 1;
    if (*dim < -n || *dim >= n)
        return tern_fail(ctx, TERN_E_INVALID, "%s: dim %lld is out of range: expected %d..%d", tern_rule_op(d), (long long)*dim, -n, n - 1);
    *dim += *dim < 0 ? n : 0;
    return TERN_OK;
}

enum tern_status tern_rule_range(struct tern_context *ctx, const struct tern_op_desc *d, const char *name, int64_t value, int64_t min)
{
    if (value >= min && value <= INT32_MAX)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_INVALID, "%s: %s is %lld: expected %lld..%d", tern_rule_op(d), name, (long long)value, (long long)min,
                     INT32_MAX);
}

enum tern_status tern_rule_value(struct tern_context *ctx, const struct tern_op_desc *d, enum tern_dtype dtype, const char *name,
                                 double *value)
{
    if (tern_dtype_is_float(dtype))
        return TERN_OK;
    if (dtype == TERN_BOOL) {
        *value = *value != 0;
        return TERN_OK;
    }
    int bits = 8 * (int)tern_dtype_size(dtype);
    double low = dtype == TERN_U8 ? 0 : -ldexp(1, bits - 1), above = dtype == TERN_U8 ? 256 : ldexp(1, bits - 1), whole = trunc(*value);
    if (!(whole >= low && whole < above))
        return tern_fail(ctx, TERN_E_INVALID, "%s: %s is %g: expected a value that %s can hold", tern_rule_op(d), name, *value,
                         tern_dtype_name(dtype));
    *value = whole;
    return TERN_OK;
}

enum tern_status tern_rule_out(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    char text[TERN_META_TEXT];
    if (ndim < 0 || ndim > TERN_MAX_DIMS)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: the output would have %d dimensions: expected at most %d", tern_rule_op(d), ndim,
                         TERN_MAX_DIMS);
    struct tern_meta out = {.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++)
        out.shape[i] = shape[i];
    if (!tern_shape_valid(ndim, shape, NULL))
        return tern_fail(ctx, TERN_E_SHAPE, "%s: the output would be %s: expected sizes of at least 0 whose product fits", tern_rule_op(d),
                         tern_meta_text(&out, text));
    tern_meta_contiguous(&out);
    d->out = out;
    return TERN_OK;
}

enum tern_status tern_rule_out_like(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype dtype)
{
    return tern_rule_out(ctx, d, dtype, d->in[0].ndim, d->in[0].shape);
}

enum tern_status tern_rule_out_broadcast(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype dtype, int n)
{
    struct tern_meta shape = d->in[0];
    for (int i = 1; i < n; i++) {
        char a[TERN_META_TEXT], b[TERN_META_TEXT], name[32];
        struct tern_meta before = shape;
        if (!tern_broadcast_shape(&before, &d->in[i], &shape))
            return tern_fail(ctx, TERN_E_SHAPE, "%s: %s does not broadcast: expected sizes equal to those of %s or 1, found %s",
                             tern_rule_op(d), tern_rule_input(d, i, name), tern_meta_text(&before, a), tern_meta_text(&d->in[i], b));
    }
    return tern_rule_out(ctx, d, dtype, shape.ndim, shape.shape);
}

enum tern_status tern_rule_window(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_window *w, int64_t *out)
{
    enum tern_status st = tern_rule_range(ctx, d, "kernel size", w->kernel, 1);
    if (!st)
        st = tern_rule_range(ctx, d, "stride", w->stride, 1);
    if (!st)
        st = tern_rule_range(ctx, d, "padding", w->padding, 0);
    if (!st)
        st = tern_rule_range(ctx, d, "dilation", w->dilation, 1);
    if (st)
        return st;
    /* With ceil_mode a window may go beyond the padded input, but has to begin a stride before. */
    const int64_t padded = w->in + 2 * w->padding, extent = w->dilation * (w->kernel - 1) + 1, beyond = w->ceil_mode ? w->stride - 1 : 0;
    if (extent > padded + beyond)
        return tern_fail(ctx, TERN_E_SHAPE,
                         "%s: a kernel of %lld with dilation %lld does not fit: expected at most %lld (input %lld, padding %lld)",
                         tern_rule_op(d), (long long)w->kernel, (long long)w->dilation, (long long)(padded + beyond), (long long)w->in,
                         (long long)w->padding);
    *out = (padded + beyond - extent) / w->stride + 1;
    if (w->ceil_mode && (*out - 1) * w->stride >= w->in + w->padding)
        --*out; /* the last window would begin behind the input */
    return TERN_OK;
}

bool tern_ndim_fits(struct tern_context *ctx, const char *op, int ndim, const void *list)
{
    if (ndim < 0 || ndim > TERN_MAX_DIMS) {
        tern_fail(ctx, TERN_E_INVALID, "%s: %d dimensions were given: expected 0..%d", op, ndim, TERN_MAX_DIMS);
        return false;
    }
    if (ndim && !list)
        tern_fail(ctx, TERN_E_INVALID, "%s: expected a list for %d dimensions, found NULL", op, ndim);
    return !ndim || list;
}

static const union tern_op_attrs none;

tern_tensor *tern_call_unary(enum tern_op op, tern_tensor *x, const union tern_op_attrs *attrs)
{
    return x ? tern_op_call(x->ctx, op, &x, 1, attrs ? attrs : &none) : NULL;
}

tern_tensor *tern_call_binary(enum tern_op op, tern_tensor *x, tern_tensor *other)
{
    tern_tensor *const in[] = {x, other};
    return x && other ? tern_op_call(x->ctx, op, in, 2, &none) : NULL;
}
