/* Which ops can be computed band by band, which of their operands have rows as the result has, and how many of these are read around. */
#include <tern/ops.h>

#include "graph/passes/tile.h"

bool tern_tile_has_rows(const struct tern_node *n, int k)
{
    const struct tern_meta *m = &n->desc.in[k];
    if (!n->desc.present[k])
        return false;
    if (tern_op_is_elementwise(n->desc.op) || n->desc.op == TERN_OP_cat)
        return m->ndim >= 2 && m->shape[m->ndim - 2] > 1;
    return k == 0;
}

static bool has_local_rows(const struct tern_node *n)
{
    const struct tern_op_desc *d = &n->desc;
    switch (d->op) {
    case TERN_OP_conv2d:
    case TERN_OP_weight_only_conv2d:
    case TERN_OP_group_norm:
    case TERN_OP_cast:
        return true;
    case TERN_OP_cat:
        return d->attrs.cat.dim == 1 || d->attrs.cat.dim == 3;
    case TERN_OP_contiguous:
        return d->attrs.contiguous.memory_format == TERN_CHANNELS_LAST;
    case TERN_OP_interpolate:
        return d->attrs.interpolate.mode == TERN_NEAREST && d->out.shape[2] == 2 * d->in[0].shape[2];
    case TERN_OP_pad:
        for (int i = 0; i < d->attrs.pad.pad_n; i++)
            if (d->attrs.pad.pad[i] < 0)
                return false;
        return d->attrs.pad.pad_n <= 4;
    default:
        return tern_op_is_elementwise(d->op);
    }
}

bool tern_tile_is_local(const struct tern_graph *g, const struct tern_node *n)
{
    const struct tern_meta *m = &n->desc.out;
    return !n->dead && tern_node_computes(n) && m->ndim == 4 && m->shape[0] == 1 && m->shape[2] > 1 && tern_meta_is_channels_last(m) &&
           tern_meta_numel(m) > 0 && has_local_rows(n);
}

int64_t tern_tile_around(const struct tern_node *n, int64_t around)
{
    const struct tern_op_desc *d = &n->desc;
    if (d->op == TERN_OP_conv2d || d->op == TERN_OP_weight_only_conv2d)
        return around * d->attrs.conv2d.stride[0] + (d->in[1].shape[2] - 1) * d->attrs.conv2d.dilation[0];
    return d->op == TERN_OP_interpolate ? around / 2 + 2 : around;
}
