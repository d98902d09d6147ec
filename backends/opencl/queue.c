/* The queue of an OpenCL device, in order. */
#include "backends/queue.h"
#include "backends/opencl/opencl.h"
#include "core/context.h"

struct opencl_event {
    struct tern_event base; /* first */
    cl_event event;
};

static struct opencl_device *device_of(const struct tern_queue *q) { return (struct opencl_device *)q->device; }

static enum tern_status queue_finish(struct tern_queue *q)
{
    struct opencl_device *d = device_of(q);
    cl_int error = d->cl.clFinish(d->commands);
    return error ? tern_opencl_fail(d->gpu.base.ctx, "waiting for the queue", error) : TERN_OK;
}

static void event_destroy(struct tern_event *base)
{
    struct opencl_event *e = (struct opencl_event *)base;
    if (e->event)
        device_of(base->queue)->cl.clReleaseEvent(e->event);
    tern_free(base->queue->device->ctx, e);
}

static enum tern_status event_wait(struct tern_event *base)
{
    struct opencl_event *e = (struct opencl_event *)base;
    cl_int error = device_of(base->queue)->cl.clWaitForEvents(1, &e->event);
    return error ? tern_opencl_fail(base->queue->device->ctx, "waiting for an event", error) : TERN_OK;
}

/* A marker in the place of the one before, if there was one. */
static enum tern_status event_record(struct tern_event *base)
{
    struct opencl_device *d = device_of(base->queue);
    struct opencl_event *e = (struct opencl_event *)base;
    cl_event marker = NULL;
    cl_int error = d->cl.clEnqueueMarkerWithWaitList(d->commands, 0, NULL, &marker);
    if (error)
        return tern_opencl_fail(base->queue->device->ctx, "recording an event", error);
    if (e->event)
        d->cl.clReleaseEvent(e->event);
    e->event = marker;
    error = d->cl.clFlush(d->commands);
    return error ? tern_opencl_fail(base->queue->device->ctx, "recording an event", error) : TERN_OK;
}

static const struct tern_event_fns event_fns = {event_destroy, event_wait, event_record};

static struct tern_event *queue_record(struct tern_queue *q)
{
    struct opencl_event *e = tern_calloc(q->device->ctx, 1, sizeof(*e));
    if (!e)
        return NULL;
    e->base = (struct tern_event){&event_fns, q};
    if (!event_record(&e->base))
        return &e->base;
    event_destroy(&e->base);
    return NULL;
}

static enum tern_status write_beside(struct tern_queue *q, const struct tern_event *after, struct tern_buffer *b, size_t offset,
                                     const void *src, size_t size)
{
    return tern_opencl_write_beside(b, ((const struct opencl_event *)after)->event, offset, src, size);
}

const struct tern_queue_fns tern_opencl_queue_fns = {
    .launch = tern_queue_launch, .finish = queue_finish, .record = queue_record, .write_beside = write_beside};
