/* Launches of conv2d and conv_transpose2d. */
#include "ops/kernels/launch_internal.h"

struct tern_params_conv2d tern_conv_params(const struct tern_op_desc *d, int bias)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1], *y = &d->out;
    bool transposed = d->op == TERN_OP_conv_transpose2d;
    const struct tern_conv2d_attrs *a = &d->attrs.conv2d;
    const struct tern_conv_transpose2d_attrs *b = &d->attrs.conv_transpose2d;
    const int64_t *stride = transposed ? b->stride : a->stride, *padding = transposed ? b->padding : a->padding;
    const int64_t *dilation = transposed ? b->dilation : a->dilation;
    int64_t groups = transposed ? b->groups : a->groups;
    return (struct tern_params_conv2d){
        .batch = (int32_t)x->shape[0],
        .channels = (int32_t)(x->shape[1] / groups),
        .outputs = (int32_t)(y->shape[1] / groups),
        .groups = (int32_t)groups,
        .in_h = (int32_t)x->shape[2],
        .in_w = (int32_t)x->shape[3],
        .out_h = (int32_t)y->shape[2],
        .out_w = (int32_t)y->shape[3],
        .kernel_h = (int32_t)w->shape[2],
        .kernel_w = (int32_t)w->shape[3],
        .stride_h = (int32_t)stride[0],
        .stride_w = (int32_t)stride[1],
        .padding_h = (int32_t)padding[0],
        .padding_w = (int32_t)padding[1],
        .dilation_h = (int32_t)dilation[0],
        .dilation_w = (int32_t)dilation[1],
        .x_n = (int32_t)x->stride[0],
        .x_c = (int32_t)x->stride[1],
        .x_h = (int32_t)x->stride[2],
        .x_w = (int32_t)x->stride[3],
        .w_o = (int32_t)w->stride[0],
        .w_c = (int32_t)w->stride[1],
        .w_h = (int32_t)w->stride[2],
        .w_w = (int32_t)w->stride[3],
        .y_n = (int32_t)y->stride[0],
        .y_c = (int32_t)y->stride[1],
        .y_h = (int32_t)y->stride[2],
        .y_w = (int32_t)y->stride[3],
        .bias_n = d->present[bias] ? (int32_t)d->in[bias].stride[0] : 0,
    };
}

/* Positions along a direction, and the steps to them, that 32 bits hold. */
bool tern_conv_fits(const struct tern_op_desc *d, const struct tern_params_conv2d *p)
{
    int64_t h = ((int64_t)p->out_h + p->in_h) * p->stride_h + p->padding_h + (int64_t)p->kernel_h * p->dilation_h;
    int64_t w = ((int64_t)p->out_w + p->in_w) * p->stride_w + p->padding_w + (int64_t)p->kernel_w * p->dilation_w;
    return h < 1000000000 && w < 1000000000 && tern_meta_numel(&d->in[1]) < TERN_LAUNCH_MAX_ELEMENTS;
}

/* Whether that many channels of a pixel, and of a tap, lie together. How far taps are apart says nothing where there is one. */
static bool wide(const struct tern_launch_maker *m, const struct tern_params_conv2d *p, int by)
{
    const bool taps = (p->kernel_h == 1 || p->w_h % by == 0) && (p->kernel_w == 1 || p->w_w % by == 0);
    return m->limits->vectors && p->x_c == 1 && p->w_c == 1 && p->channels % by == 0 && p->x_n % by == 0 && p->x_h % by == 0 &&
           p->x_w % by == 0 && p->w_o % by == 0 && taps;
}

static void buffers(struct tern_launch_maker *m, void (*read)(struct tern_launch_maker *, const char *, int),
                    void (*write)(struct tern_launch_maker *, const char *, int))
{
    read(m, "x", 0);
    read(m, "w", 1);
    if (m->d->present[2]) {
        tern_launch_read(m, "bias", 2);
        tern_launch_define(m, "BIAS 1");
    }
    write(m, "y", TERN_SLOT_OUT);
}

static void begin_plain(struct tern_launch_maker *m, const struct tern_params_conv2d *p, int64_t pixels)
{
    struct tern_tile tile = tern_tile_choose(m, pixels, p->outputs);
    const bool by_four = wide(m, p, 4);
    tern_launch_begin(m, "conv2d", sizeof(*p), tile.tn / tile.rn, tile.tm / tile.rm)->params.conv2d = *p;
    buffers(m, by_four ? tern_launch_read4 : tern_launch_read, tern_launch_write);
    if (by_four)
        tern_launch_define(m, "WIDE 1");
    tern_tile_define(m, &tile, pixels, p->outputs, p->groups);
    tern_launch_posts(m, 1);
}

/* Whether the output's pixels lie behind each other, all pictures as one row. */
static bool in_a_row(const struct tern_params_conv2d *p)
{
    return (p->out_h == 1 || p->y_h == p->out_w * p->y_w) && (p->batch == 1 || p->y_n == p->out_h * p->out_w * p->y_w);
}

void tern_conv_write_matrix(struct tern_launch_maker *m, const char *name, int what)
{
    const struct tern_params_conv2d *p = &m->l->params.conv2d;
    const enum tern_dtype y = m->d->out.dtype;
    bool by_eight = m->limits->vectors && (y == TERN_F16 || y == TERN_BF16) && p->y_c == 1 && p->outputs % 8 == 0 && p->y_n % 8 == 0 &&
                    p->y_h % 8 == 0 && p->y_w % 8 == 0;
    by_eight ? tern_launch_read8(m, name, what) : tern_launch_write(m, name, what);
    if (by_eight)
        tern_launch_define(m, "WIDE_Y 1");
    if (in_a_row(p))
        tern_launch_define(m, "IN_A_ROW 1");
}

/* False where matrix units, or the channels, do not suit. */
static bool begin_matrix(struct tern_launch_maker *m, const struct tern_params_conv2d *p, int64_t pixels)
{
    struct tern_matrix_tile tile;
    const struct tern_op_desc *d = m->d;
    if (!wide(m, p, 8) || !tern_matrix_choose(m, d->in[0].dtype, d->in[1].dtype, pixels, p->outputs, p->groups, &tile) ||
        !tern_matrix_loads_whole(m, &tile))
        return false;
    int parts =
        p->groups == 1 && in_a_row(p) ? tern_matrix_parts(m, &tile, pixels, p->outputs, p->kernel_h * p->kernel_w * p->channels) : 1;
    tern_matrix_begin(m, "conv2d_matrix", sizeof(*p), &tile, pixels, p->outputs, p->groups * parts)->params.conv2d = *p;
    if (parts > 1) {
        tern_launch_read8(m, "x", 0);
        tern_launch_read8(m, "w", 1);
        tern_matrix_sum_parts(m, parts, pixels, p->outputs, p->y_w, p->y_c, 1);
        return true;
    }
    buffers(m, tern_launch_read8, tern_conv_write_matrix);
    tern_launch_posts(m, 1);
    return true;
}

bool tern_launch_conv(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    if (d->op != TERN_OP_conv2d && d->op != TERN_OP_conv_transpose2d)
        return false;
    struct tern_params_conv2d p = tern_conv_params(d, 2);
    int64_t pixels = (int64_t)p.batch * p.out_h * p.out_w;
    if (!tern_conv_fits(d, &p)) {
        m->failed = true;
        return true;
    }
    if (!tern_meta_numel(&d->out))
        return true;
    if (d->op == TERN_OP_conv_transpose2d) {
        int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
        tern_launch_begin(m, "conv_transpose2d", sizeof(p), items, 1)->params.conv2d = p;
        buffers(m, tern_launch_read, tern_launch_write);
        tern_launch_items(m, tern_meta_numel(&d->out), items);
        tern_launch_posts(m, 1);
    } else if (!begin_matrix(m, &p, pixels)) {
        begin_plain(m, &p, pixels);
    }
    return true;
}
