/* Shape, strides and dtype of a tensor without its data: what shape rules and kernels reason about. */
#ifndef TERN_CORE_SHAPE_H
#define TERN_CORE_SHAPE_H

#include <tern/base.h>

struct tern_meta {
    enum tern_dtype dtype;
    int ndim;
    int64_t shape[TERN_MAX_DIMS];
    int64_t stride[TERN_MAX_DIMS]; /* in elements; 0 for a broadcast dimension */
};

/* Contiguous (row-major) strides for the shape that is set. */
void tern_meta_contiguous(struct tern_meta *m);
/* A contiguous meta of that shape. */
struct tern_meta tern_meta_make(enum tern_dtype dtype, int ndim, const int64_t *shape);
/* Channels-last strides (N, C, H, W) with C fastest; ndim must be 4. */
void tern_meta_channels_last(struct tern_meta *m);

/* Dimensions of size 1 are ignored, as in PyTorch. An empty tensor is contiguous in every sense. */
bool tern_meta_is_contiguous(const struct tern_meta *m);
bool tern_meta_is_channels_last(const struct tern_meta *m);
/* Elements fill one block of memory without gaps or overlaps, in some order. */
bool tern_meta_is_dense(const struct tern_meta *m);
bool tern_meta_same_shape(const struct tern_meta *a, const struct tern_meta *b);

int64_t tern_meta_numel(const struct tern_meta *m);
/* Elements from the first to behind the last in memory. */
int64_t tern_meta_span(const struct tern_meta *m);
/* The same in bytes. */
size_t tern_meta_bytes(const struct tern_meta *m);
/* numel that does not overflow, and every size >= 0; false otherwise */
bool tern_shape_valid(int ndim, const int64_t *shape, int64_t *numel);

/* PyTorch's broadcasting of shapes (strides are not touched): false when they do not fit. */
bool tern_broadcast_shape(const struct tern_meta *a, const struct tern_meta *b, struct tern_meta *out);
/* The strides with which `m` is read under the (broadcast) shape of `to`. */
void tern_broadcast_strides(const struct tern_meta *m, const struct tern_meta *to, int64_t *stride);
/* Negative dim counts from the end; -1 when out of range. */
int tern_wrap_dim(int dim, int ndim);

/* "(2, 4, 64, 64) f32" into out; returns out. */
#define TERN_META_TEXT 128
const char *tern_meta_text(const struct tern_meta *m, char out[TERN_META_TEXT]);

#endif
