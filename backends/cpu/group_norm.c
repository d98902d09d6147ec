/* group_norm, whole and in two halves, on contiguous and channels-last pictures of f32, f16 or bf16, computed in f32. Sums are taken about
 * a value of the data (so that large means do not cost digits), in short f32 runs added in double. */
#include <string.h>

#include "backends/cpu/norm.h"
#include "backends/cpu/post.h"
#include "core/threads.h"

#define BLOCK 256      /* pixels whose sums by channel are taken in f32 */
#define TILE 512       /* values that wait in f32 for their posts */
#define LEAST_SLAB 128 /* bytes of a pixel: two lines */

struct groups {
    const struct tern_cpu_level *level;
    enum tern_dtype dtype;
    int64_t size; /* bytes of a value */
    const char *x;
    char *y;
    const float *weight, *bias;
    const float *given; /* (n, g, 2) means and variances; NULL: those of x */
    int64_t n, c, hw, g;
    double eps;
    bool channels_last;
    int64_t blocks;                                /* channels-last: per picture */
    int64_t slab;                                  /* channels-last: groups that are done while they are in cache; 0: all is read twice */
    float *sums;                                   /* channels-last: (n, blocks, 2, c), of deviations and of their squares */
    float *first, *shift, *delta, *scale, *offset; /* channels-last: (n, c), the first pixel; the affine of each channel */
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
    const char *x = r->x + i * count * r->size;
    float base = cpu_norm_first(r->level, r->dtype, x);
    double sum, square;
    r->level->moments(r->dtype, count, x, base, &sum, &square);
    double mean = sum / (double)count;
    return (struct moments){base, mean, square / (double)count - mean * mean};
}

/* Adds the blocks of one group in double. Channels were shifted by the first pixel: x = d + s. */
static struct moments channels_last_moments(const struct groups *r, int64_t i)
{
    int64_t per = r->c / r->g, count = per * r->hw, n = i / r->g, from = i % r->g * per;
    const float *shift = r->first + n * r->c;
    double sum = 0, square = 0, base = shift[from];
    for (int64_t c = from; c < from + per; c++) {
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
    return (struct moments){shift[from], mean, square / (double)count - mean * mean};
}

/* Of group i, counted over all pictures. */
static struct moments moments_of(const struct groups *r, int64_t i)
{
    if (r->given)
        return (struct moments){r->given[2 * i], 0, r->given[2 * i + 1]};
    return r->channels_last ? channels_last_moments(r, i) : contiguous_moments(r, i);
}

/* `rows` rows of n values, ld apart: columns col .. col + n of rows row, row + 1, … of the output. */
static void scale_part(const struct groups *r, const struct tern_cpu_affine *a, bool vectors, int64_t at, int64_t ld, int64_t row,
                       int64_t rows, int64_t col, int64_t n)
{
    float tile[TILE];
    const char *x = r->x + at * r->size;
    char *y = r->y + at * r->size;
    if (!r->post.n) {
        r->level->affine(r->dtype, rows, n, x, ld, a, vectors, false, y, ld);
        return;
    }
    for (int64_t k = 0; k < rows; k++, x += ld * r->size, y += ld * r->size)
        for (int64_t i = 0, part; i < n; i += part) {
            const int64_t from = vectors ? i : 0;
            struct tern_cpu_affine here = {a->shift + from, a->delta + from, a->scale + from, a->offset + from};
            float *wide = r->dtype == TERN_F32 ? (float *)(void *)(y + i * r->size) : tile;
            part = n - i < TILE ? n - i : TILE;
            r->level->affine(r->dtype, 1, part, x + i * r->size, 0, &here, vectors, true, wide, 0);
            cpu_post_apply(&r->post, wide, row + k, col + i, part);
            if (r->dtype != TERN_F32)
                r->level->from_f32(r->dtype, part, tile, y + i * r->size);
        }
}

/* ---- contiguous: a group after the other */

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
            scale_part(r, &(struct tern_cpu_affine){&m.base, &delta, &scale, &offset}, false, row * r->hw, 0, row, 1, 0, r->hw);
        }
    }
}

/* ---- channels-last: columns c .. c + columns of picture n */

static void sum_block(const struct groups *r, int64_t n, int64_t block, int64_t c, int64_t columns)
{
    int64_t p = block * BLOCK, rows = r->hw - p < BLOCK ? r->hw - p : BLOCK;
    float *sum = r->sums + (n * r->blocks + block) * 2 * r->c + c;
    memset(sum, 0, (size_t)columns * sizeof(*sum));
    memset(sum + r->c, 0, (size_t)columns * sizeof(*sum));
    r->level->moments_by_column(r->dtype, rows, columns, r->x + ((n * r->hw + p) * r->c + c) * r->size, r->c, r->first + n * r->c + c, sum,
                                sum + r->c);
}

static void take_first_pixel(const struct groups *r, int64_t n, int64_t c, int64_t columns)
{
    r->level->to_f32(r->dtype, columns, r->x + (n * r->hw * r->c + c) * r->size, r->first + n * r->c + c);
}

/* The affine of each channel of group i, counted over all pictures. */
static void spread(const struct groups *r, int64_t i)
{
    int64_t per = r->c / r->g;
    struct moments m = moments_of(r, i);
    double inv = cpu_norm_scale(m.variance, r->eps);
    for (int64_t at = i * per; at < (i + 1) * per; at++) {
        r->shift[at] = m.base;
        r->delta[at] = (float)m.delta;
        r->scale[at] = (float)(inv * (r->weight ? r->weight[at % r->c] : 1));
        r->offset[at] = r->bias ? r->bias[at % r->c] : 0;
    }
}

static void scale_block(const struct groups *r, int64_t n, int64_t block, int64_t c, int64_t columns)
{
    int64_t p = block * BLOCK, rows = r->hw - p < BLOCK ? r->hw - p : BLOCK;
    int64_t at = n * r->c + c, row = n * r->hw + p;
    struct tern_cpu_affine affine = {r->shift + at, r->delta + at, r->scale + at, r->offset + at};
    scale_part(r, &affine, true, row * r->c + c, r->c, row, rows, c, columns);
}

/* The groups of a slab from their sums to the end. What was summed last is in cache and comes first. */
static void slab_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    const int64_t slabs = r->g / r->slab, columns = r->slab * (r->c / r->g);
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / slabs, c = i % slabs * columns;
        take_first_pixel(r, n, c, columns);
        for (int64_t b = 0; b < r->blocks; b++)
            sum_block(r, n, b, c, columns);
        for (int64_t j = 0; j < r->slab; j++)
            spread(r, i * r->slab + j);
        for (int64_t b = r->blocks; b-- > 0;)
            scale_block(r, n, b, c, columns);
    }
}

static void sum_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++)
        sum_block(r, i / r->blocks, i % r->blocks, 0, r->c);
}

static void spread_part(void *arg, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        spread(arg, i);
}

static void scale_blocks(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++)
        scale_block(r, i / r->blocks, i % r->blocks, 0, r->c);
}

static void stats_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    float *y = (float *)(void *)r->y;
    for (int64_t i = begin; i < end; i++) {
        struct moments m = moments_of(r, i);
        y[2 * i] = (float)(m.base + m.delta);
        y[2 * i + 1] = (float)(m.variance < 0 ? 0 : m.variance); /* NaN stays NaN */
    }
}

/* ---- the descriptions */

/* Both pictures have one of the two formats; a result that is no picture is contiguous. */
static bool supports_pictures(const struct tern_op_desc *d)
{
    const struct tern_meta *m = &d->in[0], *o = &d->out;
    bool last = tern_meta_is_channels_last(m) && (d->op == TERN_OP_group_norm_stats || tern_meta_is_channels_last(o));
    bool contiguous = tern_meta_is_contiguous(m) && tern_meta_is_contiguous(o);
    return tern_dtype_is_float(m->dtype) && (contiguous || last) && tern_meta_numel(m) > 0;
}

static bool is_channels_last(const struct tern_op_desc *d)
{
    return !tern_meta_is_contiguous(&d->in[0]) || !tern_meta_is_contiguous(&d->out);
}

static struct groups groups_of(const struct tern_op_desc *d, int64_t num_groups)
{
    const struct tern_meta *m = &d->in[0];
    struct groups r = {.dtype = m->dtype,
                       .size = (int64_t)tern_dtype_size(m->dtype),
                       .n = m->shape[0],
                       .c = m->shape[1],
                       .hw = 1,
                       .g = num_groups,
                       .channels_last = is_channels_last(d)};
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
    return cpu_post_fits(d, d->in[0].dtype, &rows);
}

/* The most groups that stay in cache from their sums to the end, and give each thread two slabs. The sums are the same in any case. */
static int64_t slab_of(struct tern_context *ctx, const struct groups *r)
{
    const int64_t room = (int64_t)cpu_device_of(ctx)->l2 / 4 * 3;
    for (int64_t k = r->g; k > 0; k--) {
        int64_t pixel = k * (r->c / r->g) * r->size;
        if (pixel < LEAST_SLAB)
            break;
        if (r->g % k == 0 && pixel * r->hw <= room && r->n * (r->g / k) >= 2 * tern_thread_count(ctx))
            return k;
    }
    return 0;
}

/* ---- runs. The workspace holds what has to be widened of the small inputs, then sums, then values by channel. */

enum { SUMS = 1, AFFINES = 2 };

static size_t room(const struct tern_op_desc *d, int parts)
{
    struct groups r = groups_of(d, 1);
    int64_t rows = 1 + (parts & SUMS ? 2 * r.blocks : 0) + (parts & AFFINES ? 4 : 0);
    return r.channels_last ? (size_t)(r.n * r.c * rows) * sizeof(float) : 0;
}

static struct groups begin_run(const struct tern_kernel_args *a, int64_t num_groups, float *workspace, int parts)
{
    struct groups r = groups_of(a->desc, num_groups);
    const int64_t step = r.n * r.c;
    r.level = cpu_level(a->ctx);
    r.x = tern_arg_host(&a->in[0]);
    r.y = tern_arg_host(&a->out);
    if (!r.channels_last)
        return r;
    r.first = workspace;
    workspace += step;
    if (parts & SUMS) {
        r.sums = workspace;
        workspace += step * 2 * r.blocks;
    }
    if (parts & AFFINES) {
        r.shift = workspace;
        r.delta = workspace + step;
        r.scale = workspace + 2 * step;
        r.offset = workspace + 3 * step;
    }
    return r;
}

static void sum_all(struct tern_context *ctx, struct groups *r)
{
    for (int64_t n = 0; r->channels_last && n < r->n; n++)
        take_first_pixel(r, n, 0, r->c);
    if (r->channels_last)
        tern_parallel(ctx, r->n * r->blocks, 1, sum_part, r);
}

static void scale_all(struct tern_context *ctx, struct groups *r)
{
    if (!r->channels_last) {
        tern_parallel(ctx, r->n * r->g, 1, contiguous_part, r);
        return;
    }
    tern_parallel(ctx, r->n * r->g, 1, spread_part, r);
    tern_parallel(ctx, r->n * r->blocks, 1, scale_blocks, r);
}

/* ---- the kernels */

static bool group_norm_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return supports_pictures(d) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2);
}

static size_t group_norm_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return cpu_norm_room(d, 1) + cpu_norm_room(d, 2) + room(d, SUMS | AFFINES);
}

static enum tern_status group_norm_run(const struct tern_kernel_args *a)
{
    float *workspace = tern_arg_host(&a->workspace);
    const float *weight = cpu_norm_input(a, 1, &workspace), *bias = cpu_norm_input(a, 2, &workspace);
    struct groups r = begin_run(a, a->desc->attrs.group_norm.num_groups, workspace, SUMS | AFFINES);
    struct cpu_rows rows = rows_of(a->desc);
    r.eps = a->desc->attrs.group_norm.eps;
    r.weight = weight;
    r.bias = bias;
    r.post = cpu_post_make(a, &rows);
    r.slab = r.channels_last ? slab_of(a->ctx, &r) : 0;
    if (r.slab) {
        tern_parallel(a->ctx, r.n * (r.g / r.slab), 1, slab_part, &r);
        return TERN_OK;
    }
    sum_all(a->ctx, &r);
    scale_all(a->ctx, &r);
    return TERN_OK;
}

static bool stats_supports(struct tern_device *device, const struct tern_op_desc *d) { return supports_pictures(d); }

static size_t stats_workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return room(d, SUMS); }

static enum tern_status stats_run(const struct tern_kernel_args *a)
{
    struct groups r = begin_run(a, a->desc->attrs.group_norm_stats.num_groups, tern_arg_host(&a->workspace), SUMS);
    sum_all(a->ctx, &r);
    tern_parallel(a->ctx, r.n * r.g, 1, stats_part, &r);
    return TERN_OK;
}

static bool apply_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return supports_pictures(d) && cpu_norm_vector(d, 1) && cpu_norm_vector(d, 2) && cpu_norm_vector(d, 3);
}

static size_t apply_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return cpu_norm_room(d, 1) + cpu_norm_room(d, 2) + cpu_norm_room(d, 3) + room(d, AFFINES);
}

static enum tern_status apply_run(const struct tern_kernel_args *a)
{
    float *workspace = tern_arg_host(&a->workspace);
    const float *given = cpu_norm_input(a, 1, &workspace), *weight = cpu_norm_input(a, 2, &workspace),
                *bias = cpu_norm_input(a, 3, &workspace);
    struct groups r = begin_run(a, a->desc->in[1].shape[1], workspace, AFFINES);
    struct cpu_rows rows = rows_of(a->desc);
    r.given = given;
    r.eps = a->desc->attrs.group_norm_apply.eps;
    r.weight = weight;
    r.bias = bias;
    r.post = cpu_post_make(a, &rows);
    scale_all(a->ctx, &r);
    return TERN_OK;
}

const struct tern_kernel cpu_group_norm_float = {.name = "group_norm_float",
                                                 .op = TERN_OP_group_norm,
                                                 .supports = group_norm_supports,
                                                 .post = picture_post,
                                                 .workspace = group_norm_workspace,
                                                 .run = group_norm_run};
const struct tern_kernel cpu_group_norm_stats_float = {.name = "group_norm_stats_float",
                                                       .op = TERN_OP_group_norm_stats,
                                                       .supports = stats_supports,
                                                       .workspace = stats_workspace,
                                                       .run = stats_run};
const struct tern_kernel cpu_group_norm_apply_float = {.name = "group_norm_apply_float",
                                                       .op = TERN_OP_group_norm_apply,
                                                       .supports = apply_supports,
                                                       .post = picture_post,
                                                       .workspace = apply_workspace,
                                                       .run = apply_run};
