/* Heads of attention, (N, H, L, E), as projections leave them: any strides but for the last. */
#ifndef TERN_BACKENDS_CPU_HEADS_H
#define TERN_BACKENDS_CPU_HEADS_H

#include "backends/cpu/cpu.h"

/* Whether the tensor has that dtype and as many heads as q, each row in one piece. */
static inline bool cpu_heads_fit(const struct tern_meta *m, const struct tern_meta *q, enum tern_dtype dtype)
{
    return m->ndim == 4 && m->dtype == dtype && (m->stride[3] == 1 || m->shape[3] == 1) && m->shape[0] == q->shape[0] &&
           m->shape[1] == q->shape[1];
}

/* Where a head begins, in elements. */
static inline int64_t cpu_head_at(const struct tern_meta *m, int64_t n, int64_t h) { return n * m->stride[0] + h * m->stride[1]; }

#endif
