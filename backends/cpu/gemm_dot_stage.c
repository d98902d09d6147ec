/* A of the products of gemm_dot.h: its depth in parts, and rows of a part where the products want them. */
#include <string.h>

#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/integers.h"

#define PAD 32  /* values between gathered rows: an odd number of lines, so that rows do not share cache sets */
#define LINE 32 /* values of a line of cache */
#define MOST_DEPTH 512
#define WAYS 8          /* lines of A in each set of L1 */
#define WAYS_PAST_L1 10 /* where nothing but A is to stay there */

/* Values of each of so many rows that two thirds of L1 hold. */
static int64_t fitting(struct tern_context *ctx, int64_t rows) { return max64(64, (int64_t)(cpu_device_of(ctx)->l1 * 2 / 3) / (rows * 2)); }

/* The same of five sixths, the share of L1 that A has where panels do not go by it. */
static int64_t fitting_alone(struct tern_context *ctx, int64_t rows) { return fitting(ctx, rows) * 5 / 4; }

int64_t tern_cpu_dot_part(struct tern_context *ctx, const struct tern_cpu_dot *dot, int64_t depth, int64_t rows)
{
    return equal_part(depth, min64(MOST_DEPTH, fitting(ctx, rows)), dot->step);
}

void tern_cpu_dot_parts(struct tern_context *ctx, struct cpu_dot_gemm *g)
{
    const int64_t planes = g->split ? CPU_X3_PLANES : 1;
    g->rows = g->dot->rows;
    g->part_depth = tern_cpu_dot_part(ctx, g->dot, g->k, TERN_DOT_ROWS * planes);
    if (!g->split && g->dot->tile && g->part_depth < g->k) {
        g->stream = true;
        g->rows = g->dot->tile;
        g->part_depth = equal_part(g->k, fitting(ctx, g->rows), LINE);
    } else if (g->dot->past_l1)
        g->part_depth = equal_part(g->k, fitting_alone(ctx, TERN_DOT_ROWS), g->dot->step);
    g->parts = (int)ceil_div(g->k, g->part_depth);
    g->a_plane = g->rows * tern_cpu_dot_lda(g);
    g->scratch = (size_t)(g->a_plane * planes);
}

int64_t tern_cpu_dot_row(const struct cpu_dot_gemm *g, int64_t row0)
{
    const int64_t pair = 2 * g->apart;
    return g->first + (g->apart ? row0 / pair * pair + row0 % pair / 2 : row0);
}

int64_t tern_cpu_dot_lda(const struct cpu_dot_gemm *g) { return g->part_depth + PAD; }

int64_t tern_cpu_dot_range(const struct cpu_dot_gemm *g, int part, int64_t *k0)
{
    *k0 = part * g->part_depth;
    return min64(g->part_depth, g->k - *k0);
}

static int whole_part(const struct cpu_dot_gemm *g, int part, const uint16_t *scratch, struct tern_dot_piece *pieces)
{
    const int64_t lda = tern_cpu_dot_lda(g);
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0);
    *pieces = (struct tern_dot_piece){{scratch, scratch + TERN_DOT_HALF * lda}, lda, k0, round_up(there, g->dot->step)};
    return 1;
}

int tern_cpu_dot_bytes(const struct cpu_dot_gemm *g, int64_t i, int part, const uint16_t *bytes, struct tern_dot_piece *pieces)
{
    const int64_t ld = g->values->pitch / 2;
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0);
    const uint16_t *a = bytes + i * ld + k0;
    *pieces = (struct tern_dot_piece){{a, a + TERN_DOT_HALF * ld}, ld, k0, there};
    return 1;
}

int tern_cpu_dot_split(const struct cpu_dot_gemm *g, int64_t rows, int part, const float *x, int64_t ldx, uint16_t *scratch,
                       struct tern_dot_piece *pieces)
{
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0);
    g->split->split_rows(rows, there, x, ldx, scratch, tern_cpu_dot_lda(g), g->a_plane);
    return whole_part(g, part, scratch, pieces);
}

int tern_cpu_dot_gathered(const struct cpu_dot_gemm *g, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces)
{
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0), depth = round_up(there, g->dot->step), lda = tern_cpu_dot_lda(g);
    for (int64_t i = 0; i < rows && there < depth; i++) /* the weights there are zero, but 0 x NaN is not */
        memset(scratch + i * lda + there, 0, (size_t)(depth - there) * sizeof(*scratch));
    return whole_part(g, part, scratch, pieces);
}

/* Rows of whole lines are read where they lie, unless so many of their lines would share the sets of L1 (64 in the caches we know) that
 * they drive each other out. */
static bool lies_well(const struct tern_cpu_dot *dot, const uint16_t *a, int64_t ld, int64_t rows, int64_t depth)
{
    int64_t lines = depth * 2 / 64, pitch = ld * 2 / 64, shared = 1;
    while (shared < 64 && pitch % (2 * shared) == 0)
        shared *= 2;
    int64_t sets = 64 / shared * lines < 64 ? 64 / shared * lines : 64;
    return rows % dot->row_step == 0 && depth % 32 == 0 && ld % 32 == 0 && (uintptr_t)a % 64 == 0 &&
           rows * lines <= (dot->past_l1 ? WAYS_PAST_L1 : WAYS) * sets;
}

int tern_cpu_dot_rows(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces)
{
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0), lda = tern_cpu_dot_lda(g);
    const uint16_t *a = (const uint16_t *)g->source + row0 * g->lda + k0;
    if (lies_well(g->dot, a, g->lda, rows, there)) {
        *pieces = (struct tern_dot_piece){{a, a + TERN_DOT_HALF * g->lda}, g->lda, k0, there};
        return 1;
    }
    for (int64_t i = 0; i < rows; i++)
        memcpy(scratch + i * lda, a + i * g->lda, (size_t)there * sizeof(*a));
    return tern_cpu_dot_gathered(g, rows, part, scratch, pieces);
}
