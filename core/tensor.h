/* The inside of a tensor: a meta over a buffer. */
#ifndef TERN_CORE_TENSOR_H
#define TERN_CORE_TENSOR_H

#include <tern/tensor.h>

#include "core/hal.h"
#include "core/shape.h"

/* A kernel's own form of a constant tensor (packed weights), kept as long as the tensor lives. */
struct tern_prepared {
    struct tern_prepared *next;
    const struct tern_kernel *kernel;
    uint64_t key; /* of the layout: the same kernel may pack in several ways */
    struct tern_buffer *buffer;
};

struct tern_tensor {
    int refs;           /* atomic */
    unsigned recording; /* of its context, of which it is a value; 0: it has values of its own */
    struct tern_context *ctx;
    struct tern_meta meta;
    struct tern_buffer *buffer;                 /* NULL: a value of a graph that is being recorded, or was */
    int value;                                  /* its number there */
    int wide;                                   /* there, 1 more than the number of what the dispatcher rounded it from; 0: of nothing */
    size_t offset;                              /* bytes into the buffer */
    bool constant;                              /* never changes while it lives: kernels may keep prepared forms of it */
    struct tern_prepared *prepared;             /* guarded by the context's lock */
    void (*advise)(tern_tensor *, bool needed); /* of a mapped tensor; NULL: it is in memory anyway */
};

/* Its values will soon be read, or were and the mapped pages may go. */
static inline void tern_tensor_advise(tern_tensor *t, bool needed)
{
    if (t->advise)
        t->advise(t, needed);
}

/* What was computed is a weight from now on: it never changes, through no tensor over its memory, and its device may move it. NULL is
 * allowed. */
void tern_tensor_make_constant(tern_tensor *t);

/* Not cleared. Belongs to the open scope, if any. */
tern_tensor *tern_tensor_empty(struct tern_context *ctx, const struct tern_meta *meta);
tern_tensor *tern_tensor_empty_on(struct tern_device *device, const struct tern_meta *meta);
/* Another meta over the same memory. */
tern_tensor *tern_tensor_view(const tern_tensor *t, const struct tern_meta *meta, size_t offset);
/* A value of the graph under recording: a meta without memory. Belongs to the open scope, if any. */
tern_tensor *tern_tensor_symbol(struct tern_context *ctx, const struct tern_meta *meta, int value);
/* A constant, contiguous tensor over host memory that something else owns; release(user) when the
 * last reference goes (on failure, too). Never belongs to a scope: the caller owns it. */
tern_tensor *tern_tensor_wrap(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape, const void *data,
                              void (*release)(void *), void *user);

/* A constant, contiguous tensor around a buffer whose reference it takes over, also on failure. Never belongs to a scope. */
tern_tensor *tern_tensor_around(struct tern_context *ctx, const struct tern_meta *meta, struct tern_buffer *buffer);

/* First element on the host; NULL when the buffer is not host memory. */
void *tern_tensor_host(const tern_tensor *t);

#endif
