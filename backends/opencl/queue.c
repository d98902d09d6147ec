/* The queue of an OpenCL device, in order. All queues of a device are views of one. */
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
    return error ? opencl_fail(d->gpu.base.ctx, "waiting for the queue", error) : TERN_OK;
}

static void event_destroy(struct tern_event *base)
{
    struct opencl_event *e = (struct opencl_event *)base;
    device_of(base->queue)->cl.clReleaseEvent(e->event);
    tern_free(base->queue->device->ctx, e);
}

static enum tern_status event_wait(struct tern_event *base)
{
    struct opencl_event *e = (struct opencl_event *)base;
    cl_int error = device_of(base->queue)->cl.clWaitForEvents(1, &e->event);
    return error ? opencl_fail(base->queue->device->ctx, "waiting for an event", error) : TERN_OK;
}

static const struct tern_event_fns event_fns = {event_destroy, event_wait};

static struct tern_event *queue_record(struct tern_queue *q)
{
    struct opencl_device *d = device_of(q);
    struct opencl_event *e = tern_calloc(q->device->ctx, 1, sizeof(*e));
    if (!e)
        return NULL;
    e->base = (struct tern_event){&event_fns, q};
    cl_int error = d->cl.clEnqueueMarkerWithWaitList(d->commands, 0, NULL, &e->event);
    if (!error)
        error = d->cl.clFlush(d->commands);
    if (!error)
        return &e->base;
    opencl_fail(q->device->ctx, "recording an event", error);
    tern_free(q->device->ctx, e);
    return NULL;
}

const struct tern_queue_fns opencl_queue_fns = {tern_queue_view_destroy, tern_queue_launch, queue_finish, queue_record};
