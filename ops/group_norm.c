/* group_norm [Wu 2018]: (x - mean) / sqrt(variance + eps) over groups of channels, scaled and shifted by channel. Variances are
 * those of the whole population. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum tern_status tern_shape_group_norm(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0];
    int64_t groups = d->attrs.group_norm.num_groups;
    char text[TERN_META_TEXT];
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (st)
        return st;
    if (x->ndim < 2)
        return tern_fail(ctx, TERN_E_SHAPE, "group_norm: x has %d dimensions: expected (N, C, ...), found %s", x->ndim,
                         tern_meta_text(x, text));
    if (groups < 1 || x->shape[1] % groups)
        return tern_fail(ctx, TERN_E_SHAPE, "group_norm: num_groups is %lld, x has %lld channels: expected a divisor of them, x is %s",
                         (long long)groups, (long long)x->shape[1], tern_meta_text(x, text));
    for (int i = 2; i < x->ndim; i++)
        if (x->shape[i] == 0)
            return tern_fail(ctx, TERN_E_SHAPE, "group_norm: dimension %d of x is empty: expected at least one element, found %s", i,
                             tern_meta_text(x, text));
    st = tern_rule_vector(ctx, d, 1, x->shape[1]);
    if (!st)
        st = tern_rule_vector(ctx, d, 2, x->shape[1]);
    return st ? st : tern_rule_out_like(ctx, d, x->dtype);
}

void tern_ref_group_norm(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0], *out = &d->out;
    int64_t groups = d->attrs.group_norm.num_groups, channels = x->shape[1] / groups, n = channels;
    int64_t shape[TERN_MAX_DIMS] = {channels}; /* of a group: (C / G, ...) */
    int ndim = x->ndim - 1;
    for (int i = 1; i < ndim; i++)
        n *= shape[i] = x->shape[i + 1];
    if (!n)
        return; /* no channels: num_groups may be any number then */
    for (int64_t r = 0; r < x->shape[0] * groups; r++) {
        int64_t first = r % groups * channels, from = r / groups * x->stride[0] + first * x->stride[1];
        int64_t to = r / groups * out->stride[0] + first * out->stride[1];
        double mean, variance;
        tern_moments(a, from, ndim, shape, x->stride + 1, n, true, &mean, &variance);
        double scale = 1 / sqrt(variance + d->attrs.group_norm.eps);
        for (int64_t j = 0; j < n; j++) {
            int64_t channel = first + j / (n / channels);
            double y = (tern_in(a, 0, from + tern_offset_of(j, ndim, shape, x->stride + 1)) - mean) * scale;
            if (d->present[1])
                y *= tern_in(a, 1, channel * d->in[1].stride[0]);
            if (d->present[2])
                y += tern_in(a, 2, channel * d->in[2].stride[0]);
            tern_out(a, to + tern_offset_of(j, ndim, shape, out->stride + 1), y);
        }
    }
}

tern_tensor *tern_group_norm(tern_tensor *x, int num_groups, tern_tensor *weight, tern_tensor *bias, double eps)
{
    const union tern_op_attrs attrs = {.group_norm = {.num_groups = num_groups, .eps = eps}};
    tern_tensor *const in[] = {x, weight, bias};
    return x ? tern_op_call(x->ctx, TERN_OP_group_norm, in, 3, &attrs) : NULL;
}
