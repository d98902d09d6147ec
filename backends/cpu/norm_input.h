/* A group norm in front of a convolution (tern_pre), applied where channels-last pictures are copied: what is normalised is never written
 * by itself. */
#ifndef TERN_BACKENDS_CPU_NORM_INPUT_H
#define TERN_BACKENDS_CPU_NORM_INPUT_H

#include "backends/cpu/groups.h"

/* The picture lies as channels-last ones alone do, weight and bias as group_norm takes them. */
bool tern_cpu_norm_input_fits(const struct tern_op_desc *d);
/* Bytes of workspace, a multiple of 64; 0: there is none in front. */
size_t tern_cpu_norm_input_bytes(const struct tern_op_desc *d);
/* What is done with each channel; it lies in the workspace. */
struct groups tern_cpu_norm_input_make(const struct tern_kernel_args *a, float *workspace);
/* `rows` pixels of a picture at x to y, ldy values apart. */
void tern_cpu_norm_input_apply(const struct groups *r, int64_t picture, int64_t rows, const void *x, void *y, int64_t ldy);

#endif
