/* quantize_scale and quantize: int8 by slices along the first dimension, which are output channels of a weight. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/quantize.h"
#include "ops/reference.h"
#include "ops/rules.h"

#define MOST 127 /* -128 has no counterpart */

static enum tern_status has_slices(struct tern_context *ctx, const struct tern_op_desc *d)
{
    char text[TERN_META_TEXT];
    if (d->in[0].ndim)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_SHAPE, "%s: x is a scalar: expected (N, ...), found %s", tern_rule_op(d), tern_meta_text(&d->in[0], text));
}

enum tern_status tern_shape_quantize_scale(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = has_slices(ctx, d);
    return st ? st : tern_rule_out(ctx, d, TERN_F32, 1, d->in[0].shape);
}

enum tern_status tern_shape_quantize(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = has_slices(ctx, d);
    if (!st)
        st = tern_rule_vector(ctx, d, 1, d->in[0].shape[0]);
    return st ? st : tern_rule_out_like(ctx, d, TERN_I8);
}

/* Elements of a slice. */
static int64_t length(const struct tern_meta *x)
{
    int64_t n = 1;
    for (int i = 1; i < x->ndim; i++)
        n *= x->shape[i];
    return n;
}

float tern_quantize_scale_of(const struct tern_kernel_args *a, int input, int64_t i)
{
    const struct tern_meta *x = &a->desc->in[input];
    const int64_t n = length(x);
    float most = 0;
    for (int64_t k = 0; k < n && !isnan(most); k++) {
        float v = (float)fabs(tern_in(a, input, tern_meta_offset(x, i * n + k)));
        most = v <= most ? most : v; /* NaN counts */
    }
    return most / MOST;
}

double tern_quantize_value(float x, float scale)
{
    float q = scale > 0 ? fminf(fmaxf(rintf(x / scale), -MOST), MOST) : 0;
    return isnan(x / scale) ? 0 : (double)q;
}

struct tern_quantize_factors tern_quantize_factors_of(float most)
{
    float in = MOST / most;
    if (!isfinite(most))
        return (struct tern_quantize_factors){0, NAN};
    return isfinite(in) ? (struct tern_quantize_factors){in, most / MOST} : (struct tern_quantize_factors){0, 0};
}

void tern_ref_quantize_scale(const struct tern_kernel_args *a)
{
    for (int64_t i = 0; i < a->desc->in[0].shape[0]; i++)
        tern_out(a, i * a->desc->out.stride[0], (double)tern_quantize_scale_of(a, 0, i));
}

void tern_ref_quantize(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const int64_t n = length(&d->in[0]), all = tern_meta_numel(&d->in[0]);
    for (int64_t p = 0; p < all; p++) {
        float scale = (float)tern_in(a, 1, p / n * d->in[1].stride[0]), x = (float)tern_in(a, 0, tern_meta_offset(&d->in[0], p));
        tern_out(a, tern_meta_offset(&d->out, p), tern_quantize_value(x, scale));
    }
}

tern_tensor *tern_quantize_scale(tern_tensor *x)
{
    static const union tern_op_attrs none;
    return tern_call_unary(TERN_OP_quantize_scale, x, &none);
}

tern_tensor *tern_quantize(tern_tensor *x, tern_tensor *scale)
{
    static const union tern_op_attrs none;
    tern_tensor *const in[] = {x, scale};
    return x && scale ? tern_op_call(x->ctx, TERN_OP_quantize, in, 2, &none) : NULL;
}
