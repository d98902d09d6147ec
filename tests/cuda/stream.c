/* Streams and events of the stand-in driver. Commands wait in their stream until somebody waits for them, so that whoever looks too
 * early sees memory as it was. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/inside.h"

void standin_learn(struct knowledge *to, const struct knowledge *from)
{
    for (int i = 0; i < STREAMS; i++)
        to->over[i] = to->over[i] > from->over[i] ? to->over[i] : from->over[i];
}

static uint64_t sum_of(const void *at, size_t size)
{
    const unsigned char *p = at;
    uint64_t h = 0xcbf29ce484222325u, word;
    for (; size >= 8; size -= 8, p += 8) {
        memcpy(&word, p, 8);
        h = (h ^ word) * 0x100000001b3u;
    }
    while (size--)
        h = (h ^ *p++) * 0x100000001b3u;
    return h;
}

static void run_copy(const struct command *c)
{
    if (!standin.facts.compute)
        return;
    if (c->what == WHAT_IN && c->sum != sum_of(c->host, c->size))
        standin_misuse(CUDA_ERROR_INVALID_VALUE, "pinned memory was changed before it was copied to the device");
    if (c->what == WHAT_IN)
        memcpy((void *)(uintptr_t)c->device, c->host, c->size);
    else
        memcpy(c->host, (const void *)(uintptr_t)c->device, c->size);
}

static void run(const struct command *c)
{
    if (standin.lost && c->what != WHAT_FREE)
        return;
    switch (c->what) {
    case WHAT_KERNEL:
        if (c->inject)
            standin.lost = c->inject;
        else if (standin.facts.compute)
            standin.lost = standin_run_kernel(&c->launch);
        break;
    case WHAT_IN:
    case WHAT_OUT:
        run_copy(c);
        break;
    case WHAT_WAIT:
        for (int i = 0; i < STREAMS; i++)
            if (standin.streams[i])
                standin_run_until(standin.streams[i], c->wait.over[i]);
        break;
    case WHAT_FREE:
        standin_release(standin_block((uintptr_t)c->device, 1));
        break;
    case WHAT_RECORD:
        break;
    }
}

/* A command is taken off before it runs: one that waits for other streams may come back here. */
void standin_run_until(struct stream *s, uint64_t number)
{
    while (s->head < s->n && s->queue[s->head].number <= number) {
        struct command c = s->queue[s->head++];
        run(&c);
        free(c.launch.memory);
    }
    if (s->head == s->n)
        s->head = s->n = 0;
}

void standin_enqueue(struct stream *s, struct command *c)
{
    if (s->n == MOST_COMMANDS) { /* a device may run when it likes */
        standin_run_until(s, s->queue[MOST_COMMANDS - 1].number - MOST_COMMANDS / 2);
        memmove(s->queue, s->queue + s->head, (size_t)(s->n - s->head) * sizeof(*s->queue));
        s->n -= s->head;
        s->head = 0;
    }
    if (s->n == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 64;
        s->queue = realloc(s->queue, (size_t)s->capacity * sizeof(*s->queue));
        if (!s->queue)
            abort();
    }
    standin_learn(&s->known, &standin.host);
    c->number = s->next++;
    s->queue[s->n++] = *c;
}

/* The host waits. */
void standin_wait(struct stream *s, uint64_t number)
{
    uint64_t last = s->next - 1, over = number < last ? number : last;
    standin_run_until(s, number);
    if (over > standin.host.over[s->index])
        standin.host.over[s->index] = over;
    if (number >= last)
        standin_learn(&standin.host, &s->known);
}

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER(true);
    int index = 0;
    while (index < STREAMS && standin.streams[index])
        index++;
    if (index == STREAMS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct stream *s = standin_new(KIND_STREAM, sizeof(*s), (void **)stream);
    s->index = index;
    s->next = standin.host.over[index] + 1; /* numbers of an earlier stream are over */
    standin.streams[index] = s;
    return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    ENTER(true);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    standin_wait(s, UINT64_MAX);
    standin.streams[s->index] = NULL;
    free(s->queue);
    return standin_delete(KIND_STREAM, stream, __func__);
}

/* Waiting for what is only captured is an error, and breaks the capture. */
static CUresult refuse_capture(struct stream *s, const char *function)
{
    s->broken = true;
    return standin_misuse(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "%s on a stream that captures", function);
}

CUresult cuStreamSynchronize(CUstream stream)
{
    ENTER(true);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (s->capture)
        return refuse_capture(s, __func__);
    standin.counts.synchronisations++;
    standin_wait(s, UINT64_MAX);
    return standin.lost;
}

CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    ENTER(true);
    standin_new(KIND_EVENT, sizeof(struct event), (void **)event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    ENTER(true);
    return standin_delete(KIND_EVENT, event, __func__);
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    ENTER(true);
    struct event *e = standin_get(KIND_EVENT, event, __func__);
    struct stream *s = e ? standin_get(KIND_STREAM, stream, __func__) : NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    e->captured = s->capture != NULL;
    if (e->captured)
        return CUDA_SUCCESS;
    e->stream = s;
    e->index = s->index;
    e->number = s->next;
    standin_enqueue(s, &(struct command){.what = WHAT_RECORD});
    e->known = s->known;
    e->known.over[s->index] = e->number;
    return CUDA_SUCCESS;
}

CUresult cuEventSynchronize(CUevent event)
{
    ENTER(true);
    struct event *e = standin_get(KIND_EVENT, event, __func__);
    if (!e)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->captured)
        return standin_misuse(CUDA_ERROR_CAPTURED_EVENT, "%s of an event that was only captured", __func__);
    standin.counts.synchronisations++;
    if (e->stream) {
        if (standin.streams[e->index] == e->stream)
            standin_run_until(e->stream, e->number);
        standin_learn(&standin.host, &e->known);
    }
    return standin.lost;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    ENTER(true);
    struct event *e = standin_get(KIND_EVENT, event, __func__);
    struct stream *s = e ? standin_get(KIND_STREAM, stream, __func__) : NULL;
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    if (e->captured || s->capture)
        return refuse_capture(s, __func__);
    standin_enqueue(s, &(struct command){.what = WHAT_WAIT, .wait = e->known});
    standin_learn(&s->known, &e->known);
    return CUDA_SUCCESS;
}

static struct stream *copy_stream(CUstream stream, const char *function)
{
    struct stream *s = standin_get(KIND_STREAM, stream, function);
    if (s && s->capture)
        refuse_capture(s, function);
    return s && !s->capture ? s : NULL;
}

static CUresult copy(struct stream *s, struct command *c, const char *function)
{
    struct block *device = standin_block((uintptr_t)c->device, c->size), *host = standin_block((uintptr_t)c->host, c->size);
    if (!device || (device->host && !device->mapped))
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: %zu bytes at %llx are outside of memory that is there", function, c->size,
                              c->device);
    CUresult error = CUDA_SUCCESS;
    if (c->what == WHAT_IN && !device->freed)
        standin_touch_span(device, s, (uintptr_t)c->device, c->size);
    else
        error = standin_touch(device, s, false, function);
    if (c->what == WHAT_OUT && !error)
        error = standin_touch_copied(device, s, (uintptr_t)c->device, c->size, function);
    if (!error && host)
        error = standin_touch(host, s, c->what == WHAT_OUT, function);
    if (error)
        return error;
    if (c->what == WHAT_OUT)
        standin_spoil(c->host, c->size); /* who reads it before he waits sees this */
    c->sum = c->what == WHAT_IN && standin.facts.compute ? sum_of(c->host, c->size) : 0;
    standin_enqueue(s, c);
    if (!host || (c->what == WHAT_IN && standin.facts.eager)) /* memory that is not pinned is copied when the call returns */
        standin_run_until(s, c->number);
    return standin.lost;
}

/* Whether another stream has commands that one of this stream does not wait for. */
static bool goes_beside(const struct stream *s)
{
    for (int i = 0; i < STREAMS; i++) {
        const struct stream *o = standin.streams[i];
        if (o && o != s && o->head < o->n && s->known.over[i] < o->next - 1 && standin.host.over[i] < o->next - 1)
            return true;
    }
    return false;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    ENTER(true);
    struct stream *s = copy_stream(stream, __func__);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    standin.counts.copies_in++;
    standin.counts.bytes_in += size;
    standin.counts.copies_beside += goes_beside(s);
    return copy(s, &(struct command){.what = WHAT_IN, .device = to, .host = (void *)(uintptr_t)from, .size = size}, __func__);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream)
{
    ENTER(true);
    struct stream *s = copy_stream(stream, __func__);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    standin.counts.copies_out++;
    return copy(s, &(struct command){.what = WHAT_OUT, .device = from, .host = to, .size = size}, __func__);
}
