/* Packed weights of Winograd's convolution of floats. Transformed weights are made while a kernel runs; what whole numbers of them count is
 * known here. */
#include <math.h>
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/winograd_blocks.h"
#include "backends/cpu/winograd_pack.h"
#include "core/threads.h"

#define POINTS TERN_WINOGRAD_POINTS
#define LINE 64    /* bytes */
#define TOGETHER 8 /* input channels whose squares are summed at once */
#define TAPS 9

static struct cpu_pack panels_of(const struct tern_op_desc *d)
{
    const struct tern_meta *w = &d->in[1];
    const int64_t k = w->shape[1] * TAPS;
    return (struct cpu_pack){.n = w->shape[0], .k = k, .inner = k, .column = k, .within = 1, .element = tern_dtype_size(w->dtype)};
}

static bool is_i16(const struct tern_op_desc *d) { return cpu_winograd_is_i16(d->in[0].dtype); }

static size_t panels_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_weights kept = tern_cpu_weights_f32(ctx, d);
    if (kept.bits)
        return tern_cpu_weights_size(&kept);
    const struct cpu_pack p = panels_of(d);
    return tern_cpu_packed_size(cpu_level(ctx), p.n, p.k, p.element);
}

static size_t units_at(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return (size_t)round_up((int64_t)panels_size(ctx, d), LINE);
}

size_t tern_cpu_winograd_packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return is_i16(d) ? units_at(ctx, d) + (size_t)(POINTS * d->in[1].shape[0]) * sizeof(float) : panels_size(ctx, d);
}

uint64_t tern_cpu_winograd_pack_key(const struct tern_op_desc *d) { return tern_cpu_weight_key(d) << 1 | is_i16(d); }

struct cpu_winograd_weights tern_cpu_winograd_packed(struct tern_context *ctx, const struct tern_op_desc *d, void *packed)
{
    struct cpu_winograd_weights w = {.panels = packed, .kept = tern_cpu_weights_f32(ctx, d), .dtype = d->in[1].dtype};
    w.o = d->in[1].shape[0];
    w.c = d->in[1].shape[1];
    w.nr = cpu_level(ctx)->nr;
    w.units = is_i16(d) ? (float *)(void *)(w.panels + units_at(ctx, d)) : NULL;
    return w;
}

struct tern_cpu_winograd_filters tern_cpu_winograd_filters(const struct cpu_winograd_weights *w, const struct tern_cpu_level *l,
                                                           int64_t col, int64_t width, int64_t c0, int64_t n, float *expanded)
{
    if (!w->kept.bits) {
        const char *from = w->panels + (size_t)((col * w->c + c0 * width) * TAPS) * tern_dtype_size(w->dtype);
        return (struct tern_cpu_winograd_filters){w->dtype, from, TAPS * width, width};
    }
    const struct tern_cpu_weights_panel panel = tern_cpu_weights_panel(&w->kept, w->panels, col / w->nr);
    for (int64_t tap = 0; tap < TAPS; tap++)
        l->expand_f32(w->kept.bits, panel.values, panel.scales, width, tap * w->c + c0, n, expanded + tap * n * width);
    return (struct tern_cpu_winograd_filters){TERN_F32, expanded, width, n * width};
}

void tern_cpu_winograd_scales(const struct cpu_winograd_weights *w, int64_t col, int64_t width, float *scales)
{
    const int64_t n = min64(width, w->o - col);
    memset(scales, 0, (size_t)(POINTS * width) * sizeof(*scales));
    for (int p = 0; p < POINTS; p++) {
        const float *unit = w->units + p * w->o + col;
        for (int64_t j = 0; j < n; j++)
            scales[p * width + j] = 1 / unit[j];
    }
}

/* ---- what whole numbers count */

struct pack_run {
    const struct tern_cpu_level *level;
    struct cpu_winograd_weights w;
};

/* A panel. */
struct panel {
    int64_t col, cols, width;
    float factor[TERN_GEMM_MAX_NR]; /* what its columns are multiplied with, so that their squares are within the range of f32; or all 1 */
};

/* Squares of the points over a part of the input channels. */
static void sum_squares(const struct pack_run *r, const struct panel *p, bool scaled, int64_t c0, int64_t end, float *squares)
{
    float expanded[TOGETHER * TAPS * TERN_GEMM_MAX_NR], wide[TERN_GEMM_MAX_NR];
    memset(squares, 0, (size_t)(POINTS * p->width) * sizeof(*squares));
    for (int64_t c = c0, n; c < end; c += n) {
        n = r->w.kept.bits || scaled ? min64(TOGETHER, end - c) : end - c;
        struct tern_cpu_winograd_filters f = tern_cpu_winograd_filters(&r->w, r->level, p->col, p->width, c, n, expanded);
        if (scaled) {
            for (int64_t i = 0; i < n * TAPS; i++) {
                const int64_t at = i % n * f.channel + i / n * f.tap;
                r->level->to_f32(f.dtype, p->width, (const char *)f.w + (size_t)at * tern_dtype_size(f.dtype), wide);
                for (int64_t j = 0; j < p->width; j++)
                    expanded[i * p->width + j] = wide[j] * p->factor[j];
            }
            f = (struct tern_cpu_winograd_filters){TERN_F32, expanded, p->width, n * p->width};
        }
        r->level->winograd_i16.squares(f.dtype, n, p->width, f.w, f.channel, f.tap, squares);
    }
}

static bool in_range(const struct panel *p, const float *squares)
{
    for (int point = 0; point < POINTS; point++)
        for (int64_t j = 0; j < p->cols; j++) {
            const float s = squares[point * p->width + j];
            if (!(s > 1e-30f && s < 1e30f))
                return false;
        }
    return true;
}

/* One over the largest |value| of each column; 1 of zeros. Values that are no number stay so. */
static void find_factors(const struct pack_run *r, struct panel *p)
{
    float expanded[TAPS * TERN_GEMM_MAX_NR], wide[TERN_GEMM_MAX_NR], most[TERN_GEMM_MAX_NR] = {0};
    for (int64_t c = 0; c < r->w.c; c++) {
        const struct tern_cpu_winograd_filters f = tern_cpu_winograd_filters(&r->w, r->level, p->col, p->width, c, 1, expanded);
        for (int64_t tap = 0; tap < TAPS; tap++) {
            r->level->to_f32(f.dtype, p->width, (const char *)f.w + (size_t)(tap * f.tap) * tern_dtype_size(f.dtype), wide);
            for (int64_t j = 0; j < p->cols; j++)
                most[j] = fabsf(wide[j]) > most[j] ? fabsf(wide[j]) : most[j];
        }
    }
    for (int64_t j = 0; j < p->width; j++)
        p->factor[j] = most[j] > TERN_WINOGRAD_I16_LEAST ? 1 / most[j] : 1;
}

static void find_units(const struct pack_run *r, struct panel *p)
{
    float squares[POINTS * TERN_GEMM_MAX_NR], norm[POINTS * TERN_GEMM_MAX_NR] = {0};
    const int64_t kc = tern_cpu_winograd_i16_part(r->w.c);
    bool scaled = false;
    for (int64_t c = 0; c < r->w.c; c += kc) {
        const int64_t end = min64(c + kc, r->w.c);
        sum_squares(r, p, scaled, c, end, squares);
        if (!scaled && !in_range(p, squares)) { /* of this part and those behind it */
            find_factors(r, p);
            scaled = true;
            sum_squares(r, p, scaled, c, end, squares);
        }
        for (int point = 0; point < POINTS; point++)
            for (int64_t j = 0; j < p->cols; j++) {
                float *most = &norm[point * p->width + j];
                const float of = sqrtf(squares[point * p->width + j]) / (scaled ? p->factor[j] : 1);
                *most = of > *most || isnan(of) ? of : *most;
            }
    }
    for (int point = 0; point < POINTS; point++)
        for (int64_t j = 0; j < p->cols; j++) {
            const float of = norm[point * p->width + j];
            r->w.units[point * r->w.o + p->col + j] =
                (of < TERN_WINOGRAD_I16_LEAST ? TERN_WINOGRAD_I16_LEAST : of) / TERN_WINOGRAD_I16_NORM;
        }
}

static void units_of(void *arg, int64_t panel)
{
    const struct pack_run *r = arg;
    struct panel p = {.col = panel * r->w.nr, .cols = min64(r->w.nr, r->w.o - panel * r->w.nr)};
    p.width = p.cols <= r->w.nr / 2 ? r->w.nr / 2 : r->w.nr;
    find_units(r, &p);
}

static void units_task(void *arg, int slot, int64_t panel) { units_of(arg, panel); }

enum tern_status tern_cpu_winograd_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    struct pack_run r = {cpu_level(ctx), tern_cpu_winograd_packed(ctx, d, dst)};
    if (!r.w.kept.bits) {
        const struct cpu_pack p = panels_of(d);
        tern_cpu_pack_b(ctx, &p, src, dst, r.w.units ? units_of : NULL, &r);
        return TERN_OK;
    }
    const enum tern_status status = tern_cpu_weights_pack(ctx, &r.w.kept, &d->in[1], src, dst);
    if (!status && r.w.units)
        tern_parallel_slots(ctx, tern_cpu_panel_count(r.level, r.w.o), units_task, &r);
    return status;
}
