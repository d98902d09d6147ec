/* conv2d by Winograd's minimal filtering [Lavin and Gray 2016]: 4 x 4 outputs of a 3 x 3 filter cost 36 multiplications in place of
 * 144. Tiles of the picture are transformed, 36 matrix products go over the channels, and what they give is transformed back. */
#include "backends/cpu/winograd.h"
#include "backends/cpu/integers.h"

#include <string.h>

#include "backends/cpu/kernels.h"
#include "core/threads.h"

#define POINTS TERN_WINOGRAD_POINTS
#define LINE 16                   /* f32 in a line of cache */
#define MOST_WORKSPACE (24 << 20) /* bytes that a chunk of tiles aims at */
#define PACK_CHANNELS 16          /* input channels that are transformed together */

/* ---- weights: 36 matrices (C x O), each packed for the gemm */

static size_t matrix_size(const struct tern_cpu_level *level, const struct tern_op_desc *d)
{
    return cpu_packed_size(level, d->in[1].shape[0], d->in[1].shape[1], sizeof(float));
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d) { return POINTS * matrix_size(cpu_level(ctx), d); }

struct pack_run {
    const struct tern_cpu_level *level;
    const struct tern_op_desc *d;
    const char *src;
    float *dst;
    size_t matrix; /* values */
};

/* Panels begin..end of all 36 matrices, some channels at a time. */
static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct pack_run *r = arg;
    const int64_t o = r->d->in[1].shape[0], c = r->d->in[1].shape[1], nr = r->level->nr;
    float panel[PACK_CHANNELS * 9 * TERN_GEMM_MAX_NR];
    for (int64_t col = begin * nr; col < end * nr && col < o; col += nr) {
        const int64_t width = o - col <= nr / 2 ? nr / 2 : nr;
        for (int64_t c0 = 0; c0 < c; c0 += PACK_CHANNELS) {
            const int64_t n = min64(PACK_CHANNELS, c - c0);
            struct cpu_pack p = cpu_winograd_weights(r->d, n);
            const char *src = r->src + (size_t)(col * p.column + c0 * 9) * p.element;
            p.n -= col;
            cpu_pack_panel(r->level, &p, src, panel, 0);
            r->level->winograd_filter(r->d->in[1].dtype, n, width, panel, r->dst + col * c + c0 * width, (int64_t)r->matrix);
        }
    }
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    struct pack_run r = {cpu_level(ctx), d, src, dst, matrix_size(cpu_level(ctx), d) / sizeof(float)};
    tern_parallel(ctx, cpu_panel_count(r.level, d->in[1].shape[0]), 1, pack_task, &r);
    return TERN_OK;
}

/* ---- the plan of a call */

struct chunk {
    int64_t most;           /* tiles of one chunk */
    int64_t ldv, ldm;       /* values between rows of the transformed input and of the products */
    int64_t step_v, step_m; /* between their 36 matrices */
};

static struct chunk plan(struct tern_context *ctx, const struct cpu_winograd *w)
{
    const int64_t mr = cpu_level(ctx)->mr;
    struct chunk k = {.ldv = ceil_div(w->c, LINE) * LINE + LINE, .ldm = ceil_div(w->o, LINE) * LINE + LINE};
    k.most = MOST_WORKSPACE / (int64_t)sizeof(float) / POINTS / (k.ldv + k.ldm) / mr * mr;
    k.most = k.most < mr ? mr : k.most;
    if (w->tiles > 0) /* chunks of about equal size */
        k.most = min64(k.most, ceil_div(ceil_div(w->tiles, ceil_div(w->tiles, k.most)), mr) * mr);
    k.step_v = cpu_winograd_apart(k.most * k.ldv);
    k.step_m = cpu_winograd_apart(k.most * k.ldm);
    return k;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_winograd w = cpu_winograd_sizes(d);
    struct chunk k = plan(ctx, &w);
    return w.tiles ? (size_t)(POINTS * (k.step_v + k.step_m) + k.ldv) * sizeof(float) : 0;
}

/* ---- a chunk of tiles */

struct run {
    struct cpu_winograd w;
    struct chunk k;
    float *v, *m;
    struct cpu_gemm gemm; /* of one point */
    int64_t kc, splits;
    size_t matrix; /* bytes */
    int64_t tile0; /* of this chunk */
};

static void transform_tiles(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const void *pixel[POINTS];
    for (int64_t i = begin; i < end; i++) {
        cpu_winograd_pixels(&r->w, r->tile0 + i, pixel);
        r->w.level->winograd_input(r->w.dtype, r->w.c, pixel, r->v + i * r->k.ldv, r->k.step_v);
    }
}

/* One point and a part of its panels. */
static void multiply(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    int64_t point = task / r->splits, part = task % r->splits, panels = cpu_panel_count(r->w.level, r->gemm.n);
    struct cpu_gemm g = r->gemm;
    const float *a = r->v + point * r->k.step_v;
    g.b = (const char *)r->gemm.b + (size_t)point * r->matrix;
    g.c = r->m + point * r->k.step_m;
    for (int64_t k0 = 0; k0 < g.k; k0 += r->kc)
        cpu_gemm_panels(r->w.level, &g, a + k0, r->k.ldv, 0, g.m, k0, min64(r->kc, g.k - k0), panels * part / r->splits,
                        panels * (part + 1) / r->splits);
}

static void finish_tiles(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    for (int64_t i = begin; i < end; i++)
        cpu_winograd_finish(&r->w, r->tile0 + i, 0, r->w.o, r->m + i * r->k.ldm, r->k.step_m);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    struct cpu_post post = cpu_post_make(a, &rows);
    float *zero = tern_arg_host(&a->workspace);
    struct run r = {.w = cpu_winograd_call(a, zero, &post)};
    const struct cpu_winograd *w = &r.w;
    if (tern_meta_numel(&a->desc->out) == 0)
        return TERN_OK;
    r.k = plan(a->ctx, w);
    memset(zero, 0, (size_t)r.k.ldv * sizeof(float));
    r.v = zero + r.k.ldv;
    r.m = r.v + POINTS * r.k.step_v;
    r.matrix = matrix_size(w->level, a->desc);
    r.kc = cpu_gemm_depth(a->ctx, w->c);
    r.splits = min64(cpu_panel_count(w->level, w->o), ceil_div(4 * tern_thread_count(a->ctx), POINTS));
    r.gemm = (struct cpu_gemm){.n = w->o, .k = w->c, .b = tern_arg_host(&a->packed), .b_dtype = TERN_F32, .ldc = r.k.ldm};
    for (; r.tile0 < w->tiles; r.tile0 += r.k.most) {
        r.gemm.m = min64(r.k.most, w->tiles - r.tile0);
        tern_parallel(a->ctx, r.gemm.m, 4, transform_tiles, &r);
        tern_parallel_slots(a->ctx, POINTS * r.splits, multiply, &r);
        tern_parallel(a->ctx, r.gemm.m, 4, finish_tiles, &r);
    }
    return TERN_OK;
}

/* ---- the candidate */

/* The implicit gemm costs 1. 0.27 is what it takes with many tiles, 3 / tiles the reading of four times the weights, and as much again is
 * for the memory that they take: where both kinds are about as fast, the lean one is taken. Few outputs are cheap to compute either way,
 * but the implicit gemm reads the picture nine times; few inputs leave the transforms without work between them. Of bf16 the
 * weights become eight times as many bytes. docs/kernels.md has the measured times. Whether the memory is worth it is the plan's question
 * (graph/passes/algorithm.c). */
static double cost(const struct tern_device *device, const struct tern_op_desc *d)
{
    const double tiles = cpu_winograd_pair(d), weights = d->in[0].dtype == TERN_BF16 ? 20 : 6;
    if (tiles < 8 || d->in[0].shape[1] < 32)
        return 3;
    return cpu_winograd_unit(device, d) * ((d->out.shape[1] < 32 ? 0.5 : 0.27) + weights / tiles);
}

WINOGRAD_KERNEL(f32_winograd, cpu_winograd_supports)
WINOGRAD_KERNEL(bf16_winograd, cpu_winograd_supports_bf16)
