/* conv2d by Winograd's minimal filtering [Lavin and Gray 2016]: 4 x 4 outputs of a 3 x 3 filter cost 36 multiplications in place of
 * 144. Tiles of the picture are transformed, 36 matrix products go over the channels, and what they give is transformed back. */
#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"
#include "core/threads.h"

#define POINTS 36
#define LINE 16                   /* f32 in a line of cache */
#define MOST_WORKSPACE (24 << 20) /* bytes that a chunk of tiles aims at */

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- weights: 36 matrices (C x O), each packed for the gemm */

static size_t matrix_size(const struct tern_cpu_level *level, const struct tern_op_desc *d)
{
    return cpu_packed_size(level, d->in[1].shape[0], d->in[1].shape[1], sizeof(float));
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d) { return POINTS * matrix_size(cpu_level(ctx), d); }

/* Rows of G: 1, p, p^2 over the product of the distances to the other finite points; (0, 0, 1) for infinity. */
static void filter_line(const double *g, int step, double *u, int to)
{
    const double a = TERN_WINOGRAD_A, b = TERN_WINOGRAD_B, near = 1 / (2 * a * a * (a * a - b * b)),
                 far = 1 / (2 * b * b * (b * b - a * a));
    double even_a = g[0] + a * a * g[2 * step], even_b = g[0] + b * b * g[2 * step];
    u[0] = g[0] / (a * a * b * b);
    u[to] = near * (even_a + a * g[step]);
    u[2 * to] = near * (even_a - a * g[step]);
    u[3 * to] = far * (even_b + b * g[step]);
    u[4 * to] = far * (even_b - b * g[step]);
    u[5 * to] = g[2 * step];
}

static void transform_filter(const float g[9], float *u, int64_t step)
{
    double w[9], t[6 * 3], full[6];
    for (int i = 0; i < 9; i++)
        w[i] = (double)g[i];
    for (int j = 0; j < 3; j++)
        filter_line(w + j, 3, t + j, 3);
    for (int i = 0; i < 6; i++) {
        filter_line(t + i * 3, 1, full, 1);
        for (int j = 0; j < 6; j++)
            u[(i * 6 + j) * step] = (float)full[j];
    }
}

struct pack_run {
    const struct tern_cpu_level *level;
    const struct tern_op_desc *d;
    const char *src;
    float *dst;
    size_t matrix; /* values */
};

/* Panels begin..end of all 36 matrices, channel by channel. */
static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct pack_run *r = arg;
    const int64_t o = r->d->in[1].shape[0], c = r->d->in[1].shape[1], nr = r->level->nr;
    const enum tern_dtype dtype = r->d->in[1].dtype;
    float u[POINTS * TERN_GEMM_MAX_NR] = {0}, g[9];
    for (int64_t p = begin; p < end; p++) {
        int64_t col = p * nr, cols = min64(nr, o - col), width = cols <= nr / 2 ? nr / 2 : nr;
        memset(u, 0, sizeof(u));
        for (int64_t i = 0; i < c; i++) {
            for (int64_t j = 0; j < cols; j++) {
                r->level->to_f32(dtype, 9, r->src + (size_t)(((col + j) * c + i) * 9) * tern_dtype_size(dtype), g);
                transform_filter(g, u + j, nr);
            }
            for (int k = 0; k < POINTS; k++)
                memcpy(r->dst + (size_t)k * r->matrix + col * c + i * width, u + k * nr, (size_t)width * sizeof(float));
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
    int64_t across, down, tiles; /* of a picture, of a picture, of all pictures */
    int64_t most;                /* tiles of one chunk */
    int64_t ldv, ldm;            /* values between rows of the transformed input and of the products */
    int64_t step_v, step_m;      /* between their 36 matrices */
};

/* Whole pages would put the same row of all 36 matrices into one set of the cache. */
static int64_t apart(int64_t n) { return ceil_div(n, 1024) * 1024 + LINE; }

static struct chunk plan(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t c = d->in[1].shape[1], *y = d->out.shape, mr = cpu_level(ctx)->mr;
    struct chunk k = {.across = ceil_div(y[3], 4), .down = ceil_div(y[2], 4)};
    k.tiles = y[0] * k.down * k.across;
    k.ldv = ceil_div(c, LINE) * LINE + LINE;
    k.ldm = ceil_div(y[1], LINE) * LINE + LINE;
    k.most = MOST_WORKSPACE / (int64_t)sizeof(float) / POINTS / (k.ldv + k.ldm) / mr * mr;
    k.most = k.most < mr ? mr : k.most;
    if (k.tiles > 0) /* chunks of about equal size */
        k.most = min64(k.most, ceil_div(ceil_div(k.tiles, ceil_div(k.tiles, k.most)), mr) * mr);
    k.step_v = apart(k.most * k.ldv);
    k.step_m = apart(k.most * k.ldm);
    return k;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct chunk k = plan(ctx, d);
    return k.tiles ? (size_t)(POINTS * (k.step_v + k.step_m) + k.ldv) * sizeof(float) : 0;
}

/* ---- a chunk of tiles */

struct run {
    const struct tern_op_desc *d;
    const struct tern_cpu_level *level;
    struct chunk k;
    const float *x, *zero, *bias; /* zero: one pixel of the padding */
    float *y, *v, *m;
    struct cpu_gemm gemm; /* of one point */
    int64_t kc, splits;
    size_t matrix; /* bytes */
    const struct cpu_post *post;
    int64_t tile0; /* of this chunk */
};

static void transform_tile(const struct run *r, int64_t i)
{
    const struct chunk *k = &r->k;
    const int64_t c = r->d->in[0].shape[1], h = r->d->in[0].shape[2], w = r->d->in[0].shape[3], t = r->tile0 + i;
    const int64_t x0 = t % k->across * 4 - r->d->attrs.conv2d.padding[1], y0 = t / k->across % k->down * 4 - r->d->attrs.conv2d.padding[0];
    const float *picture = r->x + t / k->across / k->down * h * w * c, *pixel[POINTS];
    for (int p = 0; p < POINTS; p++) {
        int64_t y = y0 + p / 6, x = x0 + p % 6;
        pixel[p] = y >= 0 && y < h && x >= 0 && x < w ? picture + (y * w + x) * c : r->zero;
    }
    r->level->winograd_input(c, pixel, r->v + i * k->ldv, k->step_v);
}

static void transform_tiles(void *arg, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        transform_tile(arg, i);
}

/* One point and a part of its panels. */
static void multiply(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    int64_t point = task / r->splits, part = task % r->splits, panels = cpu_panel_count(r->level, r->gemm.n);
    struct cpu_gemm g = r->gemm;
    const float *a = r->v + point * r->k.step_v;
    g.b = (const char *)r->gemm.b + (size_t)point * r->matrix;
    g.c = r->m + point * r->k.step_m;
    for (int64_t k0 = 0; k0 < g.k; k0 += r->kc)
        cpu_gemm_panels(r->level, &g, a + k0, r->k.ldv, 0, g.m, k0, min64(r->kc, g.k - k0), panels * part / r->splits,
                        panels * (part + 1) / r->splits);
}

static void finish_tile(const struct run *r, int64_t i)
{
    const struct chunk *k = &r->k;
    const int64_t o = r->d->out.shape[1], h = r->d->out.shape[2], w = r->d->out.shape[3], t = r->tile0 + i;
    const int64_t x0 = t % k->across * 4, y0 = t / k->across % k->down * 4, row0 = t / k->across / k->down * h * w;
    float *pixel[16];
    for (int p = 0; p < 16; p++) {
        int64_t y = y0 + p / 4, x = x0 + p % 4;
        pixel[p] = y < h && x < w ? r->y + (row0 + y * w + x) * o : NULL;
    }
    r->level->winograd_output(o, r->m + i * k->ldm, k->step_m, r->bias, pixel);
    for (int p = 0; r->post && p < 16; p++)
        if (pixel[p])
            cpu_post_apply(r->post, pixel[p], row0 + (y0 + p / 4) * w + x0 + p % 4, 0, o);
}

static void finish_tiles(void *arg, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        finish_tile(arg, i);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const int64_t o = d->in[1].shape[0], c = d->in[1].shape[1];
    struct cpu_rows rows = cpu_rows_channels_last();
    struct cpu_post after = cpu_post_make(a, &rows);
    struct run r = {.d = d, .level = cpu_level(a->ctx), .k = plan(a->ctx, d), .x = tern_arg_host(&a->in[0]), .y = tern_arg_host(&a->out)};
    float *zero = tern_arg_host(&a->workspace);
    if (tern_meta_numel(&d->out) == 0)
        return TERN_OK;
    memset(zero, 0, (size_t)r.k.ldv * sizeof(float));
    r.zero = zero;
    r.v = zero + r.k.ldv;
    r.m = r.v + POINTS * r.k.step_v;
    r.bias = d->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    r.post = after.n ? &after : NULL;
    r.matrix = matrix_size(r.level, d);
    r.kc = cpu_gemm_depth(a->ctx, c);
    r.splits = min64(cpu_panel_count(r.level, o), ceil_div(4 * tern_thread_count(a->ctx), POINTS));
    r.gemm = (struct cpu_gemm){.n = o, .k = c, .b = tern_arg_host(&a->packed), .b_dtype = TERN_F32, .ldc = r.k.ldm};
    for (; r.tile0 < r.k.tiles; r.tile0 += r.k.most) {
        r.gemm.m = min64(r.k.most, r.k.tiles - r.tile0);
        tern_parallel(a->ctx, r.gemm.m, 4, transform_tiles, &r);
        tern_parallel_slots(a->ctx, POINTS * r.splits, multiply, &r);
        tern_parallel(a->ctx, r.gemm.m, 4, finish_tiles, &r);
    }
    return TERN_OK;
}

/* ---- the candidate */

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    const struct tern_meta *w = &d->in[1];
    return p->groups == 1 && p->stride[0] == 1 && p->stride[1] == 1 && p->dilation[0] == 1 && p->dilation[1] == 1 && w->shape[2] == 3 &&
           w->shape[3] == 3 && w->shape[1] > 0 && tern_dtype_is_float(w->dtype) && tern_meta_is_contiguous(w) &&
           d->in[0].dtype == TERN_F32 && tern_meta_is_channels_last(&d->in[0]) && tern_meta_is_channels_last(&d->out) &&
           (!d->present[2] || (d->in[2].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[2])));
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    return cpu_post_fits(d, TERN_F32, &rows);
}

/* The implicit gemm costs 1. 0.27 is what it takes with many tiles, 3 / tiles the reading of four times the weights. Few outputs are
 * cheap to compute either way, but the implicit gemm reads the picture nine times; few inputs leave the transforms without work between
 * them. Weights that are no constants would be packed anew at every run. docs/kernels.md has the measured times. Whether the memory is
 * worth it is the plan's question (graph/passes/algorithm.c). */
static double cost(const struct tern_op_desc *d)
{
    const struct tern_meta *w = &d->in[1], *y = &d->out;
    if (w->ndim != 4 || y->ndim != 4 || !d->constant[1])
        return 3;
    double o = (double)w->shape[0], c = (double)w->shape[1];
    double tiles = (double)y->shape[0] * (double)ceil_div(y->shape[2], 4) * (double)ceil_div(y->shape[3], 4);
    if (tiles < 8 || c < 32)
        return 3;
    return (o < 32 ? 0.5 : 0.27) + 3 / tiles;
}

const struct tern_kernel cpu_conv2d_f32_winograd = {
    .name = "conv2d_f32_winograd",
    .op = TERN_OP_conv2d,
    .planned = true,
    .cost = cost,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};
