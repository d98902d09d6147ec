/* Launches of softmax, layer_norm, rms_norm, and group_norm with its halves. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

int tern_launch_row_items(const struct tern_launch_maker *m, int64_t cols)
{
    int items = m->limits->subgroup > 32 ? m->limits->subgroup : 32;
    while (items < m->limits->max_group && items < 256 && items * 4 < cols)
        items *= 2;
    return items;
}

/* Dimensions first .. first + n - 1 of x as one, for every strides given; false when they do not merge. */
static bool one_step(const struct tern_meta *x, int first, int n, const int64_t *stride, int32_t *step)
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

/* Weight and bias, where they are there; the weight is that input. */
static void weight_and_bias(struct tern_launch_maker *m, int weight)
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
    bool good =
        one_step(x, first, n, x->stride, &p.x_step) && one_step(x, first, n, d->out.stride, &p.y_step) && kept_rows(d, first, n, &loop);
    if (!softmax && d->present[1])
        good = good && one_step(&d->in[1], 0, n, d->in[1].stride, &p.weight_step);
    if (centred && d->present[2])
        good = good && one_step(&d->in[2], 0, n, d->in[2].stride, &p.bias_step);
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
        weight_and_bias(m, 1);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (centred)
        tern_launch_define(m, "CENTRED 1");
    tern_launch_subgroups(m);
    fill_rows(m, &loop, cols);
    tern_launch_posts(m, first);
    return true;
}

/* ---- group_norm ---- */

/* Elements of a group that one group of items normalises alone: launches are dearer than the rest of the device that idles. The groups
 * of Stable Diffusion's layers at 32 x 32 and below have no more. */
#define ONE_PASS_MOST 20480

/* Elements of a part: several a group where groups are large, so that the whole device has work; 64 parts at most. */
static int32_t part_size(int64_t elements)
{
    int64_t part = 8192;
    while (part * 64 < elements)
        part *= 2;
    return (int32_t)part;
}

/* group_norm, or a half of it: the moments alone, or the values by moments that are given. */
struct norm {
    int64_t groups;
    bool moments, given;
    int weight; /* the input; the bias is the next one; 0: there are none */
    double eps;
};

static bool read_norm(const struct tern_op_desc *d, struct norm *n)
{
    *n = (struct norm){.moments = d->op == TERN_OP_group_norm_stats, .given = d->op == TERN_OP_group_norm_apply};
    if (n->moments) {
        n->groups = d->attrs.group_norm_stats.num_groups;
    } else if (n->given) {
        n->groups = d->in[1].shape[1];
        n->weight = 2;
        n->eps = d->attrs.group_norm_apply.eps;
    } else if (d->op == TERN_OP_group_norm) {
        n->groups = d->attrs.group_norm.num_groups;
        n->weight = 1;
        n->eps = d->attrs.group_norm.eps;
    }
    return n->moments || n->given || d->op == TERN_OP_group_norm;
}

static int32_t step_of(const struct tern_op_desc *d, int input) { return input && d->present[input] ? (int32_t)d->in[input].stride[0] : 0; }

/* Sizes and strides; false when they are none that the texts know. */
static bool fill_group_norm(const struct tern_launch_maker *m, const struct norm *how, struct tern_params_group_norm *p)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_meta *x = &d->in[0];
    *p = (struct tern_params_group_norm){.groups = (int32_t)how->groups,
                                         .channels = (int32_t)(x->shape[1] / how->groups),
                                         .pixels = 1,
                                         .x_n = (int32_t)x->stride[0],
                                         .x_c = (int32_t)x->stride[1],
                                         .y_n = how->moments ? 0 : (int32_t)d->out.stride[0],
                                         .y_c = how->moments ? 0 : (int32_t)d->out.stride[1],
                                         .weight_step = step_of(d, how->weight),
                                         .bias_step = step_of(d, how->weight ? how->weight + 1 : 0),
                                         .eps = (float)how->eps};
    for (int i = 2; i < x->ndim; i++)
        p->pixels *= (int32_t)x->shape[i];
    const int64_t n = (int64_t)p->channels * p->pixels;
    p->part = part_size(n);
    p->parts = tern_ceil_div(n, p->part);
    return one_step(x, 2, x->ndim - 2, x->stride, &p->x_pixel) &&
           (how->moments || one_step(x, 2, x->ndim - 2, d->out.stride, &p->y_pixel)) &&
           x->shape[0] * how->groups <= m->limits->max_groups && (!how->moments || tern_meta_is_contiguous(&d->out)) &&
           (!how->given || tern_meta_is_contiguous(&d->in[1]));
}

/* The launch that makes the result: `first`, it finds the moments itself. */
static void add_result(struct tern_launch_maker *m, const struct norm *how, bool first)
{
    tern_launch_read(m, "x", 0);
    if (how->given)
        tern_launch_read(m, "stats", 1);
    else if (!first)
        tern_launch_read(m, "stats", TERN_SLOT_WORKSPACE);
    if (how->weight)
        weight_and_bias(m, how->weight);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (how->moments)
        tern_launch_define(m, "MOMENTS 1");
    else
        tern_launch_posts(m, 1);
    if (how->given)
        tern_launch_define(m, "GIVEN 1");
    else if (first)
        tern_launch_define(m, "ONE_PASS 1");
}

bool tern_launch_group_norm(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    struct norm how;
    struct tern_params_group_norm p;
    if (!read_norm(d, &how))
        return false;
    if (!tern_meta_numel(&d->out))
        return true;
    if (!tern_meta_numel(&d->in[0]) || !fill_group_norm(m, &how, &p)) {
        m->failed = true;
        return true;
    }
    const int64_t n = (int64_t)p.channels * p.pixels, all = d->in[0].shape[0] * how.groups;
    const int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
    const bool channels_last = d->in[0].stride[1] == 1 && p.pixels > 1, one_pass = n <= ONE_PASS_MOST || how.given;
    m->out->workspace = one_pass ? 0 : (size_t)(all * p.parts) * 2 * sizeof(float);
    for (int pass = one_pass; pass < 2; pass++) {
        struct tern_launch *l = tern_launch_begin(m, pass ? "group_norm" : "group_norm_stats", sizeof(p), items, 1);
        l->params.group_norm = p;
        if (!pass || (one_pass && !how.given))
            tern_launch_subgroups(m);
        if (pass) {
            add_result(m, &how, one_pass);
        } else {
            tern_launch_read(m, "x", 0);
            tern_launch_write(m, "stats", TERN_SLOT_WORKSPACE);
        }
        if (channels_last)
            tern_launch_define(m, "CHANNELS_LAST 1");
        l->groups[0] = !pass ? p.parts : 1;
        if (pass && !how.moments && (how.given || !one_pass))
            tern_launch_items(m, n, items * 16);
        l->groups[1] = (int)all;
    }
    return true;
}
