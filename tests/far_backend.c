/* A device for tests whose memory the host does not see, as that of a GPU: every op has a kernel, which is its reference on that
 * memory. What is tested with it may not use host pointers. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "core/registry.h"
#include "ops/kernel.h"

struct far_buffer {
    struct tern_buffer base;
    void *memory;
};

struct far_device {
    struct tern_device base;
    struct tern_queue queue;
};

static void buffer_destroy(struct tern_buffer *b)
{
    struct tern_context *ctx = b->device->ctx;
    tern_free(ctx, ((struct far_buffer *)b)->memory);
    tern_free(ctx, b);
}

static enum tern_status buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    memcpy((char *)((struct far_buffer *)b)->memory + offset, src, size);
    return TERN_OK;
}

static enum tern_status buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    memcpy(dst, (const char *)((struct far_buffer *)b)->memory + offset, size);
    return TERN_OK;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

static struct tern_buffer *buffer_create(struct tern_device *d, size_t size)
{
    struct far_buffer *b = tern_calloc(d->ctx, 1, sizeof(*b));
    void *memory = b ? tern_alloc(d->ctx, size) : NULL;
    if (!memory) {
        tern_free(d->ctx, b);
        return NULL;
    }
    *b = (struct far_buffer){{.fns = &buffer_fns, .device = d, .refs = 1, .size = size}, memory};
    return &b->base;
}

/* The same argument with its memory where a reference looks for it. */
static struct tern_arg seen(const struct tern_arg *a, struct tern_buffer *shadow)
{
    if (!a->buffer)
        return *a;
    *shadow = *a->buffer;
    if (!shadow->host)
        shadow->host = ((struct far_buffer *)a->buffer)->memory;
    return (struct tern_arg){shadow, a->offset};
}

static enum tern_status launch(struct tern_queue *q, const struct tern_kernel *k, const struct tern_kernel_args *a)
{
    struct tern_buffer shadow[TERN_MAX_INPUTS + 1];
    struct tern_kernel_args near = *a;
    for (int i = 0; i < a->desc->n_in; i++)
        near.in[i] = seen(&a->in[i], &shadow[i]);
    near.out = seen(&a->out, &shadow[TERN_MAX_INPUTS]);
    tern_op_get(k->op).reference(&near);
    q->launches++;
    return TERN_OK;
}

static enum tern_status finish(struct tern_queue *q) { return TERN_OK; }
static const struct tern_queue_fns queue_fns = {.launch = launch, .finish = finish};

static void device_destroy(struct tern_device *d) { tern_free(d->ctx, d); }
static void describe(const struct tern_device *d, char *out, size_t size) { snprintf(out, size, "memory that the host does not see"); }
static const struct tern_device_fns device_fns = {.destroy = device_destroy, .describe = describe, .buffer_create = buffer_create};

static bool supports_all(struct tern_device *device, const struct tern_op_desc *d) { return d->n_post == 0; }

#define OP(op_name, inputs, attrs, counterpart) \
    static const struct tern_kernel far_##op_name = {.name = "far_" #op_name, .op = TERN_OP_##op_name, .supports = supports_all};
#include "ops/ops.def"
#undef OP
static const struct tern_kernel *const kernels[] = {
#define OP(op_name, inputs, attrs, counterpart) &far_##op_name,
#include "ops/ops.def"
#undef OP
    NULL};

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    if (ordinal) {
        tern_fail(ctx, TERN_E_NOT_FOUND, "far: device %d was asked for, there is 1", ordinal);
        return NULL;
    }
    struct far_device *d = tern_calloc(ctx, 1, sizeof(*d));
    if (!d)
        return NULL;
    d->base = (struct tern_device){.fns = &device_fns,
                                   .ctx = ctx,
                                   .name = "far",
                                   .caps = {.prefers_channels_last = true, .computes = true},
                                   .kernels = kernels,
                                   .queue = &d->queue};
    d->queue = (struct tern_queue){.fns = &queue_fns, .device = &d->base};
    return &d->base;
}

extern const struct tern_backend far_backend;
const struct tern_backend far_backend = {"far", create};
