/* Launches of group_norm and its halves. */
#include "ops/kernels/launch_internal.h"

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
    return tern_launch_one_step(x, 2, x->ndim - 2, x->stride, &p->x_pixel) &&
           (how->moments || tern_launch_one_step(x, 2, x->ndim - 2, d->out.stride, &p->y_pixel)) &&
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
        tern_launch_weight_and_bias(m, how->weight);
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
