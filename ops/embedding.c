/* embedding: rows of a table by id. An id outside the table gives zeros. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_embedding(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_meta *ids = &d->in[0], *w = &d->in[1];
    int64_t shape[TERN_MAX_DIMS + 1];
    if (ids->dtype != TERN_I32 && ids->dtype != TERN_I64)
        return tern_fail(ctx, TERN_E_DTYPE, "embedding: input is %s: expected i32 or i64", tern_dtype_name(ids->dtype));
    enum tern_status st = tern_rule_ndim(ctx, d, 1, 2, "(V, E)");
    if (st)
        return st;
    for (int i = 0; i < ids->ndim; i++)
        shape[i] = ids->shape[i];
    shape[ids->ndim] = w->shape[1];
    return tern_rule_out(ctx, d, w->dtype, ids->ndim + 1, shape);
}

void tern_ref_embedding(const struct tern_kernel_args *a)
{
    const struct tern_meta *ids = &a->desc->in[0], *w = &a->desc->in[1], *out = &a->desc->out;
    int64_t rows = tern_meta_numel(ids);
    for (int64_t r = 0; r < rows; r++) {
        int64_t id = tern_load_i64(ids->dtype, tern_arg_host(&a->in[0]), tern_meta_offset(ids, r));
        int64_t to = tern_offset_of(r, ids->ndim, ids->shape, out->stride);
        for (int64_t j = 0; j < w->shape[1]; j++) {
            int64_t at = to + j * out->stride[ids->ndim];
            if (id >= 0 && id < w->shape[0])
                tern_copy_element(tern_dtype_size(w->dtype), tern_arg_host(&a->out), at, tern_arg_host(&a->in[1]),
                                  id * w->stride[0] + j * w->stride[1]);
            else
                tern_out(a, at, 0);
        }
    }
}

tern_tensor *tern_embedding(tern_tensor *input, tern_tensor *weight) { return tern_call_binary(TERN_OP_embedding, input, weight); }
