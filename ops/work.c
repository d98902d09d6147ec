/* How much work a description is. */
#include "ops/op.h"

#include "core/hal.h"

bool tern_op_is_quantized(enum tern_op op)
{
    return op == TERN_OP_quantized_linear || op == TERN_OP_quantized_linear_geglu || op == TERN_OP_quantized_conv2d;
}

bool tern_op_prepares(enum tern_op op) { return op == TERN_OP_quantize || op == TERN_OP_pack_weight; }

bool tern_op_takes_pre(enum tern_op op) { return op == TERN_OP_conv2d || op == TERN_OP_weight_only_conv2d; }

bool tern_op_is_weight_only(enum tern_op op)
{
    return op == TERN_OP_weight_only_linear || op == TERN_OP_weight_only_linear_geglu || op == TERN_OP_weight_only_conv2d;
}

static double numel(const struct tern_meta *m) { return (double)tern_meta_numel(m); }

double tern_desc_flops(const struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    switch (d->op) {
    case TERN_OP_conv2d:
    case TERN_OP_weight_only_conv2d:
    case TERN_OP_quantized_conv2d: /* (O, C / groups, kh, kw): each output value is a sum over a filter */
        return 2 * numel(&d->out) * (double)(w->shape[1] * w->shape[2] * w->shape[3]);
    case TERN_OP_conv_transpose2d: /* (C, O / groups, kh, kw): each input value is spread over a filter */
        return 2 * numel(x) * (double)(w->shape[1] * w->shape[2] * w->shape[3]);
    case TERN_OP_linear:
    case TERN_OP_quantized_linear:
    case TERN_OP_weight_only_linear:
    case TERN_OP_matmul:
        return 2 * numel(&d->out) * (double)(x->ndim ? x->shape[x->ndim - 1] : 1);
    case TERN_OP_linear_geglu:
    case TERN_OP_weight_only_linear_geglu:
    case TERN_OP_quantized_linear_geglu: /* values and gates */
        return 4 * numel(&d->out) * (double)(x->ndim ? x->shape[x->ndim - 1] : 1);
    case TERN_OP_sdpa: /* q k' and p v: (…, L, E) with (…, S, E), (…, S, V) */
        return 2 * numel(x) * (double)w->shape[w->ndim - 2] + 2 * numel(&d->out) * (double)w->shape[w->ndim - 2];
    default:
        return 0;
    }
}

double tern_desc_bytes(const struct tern_op_desc *d)
{
    double bytes = numel(&d->out) * (double)tern_dtype_size(d->out.dtype);
    for (int i = 0; i < d->n_in; i++)
        if (d->present[i])
            bytes += numel(&d->in[i]) * (double)tern_dtype_size(d->in[i].dtype);
    return bytes;
}

int64_t tern_desc_rows(const struct tern_op_desc *d)
{
    const int64_t numel = tern_meta_numel(&d->out);
    switch (d->op) {
    case TERN_OP_conv2d:
    case TERN_OP_weight_only_conv2d:
    case TERN_OP_quantized_conv2d:
    case TERN_OP_conv_transpose2d:
        return numel ? numel / d->out.shape[1] : 0;
    case TERN_OP_matmul: /* matrices of a batch are counted apart, unless one serves all */
        return d->in[1].ndim > 2             ? d->in[0].shape[d->in[0].ndim > 1 ? d->in[0].ndim - 2 : 0]
               : numel && d->in[1].ndim == 2 ? numel / d->in[1].shape[1]
                                             : numel;
    case TERN_OP_sdpa:
        return 0;
    default:
        return numel && tern_desc_flops(d) > 0 ? numel / d->out.shape[d->out.ndim - 1] : 0;
    }
}

bool tern_desc_is_made_whole(const struct tern_op_desc *d, const struct tern_device_caps *caps)
{
    return tern_caps_take(caps, &d->out) && (!caps->max_rows || tern_desc_rows(d) <= caps->max_rows);
}
