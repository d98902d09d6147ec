/* What the kernels of the normalisations share: their small inputs, and the scale of a variance. */
#ifndef TERN_BACKENDS_CPU_NORM_H
#define TERN_BACKENDS_CPU_NORM_H

#include <math.h>

#include "backends/cpu/kernels.h"

/* Input i is absent, or of a floating dtype without gaps: a weight, a bias. */
static inline bool cpu_norm_vector(const struct tern_op_desc *d, int i)
{
    return i >= d->n_in || !d->present[i] || (tern_dtype_is_float(d->in[i].dtype) && tern_meta_is_contiguous(&d->in[i]));
}

/* Bytes of workspace for such an input in f32; 0 when it is so already. */
static inline size_t cpu_norm_room(const struct tern_op_desc *d, int i)
{
    bool narrow = i < d->n_in && d->present[i] && d->in[i].dtype != TERN_F32;
    return narrow ? (size_t)tern_meta_numel(&d->in[i]) * sizeof(float) : 0;
}

/* Its values in f32, NULL when it is absent; what of it has to be widened goes to *room, which moves on. */
static inline const float *cpu_norm_input(const struct tern_kernel_args *a, int i, float **room)
{
    if (i >= a->desc->n_in || !a->desc->present[i])
        return NULL;
    if (a->desc->in[i].dtype == TERN_F32)
        return tern_arg_host(&a->in[i]);
    float *wide = *room;
    int64_t n = tern_meta_numel(&a->desc->in[i]);
    cpu_level(a->ctx)->to_f32(a->desc->in[i].dtype, n, tern_arg_host(&a->in[i]), wide);
    *room = wide + n;
    return wide;
}

/* 1 / sqrt(variance + eps). Rounding may leave a variance below 0, which counts as 0; NaN stays NaN. */
static inline double cpu_norm_scale(double variance, double eps) { return 1 / sqrt((variance < 0 ? 0 : variance) + eps); }

#endif
