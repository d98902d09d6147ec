/* The queue of a CUDA device: one stream. */
#include "backends/queue.h"
#include "backends/cuda/cuda.h"
#include "core/context.h"

struct cuda_event {
    struct tern_event base; /* first */
    CUevent event;
};

static struct cuda_device *device_of(const struct tern_queue *q) { return (struct cuda_device *)q->device; }

/* An event behind everything before, a new one where there is none; what is only captured is not among it. */
static enum tern_status mark(struct cuda_device *d, const char *what, CUevent *event)
{
    const bool made = *event != NULL;
    if (tern_cuda_enter(d, what))
        return TERN_E_DEVICE;
    CUresult error = made ? CUDA_SUCCESS : d->cu.cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (!error && (error = d->cu.cuEventRecord(*event, tern_cuda_stream(d))) && !made)
        d->cu.cuEventDestroy_v2(*event);
    tern_cuda_leave(d);
    return error ? tern_cuda_fail(d, what, error) : TERN_OK;
}

/* Without the device's lock, so that other threads enqueue meanwhile. */
static enum tern_status await(struct cuda_device *d, const char *what, CUevent event)
{
    CUcontext popped;
    CUresult error = d->cu.cuCtxPushCurrent_v2(d->context);
    if (!error) {
        error = d->cu.cuEventSynchronize(event);
        d->cu.cuCtxPopCurrent_v2(&popped);
    }
    return error ? tern_cuda_fail(d, what, error) : TERN_OK;
}

static void drop(struct cuda_device *d, CUevent event)
{
    CUcontext popped;
    if (d->cu.cuCtxPushCurrent_v2(d->context))
        return;
    d->cu.cuEventDestroy_v2(event);
    d->cu.cuCtxPopCurrent_v2(&popped);
}

static enum tern_status queue_finish(struct tern_queue *q)
{
    struct cuda_device *d = device_of(q);
    CUevent end = NULL;
    if (mark(d, "waiting for the queue", &end))
        return TERN_E_DEVICE;
    enum tern_status st = await(d, "waiting for the queue", end);
    drop(d, end);
    return st;
}

static void event_destroy(struct tern_event *base)
{
    drop(device_of(base->queue), ((struct cuda_event *)base)->event);
    tern_free(base->queue->device->ctx, base);
}

static enum tern_status event_wait(struct tern_event *base)
{
    return await(device_of(base->queue), "waiting for an event", ((struct cuda_event *)base)->event);
}

static enum tern_status event_record(struct tern_event *base)
{
    return mark(device_of(base->queue), "recording an event", &((struct cuda_event *)base)->event);
}

static const struct tern_event_fns event_fns = {event_destroy, event_wait, event_record};

static struct tern_event *queue_record(struct tern_queue *q)
{
    struct cuda_event *e = tern_calloc(q->device->ctx, 1, sizeof(*e));
    if (!e)
        return NULL;
    e->base = (struct tern_event){&event_fns, q};
    if (!mark(device_of(q), "recording an event", &e->event))
        return &e->base;
    tern_free(q->device->ctx, e);
    return NULL;
}

static enum tern_status write_beside(struct tern_queue *q, const struct tern_event *after, struct tern_buffer *b, size_t offset,
                                     const void *src, size_t size)
{
    struct cuda_device *d = device_of(q);
    if (!size)
        return TERN_OK;
    if (tern_cuda_enter(d, "writing a buffer"))
        return TERN_E_DEVICE;
    CUresult error =
        tern_cuda_copy_in_beside(d, ((const struct cuda_event *)after)->event, ((struct cuda_buffer *)b)->at + offset, src, size);
    tern_cuda_leave(d);
    return error ? tern_cuda_fail(d, "writing a buffer", error) : TERN_OK;
}

const struct tern_queue_fns tern_cuda_queue_fns = {.launch = tern_queue_launch,
                                                   .finish = queue_finish,
                                                   .record = queue_record,
                                                   .capture_begin = tern_cuda_capture_begin,
                                                   .capture_end = tern_cuda_capture_end,
                                                   .replay = tern_cuda_replay,
                                                   .write_beside = write_beside};
const struct tern_queue_fns tern_cuda_queue_fns_without_capture = {
    .launch = tern_queue_launch, .finish = queue_finish, .record = queue_record, .write_beside = write_beside};
