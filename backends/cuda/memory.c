/* Memory of a CUDA device's buffers: stream-ordered of a pool of its own, or plain; or pinned memory of the host, which kernels read over
 * the bus. backends/gpu/memory.c decides. */
#include "backends/cuda/cuda.h"
#include "core/context.h"

/* Kernels may read a whole word where the last elements of a small dtype end. */
static size_t rounded(const struct tern_gpu_buffer *b) { return (b->base.size + 19) / 16 * 16; }

static CUresult on_device(struct cuda_device *d, size_t size, CUdeviceptr *at)
{
    CUresult error = d->pool ? d->cu.cuMemAllocFromPoolAsync(at, size, d->pool, tern_cuda_stream(d)) : d->cu.cuMemAlloc_v2(at, size);
    /* what is captured runs behind it by itself only when it is there already */
    return error || !d->pool || !d->capturing ? error : d->cu.cuStreamSynchronize(d->side);
}

static CUresult on_host(struct cuda_device *d, size_t size, void **host, CUdeviceptr *at)
{
    if (!d->maps_host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult error = d->cu.cuMemHostAlloc(host, size, CU_MEMHOSTALLOC_DEVICEMAP);
    if (!error && (error = d->cu.cuMemHostGetDevicePointer_v2(at, *host, 0)))
        d->cu.cuMemFreeHost(*host);
    if (error)
        *host = NULL;
    return error;
}

static CUresult give_back(struct cuda_device *d, const struct cuda_buffer *b)
{
    if (b->host) {
        tern_cuda_drain(d); /* kernels may read it yet */
        return d->cu.cuMemFreeHost(b->host);
    }
    return d->pool ? d->cu.cuMemFreeAsync(b->at, tern_cuda_stream(d)) : d->cu.cuMemFree_v2(b->at);
}

static enum tern_status told(struct cuda_device *d, const char *what, CUresult error, bool *full)
{
    *full = error == CUDA_ERROR_OUT_OF_MEMORY;
    return error && !*full ? tern_cuda_fail(d, what, error) : TERN_OK;
}

static enum tern_status take(struct tern_gpu *gpu, struct tern_gpu_buffer *base, bool host, bool *full)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    struct cuda_buffer *b = (struct cuda_buffer *)base;
    if (tern_cuda_enter(d, "making a buffer"))
        return TERN_E_DEVICE;
    CUresult error = host ? on_host(d, rounded(base), &b->host, &b->at) : on_device(d, rounded(base), &b->at);
    tern_cuda_leave(d);
    return told(d, "making a buffer", error, full);
}

static void give(struct tern_gpu *gpu, struct tern_gpu_buffer *base)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    if (tern_cuda_enter(d, NULL)) /* a lost device's memory goes with its context */
        return;
    give_back(d, (struct cuda_buffer *)base);
    tern_cuda_leave(d);
}

/* The copy is over before the old memory goes: of pinned memory nothing else says when the device has read it. */
static CUresult move_to(struct cuda_device *d, const struct cuda_buffer *b, struct cuda_buffer *to)
{
    size_t size = rounded(&b->gpu);
    CUresult error = b->host ? on_device(d, size, &to->at) : on_host(d, size, &to->host, &to->at);
    if (error)
        return error;
    error = b->host ? d->cu.cuMemcpyHtoDAsync_v2(to->at, b->host, b->gpu.base.size, d->stream)
                    : d->cu.cuMemcpyDtoHAsync_v2(to->host, b->at, b->gpu.base.size, d->stream);
    CUresult waited = tern_cuda_drain(d);
    error = error ? error : waited;
    give_back(d, error ? to : b);
    return error;
}

static enum tern_status move(struct tern_gpu *gpu, struct tern_gpu_buffer *base, bool *full)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    struct cuda_buffer *b = (struct cuda_buffer *)base, to = *b;
    to.host = NULL;
    *full = d->capturing;
    if (d->capturing)
        return TERN_OK;
    if (tern_cuda_enter(d, "moving a weight"))
        return TERN_E_DEVICE;
    CUresult error = move_to(d, b, &to);
    tern_cuda_leave(d);
    if (!error)
        *b = to;
    return told(d, "moving a weight", error, full);
}

/* What the pool keeps goes back when the stream has come by the places where it was freed. */
static void trim(struct tern_gpu *gpu)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    if (!d->pool || tern_cuda_enter(d, NULL))
        return;
    if (!tern_cuda_drain(d))
        d->cu.cuMemPoolTrimTo(d->pool, 0);
    tern_cuda_leave(d);
}

void tern_cuda_memory_trim(struct tern_device *device)
{
    struct tern_gpu *gpu = (struct tern_gpu *)device;
    if (pthread_mutex_trylock(&gpu->lock)) /* as in tern_gpu_trim */
        return;
    tern_gpu_trim(device);
    trim(gpu);
    pthread_mutex_unlock(&gpu->lock);
}

/* ---- contents ---- */

static enum tern_status buffer_write(struct tern_buffer *base, size_t offset, const void *src, size_t size)
{
    struct cuda_device *d = (struct cuda_device *)base->device;
    if (!size)
        return TERN_OK;
    if (tern_cuda_enter(d, "writing a buffer"))
        return TERN_E_DEVICE;
    CUresult error = tern_cuda_copy_in(d, ((struct cuda_buffer *)base)->at + offset, src, size);
    tern_cuda_leave(d);
    return error ? tern_cuda_fail(d, "writing a buffer", error) : TERN_OK;
}

static enum tern_status buffer_read(struct tern_buffer *base, size_t offset, void *dst, size_t size)
{
    struct cuda_device *d = (struct cuda_device *)base->device;
    if (!size)
        return TERN_OK;
    if (tern_cuda_enter(d, "reading a buffer"))
        return TERN_E_DEVICE;
    CUresult error = tern_cuda_copy_out(d, dst, ((struct cuda_buffer *)base)->at + offset, size);
    tern_cuda_leave(d);
    return error ? tern_cuda_fail(d, "reading a buffer", error) : TERN_OK;
}

const struct tern_gpu_memory_fns tern_cuda_memory_fns = {.buffer_size = sizeof(struct cuda_buffer),
                                                         .take = take,
                                                         .give = give,
                                                         .move = move,
                                                         .trim = trim,
                                                         .buffer = {tern_gpu_buffer_destroy, buffer_write, buffer_read}};
