/* How the products of gemm_dot.h are cut into tasks, and the scratch of each. */
#ifndef TERN_BACKENDS_CPU_GEMM_DOT_BLOCKS_H
#define TERN_BACKENDS_CPU_GEMM_DOT_BLOCKS_H

#include "backends/cpu/gemm_dot.h"

struct tern_cpu_dot_blocks {
    int64_t mc;                 /* rows of a task, whole blocks */
    int64_t depth;              /* of B, filled up to the level's step */
    int64_t turns;              /* panels of B to a panel of C: 2 where each has its gates */
    int64_t panels, most;       /* of C, in all; of B, of a task */
    int64_t row_blocks, splits; /* tasks: row blocks x parts of the panels */
    int64_t group;              /* panels that are finished together */
    int64_t ldc;
    size_t a_bytes, c_bytes, slot; /* scratch of one thread: A, sums, what columns have */
    size_t columns;                /* bytes of a value for each column */
    size_t factors;                /* of A: of those of rows that become bytes, behind them */
    int64_t part_rows;             /* of B, filled up to the level's step */
    int planes;                    /* of B */
    size_t b_bytes;                /* of a part of B that is expanded: kept in few bits, or split */
};

/* slot is 0 where the product is empty. */
struct tern_cpu_dot_blocks tern_cpu_dot_blocks(struct tern_context *ctx, const struct cpu_dot_gemm *g);

#endif
