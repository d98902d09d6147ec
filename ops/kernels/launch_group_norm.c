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

/* ---- group_norm_channels: pictures whose channels lie together ---- */

/* Vectors of a tile that one group of items normalises alone, which it does with 20 an item or fewer; items of such a group. */
#define TILE_MOST 5120
#define TILE_ITEMS 256
/* Groups of items that keep a device busy, where there is work for so many: with four vectors of 16 bytes an item on their way, one to each
 * of the 132 multiprocessors of an H100 is 2 MB, which its memory (3.3 TB/s) answers in about its latency. */
#define TILE_GROUPS 160

/* Whether vectors of `wide` begin at multiples of themselves in every pixel. */
static bool lies_wide(const struct tern_meta *m, int32_t step, int wide)
{
    return m->stride[1] == 1 && step % wide == 0 && m->stride[0] % wide == 0;
}

/* Elements of y that are stored at once; 0: it does not lie as x does. */
static int stored_wide(const struct tern_op_desc *d, const struct norm *how, int32_t step, int wide)
{
    if (how->moments)
        return 1;
    if (d->out.stride[1] != 1)
        return 0;
    const int all = d->out.dtype == TERN_F32 ? 4 : tern_dtype_size(d->out.dtype) == 2 && wide == 8 ? 8 : 1;
    return lies_wide(&d->out, step, all) ? all : 1;
}

static int64_t least_multiple(int64_t a, int64_t b)
{
    int64_t n = a;
    while (n % b)
        n += a;
    return n;
}

/* Vectors of a tile: whole groups of channels, `unit` at least. One pass takes no more than that, so that many groups of items run, but
 * up to four where each item has four at most. Two take up to 16, 256 bytes of f16 a pixel, and fewer, down to 4, where 64 parts of the
 * pixels would not make groups of items enough. */
static int64_t tile_of(int64_t batch, int64_t unit, int64_t units, int64_t pixels, int items, bool one_pass)
{
    int64_t k = 1;
    if (one_pass) {
        while (units % (2 * k) == 0 && 2 * k * unit * pixels <= 4 * items && 2 * k * unit <= 4)
            k *= 2;
        return k * unit;
    }
    for (int64_t i = 2; i <= units && i * unit <= 16; i++)
        k = units % i ? k : i;
    while (k % 2 == 0 && k / 2 * unit >= 4 && batch * (units / k) * 64 < TILE_GROUPS)
        k /= 2;
    return k * unit;
}

/* Elements of a vector of x, with the parameters for group_norm_channels and the items of a group; 0: it does not suit. */
static int fill_channels(const struct tern_launch_maker *m, const struct norm *how, struct tern_params_group_norm *p, bool *one_pass,
                         int *size)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_meta *x = &d->in[0];
    const int wide = x->dtype == TERN_F32 ? 4 : 8;
    int items = m->limits->max_group < TILE_ITEMS ? m->limits->max_group : TILE_ITEMS;
    if (!m->limits->vectors || !tern_dtype_is_float(x->dtype) || (wide == 8 && !m->limits->storage16) || p->pixels == 1 ||
        x->shape[1] % wide || !lies_wide(x, p->x_pixel, wide) || !stored_wide(d, how, p->y_pixel, wide))
        return 0;
    const int64_t channels = least_multiple(p->channels, wide), unit = channels / wide, units = x->shape[1] / channels;
    if (unit > items || channels / p->channels > items)
        return 0;
    *one_pass = unit * p->pixels <= TILE_MOST && !how->given;
    while (*one_pass && items > 64 && unit * p->pixels <= 2 * items && unit <= items / 2 && channels / p->channels <= items / 2)
        items /= 2; /* one a vector or two */
    *size = items;
    p->tile = (int32_t)tile_of(x->shape[0], unit, units, p->pixels, items, *one_pass);
    while (p->tile / unit * (channels / p->channels) > items) /* one sums up each group */
        p->tile = (int32_t)unit;
    p->tiles = (int32_t)(x->shape[1] / wide / p->tile);
    p->rows = items / p->tile;
    for (p->lanes = items; p->lanes > items / (p->groups / p->tiles); p->lanes /= 2)
        ;
    return wide;
}

/* Pixels of a part: four an item or more, up to 64 parts; and up to 16 an item, where enough groups of items are left. A group of items
 * sums up what its items found in some 700 instructions an item, and a vector is 40. */
static void cut_parts(struct tern_params_group_norm *p, int64_t batch)
{
    int32_t band = 4 * p->rows;
    while (band < p->pixels &&
           (band * 64 < p->pixels || (band < 16 * p->rows && batch * p->tiles * tern_ceil_div(p->pixels, band) > TILE_GROUPS)))
        band += p->rows;
    p->band = band < p->pixels ? band : p->pixels;
    p->part = p->band * p->channels;
    p->parts = tern_ceil_div(p->pixels, p->band);
}

/* The launch that makes the result: `first`, it finds the moments itself; y_wide: elements that are stored at once. */
static void add_result(struct tern_launch_maker *m, const struct norm *how, bool first, int y_wide)
{
    if (how->given)
        tern_launch_read(m, "stats", 1);
    else if (!first)
        tern_launch_read(m, "stats", TERN_SLOT_WORKSPACE);
    if (how->weight)
        tern_launch_weight_and_bias(m, how->weight);
    if (y_wide == 8)
        tern_launch_read8(m, "y", TERN_SLOT_OUT);
    else if (y_wide == 4)
        tern_launch_read4(m, "y", TERN_SLOT_OUT);
    else
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

/* Any layout: a group of items for each group of channels, or for its parts. */
static void by_groups(struct tern_launch_maker *m, const struct norm *how, const struct tern_params_group_norm *p, bool one_pass, int from)
{
    const int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
    for (int pass = from; pass < 2; pass++) {
        struct tern_launch *l = tern_launch_begin(m, pass ? "group_norm" : "group_norm_stats", sizeof(*p), items, 1);
        l->params.group_norm = *p;
        if (!pass || (one_pass && !how->given))
            tern_launch_subgroups(m);
        tern_launch_read(m, "x", 0);
        if (pass)
            add_result(m, how, one_pass, 1);
        else
            tern_launch_write(m, "stats", TERN_SLOT_WORKSPACE);
        if (m->d->in[0].stride[1] == 1 && p->pixels > 1)
            tern_launch_define(m, "CHANNELS_LAST 1");
        l->groups[0] = !pass ? p->parts : 1;
        if (pass && !how->moments && (how->given || !one_pass))
            tern_launch_items(m, (int64_t)p->channels * p->pixels, items * 16);
        l->groups[1] = (int)m->d->in[0].shape[0] * p->groups;
    }
}

/* Channels that lie together: a group of items for each tile of them, or for its parts. */
static void by_channels(struct tern_launch_maker *m, const struct norm *how, const struct tern_params_group_norm *p, bool one_pass,
                        int wide, int items)
{
    const int64_t tiles = m->d->in[0].shape[0] * p->tiles;
    for (int pass = one_pass || how->given; pass < (how->moments && !one_pass ? 1 : 2); pass++) {
        struct tern_launch *l = tern_launch_begin(m, "group_norm_channels", sizeof(*p), items, 1);
        const int y_wide = stored_wide(m->d, how, p->y_pixel, wide);
        int each = 16; /* pixels of an item, if that makes enough groups of items */
        l->params.group_norm = *p;
        tern_launch_define(m, "WIDE %d", wide);
        if (wide == 8)
            tern_launch_read8(m, "x", 0);
        else
            tern_launch_read4(m, "x", 0);
        if (pass) {
            add_result(m, how, one_pass, y_wide);
            tern_launch_define(m, "Y_WIDE %d", y_wide);
        } else {
            tern_launch_write(m, "stats", TERN_SLOT_WORKSPACE);
            tern_launch_define(m, "PARTS 1");
        }
        while (each > 4 && tiles * tern_ceil_div(p->pixels, p->rows * each) < TILE_GROUPS)
            each /= 2;
        l->groups[0] = pass ? 1 : p->parts;
        if (pass && !one_pass)
            tern_launch_items(m, p->pixels, p->rows * each);
        l->groups[1] = (int)tiles;
    }
    if (how->moments && !one_pass)
        by_groups(m, how, p, false, 1);
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
    const int64_t all = d->in[0].shape[0] * how.groups;
    const bool alone = (int64_t)p.channels * p.pixels <= ONE_PASS_MOST || how.given;
    bool one_pass = false;
    int items = 0;
    m->out->workspace = alone ? 0 : (size_t)(all * p.parts) * 2 * sizeof(float);
    const int wide = fill_channels(m, &how, &p, &one_pass, &items);
    if (!wide) {
        by_groups(m, &how, &p, alone, alone);
        return true;
    }
    if (!one_pass && !how.given) {
        cut_parts(&p, d->in[0].shape[0]);
        const size_t room = (size_t)(all * p.parts) * 2 * sizeof(float);
        if (m->out->workspace < room) /* it is taken before it is known whether arguments are aligned */
            m->out->workspace = room;
    }
    by_channels(m, &how, &p, one_pass, wide, items);
    return true;
}
