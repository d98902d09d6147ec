/* cast and contiguous: copies that change dtype or memory order. What is so already is returned itself. */
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_cast(struct tern_context *ctx, struct tern_op_desc *d)
{
    int64_t dtype = d->attrs.cast.dtype;
    if (dtype < 0 || dtype >= TERN_DTYPE_COUNT)
        return tern_fail(ctx, TERN_E_INVALID, "cast: dtype is %lld: expected 0..%d (enum tern_dtype)", (long long)dtype,
                         TERN_DTYPE_COUNT - 1);
    return tern_rule_out_like(ctx, d, (enum tern_dtype)dtype);
}

void tern_ref_cast(const struct tern_kernel_args *a)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    const void *src = tern_arg_host(&a->in[0]);
    void *dst = tern_arg_host(&a->out);
    int64_t n = tern_meta_numel(out);
    for (int64_t p = 0; p < n; p++) {
        int64_t from = tern_meta_offset(x, p), to = tern_meta_offset(out, p);
        if (tern_dtype_is_float(x->dtype))
            tern_store(out->dtype, dst, to, tern_load(x->dtype, src, from));
        else
            tern_store_i64(out->dtype, dst, to, tern_load_i64(x->dtype, src, from));
    }
}

tern_tensor *tern_cast(tern_tensor *x, enum tern_dtype dtype)
{
    const union tern_op_attrs attrs = {.cast = {.dtype = dtype}};
    return tern_call_unary(TERN_OP_cast, x, &attrs);
}

enum tern_status tern_shape_contiguous(struct tern_context *ctx, struct tern_op_desc *d)
{
    int64_t format = d->attrs.contiguous.memory_format;
    if (format != TERN_CONTIGUOUS && format != TERN_CHANNELS_LAST)
        return tern_fail(ctx, TERN_E_INVALID, "contiguous: memory_format is %lld: expected 0 (contiguous) or 1 (channels last)",
                         (long long)format);
    enum tern_status st = format == TERN_CHANNELS_LAST ? tern_rule_ndim(ctx, d, 0, 4, "(N, C, H, W)") : TERN_OK;
    if (!st)
        st = tern_rule_out_like(ctx, d, d->in[0].dtype);
    if (!st && format == TERN_CHANNELS_LAST)
        tern_meta_channels_last(&d->out);
    return st;
}

void tern_ref_contiguous(const struct tern_kernel_args *a)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    int64_t n = tern_meta_numel(out);
    for (int64_t p = 0; p < n; p++)
        tern_copy_element(tern_dtype_size(x->dtype), tern_arg_host(&a->out), tern_meta_offset(out, p), tern_arg_host(&a->in[0]),
                          tern_meta_offset(x, p));
}

tern_tensor *tern_contiguous(tern_tensor *x, enum tern_memory_format format)
{
    const union tern_op_attrs attrs = {.contiguous = {.memory_format = format}};
    return tern_call_unary(TERN_OP_contiguous, x, &attrs);
}
