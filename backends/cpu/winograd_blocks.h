/* How a call of Winograd's convolution of floats is cut: regions of tiles, chunks of a block or more of each region, tasks of a chunk. A
 * task multiplies a block by some strips: one panel each, or two or more of narrow ones, so that what comes from beyond L2 for a point
 * meets as many columns at any level. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_BLOCKS_H
#define TERN_BACKENDS_CPU_WINOGRAD_BLOCKS_H

#include "backends/cpu/winograd.h"

struct tern_cpu_winograd_blocks {
    int64_t regions, region;        /* of the tiles, each of which has its threads; tiles of each */
    int64_t rows, blocks;           /* tiles of a block; blocks of a chunk of each region */
    int64_t element;                /* bytes of a value of transformed input and weights */
    int64_t kc, parts;              /* input channels of a part */
    int64_t columns;                /* of a strip */
    int64_t strips, groups;         /* of a task; tasks of a block */
    int64_t step_v, step_u, step_m; /* values between the matrices of: a part of a block, of a strip's weights, of the products */
    int64_t block;                  /* values of a block of transformed input: part, point, tile, channel */
    int64_t units;                  /* of whole numbers: what a row of a block counts, part, point, tile; else 0 */
    int64_t scales;                 /* of whole numbers: what a panel's columns are multiplied with, point, column; else 0 */
    int64_t filters;                /* values of a part of a panel's filters, expanded */
    size_t slot;                    /* bytes of scratch for one thread: weights, products, scales, filters */
};

/* Input channels of a part of whole numbers: those of any machine, since weights are packed for it. */
int64_t tern_cpu_winograd_i16_part(int64_t channels);
/* bits: of weights that are kept in few of them, else 0. Nothing but `columns` when there are no tiles or no output channels. */
struct tern_cpu_winograd_blocks tern_cpu_winograd_blocks(struct tern_context *ctx, const struct cpu_winograd *w, int bits);

#endif
