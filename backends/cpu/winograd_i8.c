/* quantized_conv2d by Winograd's minimal filtering [Lavin and Gray 2016]: 2 x 4 outputs of a 3 x 3 filter cost 24 multiplications in place
 * of 72. Tiles of the picture are transformed, and each point of a tile is quantised by itself, with its channels' largest value; 24
 * products of int8 go over the channels, and what they give is transformed back. Weights are transformed while it runs, as in winograd.c,
 * from the bytes that the implicit gemm has: to bytes again, by factors of 15 bits that were chosen when they were packed. */
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/slots.h"
#include "backends/cpu/winograd.h"
#include "backends/cpu/winograd_i8.h"
#include "core/threads.h"

#define POINTS CPU_WINOGRAD_I8_POINTS
#define SUMS CPU_WINOGRAD_I8_SUMS
#define LINE CPU_I8_LINE
#define NR TERN_DOT_NR
#define GROUP CPU_WINOGRAD_I8_GROUP
#define MOST_WORKSPACE (8 << 20) /* bytes of transformed input */
#define LEAST_ROWS 256           /* tiles of a task, if there are so many: it transforms its weights for these */

/* ---- the plan of a call: chunks of tiles, transformed, then multiplied. A task multiplies some rows of them by some panels. */

/* Tasks for all threads, unless their rows become so few that the weights' transform is what takes the time. */
static void split(struct cpu_winograd_i8_plan *k, int64_t chunks_of, int64_t panels, int64_t threads)
{
    const int64_t tasks = 4 * threads;
    while (k->parts == 1 && k->rows > LEAST_ROWS && ceil_div(chunks_of, k->rows) * k->splits < tasks)
        k->rows = max64(LEAST_ROWS, round_up(ceil_div(k->rows, 2), GROUP));
    const int64_t blocks = ceil_div(chunks_of, k->rows);
    if (blocks * k->splits < tasks)
        k->splits = min64(panels, ceil_div(tasks, blocks));
    k->panels = ceil_div(panels, k->splits);
}

static struct cpu_winograd_i8_plan plan(struct tern_context *ctx, const struct cpu_winograd *w)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const int64_t panels = ceil_div(w->o, NR), l2 = (int64_t)d->l2, share = l2 * 3 / 10;
    struct cpu_winograd_i8_plan k = {0};
    if (w->tiles < 1 || w->o < 1)
        return k;
    k.depth = round_up(w->c, LINE);
    k.kc = equal_part(k.depth, max64(share / (SUMS * NR) / LINE, 1) * LINE, LINE);
    k.parts = ceil_div(k.depth, k.kc);
    k.splits = k.parts > 1 ? panels : ceil_div(panels, max64(1, min64(share / (SUMS * NR * k.kc), CPU_WINOGRAD_I8_PANELS)));
    k.panels = ceil_div(panels, k.splits);
    const int64_t most = max64(MOST_WORKSPACE / (POINTS * k.kc * k.parts) / GROUP, 1) * GROUP;
    k.chunk = equal_part(w->tiles, most, GROUP);
    k.rows = k.parts > 1 ? max64(GROUP, l2 / 2 / (POINTS * NR * 4) / GROUP * GROUP) : k.chunk;
    k.rows = equal_part(k.chunk, k.rows, GROUP);
    split(&k, k.chunk, panels, tern_thread_count(ctx));
    k.ldm = k.panels * NR;
    k.step_m = (k.parts > 1 ? k.rows : GROUP) * k.ldm + LINE / 4;
    k.v = (size_t)(k.chunk * POINTS * k.kc * k.parts);
    k.row = (size_t)(k.chunk * POINTS) * sizeof(float);
    k.u = (size_t)(k.panels * SUMS * (k.kc * NR + LINE));
    k.m = (size_t)(POINTS * k.step_m) * 4;
    k.column = (size_t)k.ldm * 4;
    k.wide = max64(POINTS * (k.depth + LINE / 4) * 4, SUMS * NR * 4 * 2);
    k.slot = cpu_slot(k.u + k.m + (1 + 2 * POINTS) * k.column + k.wide);
    return k;
}

/* A pixel of the padding. */
static size_t zeros(const struct cpu_winograd *w) { return (size_t)round_up(w->c * (int64_t)tern_dtype_size(w->dtype), LINE); }

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_winograd w = tern_cpu_winograd_sizes(d, TERN_WINOGRAD_I8_HIGH, TERN_WINOGRAD_I8_WIDE);
    struct cpu_winograd_i8_plan k = plan(ctx, &w);
    return k.slot ? LINE + zeros(&w) + k.v + k.row + cpu_slots(k.slot, tern_thread_count(ctx)) : 0;
}

/* ---- a chunk */

static void transform_group(void *arg, int slot, int64_t group)
{
    const struct cpu_winograd_i8_run *r = arg;
    const int64_t depth = r->k.depth, step = depth + LINE / 4, end = min64(r->tiles, (group + 1) * GROUP);
    const struct tern_cpu_level *l = r->w.level;
    float *wide = (float *)(void *)(r->scratch + (size_t)slot * r->k.slot), most[POINTS];
    const void *pixel[TERN_WINOGRAD_POINTS];
    memset(wide, 0, (size_t)(POINTS * step) * sizeof(float));
    for (int64_t i = group * GROUP; i < end; i++) {
        if (i + 1 < r->tiles)
            tern_cpu_winograd_fetch_pixels(&r->w, r->tile0 + i + 1);
        tern_cpu_winograd_pixels(&r->w, r->tile0 + i, pixel);
        l->winograd_i8.input(r->w.dtype, r->w.c, pixel, wide, step, most);
        for (int p = 0; p < POINTS; p++) {
            const struct tern_quantize_factors f = tern_quantize_factors_of(most[p]);
            r->row[i * POINTS + p] = f.out;
            for (int64_t c = 0; c < depth; c += r->k.kc)
                l->i8.quantize(TERN_F32, min64(r->k.kc, depth - c), wide + p * step + c, f.in,
                               cpu_winograd_i8_tile(r, i, c / r->k.kc) + p * GROUP * r->k.kc);
        }
    }
}

/* ---- the kernel */

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->attrs.quantized_conv2d.winograd && tern_cpu_i8_fits(d, tern_cpu_winograd_fits(d)) &&
           round_up(d->in[1].shape[1], LINE) <= CPU_I8_MOST_DEPTH;
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d) { return tern_cpu_winograd_i8_packed_size(&d->in[1]); }

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    return tern_cpu_winograd_i8_pack(ctx, &d->in[1], src, dst);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct cpu_rows rows = tern_cpu_rows_channels_last();
    struct cpu_post post = tern_cpu_post_make(a, &rows);
    if (!a->workspace.buffer)
        return TERN_OK;
    tern_cpu_post_take_sum(&post);
    char *at = tern_arg_host(&a->workspace);
    at += (LINE - (uintptr_t)at % LINE) % LINE;
    struct cpu_winograd_i8_run r = {.w = tern_cpu_winograd_sizes(d, TERN_WINOGRAD_I8_HIGH, TERN_WINOGRAD_I8_WIDE),
                                    .weights = tern_cpu_winograd_i8_weights(&d->in[1], tern_arg_host(&a->packed))};
    r.k = plan(a->ctx, &r.w);
    r.w.x = tern_arg_host(&a->in[0]);
    r.w.y = tern_arg_host(&a->out);
    r.w.level = cpu_level(a->ctx);
    r.w.post = post.n ? &post : NULL;
    r.w.zero = memset(at, 0, zeros(&r.w));
    r.scale = d->present[2] ? tern_arg_host(&a->in[2]) : r.weights.taps.scale;
    r.bias = d->present[3] ? tern_arg_host(&a->in[3]) : NULL;
    r.bias_dtype = d->in[3].dtype;
    r.v = (uint8_t *)at + zeros(&r.w);
    r.row = (float *)(void *)(r.v + r.k.v);
    r.scratch = (char *)r.row + r.k.row;
    for (; r.tile0 < r.w.tiles; r.tile0 += r.k.chunk) {
        r.tiles = min64(r.k.chunk, r.w.tiles - r.tile0);
        tern_parallel_slots(a->ctx, ceil_div(r.tiles, GROUP), transform_group, &r);
        tern_parallel_slots(a->ctx, ceil_div(r.tiles, r.k.rows) * r.k.splits, tern_cpu_winograd_i8_task, &r);
    }
    return TERN_OK;
}

/* The implicit gemm costs 1, its products 0.34 here (measured on a Zen 4, as what follows). By the tiles of AMX they cost 0.9: both kernels
 * wait for memory more than for products there (SD 1.5's convolutions of 640 channels and more took 1.05 to 1.35 in all). Each output
 * channel shares a transform of the input, each input channel one of the output, each tile one of the weights; that takes as long at every
 * level, but products do not. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d)
{
    const double tiles = 2 * tern_cpu_winograd_pair(d), unit = ((const struct cpu_device *)device)->level->i8.gain / 4.0;
    const double products = unit > 2 ? 0.9 : 0.34;
    if (tiles < 1) /* no pictures, or weights that would be packed at every run */
        return 3;
    return products + unit * (30 / (double)d->out.shape[1] + 18 / (double)d->in[1].shape[1] + 3 / tiles);
}

const struct tern_kernel tern_cpu_quantized_conv2d_i8_winograd = {
    .name = "quantized_conv2d_i8_winograd",
    .op = TERN_OP_quantized_conv2d,
    .revision = 4,
    .cost = cost,
    .supports = supports,
    .post = tern_cpu_winograd_post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};
