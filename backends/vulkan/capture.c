/* Captures: launches in a command buffer of their own, with sets and parameters that stay, which one submission replays. */
#include "backends/vulkan/vulkan.h"
#include "core/context.h"

static void capture_free(struct vulkan_device *d, struct vulkan_capture *c)
{
    tern_vulkan_recorder_close(d, &c->r, c->value);
    tern_free(d->gpu.base.ctx, c);
}

/* Where the device is lost there is nothing to wait for, and the wait records that: the one who destroys has no use for it. */
static void capture_destroy(struct tern_capture *base)
{
    struct vulkan_capture *c = (struct vulkan_capture *)base;
    struct vulkan_device *d = (struct vulkan_device *)base->queue->device;
    if (tern_vulkan_done(d) < c->value && !__atomic_load_n(&d->lost, __ATOMIC_RELAXED))
        tern_vulkan_wait(d, c->value);
    capture_free(d, c);
}

static const struct tern_capture_fns capture_fns = {capture_destroy};

static struct vulkan_capture *begin(struct vulkan_device *d, struct tern_queue *q)
{
    struct vulkan_capture *c = NULL;
    if (d->capture)
        tern_fail(d->gpu.base.ctx, TERN_E_INTERNAL, "vulkan: a capture was begun within another one");
    else if (!tern_vulkan_alive(d))
        c = tern_calloc(d->gpu.base.ctx, 1, sizeof(*c));
    if (!c)
        return NULL;
    c->base = (struct tern_capture){.fns = &capture_fns, .queue = q, .moved = d->gpu.base.moved};
    /* a replay may be handed over while the one before it runs */
    if (!tern_vulkan_recorder_open(d, &c->r) && !tern_vulkan_recorder_begin(d, &c->r, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT))
        return c;
    capture_free(d, c);
    return NULL;
}

/* The lock is held until the end: launches of other threads wait. */
enum tern_status tern_vulkan_capture_begin(struct tern_queue *q)
{
    struct vulkan_device *d = (struct vulkan_device *)q->device;
    pthread_mutex_lock(&d->gpu.lock);
    struct vulkan_capture *c = begin(d, q);
    if (!c) {
        enum tern_status st = tern_error_status(q->device->ctx);
        pthread_mutex_unlock(&d->gpu.lock);
        return st;
    }
    d->capture = c;
    return TERN_OK;
}

struct tern_capture *tern_vulkan_capture_end(struct tern_queue *q)
{
    struct vulkan_device *d = (struct vulkan_device *)q->device;
    struct vulkan_capture *c = d->capture;
    d->capture = NULL;
    if (c->failed || tern_vulkan_recorder_end(d, &c->r)) { /* what failed may have left none to end */
        tern_fail(q->device->ctx, TERN_E_DEVICE, "vulkan: a launch of a capture failed");
        capture_free(d, c);
        c = NULL;
    }
    pthread_mutex_unlock(&d->gpu.lock);
    return c ? &c->base : NULL;
}
