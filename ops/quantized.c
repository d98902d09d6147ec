/* Products of int8: weights are quantised by output channel beforehand, what comes in as it comes: q = round(x (127 / most)), where most
 * is the largest |x| of a row of a linear layer, or of a picture of a convolution. The sum of the products of int8 is exact; the result is
 * sum x (most / 127) x scale + bias. Scales are computed in f32. Where a value is no number, or infinite, nothing that it is part of is a
 * number. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

#define MOST 127

_Static_assert(sizeof(struct tern_quantized_conv2d_attrs) == sizeof(struct tern_conv2d_attrs), "quantized_conv2d has conv2d's attributes");

static enum tern_status check_scale(struct tern_context *ctx, const struct tern_op_desc *d, enum tern_status st)
{
    return st ? st : tern_rule_vector(ctx, d, 2, d->in[1].shape[0]);
}

enum tern_status tern_shape_quantized_linear(struct tern_context *ctx, struct tern_op_desc *d)
{
    return check_scale(ctx, d, tern_rule_linear(ctx, d, TERN_I8_ONLY, 3, 1));
}

enum tern_status tern_shape_quantized_linear_geglu(struct tern_context *ctx, struct tern_op_desc *d)
{
    return check_scale(ctx, d, tern_rule_linear(ctx, d, TERN_I8_ONLY, 3, 2));
}

enum tern_status tern_shape_quantized_conv2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    return check_scale(ctx, d, tern_rule_conv2d(ctx, d, TERN_I8_ONLY, 3));
}

/* ---- references */

/* What the values of a row or picture are multiplied with, and what their products are. */
struct factors {
    float in, out;
};

static struct factors factors_of(float most)
{
    float in = MOST / most;
    if (!isfinite(most))
        return (struct factors){0, NAN};
    return isfinite(in) ? (struct factors){in, most / MOST} : (struct factors){0, 0};
}

static float larger(float most, double value)
{
    float v = fabsf((float)value);
    return v <= most || isnan(most) ? most : v;
}

static double quantized(const struct tern_kernel_args *a, int64_t offset, struct factors f)
{
    return f.in > 0 ? (double)rintf((float)tern_in(a, 0, offset) * f.in) : 0;
}

static double finished(const struct tern_kernel_args *a, int64_t j, double sum, struct factors f)
{
    const struct tern_op_desc *d = a->desc;
    double bias = d->present[3] ? tern_in(a, 3, j * d->in[3].stride[0]) : 0;
    return sum * ((double)f.out * tern_in(a, 2, j * d->in[2].stride[0])) + bias;
}

/* The row of x that begins at `from` times row j of the weight. */
static double product(const struct tern_kernel_args *a, int64_t from, int64_t j, struct factors f)
{
    const struct tern_meta *x = &a->desc->in[0], *w = &a->desc->in[1];
    double sum = 0;
    for (int64_t i = 0; i < w->shape[1]; i++)
        sum += quantized(a, from + i * x->stride[x->ndim - 1], f) * tern_in(a, 1, j * w->stride[0] + i * w->stride[1]);
    return finished(a, j, sum, f);
}

static void run_linear(const struct tern_kernel_args *a, bool gated)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0];
    const int last = x->ndim - 1;
    int64_t rows = 1, n = d->out.shape[last];
    for (int i = 0; i < last; i++)
        rows *= x->shape[i];
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = tern_offset_of(r, last, x->shape, x->stride), to = tern_offset_of(r, last, x->shape, d->out.stride);
        float most = 0;
        for (int64_t i = 0; i < x->shape[last]; i++)
            most = larger(most, tern_in(a, 0, from + i * x->stride[last]));
        struct factors f = factors_of(most);
        for (int64_t j = 0; j < n; j++) {
            double gate = gated ? product(a, from, n + j, f) : 0, factor = gated ? 0.5 * gate * (1 + erf(gate * sqrt(0.5))) : 1;
            tern_out(a, to + j * d->out.stride[last], product(a, from, j, f) * factor);
        }
    }
}

void tern_ref_quantized_linear(const struct tern_kernel_args *a) { run_linear(a, false); }

void tern_ref_quantized_linear_geglu(const struct tern_kernel_args *a) { run_linear(a, true); }

struct place {
    const struct tern_kernel_args *a;
    struct factors f;
};

static double picture_value(const void *place, int64_t offset)
{
    const struct place *p = place;
    return quantized(p->a, offset, p->f);
}

void tern_ref_quantized_conv2d(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0], *out = &d->out;
    const int64_t one = x->shape[0] ? tern_meta_numel(x) / x->shape[0] : 0, results = x->shape[0] ? tern_meta_numel(out) / x->shape[0] : 0;
    for (int64_t sample = 0; sample < x->shape[0]; sample++) {
        float most = 0;
        for (int64_t p = 0; p < one; p++)
            most = larger(most, tern_in(a, 0, tern_meta_offset(x, sample * one + p)));
        const struct place place = {a, factors_of(most)};
        for (int64_t p = sample * results; p < (sample + 1) * results; p++) {
            int64_t channel = p / (out->shape[3] * out->shape[2]) % out->shape[1];
            tern_out(a, tern_meta_offset(out, p), finished(a, channel, tern_convolve(a, p, picture_value, &place), place.f));
        }
    }
}

/* ---- public functions */

static tern_tensor *call(enum tern_op op, tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias)
{
    static const union tern_op_attrs none;
    tern_tensor *const in[] = {x, weight, scale, bias};
    return x && weight && scale ? tern_op_call(x->ctx, op, in, 4, &none) : NULL;
}

tern_tensor *tern_quantized_linear(tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias)
{
    return call(TERN_OP_quantized_linear, x, weight, scale, bias);
}

tern_tensor *tern_quantized_linear_geglu(tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias)
{
    return call(TERN_OP_quantized_linear_geglu, x, weight, scale, bias);
}

tern_tensor *tern_quantized_conv2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias,
                                     const struct tern_conv2d_params *params)
{
    union tern_op_attrs attrs = tern_conv2d_attributes(params);
    tern_tensor *const in[] = {x, weight, scale, bias};
    return x && weight && scale ? tern_op_call(x->ctx, TERN_OP_quantized_conv2d, in, 4, &attrs) : NULL;
}
