/* Sizes of blocks, chunks, tasks and regions, from those of the caches and the number of threads. */
#include "backends/cpu/winograd_blocks.h"

#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/slots.h"
#include "core/threads.h"

#define LINE 64                   /* bytes of a line of cache */
#define MOST_BLOCK (32 << 20)     /* bytes of transformed input of a block, of one in each region */
#define MOST_WORKSPACE (16 << 20) /* of a chunk of more than one block */
#define COLUMNS 32                /* whose weights are transformed together */
#define MOST_STRIPS 4             /* of a task */
#define LEAST_REGION 100          /* tiles, and of a block of it */
#define STEP_I16 32               /* channels that are transformed together */

/* Tiles whose transformed input may lie in one of n blocks side by side. */
static int64_t fitting(const struct cpu_winograd *w, const struct tern_cpu_winograd_blocks *k, int64_t n)
{
    return MOST_BLOCK / k->element / w->points / (k->parts * k->kc) / n;
}

/* A thread that transforms the input it multiplies reads no other's, which may lie far away. But each block transforms the weights. */
static int64_t regions(const struct cpu_winograd *w, const struct tern_cpu_winograd_blocks *k, int64_t threads)
{
    int64_t n = threads;
    while (n > 1 && min64(w->tiles / n, fitting(w, k, n)) < LEAST_REGION)
        n = n % 2 ? 1 : n / 2;
    return n;
}

int64_t tern_cpu_winograd_i16_part(int64_t channels) { return equal_part(channels, TERN_WINOGRAD_I16_DEPTH, STEP_I16); }

/* The weights of a part of a strip, where they are of f32, and the products of a task, each in six tenths of L2: one matrix in 36 of each
 * is at work at a time. */
struct tern_cpu_winograd_blocks tern_cpu_winograd_blocks(struct tern_context *ctx, const struct cpu_winograd *w, int bits)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const bool i16 = cpu_winograd_is_i16(w->dtype);
    const int64_t mr = d->level->mr, nr = d->level->nr, columns = max64(1, COLUMNS / nr) * nr, strips = ceil_div(w->o, columns);
    const int64_t line = LINE / (int64_t)sizeof(float), values = (int64_t)(d->l2 * 6 / 10 / sizeof(float));
    const int64_t share = max64(values / w->points / columns, line); /* rows of a strip */
    struct tern_cpu_winograd_blocks k = {.columns = columns, .element = i16 ? sizeof(int16_t) : sizeof(float)};
    if (w->tiles < 1 || w->o < 1)
        return k;
    k.kc = i16 ? tern_cpu_winograd_i16_part(w->c) : equal_part(w->c, share / line * line, line);
    k.parts = ceil_div(w->c, k.kc);
    k.regions = regions(w, &k, tern_thread_count(ctx));
    const int64_t most = min64(share, fitting(w, &k, k.regions));
    k.region = ceil_div(w->tiles, k.regions);
    k.rows = equal_part(k.region, max64(most / mr * mr, mr), mr);
    k.strips = max64(1, min64(min64(share / k.rows, MOST_STRIPS), strips / tern_thread_count(ctx)));
    k.groups = ceil_div(strips, k.strips);
    /* No more than that, since who reads a matrix to its end has begun to fetch what lies behind it. */
    k.step_v = odd_lines(k.rows * k.kc, LINE / k.element);
    k.step_u = odd_lines(k.kc * columns, LINE / k.element);
    k.step_m = odd_lines(k.rows * k.strips * columns, line);
    k.block = k.parts * w->points * k.step_v;
    k.blocks = max64(1, min64(ceil_div(k.region, k.rows), MOST_WORKSPACE / k.element / k.block / k.regions));
    k.units = i16 ? k.parts * w->points * k.rows : 0;
    k.scales = i16 ? w->points * nr : 0;
    k.filters = bits ? k.kc * nr * 9 : 0;
    k.slot = cpu_slot((size_t)(w->points * k.step_u * k.element) + (size_t)(w->points * k.step_m + k.scales + k.filters) * sizeof(float));
    return k;
}
