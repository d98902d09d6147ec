/* Constants of a graph: their bytes, and tensors made of such bytes. */
#include <tern/tensor.h>

#include "core/context.h"
#include "graph/graph.h"
#include "ops/reference.h"
#include "ops/resident.h"

const void *tern_constant_bytes(struct tern_context *ctx, const tern_tensor *t, size_t *size, void **copy)
{
    const size_t element = tern_dtype_size(t->meta.dtype);
    const void *from = tern_host_elements(t, copy);
    *size = (size_t)tern_meta_span(&t->meta) * element;
    if (!from || tern_meta_is_dense(&t->meta))
        return from;
    void *own = tern_calloc(ctx, *size + 1, 1);
    int64_t n = tern_meta_numel(&t->meta);
    for (int64_t p = 0; own && p < n; p++) {
        int64_t at = tern_meta_offset(&t->meta, p);
        tern_copy_element(element, own, at, from, at);
    }
    tern_free(ctx, *copy);
    return *copy = own;
}

tern_tensor *tern_constant_make(struct tern_context *ctx, const struct tern_meta *meta, bool constant, const void *data, size_t size)
{
    tern_scope_begin(ctx);
    tern_tensor *t = tern_tensor_empty(ctx, meta);
    if (t && size && tern_buffer_write(t->buffer, 0, data, size))
        t = NULL;
    if (t)
        t->constant = constant;
    tern_tensor_ref(t);
    tern_scope_end(ctx, NULL);
    return t;
}
