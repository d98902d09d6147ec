/* softmax along a dimension: exp(x - max) / sum. NaN, or a largest value of +-infinity, make the whole row NaN. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_softmax(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = tern_rule_dim(ctx, d, &d->attrs.softmax.dim, d->in[0].ndim);
    return st ? st : tern_rule_out_like(ctx, d, d->in[0].dtype);
}

void tern_ref_softmax(const struct tern_kernel_args *a)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    struct tern_meta rows = *x; /* one element a row */
    int64_t dim = a->desc->attrs.softmax.dim, n = x->ndim ? x->shape[dim] : 1;
    int64_t x_step = x->ndim ? x->stride[dim] : 0, out_step = x->ndim ? out->stride[dim] : 0;
    if (tern_meta_numel(x) == 0)
        return;
    if (x->ndim)
        rows.shape[dim] = 1;
    int64_t n_rows = tern_meta_numel(&rows);
    for (int64_t r = 0; r < n_rows; r++) {
        int64_t from = tern_offset_of(r, x->ndim, rows.shape, x->stride), to = tern_offset_of(r, x->ndim, rows.shape, out->stride);
        double max = -INFINITY, sum = 0;
        for (int64_t j = 0; j < n; j++)
            max = fmax(max, tern_in(a, 0, from + j * x_step));
        for (int64_t j = 0; j < n; j++)
            sum += exp(tern_in(a, 0, from + j * x_step) - max);
        for (int64_t j = 0; j < n; j++)
            tern_out(a, to + j * out_step, exp(tern_in(a, 0, from + j * x_step) - max) / sum);
    }
}

tern_tensor *tern_softmax(tern_tensor *x, int dim)
{
    const union tern_op_attrs attrs = {.softmax = {.dim = dim}};
    return tern_call_unary(TERN_OP_softmax, x, &attrs);
}
