/* Tasks of products: blocks of rows times parts of the panels. */
#include "backends/cpu/gemm_dot_blocks.h"

#include "backends/cpu/integers.h"
#include "backends/cpu/slots.h"
#include "core/threads.h"

#define NR TERN_DOT_NR
#define FEW_ROWS 512
#define GROUP 4       /* panels that are finished together */
#define GROUP_GATED 2 /* of values and gates, where tiles leave L1 to their sums; elsewhere not measured */

/* Rows that a task with so many panels of B has room for: their sums take a quarter of L2. */
static int64_t rows_of(const struct cpu_dot_gemm *g, int64_t l2, int64_t panels)
{
    return max64(1, l2 / 4 / (panels * NR * 4) / g->rows) * g->rows;
}

/* So few rows that a task has them all: then B is read by one thread only, and A the fewest times. Equally many tasks for each thread,
 * unless panels do not divide by them: 0. */
static int64_t splits_of_few(const struct tern_cpu_dot_blocks *b, const struct cpu_dot_gemm *g, int64_t l2, int64_t threads, int64_t tasks)
{
    const int64_t least = round_up(b->splits, threads);
    for (int64_t splits = least; splits <= max64(least, tasks); splits += threads) {
        int64_t most = ceil_div(b->panels, splits);
        if (g->m <= rows_of(g, l2, most * b->turns) && most * splits * 19 <= b->panels * 20)
            return splits;
    }
    return 0;
}

/* Panels of B that a task has room for: two fifths of L2; three where no sums go there and nothing is expanded (on AMX, elsewhere not
 * measured). Few rows meet a weight that comes from memory: there, half a fifth is faster. */
static int64_t panels_of(const struct tern_cpu_dot_blocks *b, const struct cpu_dot_gemm *g, int64_t l2)
{
    const int64_t tenths = !g->dot->past_l1 ? 4 : g->m <= FEW_ROWS && !g->batch ? 1 : g->parts == 1 && !g->kept ? 6 : 4;
    return max64(1, l2 * tenths / 10 / (g->part_depth * NR * 2 * b->turns));
}

/* Some tasks for each thread. */
static void share(struct tern_cpu_dot_blocks *b, const struct cpu_dot_gemm *g, int64_t l2, int64_t threads)
{
    const int64_t batch = max64(g->batch, 1), tasks = ceil_div(4 * threads, batch);
    b->splits = ceil_div(b->panels, panels_of(b, g, l2));
    const int64_t few = g->kept ? 0 : splits_of_few(b, g, l2, max64(threads / batch, 1), tasks); /* what is expanded has to stay in L2 */
    if (few)
        b->splits = few;
    b->most = ceil_div(b->panels, b->splits) * b->turns;
    b->mc = min64(rows_of(g, l2, b->most), round_up(g->m, g->rows));
    while (!few && b->mc > 2 * g->rows && ceil_div(g->m, b->mc) * b->splits < tasks)
        b->mc -= g->rows;
    b->row_blocks = ceil_div(g->m, b->mc);
    if (!few && b->row_blocks * b->splits < tasks)
        b->splits = min64(b->panels, ceil_div(tasks, b->row_blocks));
}

/* What it takes to split a block of rows of A, which is done once for each part of the panels, and a panel of B, once for each block of
 * rows, in the time of their product. */
#define SPLIT_A 0.8
#define SPLIT_B 0.7

/* Of what lets B have a quarter of L2 and sums a fifth (with more, both come from beyond it) the tasks that are done first. */
static void share_split(struct tern_cpu_dot_blocks *b, const struct cpu_dot_gemm *g, int64_t l2, int64_t threads)
{
    const int64_t blocks = ceil_div(g->m, g->rows), panel = g->part_depth * NR * 2 * b->turns * b->planes;
    double least = 0;
    for (int64_t splits = 1; splits <= b->panels; splits++) {
        const int64_t panels = ceil_div(b->panels, splits), columns = panels * b->turns;
        if (panels > 1 && panels * panel > l2 / 4)
            continue;
        int64_t rows = g->parts > 1 ? max64(1, l2 / 5 / (columns * NR * 4 * g->rows)) : blocks;
        rows = ceil_div(blocks, max64(ceil_div(blocks, rows), min64(blocks, ceil_div(2 * threads, splits))));
        const int64_t row_blocks = ceil_div(blocks, rows), rounds = ceil_div(row_blocks * splits, threads);
        const double time = (double)rounds * ((double)(rows * columns) + SPLIT_A * (double)rows + SPLIT_B * (double)columns);
        if (!least || time < least) {
            least = time;
            b->splits = splits;
            b->most = columns;
            b->mc = rows * g->rows;
            b->row_blocks = row_blocks;
        }
    }
}

static int planes_of(enum tern_dtype dtype) { return dtype == TERN_F32 ? 3 : dtype == TERN_F16 ? 2 : 1; }

struct tern_cpu_dot_blocks tern_cpu_dot_blocks(struct tern_context *ctx, const struct cpu_dot_gemm *g)
{
    const struct cpu_device *d = cpu_device_of(ctx);
    struct tern_cpu_dot_blocks b = {0};
    if (g->m < 1 || g->n < 1 || g->k < 1)
        return b;
    b.depth = round_up(g->k, g->dot->step);
    b.turns = g->gated ? 2 : 1;
    b.panels = ceil_div(g->n, NR);
    b.planes = g->split ? planes_of(g->b_dtype) : 1;
    (g->split ? share_split : share)(&b, g, (int64_t)d->l2, tern_thread_count(ctx));
    b.group = g->gated && g->dot->past_l1 ? GROUP_GATED : GROUP;
    b.ldc = (g->parts > 1 ? b.most : min64(b.most, b.group)) * NR + 16;
    b.a_bytes = (size_t)round_up((int64_t)g->scratch * 2, 64);
    if (g->values) {
        b.factors = (size_t)round_up(b.mc * (int64_t)sizeof(float), 64);
        b.a_bytes = (size_t)(b.mc * g->values->pitch) + b.factors;
    }
    b.c_bytes = (size_t)round_up((g->parts > 1 ? b.mc : g->rows) * b.ldc * 4, 64);
    b.columns = (size_t)round_up(b.most * NR * 4, 64);
    b.part_rows = round_up(g->part_depth, g->dot->step);
    b.b_bytes = g->kept || g->split ? (size_t)round_up(b.most * NR * b.part_rows * b.planes * 2, 64) : 0;
    b.slot = cpu_slot(b.a_bytes + b.c_bytes + b.columns * 3 + b.b_bytes);
    return b;
}
