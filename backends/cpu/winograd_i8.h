/* Winograd's convolution in int8: its packed weights, and a call of it. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_I8_H
#define TERN_BACKENDS_CPU_WINOGRAD_I8_H

#include "backends/cpu/gemm_i8.h"
#include "backends/cpu/winograd.h"

#define CPU_WINOGRAD_I8_POINTS TERN_WINOGRAD_I8_POINTS
#define CPU_WINOGRAD_I8_SUMS TERN_WINOGRAD_I8_SUMS

/* What tern_cpu_i8_pack makes, panels of 9 taps of `depth` rows, and for each output channel what transformed weights need, which are made
 * of that while a kernel runs. */
struct tern_cpu_winograd_i8_weights {
    struct cpu_i8_packed taps;
    int64_t n, depth;
    int32_t *offset; /* of a point, n each: what its sums are too large by */
    int16_t *factor; /* of a sum of taps, n each: what it is multiplied with, over 2^15, to fit into a byte */
};
struct tern_cpu_winograd_i8_weights tern_cpu_winograd_i8_weights(const struct tern_meta *weight, void *packed);
size_t tern_cpu_winograd_i8_packed_size(const struct tern_meta *weight);
enum tern_status tern_cpu_winograd_i8_pack(struct tern_context *ctx, const struct tern_meta *weight, const void *src, void *dst);

/* A panel of it: columns col .. col + cols, in rows of `width`. */
struct tern_cpu_winograd_i8_panel {
    int64_t col, cols, width;
    const int8_t *taps;
};
struct tern_cpu_winograd_i8_panel tern_cpu_winograd_i8_panel(const struct tern_cpu_winograd_i8_weights *w, int64_t panel);
/* Which of the sums a point is; -1 - tap: it is a tap. */
int tern_cpu_winograd_i8_point(int point);
/* Factors of the panel's sums as the transform wants them: CPU_WINOGRAD_I8_SUMS rows of 4 * width. */
void tern_cpu_winograd_i8_factors(const struct tern_cpu_winograd_i8_weights *w, const struct tern_cpu_winograd_i8_panel *p, int16_t *to);
/* What a whole number of a weight of that point and column counts in the units of the column's bytes, with the factor that the input's
 * transform has. */
float tern_cpu_winograd_i8_unit(const struct tern_cpu_winograd_i8_weights *w, int point, int64_t col);

/* ---- a call: chunks of tiles, transformed, then multiplied. A task multiplies some rows of a chunk by some panels. */

#define CPU_WINOGRAD_I8_GROUP TERN_DOT_ROWS /* tiles that are multiplied together */
#define CPU_WINOGRAD_I8_PANELS 4            /* of a task at most */

struct cpu_winograd_i8_plan {
    int64_t depth;             /* channels, filled up to lines */
    int64_t kc, parts;         /* channels of a part, which are the bytes between its tiles, too */
    int64_t chunk, rows;       /* tiles of a chunk, of a task: whole groups */
    int64_t splits, panels;    /* of the panels; panels of a task at most */
    int64_t ldm, step_m;       /* sums between tiles, between points */
    size_t v, row, slot;       /* bytes of the transformed input, of its scales, of scratch for one thread: */
    size_t u, m, column, wide; /* of it: weights, sums, a value for each column, one tile's values or the factors of a panel */
};

struct cpu_winograd_i8_run {
    struct cpu_winograd w;
    struct cpu_winograd_i8_plan k;
    struct tern_cpu_winograd_i8_weights weights;
    const float *scale; /* of output channels */
    const void *bias;   /* or NULL */
    enum tern_dtype bias_dtype;
    uint8_t *v; /* group, part, point, tile, channel */
    float *row; /* of tiles: what a byte of each point counts */
    char *scratch;
    int64_t tile0, tiles; /* of this chunk */
};

/* The first point of tile i of the chunk, in a part of the channels. */
static inline uint8_t *cpu_winograd_i8_tile(const struct cpu_winograd_i8_run *r, int64_t i, int64_t part)
{
    const int64_t group = (i / CPU_WINOGRAD_I8_GROUP * r->k.parts + part) * CPU_WINOGRAD_I8_POINTS;
    return r->v + (group * CPU_WINOGRAD_I8_GROUP + i % CPU_WINOGRAD_I8_GROUP) * r->k.kc;
}

/* As tern_parallel_slots has it; arg: a struct cpu_winograd_i8_run. */
void tern_cpu_winograd_i8_task(void *arg, int slot, int64_t task);

#endif
