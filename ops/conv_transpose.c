/* conv_transpose2d: x (N, C, H, W) with weight (C, O / groups, kh, kw) -> (N, O, oh, ow), the gradient of a conv2d. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 along direction i (0: height) */
static enum tern_status size(struct tern_context *ctx, const struct tern_op_desc *d, int i, int64_t *out)
{
    const struct tern_conv_transpose2d_attrs *p = &d->attrs.conv_transpose2d;
    int64_t in = d->in[0].shape[2 + i], kernel = d->in[1].shape[2 + i], extra = p->output_padding[i];
    enum tern_status st = tern_rule_range(ctx, d, "kernel size", kernel, 1);
    if (!st)
        st = tern_rule_range(ctx, d, "stride", p->stride[i], 1);
    if (!st)
        st = tern_rule_range(ctx, d, "padding", p->padding[i], 0);
    if (!st)
        st = tern_rule_range(ctx, d, "dilation", p->dilation[i], 1);
    if (!st)
        st = tern_rule_range(ctx, d, "output_padding", extra, 0);
    if (!st && extra >= p->stride[i] && extra >= p->dilation[i])
        st = tern_fail(ctx, TERN_E_INVALID, "conv_transpose2d: output_padding is %lld: expected less than stride %lld or dilation %lld",
                       (long long)extra, (long long)p->stride[i], (long long)p->dilation[i]);
    if (st)
        return st;
    if (__builtin_mul_overflow(in - 1, p->stride[i], out) || *out > INT64_MAX / 4)
        return tern_fail(ctx, TERN_E_SHAPE, "conv_transpose2d: input size %lld with stride %lld: expected a product that fits",
                         (long long)in, (long long)p->stride[i]);
    *out += p->dilation[i] * (kernel - 1) + extra + 1 - 2 * p->padding[i];
    if (*out < 1)
        return tern_fail(ctx, TERN_E_SHAPE,
                         "conv_transpose2d: the output size would be %lld: expected at least 1; padding %lld is too large", (long long)*out,
                         (long long)p->padding[i]);
    return TERN_OK;
}

enum tern_status tern_shape_conv_transpose2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    int64_t groups = d->attrs.conv_transpose2d.groups;
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    char text[TERN_META_TEXT];
    enum tern_status st = tern_conv_inputs(ctx, d, TERN_FLOAT_ONLY, groups, "(C, O / groups, kh, kw)");
    if (st)
        return st;
    if (w->shape[0] != x->shape[1] || w->shape[0] % groups)
        return tern_fail(ctx, TERN_E_SHAPE,
                         "conv_transpose2d: weight has %lld input channels, x has %lld with groups %lld: expected weight "
                         "(%lld, O / groups, kh, kw)%s, found %s",
                         (long long)w->shape[0], (long long)x->shape[1], (long long)groups, (long long)x->shape[1],
                         x->shape[1] % groups ? " and groups that divide x's channels" : "", tern_meta_text(w, text));
    int64_t shape[4] = {x->shape[0]};
    if (!w->shape[1] || __builtin_mul_overflow(w->shape[1], groups, &shape[1]))
        return tern_fail(ctx, TERN_E_SHAPE,
                         "conv_transpose2d: %lld output channels a group: expected at least 1 and a product with groups "
                         "that fits, found %s",
                         (long long)w->shape[1], tern_meta_text(w, text));
    for (int i = 0; i < 2 && !st; i++)
        st = size(ctx, d, i, &shape[2 + i]);
    if (!st)
        st = tern_rule_vector(ctx, d, 2, shape[1]);
    return st ? st : tern_rule_out(ctx, d, x->dtype, 4, shape);
}

/* The input position that kernel position k carries to output position o; -1 when there is none. */
static int64_t source(const struct tern_conv_transpose2d_attrs *p, int i, int64_t o, int64_t k, int64_t in)
{
    int64_t at = o + p->padding[i] - k * p->dilation[i];
    return at >= 0 && at % p->stride[i] == 0 && at / p->stride[i] < in ? at / p->stride[i] : -1;
}

/* One output value before the bias. x0: first element of the sample's group; w0: of the group's filters for this output channel. */
static double gather(const struct tern_kernel_args *a, int64_t x0, int64_t w0, int64_t oy, int64_t ox)
{
    const struct tern_conv_transpose2d_attrs *p = &a->desc->attrs.conv_transpose2d;
    const struct tern_meta *x = &a->desc->in[0], *w = &a->desc->in[1];
    int64_t channels = x->shape[1] / p->groups;
    double sum = 0;
    for (int64_t ky = 0; ky < w->shape[2]; ky++) {
        int64_t iy = source(p, 0, oy, ky, x->shape[2]);
        for (int64_t kx = 0; kx < w->shape[3] && iy >= 0; kx++) {
            int64_t ix = source(p, 1, ox, kx, x->shape[3]);
            int64_t from = x0 + iy * x->stride[2] + ix * x->stride[3], at = w0 + ky * w->stride[2] + kx * w->stride[3];
            for (int64_t c = 0; c < channels && ix >= 0; c++)
                sum += tern_in(a, 0, from + c * x->stride[1]) * tern_in(a, 1, at + c * w->stride[0]);
        }
    }
    return sum;
}

void tern_ref_conv_transpose2d(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0], *w = &d->in[1], *out = &d->out;
    int64_t channels = x->shape[1] / d->attrs.conv_transpose2d.groups, n = tern_meta_numel(out);
    for (int64_t p = 0; p < n; p++) {
        int64_t ox = p % out->shape[3], oy = p / out->shape[3] % out->shape[2];
        int64_t o = p / (out->shape[3] * out->shape[2]) % out->shape[1], sample = p / (out->shape[3] * out->shape[2] * out->shape[1]);
        int64_t first = o / w->shape[1] * channels; /* input channel of the group */
        int64_t x0 = sample * x->stride[0] + first * x->stride[1], w0 = first * w->stride[0] + o % w->shape[1] * w->stride[1];
        double bias = d->present[2] ? tern_in(a, 2, o * d->in[2].stride[0]) : 0;
        tern_out(a, tern_meta_offset(out, p), gather(a, x0, w0, oy, ox) + bias);
    }
}

tern_tensor *tern_conv_transpose2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *bias,
                                     const struct tern_conv_transpose2d_params *params)
{
    static const struct tern_conv_transpose2d_params defaults;
    params = params ? params : &defaults;
    union tern_op_attrs attrs = {.conv_transpose2d = {.groups = params->groups ? params->groups : 1}};
    struct tern_conv_transpose2d_attrs *p = &attrs.conv_transpose2d;
    for (int i = 0; i < 2; i++) {
        p->stride[i] = tern_either(params->stride, params->stride_hw[i], 1);
        p->padding[i] = tern_either(params->padding, params->padding_hw[i], 0);
        p->output_padding[i] = tern_either(params->output_padding, params->output_padding_hw[i], 0);
        p->dilation[i] = tern_either(params->dilation, params->dilation_hw[i], 1);
    }
    tern_tensor *const in[] = {x, weight, bias};
    return x && weight ? tern_op_call(x->ctx, TERN_OP_conv_transpose2d, in, 3, &attrs) : NULL;
}
