/* full and arange: tensors made from numbers. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

static enum tern_status check_dtype(struct tern_context *ctx, const struct tern_op_desc *d, int64_t dtype)
{
    if (dtype >= 0 && dtype < TERN_DTYPE_COUNT)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_INVALID, "%s: dtype is %lld: expected 0..%d (enum tern_dtype)", tern_rule_op(d), (long long)dtype,
                     TERN_DTYPE_COUNT - 1);
}

enum tern_status tern_shape_full(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_full_attrs *p = &d->attrs.full;
    enum tern_status st = check_dtype(ctx, d, p->dtype);
    if (!st && (p->shape_n < 0 || p->shape_n > TERN_MAX_DIMS))
        st = tern_fail(ctx, TERN_E_INVALID, "full: %lld dimensions were given: expected 0..%d", (long long)p->shape_n, TERN_MAX_DIMS);
    if (!st)
        st = tern_rule_value(ctx, d, (enum tern_dtype)p->dtype, "fill_value", &p->fill_value);
    return st ? st : tern_rule_out(ctx, d, (enum tern_dtype)p->dtype, (int)p->shape_n, p->shape);
}

void tern_ref_full(const struct tern_kernel_args *a)
{
    int64_t n = tern_meta_numel(&a->desc->out);
    for (int64_t i = 0; i < n; i++)
        tern_out(a, tern_meta_offset(&a->desc->out, i), a->desc->attrs.full.fill_value);
}

tern_tensor *tern_full(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape, double fill_value)
{
    union tern_op_attrs attrs = {.full = {.shape_n = ndim, .dtype = dtype, .fill_value = fill_value}};
    if (!tern_ndim_fits(ctx, "full", ndim, shape))
        return NULL;
    for (int i = 0; i < ndim; i++)
        attrs.full.shape[i] = shape[i];
    return tern_op_call(ctx, TERN_OP_full, NULL, 0, &attrs);
}

/* ceil((end - start) / step) values. Integer dtypes count in whole steps from a whole start, as in PyTorch. */
enum tern_status tern_shape_arange(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_arange_attrs *p = &d->attrs.arange;
    enum tern_status st = check_dtype(ctx, d, p->dtype);
    if (st)
        return st;
    if (p->dtype == TERN_BOOL)
        return tern_fail(ctx, TERN_E_DTYPE, "arange: dtype is bool: expected a number dtype");
    double n = ceil((p->end - p->start) / p->step);
    if (!isfinite(p->start) || !isfinite(p->end) || !isfinite(p->step) || p->step == 0 || !(n >= 0))
        return tern_fail(ctx, TERN_E_INVALID,
                         "arange: from %g to %g by %g: expected finite numbers and a step, not 0, that leads to the end", p->start, p->end,
                         p->step);
    if (n >= 0x1p62 || fabs(p->start) >= 0x1p62 || fabs(p->step) >= 0x1p62)
        return tern_fail(ctx, TERN_E_INVALID, "arange: from %g to %g by %g: expected a range that fits", p->start, p->end, p->step);
    int64_t size = (int64_t)n;
    return tern_rule_out(ctx, d, (enum tern_dtype)p->dtype, 1, &size);
}

void tern_ref_arange(const struct tern_kernel_args *a)
{
    const struct tern_arange_attrs *p = &a->desc->attrs.arange;
    const struct tern_meta *out = &a->desc->out;
    for (int64_t i = 0; i < out->shape[0]; i++) {
        if (tern_dtype_is_float(out->dtype))
            tern_out(a, i * out->stride[0], p->start + (double)i * p->step);
        else
            tern_store_i64(out->dtype, tern_arg_host(&a->out), i * out->stride[0],
                           (int64_t)((uint64_t)(int64_t)p->start + (uint64_t)i * (uint64_t)(int64_t)p->step));
    }
}

tern_tensor *tern_arange(struct tern_context *ctx, enum tern_dtype dtype, double start, double end, double step)
{
    const union tern_op_attrs attrs = {.arange = {.start = start, .end = end, .step = step, .dtype = dtype}};
    return tern_op_call(ctx, TERN_OP_arange, NULL, 0, &attrs);
}
