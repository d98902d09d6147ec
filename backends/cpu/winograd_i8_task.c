/* A task of Winograd's convolution in int8: the sums of taps of some panels, products with some groups of tiles, and their outputs. */
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/winograd_i8.h"

#define POINTS CPU_WINOGRAD_I8_POINTS
#define SUMS CPU_WINOGRAD_I8_SUMS
#define GROUP CPU_WINOGRAD_I8_GROUP
#define LINE CPU_I8_LINE
#define NR TERN_DOT_NR
#define TAPS 9
#define PIXELS (TERN_WINOGRAD_I8_HIGH * TERN_WINOGRAD_I8_WIDE)
#define AHEAD 4 /* tiles whose pixels are fetched while another one is finished */

struct task {
    int64_t row0, rows, p0, p1; /* tiles of the chunk; panels */
    int8_t *u;
    int32_t *m, *offset;
    float *bias, *scale;
    int16_t *factor;
};

static struct task task_of(const struct cpu_winograd_i8_run *r, int slot, int64_t task)
{
    const struct cpu_winograd_i8_plan *k = &r->k;
    const int64_t panels = ceil_div(r->w.o, NR), part = task % k->splits;
    char *scratch = r->scratch + (size_t)slot * k->slot;
    struct task t = {.row0 = task / k->splits * k->rows, .p0 = panels * part / k->splits, .p1 = panels * (part + 1) / k->splits};
    t.rows = min64(k->rows, r->tiles - t.row0);
    t.u = (int8_t *)scratch;
    t.m = (int32_t *)(void *)(scratch + k->u);
    t.bias = (float *)(void *)(scratch + k->u + k->m);
    t.scale = t.bias + k->ldm;
    t.offset = (int32_t *)(void *)(t.scale + POINTS * k->ldm);
    t.factor = (int16_t *)(void *)(t.offset + POINTS * k->ldm);
    return t;
}

/* Bias, and offset and scale of each point, as the task's columns lie. Behind the last column nothing is stored. */
static void fill_columns(const struct cpu_winograd_i8_run *r, const struct task *t)
{
    const int64_t ldm = r->k.ldm, col = t->p0 * NR, cols = min64(t->p1 * NR, r->w.o) - col;
    memset(t->bias, 0, (size_t)(1 + 2 * POINTS) * r->k.column);
    if (r->bias)
        r->w.level->to_f32(r->bias_dtype, cols, (const char *)r->bias + (size_t)col * tern_dtype_size(r->bias_dtype), t->bias);
    for (int p = 0; p < POINTS; p++) {
        memcpy(t->offset + p * ldm, r->weights.offset + p * r->weights.n + col, (size_t)cols * sizeof(int32_t));
        for (int64_t j = 0; j < cols; j++)
            t->scale[p * ldm + j] = r->scale[col + j] * tern_cpu_winograd_i8_unit(&r->weights, p, col + j);
    }
}

/* The sums of taps of the task's panels in a part of the channels. */
static void transform_weights(const struct cpu_winograd_i8_run *r, const struct task *t, int64_t c, int64_t n)
{
    const int64_t step = r->k.kc * NR + LINE;
    for (int64_t p = t->p0; p < t->p1; p++) {
        const struct tern_cpu_winograd_i8_panel b = tern_cpu_winograd_i8_panel(&r->weights, p);
        tern_cpu_winograd_i8_factors(&r->weights, &b, t->factor);
        r->w.level->winograd_i8.filter(n * b.width, b.width * 4, b.taps + c * b.width, r->k.depth * b.width, t->factor,
                                       t->u + (p - t->p0) * SUMS * step, step);
    }
}

/* A tap of what will be transformed where panel p has been multiplied from channel c on: the next part of its channels, or the first one of
 * the panel that takes its place, likely by this thread. */
static const int8_t *tap_behind(const struct cpu_winograd_i8_run *r, const struct task *t, int64_t p, int64_t c, int tap)
{
    const int64_t then = c + r->k.kc < r->k.depth ? c + r->k.kc : 0, panels = ceil_div(r->w.o, NR);
    const struct tern_cpu_winograd_i8_panel b = tern_cpu_winograd_i8_panel(&r->weights, then ? p : (p + t->p1 - t->p0) % panels);
    return b.taps + (tap * r->k.depth + then) * b.width;
}

/* What is fetched while a point of the tiles from `row` on meets panel p: the next point, or the first one of the next tiles; with the last
 * tiles what weights will be made of. */
static const void *behind(const struct cpu_winograd_i8_run *r, const struct task *t, int64_t row, int64_t p, int64_t c, int point)
{
    const bool last = row + GROUP >= t->rows;
    const int64_t tile = t->row0 + row, part = c / r->k.kc;
    if (last && point < TAPS)
        return tap_behind(r, t, p, c, point);
    if (point + 1 == POINTS)
        return cpu_winograd_i8_tile(r, last ? tile : tile + GROUP, part);
    return cpu_winograd_i8_tile(r, tile, part) + (point + 1) * GROUP * r->k.kc;
}

/* A group of tiles, in a part of the channels, with the task's panels. */
static void multiply(const struct cpu_winograd_i8_run *r, const struct task *t, int64_t row, int64_t rows, int64_t c, int64_t n, int32_t *m)
{
    const int64_t step = r->k.kc * NR + LINE, ld = r->k.kc / 2;
    const uint16_t *v = (const uint16_t *)(const void *)cpu_winograd_i8_tile(r, t->row0 + row, c / r->k.kc);
    for (int64_t p = t->p0; p < t->p1; p++) {
        const struct tern_cpu_winograd_i8_panel b = tern_cpu_winograd_i8_panel(&r->weights, p);
        const bool half = b.width < NR;
        for (int point = 0; point < POINTS; point++) {
            const int sum = tern_cpu_winograd_i8_point(point);
            const int8_t *from = sum < 0 ? b.taps + ((-1 - sum) * r->k.depth + c) * b.width : t->u + ((p - t->p0) * SUMS + sum) * step;
            const uint16_t *words = (const uint16_t *)(const void *)from, *a = v + point * GROUP * ld;
            const struct tern_dot_piece piece = {{a, a + GROUP / 2 * ld}, ld, 0, n / 2};
            int32_t *to = m + point * r->k.step_m + (p - t->p0) * NR;
            r->w.level->i8.dot.block(&(struct tern_dot_block){.rows = (int)rows,
                                                              .n = 1,
                                                              .half_panel = half,
                                                              .accumulate = c > 0,
                                                              .pieces = &piece,
                                                              .panel = words,
                                                              .next = behind(r, t, row, p, c, point),
                                                              .c = to,
                                                              .ldc = r->k.ldm});
        }
    }
}

/* The outputs of a tile, from the task's sums of it. */
static void finish(const struct cpu_winograd_i8_run *r, const struct task *t, int64_t row, const int32_t *m)
{
    const struct cpu_winograd *w = &r->w;
    const int64_t ldm = r->k.ldm, col0 = t->p0 * NR, cols = min64(t->p1 * NR, w->o) - col0;
    const float *scales = r->row + (t->row0 + row) * POINTS;
    float wide[PIXELS][CPU_WINOGRAD_I8_PANELS * NR];
    int64_t at[PIXELS];
    void *y[PIXELS];
    tern_cpu_winograd_rows(w, r->tile0 + t->row0 + row, at);
    for (int p = 0; p < PIXELS; p++)
        y[p] = at[p] < 0 ? NULL : w->post ? (void *)wide[p] : w->y + (at[p] * w->o + col0) * (int64_t)tern_dtype_size(w->y_dtype);
    w->level->winograd_i8.output(w->post ? TERN_F32 : w->y_dtype, cols, m, r->k.step_m, t->offset, t->scale, ldm, scales, t->bias, y);
    for (int p = 0; p < PIXELS && w->post; p++) {
        if (at[p] < 0)
            continue;
        tern_cpu_post_store(w->level, w->post, w->y_dtype, at[p], col0, cols, wide[p],
                            w->y + (at[p] * w->o + col0) * (int64_t)tern_dtype_size(w->y_dtype));
    }
}

static void fetch(const struct cpu_winograd_i8_run *r, const struct task *t, int64_t row)
{
    const int64_t col0 = t->p0 * NR;
    tern_cpu_winograd_fetch_rows(&r->w, r->tile0 + t->row0 + row, col0, min64(t->p1 * NR, r->w.o) - col0);
}

void tern_cpu_winograd_i8_task(void *arg, int slot, int64_t task)
{
    const struct cpu_winograd_i8_run *r = arg;
    const struct cpu_winograd_i8_plan *k = &r->k;
    const struct task t = task_of(r, slot, task);
    fill_columns(r, &t);
    r->w.level->i8.dot.begin();
    for (int64_t c = 0, n; c < k->depth; c += n) {
        n = min64(k->kc, k->depth - c);
        transform_weights(r, &t, c, n);
        for (int64_t i = 0; i < t.rows; i += GROUP) {
            const int64_t rows = min64(GROUP, t.rows - i);
            int32_t *m = t.m + (k->parts > 1 ? i * k->ldm : 0);
            multiply(r, &t, i, rows, c, n, m);
            for (int64_t j = 0; j < rows && c + n == k->depth; j++) {
                if (j + AHEAD < rows)
                    fetch(r, &t, i + j + AHEAD);
                finish(r, &t, i + j, m + j * k->ldm);
            }
        }
    }
    r->w.level->i8.dot.end();
}
