/* group_norm [Wu 2018]: (x - mean) / sqrt(variance + eps) over groups of channels, scaled and shifted by channel. Whole, and in
 * two halves: the statistics of the groups, and what is done with them. Variances are those of the whole population. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

static enum tern_status check_picture(struct tern_context *ctx, const struct tern_op_desc *d)
{
    char text[TERN_META_TEXT];
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st && d->in[0].ndim < 2)
        st = tern_fail(ctx, TERN_E_SHAPE, "%s: x has %d dimensions: expected (N, C, ...), found %s", tern_rule_op(d), d->in[0].ndim,
                       tern_meta_text(&d->in[0], text));
    return st;
}

/* x (N, C, ...) in groups that have elements; without channels they are empty, as in PyTorch */
static enum tern_status check_groups(struct tern_context *ctx, const struct tern_op_desc *d, int64_t groups)
{
    const struct tern_meta *x = &d->in[0];
    char text[TERN_META_TEXT];
    enum tern_status st = check_picture(ctx, d);
    if (st)
        return st;
    if (groups < 1 || x->shape[1] % groups)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: num_groups is %lld, x has %lld channels: expected a divisor of them, x is %s",
                         tern_rule_op(d), (long long)groups, (long long)x->shape[1], tern_meta_text(x, text));
    for (int i = 2; i < x->ndim; i++)
        if (x->shape[i] == 0)
            return tern_fail(ctx, TERN_E_SHAPE, "%s: dimension %d of x is empty: expected at least one element, found %s", tern_rule_op(d),
                             i, tern_meta_text(x, text));
    return TERN_OK;
}

/* Input `weight` and the bias behind it have a value for each channel; the result is like x. */
static enum tern_status check_vectors(struct tern_context *ctx, struct tern_op_desc *d, int weight)
{
    enum tern_status st = tern_rule_vector(ctx, d, weight, d->in[0].shape[1]);
    if (!st)
        st = tern_rule_vector(ctx, d, weight + 1, d->in[0].shape[1]);
    return st ? st : tern_rule_out_like(ctx, d, d->in[0].dtype);
}

enum tern_status tern_shape_group_norm(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = check_groups(ctx, d, d->attrs.group_norm.num_groups);
    return st ? st : check_vectors(ctx, d, 1);
}

enum tern_status tern_shape_group_norm_stats(struct tern_context *ctx, struct tern_op_desc *d)
{
    int64_t groups = d->attrs.group_norm_stats.num_groups;
    enum tern_status st = check_groups(ctx, d, groups);
    return st ? st : tern_rule_out(ctx, d, TERN_F32, 3, (const int64_t[]){d->in[0].shape[0], groups, 2});
}

enum tern_status tern_shape_group_norm_apply(struct tern_context *ctx, struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *stats = &d->in[1];
    char text[TERN_META_TEXT];
    enum tern_status st = check_picture(ctx, d);
    if (!st)
        st = tern_rule_ndim(ctx, d, 1, 3, "(N, G, 2)");
    if (st)
        return st;
    if (stats->shape[0] != x->shape[0] || stats->shape[1] < 1 || x->shape[1] % stats->shape[1] || stats->shape[2] != 2)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: stats does not fit: expected (%lld, a divisor of %lld, 2), found %s", tern_rule_op(d),
                         (long long)x->shape[0], (long long)x->shape[1], tern_meta_text(stats, text));
    if (stats->dtype != TERN_F32)
        return tern_fail(ctx, TERN_E_DTYPE, "%s: stats is %s: expected f32, as group_norm_stats gives it", tern_rule_op(d),
                         tern_dtype_name(stats->dtype));
    return check_vectors(ctx, d, 2);
}

/* A group as the references walk it: (C / G, ...) of n elements. */
struct group {
    int64_t groups, channels, n;
    int ndim;
    int64_t shape[TERN_MAX_DIMS];
};

static struct group group_of(const struct tern_meta *x, int64_t groups)
{
    struct group k = {.groups = groups, .channels = x->shape[1] / groups, .ndim = x->ndim - 1};
    k.n = k.shape[0] = k.channels;
    for (int i = 1; i < k.ndim; i++)
        k.n *= k.shape[i] = x->shape[i + 1];
    return k;
}

/* Offset of the first element of group r, counted over all pictures. */
static int64_t start_of(const struct group *k, const struct tern_meta *m, int64_t r)
{
    return r / k->groups * m->stride[0] + r % k->groups * k->channels * m->stride[1];
}

static void normalize(const struct tern_kernel_args *a, const struct group *k, int64_t r, double mean, double scale, int weight)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0], *out = &d->out;
    int64_t from = start_of(k, x, r), to = start_of(k, out, r);
    for (int64_t j = 0; j < k->n; j++) {
        int64_t channel = r % k->groups * k->channels + j / (k->n / k->channels);
        double y = (tern_in(a, 0, from + tern_offset_of(j, k->ndim, k->shape, x->stride + 1)) - mean) * scale;
        if (d->present[weight])
            y *= tern_in(a, weight, channel * d->in[weight].stride[0]);
        if (d->present[weight + 1])
            y += tern_in(a, weight + 1, channel * d->in[weight + 1].stride[0]);
        tern_out(a, to + tern_offset_of(j, k->ndim, k->shape, out->stride + 1), y);
    }
}

static void moments_of(const struct tern_kernel_args *a, const struct group *k, int64_t r, double *mean, double *variance)
{
    const struct tern_meta *x = &a->desc->in[0];
    tern_moments(a, start_of(k, x, r), k->ndim, k->shape, x->stride + 1, k->n, true, mean, variance);
}

void tern_ref_group_norm(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct group k = group_of(&d->in[0], d->attrs.group_norm.num_groups);
    if (!k.n)
        return; /* no channels: num_groups may be any number then */
    for (int64_t r = 0; r < d->in[0].shape[0] * k.groups; r++) {
        double mean, variance;
        moments_of(a, &k, r, &mean, &variance);
        normalize(a, &k, r, mean, 1 / sqrt(variance + d->attrs.group_norm.eps), 1);
    }
}

void tern_ref_group_norm_stats(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct group k = group_of(&d->in[0], d->attrs.group_norm_stats.num_groups);
    for (int64_t r = 0; r < d->in[0].shape[0] * k.groups; r++) {
        double mean, variance;
        moments_of(a, &k, r, &mean, &variance);
        tern_out(a, tern_meta_offset(&d->out, 2 * r), mean);
        tern_out(a, tern_meta_offset(&d->out, 2 * r + 1), variance);
    }
}

void tern_ref_group_norm_apply(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct group k = group_of(&d->in[0], d->in[1].shape[1]);
    for (int64_t r = 0; r < d->in[0].shape[0] * k.groups && k.n; r++) {
        double mean = tern_in(a, 1, tern_meta_offset(&d->in[1], 2 * r)), variance = tern_in(a, 1, tern_meta_offset(&d->in[1], 2 * r + 1));
        normalize(a, &k, r, mean, 1 / sqrt((variance < 0 ? 0 : variance) + d->attrs.group_norm_apply.eps), 2);
    }
}

tern_tensor *tern_group_norm(tern_tensor *x, int num_groups, tern_tensor *weight, tern_tensor *bias, double eps)
{
    const union tern_op_attrs attrs = {.group_norm = {.num_groups = num_groups, .eps = eps}};
    tern_tensor *const in[] = {x, weight, bias};
    return x ? tern_op_call(x->ctx, TERN_OP_group_norm, in, 3, &attrs) : NULL;
}

tern_tensor *tern_group_norm_stats(tern_tensor *x, int num_groups)
{
    const union tern_op_attrs attrs = {.group_norm_stats = {.num_groups = num_groups}};
    return tern_call_unary(TERN_OP_group_norm_stats, x, &attrs);
}

tern_tensor *tern_group_norm_apply(tern_tensor *x, tern_tensor *stats, tern_tensor *weight, tern_tensor *bias, double eps)
{
    const union tern_op_attrs attrs = {.group_norm_apply = {.eps = eps}};
    tern_tensor *const in[] = {x, stats, weight, bias};
    return x && stats ? tern_op_call(x->ctx, TERN_OP_group_norm_apply, in, 4, &attrs) : NULL;
}
