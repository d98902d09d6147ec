/* Copies between host and device, in the order of the stream or beside it. Writes go through pinned memory and do not wait for the device. */
#include <string.h>

#include "backends/cuda/cuda.h"

CUstream tern_cuda_stream(const struct cuda_device *d) { return d->capturing ? d->side : d->stream; }
CUresult tern_cuda_drain(struct cuda_device *d) { return d->cu.cuStreamSynchronize(tern_cuda_stream(d)); }

/* A slot with room for `size` bytes behind those that were filled before for the same stream, so that one event tells of all; an earlier
 * copy out of the next one is waited for. NULL when there is no pinned memory to be had. */
static struct cuda_slot *take_slot(struct cuda_device *d, CUstream stream, size_t size, CUresult *error)
{
    struct cuda_slot *s = &d->slots[d->next_slot];
    if (d->no_slots)
        return NULL;
    if (s->filled + size > CUDA_SLOT_BYTES || (s->used && s->stream != stream)) {
        d->next_slot = (d->next_slot + 1) % CUDA_SLOTS;
        s = &d->slots[d->next_slot];
        if (s->used && (*error = d->cu.cuEventSynchronize(s->done)))
            return NULL;
        s->used = false;
        s->filled = 0;
    }
    if (!s->memory && d->cu.cuMemHostAlloc(&s->memory, CUDA_SLOT_BYTES, 0)) {
        s->memory = NULL;
        d->no_slots = true;
        return NULL;
    }
    if (!s->done && (*error = d->cu.cuEventCreate(&s->done, CU_EVENT_DISABLE_TIMING))) {
        s->done = NULL;
        return NULL;
    }
    return s;
}

static CUresult copy_part(struct cuda_device *d, CUstream stream, CUdeviceptr to, const void *from, size_t size, size_t *part)
{
    CUresult error = CUDA_SUCCESS;
    *part = size < CUDA_SLOT_BYTES ? size : CUDA_SLOT_BYTES;
    struct cuda_slot *s = take_slot(d, stream, *part, &error);
    if (error)
        return error;
    if (!s) { /* the driver's own way for memory that is not pinned */
        *part = size;
        error = d->cu.cuMemcpyHtoDAsync_v2(to, from, size, stream);
        return error ? error : d->cu.cuStreamSynchronize(stream);
    }
    char *at = (char *)s->memory + s->filled;
    memcpy(at, from, *part);
    s->filled += (*part + 63) / 64 * 64;
    error = d->cu.cuMemcpyHtoDAsync_v2(to, at, *part, stream);
    if (error)
        return error;
    if ((error = d->cu.cuEventRecord(s->done, stream)))
        d->cu.cuStreamSynchronize(stream); /* what is not marked cannot be waited for later */
    s->used = !error;
    s->stream = stream;
    return error;
}

static CUresult copy_parts(struct cuda_device *d, CUstream stream, CUdeviceptr to, const void *from, size_t size)
{
    CUresult error = CUDA_SUCCESS;
    for (size_t done = 0, part = 0; done < size && !error; done += part)
        error = copy_part(d, stream, to + done, (const char *)from + done, size - done, &part);
    return error;
}

CUresult tern_cuda_copy_in(struct cuda_device *d, CUdeviceptr to, const void *from, size_t size)
{
    CUresult error = copy_parts(d, tern_cuda_stream(d), to, from, size);
    /* a replay on the stream does not wait for what went beside it */
    return error || !d->capturing ? error : tern_cuda_drain(d);
}

CUresult tern_cuda_copy_in_beside(struct cuda_device *d, CUevent after, CUdeviceptr to, const void *from, size_t size)
{
    CUresult error = d->cu.cuStreamWaitEvent(d->side, after, 0);
    error = error ? error : copy_parts(d, d->side, to, from, size);
    CUresult marked = d->cu.cuEventRecord(d->copied, d->side);
    marked = marked ? marked : d->cu.cuStreamWaitEvent(d->stream, d->copied, 0);
    if (marked) /* then nothing else keeps the stream from what is still written */
        d->cu.cuStreamSynchronize(d->side);
    return error ? error : marked;
}

CUresult tern_cuda_copy_out(struct cuda_device *d, void *to, CUdeviceptr from, size_t size)
{
    CUresult error = d->cu.cuMemcpyDtoHAsync_v2(to, from, size, tern_cuda_stream(d));
    return error ? error : tern_cuda_drain(d);
}

void tern_cuda_slots_free(struct cuda_device *d)
{
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *s = &d->slots[i];
        if (s->done)
            d->cu.cuEventDestroy_v2(s->done);
        if (s->memory)
            d->cu.cuMemFreeHost(s->memory);
        *s = (struct cuda_slot){.memory = NULL};
    }
}
