/* Products of int8 on the loops of gemm_dot.h. A becomes bytes, by tasks or before them: rows whose depth is filled up to lines
 * of the cache, in the order in which blocks read them, so that no block is gathered. */
#ifndef TERN_BACKENDS_CPU_GEMM_I8_H
#define TERN_BACKENDS_CPU_GEMM_I8_H

#include "backends/cpu/gemm_dot.h"
#include "ops/quantize.h"

#define CPU_I8_LINE 64
#define CPU_I8_MOST_DEPTH 65536 /* products of a sum */

/* The parts of a packed weight, behind each other: panels, offsets, scales (of weights that were floats). */
struct cpu_i8_packed {
    int8_t *panels;
    int32_t *offset;
    float *scale;
};
struct cpu_i8_packed tern_cpu_i8_parts(const struct tern_meta *weight, int64_t k, bool gated, void *at);

/* B: panels, and behind them what the sums are too large by where bytes are unsigned, and the scales of a weight that is of floats. k: its
 * depth. gated as in tern_cpu_bf16_pack. */
size_t tern_cpu_i8_packed_size(const struct tern_meta *weight, int64_t k, bool gated);
/* weight (n, c) or (n, c, kh, kw), contiguous; row tap x depth + channel of B, where depth is c filled up to lines. `packed` as in
 * tern_cpu_pack_b. */
void tern_cpu_i8_pack(struct tern_context *ctx, const struct tern_meta *weight, bool gated, const void *src, void *dst,
                      void (*packed)(void *arg, int64_t panel), void *arg);

/* Whether tasks make bytes of their rows of A, which g->values then says: where that is not done many times over, and takes little of L2. */
bool tern_cpu_i8_rows_by_tasks(struct tern_context *ctx, struct cpu_dot_gemm *g, const struct cpu_dot_values *values);

/* Bytes of rows row0 .. row0 + rows to y; what they count by their own largest values to `factors`, which is not written with v->in. */
void tern_cpu_i8_quantize_rows(const struct tern_cpu_i8 *i8, const struct cpu_dot_values *v, int64_t row0, int64_t rows, uint8_t *y,
                               float *factors);

/* The rest of a kernel with inputs A, weight, scale and bias. A value of `row` counts for so many rows of C; it is not read where tasks
 * find the values of rows by themselves. */
enum tern_status tern_cpu_i8_launch(const struct tern_kernel_args *a, const struct cpu_dot_gemm *g, const struct cpu_rows *rows,
                                    const float *row, int64_t rows_each, void *workspace);

/* Whether dtypes and layouts of weight, scale, bias and result are right. */
bool tern_cpu_i8_fits(const struct tern_op_desc *d, bool result);

#endif
