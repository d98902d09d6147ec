/* Launches of interpolate and of pooling. */
#include <tern/ops.h>

#include "ops/kernels/launch_internal.h"

static void begin(struct tern_launch_maker *m, const char *text, size_t params_size)
{
    int items = m->limits->max_group < 256 ? m->limits->max_group : 256;
    tern_launch_begin(m, text, params_size, items, 1);
    tern_launch_read(m, "x", 0);
    tern_launch_write(m, "y", TERN_SLOT_OUT);
    tern_launch_items(m, tern_meta_numel(&m->d->out), items);
}

/* The step of an output pixel in input pixels, as ops/interpolate.c has it for each mode. */
static float step_of(const struct tern_interpolate_attrs *a, int64_t in, int64_t out, double scale)
{
    if (a->mode != TERN_BILINEAR)
        return scale > 0 ? (float)(1.0 / scale) : (float)in / (float)out;
    if (a->align_corners)
        return out > 1 ? (float)((double)(in - 1) / (double)(out - 1)) : 0;
    return (float)(scale > 0 ? 1 / scale : (double)in / (double)out);
}

static void interpolate(struct tern_launch_maker *m)
{
    const struct tern_interpolate_attrs *a = &m->d->attrs.interpolate;
    const struct tern_meta *x = &m->d->in[0], *y = &m->d->out;
    begin(m, "interpolate", sizeof(m->l->params.interpolate));
    struct tern_params_interpolate *p = &m->l->params.interpolate;
    *p = (struct tern_params_interpolate){.batch = (int32_t)x->shape[0],
                                          .channels = (int32_t)x->shape[1],
                                          .in_h = (int32_t)x->shape[2],
                                          .in_w = (int32_t)x->shape[3],
                                          .out_h = (int32_t)y->shape[2],
                                          .out_w = (int32_t)y->shape[3],
                                          .x_n = (int32_t)x->stride[0],
                                          .x_c = (int32_t)x->stride[1],
                                          .x_h = (int32_t)x->stride[2],
                                          .x_w = (int32_t)x->stride[3],
                                          .y_n = (int32_t)y->stride[0],
                                          .y_c = (int32_t)y->stride[1],
                                          .y_h = (int32_t)y->stride[2],
                                          .y_w = (int32_t)y->stride[3],
                                          .same_h = x->shape[2] == y->shape[2],
                                          .same_w = x->shape[3] == y->shape[3],
                                          .twice_h = 2 * x->shape[2] == y->shape[2],
                                          .twice_w = 2 * x->shape[3] == y->shape[3],
                                          .align = a->align_corners != 0,
                                          .step_h = step_of(a, x->shape[2], y->shape[2], a->scale_h),
                                          .step_w = step_of(a, x->shape[3], y->shape[3], a->scale_w)};
    tern_launch_define(m, "%s 1", a->mode == TERN_BILINEAR ? "BILINEAR" : "NEAREST");
    if (y->stride[1] == 1)
        tern_launch_define(m, "CHANNELS_LAST 1");
    tern_launch_posts(m, 1);
}

static void pool(struct tern_launch_maker *m, bool averages)
{
    const struct tern_avg_pool2d_attrs *a = &m->d->attrs.avg_pool2d; /* max_pool2d's begin alike */
    const int64_t *dilation = m->d->attrs.max_pool2d.dilation;
    const struct tern_meta *x = &m->d->in[0], *y = &m->d->out;
    bool integer = !tern_dtype_is_float(x->dtype);
    for (int i = 0; i < 2; i++) {
        int64_t reach = (y->shape[2 + i] + 1) * a->stride[i] + a->kernel_size[i] * (averages ? 1 : dilation[i]) + a->padding[i];
        m->failed = m->failed || reach >= TERN_LAUNCH_MAX_ELEMENTS;
    }
    if (averages && a->kernel_size[0] * a->kernel_size[1] >= TERN_LAUNCH_MAX_ELEMENTS)
        m->failed = true;
    if (m->failed || x->dtype == TERN_I64 || (integer && m->d->n_post)) {
        m->failed = true;
        return;
    }
    begin(m, "pool2d", sizeof(m->l->params.pool2d));
    struct tern_params_pool2d *p = &m->l->params.pool2d;
    *p = (struct tern_params_pool2d){.batch = (int32_t)x->shape[0],
                                     .channels = (int32_t)x->shape[1],
                                     .in_h = (int32_t)x->shape[2],
                                     .in_w = (int32_t)x->shape[3],
                                     .out_h = (int32_t)y->shape[2],
                                     .out_w = (int32_t)y->shape[3],
                                     .kernel_h = (int32_t)a->kernel_size[0],
                                     .kernel_w = (int32_t)a->kernel_size[1],
                                     .stride_h = (int32_t)a->stride[0],
                                     .stride_w = (int32_t)a->stride[1],
                                     .padding_h = (int32_t)a->padding[0],
                                     .padding_w = (int32_t)a->padding[1],
                                     .dilation_h = averages ? 1 : (int32_t)dilation[0],
                                     .dilation_w = averages ? 1 : (int32_t)dilation[1],
                                     .x_n = (int32_t)x->stride[0],
                                     .x_c = (int32_t)x->stride[1],
                                     .x_h = (int32_t)x->stride[2],
                                     .x_w = (int32_t)x->stride[3],
                                     .y_n = (int32_t)y->stride[0],
                                     .y_c = (int32_t)y->stride[1],
                                     .y_h = (int32_t)y->stride[2],
                                     .y_w = (int32_t)y->stride[3],
                                     .include_pad = averages && a->count_include_pad,
                                     .least = x->dtype == TERN_U8   ? 0
                                              : x->dtype == TERN_I8 ? INT8_MIN
                                                                    : INT32_MIN};
    tern_launch_define(m, "%s 1", averages ? "AVERAGE" : "MAXIMUM");
    if (integer)
        tern_launch_define(m, "INTEGER 1");
    tern_launch_posts(m, 1);
}

bool tern_launch_picture(struct tern_launch_maker *m)
{
    bool averages = m->d->op == TERN_OP_avg_pool2d;
    if (m->d->op != TERN_OP_interpolate && m->d->op != TERN_OP_max_pool2d && !averages)
        return false;
    if (!tern_meta_numel(&m->d->out))
        return true;
    if (m->d->op == TERN_OP_interpolate)
        interpolate(m);
    else
        pool(m, averages);
    return true;
}
