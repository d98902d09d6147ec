/* gather: out[i][j] = x[index[i][j]][j] for dim 0, and so on. An index outside x gives zero. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_gather(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *index = &d->in[1];
    int64_t *dim = &d->attrs.gather.dim;
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    if (index->dtype != TERN_I32 && index->dtype != TERN_I64)
        return tern_fail(ctx, TERN_E_DTYPE, "gather: index is %s: expected i64 or i32", tern_dtype_name(index->dtype));
    enum tern_status st = tern_rule_dim(ctx, d, dim, x->ndim);
    bool fits = index->ndim == x->ndim;
    for (int i = 0; i < x->ndim && fits && !st; i++)
        fits = i == *dim || index->shape[i] <= x->shape[i];
    if (!st && !fits)
        st = tern_fail(ctx, TERN_E_SHAPE,
                       "gather: index does not fit: expected as many dimensions as x %s and no larger sizes but in dim %lld, "
                       "found %s",
                       tern_meta_text(x, a), (long long)*dim, tern_meta_text(index, b));
    return st ? st : tern_rule_out(ctx, d, x->dtype, index->ndim, index->shape);
}

void tern_ref_gather(const struct tern_kernel_args *a)
{
    const struct tern_meta *x = &a->desc->in[0], *index = &a->desc->in[1], *out = &a->desc->out;
    int64_t n = tern_meta_numel(out), dim = a->desc->attrs.gather.dim, size = x->ndim ? x->shape[dim] : 1;
    int64_t stride[TERN_MAX_DIMS] = {0}; /* of x without dim, which the index takes the place of */
    for (int i = 0; i < x->ndim; i++)
        stride[i] = i == dim ? 0 : x->stride[i];
    for (int64_t p = 0; p < n; p++) {
        int64_t i = tern_load_i64(index->dtype, tern_arg_host(&a->in[1]), tern_meta_offset(index, p)), to = tern_meta_offset(out, p);
        if (i >= 0 && i < size)
            tern_copy_element(tern_dtype_size(x->dtype), tern_arg_host(&a->out), to, tern_arg_host(&a->in[0]),
                              tern_offset_of(p, x->ndim, index->shape, stride) + (x->ndim ? i * x->stride[dim] : 0));
        else
            tern_out(a, to, 0);
    }
}

tern_tensor *tern_gather(tern_tensor *x, int dim, tern_tensor *index)
{
    const union tern_op_attrs attrs = {.gather = {.dim = dim}};
    tern_tensor *const in[] = {x, index};
    return x && index ? tern_op_call(x->ctx, TERN_OP_gather, in, 2, &attrs) : NULL;
}
