/* conv2d by Winograd's minimal filtering [Lavin and Gray 2016]: 4 x 4 outputs of a 3 x 3 filter cost 36 multiplications in place of
 * 144. Tiles of the picture are transformed, 36 matrix products go over the channels, in f32 or, of pictures of bf16, in whole numbers of 16
 * bits, and what they give is transformed back. Weights are transformed while it runs, a part of a panel at a time: that costs as much as
 * the products of a few tiles do; transformed weights of a layer would be four to eight times as many bytes, read from memory instead. */
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/slots.h"
#include "backends/cpu/weights.h"
#include "backends/cpu/winograd_blocks.h"
#include "backends/cpu/winograd_pack.h"
#include "core/threads.h"

#define LEAST_TILES 8
#define LINE 64 /* bytes */
#define AHEAD 2 /* tiles whose pixels are fetched while another one is finished */

/* A pixel of the padding. */
static int64_t zeros(const struct tern_cpu_winograd_blocks *k) { return k->parts * k->kc; }

/* Bytes of a chunk's transformed input, and of what its rows count, both whole lines. */
static size_t transformed(const struct tern_cpu_winograd_blocks *k) { return (size_t)(k->regions * k->blocks * k->block * k->element); }

static size_t units(const struct tern_cpu_winograd_blocks *k)
{
    return (size_t)round_up(k->regions * k->blocks * k->units * (int64_t)sizeof(float), LINE);
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_winograd w = tern_cpu_winograd_sizes(d, TERN_WINOGRAD_EDGE, TERN_WINOGRAD_EDGE);
    struct tern_cpu_winograd_blocks k = tern_cpu_winograd_blocks(ctx, &w, tern_cpu_weight_bits(d));
    return (size_t)zeros(&k) * sizeof(float) + transformed(&k) + units(&k) + cpu_slots(k.slot, tern_thread_count(ctx));
}

/* ---- a chunk of blocks */

struct run {
    struct cpu_winograd w;
    struct tern_cpu_winograd_blocks k;
    struct cpu_winograd_weights weights;
    char *v;
    float *units;
    char *scratch;
    int64_t first, tiles; /* of this chunk: tiles first .. first + tiles of each region */
};

/* Tile `i` of a region's chunk, and how many there are from it on: 0 or fewer behind the last. */
static int64_t tile_of(const struct run *r, int64_t region, int64_t i, int64_t *left)
{
    const int64_t tile = region * r->k.region + r->first + i;
    *left = min64(r->tiles - i, r->w.tiles - tile);
    return tile;
}

/* Channels of a part of a tile, row `row` of a block; unit: of this part. */
static void transform_part(const struct run *r, int64_t n, const void *const *pixel, char *v, float *unit, int64_t row)
{
    const struct cpu_winograd *w = &r->w;
    const struct tern_cpu_winograd_blocks *k = &r->k;
    if (cpu_winograd_is_i16(w->dtype))
        w->level->winograd_i16.input(w->dtype, n, pixel, (int16_t *)(void *)v + row * k->kc, k->step_v, unit + row, k->rows);
    else
        w->level->winograd_input(w->dtype, n, pixel, (float *)(void *)v + row * k->kc, k->step_v);
}

static void transform_tiles(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const struct cpu_winograd *w = &r->w;
    const struct tern_cpu_winograd_blocks *k = &r->k;
    const void *pixel[TERN_WINOGRAD_POINTS];
    for (int64_t i = begin; i < end; i++) {
        const int64_t region = i / r->tiles, j = i % r->tiles, block = region * k->blocks + j / k->rows;
        char *v = r->v + block * k->block * k->element;
        float *unit = r->units + block * k->units;
        int64_t left, tile = tile_of(r, region, j, &left);
        if (left <= 0)
            continue;
        if (left > 1)
            tern_cpu_winograd_fetch_pixels(w, tile + 1);
        tern_cpu_winograd_pixels(w, tile, pixel);
        for (int64_t c0 = 0; c0 < w->c; c0 += k->kc, v += w->points * k->step_v * k->element, unit += w->points * k->rows) {
            transform_part(r, min64(k->kc, w->c - c0), pixel, v, unit, j % k->rows);
            for (int p = 0; p < w->points; p++)
                pixel[p] = (const char *)pixel[p] + (size_t)k->kc * tern_dtype_size(w->dtype);
        }
    }
}

/* A part of a block (rows x kc), a strip's transformed weights of it, a panel behind the other, and their products. */
struct part {
    int64_t rows, kc, columns;
    const char *v;
    const float *unit;
    char *u;
    float *m;
    bool accumulate;
};

static void multiply(const struct run *r, const struct part *t)
{
    const struct tern_cpu_level *l = r->w.level;
    const struct tern_cpu_winograd_blocks *k = &r->k;
    const int64_t ldm = k->strips * k->columns;
    for (int64_t point = 0; point < r->w.points; point++)
        for (int64_t col = 0; col < t->columns; col += l->nr) {
            const bool half = t->columns - col <= l->nr / 2;
            const char *v = t->v + point * k->step_v * k->element, *u = t->u + (point * k->step_u + col * t->kc) * k->element;
            float *m = t->m + point * k->step_m + col;
            if (cpu_winograd_is_i16(r->w.dtype))
                l->winograd_i16.multiply(t->rows, t->kc, (const int16_t *)(const void *)v, k->kc, (const int16_t *)(const void *)u, half,
                                         t->unit + point * k->rows, m, ldm, t->accumulate);
            else
                l->gemm_tile((int)t->rows, half ? l->nr / 2 : l->nr, t->kc, (const float *)(const void *)v, k->kc, u, TERN_F32, half, m,
                             ldm, t->accumulate, NULL);
        }
}

/* Input channels c0 .. c0 + n of the filters of a panel that begins with output channel col; u: its part of a strip. scales: memory for
 * those of the panel. */
static void transform_weights(const struct run *r, int64_t col, int64_t width, int64_t c0, int64_t n, char *u, float *scales,
                              float *expanded)
{
    const struct tern_cpu_level *l = r->w.level;
    const struct tern_cpu_winograd_filters f = tern_cpu_winograd_filters(&r->weights, l, col, width, c0, n, expanded);
    if (cpu_winograd_is_i16(r->w.dtype)) {
        tern_cpu_winograd_scales(&r->weights, col, width, scales);
        l->winograd_i16.filter(f.dtype, n, width, f.w, f.channel, f.tap, scales, (int16_t *)(void *)u, r->k.step_u);
    } else
        l->winograd_filter(f.dtype, n, width, f.w, f.channel, f.tap, (float *)(void *)u, r->k.step_u);
}

/* A block times some strips, part by part of the input channels, and the outputs of that. */
static void run_task(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    const struct cpu_winograd *w = &r->w;
    const struct tern_cpu_winograd_blocks *k = &r->k;
    const int64_t blocks = ceil_div(r->tiles, k->rows), region = task / k->groups / blocks, block = task / k->groups % blocks;
    int64_t left;
    const int64_t tile = tile_of(r, region, block * k->rows, &left), rows = min64(k->rows, left);
    const int64_t nr = w->level->nr, col0 = task % k->groups * k->strips * k->columns, end = min64(col0 + k->strips * k->columns, w->o);
    char *u = r->scratch + (size_t)slot * k->slot;
    float *m = (float *)(void *)(u + w->points * k->step_u * k->element), *scales = m + w->points * k->step_m;
    struct part t = {rows, .u = u, .v = r->v + (region * k->blocks + block) * k->block * k->element};
    t.unit = r->units + (region * k->blocks + block) * k->units;
    if (left <= 0)
        return;
    for (int64_t c0 = 0; c0 < w->c; c0 += k->kc, t.v += w->points * k->step_v * k->element, t.unit += w->points * k->rows)
        for (int64_t strip = col0; strip < end; strip += k->columns) {
            const int64_t n = min64(k->kc, w->c - c0);
            t.columns = min64(k->columns, w->o - strip);
            t.kc = cpu_winograd_is_i16(w->dtype) ? round_up(n, 2) : n;
            t.m = m + strip - col0;
            t.accumulate = c0 > 0;
            for (int64_t col = 0; col < t.columns; col += nr)
                transform_weights(r, strip + col, t.columns - col <= nr / 2 ? nr / 2 : nr, c0, n, u + col * t.kc * k->element, scales,
                                  scales + k->scales);
            multiply(r, &t);
        }
    for (int64_t i = 0; i < rows; i++) {
        if (i + AHEAD < rows)
            tern_cpu_winograd_fetch_rows(w, tile + i + AHEAD, col0, end - col0);
        tern_cpu_winograd_finish(w, tile + i, col0, end - col0, m + i * k->strips * k->columns, k->step_m);
    }
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    struct cpu_post post = tern_cpu_post_make(a, &rows);
    float *zero = tern_arg_host(&a->workspace);
    if (tern_meta_numel(&a->desc->out) == 0)
        return TERN_OK;
    if (a->desc->out.dtype != TERN_F32) /* whose results are where they are written at once */
        tern_cpu_post_take_sum(&post);
    struct run r = {.w = tern_cpu_winograd_call(a, zero, &post),
                    .weights = tern_cpu_winograd_packed(a->ctx, a->desc, tern_arg_host(&a->packed))};
    r.k = tern_cpu_winograd_blocks(a->ctx, &r.w, r.weights.kept.bits);
    r.w.unit = r.weights.units;
    memset(zero, 0, (size_t)zeros(&r.k) * sizeof(float));
    r.v = (char *)(zero + zeros(&r.k));
    r.units = (float *)(void *)(r.v + transformed(&r.k));
    r.scratch = (char *)r.units + units(&r.k);
    for (const int64_t most = r.k.blocks * r.k.rows; r.first < r.k.region; r.first += most) {
        r.tiles = min64(most, r.k.region - r.first);
        tern_parallel(a->ctx, r.k.regions * r.tiles, 4, transform_tiles, &r);
        tern_parallel_slots(a->ctx, r.k.regions * ceil_div(r.tiles, r.k.rows) * r.k.groups, run_task, &r);
    }
    return TERN_OK;
}

/* The implicit gemm of x's dtype costs 1. What there is for each tile fewer is for the transform of the weights, and for reading them. Few
 * outputs are cheap to compute either way, but the implicit gemm reads the picture nine times; few inputs leave the transforms without work
 * between them. Whole numbers of 16 bits are as many as bf16 where that has twice as many as f32. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d)
{
    const double tiles = tern_cpu_winograd_pair(d), gain = ((const struct cpu_device *)device)->level->bf16.gain;
    const bool few = d->out.shape[1] < 32;
    if (tiles < LEAST_TILES || d->in[0].shape[1] < 32)
        return 3;
    return cpu_winograd_is_i16(d->in[0].dtype) ? gain / 2 * ((few ? 0.7 : 0.3) + 2.5 / tiles) : (few ? 0.5 : 0.28) + 1.6 / tiles;
}

#define WINOGRAD_KERNEL(conv, kind, takes)                \
    const struct tern_kernel tern_cpu_##conv##_##kind = { \
        .name = #conv "_" #kind,                          \
        .op = TERN_OP_##conv,                             \
        .revision = 8,                                    \
        .planned = true,                                  \
        .cost = cost,                                     \
        .supports = takes,                                \
        .post = tern_cpu_winograd_post,                   \
        .workspace = workspace,                           \
        .pack_input = 1,                                  \
        .packed_size = tern_cpu_winograd_packed_size,     \
        .pack_key = tern_cpu_winograd_pack_key,           \
        .pack = tern_cpu_winograd_pack,                   \
        .run = run,                                       \
    };

WINOGRAD_KERNEL(conv2d, f32_winograd, tern_cpu_winograd_supports)
WINOGRAD_KERNEL(conv2d, bf16_winograd, tern_cpu_winograd_supports_bf16)
WINOGRAD_KERNEL(weight_only_conv2d, f32_winograd, tern_cpu_winograd_supports)
WINOGRAD_KERNEL(weight_only_conv2d, bf16_winograd, tern_cpu_winograd_supports_bf16)
