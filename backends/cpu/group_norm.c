/* group_norm in f32 on contiguous and channels-last pictures. Sums are taken about a value of the data (so that large means do
 * not cost digits), in short f32 runs added in double. */
#include <string.h>

#include "backends/cpu/norm.h"
#include "backends/cpu/post.h"
#include "core/threads.h"

struct groups {
    const struct tern_cpu_level *level;
    const float *x, *weight, *bias;
    float *y;
    int64_t n, c, hw, g;
    double eps;
    /* channels-last: per picture and block of pixels, sums by channel; then per picture the affine by channel */
    int64_t blocks, block;
    float *sums;
    float *shift, *delta, *scale, *offset;
    struct cpu_post post;
};

/* (C / g) x HW values of a group lie together. */
static void contiguous_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    int64_t per = r->c / r->g, count = per * r->hw;
    for (int64_t i = begin; i < end; i++) {
        const float *x = r->x + i * count;
        double sum, square;
        r->level->moments(count, x, x[0], &sum, &square);
        double mean = sum / (double)count, variance = square / (double)count - mean * mean;
        float inv = (float)cpu_norm_scale(variance, r->eps), shift = x[0], delta = (float)mean;
        for (int64_t c = 0; c < per; c++) {
            int64_t channel = i % r->g * per + c;
            float scale = inv * (r->weight ? r->weight[channel] : 1), offset = r->bias ? r->bias[channel] : 0;
            struct tern_cpu_affine affine = {&shift, &delta, &scale, &offset};
            float *y = r->y + i * count + c * r->hw;
            r->level->affine(r->hw, x + c * r->hw, &affine, false, y);
            cpu_post_apply(&r->post, y, i * per + c, 0, r->hw);
        }
    }
}

static void sum_block(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / r->blocks, p0 = i % r->blocks * r->block, rows = r->hw - p0 < r->block ? r->hw - p0 : r->block;
        const float *picture = r->x + n * r->hw * r->c;
        float *sum = r->sums + i * 2 * r->c;
        memset(sum, 0, (size_t)(2 * r->c) * sizeof(float));
        r->level->moments_by_column(rows, r->c, picture + p0 * r->c, r->c, picture, sum, sum + r->c);
    }
}

/* Adds the blocks of one group in double. Channels were shifted by the first pixel: x = d + s. */
static void finish_group(const struct groups *r, int64_t n, int64_t g)
{
    int64_t per = r->c / r->g, count = per * r->hw;
    const float *shift = r->x + n * r->hw * r->c;
    double sum = 0, square = 0, base = shift[g * per];
    for (int64_t c = g * per; c < (g + 1) * per; c++) {
        double s = 0, q = 0, d = (double)shift[c] - base;
        for (int64_t b = 0; b < r->blocks; b++) {
            const float *p = r->sums + (n * r->blocks + b) * 2 * r->c;
            s += p[c];
            q += p[r->c + c];
        }
        sum += s + d * (double)r->hw;
        square += q + 2 * d * s + d * d * (double)r->hw;
    }
    double mean = sum / (double)count, variance = square / (double)count - mean * mean;
    double inv = cpu_norm_scale(variance, r->eps);
    for (int64_t c = g * per; c < (g + 1) * per; c++) {
        double scale = inv * (r->weight ? r->weight[c] : 1);
        r->shift[n * r->c + c] = (float)base;
        r->delta[n * r->c + c] = (float)mean;
        r->scale[n * r->c + c] = (float)scale;
        r->offset[n * r->c + c] = r->bias ? r->bias[c] : 0;
    }
}

static void apply_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i / r->hw * r->c;
        struct tern_cpu_affine affine = {r->shift + at, r->delta + at, r->scale + at, r->offset + at};
        r->level->affine(r->c, r->x + i * r->c, &affine, true, r->y + i * r->c);
        cpu_post_apply(&r->post, r->y + i * r->c, i, 0, r->c);
    }
}

static struct groups groups_of(const struct tern_op_desc *d)
{
    const struct tern_meta *m = &d->in[0];
    struct groups r = {.n = m->shape[0], .c = m->shape[1], .hw = 1, .g = d->attrs.group_norm.num_groups, .eps = d->attrs.group_norm.eps};
    for (int i = 2; i < m->ndim; i++)
        r.hw *= m->shape[i];
    r.block = 256;
    r.blocks = (r.hw + r.block - 1) / r.block;
    return r;
}

static bool group_norm_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_meta *m = &d->in[0], *o = &d->out;
    bool contiguous = tern_meta_is_contiguous(m) && tern_meta_is_contiguous(o);
    bool last = tern_meta_is_channels_last(m) && tern_meta_is_channels_last(o);
    return m->dtype == TERN_F32 && (contiguous || last) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2) && tern_meta_numel(m) > 0;
}

static bool is_channels_last(const struct tern_op_desc *d)
{
    return !tern_meta_is_contiguous(&d->in[0]) || !tern_meta_is_contiguous(&d->out);
}

static struct cpu_rows group_norm_rows(const struct tern_op_desc *d)
{
    return is_channels_last(d) ? cpu_rows_channels_last() : cpu_rows_contiguous(d->out.ndim, 2);
}

static bool group_norm_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = group_norm_rows(d);
    return cpu_post_fits(d, &rows);
}

static size_t group_norm_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct groups r = groups_of(d);
    return (size_t)(r.n * r.c * (2 * r.blocks + 4)) * sizeof(float);
}

static enum tern_status group_norm_run(const struct tern_kernel_args *a)
{
    struct groups r = groups_of(a->desc);
    r.level = cpu_level(a->ctx);
    r.x = cpu_norm_input(a, 0);
    r.weight = cpu_norm_input(a, 1);
    r.bias = cpu_norm_input(a, 2);
    r.y = tern_arg_host(&a->out);
    struct cpu_rows rows = group_norm_rows(a->desc);
    r.post = cpu_post_make(a, &rows);
    if (!is_channels_last(a->desc)) {
        tern_parallel(a->ctx, r.n * r.g, 1, contiguous_part, &r);
        return TERN_OK;
    }
    r.shift = tern_arg_host(&a->workspace);
    r.delta = r.shift + r.n * r.c;
    r.scale = r.delta + r.n * r.c;
    r.offset = r.scale + r.n * r.c;
    r.sums = r.offset + r.n * r.c;
    tern_parallel(a->ctx, r.n * r.blocks, 1, sum_block, &r);
    for (int64_t n = 0; n < r.n; n++)
        for (int64_t g = 0; g < r.g; g++)
            finish_group(&r, n, g);
    tern_parallel(a->ctx, r.n * r.hw, 1 + 16384 / r.c, apply_part, &r);
    return TERN_OK;
}

const struct tern_kernel cpu_group_norm_f32 = {.name = "group_norm_f32",
                                               .op = TERN_OP_group_norm,
                                               .supports = group_norm_supports,
                                               .post = group_norm_post,
                                               .workspace = group_norm_workspace,
                                               .run = group_norm_run};
