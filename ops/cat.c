/* cat: tensors one behind the other along a dimension. The bits are copied. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_cat(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_meta out = d->in[0];
    if (!out.ndim)
        return tern_fail(ctx, TERN_E_SHAPE, "cat: tensors[0] is a scalar: expected at least one dimension");
    int64_t *dim = &d->attrs.cat.dim;
    enum tern_status st = tern_rule_dim(ctx, d, dim, out.ndim);
    for (int i = 1; i < d->n_in && !st; i++) {
        const struct tern_meta *x = &d->in[i];
        bool fits = x->ndim == out.ndim;
        for (int k = 0; k < out.ndim && fits; k++)
            fits = k == *dim || x->shape[k] == out.shape[k];
        if (!fits) {
            char a[TERN_META_TEXT], b[TERN_META_TEXT];
            return tern_fail(ctx, TERN_E_SHAPE, "cat: tensors[%d] does not fit: expected the sizes of %s but in dim %lld, found %s", i,
                             tern_meta_text(&d->in[0], a), (long long)*dim, tern_meta_text(x, b));
        }
        st = tern_rule_same_dtype(ctx, d, 0, i);
        if (!st && __builtin_add_overflow(out.shape[*dim], x->shape[*dim], &out.shape[*dim]))
            st = tern_fail(ctx, TERN_E_SHAPE, "cat: the sizes in dim %lld do not fit together", (long long)*dim);
    }
    return st ? st : tern_rule_out(ctx, d, out.dtype, out.ndim, out.shape);
}

void tern_ref_cat(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    int64_t begin = 0, dim = d->attrs.cat.dim; /* where the part begins in dim */
    for (int i = 0; i < d->n_in; i++) {
        const struct tern_meta *x = &d->in[i];
        int64_t n = tern_meta_numel(x);
        for (int64_t p = 0; p < n; p++)
            tern_copy_element(tern_dtype_size(x->dtype), tern_arg_host(&a->out),
                              begin * d->out.stride[dim] + tern_offset_of(p, x->ndim, x->shape, d->out.stride), tern_arg_host(&a->in[i]),
                              tern_meta_offset(x, p));
        begin += x->shape[dim];
    }
}

/* As in PyTorch tensors of shape (0,) are left out, whatever the others' dimensions are. Their dtype must be the others' all the same. */
static bool is_left_out(const tern_tensor *t) { return t->meta.ndim == 1 && t->meta.shape[0] == 0; }

static bool dtype_fits(tern_tensor *const *tensors, int i)
{
    const enum tern_dtype expected = tensors[0]->meta.dtype, found = tensors[i]->meta.dtype;
    if (found != expected)
        tern_fail(tensors[i]->ctx, TERN_E_DTYPE, "cat: tensors[0] is %s, tensors[%d] is %s: expected equal dtypes; cast one with tern_cast",
                  tern_dtype_name(expected), i, tern_dtype_name(found));
    return found == expected;
}

tern_tensor *tern_cat(tern_tensor *const *tensors, int n, int dim)
{
    const union tern_op_attrs attrs = {.cat = {.dim = dim}};
    tern_tensor *list[TERN_MAX_INPUTS], *last = NULL;
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (!tensors || !tensors[i] || !dtype_fits(tensors, i))
            return NULL;
        last = tensors[i];
        if (is_left_out(last))
            continue;
        if (count < TERN_MAX_INPUTS)
            list[count] = last;
        count++;
    }
    if (last && !count)
        list[count++] = last;
    if (count > TERN_MAX_INPUTS)
        tern_fail(last->ctx, TERN_E_INVALID, "cat: %d tensors were given: expected 1..%d", count, TERN_MAX_INPUTS);
    return count && count <= TERN_MAX_INPUTS ? tern_op_call(last->ctx, TERN_OP_cat, list, count, &attrs) : NULL;
}
