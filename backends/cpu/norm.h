/* What the kernels of the normalisations share: their small inputs, and the scale of a variance. */
#ifndef TERN_BACKENDS_CPU_NORM_H
#define TERN_BACKENDS_CPU_NORM_H

#include <math.h>

#include "backends/cpu/kernels.h"

/* Input i is absent, or f32 without gaps: a weight, a bias. */
static inline bool cpu_norm_vector(const struct tern_op_desc *d, int i)
{
    return !d->present[i] || (d->in[i].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[i]));
}

/* Values of input i; NULL when it is absent. */
static inline const float *cpu_norm_input(const struct tern_kernel_args *a, int i)
{
    return a->desc->present[i] ? tern_arg_host(&a->in[i]) : NULL;
}

/* 1 / sqrt(variance + eps). Rounding may leave a variance below 0, which counts as 0; NaN stays NaN. */
static inline double cpu_norm_scale(double variance, double eps) { return 1 / sqrt((variance < 0 ? 0 : variance) + eps); }

#endif
