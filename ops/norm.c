/* layer_norm [Ba 2016] and rms_norm [Zhang 2019] over the last dimensions: (x - mean) / sqrt(variance + eps), scaled and
 * shifted. Variances are those of the whole population. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* weight and bias have the sizes of x's last n dimensions */
static enum tern_status shape_last(struct tern_context *ctx, struct tern_op_desc *d, int64_t n)
{
    const struct tern_meta *x = &d->in[0];
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st && (n < 1 || n > x->ndim))
        st = tern_fail(ctx, TERN_E_INVALID, "%s: normalized_ndim is %lld: expected 1..%d, the dimensions of x", tern_rule_op(d),
                       (long long)n, x->ndim);
    for (int i = 1; i < d->n_in && !st; i++) {
        char name[32], a[TERN_META_TEXT], b[TERN_META_TEXT];
        if (!d->present[i])
            continue;
        struct tern_meta expected = tern_meta_make(d->in[i].dtype, (int)n, x->shape + x->ndim - n);
        if (!tern_meta_same_shape(&d->in[i], &expected))
            return tern_fail(ctx, TERN_E_SHAPE, "%s: %s does not fit the last %lld dimensions of x: expected %s, found %s", tern_rule_op(d),
                             tern_rule_input(d, i, name), (long long)n, tern_meta_text(&expected, a), tern_meta_text(&d->in[i], b));
        st = tern_rule_dtype(ctx, d, i, TERN_FLOAT_ONLY);
    }
    return st ? st : tern_rule_out_like(ctx, d, x->dtype);
}

enum tern_status tern_shape_layer_norm(struct tern_context *ctx, struct tern_op_desc *d)
{
    return shape_last(ctx, d, d->attrs.layer_norm.normalized_ndim);
}

enum tern_status tern_shape_rms_norm(struct tern_context *ctx, struct tern_op_desc *d)
{
    return shape_last(ctx, d, d->attrs.rms_norm.normalized_ndim);
}

static void normalize_last(const struct tern_kernel_args *a, int inner_ndim, bool centred, double eps)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0], *out = &d->out;
    int outer_ndim = x->ndim - inner_ndim;
    const int64_t *shape = x->shape + outer_ndim, *stride = x->stride + outer_ndim, *out_stride = out->stride + outer_ndim;
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < x->ndim; i++)
        *(i < outer_ndim ? &outer : &inner) *= x->shape[i];
    for (int64_t r = 0; r < outer && inner; r++) {
        int64_t from = tern_offset_of(r, outer_ndim, x->shape, x->stride), to = tern_offset_of(r, outer_ndim, x->shape, out->stride);
        double mean, square;
        tern_moments(a, from, inner_ndim, shape, stride, inner, centred, &mean, &square);
        double scale = 1 / sqrt(square + eps);
        for (int64_t j = 0; j < inner; j++) {
            double y = (tern_in(a, 0, from + tern_offset_of(j, inner_ndim, shape, stride)) - mean) * scale;
            if (d->present[1])
                y *= tern_in(a, 1, tern_meta_offset(&d->in[1], j));
            if (d->present[2])
                y += tern_in(a, 2, tern_meta_offset(&d->in[2], j));
            tern_out(a, to + tern_offset_of(j, inner_ndim, shape, out_stride), y);
        }
    }
}

void tern_ref_layer_norm(const struct tern_kernel_args *a)
{
    normalize_last(a, (int)a->desc->attrs.layer_norm.normalized_ndim, true, a->desc->attrs.layer_norm.eps);
}

void tern_ref_rms_norm(const struct tern_kernel_args *a)
{
    normalize_last(a, (int)a->desc->attrs.rms_norm.normalized_ndim, false, a->desc->attrs.rms_norm.eps);
}

tern_tensor *tern_layer_norm(tern_tensor *x, int normalized_ndim, tern_tensor *weight, tern_tensor *bias, double eps)
{
    const union tern_op_attrs attrs = {.layer_norm = {.normalized_ndim = normalized_ndim, .eps = eps}};
    tern_tensor *const in[] = {x, weight, bias};
    return x ? tern_op_call(x->ctx, TERN_OP_layer_norm, in, 3, &attrs) : NULL;
}

tern_tensor *tern_rms_norm(tern_tensor *x, int normalized_ndim, tern_tensor *weight, double eps)
{
    const union tern_op_attrs attrs = {.rms_norm = {.normalized_ndim = normalized_ndim, .eps = eps}};
    tern_tensor *const in[] = {x, weight};
    return x ? tern_op_call(x->ctx, TERN_OP_rms_norm, in, 2, &attrs) : NULL;
}
