/* Products of int8. Weights are of int8 with the scale of each output channel, or of a floating dtype, and count as
 * quantize(weight, quantize_scale(weight)). What comes in is quantised as it comes: q = round(x (127 / most)), where most is the largest
 * |x| of a row of a linear layer, or of a picture of a convolution. The sum of the products of int8 is exact; the result is sum x (most /
 * 127) x scale + bias. Scales are computed in f32. Where a value is no number, or infinite, nothing that it is part of is a number.
 * quantized_conv2d with `winograd` allows a kernel to make int8 of Winograd's transforms of x and of the weight's bytes, tile by tile:
 * other roundings of the same size. */
#include <math.h>
#include <stddef.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/quantize.h"
#include "ops/reference.h"
#include "ops/rules.h"

_Static_assert(offsetof(struct tern_quantized_conv2d_attrs, winograd) == sizeof(struct tern_conv2d_attrs),
               "quantized_conv2d begins with conv2d's attributes");

static enum tern_dtype_class weights_of(const struct tern_op_desc *d)
{
    return d->present[2] || d->in[1].dtype == TERN_I8 ? TERN_I8_ONLY : TERN_FLOAT_ONLY;
}

static enum tern_status check_scale(struct tern_context *ctx, const struct tern_op_desc *d, enum tern_status st)
{
    if (st)
        return st;
    if (!d->present[2] && d->in[1].dtype == TERN_I8)
        return tern_fail(ctx, TERN_E_INVALID, "%s: weight is i8, scale is missing: expected (%lld,) f32", tern_rule_op(d),
                         (long long)d->in[1].shape[0]);
    return tern_rule_vector(ctx, d, 2, d->in[1].shape[0]);
}

enum tern_status tern_shape_quantized_linear(struct tern_context *ctx, struct tern_op_desc *d)
{
    return check_scale(ctx, d, tern_rule_linear(ctx, d, weights_of(d), 3, 1));
}

enum tern_status tern_shape_quantized_linear_geglu(struct tern_context *ctx, struct tern_op_desc *d)
{
    return check_scale(ctx, d, tern_rule_linear(ctx, d, weights_of(d), 3, 2));
}

enum tern_status tern_shape_quantized_conv2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    d->attrs.quantized_conv2d.winograd = d->attrs.quantized_conv2d.winograd != 0;
    return check_scale(ctx, d, tern_rule_conv2d(ctx, d, weights_of(d), 3));
}

/* ---- references */

static float larger(float most, double value)
{
    float v = fabsf((float)value);
    return v <= most || isnan(most) ? most : v;
}

/* A product of one row or picture with one output channel. */
struct product {
    const struct tern_kernel_args *a;
    struct tern_quantize_factors f;
    int64_t channel;
    float scale; /* of the channel */
};

static struct product product_of(const struct tern_kernel_args *a, struct tern_quantize_factors f, int64_t channel)
{
    const struct tern_op_desc *d = a->desc;
    float scale = d->present[2] ? (float)tern_in(a, 2, channel * d->in[2].stride[0]) : tern_quantize_scale_of(a, 1, channel);
    return (struct product){a, f, channel, scale};
}

/* Elements of x or of the weight as int8. */
static void values_of(const void *product, const struct tern_row *row, double *out)
{
    const struct product *p = product;
    tern_in_row(p->a, row, out);
    for (int64_t i = 0; i < row->n && row->input == 0; i++)
        out[i] = p->f.in > 0 ? (double)rintf((float)out[i] * p->f.in) : 0;
    for (int64_t i = 0; i < row->n && row->input == 1 && !p->a->desc->present[2]; i++)
        out[i] = tern_quantize_value((float)out[i], p->scale);
}

static double finished(const struct product *p, double sum)
{
    const struct tern_op_desc *d = p->a->desc;
    double bias = d->present[3] ? tern_in(p->a, 3, p->channel * d->in[3].stride[0]) : 0;
    return sum * ((double)p->f.out * (double)p->scale) + bias;
}

/* The row of x that begins at `from` times row j of the weight. */
static double row_by_row(const struct tern_kernel_args *a, int64_t from, int64_t j, struct tern_quantize_factors f)
{
    const struct product p = product_of(a, f, j);
    return finished(&p, tern_dot_linear(a, 0, from, j, values_of, &p));
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
        struct tern_quantize_factors f = tern_quantize_factors_of(most);
        for (int64_t j = 0; j < n; j++) {
            double gate = gated ? row_by_row(a, from, n + j, f) : 0, factor = gated ? 0.5 * gate * (1 + erf(gate * sqrt(0.5))) : 1;
            tern_out(a, to + j * d->out.stride[last], row_by_row(a, from, j, f) * factor);
        }
    }
}

void tern_ref_quantized_linear(const struct tern_kernel_args *a) { run_linear(a, false); }

void tern_ref_quantized_linear_geglu(const struct tern_kernel_args *a) { run_linear(a, true); }

void tern_ref_quantized_conv2d(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0], *out = &d->out;
    const int64_t one = x->shape[0] ? tern_meta_numel(x) / x->shape[0] : 0, pixels = out->shape[2] * out->shape[3];
    double sums[TERN_CONVOLVED];
    for (int64_t sample = 0; sample < x->shape[0]; sample++) {
        float most = 0;
        for (int64_t i = 0; i < one; i++)
            most = larger(most, tern_in(a, 0, tern_meta_offset(x, sample * one + i)));
        for (int64_t channel = 0; channel < out->shape[1]; channel++) {
            const struct product p = product_of(a, tern_quantize_factors_of(most), channel);
            const int64_t first = (sample * out->shape[1] + channel) * pixels;
            for (int64_t r = first, n; r < first + pixels; r += n) {
                n = tern_convolve(a, r, values_of, &p, sums);
                for (int64_t i = 0; i < n; i++)
                    tern_out(a, tern_meta_offset(out, r + i), finished(&p, sums[i]));
            }
        }
    }
}

/* ---- public functions */

static tern_tensor *call(enum tern_op op, tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias)
{
    static const union tern_op_attrs none;
    tern_tensor *const in[] = {x, weight, scale, bias};
    return x && weight ? tern_op_call(x->ctx, op, in, 4, &none) : NULL;
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
    return x && weight ? tern_op_call(x->ctx, TERN_OP_quantized_conv2d, in, 4, &attrs) : NULL;
}
