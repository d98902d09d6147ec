/* Memory formats: a result has the layout of the inputs it is made from, as in PyTorch. */
#include "core/context.h"
#include "ops/dispatch.h"

/* Channels-last and not contiguous as well (a picture of one channel or one pixel is both). */
static bool plainly_channels_last(const struct tern_meta *m) { return tern_meta_is_channels_last(m) && !tern_meta_is_contiguous(m); }

/* The first input of out's shape lends its strides, if it is dense. Of a contiguous one out has them already, whatever those of single
 * rows are in it: a slice's are the whole's. */
static void follow_elementwise(struct tern_op_desc *d)
{
    for (int i = 0; i < d->n_in; i++)
        if (d->present[i] && tern_meta_same_shape(&d->in[i], &d->out) && tern_meta_is_dense(&d->in[i])) {
            for (int j = 0; j < d->out.ndim && !tern_meta_is_contiguous(&d->in[i]); j++)
                d->out.stride[j] = d->in[i].stride[j];
            return;
        }
}

/* (N, H, L, E) attention heads are views of (N, L, H, E) memory: the result is laid out alike, so that it
 * can be viewed as (N, L, H * E) again. */
static void follow_query(struct tern_op_desc *d)
{
    const struct tern_meta *q = &d->in[0];
    struct tern_meta *o = &d->out;
    if (o->ndim != 4 || q->ndim != 4 || q->stride[1] >= q->stride[2])
        return;
    o->stride[3] = 1;
    o->stride[1] = o->shape[3];
    o->stride[2] = o->shape[3] * o->shape[1];
    o->stride[0] = o->stride[2] * o->shape[2];
}

void tern_choose_format(const struct tern_device *device, struct tern_op_desc *d)
{
    switch (d->op) {
    case TERN_OP_contiguous:
        if (d->attrs.contiguous.memory_format)
            tern_meta_channels_last(&d->out);
        break;
    case TERN_OP_conv2d:
    case TERN_OP_quantized_conv2d:
    case TERN_OP_weight_only_conv2d:
        if (device->caps.prefers_channels_last)
            tern_meta_channels_last(&d->out);
        break;
    case TERN_OP_unpack_weight: /* filters, as they are packed */
        if (d->out.ndim == 4)
            tern_meta_channels_last(&d->out);
        break;
    case TERN_OP_conv_transpose2d:
    case TERN_OP_group_norm:
    case TERN_OP_group_norm_apply:
    case TERN_OP_interpolate:
    case TERN_OP_avg_pool2d:
    case TERN_OP_max_pool2d:
    case TERN_OP_cat:
    case TERN_OP_pad:
        if (d->out.ndim == 4 && plainly_channels_last(&d->in[0]))
            tern_meta_channels_last(&d->out);
        break;
    case TERN_OP_sdpa:
        follow_query(d);
        break;
    case TERN_OP_sum:
    case TERN_OP_mean:
    case TERN_OP_amax:
    case TERN_OP_argmax:
    case TERN_OP_softmax:
    case TERN_OP_layer_norm:
    case TERN_OP_group_norm_stats:
    case TERN_OP_rms_norm:
    case TERN_OP_matmul:
    case TERN_OP_linear:
    case TERN_OP_linear_geglu:
    case TERN_OP_quantize_scale:
    case TERN_OP_quantized_linear:
    case TERN_OP_quantized_linear_geglu:
    case TERN_OP_weight_only_linear:
    case TERN_OP_weight_only_linear_geglu:
    case TERN_OP_pack_weight:
    case TERN_OP_embedding:
    case TERN_OP_gather:
    case TERN_OP_full:
    case TERN_OP_arange:
    case TERN_OP_randn:
    case TERN_OP_rand:
    case TERN_OP_reshape:
    case TERN_OP_permute:
    case TERN_OP_expand:
    case TERN_OP_slice:
        break; /* contiguous */
    default:
        follow_elementwise(d);
    }
}
