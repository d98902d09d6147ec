/* Which ops can run chunk by chunk, and which of their operands are cut for it. */
#include <tern/ops.h>

#include "graph/passes/chunk.h"

int64_t tern_chunk_count(const struct tern_chunking *c, const struct tern_node *n)
{
    const int64_t size = n->desc.out.ndim > c->dim ? n->desc.out.shape[c->dim] : 0, count = c->dim ? size / c->limits->rows_of_chunk : size;
    return count < c->most ? count : c->most;
}

bool tern_chunk_cuts(const struct tern_chunking *c, const struct tern_node *n, int k)
{
    const struct tern_op_desc *d = &n->desc;
    if (!d->present[k] || d->in[k].ndim <= c->dim || d->in[k].shape[c->dim] != d->out.shape[c->dim])
        return false;
    switch (d->op) {
    case TERN_OP_cat:
    case TERN_OP_matmul:
    case TERN_OP_sdpa:
        return d->in[k].ndim == d->out.ndim;
    case TERN_OP_quantize:
    case TERN_OP_group_norm_apply:
        return k < 2;
    default:
        return tern_op_is_elementwise(d->op) ? d->in[k].ndim == d->out.ndim : k == 0;
    }
}

/* Any dimension but the last may be cut. */
static bool is_linear(enum tern_op op)
{
    switch (op) {
    case TERN_OP_linear:
    case TERN_OP_linear_geglu:
    case TERN_OP_quantized_linear:
    case TERN_OP_quantized_linear_geglu:
    case TERN_OP_weight_only_linear:
    case TERN_OP_weight_only_linear_geglu:
        return true;
    default:
        return false;
    }
}

/* Whether an operand has the result's rows where it is not cut: two dimensions under three. */
static bool has_whole_rows(const struct tern_op_desc *d)
{
    for (int k = 0; k < d->n_in; k++)
        if (d->present[k] && d->in[k].ndim == 2 && d->in[k].shape[0] > 1)
            return true;
    return false;
}

/* Whether a row of the result, of (N, rows, channels), needs that row of the operands alone. */
static bool is_by_row(const struct tern_chunking *c, const struct tern_op_desc *d)
{
    if (d->out.ndim != 3 || (c->dim == 1 && d->out.shape[0] != 1))
        return false;
    switch (d->op) {
    case TERN_OP_cast:
        return true;
    case TERN_OP_slice:
        return d->attrs.slice.dim == 2;
    case TERN_OP_layer_norm:
        return d->attrs.layer_norm.normalized_ndim == 1;
    case TERN_OP_rms_norm:
        return d->attrs.rms_norm.normalized_ndim == 1;
    default:
        return is_linear(d->op) || (tern_op_is_elementwise(d->op) && !(c->dim == 1 && has_whole_rows(d)));
    }
}

/* Whether a picture of the result needs that picture of the operands alone. */
static bool is_by_picture(const struct tern_chunking *c, const struct tern_node *n)
{
    const struct tern_op_desc *d = &n->desc;
    const union tern_op_attrs *a = &d->attrs;
    switch (d->op) {
    case TERN_OP_reshape:
    case TERN_OP_cast:
    case TERN_OP_contiguous:
    case TERN_OP_conv2d:
    case TERN_OP_quantized_conv2d:
    case TERN_OP_weight_only_conv2d:
    case TERN_OP_group_norm:
    case TERN_OP_group_norm_stats:
    case TERN_OP_group_norm_apply:
    case TERN_OP_interpolate:
    case TERN_OP_avg_pool2d:
    case TERN_OP_max_pool2d:
    case TERN_OP_quantize:
        return tern_chunk_cuts(c, n, 0);
    case TERN_OP_sdpa: /* (L, E) has rows of queries there */
        return d->out.ndim > 2 && tern_chunk_cuts(c, n, 0);
    case TERN_OP_matmul:
        return d->out.ndim > 2;
    case TERN_OP_permute:
        return a->permute.dims[0] == 0;
    case TERN_OP_expand:
        return d->in[0].ndim == d->out.ndim;
    case TERN_OP_slice:
        return a->slice.dim != 0;
    case TERN_OP_cat:
        return a->cat.dim != 0;
    case TERN_OP_pad:
        return a->pad.pad_n <= 2 * (d->out.ndim - 1);
    case TERN_OP_softmax:
        return a->softmax.dim != 0;
    case TERN_OP_layer_norm:
        return a->layer_norm.normalized_ndim < d->out.ndim;
    case TERN_OP_rms_norm:
        return a->rms_norm.normalized_ndim < d->out.ndim;
    default:
        return tern_op_is_elementwise(d->op) || (is_linear(d->op) && tern_chunk_cuts(c, n, 0));
    }
}

bool tern_chunk_fits(const struct tern_chunking *c, const struct tern_node *n)
{
    bool cuts = false; /* a matmul with a vector cuts nothing, for one: its result has a dimension less */
    for (int k = 0; k < n->desc.n_in; k++)
        cuts = cuts || tern_chunk_cuts(c, n, k);
    return cuts && (c->by_row ? is_by_row(c, &n->desc) : is_by_picture(c, n));
}
