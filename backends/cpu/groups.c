/* Groups of channels on contiguous and channels-last pictures of f32, f16 or bf16, computed in f32. Sums are taken about a value of the
 * data (so that large means do not cost digits: the mean of the first ones, so that one far from the others does not, either), in short f32
 * runs added in double. */
#include "backends/cpu/groups.h"

#include <math.h>
#include <string.h>

#include "core/threads.h"

#define TILE 2048 /* values that wait in f32 for their posts */
#define FIRST 64  /* values of a group whose mean sums are taken about */
#define ROWS 16   /* likewise pixels of a channel; of small pictures fewer */

/* The mean is base + delta, a value of the data and a small difference. */
struct moments {
    float base;
    double delta, variance;
};

/* Where one of the first values is not finite sums are taken about nothing: the mean may be infinite. */
static float about(float shift) { return isfinite(shift) ? shift : 0; }

/* About where the values are. */
static float contiguous_shift(const struct groups *r, const char *x, int64_t count)
{
    float first[FIRST];
    const int64_t n = count < FIRST ? count : FIRST;
    double sum = 0;
    r->level->to_f32(r->dtype, n, x, first);
    for (int64_t i = 0; i < n; i++)
        sum += first[i];
    return about((float)(sum / (double)n));
}

/* (C / g) x HW values of a group lie together. */
static struct moments contiguous_moments(const struct groups *r, int64_t i)
{
    int64_t count = r->c / r->g * r->hw;
    const char *x = r->x + i * count * r->size;
    float base = contiguous_shift(r, x, count);
    double sum, square;
    r->level->moments(r->dtype, count, x, base, &sum, &square);
    double mean = sum / (double)count;
    return (struct moments){base, mean, square / (double)count - mean * mean};
}

/* Adds the blocks of one group in double. Channels were shifted by the mean of the first pixels: x = d + s. */
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

/* What is done with x - base of a channel. */
struct channel {
    float scale, offset;
};

static struct channel channel_of(const struct groups *r, const struct moments *m, double inv, int64_t c)
{
    const double scale = inv * (r->weight ? r->weight[c] : 1);
    return (struct channel){(float)scale, (float)((r->bias ? r->bias[c] : 0) - m->delta * scale)};
}

/* Columns col .. col + n of `rows` rows of `width` values, from row `row` on, by way of f32: several rows only when they are whole. */
static void scale_tile(const struct groups *r, const struct tern_cpu_affine *a, bool vectors, int64_t row, int64_t rows, int64_t col,
                       int64_t n, int64_t width)
{
    float tile[TILE];
    const int64_t at = row * width + col, from = vectors ? col : 0;
    const struct tern_cpu_affine here = {a->shift + from, a->scale + from, a->offset + from, false};
    char *y = r->y + at * (int64_t)tern_dtype_size(r->y_dtype);
    float *wide = r->y_dtype == TERN_F32 ? (float *)(void *)y : tile;
    r->level->affine(r->dtype, TERN_F32, rows, n, r->x + at * r->size, width, &here, vectors, r->near, wide, n);
    tern_cpu_post_apply_rows(&r->post, wide, row, rows, col, n);
    if (r->y_dtype != TERN_F32)
        r->level->from_f32(r->y_dtype, rows * n, tile, y);
}

/* Rows row .. row + rows of n values that lie behind each other. */
static void scale_rows(const struct groups *r, const struct tern_cpu_affine *a, bool vectors, int64_t row, int64_t rows, int64_t n)
{
    if (!r->post.n) {
        const int64_t at = row * n;
        r->level->affine(r->dtype, r->y_dtype, rows, n, r->x + at * r->size, n, a, vectors, r->near,
                         r->y + at * (int64_t)tern_dtype_size(r->y_dtype), n);
        return;
    }
    const int64_t high = n < TILE ? TILE / n : 1;
    for (int64_t k = 0; k < rows; k += high)
        for (int64_t i = 0; i < n; i += TILE)
            scale_tile(r, a, vectors, row + k, rows - k < high ? rows - k : high, i, n - i < TILE ? n - i : TILE, n);
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
            const struct channel k = channel_of(r, &m, inv, row % r->c);
            scale_rows(r, &(struct tern_cpu_affine){&m.base, &k.scale, &k.offset, r->silu}, false, row, 1, r->hw);
        }
    }
}

/* ---- channels-last: sums by channel of blocks of pixels, then a group as the sum of its channels */

static int64_t picture_bytes(const struct groups *r) { return r->hw * r->c * r->size; }

static void shift_channels(const struct groups *r, int64_t n)
{
    const int64_t some = r->hw / ROWS, rows = some < 1 ? 1 : some < ROWS ? some : ROWS;
    float *shift = r->first + n * r->c, *row = r->sums + n * r->blocks * 2 * r->c; /* which is not filled yet */
    memset(shift, 0, (size_t)r->c * sizeof(*shift));
    for (int64_t p = 0; p < rows; p++) {
        r->level->to_f32(r->dtype, r->c, r->x + n * picture_bytes(r) + p * r->c * r->size, row);
        for (int64_t c = 0; c < r->c; c++)
            shift[c] += row[c] / (float)rows;
    }
    for (int64_t c = 0; c < r->c; c++)
        shift[c] = about(shift[c]);
}

static void sum_block(const struct groups *r, int64_t n, int64_t block)
{
    int64_t p = block * CPU_GROUPS_BLOCK, rows = r->hw - p < CPU_GROUPS_BLOCK ? r->hw - p : CPU_GROUPS_BLOCK;
    float *sum = r->sums + (n * r->blocks + block) * 2 * r->c;
    memset(sum, 0, (size_t)(2 * r->c) * sizeof(*sum));
    r->level->moments_by_column(r->dtype, rows, r->c, r->x + (n * r->hw + p) * r->c * r->size, r->c, r->near, r->first + n * r->c, sum,
                                sum + r->c);
}

/* The affine of each channel of group i, counted over all pictures. */
static void spread(const struct groups *r, int64_t i)
{
    int64_t per = r->c / r->g;
    struct moments m = moments_of(r, i);
    double inv = cpu_norm_scale(m.variance, r->eps);
    for (int64_t at = i * per; at < (i + 1) * per; at++) {
        const struct channel k = channel_of(r, &m, inv, at % r->c);
        r->shift[at] = m.base;
        r->scale[at] = k.scale;
        r->offset[at] = k.offset;
    }
}

static void scale_piece(const struct groups *r, int64_t n, int64_t piece)
{
    int64_t p = piece * CPU_GROUPS_PIECE, rows = r->hw - p < CPU_GROUPS_PIECE ? r->hw - p : CPU_GROUPS_PIECE, at = n * r->c;
    struct tern_cpu_affine affine = {r->shift + at, r->scale + at, r->offset + at, r->silu};
    scale_rows(r, &affine, true, n * r->hw + p, rows, r->c);
}

/* Of part i of the pictures. */
static void sum_range(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    const int64_t all = r->pictures * r->blocks;
    for (int64_t i = all * begin / r->parts, behind = all * end / r->parts, b = i; b < behind; b++) {
        const int64_t at = r->backwards ? i + behind - 1 - b : b;
        sum_block(r, r->from + at / r->blocks, at % r->blocks);
    }
}

/* Where what was summed last is in cache it comes first; what comes from memory is fetched ahead in order. */
static void scale_range(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    const int64_t all = r->pictures * r->pieces, first = all * begin / r->parts, behind = all * end / r->parts;
    for (int64_t i = first; i < behind; i++) {
        const int64_t p = r->near ? first + behind - 1 - i : i;
        scale_piece(r, r->from + p / r->pieces, p % r->pieces);
    }
}

static void spread_part(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t i = begin; i < end; i++)
        spread(r, r->from * r->g + i);
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

/* ---- all of it */

/* All of each: threads wait for nothing. */
static void whole_pictures(void *arg, int64_t begin, int64_t end)
{
    const struct groups *r = arg;
    for (int64_t n = begin; n < end; n++) {
        if (!r->given) {
            shift_channels(r, n);
            for (int64_t b = 0; b < r->blocks; b++)
                sum_block(r, n, b);
        }
        for (int64_t i = 0; i < r->g; i++)
            spread(r, n * r->g + i);
        for (int64_t p = r->pieces; p-- > 0;)
            scale_piece(r, n, p);
    }
}

/* As many pictures as fit into the L2 of all threads are summed and then scaled, each thread its part of them: so they come from memory
 * once. Larger ones come twice. */
static void begin_rounds(struct tern_context *ctx, struct groups *r)
{
    const int64_t threads = tern_thread_count(ctx), room = threads * (int64_t)cpu_device_of(ctx)->l2 / 4 * 3;
    const int64_t fit = room / picture_bytes(r);
    r->near = fit > 0;
    r->pictures = fit < 1 || fit > r->n ? r->n : fit;
    r->parts = fit < 1 ? 8 * threads : threads;
}

/* Where all threads get as many, that is one loop, not three for some of them. Larger pictures took longer so. */
static bool takes_whole_pictures(struct tern_context *ctx, const struct groups *r)
{
    return r->n % tern_thread_count(ctx) == 0 && picture_bytes(r) <= 3 * (int64_t)cpu_device_of(ctx)->l2;
}

static void sum_all(struct tern_context *ctx, struct groups *r)
{
    for (int64_t n = r->from; n < r->from + r->pictures; n++)
        shift_channels(r, n);
    tern_parallel(ctx, r->parts, 1, sum_range, r);
}

static void scale_all(struct tern_context *ctx, struct groups *r)
{
    tern_parallel(ctx, r->pictures * r->g, 8, spread_part, r);
    tern_parallel(ctx, r->parts, 1, scale_range, r);
}

/* One that is silu, as in models, is done in registers. */
static void take_silu(struct groups *r)
{
    r->silu = r->post.n == 1 && r->post.step[0].unary == cpu_unary_for(r->level, r->y_dtype, TERN_CPU_SILU);
    r->post.n -= r->silu;
}

void tern_cpu_groups_normalize(struct tern_context *ctx, struct groups *r)
{
    take_silu(r);
    if (!r->channels_last) {
        tern_parallel(ctx, r->n * r->g, 1, contiguous_part, r);
        return;
    }
    if (takes_whole_pictures(ctx, r)) {
        r->near = true;
        tern_parallel(ctx, r->n, 1, whole_pictures, r);
        return;
    }
    begin_rounds(ctx, r);
    for (const int64_t most = r->pictures; r->from < r->n; r->from += r->pictures) {
        r->pictures = r->n - r->from < most ? r->n - r->from : most;
        if (!r->given)
            sum_all(ctx, r);
        scale_all(ctx, r);
    }
}

void tern_cpu_groups_stats(struct tern_context *ctx, struct groups *r)
{
    if (r->channels_last) {
        r->pictures = r->n;
        r->parts = 8 * tern_thread_count(ctx);
        sum_all(ctx, r);
    }
    tern_parallel(ctx, r->n * r->g, 1, stats_part, r);
}

void tern_cpu_groups_affines(struct tern_context *ctx, struct groups *r)
{
    begin_rounds(ctx, r);
    r->pictures = r->n;
    r->backwards = r->near;
    sum_all(ctx, r);
    tern_parallel(ctx, r->n * r->g, 8, spread_part, r);
}
