/* conv2d by Winograd's minimal filtering [Lavin and Gray 2016]: 4 x 4 outputs of a 3 x 3 filter cost 36 multiplications in place of
 * 144, 8 x 8 outputs 100 in place of 576. Tiles of the picture are transformed, as many matrix products go over the channels, and what they
 * give is transformed back. Weights are transformed while it runs, a part of a panel at a time: that costs as much as the products of some
 * two tiles do; transformed weights of a layer would be four to eight times as many bytes, read from memory instead. */
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/slots.h"
#include "backends/cpu/weights.h"
#include "backends/cpu/winograd_blocks.h"
#include "core/threads.h"

#define LEAST_TILES 8
#define AHEAD 2 /* tiles whose pixels are fetched while another one is finished */

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_weights kept = cpu_weights_f32(ctx, d);
    if (kept.bits)
        return cpu_weights_size(&kept);
    struct cpu_pack p = cpu_winograd_weights(d, d->in[1].shape[1]);
    return cpu_packed_size(cpu_level(ctx), p.n, p.k, p.element);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    const struct cpu_weights kept = cpu_weights_f32(ctx, d);
    if (kept.bits)
        return cpu_weights_pack(ctx, &kept, &d->in[1], src, dst);
    struct cpu_pack p = cpu_winograd_weights(d, d->in[1].shape[1]);
    cpu_pack_b(ctx, &p, src, dst);
    return TERN_OK;
}

/* A pixel of the padding. */
static int64_t zeros(const struct cpu_winograd_blocks *k) { return k->parts * k->kc; }

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_winograd w = cpu_winograd_sizes(d, cpu_winograd_edge(d));
    struct cpu_winograd_blocks k = cpu_winograd_blocks(ctx, &w, cpu_weight_bits(d));
    return (size_t)(zeros(&k) + k.regions * k.blocks * k.block) * sizeof(float) + cpu_slots(k.slot, tern_thread_count(ctx));
}

/* ---- a chunk of blocks */

struct run {
    struct cpu_winograd w;
    struct cpu_winograd_blocks k;
    const char *weights;
    struct cpu_weights kept; /* they are of few bits; 0: of `dtype` */
    enum tern_dtype dtype;
    float *v;
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

static void transform_tiles(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    const struct cpu_winograd *w = &r->w;
    const struct cpu_winograd_blocks *k = &r->k;
    const void *pixel[TERN_WINOGRAD_POINTS];
    for (int64_t i = begin; i < end; i++) {
        const int64_t region = i / r->tiles, j = i % r->tiles;
        float *v = r->v + (region * k->blocks + j / k->rows) * k->block + j % k->rows * k->kc;
        int64_t left, tile = tile_of(r, region, j, &left);
        if (left <= 0)
            continue;
        if (left > 1)
            cpu_winograd_fetch_pixels(w, tile + 1);
        cpu_winograd_pixels(w, tile, pixel);
        for (int64_t c0 = 0; c0 < w->c; c0 += k->kc, v += w->points * k->step_v) {
            w->level->winograd_input(w->edge, w->dtype, min64(k->kc, w->c - c0), pixel, v, k->step_v);
            for (int p = 0; p < w->points; p++)
                pixel[p] = (const char *)pixel[p] + (size_t)k->kc * tern_dtype_size(w->dtype);
        }
    }
}

/* The products of a part of a block (rows x kc) and of `columns` of a strip; u: its transformed weights, a panel behind the other. */
static void multiply(const struct run *r, int64_t rows, int64_t kc, const float *v, const float *u, int64_t columns, float *m,
                     bool accumulate)
{
    const struct tern_cpu_level *l = r->w.level;
    const struct cpu_winograd_blocks *k = &r->k;
    for (int point = 0; point < r->w.points; point++, v += k->step_v, u += k->step_u, m += k->step_m)
        for (int64_t col = 0; col < columns; col += l->nr) {
            const bool half = columns - col <= l->nr / 2;
            l->gemm_tile((int)rows, half ? l->nr / 2 : l->nr, kc, v, k->kc, u + col * kc, TERN_F32, half, m + col, k->strips * k->columns,
                         accumulate, NULL);
        }
}

/* Input channels c0 .. c0 + n of the filters of a panel that begins with output channel col. */
static void transform_weights(const struct run *r, int64_t col, int64_t width, int64_t c0, int64_t n, float *u, float *filters)
{
    const struct tern_cpu_level *l = r->w.level;
    const int64_t c = r->w.c;
    if (!r->kept.bits) {
        const char *from = r->weights + (size_t)((col * c + c0 * width) * 9) * tern_dtype_size(r->dtype);
        l->winograd_filter(r->w.edge, r->dtype, n, width, from, 9 * width, width, u, r->k.step_u);
        return;
    }
    const struct cpu_weights_panel panel = cpu_weights_panel(&r->kept, r->weights, col / l->nr);
    for (int64_t tap = 0; tap < 9; tap++)
        l->expand_f32(r->kept.bits, panel.values, panel.scales, width, tap * c + c0, n, filters + tap * n * width);
    l->winograd_filter(r->w.edge, TERN_F32, n, width, filters, width, n * width, u, r->k.step_u);
}

/* A block times some strips, part by part of the input channels, and the outputs of that. */
static void run_task(void *arg, int slot, int64_t task)
{
    const struct run *r = arg;
    const struct cpu_winograd *w = &r->w;
    const struct cpu_winograd_blocks *k = &r->k;
    const int64_t blocks = ceil_div(r->tiles, k->rows), region = task / k->groups / blocks, block = task / k->groups % blocks;
    int64_t left;
    const int64_t tile = tile_of(r, region, block * k->rows, &left), rows = min64(k->rows, left);
    const int64_t nr = w->level->nr, col0 = task % k->groups * k->strips * k->columns, end = min64(col0 + k->strips * k->columns, w->o);
    const float *v = r->v + (region * k->blocks + block) * k->block;
    float *u = (float *)(void *)(r->scratch + (size_t)slot * k->slot), *m = u + w->points * k->step_u, *filters = m + w->points * k->step_m;
    if (left <= 0)
        return;
    for (int64_t c0 = 0; c0 < w->c; c0 += k->kc, v += w->points * k->step_v)
        for (int64_t strip = col0; strip < end; strip += k->columns) {
            const int64_t columns = min64(k->columns, w->o - strip), kc = min64(k->kc, w->c - c0);
            for (int64_t col = 0; col < columns; col += nr)
                transform_weights(r, strip + col, columns - col <= nr / 2 ? nr / 2 : nr, c0, kc, u + col * kc, filters);
            multiply(r, rows, kc, v, u, columns, m + strip - col0, c0 > 0);
        }
    for (int64_t i = 0; i < rows; i++) {
        if (i + AHEAD < rows)
            cpu_winograd_fetch_rows(w, tile + i + AHEAD, col0, end - col0);
        cpu_winograd_finish(w, tile + i, col0, end - col0, m + i * k->strips * k->columns, k->step_m);
    }
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    struct cpu_post post = cpu_post_make(a, &rows);
    float *zero = tern_arg_host(&a->workspace);
    struct run r = {.w = cpu_winograd_call(a, zero, &post),
                    .weights = tern_arg_host(&a->packed),
                    .kept = cpu_weights_f32(a->ctx, a->desc),
                    .dtype = a->desc->in[1].dtype};
    if (tern_meta_numel(&a->desc->out) == 0)
        return TERN_OK;
    r.k = cpu_winograd_blocks(a->ctx, &r.w, r.kept.bits);
    memset(zero, 0, (size_t)zeros(&r.k) * sizeof(float));
    r.v = zero + zeros(&r.k);
    r.scratch = (char *)(r.v + r.k.regions * r.k.blocks * r.k.block);
    for (const int64_t most = r.k.blocks * r.k.rows; r.first < r.k.region; r.first += most) {
        r.tiles = min64(most, r.k.region - r.first);
        tern_parallel(a->ctx, r.k.regions * r.tiles, 4, transform_tiles, &r);
        tern_parallel_slots(a->ctx, r.k.regions * ceil_div(r.tiles, r.k.rows) * r.k.groups, run_task, &r);
    }
    return TERN_OK;
}

/* The implicit gemm costs 1; 1.6 / tiles is for the transform of the weights, and for reading them. Few outputs are cheap to compute either
 * way, but the implicit gemm reads the picture nine times; few inputs leave the transforms without work between them. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d)
{
    const double tiles = cpu_winograd_pair(d);
    if (tiles < LEAST_TILES || d->in[0].shape[1] < 32)
        return 3;
    return cpu_winograd_unit(device, d) * ((d->out.shape[1] < 32 ? 0.5 : 0.28) + 1.6 / tiles);
}

#define WINOGRAD_KERNEL(conv, kind, takes)           \
    const struct tern_kernel cpu_##conv##_##kind = { \
        .name = #conv "_" #kind,                     \
        .op = TERN_OP_##conv,                        \
        .revision = 6,                               \
        .planned = true,                             \
        .cost = cost,                                \
        .supports = takes,                           \
        .post = cpu_winograd_post,                   \
        .workspace = workspace,                      \
        .pack_input = 1,                             \
        .packed_size = packed_size,                  \
        .pack_key = cpu_weight_key,                  \
        .pack = pack,                                \
        .run = run,                                  \
    };

WINOGRAD_KERNEL(conv2d, f32_winograd, cpu_winograd_supports)
WINOGRAD_KERNEL(conv2d, bf16_winograd, cpu_winograd_supports_bf16)
WINOGRAD_KERNEL(weight_only_conv2d, f32_winograd, cpu_winograd_supports)
WINOGRAD_KERNEL(weight_only_conv2d, bf16_winograd, cpu_winograd_supports_bf16)
