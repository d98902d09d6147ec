/* Loops over strided operands: dimensions are ordered as the output lies in memory and merged where they can be, so
 * that the innermost loop is as long as possible. */
#ifndef TERN_BACKENDS_CPU_LOOP_H
#define TERN_BACKENDS_CPU_LOOP_H

#include "backends/cpu/cpu.h"

#define CPU_LOOP_OPERANDS 4

struct cpu_loop {
    int operands;
    int ndim; /* at least 1; the last is the innermost */
    int64_t shape[TERN_MAX_DIMS];
    int64_t stride[CPU_LOOP_OPERANDS][TERN_MAX_DIMS]; /* in elements; operand 0 is the output */
};

/* operands[0] is the output; the others are broadcast to its shape. */
struct cpu_loop tern_cpu_loop_make(int operands, const struct tern_meta *const *metas);

/* Calls fn for runs of the innermost dimension, in parallel: at[i] is the offset of operand i in elements, the inner
 * strides are loop->stride[i][loop->ndim - 1]. */
void tern_cpu_loop_run(struct tern_context *ctx, const struct cpu_loop *loop,
                       void (*fn)(void *arg, const struct cpu_loop *loop, const int64_t *at, int64_t n), void *arg);

#endif
