/* Launches of softmax, layer_norm and rms_norm. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

int tern_launch_row_items(const struct tern_launch_maker *m, int64_t cols)
{
    int items = m->limits->subgroup > 32 ? m->limits->subgroup : 32;
    while (items < m->limits->max_group && items < 256 && items * 4 < cols)
        items *= 2;
    return items;
}

bool tern_launch_one_step(const struct tern_meta *x, int first, int n, const int64_t *stride, int32_t *step)
{
    struct tern_loop loop;
    int64_t one[1][TERN_MAX_DIMS] = {{0}};
    memcpy(one[0], stride + first, sizeof(int64_t) * (size_t)n);
    bool good = tern_loop_make(n, x->shape + first, 1, (const int64_t(*)[TERN_MAX_DIMS])one, false, &loop) && loop.ndim == 1;
    *step = good ? loop.stride[0][0] : 0;
    return good;
}

/* The kept dimensions of x: all but first .. first + n - 1. */
static bool kept_rows(const struct tern_op_desc *d, int first, int n, struct tern_loop *loop)
{
    int64_t shape[TERN_MAX_DIMS], stride[2][TERN_MAX_DIMS];
    int kept = 0;
    for (int i = 0; i < d->in[0].ndim; i++) {
        if (i >= first && i < first + n)
            continue;
        shape[kept] = d->in[0].shape[i];
        stride[0][kept] = d->in[0].stride[i];
        stride[1][kept++] = d->out.stride[i];
    }
    return tern_loop_make(kept, shape, 2, (const int64_t(*)[TERN_MAX_DIMS])stride, false, loop);
}

static void fill_rows(struct tern_launch_maker *m, const struct tern_loop *loop, int64_t cols)
{
    struct tern_params_rows *p = &m->l->params.rows;
    p->rows = 1;
    for (int i = 0; i < loop->ndim; i++)
        p->rows *= loop->shape[i];
    p->cols = (int32_t)cols;
    memcpy(p->row_shape, loop->shape, sizeof(p->row_shape));
    memcpy(p->x_row, loop->stride[0], sizeof(p->x_row));
    memcpy(p->y_row, loop->stride[1], sizeof(p->y_row));
    tern_launch_define(m, "ROW_NDIM %d", loop->ndim);
    tern_launch_items(m, p->rows, 1);
}

void tern_launch_weight_and_bias(struct tern_launch_maker *m, int weight)
{
    if (m->d->present[weight]) {
        tern_launch_read(m, "weight", weight);
        tern_launch_define(m, "WEIGHT 1");
    }
    if (m->d->op != TERN_OP_rms_norm && m->d->present[weight + 1]) {
        tern_launch_read(m, "bias", weight + 1);
        tern_launch_define(m, "BIAS 1");
    }
}

bool tern_launch_rows(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_meta *x = &d->in[0];
    bool softmax = d->op == TERN_OP_softmax, centred = d->op == TERN_OP_layer_norm;
    int n = softmax ? x->ndim > 0 : centred ? (int)d->attrs.layer_norm.normalized_ndim : (int)d->attrs.rms_norm.normalized_ndim;
    int first = softmax ? (int)d->attrs.softmax.dim : x->ndim - n;
    struct tern_loop loop;
    struct tern_params_rows p = {.eps = (float)(centred ? d->attrs.layer_norm.eps : d->attrs.rms_norm.eps)};
    int64_t cols = 1;
    if (!softmax && !centred && d->op != TERN_OP_rms_norm)
        return false;
    if (!tern_meta_numel(&d->out))
        return true;
    bool good = tern_launch_one_step(x, first, n, x->stride, &p.x_step) && tern_launch_one_step(x, first, n, d->out.stride, &p.y_step) &&
                kept_rows(d, first, n, &loop);
    if (!softmax && d->present[1])
        good = good && tern_launch_one_step(&d->in[1], 0, n, d->in[1].stride, &p.weight_step);
    if (centred && d->present[2])
        good = good && tern_launch_one_step(&d->in[2], 0, n, d->in[2].stride, &p.bias_step);
    if (!good || (n != 1 && d->n_post)) {
        m->failed = true;
        return true;
    }
    for (int i = 0; i < n; i++)
        cols *= x->shape[first + i];
    struct tern_launch *l = tern_launch_begin(m, softmax ? "softmax" : "norm", sizeof(p), tern_launch_row_items(m, cols), 1);
    l->params.rows = p;
    tern_launch_read(m, "x", 0);
    if (!softmax)
        tern_launch_weight_and_bias(m, 1);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (centred)
        tern_launch_define(m, "CENTRED 1");
    tern_launch_subgroups(m);
    fill_rows(m, &loop, cols);
    tern_launch_posts(m, first);
    return true;
}
