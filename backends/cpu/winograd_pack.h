/* Packed weights of Winograd's convolution of floats: panels of the filters as they are, of any floating dtype or of few bits. For products
 * of whole numbers there is behind them what each point and output channel counts in. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_PACK_H
#define TERN_BACKENDS_CPU_WINOGRAD_PACK_H

#include "backends/cpu/weights.h"

struct cpu_winograd_weights {
    char *panels;
    struct cpu_weights kept; /* they are of few bits; 0: of `dtype` */
    enum tern_dtype dtype;
    int64_t c, o, nr; /* input channels, output channels, columns of a panel */
    float *units;     /* of the points, o each; NULL: products of f32 */
};

/* As kernels have them. */
size_t tern_cpu_winograd_packed_size(struct tern_context *ctx, const struct tern_op_desc *d);
uint64_t tern_cpu_winograd_pack_key(const struct tern_op_desc *d);
enum tern_status tern_cpu_winograd_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst);

struct cpu_winograd_weights tern_cpu_winograd_packed(struct tern_context *ctx, const struct tern_op_desc *d, void *packed);

/* Filters as the level's functions have them. */
struct tern_cpu_winograd_filters {
    enum tern_dtype dtype;
    const void *w;
    int64_t channel, tap;
};
/* Input channels c0 .. c0 + n of a panel of `width` that begins with output channel col. expanded: memory for 9 n width values, where they
 * are of few bits. */
struct tern_cpu_winograd_filters tern_cpu_winograd_filters(const struct cpu_winograd_weights *w, const struct tern_cpu_level *l,
                                                           int64_t col, int64_t width, int64_t c0, int64_t n, float *expanded);
/* What the panel's transformed filters are multiplied with to be whole numbers: point, column. */
void tern_cpu_winograd_scales(const struct cpu_winograd_weights *w, int64_t col, int64_t width, float *scales);

#endif
