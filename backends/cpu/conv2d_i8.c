/* quantized_conv2d as an implicit GEMM on channels-last pictures of any floating dtype. A picture is quantised first, as a whole: with its
 * padding around it and its channels filled up to lines of the cache. So each tap of a row of the filter is a shifted view of it where
 * sixteen neighbouring outputs lie in one row of the picture; elsewhere the views are gathered. */
#include <math.h>
#include <string.h>

#include "backends/cpu/gemm_i8.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/patches.h"
#include "core/threads.h"

/* The picture that is multiplied: bytes, padded; `x` and `c` count pairs of them. */
static struct cpu_picture padded(const struct tern_op_desc *d, const void *bytes)
{
    struct cpu_picture s = tern_cpu_picture_make(d, bytes);
    s.h += 2 * s.pad_h;
    s.w += 2 * s.pad_w;
    s.c = round_up(s.c, CPU_I8_LINE) / 2;
    s.pad_h = s.pad_w = 0;
    return s;
}

#define LEAST_PADDED ((int64_t)1 << 18) /* pixels that are never too many */
#define MOST_TIMES 64                   /* as many pixels as the picture and the result have */
#define MOST_BYTES ((int64_t)1 << 47)   /* more than memory has */

/* Padding takes no memory in a call and may be of any size; here each pixel of it does. */
static bool can_be_padded(const struct tern_op_desc *d)
{
    const int64_t *x = d->in[0].shape, *o = d->out.shape, there = x[0] * x[2] * x[3] + o[0] * o[2] * o[3];
    const int64_t *padding = d->attrs.conv2d.padding;
    int64_t pixels, bytes;
    return !__builtin_mul_overflow(x[2] + 2 * padding[0], x[3] + 2 * padding[1], &pixels) &&
           !__builtin_mul_overflow(pixels, x[0], &pixels) && (pixels <= LEAST_PADDED || pixels / MOST_TIMES <= there) &&
           !__builtin_mul_overflow(pixels, round_up(x[1], CPU_I8_LINE), &bytes) && bytes <= MOST_BYTES;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    return tern_cpu_i8_fits(d, tern_meta_is_channels_last(&d->in[0]) && tern_meta_is_channels_last(&d->out)) &&
           d->attrs.conv2d.groups == 1 && w[1] * w[2] * w[3] > 0 && w[3] <= TERN_DOT_PIECES &&
           round_up(w[1], CPU_I8_LINE) * w[2] * w[3] <= CPU_I8_MOST_DEPTH && can_be_padded(d);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    return tern_cpu_post_fits(d, d->in[0].dtype, &rows);
}

/* ---- views */

/* Where the filter begins at an output, in the row `ky` of the filter. */
static const uint16_t *pixel(const struct cpu_picture *s, int64_t output, int64_t ky)
{
    int64_t ox = output % s->ow, oy = output / s->ow % s->oh, n = output / s->ow / s->oh;
    int64_t iy = oy * s->stride_h + ky * s->dilation_h, ix = ox * s->stride_w;
    return (const uint16_t *)(const void *)s->x + ((n * s->h + iy) * s->w + ix) * s->c;
}

static bool has_views(const struct cpu_picture *s) { return s->ow % TERN_DOT_HALF == 0; }

/* Sixteen outputs and those below them are a block, which share most of the rows that they read; where sums that come and go cost more than
 * pixels that are read for one filter row and again for the next. Levels other than AMX take 1.08 of the time so. */
static bool is_apart(const struct cpu_picture *s, const struct tern_cpu_dot *dot)
{
    return dot->past_l1 && has_views(s) && s->oh % 2 == 0 && s->stride_h == 1 && s->kh * s->kw <= TERN_DOT_PIECES;
}

/* A part of the depth is a range of channels and a row of the filter, or with such blocks all of it. */
static int64_t filter_rows(const struct cpu_picture *s, bool apart) { return apart ? s->kh : 1; }

static int stage(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces)
{
    const struct cpu_picture *s = g->source;
    const int64_t kh = filter_rows(s, g->apart > 0), taps = kh * s->kw, most = g->part_depth / taps, chunks = ceil_div(s->c, most);
    const int64_t c = part % chunks * most, n = min64(most, s->c - c), row = tern_cpu_dot_row(g, row0);
    const bool views = has_views(s);
    for (int64_t i = 0; i < taps; i++) {
        const int64_t ky = part / chunks * kh + i / s->kw, kx = i % s->kw, tap = kx * s->dilation_w * s->c + c;
        struct tern_dot_piece *piece = &pieces[i];
        *piece = (struct tern_dot_piece){.k0 = (ky * s->kw + kx) * s->c + c, .depth = n, .ld = views ? s->stride_w * s->c : taps * n};
        for (int64_t half = 0; half < 2; half++) {
            const int64_t first = !half || rows <= TERN_DOT_HALF ? 0 : g->apart ? g->apart : TERN_DOT_HALF;
            piece->a[half] = views ? pixel(s, row + first, ky) + tap : scratch + (half * TERN_DOT_HALF * taps + i) * n;
        }
        for (int64_t k = 0; k < rows && !views; k++)
            memcpy(scratch + (k * taps + i) * n, pixel(s, row0 + k, ky) + tap, (size_t)n * sizeof(*scratch));
    }
    return (int)taps;
}

static bool is_matrix(const struct tern_op_desc *d)
{
    const struct cpu_picture s = tern_cpu_picture_make(d, NULL);
    return tern_cpu_picture_is_matrix(&s);
}

static struct cpu_dot_gemm conv_gemm(struct tern_context *ctx, const struct tern_op_desc *d, const struct cpu_picture *s)
{
    const int64_t *o = d->out.shape;
    const struct tern_cpu_dot *dot = &cpu_level(ctx)->i8.dot;
    if (is_matrix(d)) {
        struct cpu_dot_gemm g = {.m = o[0] * o[2] * o[3], .n = o[1], .k = s->c, .dot = dot, .source = s, .ldc = o[1], .stage = stage};
        tern_cpu_dot_parts(ctx, &g);
        g.scratch = has_views(s) ? 0 : g.scratch;
        return g;
    }
    const bool views = has_views(s), apart = is_apart(s, dot);
    const int64_t kh = filter_rows(s, apart), high = (kh - 1) * s->dilation_h + 1, taps = kh * s->kw;
    const int64_t strip = (TERN_DOT_HALF - 1) * s->stride_w + (s->kw - 1) * s->dilation_w + 1;
    const int64_t pixels = views ? strip * (apart ? 1 + high : 2) : TERN_DOT_ROWS * taps;
    const int64_t channels = round_up(tern_cpu_dot_part(ctx, dot, s->c, pixels), CPU_I8_LINE / 2);
    return (struct cpu_dot_gemm){.m = o[0] * o[2] * o[3],
                                 .n = o[1],
                                 .k = s->c * s->kh * s->kw,
                                 .dot = dot,
                                 .rows = TERN_DOT_ROWS,
                                 .apart = apart ? s->ow : 0,
                                 .source = s,
                                 .ldc = o[1],
                                 .parts = (int)(s->kh / kh * ceil_div(s->c, channels)),
                                 .part_depth = taps * channels,
                                 .scratch = views ? 0 : (size_t)(TERN_DOT_ROWS * taps * channels),
                                 .stage = stage};
}

/* first: pictures are quantised first, as wholes, and not by tasks. */
struct plan {
    struct cpu_picture s;
    struct cpu_dot_values values;
    struct cpu_dot_gemm g;
    bool first;
};

static void plan_of(struct tern_context *ctx, const struct tern_op_desc *d, void *bytes, struct plan *p)
{
    p->s = padded(d, bytes);
    p->g = conv_gemm(ctx, d, &p->s);
    p->values = (struct cpu_dot_values){.dtype = d->in[0].dtype, .k = d->in[0].shape[1], .pitch = odd_lines(2 * p->s.c, CPU_I8_LINE)};
    p->first = !is_matrix(d) || !tern_cpu_i8_rows_by_tasks(ctx, &p->g, &p->values);
}

/* ---- the picture in bytes */

struct sizes {
    size_t picture, rows, factors; /* bytes of the padded pictures, of the largest values of their rows, of their factors */
};

static struct sizes sizes_of(const struct tern_op_desc *d, const struct plan *p)
{
    const int64_t *x = d->in[0].shape;
    return (struct sizes){p->first ? (size_t)(x[0] * p->s.h * p->s.w * p->s.c) * 2 : 0, (size_t)round_up(x[0] * x[2] * 4, CPU_I8_LINE),
                          (size_t)round_up(x[0] * 8, CPU_I8_LINE)};
}

struct quantize {
    const struct tern_cpu_i8 *i8;
    const struct tern_op_desc *d;
    const struct cpu_picture *to; /* padded */
    const char *x;
    uint8_t *y;
    float *most; /* of rows */
    float *in, *out;
};

static const char *row_of(const struct quantize *q, int64_t row)
{
    const int64_t *x = q->d->in[0].shape;
    return q->x + (size_t)(row * x[3] * x[1]) * tern_dtype_size(q->d->in[0].dtype);
}

static void measure_rows(void *arg, int64_t begin, int64_t end)
{
    const struct quantize *q = arg;
    const int64_t *x = q->d->in[0].shape;
    for (int64_t r = begin; r < end; r++)
        q->most[r] = q->i8->most(q->d->in[0].dtype, x[3] * x[1], row_of(q, r));
}

static void find_factors(const struct quantize *q)
{
    const int64_t *x = q->d->in[0].shape;
    for (int64_t n = 0; n < x[0]; n++) {
        float most = 0;
        for (int64_t y = 0; y < x[2]; y++)
            most = q->most[n * x[2] + y] <= most || isnan(most) ? most : q->most[n * x[2] + y];
        struct tern_quantize_factors f = tern_quantize_factors_of(most);
        q->in[n] = f.in;
        q->out[n] = f.out;
    }
}

/* Rows of the padded pictures. */
static void quantize_rows(void *arg, int64_t begin, int64_t end)
{
    const struct quantize *q = arg;
    const struct cpu_picture *s = q->to;
    const int64_t *x = q->d->in[0].shape, c = 2 * s->c, left = q->d->attrs.conv2d.padding[1];
    const enum tern_dtype dtype = q->d->in[0].dtype;
    for (int64_t r = begin; r < end; r++) {
        const int64_t n = r / s->h, y = r % s->h - q->d->attrs.conv2d.padding[0];
        uint8_t *to = q->y + r * s->w * c;
        if (y < 0 || y >= x[2] || left > 0 || x[1] < c)
            memset(to, q->i8->zero, (size_t)(s->w * c));
        if (y < 0 || y >= x[2])
            continue;
        const char *from = row_of(q, n * x[2] + y);
        const int64_t runs = x[1] < c ? x[3] : 1, run = x[1] < c ? x[1] : x[3] * c;
        for (int64_t i = 0; i < runs; i++)
            q->i8->quantize(dtype, run, from + (size_t)(i * run) * tern_dtype_size(dtype), q->in[n], to + (left + i) * c);
    }
}

/* ---- the kernel */

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct plan p;
    plan_of(ctx, d, NULL, &p);
    struct sizes sizes = sizes_of(d, &p);
    size_t size = tern_cpu_dot_workspace(ctx, &p.g);
    return size ? CPU_I8_LINE + sizes.picture + sizes.rows + sizes.factors + size : 0;
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    return tern_cpu_i8_packed_size(&d->in[1], round_up(w[1], CPU_I8_LINE) * w[2] * w[3], false);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    tern_cpu_i8_pack(ctx, &d->in[1], false, src, dst, NULL, NULL);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    if (!a->workspace.buffer)
        return TERN_OK;
    char *bytes = tern_arg_host(&a->workspace);
    bytes += (CPU_I8_LINE - (uintptr_t)bytes % CPU_I8_LINE) % CPU_I8_LINE;
    struct plan p;
    plan_of(a->ctx, d, bytes, &p);
    const struct sizes sizes = sizes_of(d, &p);
    const struct cpu_rows rows = tern_cpu_rows_channels_last();
    const int64_t *x = d->in[0].shape;
    struct quantize q = {
        &cpu_level(a->ctx)->i8, d, &p.s, tern_arg_host(&a->in[0]), (uint8_t *)bytes, (float *)(void *)(bytes + sizes.picture)};
    q.in = (float *)(void *)(bytes + sizes.picture + sizes.rows);
    q.out = q.in + x[0];
    const int64_t tile = max64(1, 16384 / (x[1] * x[3]));
    tern_parallel(a->ctx, x[0] * x[2], tile, measure_rows, &q);
    find_factors(&q);
    if (p.first)
        tern_parallel(a->ctx, x[0] * p.s.h, tile, quantize_rows, &q);
    p.values.x = q.x;
    p.values.in = q.in;
    p.values.rows = p.s.oh * p.s.ow;
    return tern_cpu_i8_launch(a, &p.g, &rows, q.out, p.values.rows, bytes + sizes.picture + sizes.rows + sizes.factors);
}

const struct tern_kernel tern_cpu_quantized_conv2d_i8_igemm = {
    .name = "quantized_conv2d_i8_igemm",
    .op = TERN_OP_quantized_conv2d,
    .revision = 4,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};
