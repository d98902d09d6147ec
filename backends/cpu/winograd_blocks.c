/* Sizes of blocks, chunks, tasks and regions, from those of the caches and the number of threads. */
#include "backends/cpu/winograd_blocks.h"

#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/slots.h"
#include "core/threads.h"

#define LINE 16                   /* f32 in a line of cache */
#define MOST_BLOCK (32 << 20)     /* bytes of transformed input of a block, of one in each region */
#define MOST_WORKSPACE (16 << 20) /* of a chunk of more than one block */
#define COLUMNS 32                /* whose weights are transformed together */
#define MOST_STRIPS 4             /* of a task */
#define LEAST_REGION 1600         /* pixels, and of a block of it */

/* Tiles whose transformed input may lie in one of n blocks side by side. */
static int64_t fitting(const struct cpu_winograd *w, int64_t channels, int64_t n)
{
    return MOST_BLOCK / (int64_t)sizeof(float) / w->points / channels / n;
}

/* A thread that transforms the input it multiplies reads no other's, which may lie far away. But each block transforms the weights. */
static int64_t regions(const struct cpu_winograd *w, int64_t channels, int64_t threads)
{
    int64_t n = threads;
    while (n > 1 && min64(w->tiles / n, fitting(w, channels, n)) * w->edge * w->edge < LEAST_REGION)
        n = n % 2 ? 1 : n / 2;
    return n;
}

/* n values, filled up to an odd number of lines: else the matrices would lie in the same sets of the cache. No more than that, since who
 * reads one to its end has begun to fetch what lies behind it. */
static int64_t apart(int64_t n) { return (ceil_div(n, LINE) | 1) * LINE; }

/* The weights of a part of a strip, and the products of a task, each in six or eight tenths of L2: one matrix in 36 or in 100 of each is at
 * work at a time. */
struct cpu_winograd_blocks cpu_winograd_blocks(struct tern_context *ctx, const struct cpu_winograd *w, int bits)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    const int64_t mr = d->level->mr, nr = d->level->nr, columns = max64(1, COLUMNS / nr) * nr, strips = ceil_div(w->o, columns);
    const int64_t values = (int64_t)(d->l2 / 10 / sizeof(float)) * (w->edge > 4 ? 8 : 6);
    const int64_t share = max64(values / w->points / columns, LINE); /* rows of a strip */
    struct cpu_winograd_blocks k = {.columns = columns};
    if (w->tiles < 1 || w->o < 1)
        return k;
    k.kc = ceil_div(ceil_div(w->c, ceil_div(w->c, share / LINE * LINE)), LINE) * LINE;
    k.parts = ceil_div(w->c, k.kc);
    k.regions = regions(w, k.parts * k.kc, tern_thread_count(ctx));
    const int64_t most = min64(share, fitting(w, k.parts * k.kc, k.regions));
    k.region = ceil_div(w->tiles, k.regions);
    k.rows = ceil_div(ceil_div(k.region, ceil_div(k.region, max64(most / mr * mr, mr))), mr) * mr;
    k.strips = max64(1, min64(min64(share / k.rows, MOST_STRIPS), strips / tern_thread_count(ctx)));
    k.groups = ceil_div(strips, k.strips);
    k.step_v = apart(k.rows * k.kc);
    k.step_u = apart(k.kc * columns);
    k.step_m = apart(k.rows * k.strips * columns);
    k.block = k.parts * w->points * k.step_v;
    k.blocks = max64(1, min64(ceil_div(k.region, k.rows), MOST_WORKSPACE / (int64_t)sizeof(float) / k.block / k.regions));
    k.filters = bits ? k.kc * nr * 9 : 0;
    k.slot = cpu_slot((size_t)(w->points * (k.step_u + k.step_m) + k.filters) * sizeof(float));
    return k;
}
