/* Buffers of a CUDA device: stream-ordered memory of its default pool, or plain; in host memory where the device has no more. */
#include "backends/cuda/cuda.h"
#include "core/context.h"

static struct cuda_device *device_of(const struct tern_buffer *b) { return (struct cuda_device *)b->device; }

static CUresult give_back(struct cuda_device *d, const struct cuda_buffer *b)
{
    if (b->host) {
        cuda_drain(d); /* kernels may read it yet */
        return d->cu.cuMemFreeHost(b->host);
    }
    return b->pooled ? d->cu.cuMemFreeAsync(b->at, cuda_stream(d)) : d->cu.cuMemFree_v2(b->at);
}

static void buffer_destroy(struct tern_buffer *base)
{
    struct cuda_buffer *b = (struct cuda_buffer *)base;
    struct cuda_device *d = device_of(base);
    struct tern_context *ctx = d->gpu.base.ctx;
    if (!cuda_enter(d, NULL)) { /* a lost device's memory goes with its context */
        give_back(d, b);
        d->on_host -= b->host ? base->size : 0;
        cuda_leave(d);
    }
    tern_memory_discharge(ctx, base->size);
    tern_free(ctx, b);
}

static enum tern_status buffer_write(struct tern_buffer *base, size_t offset, const void *src, size_t size)
{
    struct cuda_device *d = device_of(base);
    if (!size)
        return TERN_OK;
    if (cuda_enter(d, "writing a buffer"))
        return TERN_E_DEVICE;
    CUresult error = cuda_copy_in(d, ((struct cuda_buffer *)base)->at + offset, src, size);
    cuda_leave(d);
    return error ? cuda_fail(d, "writing a buffer", error) : TERN_OK;
}

static enum tern_status buffer_read(struct tern_buffer *base, size_t offset, void *dst, size_t size)
{
    struct cuda_device *d = device_of(base);
    if (!size)
        return TERN_OK;
    if (cuda_enter(d, "reading a buffer"))
        return TERN_E_DEVICE;
    CUresult error = cuda_copy_out(d, dst, ((struct cuda_buffer *)base)->at + offset, size);
    cuda_leave(d);
    return error ? cuda_fail(d, "reading a buffer", error) : TERN_OK;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

static CUresult on_device(struct cuda_device *d, struct cuda_buffer *b, size_t size)
{
    b->pooled = d->pools;
    CUresult error = d->pools ? d->cu.cuMemAllocAsync(&b->at, size, cuda_stream(d)) : d->cu.cuMemAlloc_v2(&b->at, size);
    /* what is captured runs behind it by itself only when it is there already */
    return error || !d->pools || !d->capturing ? error : d->cu.cuStreamSynchronize(d->side);
}

/* Host memory that kernels reach over the bus: what the device has no room for, at most `most_on_host` bytes in all. */
static CUresult on_host(struct cuda_device *d, struct cuda_buffer *b, size_t size, size_t rounded)
{
    if (!d->maps_host || size > d->most_on_host || d->on_host > d->most_on_host - size)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult error = d->cu.cuMemHostAlloc(&b->host, rounded, CU_MEMHOSTALLOC_DEVICEMAP);
    if (error) {
        b->host = NULL;
        return error;
    }
    if ((error = d->cu.cuMemHostGetDevicePointer_v2(&b->at, b->host, 0))) {
        d->cu.cuMemFreeHost(b->host);
        b->host = NULL;
        return error;
    }
    d->on_host += size;
    tern_message(d->gpu.base.ctx, TERN_LOG_WARN,
                 "cuda: %zu bytes did not fit the device's memory and lie in the host's (%zu in all), where they are slower to reach", size,
                 d->on_host);
    return CUDA_SUCCESS;
}

/* In the device's memory; once more when the pool has given back what is idle; else in the host's. */
static CUresult allocate(struct cuda_device *d, struct cuda_buffer *b, size_t size)
{
    /* kernels may read a whole word where the last elements of a small dtype end */
    size_t rounded = (size + 19) / 16 * 16;
    CUresult error = on_device(d, b, rounded);
    if (error != CUDA_ERROR_OUT_OF_MEMORY)
        return error;
    cuda_memory_trim(&d->gpu.base);
    error = on_device(d, b, rounded);
    return error == CUDA_ERROR_OUT_OF_MEMORY ? on_host(d, b, size, rounded) : error;
}

static enum tern_status fail_memory(struct cuda_device *d, size_t size, CUresult error)
{
    size_t unused = 0, total = 0;
    if (error != CUDA_ERROR_OUT_OF_MEMORY)
        return cuda_fail(d, "making a buffer", error);
    if (d->cu.cuMemGetInfo_v2(&unused, &total))
        unused = 0;
    return tern_fail(
        d->gpu.base.ctx, TERN_E_NO_MEMORY,
        "cuda: %s: a buffer of %zu bytes was asked for, %zu of %zu bytes are free, and in the host's memory %zu of %zu are taken; "
        "a smaller picture, another dtype or offload would help",
        d->name, size, unused, d->memory, d->on_host, d->most_on_host);
}

struct tern_buffer *cuda_buffer_create(struct tern_device *device, size_t size)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct cuda_buffer *b = size > SIZE_MAX / 2 ? NULL : tern_calloc(device->ctx, 1, sizeof(*b));
    if (size > SIZE_MAX / 2)
        tern_fail(device->ctx, TERN_E_NO_MEMORY, "cuda: %s: a buffer of %zu bytes was asked for", d->name, size);
    if (!b || tern_memory_charge(device->ctx, device->name, size)) {
        tern_free(device->ctx, b);
        return NULL;
    }
    enum tern_status st = cuda_enter(d, "making a buffer");
    if (!st) {
        CUresult error = allocate(d, b, size);
        st = error ? fail_memory(d, size, error) : TERN_OK;
        cuda_leave(d);
    }
    if (st) {
        tern_memory_discharge(device->ctx, size);
        tern_free(device->ctx, b);
        return NULL;
    }
    b->base = (struct tern_buffer){.fns = &buffer_fns, .device = device, .refs = 1, .size = size};
    return &b->base;
}

/* What the pool keeps goes back when the stream has come by the places where it was freed. */
void cuda_memory_trim(struct tern_device *device)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (!d->pools || cuda_enter(d, NULL))
        return;
    if (!cuda_drain(d))
        d->cu.cuMemPoolTrimTo(d->pool, 0);
    cuda_leave(d);
}
