/* The checked side of the HAL: reference counts and ranges. */
#include "core/hal.h"

#include "core/context.h"
#include "core/number.h"
#include "core/shape.h"

const char *tern_device_identity(struct tern_device *device)
{
    if (!device->identity[0]) {
        locale_t before = tern_number_enter(); /* it is part of keys, which programs of other locales share */
        (device->fns->identify ? device->fns->identify : device->fns->describe)(device, device->identity, sizeof(device->identity));
        tern_number_leave(before);
    }
    return device->identity;
}

bool tern_caps_take(const struct tern_device_caps *caps, const struct tern_meta *m)
{
    return !caps->max_argument || tern_meta_bytes(m) <= caps->max_argument;
}

static struct tern_buffer *create(struct tern_device *device, struct tern_buffer *(*fn)(struct tern_device *, size_t), size_t size)
{
    if (device->caps.max_buffer && size > device->caps.max_buffer) {
        tern_fail(device->ctx, TERN_E_NO_MEMORY, "%s: a buffer of %zu bytes was asked for, the device allows %zu", device->name, size,
                  device->caps.max_buffer);
        return NULL;
    }
    struct tern_buffer *b = fn(device, size);
    if (b)
        b->id = __atomic_add_fetch(&device->ctx->buffers, 1, __ATOMIC_RELAXED);
    return b;
}

struct tern_buffer *tern_buffer_create(struct tern_device *device, size_t size) { return create(device, device->fns->buffer_create, size); }

struct tern_buffer *tern_buffer_create_weight(struct tern_device *device, size_t size)
{
    return create(device, device->fns->weight_create ? device->fns->weight_create : device->fns->buffer_create, size);
}

void tern_buffer_mark_weight(struct tern_buffer *b)
{
    if (b && b->device->fns->weight_mark)
        b->device->fns->weight_mark(b);
}

static void wrapped_destroy(struct tern_buffer *b)
{
    struct tern_context *ctx = b->device->ctx;
    if (b->release)
        b->release(b->user);
    tern_free(ctx, b);
}

static enum tern_status wrapped_write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    return tern_fail(b->device->ctx, TERN_E_INTERNAL, "write of %zu bytes into read-only memory", size);
}

static enum tern_status wrapped_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    __builtin_memcpy(dst, (const char *)b->host + offset, size);
    return TERN_OK;
}

static const struct tern_buffer_fns wrapped_fns = {wrapped_destroy, wrapped_write, wrapped_read};

struct tern_buffer *tern_buffer_wrap(struct tern_device *device, void *host, size_t size, void (*release)(void *), void *user)
{
    struct tern_buffer *b = tern_calloc(device->ctx, 1, sizeof(*b));
    if (b)
        *b = (struct tern_buffer){&wrapped_fns, device, 1, size, host, release, user};
    return b;
}

struct tern_buffer *tern_buffer_ref(struct tern_buffer *b)
{
    if (b)
        __atomic_add_fetch(&b->refs, 1, __ATOMIC_RELAXED);
    return b;
}

void tern_buffer_unref(struct tern_buffer **b)
{
    if (*b && __atomic_sub_fetch(&(*b)->refs, 1, __ATOMIC_ACQ_REL) == 0)
        (*b)->fns->destroy(*b);
    *b = NULL;
}

static enum tern_status check_range(const struct tern_buffer *b, size_t offset, size_t size)
{
    if (offset > b->size || size > b->size - offset)
        return tern_fail(b->device->ctx, TERN_E_INTERNAL, "range %zu + %zu outside a buffer of %zu bytes", offset, size, b->size);
    return TERN_OK;
}

enum tern_status tern_buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    enum tern_status st = check_range(b, offset, size);
    return st ? st : b->fns->write(b, offset, src, size);
}

enum tern_status tern_buffer_write_beside(struct tern_buffer *b, const struct tern_event *after, size_t offset, const void *src,
                                          size_t size)
{
    enum tern_status st = check_range(b, offset, size);
    return st ? st : after->queue->fns->write_beside(after->queue, after, b, offset, src, size);
}

enum tern_status tern_buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    enum tern_status st = check_range(b, offset, size);
    return st ? st : b->fns->read(b, offset, dst, size);
}

enum tern_status tern_device_peak(struct tern_context *ctx, struct tern_device_peak *peak)
{
    if (!peak)
        return tern_fail(ctx, TERN_E_INVALID, "tern_device_peak: expected a place for the result, found NULL");
    *peak = (struct tern_device_peak){0};
    return tern_failed(ctx) ? tern_error_status(ctx) : tern_device_measure(ctx->own, peak);
}

enum tern_status tern_device_measure(struct tern_device *device, struct tern_device_peak *peak)
{
    *peak = (struct tern_device_peak){0};
    if (tern_failed(device->ctx))
        return tern_error_status(device->ctx);
    return device->fns->peak ? device->fns->peak(device, peak) : TERN_OK;
}

struct tern_device *tern_device_go(struct tern_context *ctx, struct tern_device *device)
{
    struct tern_device *former = ctx->device;
    ctx->device = device;
    return former;
}

struct tern_device *tern_default_device(struct tern_context *ctx) { return ctx->own; }
struct tern_device *tern_host_device(struct tern_context *ctx) { return ctx->host; }
