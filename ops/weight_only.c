/* Products with weights that are kept in 8 or 4 bits: of the values that those stand for. */
#include "ops/weight_only.h"

#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

_Static_assert(offsetof(struct tern_weight_only_conv2d_attrs, bits) == sizeof(struct tern_conv2d_attrs),
               "weight_only_conv2d begins with conv2d's attributes");

static int64_t bits_of(const struct tern_op_desc *d)
{
    return d->op == TERN_OP_weight_only_conv2d ? d->attrs.weight_only_conv2d.bits : d->attrs.weight_only_linear.bits;
}

enum tern_status tern_weight_check_bits(struct tern_context *ctx, const struct tern_op_desc *d, int64_t bits, enum tern_status st)
{
    if (st || bits == 8 || bits == 4)
        return st;
    return tern_fail(ctx, TERN_E_INVALID, "%s: bits: expected 8 or 4, found %lld", tern_rule_op(d), (long long)bits);
}

enum tern_status tern_shape_weight_only_linear(struct tern_context *ctx, struct tern_op_desc *d)
{
    return tern_weight_check_bits(ctx, d, bits_of(d), tern_rule_linear(ctx, d, TERN_FLOAT_ONLY, 2, 1));
}

enum tern_status tern_shape_weight_only_linear_geglu(struct tern_context *ctx, struct tern_op_desc *d)
{
    return tern_weight_check_bits(ctx, d, bits_of(d), tern_rule_linear(ctx, d, TERN_FLOAT_ONLY, 2, 2));
}

enum tern_status tern_shape_weight_only_conv2d(struct tern_context *ctx, struct tern_op_desc *d)
{
    return tern_weight_check_bits(ctx, d, bits_of(d), tern_rule_conv2d(ctx, d, TERN_FLOAT_ONLY, 2));
}

/* ---- references */

/* Scales that were used last, of an output channel or of a group of it: each group has its place among so many. */
enum { SCALES = 256 };

struct scale {
    int64_t channel, group;
    float value;
    bool known;
};

/* A product with one output channel. */
struct product {
    const struct tern_kernel_args *a;
    int64_t channel;
    struct scale *scales;
};

float tern_weight_at(const struct tern_kernel_args *a, int input, int64_t channel, int64_t depth)
{
    const struct tern_meta *w = &a->desc->in[input];
    int64_t at = channel * w->stride[0] + depth % w->shape[1] * w->stride[1];
    if (w->ndim == 4)
        at += depth / w->shape[1] / w->shape[3] * w->stride[2] + depth / w->shape[1] % w->shape[3] * w->stride[3];
    return (float)tern_in(a, input, at);
}

int64_t tern_weight_depth(const struct tern_meta *w)
{
    int64_t n = 1;
    for (int i = 1; i < w->ndim; i++)
        n *= w->shape[i];
    return n;
}

float tern_weight_channel_scale(const struct tern_kernel_args *a, int input, int64_t channel)
{
    const int64_t n = tern_weight_depth(&a->desc->in[input]);
    float most = 0;
    for (int64_t i = 0; i < n && !isnan(most); i++) {
        float v = fabsf(tern_weight_at(a, input, channel, i));
        most = v <= most ? most : v; /* NaN counts */
    }
    return tern_weight_scale(most / 127);
}

float tern_weight_group_scale(const struct tern_kernel_args *a, int input, int64_t channel, int64_t group)
{
    const int64_t first = group * TERN_WEIGHT_GROUP, n = tern_weight_depth(&a->desc->in[input]) - first;
    float x[TERN_WEIGHT_GROUP];
    int64_t i = 0;
    for (; i < n && i < TERN_WEIGHT_GROUP; i++)
        x[i] = tern_weight_at(a, input, channel, first + i);
    return tern_group_scale(i, x);
}

static void values_of(const void *product, const struct tern_row *row, double *out)
{
    const struct product *p = product;
    const bool groups = bits_of(p->a->desc) == 4;
    tern_in_row(p->a, row, out);
    for (int64_t i = 0; i < row->n && row->input == 1; i++) {
        const int64_t group = groups ? (row->depth + i) / TERN_WEIGHT_GROUP : 0;
        struct scale *last = &p->scales[group % SCALES];
        if (!last->known || last->channel != p->channel || last->group != group)
            *last = (struct scale){p->channel, group,
                                   groups ? tern_weight_group_scale(p->a, 1, p->channel, group)
                                          : tern_weight_channel_scale(p->a, 1, p->channel),
                                   true};
        const float scale = last->value;
        out[i] = (double)tern_weight_value((float)out[i], scale, groups ? -8 : -127, groups ? 7 : 127) * (double)scale;
    }
}

/* The row of x that begins at `from` times row j of the weight, and the bias. */
static double row_by_row(const struct tern_kernel_args *a, int64_t from, int64_t j, struct scale *scales)
{
    const struct tern_op_desc *d = a->desc;
    const struct product p = {a, j, scales};
    double bias = d->present[2] ? tern_in(a, 2, j * d->in[2].stride[0]) : 0;
    return tern_dot_linear(a, bias, from, j, values_of, &p);
}

static void run_linear(const struct tern_kernel_args *a, bool gated)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0];
    const int last = x->ndim - 1;
    struct scale scales[2][SCALES] = {0}; /* of values, of gates */
    int64_t rows = 1, n = d->out.shape[last];
    for (int i = 0; i < last; i++)
        rows *= x->shape[i];
    for (int64_t j = 0; j < n; j++)
        for (int64_t r = 0; r < rows; r++) {
            int64_t from = tern_offset_of(r, last, x->shape, x->stride), to = tern_offset_of(r, last, x->shape, d->out.stride);
            double gate = gated ? row_by_row(a, from, n + j, scales[1]) : 0, factor = gated ? 0.5 * gate * (1 + erf(gate * sqrt(0.5))) : 1;
            tern_out(a, to + j * d->out.stride[last], row_by_row(a, from, j, scales[0]) * factor);
        }
}

void tern_ref_weight_only_linear(const struct tern_kernel_args *a) { run_linear(a, false); }

void tern_ref_weight_only_linear_geglu(const struct tern_kernel_args *a) { run_linear(a, true); }

void tern_ref_weight_only_conv2d(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *out = &d->out;
    const int64_t pixels = out->shape[3] * out->shape[2], all = tern_meta_numel(out);
    struct scale scales[SCALES] = {0};
    double sums[TERN_CONVOLVED];
    for (int64_t r = 0, n; r < all; r += n) {
        const struct product p = {a, r / pixels % out->shape[1], scales};
        const double bias = d->present[2] ? tern_in(a, 2, p.channel * d->in[2].stride[0]) : 0;
        n = tern_convolve(a, r, values_of, &p, sums);
        for (int64_t i = 0; i < n; i++)
            tern_out(a, tern_meta_offset(out, r + i), sums[i] + bias);
    }
}

/* ---- public functions */

static tern_tensor *call(enum tern_op op, tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits)
{
    const union tern_op_attrs attrs = {.weight_only_linear = {.bits = bits}};
    tern_tensor *const in[] = {x, weight, bias};
    return x && weight ? tern_op_call(x->ctx, op, in, 3, &attrs) : NULL;
}

tern_tensor *tern_weight_only_linear(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits)
{
    return call(TERN_OP_weight_only_linear, x, weight, bias, bits);
}

tern_tensor *tern_weight_only_linear_geglu(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits)
{
    return call(TERN_OP_weight_only_linear_geglu, x, weight, bias, bits);
}

tern_tensor *tern_weight_only_conv2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits,
                                       const struct tern_conv2d_params *params)
{
    union tern_op_attrs attrs = tern_conv2d_attributes(params);
    tern_tensor *const in[] = {x, weight, bias};
    attrs.weight_only_conv2d.bits = bits;
    return x && weight ? tern_op_call(x->ctx, TERN_OP_weight_only_conv2d, in, 3, &attrs) : NULL;
}
