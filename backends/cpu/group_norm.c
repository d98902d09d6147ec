/* group_norm, whole and in two halves, in f32 on contiguous and channels-last pictures. Sums are taken about a value of the data
 * (so that large means do not cost digits), in short f32 runs added in double. */
#include <string.h>

#include "backends/cpu/norm.h"
#include "backends/cpu/post.h"
#include "core/threads.h"

#define BLOCK 256 /* pixels whose sums by channel are taken in f32 */

struct groups {
    const struct tern_cpu_level *level;
    const float *x, *weight, *bias;
    const float *given; /* (n, g, 2) means and variances; NULL: those of x */
    float *y;
    int64_t n, c, hw, g;
    double eps;
    bool channels_last;
    int64_t blocks;                        /* channels-last: per picture */
    float *sums;                           /* channels-last: (n, blocks, 2, c), of deviations and of their squares */
    float *shift, *delta, *scale, *offset; /* channels-last: (n, c), the affine of each channel */
    struct cpu_post post;
};

/* The mean is base + delta, a value of the data and a small difference. */
struct moments {
    float base;
    double delta, variance;
};

/* (C / g) x HW values of a group lie together. */
static struct moments contiguous_moments(const struct groups *r, int64_t i)
{
    int64_t count = r->c / r->g * r->hw;
    const float *x = r->x + i * count;
    double sum, square;
    r->level->moments(count, x, x[0], &sum, &square);
    double mean = sum / (double)count;
    return (struct moments){x[0], mean, square / (double)count - mean * mean};
}

static void sum_block(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / r->blocks, p0 = i % r->blocks * BLOCK, rows = r->hw - p0 < BLOCK ? r->hw - p0 : BLOCK;
        const float *picture = r->x + n * r->hw * r->c;
        float *sum = r->sums + i * 2 * r->c;
        memset(sum, 0, (size_t)(2 * r->c) * sizeof(float));
        r->level->moments_by_column(rows, r->c, picture + p0 * r->c, r->c, picture, sum, sum + r->c);
    }
}

/* Adds the blocks of one group in double. Channels were shifted by the first pixel: x = d + s. */
static struct moments channels_last_moments(const struct groups *r, int64_t i)
{
    int64_t per = r->c / r->g, count = per * r->hw, n = i / r->g, first = i % r->g * per;
    const float *shift = r->x + n * r->hw * r->c;
    double sum = 0, square = 0, base = shift[first];
    for (int64_t c = first; c < first + per; c++) {
        double s = 0, q = 0, d = (double)shift[c] - base;
        for (int64_t b = 0; b < r->blocks; b++) {
            const float *p = r->sums + (n * r->blocks + b) * 2 * r->c;
            s += p[c];
            q += p[r->c + c];
        }
        sum += s + d * (double)r->hw;
        square += q + 2 * d * s + d * d * (double)r->hw;
    }
    double mean = sum / (double)count;
    return (struct moments){shift[first], mean, square / (double)count - mean * mean};
}

/* Of group i, counted over all pictures. */
static struct moments moments_of(const struct groups *r, int64_t i)
{
    if (r->given)
        return (struct moments){r->given[2 * i], 0, r->given[2 * i + 1]};
    return r->channels_last ? channels_last_moments(r, i) : contiguous_moments(r, i);
}

static void contiguous_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    int64_t per = r->c / r->g;
    for (int64_t i = begin; i < end; i++) {
        struct moments m = moments_of(r, i);
        double inv = cpu_norm_scale(m.variance, r->eps);
        for (int64_t row = i * per; row < (i + 1) * per; row++) {
            int64_t c = row % r->c;
            float delta = (float)m.delta, scale = (float)(inv * (r->weight ? r->weight[c] : 1)), offset = r->bias ? r->bias[c] : 0;
            float *y = r->y + row * r->hw;
            r->level->affine(r->hw, r->x + row * r->hw, &(struct tern_cpu_affine){&m.base, &delta, &scale, &offset}, false, y);
            cpu_post_apply(&r->post, y, row, 0, r->hw);
        }
    }
}

/* The affine of each channel of these groups. */
static void spread_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    int64_t per = r->c / r->g;
    for (int64_t i = begin; i < end; i++) {
        struct moments m = moments_of(r, i);
        double inv = cpu_norm_scale(m.variance, r->eps);
        for (int64_t at = i * per; at < (i + 1) * per; at++) {
            r->shift[at] = m.base;
            r->delta[at] = (float)m.delta;
            r->scale[at] = (float)(inv * (r->weight ? r->weight[at % r->c] : 1));
            r->offset[at] = r->bias ? r->bias[at % r->c] : 0;
        }
    }
}

static void channels_last_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i / r->hw * r->c;
        struct tern_cpu_affine affine = {r->shift + at, r->delta + at, r->scale + at, r->offset + at};
        r->level->affine(r->c, r->x + i * r->c, &affine, true, r->y + i * r->c);
        cpu_post_apply(&r->post, r->y + i * r->c, i, 0, r->c);
    }
}

static void stats_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++) {
        struct moments m = moments_of(r, i);
        r->y[2 * i] = (float)(m.base + m.delta);
        r->y[2 * i + 1] = (float)(m.variance < 0 ? 0 : m.variance); /* NaN stays NaN */
    }
}

/* ---- the descriptions */

/* Both pictures have one of the two formats; a result that is no picture is contiguous. */
static bool supports_pictures(const struct tern_op_desc *d)
{
    const struct tern_meta *m = &d->in[0], *o = &d->out;
    bool last = tern_meta_is_channels_last(m) && (d->op == TERN_OP_group_norm_stats || tern_meta_is_channels_last(o));
    bool contiguous = tern_meta_is_contiguous(m) && tern_meta_is_contiguous(o);
    return m->dtype == TERN_F32 && (contiguous || last) && tern_meta_numel(m) > 0;
}

static bool is_channels_last(const struct tern_op_desc *d)
{
    return !tern_meta_is_contiguous(&d->in[0]) || !tern_meta_is_contiguous(&d->out);
}

static struct groups groups_of(const struct tern_op_desc *d, int64_t num_groups)
{
    const struct tern_meta *m = &d->in[0];
    struct groups r = {.n = m->shape[0], .c = m->shape[1], .hw = 1, .g = num_groups, .channels_last = is_channels_last(d)};
    for (int i = 2; i < m->ndim; i++)
        r.hw *= m->shape[i];
    r.blocks = (r.hw + BLOCK - 1) / BLOCK;
    return r;
}

static struct cpu_rows rows_of(const struct tern_op_desc *d)
{
    return is_channels_last(d) ? cpu_rows_channels_last() : cpu_rows_contiguous(d->out.ndim, 2);
}

static bool picture_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = rows_of(d);
    return cpu_post_fits(d, TERN_F32, &rows);
}

static struct groups begin_run(const struct tern_kernel_args *a, int64_t num_groups)
{
    struct groups r = groups_of(a->desc, num_groups);
    r.level = cpu_level(a->ctx);
    r.x = cpu_norm_input(a, 0);
    r.y = tern_arg_host(&a->out);
    return r;
}

/* Bytes of workspace: for the sums, and for the affines behind them. Contiguous pictures need neither. */
static size_t room(const struct tern_op_desc *d, bool sums, bool affines)
{
    struct groups r = groups_of(d, 1);
    int64_t rows = (sums ? 2 * r.blocks : 0) + (affines ? 4 : 0);
    return r.channels_last ? (size_t)(r.n * r.c * rows) * sizeof(float) : 0;
}

/* Sums of a channels-last picture at the start of the workspace; returns what is behind them. */
static float *sum_blocks(const struct tern_kernel_args *a, struct groups *r)
{
    if (!r->channels_last)
        return NULL;
    r->sums = tern_arg_host(&a->workspace);
    tern_parallel(a->ctx, r->n * r->blocks, 1, sum_block, r);
    return r->sums + r->n * r->blocks * 2 * r->c;
}

/* `affines`: of a channels-last picture, four times n * c values. */
static enum tern_status normalize(const struct tern_kernel_args *a, struct groups *r, float *affines)
{
    struct cpu_rows rows = rows_of(a->desc);
    r->post = cpu_post_make(a, &rows);
    if (!r->channels_last) {
        tern_parallel(a->ctx, r->n * r->g, 1, contiguous_part, r);
        return TERN_OK;
    }
    int64_t step = r->n * r->c;
    r->shift = affines;
    r->delta = affines + step;
    r->scale = affines + 2 * step;
    r->offset = affines + 3 * step;
    tern_parallel(a->ctx, r->n * r->g, 1, spread_part, r);
    tern_parallel(a->ctx, r->n * r->hw, 1 + 16384 / r->c, channels_last_part, r);
    return TERN_OK;
}

/* ---- the kernels */

static bool group_norm_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return supports_pictures(d) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2);
}

static size_t group_norm_workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return room(d, true, true); }

static enum tern_status group_norm_run(const struct tern_kernel_args *a)
{
    struct groups r = begin_run(a, a->desc->attrs.group_norm.num_groups);
    r.eps = a->desc->attrs.group_norm.eps;
    r.weight = cpu_norm_input(a, 1);
    r.bias = cpu_norm_input(a, 2);
    return normalize(a, &r, sum_blocks(a, &r));
}

static bool stats_supports(struct tern_device *device, const struct tern_op_desc *d) { return supports_pictures(d); }

static size_t stats_workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return room(d, true, false); }

static enum tern_status stats_run(const struct tern_kernel_args *a)
{
    struct groups r = begin_run(a, a->desc->attrs.group_norm_stats.num_groups);
    sum_blocks(a, &r);
    tern_parallel(a->ctx, r.n * r.g, 1, stats_part, &r);
    return TERN_OK;
}

static bool apply_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return supports_pictures(d) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2) && cpu_norm_vector(d, 3);
}

static size_t apply_workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return room(d, false, true); }

static enum tern_status apply_run(const struct tern_kernel_args *a)
{
    struct groups r = begin_run(a, a->desc->in[1].shape[1]);
    r.given = cpu_norm_input(a, 1);
    r.eps = a->desc->attrs.group_norm_apply.eps;
    r.weight = cpu_norm_input(a, 2);
    r.bias = cpu_norm_input(a, 3);
    return normalize(a, &r, tern_arg_host(&a->workspace));
}

const struct tern_kernel cpu_group_norm_f32 = {.name = "group_norm_f32",
                                               .op = TERN_OP_group_norm,
                                               .supports = group_norm_supports,
                                               .post = picture_post,
                                               .workspace = group_norm_workspace,
                                               .run = group_norm_run};
const struct tern_kernel cpu_group_norm_stats_f32 = {.name = "group_norm_stats_f32",
                                                     .op = TERN_OP_group_norm_stats,
                                                     .supports = stats_supports,
                                                     .workspace = stats_workspace,
                                                     .run = stats_run};
const struct tern_kernel cpu_group_norm_apply_f32 = {.name = "group_norm_apply_f32",
                                                     .op = TERN_OP_group_norm_apply,
                                                     .supports = apply_supports,
                                                     .post = picture_post,
                                                     .workspace = apply_workspace,
                                                     .run = apply_run};
