/* Memory of the stand-in driver: host memory between pages that cannot be touched, with who wrote and read it when. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda/inside.h"

enum { PAGE = 4096, FILL = 0xFF, BEFORE = 0xC7 }; /* new memory is NaN */

/* The first block that ends behind `at`. */
static int place(uintptr_t at)
{
    int low = 0, high = standin.n_blocks;
    while (low < high) {
        int middle = (low + high) / 2;
        if (standin.blocks[middle]->at + standin.blocks[middle]->size <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct block *standin_block(uintptr_t at, size_t size)
{
    int i = place(at);
    struct block *b = i < standin.n_blocks ? standin.blocks[i] : NULL;
    return b && at >= b->at && size <= b->size && at - b->at <= b->size - size ? b : NULL;
}

void standin_spoil(void *at, size_t size)
{
    if (standin.facts.compute)
        memset(at, FILL, size);
}

/* The end lies at a page that cannot be touched; its beginning is a multiple of 16 when the size is one. */
static struct block *make(size_t size)
{
    size_t pages = (size + PAGE - 1) / PAGE * PAGE;
    struct block *b = calloc(1, sizeof(*b));
    char *map = mmap(NULL, pages + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!b || map == MAP_FAILED || mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE)) {
        free(b);
        return NULL;
    }
    b->at = (uintptr_t)map + PAGE + (pages - size) / 16 * 16;
    b->size = size;
    b->map = map;
    b->map_size = pages + 2 * PAGE;
    memset(map + PAGE, BEFORE, b->at - (uintptr_t)map - PAGE);
    standin_spoil((void *)b->at, size);
    if (standin.n_blocks == standin.block_capacity) {
        standin.block_capacity = standin.block_capacity ? 2 * standin.block_capacity : 256;
        standin.blocks = realloc(standin.blocks, (size_t)standin.block_capacity * sizeof(*standin.blocks));
        if (!standin.blocks)
            abort();
    }
    int i = place(b->at);
    memmove(standin.blocks + i + 1, standin.blocks + i, (size_t)(standin.n_blocks++ - i) * sizeof(*standin.blocks));
    standin.blocks[i] = b;
    standin.used += b->host ? 0 : size;
    return b;
}

void standin_release(struct block *b)
{
    for (const unsigned char *p = (unsigned char *)b->map + PAGE; (uintptr_t)p < b->at; p++)
        if (*p != BEFORE) {
            standin_misuse(CUDA_ERROR_ILLEGAL_ADDRESS, "something wrote before the beginning of %zu bytes", b->size);
            break;
        }
    int i = place(b->at);
    memmove(standin.blocks + i, standin.blocks + i + 1, (size_t)(--standin.n_blocks - i) * sizeof(*standin.blocks));
    standin.used -= b->host ? 0 : b->size;
    munmap(b->map, b->map_size);
    free(b);
}

CUresult standin_touch(struct block *b, struct stream *s, bool writes, const char *function)
{
    if (b->freed)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: memory is used that was freed before", function);
    if (b->written && b->writer != s->index && s->known.over[b->writer] < b->written)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: memory that stream %d writes is used on stream %d without waiting", function,
                              b->writer, s->index);
    for (int i = 0; writes && i < STREAMS; i++)
        if (i != s->index && s->known.over[i] < b->read[i])
            return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: memory that stream %d reads is written on stream %d without waiting",
                                  function, i, s->index);
    if (writes) {
        b->written = s->next;
        b->writer = s->index;
    } else {
        b->read[s->index] = s->next;
    }
    return CUDA_SUCCESS;
}

void standin_touch_span(struct block *b, struct stream *s, uintptr_t at, size_t size)
{
    b->spans[b->next_span] = (struct span){at, at + size, s->index, s->next};
    b->next_span = (b->next_span + 1) % SPANS;
}

CUresult standin_touch_copied(const struct block *b, const struct stream *s, uintptr_t at, size_t size, const char *function)
{
    for (int i = 0; i < SPANS; i++) {
        const struct span *p = &b->spans[i];
        if (p->number && p->stream != s->index && at < p->end && p->begin < at + size && s->known.over[p->stream] < p->number)
            return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: memory that is copied on stream %d is used on stream %d without waiting",
                                  function, p->stream, s->index);
    }
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *at, size_t size, struct block **out)
{
    if (!size)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
    if (size > standin.facts.memory || standin.used > standin.facts.memory - size || !(*out = make(size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    standin.counts.allocations++;
    *at = (*out)->at;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *at, size_t size)
{
    struct block *b;
    ENTER(true);
    return allocate(at, size, &b);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *at, size_t size, CUmemoryPool pool, CUstream stream)
{
    struct block *b = NULL;
    ENTER(true);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    if (!s || !standin_get(KIND_POOL, pool, __func__))
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return standin_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemAllocFromPoolAsync on a stream that captures");
    CUresult error = allocate(at, size, &b);
    if (error)
        return error;
    b->writer = s->index;
    b->written = s->next;
    standin_enqueue(s, &(struct command){.what = WHAT_RECORD});
    return CUDA_SUCCESS;
}

static struct block *to_free(CUdeviceptr at, bool host, const char *function)
{
    struct block *b = standin_block((uintptr_t)at, 1);
    if (!b || b->at != at || b->host != host)
        standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s of %llx, which is not the beginning of memory that is there", function, at);
    else if (b->freed)
        standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s of memory that was freed before", function);
    return b && b->at == at && b->host == host && !b->freed ? b : NULL;
}

/* Waits for the whole device, as the driver's does. */
CUresult cuMemFree_v2(CUdeviceptr at)
{
    ENTER(true);
    struct block *b = to_free(at, false, __func__);
    if (!b)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < STREAMS; i++)
        if (standin.streams[i] && !standin.streams[i]->capture)
            standin_wait(standin.streams[i], UINT64_MAX);
    standin.counts.frees++;
    standin_release(b);
    return standin.lost;
}

CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream)
{
    ENTER(true);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    struct block *b = s ? to_free(at, false, __func__) : NULL;
    if (!b)
        return CUDA_ERROR_INVALID_VALUE;
    if (s->capture)
        return standin_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuMemFreeAsync on a stream that captures");
    CUresult error = standin_touch(b, s, true, __func__);
    error = error ? error : standin_touch_copied(b, s, b->at, b->size, __func__);
    if (error)
        return error;
    b->freed = true;
    standin.counts.frees++;
    standin_enqueue(s, &(struct command){.what = WHAT_FREE, .device = at});
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **at, size_t size, unsigned flags)
{
    ENTER(true);
    struct block *b = size ? make(size) : NULL;
    if (!b)
        return CUDA_ERROR_OUT_OF_MEMORY;
    standin.used -= size;
    b->host = true;
    b->mapped = flags & CU_MEMHOSTALLOC_DEVICEMAP && standin.facts.maps_host;
    *at = (void *)b->at;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *at)
{
    ENTER(true);
    struct block *b = to_free((uintptr_t)at, true, __func__);
    if (!b)
        return CUDA_ERROR_INVALID_VALUE;
    for (int i = 0; i < STREAMS; i++)
        if (b->read[i] > standin.host.over[i] || (b->writer == i && b->written > standin.host.over[i]))
            return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s of memory that stream %d may use yet", __func__, i);
    standin_release(b);
    return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *at, void *host, unsigned flags)
{
    ENTER(true);
    struct block *b = standin_block((uintptr_t)host, 1);
    if (!b || !b->mapped)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s of memory that the device does not see", __func__);
    *at = (uintptr_t)host;
    return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    ENTER(true);
    *total = standin.facts.memory;
    *unused = standin.facts.memory - standin.used;
    return CUDA_SUCCESS;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *p)
{
    ENTER(false);
    if (!standin.facts.pools)
        return standin_misuse(CUDA_ERROR_NOT_SUPPORTED, "%s on a device without memory pools", __func__);
    if (p->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || p->handleTypes || p->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        p->location.id >= standin.facts.devices)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s of what is no memory of a device", __func__);
    standin_new(KIND_POOL, 1, (void **)pool);
    return CUDA_SUCCESS;
}

/* What was allocated of it may stay. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    ENTER(false);
    return standin_delete(KIND_POOL, pool, __func__);
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute what, void *value)
{
    ENTER(false);
    return standin_get(KIND_POOL, pool, __func__) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
    ENTER(false);
    return standin_get(KIND_POOL, pool, __func__) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
