/* conv2d: x (N, C, H, W) * weight (O, C / groups, kh, kw) + bias (O) -> (N, O, oh, ow). */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* Dtypes and dimensions of x and weight, which all convolutions share. */
enum tern_status tern_conv_inputs(struct tern_context *ctx, const struct tern_op_desc *d, enum tern_dtype_class weight, int64_t groups,
                                  const char *weight_shape)
{
    const struct tern_meta *x = &d->in[0];
    char text[TERN_META_TEXT];
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = tern_rule_dtype(ctx, d, 1, weight);
    if (!st)
        st = tern_rule_ndim(ctx, d, 0, 4, "(N, C, H, W)");
    if (!st)
        st = tern_rule_ndim(ctx, d, 1, 4, weight_shape);
    if (!st)
        st = tern_rule_range(ctx, d, "groups", groups, 1);
    if (!st && (!x->shape[2] || !x->shape[3]))
        st = tern_fail(ctx, TERN_E_SHAPE, "%s: x has no pixels: expected height and width of at least 1, found %s", tern_rule_op(d),
                       tern_meta_text(x, text));
    return st;
}

enum tern_status tern_rule_conv2d(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype_class weight, int bias)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    char text[TERN_META_TEXT];
    enum tern_status st = tern_conv_inputs(ctx, d, weight, p->groups, "(O, C / groups, kh, kw)");
    if (st)
        return st;
    /* not w.shape[1] * groups, which may overflow */
    if (x->shape[1] % p->groups || x->shape[1] / p->groups != w->shape[1])
        return tern_fail(ctx, TERN_E_SHAPE,
                         "%s: weight has %lld input channels, x has %lld with groups %lld: expected weight (O, %lld, kh, kw)%s, found %s",
                         tern_rule_op(d), (long long)w->shape[1], (long long)x->shape[1], (long long)p->groups,
                         (long long)(x->shape[1] / p->groups), x->shape[1] % p->groups ? " and groups that divide x's channels" : "",
                         tern_meta_text(w, text));
    if (!w->shape[0] || w->shape[0] % p->groups)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: weight has %lld output channels, groups is %lld: expected a multiple of it, found %s",
                         tern_rule_op(d), (long long)w->shape[0], (long long)p->groups, tern_meta_text(w, text));
    int64_t shape[4] = {x->shape[0], w->shape[0]};
    for (int i = 0; i < 2 && !st; i++)
        st = tern_rule_window(ctx, d,
                              &(struct tern_window){x->shape[2 + i], w->shape[2 + i], p->stride[i], p->padding[i], p->dilation[i], false},
                              &shape[2 + i]);
    if (!st)
        st = tern_rule_vector(ctx, d, bias, w->shape[0]);
    return st ? st : tern_rule_out(ctx, d, x->dtype, 4, shape);
}

enum tern_status tern_shape_conv2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    return tern_rule_conv2d(ctx, d, TERN_FLOAT_ONLY, 2);
}

/* The elements of x that meet a tap of the filter in result number `result`. */
static struct tern_row row_of(const struct tern_kernel_args *a, int64_t result, int64_t ky, int64_t kx)
{
    const struct tern_conv2d_attrs *p = &a->desc->attrs.conv2d;
    const struct tern_meta *x = &a->desc->in[0], *w = &a->desc->in[1], *out = &a->desc->out;
    const int64_t pixels = out->shape[3] * out->shape[2], sample = result / pixels / out->shape[1];
    const int64_t group = result / pixels % out->shape[1] / (w->shape[0] / p->groups);
    const int64_t iy = result / out->shape[3] % out->shape[2] * p->stride[0] - p->padding[0] + ky * p->dilation[0];
    const int64_t ix = result % out->shape[3] * p->stride[1] - p->padding[1] + kx * p->dilation[1];
    if (iy < 0 || iy >= x->shape[2] || ix < 0 || ix >= x->shape[3])
        return (struct tern_row){.n = 0};
    return (struct tern_row){.offset = sample * x->stride[0] + group * w->shape[1] * x->stride[1] + iy * x->stride[2] + ix * x->stride[3],
                             .step = x->stride[1],
                             .depth = (ky * w->shape[3] + kx) * w->shape[1],
                             .n = w->shape[1]};
}

int tern_convolve(const struct tern_kernel_args *a, int64_t first, tern_row_fn values, const void *arg, double sums[TERN_CONVOLVED])
{
    const struct tern_meta *w = &a->desc->in[1], *out = &a->desc->out;
    const int64_t pixels = out->shape[3] * out->shape[2], left = pixels - first % pixels;
    const int64_t filter = first / pixels % out->shape[1] * w->stride[0];
    const int n = left < TERN_CONVOLVED ? (int)left : TERN_CONVOLVED;
    struct tern_row x[TERN_CONVOLVED];
    memset(sums, 0, (size_t)n * sizeof(*sums));
    for (int64_t ky = 0; ky < w->shape[2]; ky++)
        for (int64_t kx = 0; kx < w->shape[3]; kx++) {
            const struct tern_row tap = {.input = 1,
                                         .offset = filter + ky * w->stride[2] + kx * w->stride[3],
                                         .step = w->stride[1],
                                         .depth = (ky * w->shape[3] + kx) * w->shape[1],
                                         .n = w->shape[1]};
            for (int i = 0; i < n; i++)
                x[i] = row_of(a, first + i, ky, kx);
            tern_dots(n, sums, x, tap, values, arg);
        }
    return n;
}

void tern_ref_conv2d(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *out = &d->out;
    const int64_t all = tern_meta_numel(out);
    double sums[TERN_CONVOLVED];
    for (int64_t p = 0, n; p < all; p += n) {
        const int64_t o = p / (out->shape[3] * out->shape[2]) % out->shape[1];
        const double bias = d->present[2] ? tern_in(a, 2, o * d->in[2].stride[0]) : 0;
        n = tern_convolve(a, p, tern_in_row, a, sums);
        for (int64_t i = 0; i < n; i++)
            tern_out(a, tern_meta_offset(out, p + i), sums[i] + bias);
    }
}

union tern_op_attrs tern_conv2d_attributes(const struct tern_conv2d_params *params)
{
    static const struct tern_conv2d_params defaults;
    params = params ? params : &defaults;
    union tern_op_attrs attrs = {.conv2d = {.groups = params->groups ? params->groups : 1}};
    struct tern_conv2d_attrs *p = &attrs.conv2d;
    for (int i = 0; i < 2; i++) {
        p->stride[i] = tern_either(params->stride, params->stride_hw[i], 1);
        p->padding[i] = tern_either(params->padding, params->padding_hw[i], 0);
        p->dilation[i] = tern_either(params->dilation, params->dilation_hw[i], 1);
    }
    return attrs;
}

tern_tensor *tern_conv2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, const struct tern_conv2d_params *params)
{
    union tern_op_attrs attrs = tern_conv2d_attributes(params);
    tern_tensor *const in[] = {x, weight, bias};
    return x && weight ? tern_op_call(x->ctx, TERN_OP_conv2d, in, 3, &attrs) : NULL;
}
