/* Tensors: reference-counted, strided, immutable once made. Views share their storage. */
#ifndef TERN_TENSOR_H
#define TERN_TENSOR_H

#include <tern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Copies `data` (contiguous, row-major) into a new tensor on the context's device.
 * data NULL: zeros. The caller owns the result, unless a scope is open (see below). NULL with the error recorded: also when a
 * device does not take the values. */
TERN_API tern_tensor *tern_tensor_create(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape, const void *data);

/* Scalar of shape (). */
TERN_API tern_tensor *tern_tensor_scalar(struct tern_context *ctx, enum tern_dtype dtype, double value);

/* One more reference; returns its argument. NULL passes through. Thread safe. */
TERN_API tern_tensor *tern_tensor_ref(tern_tensor *t);
/* One reference less and *t = NULL; the last one frees. Thread safe. */
TERN_API void tern_tensor_unref(tern_tensor **t);

/* Facts. Of NULL: 0 or NULL, as dtype TERN_DTYPE_COUNT. */
TERN_API struct tern_context *tern_tensor_context(const tern_tensor *t);
TERN_API enum tern_dtype tern_tensor_dtype(const tern_tensor *t);
TERN_API int tern_tensor_ndim(const tern_tensor *t);
/* Size of a dimension; negative dims count from the end. 0 when out of range. */
TERN_API int64_t tern_tensor_size(const tern_tensor *t, int dim);
TERN_API const int64_t *tern_tensor_shape(const tern_tensor *t);
TERN_API const int64_t *tern_tensor_strides(const tern_tensor *t); /* in elements */
TERN_API int64_t tern_tensor_numel(const tern_tensor *t);

/* Copies the elements in row-major order to `out`, converted to `dtype`.
 * `size` is that of the buffer in bytes and must be numel x dtype size. Waits for the device. */
TERN_API enum tern_status tern_tensor_read(const tern_tensor *t, enum tern_dtype dtype, void *out, size_t size);

/* Gives a tensor other values, row-major and converted from `dtype`; `size` as above. Waits for the device. The tensor is contiguous; a
 * view gives them to that part of the tensor that it is of, whose memory is tern's own and no weight's: of weights kernels may keep other
 * forms. Weights are what comes from a file, and what a plan was bound to (tern_plan_bind). */
TERN_API enum tern_status tern_tensor_write(tern_tensor *t, enum tern_dtype dtype, const void *data, size_t size);

/* Scopes: between begin and end every tensor that is made belongs to the scope. tern_scope_end
 * releases them all but `keep` (may be NULL), which goes to the enclosing scope, or to the caller
 * when there is none, and is returned. Scopes nest. One thread at a time per context. */
TERN_API void tern_scope_begin(struct tern_context *ctx);
TERN_API tern_tensor *tern_scope_end(struct tern_context *ctx, tern_tensor *keep);
/* Releases every tensor of the innermost scope but `keep`, and leaves the scope open: the boundary between two stages,
 * behind which only the result of the first is needed. Returns `keep`, which then belongs to the scope; without a scope TERN_E_INVALID is
 * recorded and `keep` stays as it was. */
TERN_API tern_tensor *tern_scope_next(struct tern_context *ctx, tern_tensor *keep);
/* tern_scope_end for `n` tensors; entries may be NULL. */
TERN_API void tern_scope_end_many(struct tern_context *ctx, tern_tensor **keep, int n);

#ifdef __cplusplus
}
#endif
#endif
