/* What the kernels of int8 share: factors, packed weights, the launch. */
#include "backends/cpu/gemm_i8.h"

#include <float.h>
#include <string.h>

#include "backends/cpu/gemm_dot_blocks.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/panels.h"

#define NR TERN_DOT_NR
#define AHEAD 2      /* rows that are fetched while one becomes bytes */
#define MOST_TIMES 2 /* that a row is quantised, by tasks */

static bool is_vector(const struct tern_op_desc *d, int i, bool right_dtype)
{
    return !d->present[i] || (right_dtype && tern_meta_is_contiguous(&d->in[i]));
}

bool tern_cpu_i8_fits(const struct tern_op_desc *d, bool result)
{
    return result && tern_meta_is_contiguous(&d->in[1]) && is_vector(d, 2, d->in[2].dtype == TERN_F32) &&
           is_vector(d, 3, tern_dtype_is_float(d->in[3].dtype));
}

/* ---- weights */

/* `rows` of the weight, in panels; gated: twice as many as there are values. */
static size_t panels_size(int64_t rows, int64_t k, bool gated)
{
    const int64_t n = gated ? 2 * round_up(rows / 2, NR) : rows, rest = n % NR;
    return (size_t)((n - rest + (rest == 0 ? 0 : rest <= NR / 2 ? NR / 2 : NR)) * k);
}

struct cpu_i8_packed tern_cpu_i8_parts(const struct tern_meta *weight, int64_t k, bool gated, void *at)
{
    struct cpu_i8_packed p = {at, NULL, NULL};
    p.offset = (int32_t *)(void *)((char *)at + panels_size(weight->shape[0], k, gated));
    p.scale = (float *)(void *)(p.offset + weight->shape[0]);
    return p;
}

size_t tern_cpu_i8_packed_size(const struct tern_meta *weight, int64_t k, bool gated)
{
    return panels_size(weight->shape[0], k, gated) +
           (size_t)weight->shape[0] * (sizeof(int32_t) + (weight->dtype == TERN_I8 ? 0 : sizeof(float)));
}

#define MOST_CHUNK 512 /* values of a row at a time: whole words of four channels, where their taps fit */

struct pack_run {
    const struct tern_cpu_level *level;
    int64_t n, c, taps, depth; /* gated: n of values, n of gates */
    bool gated;
    enum tern_dtype dtype;
    const char *src;
    struct cpu_i8_packed to;
    void (*packed)(void *arg, int64_t panel);
    void *arg;
};

/* Values i .. i + n of a row of the weight as int8; zeros where there is no scale. */
static void read_row(const struct pack_run *r, const char *row, int64_t i, int64_t n, float scale, int8_t *q)
{
    const char *from = row + (size_t)i * tern_dtype_size(r->dtype);
    if (r->dtype == TERN_I8)
        memcpy(q, from, (size_t)n);
    else if (scale > 0 && scale <= FLT_MAX)
        r->level->i8.weights(r->dtype, n, from, scale, q);
    else
        memset(q, 0, (size_t)n);
}

/* Values first .. first + n of column j, tap by tap, to where a panel has them: channel by channel, each tap behind the last one. */
static void place(const struct pack_run *r, int64_t first, int64_t n, const int8_t *q, int8_t *panel, int64_t width, int64_t j)
{
    const int64_t taps = r->taps, plane = r->depth * width; /* of a tap */
    int64_t c = first / taps, tap = first % taps, i = 0;
    for (; i + 4 * taps <= n; i += 4 * taps, c += 4) /* first is a multiple of that, then */
        for (int64_t t = 0; t < taps; t++) {
            const int8_t *from = q + i + t, four[] = {from[0], from[taps], from[2 * taps], from[3 * taps]};
            memcpy(panel + t * plane + c * width + 4 * j, four, 4);
        }
    for (; i < n; i++) {
        panel[tap * plane + c / 4 * 4 * width + 4 * j + c % 4] = q[i];
        if (++tap == taps) {
            tap = 0;
            c++;
        }
    }
}

struct panel {
    int64_t row, cols, width; /* row: of the weight, its first */
    int8_t *to;
};

static struct panel panel_of(const struct pack_run *r, int64_t panel)
{
    const int64_t turns = r->gated ? 2 : 1, first = panel / turns * NR, cols = min64(NR, r->n - first);
    return (struct panel){first + panel % turns * r->n, cols, cols <= NR / 2 ? NR / 2 : NR, r->to.panels + panel * NR * r->depth * r->taps};
}

static size_t row_size(const struct pack_run *r) { return (size_t)(r->c * r->taps) * tern_dtype_size(r->dtype); }

/* A piece of each column after the other: so the words that they share with their neighbours lie in L1. */
static void pack_columns(const struct pack_run *r, const char *from, const struct panel *p)
{
    const int64_t k = r->c * r->taps, four = 4 * r->taps, chunk = four < MOST_CHUNK ? MOST_CHUNK / four * four : MOST_CHUNK;
    const size_t row = row_size(r);
    float scale[NR];
    int32_t sum[NR] = {0};
    int8_t q[MOST_CHUNK];
    for (int64_t j = 0; j < p->cols; j++)
        scale[j] = r->dtype == TERN_I8 ? 0 : r->level->i8.most(r->dtype, k, from + (size_t)j * row) / TERN_I8_MOST;
    for (int64_t at = 0; at < k; at += chunk)
        for (int64_t j = 0, n = min64(chunk, k - at); j < p->cols; j++) {
            read_row(r, from + (size_t)j * row, at, n, scale[j], q);
            for (int64_t i = 0; i < n; i++)
                sum[j] += q[i];
            place(r, at, n, q, p->to, p->width, j);
        }
    for (int64_t j = 0; j < p->cols; j++) {
        /* Winograd's, which may be too deep, have their own */
        r->to.offset[p->row + j] = (int32_t)((uint32_t)sum[j] * (uint32_t)r->level->i8.zero);
        if (r->dtype != TERN_I8)
            r->to.scale[p->row + j] = scale[j];
    }
}

static void pack_task(void *arg, int64_t panel, const struct tern_cpu_room *room)
{
    const struct pack_run *r = arg;
    const size_t row = row_size(r);
    const struct panel p = panel_of(r, panel);
    const char *from = tern_cpu_panel_source(room, r->src + (size_t)p.row * row, (size_t)p.cols * row);
    if (p.cols < p.width || r->c < r->depth)
        memset(p.to, 0, (size_t)(p.width * r->depth * r->taps));
    pack_columns(r, from, &p);
    if (r->packed)
        r->packed(r->arg, panel);
}

void tern_cpu_i8_pack(struct tern_context *ctx, const struct tern_meta *weight, bool gated, const void *src, void *dst,
                      void (*packed)(void *arg, int64_t panel), void *arg)
{
    const int64_t turns = gated ? 2 : 1;
    struct pack_run r = {.level = cpu_level(ctx),
                         .n = weight->shape[0] / turns,
                         .c = weight->shape[1],
                         .taps = 1,
                         .depth = round_up(weight->shape[1], CPU_I8_LINE),
                         .gated = gated,
                         .dtype = weight->dtype,
                         .src = src,
                         .packed = packed,
                         .arg = arg};
    for (int i = 2; i < weight->ndim; i++)
        r.taps *= weight->shape[i];
    r.to = tern_cpu_i8_parts(weight, r.depth * r.taps, gated, dst);
    const struct tern_cpu_panels panels = {ctx,
                                           ceil_div(r.n, NR) * turns,
                                           dst,
                                           (size_t)(NR * r.depth * r.taps),
                                           panels_size(weight->shape[0], r.depth * r.taps, gated),
                                           (size_t)min64(NR, r.n) * row_size(&r)};
    tern_cpu_each_panel(&panels, pack_task, &r);
}

/* ---- rows of values */

bool tern_cpu_i8_rows_by_tasks(struct tern_context *ctx, struct cpu_dot_gemm *g, const struct cpu_dot_values *values)
{
    const struct tern_cpu_dot_blocks b = tern_cpu_dot_blocks(ctx, g);
    const bool by_tasks = b.splits <= MOST_TIMES && b.mc * values->pitch <= (int64_t)cpu_device_of(ctx)->l2 / 4;
    g->values = by_tasks ? values : NULL;
    return by_tasks;
}

static float quantize_row(const struct tern_cpu_i8 *i8, const struct cpu_dot_values *v, int64_t row, const char *x, uint8_t *y)
{
    struct tern_quantize_factors f = {0};
    if (v->in)
        f.in = v->in[row / v->rows];
    else
        f = tern_quantize_factors_of(i8->most(v->dtype, v->k, x));
    i8->quantize(v->dtype, v->k, x, f.in, y);
    memset(y + v->k, i8->zero, (size_t)(round_up(v->k, CPU_I8_LINE) - v->k));
    return f.out;
}

void tern_cpu_i8_quantize_rows(const struct tern_cpu_i8 *i8, const struct cpu_dot_values *v, int64_t row0, int64_t rows, uint8_t *y,
                               float *factors)
{
    const int64_t size = v->k * (int64_t)tern_dtype_size(v->dtype);
    const char *x = (const char *)v->x + row0 * size;
    for (int64_t r = 0; r < rows; r++, x += size, y += v->pitch) {
        if (r + AHEAD < rows)
            tern_cpu_fetch(x + AHEAD * size, size);
        const float factor = quantize_row(i8, v, row0 + r, x, y);
        if (!v->in)
            factors[r] = factor;
    }
}

/* ---- the launch */

enum tern_status tern_cpu_i8_launch(const struct tern_kernel_args *a, const struct cpu_dot_gemm *g, const struct cpu_rows *rows,
                                    const float *row, int64_t rows_each, void *workspace)
{
    const struct cpu_i8_packed b = tern_cpu_i8_parts(&a->desc->in[1], 2 * g->k, g->gated, tern_arg_host(&a->packed));
    const struct cpu_dot_scales scales = {b.offset, a->desc->present[2] ? tern_arg_host(&a->in[2]) : b.scale, row, rows_each};
    struct cpu_dot_gemm with = *g;
    with.bias_input = 3;
    with.scales = &scales;
    return tern_cpu_dot_launch(a, &with, rows, workspace);
}
