/* Launches of full, arange, rand and randn. */
#include <math.h>
#include <string.h>

#include "ops/kernels/launch_internal.h"

/* The f32 text makes a range as exactly as f32 holds its numbers. */
static bool is_f32(double v) { return (double)(float)v == v; }

static void range(struct tern_launch_maker *m, struct tern_params_fill *p, bool integer)
{
    const struct tern_arange_attrs *a = &m->d->attrs.arange;
    double last = a->start + (double)p->n * a->step;
    tern_launch_define(m, "VALUES_RANGE 1");
    if (integer) { /* whole steps from a whole start */
        bool good = fabs(a->start) < 0x1p30 && fabs(a->step) < 0x1p30 && fabs(last) < 0x1p30;
        m->failed = m->failed || !good;
        p->whole = good ? (int32_t)a->start : 0;
        p->whole_step = good ? (int32_t)a->step : 0;
        return;
    }
    m->failed = m->failed || !is_f32(a->start) || !is_f32(a->step) || p->n >= 1 << 24;
    p->value = (float)a->start;
    p->step = (float)a->step;
}

static void values(struct tern_launch_maker *m, struct tern_params_fill *p)
{
    const union tern_op_attrs *a = &m->d->attrs;
    bool integer = !tern_dtype_is_float(m->d->out.dtype);
    if (integer)
        tern_launch_define(m, "INTEGER 1");
    switch (m->d->op) {
    case TERN_OP_full:
        tern_launch_define(m, "VALUES_FULL 1");
        p->value = (float)a->full.fill_value;
        p->whole = a->full.fill_value >= -2147483648.0 && a->full.fill_value <= 2147483647.0 ? (int32_t)a->full.fill_value : 0;
        m->failed = m->failed || (integer && (double)p->whole != a->full.fill_value);
        break;
    case TERN_OP_arange:
        range(m, p, integer);
        break;
    default: /* rand and randn have the same attributes */
        tern_launch_define(m, m->d->op == TERN_OP_rand ? "VALUES_UNIFORM 1" : "VALUES_NORMAL 1");
        p->seed_low = (uint32_t)a->rand.seed;
        p->seed_high = (uint32_t)((uint64_t)a->rand.seed >> 32);
        p->offset_low = (uint32_t)a->rand.offset;
        p->offset_high = (uint32_t)((uint64_t)a->rand.offset >> 32);
    }
}

bool tern_launch_fill(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    int64_t stride[1][TERN_MAX_DIMS];
    struct tern_loop loop;
    if (d->op != TERN_OP_full && d->op != TERN_OP_arange && d->op != TERN_OP_rand && d->op != TERN_OP_randn)
        return false;
    if (!tern_meta_numel(&d->out))
        return true;
    memcpy(stride[0], d->out.stride, sizeof(stride[0]));
    if (d->n_post || !tern_loop_make(d->out.ndim, d->out.shape, 1, (const int64_t(*)[TERN_MAX_DIMS])stride, false, &loop)) {
        m->failed = true;
        return true;
    }
    int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
    struct tern_launch *l = tern_launch_begin(m, "fill", sizeof(l->params.fill), items, 1);
    struct tern_params_fill *p = &l->params.fill;
    p->n = (int32_t)tern_meta_numel(&d->out);
    memcpy(p->shape, loop.shape, sizeof(p->shape));
    memcpy(p->y_stride, loop.stride[0], sizeof(p->y_stride));
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_define(m, "NDIM %d", loop.ndim);
    values(m, p);
    tern_launch_items(m, p->n, items);
    return true;
}
