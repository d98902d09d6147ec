/* Packed weights of 8 or 4 bits (ops/weight_only.h): panels for the loops of the gemms, which expand the part that they multiply next. */
#ifndef TERN_BACKENDS_CPU_WEIGHTS_H
#define TERN_BACKENDS_CPU_WEIGHTS_H

#include "backends/cpu/gemm.h"

/* 8 or 4 where the op keeps its weights so, else 0. */
int tern_cpu_weight_bits(const struct tern_op_desc *d);
/* What tells the packed forms of a weight apart, which have one function to make them. */
uint64_t tern_cpu_weight_key(const struct tern_op_desc *d);

/* Panels of `width` columns, a last one of at most half of them half as wide; the depth filled up to a multiple of `step`. */
struct cpu_weights {
    int bits;
    int64_t n, k, width, depth;
    bool gated; /* 2 n columns, a panel of the first n and one of the others by turns, each as wide as a whole one */
};
/* As the loops of f32 want them, and those of bf16. */
struct cpu_weights tern_cpu_weights_f32(struct tern_context *ctx, const struct tern_op_desc *d);
struct cpu_weights tern_cpu_weights_bf16(struct tern_context *ctx, const struct tern_op_desc *d);
size_t tern_cpu_weights_size(const struct cpu_weights *w);
/* weight: contiguous, any floating dtype; no copy of it in f32 is made but of a row for each thread. */
enum tern_status tern_cpu_weights_pack(struct tern_context *ctx, const struct cpu_weights *w, const struct tern_meta *weight,
                                       const void *src, void *dst);

/* Where the values of a panel lie, and their scales. */
struct tern_cpu_weights_panel {
    int64_t width;
    uint8_t *values;
    void *scales;
};
struct tern_cpu_weights_panel tern_cpu_weights_panel(const struct cpu_weights *w, const void *packed, int64_t panel);

#endif
