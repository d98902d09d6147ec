/* Between tensors and host values: reading elements, making scalars. */
#include <string.h>

#include "core/context.h"
#include "ops/reference.h"

static enum tern_status convert(const tern_tensor *t, const void *src, enum tern_dtype dtype, void *out)
{
    int64_t n = tern_meta_numel(&t->meta);
    bool whole = !tern_dtype_is_float(t->meta.dtype); /* a double has not all of their digits */
    bool plain = tern_meta_is_contiguous(&t->meta);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = plain ? i : tern_offset_of(i, t->meta.ndim, t->meta.shape, t->meta.stride);
        if (whole)
            tern_store_i64(dtype, out, i, tern_load_i64(t->meta.dtype, src, at));
        else
            tern_store(dtype, out, i, tern_load(t->meta.dtype, src, at));
    }
    return TERN_OK;
}

enum tern_status tern_tensor_read(const tern_tensor *t, enum tern_dtype dtype, void *out, size_t size)
{
    if (!t)
        return TERN_E_INVALID;
    struct tern_context *ctx = t->ctx;
    if (!t->buffer)
        return tern_fail(ctx, TERN_E_INVALID, "tern_tensor_read: a tensor of a graph that is being recorded has no values yet");
    size_t numel = (size_t)tern_meta_numel(&t->meta), element = tern_dtype_size(t->meta.dtype);
    if (!tern_dtype_size(dtype) || size != numel * tern_dtype_size(dtype))
        return tern_fail(ctx, TERN_E_INVALID, "tern_tensor_read: expected a buffer of %zu bytes for %zu elements of %s, found %zu",
                         numel * tern_dtype_size(dtype), numel, tern_dtype_name(dtype), size);
    if (!numel)
        return TERN_OK;
    if (!out)
        return tern_fail(ctx, TERN_E_INVALID, "tern_tensor_read: expected a buffer of %zu bytes, found NULL", size);
    if (dtype == t->meta.dtype && tern_meta_is_contiguous(&t->meta))
        return tern_buffer_read(t->buffer, t->offset, out, size);
    if (t->buffer->host)
        return convert(t, tern_tensor_host(t), dtype, out);
    size_t bytes = (size_t)tern_meta_span(&t->meta) * element;
    void *copy = tern_alloc(ctx, bytes);
    enum tern_status st = copy ? tern_buffer_read(t->buffer, t->offset, copy, bytes) : tern_error_status(ctx);
    if (!st)
        st = convert(t, copy, dtype, out);
    tern_free(ctx, copy);
    return st;
}

/* The bytes of `out` in t's dtype, from row-major elements of another. */
static void convert_back(const tern_tensor *t, enum tern_dtype dtype, const void *data, void *out)
{
    int64_t n = tern_meta_numel(&t->meta);
    bool whole = !tern_dtype_is_float(dtype);
    for (int64_t i = 0; i < n; i++)
        if (whole)
            tern_store_i64(t->meta.dtype, out, i, tern_load_i64(dtype, data, i));
        else
            tern_store(t->meta.dtype, out, i, tern_load(dtype, data, i));
}

enum tern_status tern_tensor_write(tern_tensor *t, enum tern_dtype dtype, const void *data, size_t size)
{
    if (!t)
        return TERN_E_INVALID;
    struct tern_context *ctx = t->ctx;
    size_t numel = (size_t)tern_meta_numel(&t->meta), bytes = numel * tern_dtype_size(t->meta.dtype);
    if (!t->buffer || !t->buffer->id || t->buffer->constant || !tern_meta_is_contiguous(&t->meta))
        return tern_fail(
            ctx, TERN_E_INVALID,
            "tern_tensor_write: expected a contiguous tensor, or view of one, in memory of its own that is no weight's, found %s",
            !t->buffer            ? "one of a graph"
            : t->buffer->constant ? "a weight, or memory of one"
            : !t->buffer->id      ? "memory of somebody else"
                                  : "one that is not contiguous");
    if (!tern_dtype_size(dtype) || size != numel * tern_dtype_size(dtype))
        return tern_fail(ctx, TERN_E_INVALID, "tern_tensor_write: expected %zu bytes for %zu elements of %s, found %zu",
                         numel * tern_dtype_size(dtype), numel, tern_dtype_name(dtype), size);
    if (numel && !data)
        return tern_fail(ctx, TERN_E_INVALID, "tern_tensor_write: expected %zu bytes, found NULL", size);
    if (!numel || dtype == t->meta.dtype)
        return numel ? tern_buffer_write(t->buffer, t->offset, data, size) : TERN_OK;
    void *copy = tern_alloc(ctx, bytes);
    if (!copy)
        return tern_error_status(ctx);
    convert_back(t, dtype, data, copy);
    enum tern_status st = tern_buffer_write(t->buffer, t->offset, copy, bytes);
    tern_free(ctx, copy);
    return st;
}

tern_tensor *tern_tensor_scalar(struct tern_context *ctx, enum tern_dtype dtype, double value)
{
    int64_t bytes = 0; /* room for one element of any dtype */
    if (tern_dtype_size(dtype))
        tern_store(dtype, &bytes, 0, value);
    return tern_tensor_create(ctx, dtype, 0, NULL, &bytes);
}
