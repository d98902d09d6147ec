/* Launches of embedding and gather. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

static int group_items(const struct tern_launch_maker *m) { return m->limits->max_group < 256 ? m->limits->max_group : 256; }

static void embedding(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_meta *ids = &d->in[0], *w = &d->in[1];
    int64_t stride[2][TERN_MAX_DIMS], n = tern_meta_numel(ids);
    struct tern_loop loop;
    memcpy(stride[0], ids->stride, sizeof(stride[0]));
    memcpy(stride[1], d->out.stride, sizeof(stride[1]));
    if (!tern_loop_make(ids->ndim, ids->shape, 2, (const int64_t(*)[TERN_MAX_DIMS])stride, false, &loop)) {
        m->failed = true;
        return;
    }
    struct tern_launch *l = tern_launch_begin(m, "embedding", sizeof(l->params.embedding), group_items(m), 1);
    struct tern_params_embedding *p = &l->params.embedding;
    *p = (struct tern_params_embedding){.n = (int32_t)n,
                                        .width = (int32_t)w->shape[1],
                                        .rows = (int32_t)w->shape[0],
                                        .y_step = (int32_t)d->out.stride[ids->ndim],
                                        .table_row = (int32_t)w->stride[0],
                                        .table_step = (int32_t)w->stride[1]};
    memcpy(p->shape, loop.shape, sizeof(p->shape));
    memcpy(p->id_stride, loop.stride[0], sizeof(p->id_stride));
    memcpy(p->y_stride, loop.stride[1], sizeof(p->y_stride));
    tern_launch_read(m, "ids", 0);
    tern_launch_read(m, "table", 1);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_define(m, "ID_NDIM %d", loop.ndim);
    tern_launch_items(m, n * w->shape[1], l->group_size[0]);
}

static void gather(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_meta *x = &d->in[0], *index = &d->in[1];
    int64_t stride[3][TERN_MAX_DIMS], dim = d->attrs.gather.dim;
    struct tern_loop loop;
    memcpy(stride[0], x->stride, sizeof(stride[0]));
    memcpy(stride[1], index->stride, sizeof(stride[1]));
    memcpy(stride[2], d->out.stride, sizeof(stride[2]));
    if (x->ndim)
        stride[0][dim] = 0;
    if (!tern_loop_make(index->ndim, index->shape, 3, (const int64_t(*)[TERN_MAX_DIMS])stride, true, &loop)) {
        m->failed = true;
        return;
    }
    struct tern_launch *l = tern_launch_begin(m, "gather", sizeof(l->params.gather), group_items(m), 1);
    struct tern_params_gather *p = &l->params.gather;
    p->n = (int32_t)tern_meta_numel(&d->out);
    p->size = x->ndim ? (int32_t)x->shape[dim] : 1;
    p->step = x->ndim ? (int32_t)x->stride[dim] : 0;
    memcpy(p->shape, loop.shape, sizeof(p->shape));
    memcpy(p->x_stride, loop.stride[0], sizeof(p->x_stride));
    memcpy(p->index_stride, loop.stride[1], sizeof(p->index_stride));
    memcpy(p->y_stride, loop.stride[2], sizeof(p->y_stride));
    tern_launch_read(m, "x", 0);
    tern_launch_read(m, "index", 1);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_define(m, "NDIM %d", loop.ndim);
    tern_launch_items(m, p->n, l->group_size[0]);
}

bool tern_launch_lookup(struct tern_launch_maker *m)
{
    if (m->d->op != TERN_OP_embedding && m->d->op != TERN_OP_gather)
        return false;
    m->failed = m->failed || m->d->n_post;
    if (tern_meta_numel(&m->d->out))
        m->d->op == TERN_OP_embedding ? embedding(m) : gather(m);
    return true;
}
