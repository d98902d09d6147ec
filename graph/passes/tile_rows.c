/* Tiling: a band of a result, from bands of what it is computed from. */
#include <tern/ops.h>

#include "core/context.h"
#include "graph/passes/tile.h"

static tern_tensor *slice_rows(tern_tensor *x, int64_t from, int64_t to)
{
    const int dim = x ? x->meta.ndim - 2 : 0;
    return x && (from > 0 || to < x->meta.shape[dim]) ? tern_slice(x, dim, from, to, 1)
                                                      : x; /* a view is copied into its place of a whole */
}

/* The rows of x that are there, and what is missing above and below. */
static struct tern_rows clip(const struct tern_tiling *t, int value, struct tern_rows *r, int64_t missing[2])
{
    int64_t h = tern_tile_height(t, value);
    struct tern_rows in = {r->from > 0 ? r->from : 0, r->to < h ? r->to : h};
    if (in.to <= in.from) /* all in the padding: one row, which the caller cuts off */
        in = r->to <= 0 ? (struct tern_rows){0, 1} : (struct tern_rows){h - 1, h};
    missing[0] = in.from - r->from;
    missing[1] = r->to - in.to;
    return in;
}

/* The wanted rows, with `value` where they are missing; `sides`: columns left and right. Less than none is missing of rows that were
 * not wanted. */
static tern_tensor *fill(tern_tensor *x, const int64_t missing[2], const int64_t sides[2], double value, int64_t rows)
{
    int64_t above = missing[0] > 0 ? missing[0] : 0, below = missing[1] > 0 ? missing[1] : 0, cut = missing[0] < 0 ? -missing[0] : 0;
    x = x ? tern_pad(x, 4, (const int64_t[]){sides[0], sides[1], above, below}, value) : NULL;
    return slice_rows(x, cut, cut + rows);
}

static tern_tensor *conv_rows(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r)
{
    union tern_op_attrs attrs = n->desc.attrs;
    struct tern_conv2d_attrs *p = &attrs.conv2d;
    int64_t missing[2], reach = (n->desc.in[1].shape[2] - 1) * p->dilation[0];
    struct tern_rows wanted = {r.from * p->stride[0] - p->padding[0], (r.to - 1) * p->stride[0] - p->padding[0] + reach + 1};
    tern_tensor *x = tern_tile_rows(t, n->in[0], clip(t, n->in[0], &wanted, missing));
    p->padding[0] = missing[0];
    if (missing[0] != missing[1]) {
        x = fill(x, missing, (const int64_t[]){0, 0}, 0, wanted.to - wanted.from);
        p->padding[0] = 0;
    }
    tern_tensor *const in[] = {x, t->again.map[n->in[1]], n->in[2] >= 0 ? t->again.map[n->in[2]] : NULL};
    return tern_op_call(t->again.ctx, n->desc.op, in, n->desc.n_in, &attrs);
}

static tern_tensor *pad_rows(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r)
{
    const struct tern_pad_attrs *p = &n->desc.attrs.pad;
    int64_t missing[2], top = p->pad_n > 2 ? p->pad[2] : 0;
    struct tern_rows wanted = {r.from - top, r.to - top};
    tern_tensor *x = tern_tile_rows(t, n->in[0], clip(t, n->in[0], &wanted, missing));
    return fill(x, missing, p->pad, p->value, r.to - r.from);
}

/* Each row twice. */
static tern_tensor *interpolate_rows(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r)
{
    union tern_op_attrs attrs = n->desc.attrs;
    struct tern_rows half = {r.from / 2, (r.to + 1) / 2};
    tern_tensor *x = tern_tile_rows(t, n->in[0], half);
    attrs.interpolate.size[0] = 2 * (half.to - half.from);
    return slice_rows(tern_op_call(t->again.ctx, n->desc.op, &x, 1, &attrs), r.from - 2 * half.from, r.to - 2 * half.from);
}

tern_tensor *tern_tile_node_rows(struct tern_tiling *t, const struct tern_node *n, struct tern_rows r)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    switch (n->desc.op) {
    case TERN_OP_conv2d:
    case TERN_OP_weight_only_conv2d:
        return conv_rows(t, n, r);
    case TERN_OP_pad:
        return pad_rows(t, n, r);
    case TERN_OP_interpolate:
        return interpolate_rows(t, n, r);
    case TERN_OP_group_norm:
        return tern_group_norm_apply(tern_tile_rows(t, n->in[0], r), t->stats[n->out], n->in[1] >= 0 ? t->again.map[n->in[1]] : NULL,
                                     n->in[2] >= 0 ? t->again.map[n->in[2]] : NULL, n->desc.attrs.group_norm.eps);
    default:
        for (int k = 0; k < n->desc.n_in; k++)
            if (n->in[k] >= 0)
                in[k] = tern_tile_has_rows(n, k) ? tern_tile_rows(t, n->in[k], r) : t->again.map[n->in[k]];
        return tern_op_call(t->again.ctx, n->desc.op, in, n->desc.n_in, &n->desc.attrs);
    }
}

tern_tensor *tern_tile_rows(struct tern_tiling *t, int value, struct tern_rows r)
{
    if (tern_failed(t->again.ctx))
        return NULL;
    if (!t->inner[value])
        return slice_rows(t->again.map[value], r.from, r.to);
    for (int i = 0; i < t->n_pieces; i++) {
        const struct tern_piece *p = &t->piece[i];
        if (p->value == value && p->rows.from <= r.from && r.to <= p->rows.to)
            return slice_rows(p->t, r.from - p->rows.from, r.to - p->rows.from);
    }
    tern_tensor *x = tern_tile_node_rows(t, &t->again.from->nodes[t->again.from->values[value].node], r);
    if (!x || !tern_grow(t->again.ctx, (void **)&t->piece, t->n_pieces, &t->piece_capacity, sizeof(*t->piece)))
        return NULL;
    t->piece[t->n_pieces++] = (struct tern_piece){value, r, x};
    return x;
}
