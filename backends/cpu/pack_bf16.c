/* Weights packed for products of bf16: panels of pairs along the depth. */
#include <string.h>

#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/panels.h"
#include "backends/cpu/transpose.h"

size_t tern_cpu_bf16_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k)
{
    int64_t rest = n % TERN_DOT_NR;
    int64_t width = n - rest + (rest == 0 ? 0 : rest <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR);
    return level->bf16.dot.step ? (size_t)(width * round_up(k, level->bf16.dot.step)) * 2 : 0;
}

#define VALUES 256 /* of a column that are converted at once */
#define PITCH (VALUES + 2)

struct pack_run {
    const struct tern_cpu_level *level;
    int64_t n, c, taps; /* gated: n of values, n of gates */
    bool gated;
    enum tern_dtype dtype;
    const char *src;
    uint16_t *dst;
};

/* A piece of the weights of a panel: channels c0 .. c1, taps t0 .. t1, in bf16. */
struct piece {
    int64_t c0, c1, t0, t1;
    uint16_t columns[TERN_DOT_NR][PITCH]; /* as they lie in the weights */
    uint16_t rows[VALUES][TERN_DOT_NR];
};

/* src: of the panel's first column */
static void convert(const struct pack_run *r, const char *src, int64_t cols, struct piece *p)
{
    const size_t element = tern_dtype_size(r->dtype);
    const int64_t n = (p->c1 - p->c0) * (p->t1 - p->t0);
    float wide[VALUES];
    for (int64_t j = 0; j < cols; j++) {
        const char *from = src + (size_t)((j * r->c + p->c0) * r->taps + p->t0) * element;
        if (r->dtype == TERN_BF16) {
            memcpy(p->columns[j], from, (size_t)n * element);
        } else {
            r->level->to_f32(r->dtype, n, from, wide);
            r->level->from_f32(TERN_BF16, n, wide, p->columns[j]);
        }
    }
}

/* to[2 j] = a[j], to[2 j + 1] = b[j] */
static void interleave(int64_t n, const uint16_t *a, const uint16_t *b, uint16_t *to)
{
    cpu_u16x8 x, y;
    cpu_u32x4 pairs[2];
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) {
        memcpy(&x, a + j, sizeof(x));
        memcpy(&y, b + j, sizeof(y));
        pairs[0] = CPU_LOW16(x, y);
        pairs[1] = CPU_HIGH16(x, y);
        memcpy(to + 2 * j, pairs, sizeof(pairs));
    }
    for (; j < n; j++) {
        to[2 * j] = a[j];
        to[2 * j + 1] = b[j];
    }
}

/* Of a weight with one tap: a pair of a column is a word as it lies there. */
static void lay_out_pairs(const struct piece *p, int64_t cols, int64_t width, uint16_t *dst)
{
    const int64_t n = p->c1 - p->c0, pairs = n / 2; /* c0 is even */
    uint16_t *to = dst + p->c0 * width;
    cpu_transpose_uint32_t(cols, pairs, (const uint32_t *)(const void *)p->columns[0], PITCH / 2, (uint32_t *)(void *)to, width);
    for (int64_t j = 0; n % 2 && j < cols; j++)
        to[(pairs * width + j) * 2] = p->columns[j][n - 1];
}

/* Rows of the panel from the piece, two at a time where a pair is whole. */
static void lay_out(const struct pack_run *r, struct piece *p, int64_t cols, int64_t width, uint16_t *dst)
{
    const int64_t taps = p->t1 - p->t0;
    cpu_transpose_uint16_t(cols, (p->c1 - p->c0) * taps, p->columns[0], PITCH, p->rows[0], TERN_DOT_NR);
    for (int64_t t = 0; t < taps; t++)
        for (int64_t c = p->c0, step; c < p->c1; c += step) {
            const int64_t row = (p->t0 + t) * r->c + c, at = (c - p->c0) * taps + t;
            uint16_t *to = dst + row / 2 * width * 2 + row % 2;
            step = row % 2 == 0 && c + 1 < p->c1 ? 2 : 1;
            if (step == 2)
                interleave(cols, p->rows[at], p->rows[at + taps], to);
            for (int64_t j = 0; step == 1 && j < cols; j++)
                to[j * 2] = p->rows[at][j];
        }
}

struct panel {
    int64_t cols, width, depth;
    size_t from; /* bytes */
    uint16_t *to;
};

static struct panel panel_of(const struct pack_run *r, int64_t panel)
{
    const int64_t col = (r->gated ? panel / 2 : panel) * TERN_DOT_NR, cols = min64(TERN_DOT_NR, r->n - col), k = r->c * r->taps;
    const int64_t depth = round_up(k, r->level->bf16.dot.step), gates = r->gated && panel % 2 ? r->n : 0;
    return (struct panel){cols, cols <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR, depth,
                          (size_t)((gates + col) * k) * tern_dtype_size(r->dtype), r->dst + panel * TERN_DOT_NR * depth};
}

static void pack_panel(const struct pack_run *r, const struct panel *q, const char *from)
{
    /* Whole channels, an even number of them if that can be, else a channel in parts. */
    const int64_t taps = min64(r->taps, VALUES), channels = taps < r->taps ? 1 : taps <= VALUES / 2 ? VALUES / taps / 2 * 2 : 1;
    struct piece p;
    if (q->cols < q->width || r->c * r->taps < q->depth)
        memset(q->to, 0, (size_t)(q->width * q->depth) * sizeof(*q->to));
    for (p.c0 = 0; p.c0 < r->c; p.c0 = p.c1)
        for (p.t0 = 0; p.t0 < r->taps; p.t0 = p.t1) {
            p.c1 = min64(p.c0 + channels, r->c);
            p.t1 = min64(p.t0 + taps, r->taps);
            convert(r, from, q->cols, &p);
            if (r->taps == 1)
                lay_out_pairs(&p, q->cols, q->width, q->to);
            else
                lay_out(r, &p, q->cols, q->width, q->to);
        }
}

static size_t bytes_of(const struct pack_run *r, int64_t columns) { return (size_t)(columns * r->c * r->taps) * tern_dtype_size(r->dtype); }

static void pack_task(void *arg, int64_t panel, const struct tern_cpu_room *room)
{
    const struct pack_run *r = arg;
    const struct panel q = panel_of(r, panel);
    pack_panel(r, &q, tern_cpu_panel_source(room, r->src + q.from, bytes_of(r, q.cols)));
}

void tern_cpu_bf16_pack(struct tern_context *ctx, const struct tern_meta *weight, bool gated, const void *src, void *dst)
{
    const int64_t turns = gated ? 2 : 1;
    struct pack_run r = {cpu_level(ctx), weight->shape[0] / turns, weight->shape[1], 1, gated, weight->dtype, src, dst};
    for (int i = 2; i < weight->ndim; i++)
        r.taps *= weight->shape[i];
    const int64_t n = ceil_div(r.n, TERN_DOT_NR) * turns;
    const struct panel first = panel_of(&r, 0), last = panel_of(&r, n - 1);
    const size_t step = (size_t)(TERN_DOT_NR * first.depth) * sizeof(*r.dst), end = (size_t)(last.to - r.dst + last.width * last.depth);
    const struct tern_cpu_panels panels = {ctx, n, dst, step, end * sizeof(*r.dst), bytes_of(&r, first.cols)};
    tern_cpu_each_panel(&panels, pack_task, &r);
}

/* Words of rows first .. k, two of a column, from where they are. */
static void gather_words(const struct cpu_pack *p, const uint16_t *src, int64_t first, int64_t cols, int64_t width, uint16_t *dst)
{
    for (int64_t i = first; i < p->k; i++)
        for (int64_t j = 0; j < cols; j++)
            dst[(i / 2 * width + j) * 2 + i % 2] = src[j * p->column + i * p->within];
}

void tern_cpu_bf16_pack_panel(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *src, void *dst, int64_t panel)
{
    const int64_t col = panel * TERN_DOT_NR, cols = min64(TERN_DOT_NR, p->n - col),
                  width = cols <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR;
    const int64_t depth = round_up(p->k, level->bf16.dot.step), pairs = p->k / 2;
    const uint16_t *from = (const uint16_t *)src + col * p->column;
    uint16_t *to = (uint16_t *)dst + col * depth;
    if (cols < width || p->k < depth)
        memset(to, 0, (size_t)(width * depth) * sizeof(*to));
    if (p->column == 1) {
        for (int64_t i = 0; i < pairs; i++)
            interleave(cols, from + 2 * i * p->within, from + (2 * i + 1) * p->within, to + i * width * 2);
        gather_words(p, from, 2 * pairs, cols, width, to);
    } else if (p->within == 1 && p->column % 2 == 0 && (uintptr_t)from % 4 == 0) { /* a column is of whole words */
        cpu_transpose_uint32_t(cols, pairs, (const uint32_t *)(const void *)from, p->column / 2, (uint32_t *)(void *)to, width);
        gather_words(p, from, 2 * pairs, cols, width, to);
    } else {
        gather_words(p, from, 0, cols, width, to);
    }
}
