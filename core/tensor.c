/* Tensors: making, reading, releasing. Ops on them are in ops/. */
#include "core/tensor.h"

#include <string.h>

#include "core/context.h"

/* Without memory. Not in any scope. */
static tern_tensor *tensor_alone(struct tern_context *ctx, const struct tern_meta *meta)
{
    tern_tensor *t = tern_calloc(ctx, 1, sizeof(*t));
    if (!t)
        return NULL;
    tern_context_ref(ctx);
    t->refs = 1;
    t->ctx = ctx;
    t->meta = *meta;
    return t;
}

/* A tensor around a buffer whose reference it takes over, also on failure. Not in any scope. */
static tern_tensor *tensor_new(struct tern_context *ctx, const struct tern_meta *meta, struct tern_buffer *buffer, size_t offset)
{
    tern_tensor *t = buffer ? tensor_alone(ctx, meta) : NULL;
    if (!t) {
        tern_buffer_unref(&buffer);
        return NULL;
    }
    t->buffer = buffer;
    t->offset = offset;
    return t;
}

tern_tensor *tern_tensor_symbol(struct tern_context *ctx, const struct tern_meta *meta, int value)
{
    tern_tensor *t = tensor_alone(ctx, meta);
    if (t) {
        t->recording = ctx->recording;
        t->value = value;
    }
    return tern_scope_adopt(ctx, t);
}

tern_tensor *tern_tensor_empty_on(struct tern_device *device, const struct tern_meta *meta)
{
    size_t size;
    if (!tern_mul_size((size_t)tern_meta_span(meta), tern_dtype_size(meta->dtype), &size)) {
        tern_fail(device->ctx, TERN_E_NO_MEMORY, "a tensor of this size does not fit in memory");
        return NULL;
    }
    return tern_scope_adopt(device->ctx, tensor_new(device->ctx, meta, tern_buffer_create(device, size), 0));
}

tern_tensor *tern_tensor_empty(struct tern_context *ctx, const struct tern_meta *meta) { return tern_tensor_empty_on(ctx->device, meta); }

tern_tensor *tern_tensor_view(const tern_tensor *t, const struct tern_meta *meta, size_t offset)
{
    tern_tensor *v = tensor_new(t->ctx, meta, tern_buffer_ref(t->buffer), offset);
    if (v)
        v->constant = t->constant;
    return tern_scope_adopt(t->ctx, v);
}

tern_tensor *tern_tensor_around(struct tern_context *ctx, const struct tern_meta *meta, struct tern_buffer *buffer)
{
    tern_tensor *t = tensor_new(ctx, meta, buffer, 0);
    if (t)
        t->constant = t->buffer->constant = true;
    return t;
}

tern_tensor *tern_tensor_wrap(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape, const void *data,
                              void (*release)(void *), void *user)
{
    struct tern_meta meta = tern_meta_make(dtype, ndim, shape);
    size_t size = (size_t)tern_meta_numel(&meta) * tern_dtype_size(dtype);
    /* The memory is only ever read: wrapped buffers refuse writes. */
    struct tern_buffer *b = tern_buffer_wrap(ctx->host, (void *)(uintptr_t)data, size, release, user);
    if (!b && release)
        release(user);
    return tern_tensor_around(ctx, &meta, b);
}

void tern_tensor_make_constant(tern_tensor *t)
{
    if (!t)
        return;
    t->constant = t->buffer->constant = true;
    tern_buffer_mark_weight(t->buffer);
}

/* Most bytes of zeros that are made for a device at once: a tensor that fits in the budget is not refused for them. */
#define ZEROS ((size_t)1 << 20)

/* The first bytes of a buffer; data NULL: zeros. */
static enum tern_status fill(struct tern_context *ctx, struct tern_buffer *b, const void *data, size_t size)
{
    if (data)
        return tern_buffer_write(b, 0, data, size);
    if (b->host) {
        memset(b->host, 0, size);
        return TERN_OK;
    }
    const size_t piece = size < ZEROS ? size : ZEROS;
    void *zeros = tern_calloc(ctx, 1, piece);
    enum tern_status st = zeros ? TERN_OK : tern_error_status(ctx);
    for (size_t at = 0; at < size && !st; at += piece)
        st = tern_buffer_write(b, at, zeros, size - at < piece ? size - at : piece);
    tern_free(ctx, zeros);
    return st;
}

tern_tensor *tern_tensor_create(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape, const void *data)
{
    int64_t n;
    if (!ctx)
        return NULL;
    if (!tern_dtype_size(dtype) || !tern_shape_valid(ndim, shape, &n)) {
        tern_fail(ctx, TERN_E_INVALID,
                  "tensor: dtype %d with %d dimensions%s is not valid: at most %d sizes, none negative, a product that fits", (int)dtype,
                  ndim, shape || !ndim ? "" : " and no sizes", TERN_MAX_DIMS);
        return NULL;
    }
    struct tern_meta meta = tern_meta_make(dtype, ndim, shape);
    tern_tensor *t = tern_tensor_empty(ctx, &meta);
    size_t size = (size_t)n * tern_dtype_size(dtype);
    if (!t || !size || fill(ctx, t->buffer, data, size) == TERN_OK)
        return t;
    if (!ctx->scopes.depth)
        tern_tensor_unref(&t);
    return NULL;
}

tern_tensor *tern_tensor_ref(tern_tensor *t)
{
    if (t)
        __atomic_add_fetch(&t->refs, 1, __ATOMIC_RELAXED);
    return t;
}

void tern_tensor_unref(tern_tensor **t)
{
    if (!t || !*t)
        return;
    tern_tensor *x = *t;
    *t = NULL;
    if (__atomic_sub_fetch(&x->refs, 1, __ATOMIC_ACQ_REL))
        return;
    struct tern_context *ctx = x->ctx;
    while (x->prepared) {
        struct tern_prepared *p = x->prepared;
        x->prepared = p->next;
        tern_buffer_unref(&p->buffer);
        tern_free(ctx, p);
    }
    tern_buffer_unref(&x->buffer);
    tern_free(ctx, x);
    tern_context_unref(ctx);
}

struct tern_context *tern_tensor_context(const tern_tensor *t) { return t ? t->ctx : NULL; }
enum tern_dtype tern_tensor_dtype(const tern_tensor *t) { return t ? t->meta.dtype : TERN_DTYPE_COUNT; }
int tern_tensor_ndim(const tern_tensor *t) { return t ? t->meta.ndim : 0; }
const int64_t *tern_tensor_shape(const tern_tensor *t) { return t ? t->meta.shape : NULL; }
const int64_t *tern_tensor_strides(const tern_tensor *t) { return t ? t->meta.stride : NULL; }
int64_t tern_tensor_numel(const tern_tensor *t) { return t ? tern_meta_numel(&t->meta) : 0; }

int64_t tern_tensor_size(const tern_tensor *t, int dim)
{
    int d = t ? tern_wrap_dim(dim, t->meta.ndim) : -1;
    return d < 0 ? 0 : t->meta.shape[d];
}

void *tern_tensor_host(const tern_tensor *t) { return t->buffer && t->buffer->host ? (char *)t->buffer->host + t->offset : NULL; }
