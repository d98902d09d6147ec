/* Launches of conv2d and conv_transpose2d. */
#include "ops/kernels/launch_internal.h"

static struct tern_params_conv2d params_of(const struct tern_op_desc *d)
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
        .bias_n = d->present[2] ? (int32_t)d->in[2].stride[0] : 0,
    };
}

/* Positions along a direction, and the steps to them, that 32 bits hold. */
static bool fits(const struct tern_op_desc *d, const struct tern_params_conv2d *p)
{
    int64_t h = ((int64_t)p->out_h + p->in_h) * p->stride_h + p->padding_h + (int64_t)p->kernel_h * p->dilation_h;
    int64_t w = ((int64_t)p->out_w + p->in_w) * p->stride_w + p->padding_w + (int64_t)p->kernel_w * p->dilation_w;
    return h < 1000000000 && w < 1000000000 && tern_meta_numel(&d->in[1]) < TERN_LAUNCH_MAX_ELEMENTS;
}

static bool wide(const struct tern_launch_maker *m, const struct tern_params_conv2d *p)
{
    return m->limits->vectors && p->x_c == 1 && p->w_c == 1 && p->channels % 4 == 0 && p->x_n % 4 == 0 && p->x_h % 4 == 0 &&
           p->x_w % 4 == 0 && p->w_o % 4 == 0 && p->w_h % 4 == 0 && p->w_w % 4 == 0;
}

static void buffers(struct tern_launch_maker *m, bool by_four)
{
    by_four ? tern_launch_read4(m, "x", 0) : tern_launch_read(m, "x", 0);
    by_four ? tern_launch_read4(m, "w", 1) : tern_launch_read(m, "w", 1);
    if (m->d->present[2]) {
        tern_launch_read(m, "bias", 2);
        tern_launch_define(m, "BIAS 1");
    }
    tern_launch_write(m, "y", TERN_SLOT_OUT);
}

bool tern_launch_conv(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    if (d->op != TERN_OP_conv2d && d->op != TERN_OP_conv_transpose2d)
        return false;
    struct tern_params_conv2d p = params_of(d);
    int64_t pixels = (int64_t)p.batch * p.out_h * p.out_w;
    if (!fits(d, &p)) {
        m->failed = true;
        return true;
    }
    if (!tern_meta_numel(&d->out))
        return true;
    if (d->op == TERN_OP_conv2d) {
        struct tern_tile tile = tern_tile_choose(m, pixels, p.outputs);
        bool by_four = wide(m, &p);
        tern_launch_begin(m, "conv2d", sizeof(p), tile.tn / tile.rn, tile.tm / tile.rm);
        m->l->params.conv2d = p;
        buffers(m, by_four);
        if (by_four)
            tern_launch_define(m, "WIDE 1");
        tern_tile_define(m, &tile, pixels, p.outputs, p.groups);
    } else {
        int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
        tern_launch_begin(m, "conv_transpose2d", sizeof(p), items, 1);
        m->l->params.conv2d = p;
        buffers(m, false);
        tern_launch_items(m, tern_meta_numel(&d->out), items);
    }
    tern_launch_posts(m, 1);
    return true;
}
