/* avg_pool2d and max_pool2d: x (N, C, H, W) -> (N, C, oh, ow). */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* Both have the first three attributes. */
struct window_attrs {
    const int64_t *kernel, *stride, *padding, *dilation;
    bool ceil_mode;
};

static const int64_t no_dilation[2] = {1, 1};

static struct window_attrs average(const struct tern_op_desc *d)
{
    const struct tern_avg_pool2d_attrs *p = &d->attrs.avg_pool2d;
    return (struct window_attrs){p->kernel_size, p->stride, p->padding, no_dilation, p->ceil_mode != 0};
}

static struct window_attrs maximum(const struct tern_op_desc *d)
{
    const struct tern_max_pool2d_attrs *p = &d->attrs.max_pool2d;
    return (struct window_attrs){p->kernel_size, p->stride, p->padding, p->dilation, p->ceil_mode != 0};
}

static enum tern_status shape(struct tern_context *ctx, struct tern_op_desc *d, struct window_attrs p)
{
    const struct tern_meta *x = &d->in[0];
    char text[TERN_META_TEXT];
    enum tern_status st = tern_rule_ndim(ctx, d, 0, 4, "(N, C, H, W)");
    if (st)
        return st;
    if (!x->shape[1] || !x->shape[2] || !x->shape[3])
        return tern_fail(ctx, TERN_E_SHAPE, "%s: x is empty: expected at least one channel and one pixel, found %s", tern_rule_op(d),
                         tern_meta_text(x, text));
    int64_t sizes[4] = {x->shape[0], x->shape[1]};
    for (int i = 0; i < 2; i++) {
        st = tern_rule_window(ctx, d,
                              &(struct tern_window){x->shape[2 + i], p.kernel[i], p.stride[i], p.padding[i], p.dilation[i], p.ceil_mode},
                              &sizes[2 + i]);
        if (!st && p.padding[i] > p.kernel[i] / 2)
            st = tern_fail(ctx, TERN_E_INVALID, "%s: padding is %lld, kernel_size %lld: expected at most half of kernel_size",
                           tern_rule_op(d), (long long)p.padding[i], (long long)p.kernel[i]);
        if (st)
            return st;
    }
    return tern_rule_out(ctx, d, x->dtype, 4, sizes);
}

enum tern_status tern_shape_avg_pool2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    return st ? st : shape(ctx, d, average(d));
}

enum tern_status tern_shape_max_pool2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_NO_BOOL);
    return st ? st : shape(ctx, d, maximum(d));
}

/* Where the window of output position o begins, and where it ends by the padded input, along direction i. */
static void bounds(const struct window_attrs *p, int i, int64_t o, int64_t in, int64_t *begin, int64_t *end)
{
    *begin = o * p->stride[i] - p->padding[i];
    *end = *begin + p->kernel[i];
    *end = *end > in + p->padding[i] ? in + p->padding[i] : *end;
}

static int64_t clip(int64_t v, int64_t size) { return v < 0 ? 0 : v > size ? size : v; }

/* The divisor counts the window's part inside the padded input, or inside the input only. */
static double average_at(const struct tern_kernel_args *a, const struct window_attrs *p, int64_t x0, int64_t oy, int64_t ox)
{
    const struct tern_meta *x = &a->desc->in[0];
    int64_t y0, y1, x_begin, x_end;
    bounds(p, 0, oy, x->shape[2], &y0, &y1);
    bounds(p, 1, ox, x->shape[3], &x_begin, &x_end);
    int64_t divisor = (y1 - y0) * (x_end - x_begin);
    y0 = clip(y0, x->shape[2]);
    y1 = clip(y1, x->shape[2]);
    x_begin = clip(x_begin, x->shape[3]);
    x_end = clip(x_end, x->shape[3]);
    if (y0 >= y1 || x_begin >= x_end)
        return 0;
    if (!a->desc->attrs.avg_pool2d.count_include_pad)
        divisor = (y1 - y0) * (x_end - x_begin);
    double sum = 0;
    for (int64_t iy = y0; iy < y1; iy++)
        for (int64_t ix = x_begin; ix < x_end; ix++)
            sum += tern_in(a, 0, x0 + iy * x->stride[2] + ix * x->stride[3]);
    return sum / (double)divisor;
}

/* Offset of the largest element under the window; NaN wins. -1 when the window meets no element. */
static int64_t largest_at(const struct tern_kernel_args *a, const struct window_attrs *p, int64_t x0, int64_t oy, int64_t ox)
{
    const struct tern_meta *x = &a->desc->in[0];
    const void *src = tern_arg_host(&a->in[0]);
    int64_t best = -1;
    for (int64_t ky = 0; ky < p->kernel[0]; ky++) {
        int64_t iy = oy * p->stride[0] - p->padding[0] + ky * p->dilation[0];
        for (int64_t kx = 0; kx < p->kernel[1] && iy >= 0 && iy < x->shape[2]; kx++) {
            int64_t ix = ox * p->stride[1] - p->padding[1] + kx * p->dilation[1], at = x0 + iy * x->stride[2] + ix * x->stride[3];
            if (ix < 0 || ix >= x->shape[3])
                continue;
            bool greater = best < 0;
            if (!greater && tern_dtype_is_float(x->dtype)) {
                double v = tern_load(x->dtype, src, at);
                greater = v > tern_load(x->dtype, src, best) || v != v;
            } else if (!greater) {
                greater = tern_load_i64(x->dtype, src, at) > tern_load_i64(x->dtype, src, best);
            }
            best = greater ? at : best;
        }
    }
    return best;
}

/* The largest of no elements: the dtype's least value. */
static void store_least(const struct tern_kernel_args *a, int64_t to)
{
    enum tern_dtype dtype = a->desc->out.dtype;
    if (tern_dtype_is_float(dtype))
        tern_out(a, to, -INFINITY);
    else
        tern_store_i64(dtype, tern_arg_host(&a->out), to, dtype == TERN_U8 ? 0 : (int64_t)(UINT64_MAX << (8 * tern_dtype_size(dtype) - 1)));
}

static void run(const struct tern_kernel_args *a, struct window_attrs p, bool averages)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    int64_t n = tern_meta_numel(out);
    for (int64_t i = 0; i < n; i++) {
        int64_t ox = i % out->shape[3], oy = i / out->shape[3] % out->shape[2], plane = i / (out->shape[3] * out->shape[2]);
        int64_t x0 = plane / x->shape[1] * x->stride[0] + plane % x->shape[1] * x->stride[1], to = tern_meta_offset(out, i);
        int64_t from = averages ? -1 : largest_at(a, &p, x0, oy, ox);
        if (averages)
            tern_out(a, to, average_at(a, &p, x0, oy, ox));
        else if (from >= 0)
            tern_copy_element(tern_dtype_size(x->dtype), tern_arg_host(&a->out), to, tern_arg_host(&a->in[0]), from);
        else
            store_least(a, to);
    }
}

void tern_ref_avg_pool2d(const struct tern_kernel_args *a) { run(a, average(a->desc), true); }
void tern_ref_max_pool2d(const struct tern_kernel_args *a) { run(a, maximum(a->desc), false); }

tern_tensor *tern_avg_pool2d_p(tern_tensor *x, const struct tern_pool2d_params *params)
{
    static const struct tern_pool2d_params defaults;
    params = params ? params : &defaults;
    union tern_op_attrs attrs = {.avg_pool2d = {.ceil_mode = params->ceil_mode, .count_include_pad = !params->exclude_pad}};
    struct tern_avg_pool2d_attrs *p = &attrs.avg_pool2d;
    for (int i = 0; i < 2; i++) {
        p->kernel_size[i] = tern_either(params->kernel_size, params->kernel_size_hw[i], 0);
        p->stride[i] = tern_either(params->stride, params->stride_hw[i], p->kernel_size[i]);
        p->padding[i] = tern_either(params->padding, params->padding_hw[i], 0);
    }
    return tern_call_unary(TERN_OP_avg_pool2d, x, &attrs);
}

tern_tensor *tern_max_pool2d_p(tern_tensor *x, const struct tern_pool2d_params *params)
{
    static const struct tern_pool2d_params defaults;
    params = params ? params : &defaults;
    union tern_op_attrs attrs = {.max_pool2d = {.ceil_mode = params->ceil_mode}};
    struct tern_max_pool2d_attrs *p = &attrs.max_pool2d;
    for (int i = 0; i < 2; i++) {
        p->kernel_size[i] = tern_either(params->kernel_size, params->kernel_size_hw[i], 0);
        p->stride[i] = tern_either(params->stride, params->stride_hw[i], p->kernel_size[i]);
        p->padding[i] = tern_either(params->padding, params->padding_hw[i], 0);
        p->dilation[i] = tern_either(params->dilation, params->dilation_hw[i], 1);
    }
    return tern_call_unary(TERN_OP_max_pool2d, x, &attrs);
}
