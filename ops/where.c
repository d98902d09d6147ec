/* where: an element of x or of other, chosen by a bool. All three broadcast; the bits are copied. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_where(struct tern_context *ctx, struct tern_op_desc *d)
{
    if (d->in[0].dtype != TERN_BOOL)
        return tern_fail(ctx, TERN_E_DTYPE, "where: condition is %s: expected bool", tern_dtype_name(d->in[0].dtype));
    enum tern_status st = tern_rule_same_dtype(ctx, d, 1, 2);
    return st ? st : tern_rule_out_broadcast(ctx, d, d->in[1].dtype, 3);
}

void tern_ref_where(const struct tern_kernel_args *a)
{
    const struct tern_meta *out = &a->desc->out;
    size_t size = tern_dtype_size(out->dtype);
    int64_t n = tern_meta_numel(out), stride[3][TERN_MAX_DIMS];
    for (int i = 0; i < 3; i++)
        tern_broadcast_strides(&a->desc->in[i], out, stride[i]);
    for (int64_t p = 0; p < n; p++) {
        bool condition = tern_load_i64(TERN_BOOL, tern_arg_host(&a->in[0]), tern_offset_of(p, out->ndim, out->shape, stride[0]));
        int from = condition ? 1 : 2;
        tern_copy_element(size, tern_arg_host(&a->out), tern_meta_offset(out, p), tern_arg_host(&a->in[from]),
                          tern_offset_of(p, out->ndim, out->shape, stride[from]));
    }
}

tern_tensor *tern_where(tern_tensor *condition, tern_tensor *x, tern_tensor *other)
{
    static const union tern_op_attrs none;
    tern_tensor *const in[] = {condition, x, other};
    return condition && x && other ? tern_op_call(x->ctx, TERN_OP_where, in, 3, &none) : NULL;
}
