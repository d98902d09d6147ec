/* Copies of pictures with their padding, and the pieces of products that read them. */
#include "backends/cpu/views.h"

#include <string.h>

#include "backends/cpu/integers.h"
#include "core/threads.h"

#define HALF TERN_DOT_HALF
#define LINE 32                         /* halves of words of 64 bytes */
#define LEAST_PADDED ((int64_t)1 << 18) /* pixels that are never too many */
#define MOST_TIMES 64                   /* as many pixels as the picture and the result have */
#define MOST_BYTES ((int64_t)1 << 47)   /* more than memory has */
/* Of a pixel in a part of whole filters, which a block reads from L2: fewer where each column of the filter has a copy of its own. */
#define MOST_WORDS 320
#define MOST_WORDS_BY_COLUMN 160
#define MOST_COPIES 5 /* of a picture: one for each column of the filter */
#define BAND 3        /* copies of a band take so many times the L2 of all threads */

bool tern_cpu_views_fit(const struct tern_op_desc *d, int64_t bytes)
{
    const int64_t *x = d->in[0].shape, *o = d->out.shape, there = x[0] * x[2] * x[3] + o[0] * o[2] * o[3];
    const int64_t *padding = d->attrs.conv2d.padding;
    int64_t pixels, all;
    return !__builtin_mul_overflow(x[2] + 2 * padding[0], x[3] + 2 * padding[1], &pixels) &&
           !__builtin_mul_overflow(pixels, x[0], &pixels) && (pixels <= LEAST_PADDED || pixels / MOST_TIMES <= there) &&
           !__builtin_mul_overflow(pixels, bytes, &all) && all <= MOST_BYTES;
}

/* Whether outputs of one row go on in the next one of a copy that is as wide as they are. */
static bool rows_follow(const struct cpu_picture *s) { return s->stride_h == 1 && s->oh * s->ow % HALF == 0 && s->kw <= MOST_COPIES; }

bool tern_cpu_has_views(const struct cpu_picture *s) { return s->ow % HALF == 0 || rows_follow(s); }

/* Rows of a copy that so many rows of outputs read. */
static int64_t rows_read(const struct cpu_picture *s, int64_t rows) { return (rows - 1) * s->stride_h + (s->kh - 1) * s->dilation_h + 1; }

/* Rows of outputs that bands begin at multiples of: their number times ow is one of two halves of a block. */
static int64_t band_step(const struct cpu_picture *s)
{
    int64_t step = 1;
    while (step < 2 * HALF && (step * s->ow) % (2 * HALF) != 0)
        step *= 2;
    return max64(step, 2);
}

static void cut_bands(struct tern_context *ctx, struct cpu_views *v)
{
    const struct cpu_picture *s = &v->s;
    v->pictures = v->rows = 1;
    if (v->n * s->oh * s->ow == 0)
        return;
    const int64_t row = v->copies * v->w * v->pitch * 2, step = band_step(s);
    const int64_t most = max64(1, BAND * (int64_t)cpu_device_of(ctx)->l2 * tern_thread_count(ctx) / max64(row, 1)); /* rows of copies */
    const int64_t whole = rows_read(s, s->oh);
    if (whole <= most) {
        v->pictures = ceil_div(v->n, ceil_div(v->n, min64(most / whole, v->n)));
        v->rows = s->oh;
        v->bands = ceil_div(v->n, v->pictures);
    } else {
        const int64_t beyond = rows_read(s, 1) - 1;
        v->rows = min64(s->oh, equal_part(s->oh, max64(1, (most - beyond) / s->stride_h), step));
        v->bands = v->n * ceil_div(s->oh, v->rows);
    }
    v->h = rows_read(s, v->rows);
}

struct cpu_views tern_cpu_views_make(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_cpu_dot *dot, int64_t words)
{
    struct cpu_views v = {.s = tern_cpu_picture_make(d, NULL), .words = words, .pitch = odd_lines(words, LINE), .copies = 1};
    const struct cpu_picture *s = &v.s;
    v.n = d->in[0].shape[0];
    v.gathered = !tern_cpu_has_views(s);
    v.w = s->w + 2 * s->pad_w;
    if (!v.gathered && s->ow % HALF != 0) {
        v.by_column = true;
        v.copies = s->kw;
        v.w = s->ow;
    }
    v.taps = dot->past_l1 && !v.gathered && s->stride_h == 1 && s->kh * s->kw <= TERN_DOT_PIECES ? s->kh * s->kw : s->kw;
    cut_bands(ctx, &v);
    return v;
}

size_t tern_cpu_views_bytes(const struct cpu_views *v)
{
    return (size_t)round_up(v->pictures * v->copies * v->h * v->w * v->pitch * 2, 64);
}

/* ---- copies */

struct copy {
    const struct cpu_views *v;
    cpu_views_fill *fill;
    const void *arg;
    int zero;
};

/* Pixels of a row of a copy: that of column kx of the filter, or of all. ix: of the first one, beside the picture it may be. */
static void copy_row(const struct copy *c, int64_t n, int64_t iy, int64_t kx, uint16_t *to)
{
    const struct cpu_views *v = c->v;
    const struct cpu_picture *s = &v->s;
    const bool own = v->by_column;
    const int64_t step = own ? s->stride_w : 1, ix = (own ? kx * s->dilation_w : 0) - s->pad_w;
    const int64_t first = iy < 0 || iy >= s->h ? v->w : min64(ix < 0 ? ceil_div(-ix, step) : 0, v->w);
    const int64_t end = first == v->w ? v->w : max64(first, min64(v->w, ix < s->w ? ceil_div(s->w - ix, step) : 0));
    memset(to, c->zero, (size_t)(first * v->pitch * 2));
    if (step == 1 && first < end)
        c->fill(c->arg, v, n, iy, ix + first, end - first, to + first * v->pitch);
    for (int64_t i = first; step > 1 && i < end; i++)
        c->fill(c->arg, v, n, iy, ix + i * step, 1, to + i * v->pitch);
    memset(to + end * v->pitch, c->zero, (size_t)((v->w - end) * v->pitch * 2));
}

/* The column of the filter whose copy is the picture as it is; -1: there is none, or they share one. */
static int64_t middle_of(const struct cpu_views *v)
{
    const struct cpu_picture *s = &v->s;
    const bool is_there = v->by_column && s->stride_w == 1 && s->w == s->ow && s->pad_w % s->dilation_w == 0;
    return is_there && s->pad_w / s->dilation_w < s->kw ? s->pad_w / s->dilation_w : -1;
}

/* Pixels of that copy, `by` further on, and zeros beside them. */
static void shift_row(const struct copy *c, int64_t by, const uint16_t *from, uint16_t *to)
{
    const struct cpu_views *v = c->v;
    const int64_t zeros = min64(by < 0 ? -by : by, v->w), rest = v->w - zeros;
    memset(by < 0 ? to : to + rest * v->pitch, c->zero, (size_t)(zeros * v->pitch * 2));
    memcpy(by < 0 ? to + zeros * v->pitch : to, by < 0 ? from : from + zeros * v->pitch, (size_t)(rest * v->pitch * 2));
}

static void copy_rows(void *arg, int64_t begin, int64_t end)
{
    const struct copy *c = arg;
    const struct cpu_views *v = c->v;
    for (int64_t r = begin; r < end; r++) {
        const int64_t n = v->first_n + r / v->h, y = r % v->h, iy = v->first_y * v->s.stride_h + y - v->s.pad_h;
        uint16_t *to = v->at + (r / v->h * v->copies * v->h + y) * v->w * v->pitch;
        const int64_t step = v->h * v->w * v->pitch, middle = middle_of(v);
        if (middle >= 0)
            copy_row(c, n, iy, middle, to + middle * step);
        for (int64_t kx = 0; kx < v->copies; kx++)
            if (middle < 0)
                copy_row(c, n, iy, kx, to + kx * step);
            else if (kx != middle)
                shift_row(c, (kx - middle) * v->s.dilation_w, to + middle * step, to + kx * step);
    }
}

static int64_t bands_of_picture(const struct cpu_views *v) { return ceil_div(v->s.oh, v->rows); }

int64_t tern_cpu_views_band(const struct cpu_views *v, int64_t i, int64_t *first)
{
    const int64_t n = i / bands_of_picture(v) * v->pictures, y = i % bands_of_picture(v) * v->rows;
    *first = (n * v->s.oh + y) * v->s.ow;
    return min64(v->pictures, v->n - n) * min64(v->rows, v->s.oh - y) * v->s.ow;
}

void tern_cpu_views_copy(struct tern_context *ctx, struct cpu_views *v, int64_t i, cpu_views_fill *fill, const void *arg, int zero)
{
    v->first_n = i / bands_of_picture(v) * v->pictures;
    v->first_y = i % bands_of_picture(v) * v->rows;
    struct copy c = {v, fill, arg, zero};
    const int64_t rows = min64(v->pictures, v->n - v->first_n) * v->h;
    tern_parallel(ctx, rows, max64(1, 16384 / (v->copies * v->w * v->pitch)), copy_rows, &c);
}

/* ---- products */

/* Where the filter begins at an output. */
static const uint16_t *base(const struct cpu_views *v, int64_t output)
{
    const struct cpu_picture *s = &v->s;
    const int64_t ox = output % s->ow, oy = output / s->ow % s->oh - v->first_y, n = output / s->ow / s->oh - v->first_n;
    const int64_t row = n * v->copies * v->h + oy * s->stride_h;
    return v->at + (row * v->w + (v->by_column ? ox : ox * s->stride_w)) * v->pitch;
}

/* From there to a tap. */
static int64_t tap(const struct cpu_views *v, int64_t ky, int64_t kx)
{
    const struct cpu_picture *s = &v->s;
    const int64_t row = (v->by_column ? kx * v->h : 0) + ky * s->dilation_h;
    return (row * v->w + (v->by_column ? 0 : kx * s->dilation_w)) * v->pitch;
}

/* A part of the depth: a range of channels of a row of the filter, or of all of it. */
struct part {
    int64_t ky, c, n;
};

static struct part part_of(const struct cpu_dot_gemm *g, int part)
{
    const struct cpu_views *v = g->source;
    const int64_t most = g->part_depth / v->taps, chunks = ceil_div(v->words, most), c = part % chunks * most;
    return (struct part){part / chunks, c, min64(most, v->words - c)};
}

static int ranges(const struct cpu_dot_gemm *g, int part, struct tern_dot_piece *pieces)
{
    const struct cpu_views *v = g->source;
    const struct part p = part_of(g, part);
    for (int64_t i = 0; i < v->taps; i++)
        pieces[i] = (struct tern_dot_piece){.k0 = (p.ky * v->s.kw + i) * v->words + p.c, .depth = p.n};
    return (int)v->taps;
}

static int stage(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces)
{
    const struct cpu_views *v = g->source;
    const struct part p = part_of(g, part);
    const int64_t row = tern_cpu_dot_row(g, row0), half = rows <= HALF ? 0 : g->apart ? g->apart : HALF;
    const uint16_t *a[2] = {base(v, row) + p.c, base(v, row + half) + p.c};
    const int n = ranges(g, part, pieces);
    for (int i = 0; i < n; i++) {
        struct tern_dot_piece *piece = &pieces[i];
        const int64_t at = tap(v, p.ky + i / v->s.kw, i % v->s.kw);
        piece->ld = v->gathered ? v->taps * p.n : (v->by_column ? 1 : v->s.stride_w) * v->pitch;
        for (int j = 0; j < 2; j++)
            piece->a[j] = v->gathered ? scratch + (j * HALF * v->taps + i) * p.n : a[j] + at;
        for (int64_t k = 0; k < rows && v->gathered; k++)
            memcpy(scratch + (k * v->taps + i) * p.n, base(v, row + k) + p.c + at, (size_t)p.n * sizeof(*scratch));
    }
    return n;
}

void tern_cpu_views_parts(struct tern_context *ctx, const struct cpu_views *v, struct cpu_dot_gemm *g)
{
    const struct cpu_picture *s = &v->s;
    g->source = v;
    g->stage = stage;
    g->ranges = ranges;
    if (tern_cpu_picture_is_matrix(s)) {
        tern_cpu_dot_parts(ctx, g);
    } else {
        const bool whole = g->dot->past_l1 && !v->gathered && v->taps == s->kh * s->kw;
        const int64_t strip = (HALF - 1) * s->stride_w + (s->kw - 1) * s->dilation_w + 1;
        int64_t channels = equal_part(v->words, v->by_column ? MOST_WORDS_BY_COLUMN : MOST_WORDS, LINE);
        if (!whole)
            channels =
                round_up(tern_cpu_dot_part(ctx, g->dot, v->words, v->gathered || v->by_column ? TERN_DOT_ROWS * v->taps : 2 * strip), LINE);
        g->rows = TERN_DOT_ROWS;
        g->apart = whole && !v->by_column && s->oh % 2 == 0 ? s->ow : 0;
        g->parts = (int)(s->kh * s->kw / v->taps * ceil_div(v->words, channels));
        g->part_depth = v->taps * channels;
        g->scratch = (size_t)(TERN_DOT_ROWS * g->part_depth);
    }
    g->scratch = v->gathered ? g->scratch : 0;
}

size_t tern_cpu_views_workspace(struct tern_context *ctx, const struct cpu_views *v, const struct cpu_dot_gemm *g)
{
    if (!v->bands)
        return 0;
    const int64_t bands[] = {0, bands_of_picture(v) - 1, v->bands - 1};
    struct cpu_dot_gemm band = *g;
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        band.m = tern_cpu_views_band(v, bands[i], &band.first);
        const size_t size = tern_cpu_dot_workspace(ctx, &band);
        most = size > most ? size : most;
    }
    return most;
}
