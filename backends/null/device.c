/* The null device: allocates and records, computes nothing. Shapes, memory and launches are tested with it. */
#include <stdio.h>
#include <string.h>

#include "backends/queue.h"
#include "core/context.h"
#include "core/registry.h"
#include "ops/kernel.h"

struct null_device {
    struct tern_device base;
    struct tern_queue queue;
};

static void device_destroy(struct tern_device *d) { tern_free(d->ctx, d); }

static void describe(const struct tern_device *d, char *out, size_t size)
{
    snprintf(out, size, "allocates and records, computes nothing: for tests");
}

static void buffer_destroy(struct tern_buffer *b)
{
    struct tern_context *ctx = b->device->ctx;
    tern_memory_discharge(ctx, b->size);
    tern_free(ctx, b);
}

static enum tern_status buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size) { return TERN_OK; }

static enum tern_status buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    memset(dst, 0, size);
    return TERN_OK;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

/* Counts the bytes against the budget without touching memory. */
static struct tern_buffer *buffer_create(struct tern_device *d, size_t size)
{
    struct tern_context *ctx = d->ctx;
    struct tern_buffer *b = tern_calloc(ctx, 1, sizeof(*b));
    if (!b)
        return NULL;
    if (tern_memory_charge(ctx, "null", size)) {
        tern_free(ctx, b);
        return NULL;
    }
    *b = (struct tern_buffer){.fns = &buffer_fns, .device = d, .refs = 1, .size = size};
    return b;
}

static const struct tern_device_fns device_fns = {.destroy = device_destroy, .describe = describe, .buffer_create = buffer_create};

static bool supports_all(struct tern_device *device, const struct tern_op_desc *d) { return true; }
static enum tern_status run_nothing(const struct tern_kernel_args *a) { return TERN_OK; }

/* One kernel for every op. */
#define OP(op_name, inputs, attrs, counterpart)        \
    static const struct tern_kernel null_##op_name = { \
        .name = "null_" #op_name, .op = TERN_OP_##op_name, .supports = supports_all, .run = run_nothing};
#include "ops/ops.def"
#undef OP
static const struct tern_kernel *const null_kernels[] = {
#define OP(op_name, inputs, attrs, counterpart) &null_##op_name,
#include "ops/ops.def"
#undef OP
    NULL};

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    struct null_device *d = tern_calloc(ctx, 1, sizeof(*d));
    if (!d)
        return NULL;
    d->base = (struct tern_device){.fns = &device_fns,
                                   .ctx = ctx,
                                   .name = "null",
                                   .caps = {.prefers_channels_last = true, .in_place = true},
                                   .kernels = null_kernels,
                                   .queue = &d->queue};
    d->queue = (struct tern_queue){.fns = &tern_queue_at_once, .device = &d->base};
    return &d->base;
}

extern const struct tern_backend tern_backend_null;
const struct tern_backend tern_backend_null = {"null", create};
