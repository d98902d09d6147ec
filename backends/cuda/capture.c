/* Launches kept as a CUDA graph, which the driver replays with one call. */
#include "backends/cuda/cuda.h"
#include "core/context.h"

struct cuda_capture {
    struct tern_capture base; /* first */
    CUgraphExec exec;
    CUevent done; /* the last replay */
    bool replayed;
};

static struct cuda_device *device_of(const struct tern_queue *q) { return (struct cuda_device *)q->device; }

/* The device stays entered until the end: what other threads launch must not become part of it. Mode "relaxed", since this thread may
 * load modules and allocate meanwhile, beside the stream. */
enum tern_status tern_cuda_capture_begin(struct tern_queue *q)
{
    struct cuda_device *d = device_of(q);
    if (tern_cuda_enter(d, "beginning a capture"))
        return TERN_E_DEVICE;
    bool nested = d->capturing;
    CUresult error = nested ? CUDA_SUCCESS : d->cu.cuEventRecord(d->before, d->stream);
    if (!nested && !error)
        error = d->cu.cuStreamWaitEvent(d->side, d->before, 0);
    if (!nested && !error)
        error = d->cu.cuStreamBeginCapture_v2(d->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (!nested && !error) {
        d->capturing = true;
        d->captured = 0;
        return TERN_OK;
    }
    tern_cuda_leave(d);
    return nested ? tern_fail(q->device->ctx, TERN_E_INTERNAL, "cuda: a capture begins inside another one")
                  : tern_cuda_fail(d, "beginning a capture", error);
}

static void capture_destroy(struct tern_capture *base)
{
    struct cuda_capture *c = (struct cuda_capture *)base;
    struct cuda_device *d = device_of(base->queue);
    CUcontext popped;
    if (!d->cu.cuCtxPushCurrent_v2(d->context)) {
        if (c->replayed && d->cu.cuEventSynchronize(c->done))
            d->cu.cuStreamSynchronize(d->stream);
        if (c->done)
            d->cu.cuEventDestroy_v2(c->done);
        if (c->exec)
            d->cu.cuGraphExecDestroy(c->exec);
        d->cu.cuCtxPopCurrent_v2(&popped);
    }
    tern_free(base->queue->device->ctx, c);
}

static const struct tern_capture_fns capture_fns = {capture_destroy};

/* The end of the capture, whatever becomes of it. */
static CUresult end(struct cuda_device *d, struct cuda_capture *c)
{
    CUgraph graph = NULL;
    CUresult error = d->cu.cuStreamEndCapture(d->stream, &graph);
    d->capturing = false;
    if (!error && c) {
        error = d->cu.cuGraphInstantiateWithFlags(&c->exec, graph, 0);
        if (error)
            c->exec = NULL;
        else if ((error = d->cu.cuEventCreate(&c->done, CU_EVENT_DISABLE_TIMING)))
            c->done = NULL;
    }
    if (graph)
        d->cu.cuGraphDestroy(graph);
    return error;
}

struct tern_capture *tern_cuda_capture_end(struct tern_queue *q)
{
    struct cuda_device *d = device_of(q);
    struct cuda_capture *c = tern_calloc(q->device->ctx, 1, sizeof(*c));
    if (c)
        c->base = (struct tern_capture){&capture_fns, q, d->captured, d->gpu.base.moved, false};
    CUresult error = end(d, c);
    tern_cuda_leave(d); /* of the begin */
    if (error)
        tern_cuda_fail(d, "ending a capture", error);
    if (!error || !c)
        return c ? &c->base : NULL;
    capture_destroy(&c->base);
    return NULL;
}

/* What is not marked cannot be waited for later, so it is now. */
static CUresult mark(struct cuda_device *d, const struct cuda_capture *c)
{
    CUresult error = d->cu.cuEventRecord(c->done, d->stream);
    if (error)
        d->cu.cuStreamSynchronize(d->stream);
    return error;
}

enum tern_status tern_cuda_replay(struct tern_queue *q, struct tern_capture *base)
{
    struct cuda_device *d = device_of(q);
    struct cuda_capture *c = (struct cuda_capture *)base;
    if (tern_cuda_enter(d, "replaying a capture"))
        return TERN_E_DEVICE;
    enum tern_status st = TERN_OK;
    CUresult error = CUDA_SUCCESS;
    if (d->capturing)
        st = tern_fail(q->device->ctx, TERN_E_INTERNAL, "cuda: a replay inside a capture");
    else if (!tern_gpu_capture_is_stale(&d->gpu, base) && !(error = d->cu.cuGraphLaunch(c->exec, d->stream)))
        error = mark(d, c);
    c->replayed = c->replayed || (!st && !error && !base->stale);
    tern_cuda_leave(d);
    if (!st && !error && !base->stale)
        __atomic_add_fetch(&q->launches, (uint64_t)base->launches, __ATOMIC_RELAXED);
    return error ? tern_cuda_fail(d, "replaying a capture", error) : st;
}
