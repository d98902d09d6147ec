/* interpolate: pictures (N, C, H, W) in another size, nearest or bilinear, with PyTorch's rules of which pixel lies where. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/interpolate.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* The output size along direction i (0: height): the given one, or floor(in scale). */
static enum tern_status output_size(struct tern_context *ctx, struct tern_interpolate_attrs *p, int i, int64_t in, double scale)
{
    double size = floor((double)in * scale);
    if (!(scale >= 0) || size > INT32_MAX)
        return tern_fail(ctx, TERN_E_INVALID,
                         "interpolate: scale is %g, x has size %lld there: expected a positive factor whose result fits", scale,
                         (long long)in);
    if (scale > 0 && p->size[i] && p->size[i] != (int64_t)size)
        return tern_fail(ctx, TERN_E_INVALID, "interpolate: size %lld and scale %g: expected one of them", (long long)p->size[i], scale);
    if (scale > 0)
        p->size[i] = (int64_t)size;
    if (p->size[i] < 1 || p->size[i] > INT32_MAX)
        return tern_fail(ctx, TERN_E_INVALID, "interpolate: the output size is %lld: expected 1..%d; give size or a scale factor",
                         (long long)p->size[i], INT32_MAX);
    return TERN_OK;
}

enum tern_status tern_shape_interpolate(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_interpolate_attrs *p = &d->attrs.interpolate;
    const struct tern_meta *x = &d->in[0];
    char text[TERN_META_TEXT];
    if (p->mode != TERN_NEAREST && p->mode != TERN_BILINEAR)
        return tern_fail(ctx, TERN_E_INVALID, "interpolate: mode is %lld: expected 0 (nearest) or 1 (bilinear)", (long long)p->mode);
    if (p->align_corners && p->mode != TERN_BILINEAR)
        return tern_fail(ctx, TERN_E_INVALID, "interpolate: align_corners with mode nearest: expected mode bilinear");
    enum tern_status st = tern_rule_ndim(ctx, d, 0, 4, "(N, C, H, W)");
    if (!st && (p->mode == TERN_BILINEAR || x->dtype != TERN_U8))
        st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st && (!x->shape[1] || !x->shape[2] || !x->shape[3]))
        st = tern_fail(ctx, TERN_E_SHAPE, "interpolate: x is empty: expected at least one channel and one pixel, found %s",
                       tern_meta_text(x, text));
    if (!st)
        st = output_size(ctx, p, 0, x->shape[2], p->scale_h);
    if (!st)
        st = output_size(ctx, p, 1, x->shape[3], p->scale_w);
    return st ? st : tern_rule_out(ctx, d, x->dtype, 4, (int64_t[]){x->shape[0], x->shape[1], p->size[0], p->size[1]});
}

/* The two neighbours of an output position and the second one's weight. */
static void linear(int64_t o, int64_t in, int64_t out, double scale, bool align_corners, int64_t neighbours[2], double *weight)
{
    double at;
    if (out == in) { /* even if the scale is not 1 */
        at = (double)o;
    } else if (align_corners) {
        at = out > 1 ? (double)o * ((double)(in - 1) / (double)(out - 1)) : 0;
    } else {
        double step = scale > 0 ? 1 / scale : (double)in / (double)out;
        at = step * ((double)o + 0.5) - 0.5;
        at = at < 0 ? 0 : at;
    }
    neighbours[0] = (int64_t)at < in - 1 ? (int64_t)at : in - 1;
    neighbours[1] = neighbours[0] < in - 1 ? neighbours[0] + 1 : neighbours[0];
    *weight = at - (double)neighbours[0] < 1 ? at - (double)neighbours[0] : 1;
}

static double bilinear(const struct tern_kernel_args *a, int64_t x0, int64_t oy, int64_t ox)
{
    const struct tern_interpolate_attrs *p = &a->desc->attrs.interpolate;
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    int64_t ys[2], xs[2];
    double wy, wx, rows[2];
    linear(oy, x->shape[2], out->shape[2], p->scale_h, p->align_corners, ys, &wy);
    linear(ox, x->shape[3], out->shape[3], p->scale_w, p->align_corners, xs, &wx);
    for (int i = 0; i < 2; i++) {
        int64_t row = x0 + ys[i] * x->stride[2];
        rows[i] = tern_in(a, 0, row + xs[0] * x->stride[3]) * (1 - wx) + tern_in(a, 0, row + xs[1] * x->stride[3]) * wx;
    }
    return rows[0] * (1 - wy) + rows[1] * wy;
}

void tern_ref_interpolate(const struct tern_kernel_args *a)
{
    const struct tern_interpolate_attrs *p = &a->desc->attrs.interpolate;
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    int64_t n = tern_meta_numel(out);
    for (int64_t i = 0; i < n; i++) {
        int64_t ox = i % out->shape[3], oy = i / out->shape[3] % out->shape[2], plane = i / (out->shape[3] * out->shape[2]);
        int64_t x0 = plane / x->shape[1] * x->stride[0] + plane % x->shape[1] * x->stride[1], to = tern_meta_offset(out, i);
        if (p->mode == TERN_BILINEAR) {
            tern_out(a, to, bilinear(a, x0, oy, ox));
            continue;
        }
        int64_t iy = tern_nearest(oy, x->shape[2], out->shape[2], p->scale_h),
                ix = tern_nearest(ox, x->shape[3], out->shape[3], p->scale_w);
        tern_copy_element(tern_dtype_size(x->dtype), tern_arg_host(&a->out), to, tern_arg_host(&a->in[0]),
                          x0 + iy * x->stride[2] + ix * x->stride[3]);
    }
}

tern_tensor *tern_interpolate_p(tern_tensor *x, const struct tern_interpolate_params *params)
{
    static const struct tern_interpolate_params defaults;
    params = params ? params : &defaults;
    double both = params->scale_factor;
    const union tern_op_attrs attrs = {.interpolate = {.size = {params->size[0], params->size[1]},
                                                       .mode = params->mode,
                                                       .align_corners = params->align_corners,
                                                       .scale_h = both != 0 ? both : params->scale_factor_hw[0],
                                                       .scale_w = both != 0 ? both : params->scale_factor_hw[1]}};
    return tern_call_unary(TERN_OP_interpolate, x, &attrs);
}
