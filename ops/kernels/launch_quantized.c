/* Launches of products of int8: what comes in becomes words of int8 with a factor for each row or picture, then one launch multiplies. A
 * weight of floats, or one whose channels do not lie together in words, becomes words first. */
#include <string.h>

#include "ops/kernels/launch_internal.h"

struct quantized {
    bool conv, gated, in_place; /* in_place: the weight lies in words already */
    struct tern_quantize_view x, w;
    struct tern_params_quantized_product p;
    struct tern_quantize_room x_room, w_room; /* mosts of x_room only */
    size_t workspace;
};

/* Rows of x as pixels of one picture, up to three dimensions; false when there are more. */
static bool view_linear(const struct tern_op_desc *d, struct quantized *q)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    const int last = x->ndim - 1;
    int64_t stride[2][TERN_MAX_DIMS];
    struct tern_loop loop;
    memcpy(stride[0], x->stride, sizeof(stride[0]));
    memcpy(stride[1], d->out.stride, sizeof(stride[1]));
    if (!tern_loop_make(last, x->shape, 2, (const int64_t(*)[TERN_MAX_DIMS])stride, false, &loop) || loop.ndim > 3)
        return false;
    int32_t shape[3] = {1, 1, 1}, from[3] = {0}, to[3] = {0};
    for (int i = 0; i < loop.ndim; i++) {
        shape[3 - loop.ndim + i] = loop.shape[i];
        from[3 - loop.ndim + i] = loop.stride[0][i];
        to[3 - loop.ndim + i] = loop.stride[1][i];
    }
    q->x = (struct tern_quantize_view){.input = 0,
                                       .n = shape[0],
                                       .h = shape[1],
                                       .w = shape[2],
                                       .groups = 1,
                                       .channels = x->shape[last],
                                       .x_n = from[0],
                                       .x_h = from[1],
                                       .x_w = from[2],
                                       .x_c = x->stride[last]};
    q->w = (struct tern_quantize_view){.input = 1,
                                       .whole = true,
                                       .n = w->shape[0],
                                       .h = 1,
                                       .w = 1,
                                       .groups = 1,
                                       .channels = w->shape[1],
                                       .x_n = w->stride[0],
                                       .x_c = w->stride[1]};
    q->p = (struct tern_params_quantized_product){.batch = shape[0],
                                                  .outputs = (int32_t)d->out.shape[last],
                                                  .groups = 1,
                                                  .in_h = shape[1],
                                                  .in_w = shape[2],
                                                  .out_h = shape[1],
                                                  .out_w = shape[2],
                                                  .kernel_h = 1,
                                                  .kernel_w = 1,
                                                  .stride_h = 1,
                                                  .stride_w = 1,
                                                  .dilation_h = 1,
                                                  .dilation_w = 1,
                                                  .y_n = to[0],
                                                  .y_c = (int32_t)d->out.stride[last],
                                                  .y_h = to[1],
                                                  .y_w = to[2],
                                                  .bias_n = d->present[3] ? (int32_t)d->in[3].stride[0] : 0};
    return true;
}

static bool view_conv(const struct tern_op_desc *d, struct quantized *q)
{
    const struct tern_params_conv2d c = tern_conv_params(d, 3);
    q->x = (struct tern_quantize_view){.input = 0,
                                       .whole = true,
                                       .n = c.batch,
                                       .h = c.in_h,
                                       .w = c.in_w,
                                       .groups = c.groups,
                                       .channels = c.channels,
                                       .x_n = c.x_n,
                                       .x_h = c.x_h,
                                       .x_w = c.x_w,
                                       .x_c = c.x_c};
    q->w = (struct tern_quantize_view){.input = 1,
                                       .whole = true,
                                       .n = d->in[1].shape[0],
                                       .h = c.kernel_h,
                                       .w = c.kernel_w,
                                       .groups = 1,
                                       .channels = c.channels,
                                       .x_n = c.w_o,
                                       .x_h = c.w_h,
                                       .x_w = c.w_w,
                                       .x_c = c.w_c};
    memcpy(&q->p, &c, sizeof(c)); /* the parameters begin with a convolution's */
    return tern_conv_fits(d, &c);
}

/* Wherever it begins: the workspace is that of the description. */
static bool lies_in_words(const struct tern_launch_maker *m, const struct tern_quantize_view *w)
{
    return m->d->in[w->input].dtype == TERN_I8 && w->x_c == 1 && w->channels % 16 == 0 && w->x_n % 16 == 0 &&
           (w->h == 1 || w->x_h % 16 == 0) && (w->w == 1 || w->x_w % 16 == 0);
}

static size_t take(size_t *used, int64_t bytes)
{
    size_t at = *used;
    *used += ((size_t)bytes + 15) / 16 * 16;
    return at;
}

/* Strides of words, and the workspace. */
static void lay_out(const struct tern_launch_maker *m, struct quantized *q)
{
    struct tern_params_quantized_product *p = &q->p;
    const int64_t deep = tern_quantize_deep(q->x.channels), slices = q->x.whole ? q->x.n : q->x.n * q->x.h * q->x.w;
    const int64_t pixel = q->x.groups * deep, filter = q->w.h * q->w.w * deep;
    p->channels = (int32_t)deep;
    p->x_c = p->w_c = 1;
    p->x_w = (int32_t)pixel;
    p->x_h = (int32_t)(q->x.w * pixel);
    p->x_n = (int32_t)(q->x.h * q->x.w * pixel);
    p->w_o = (int32_t)(q->in_place ? q->w.x_n : filter);
    p->w_h = (int32_t)(q->in_place ? q->w.x_h : q->w.w * deep);
    p->w_w = (int32_t)(q->in_place ? q->w.x_w : deep);
    q->x_room.factors = take(&q->workspace, slices * 4);
    q->x_room.mosts = take(&q->workspace, slices * tern_quantize_parts(m, &q->x) * 4);
    q->w_room.factors = take(&q->workspace, m->d->present[2] ? 0 : q->w.n * 4);
    q->x_room.words = take(&q->workspace, q->x.n * q->x.h * q->x.w * pixel);
    q->w_room.words = take(&q->workspace, q->in_place ? 0 : q->w.n * filter);
}

static void slot_at(struct tern_launch_maker *m, const char *name, const char *dtype, size_t size, size_t begin)
{
    tern_launch_slot(m, name, TERN_SLOT_WORKSPACE, dtype, size);
    m->l->params.head.offset[m->l->n_slots - 1] = (int32_t)(begin / size);
}

/* By matrix units where the device has them for int8, else with a dot product of words, or without. */
static void begin(struct tern_launch_maker *m, const struct tern_params_quantized_product *p, int64_t pixels, int64_t cols)
{
    struct tern_matrix_tile units;
    if (p->channels && tern_matrix_choose(m, TERN_I8, TERN_I8, pixels, cols, p->groups, &units) && tern_matrix_loads_whole(m, &units)) {
        tern_matrix_begin(m, "quantized_matrix", sizeof(*p), &units, pixels, cols, p->groups)->params.quantized_product = *p;
        return;
    }
    const struct tern_tile tile = tern_tile_choose(m, pixels, cols);
    tern_launch_begin(m, "quantized_product", sizeof(*p), tile.tn / tile.rn, tile.tm / tile.rm)->params.quantized_product = *p;
    if (p->kernel_h * p->kernel_w == 1 && p->stride_h == 1 && p->stride_w == 1 && p->padding_h == 0 && p->padding_w == 0)
        tern_launch_define(m, "FLAT 1");
    tern_launch_dot_product(m);
    tern_tile_define(m, &tile, pixels, cols, p->groups);
}

static void multiply(struct tern_launch_maker *m, const struct quantized *q)
{
    const struct tern_op_desc *d = m->d;
    const struct tern_params_quantized_product *p = &q->p;
    begin(m, p, (int64_t)p->batch * p->out_h * p->out_w, (int64_t)p->outputs * (q->gated ? 2 : 1));
    slot_at(m, "x", "I8X16", 1, q->x_room.words);
    slot_at(m, "factors", "F32", sizeof(float), q->x_room.factors);
    if (q->in_place && m->limits->vectors)
        tern_launch_slot(m, "w", 1, "I8X16", 1);
    else if (q->in_place)
        tern_launch_read(m, "w", 1);
    else
        slot_at(m, "w", "I8X16", 1, q->w_room.words);
    if (d->present[2])
        tern_launch_read(m, "scale", 2);
    else
        slot_at(m, "scale", "F32", sizeof(float), q->w_room.factors);
    if (d->present[3]) {
        tern_launch_read(m, "bias", 3);
        tern_launch_define(m, "BIAS 1");
    }
    if (m->l->matrix_subgroup)
        tern_conv_write_matrix(m, "y", TERN_SLOT_OUT);
    else
        tern_launch_write(m, "y", TERN_SLOT_OUT);
    if (!q->conv)
        tern_launch_define(m, "BY_ROW 1");
    if (q->gated)
        tern_launch_define(m, "GATED 1");
    tern_launch_posts(m, q->conv ? 1 : d->out.ndim - 1);
}

/* Sums fit 32 bits, also of a caller's weight, which may have -128, and so do places in the workspace. */
static bool fits(const struct quantized *q)
{
    const int64_t depth = q->w.h * q->w.w * tern_quantize_deep(q->w.channels);
    return depth <= INT32_MAX / (127 * 128) && (int64_t)q->workspace < TERN_LAUNCH_MAX_ELEMENTS;
}

bool tern_launch_quantized(struct tern_launch_maker *m)
{
    const struct tern_op_desc *d = m->d;
    struct quantized q = {.conv = d->op == TERN_OP_quantized_conv2d, .gated = d->op == TERN_OP_quantized_linear_geglu};
    if (!q.conv && !q.gated && d->op != TERN_OP_quantized_linear)
        return false;
    if (!tern_meta_numel(&d->out))
        return true;
    if (!(q.conv ? view_conv(d, &q) : view_linear(d, &q))) {
        m->failed = true;
        return true;
    }
    q.in_place = lies_in_words(m, &q.w);
    q.p.scale_n = d->present[2] ? (int32_t)d->in[2].stride[0] : 1;
    lay_out(m, &q);
    if (!fits(&q)) {
        m->failed = true;
        return true;
    }
    m->out->workspace = q.workspace;
    tern_quantize_input(m, &q.x, &q.x_room);
    if (!q.in_place)
        tern_quantize_weight(m, &q.w, &q.w_room);
    multiply(m, &q);
    return true;
}
