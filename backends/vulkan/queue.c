/* The queue of a Vulkan device, in order: batches of launches, which a timeline semaphore counts. */
#include <math.h>
#include <string.h>

#include "backends/queue.h"
#include "backends/vulkan/vulkan.h"
#include "core/context.h"

struct vulkan_event {
    struct tern_event base; /* first */
    uint64_t value;
};

static struct vulkan_device *device_of(const struct tern_queue *q) { return (struct vulkan_device *)q->device; }

/* ---- batches ---- */

enum tern_status tern_vulkan_queue_open(struct vulkan_device *d)
{
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, .pNext = &type};
    VkResult result = d->vk.vkCreateSemaphore(d->device, &info, NULL, &d->timeline);
    if (result) {
        d->timeline = VK_NULL_HANDLE;
        return tern_vulkan_failed(d, "making a semaphore", result);
    }
    for (int i = 0; i < VULKAN_BATCHES; i++)
        if (tern_vulkan_recorder_open(d, &d->batch[i].r))
            return tern_error_status(d->gpu.base.ctx);
    return TERN_OK;
}

void tern_vulkan_queue_close(struct vulkan_device *d)
{
    for (int i = 0; i < VULKAN_BATCHES; i++)
        tern_vulkan_recorder_close(d, &d->batch[i].r, d->batch[i].value);
    if (d->timeline)
        d->vk.vkDestroySemaphore(d->device, d->timeline, NULL);
    d->timeline = VK_NULL_HANDLE;
}

uint64_t tern_vulkan_done(struct vulkan_device *d)
{
    uint64_t value = 0;
    return d->timeline && !d->vk.vkGetSemaphoreCounterValue(d->device, d->timeline, &value) ? value : 0;
}

enum tern_status tern_vulkan_wait(struct vulkan_device *d, uint64_t value)
{
    const VkSemaphoreWaitInfo info = {
        .sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO, .semaphoreCount = 1, .pSemaphores = &d->timeline, .pValues = &value};
    if (tern_vulkan_alive(d))
        return TERN_E_DEVICE;
    if (!value)
        return TERN_OK;
    uint64_t reached = 0;
    VkResult result = d->vk.vkWaitSemaphores(d->device, &info, UINT64_MAX);
    result = result ? result : d->vk.vkGetSemaphoreCounterValue(d->device, d->timeline, &reached);
    if (!result && (reached < value || reached == UINT64_MAX)) /* the wait for a lost device may succeed */
        result = VK_ERROR_DEVICE_LOST;
    return result ? tern_vulkan_failed(d, "waiting for the queue", result) : TERN_OK;
}

struct vulkan_recorder *tern_vulkan_recording(struct vulkan_device *d)
{
    if (tern_vulkan_alive(d))
        return NULL;
    if (!d->recording) {
        struct vulkan_batch *b = &d->batch[d->next_batch];
        if (tern_vulkan_wait(d, b->value) || tern_vulkan_recorder_begin(d, &b->r, VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT))
            return NULL;
        d->recording = b;
        d->next_batch = (d->next_batch + 1) % VULKAN_BATCHES;
    }
    return &d->recording->r;
}

/* Hands a command buffer over; *value is what the timeline has when it is done. */
static enum tern_status hand_over(struct vulkan_device *d, VkCommandBuffer commands, uint64_t *value)
{
    const uint64_t next = d->submitted + 1;
    const VkTimelineSemaphoreSubmitInfo timeline = {.sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
                                                    .signalSemaphoreValueCount = 1,
                                                    .pSignalSemaphoreValues = &next};
    const VkSubmitInfo info = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                               .pNext = &timeline,
                               .commandBufferCount = 1,
                               .pCommandBuffers = &commands,
                               .signalSemaphoreCount = 1,
                               .pSignalSemaphores = &d->timeline};
    VkResult result = d->vk.vkQueueSubmit(d->commands, 1, &info, VK_NULL_HANDLE);
    if (result)
        return tern_vulkan_failed(d, "submitting launches", result);
    *value = next;
    __atomic_store_n(&d->submitted, next, __ATOMIC_RELAXED);
    return TERN_OK;
}

enum tern_status tern_vulkan_submit(struct vulkan_device *d)
{
    struct vulkan_batch *b = d->recording;
    if (tern_vulkan_alive(d))
        return TERN_E_DEVICE;
    if (!b)
        return TERN_OK;
    d->recording = NULL; /* whatever happens: launches that cannot be handed over are gone, and their error is recorded */
    enum tern_status st = tern_vulkan_recorder_end(d, &b->r);
    return st ? st : hand_over(d, b->r.commands, &b->value);
}

enum tern_status tern_vulkan_submit_for(struct vulkan_device *d, uint64_t value)
{
    return value > d->submitted ? tern_vulkan_submit(d) : TERN_OK;
}

/* ---- launches ---- */

static void mark(struct vulkan_device *d, const struct tern_launch *l, const struct tern_arg *slots)
{
    for (int i = 0; i < l->n_slots; i++) {
        struct vulkan_buffer *b = (struct vulkan_buffer *)slots[i].buffer;
        if (d->capture)
            b->captured = true;
        else
            b->used = d->submitted + 1;
    }
}

/* Where a launch of that many operations is recorded: behind what came before, if the driver may get both at once. */
static struct vulkan_recorder *recorder_for(struct vulkan_device *d, double flops)
{
    struct vulkan_recorder *r = d->capture ? &d->capture->r : tern_vulkan_recording(d);
    if (!r || r->flops == 0 || r->flops + flops <= d->gpu.max_flops)
        return r;
    if (d->capture)
        return tern_vulkan_recorder_next(d, r) ? NULL : r;
    return tern_vulkan_submit(d) ? NULL : tern_vulkan_recording(d);
}

static enum tern_status enqueue_part(struct vulkan_device *d, void *kernel, const struct tern_launch *l, const struct tern_arg *slots,
                                     const struct vulkan_part *part, double flops)
{
    struct vulkan_recorder *r = recorder_for(d, flops);
    if (!r || tern_vulkan_record_launch(d, r, kernel, l, slots, part))
        return tern_error_status(d->gpu.base.ctx);
    r->flops += flops;
    mark(d, l, slots);
    return !d->capture && r->chunks->n == VULKAN_CHUNK_LAUNCHES ? tern_vulkan_submit(d) : TERN_OK;
}

enum tern_status tern_vulkan_enqueue(struct tern_gpu *gpu, void *kernel, const struct tern_launch *l, const struct tern_arg *slots)
{
    struct vulkan_device *d = (struct vulkan_device *)gpu;
    struct vulkan_part part = {{0}, {(uint32_t)l->groups[0], (uint32_t)l->groups[1], (uint32_t)l->groups[2]}};
    const int longest = l->groups[2] > l->groups[1] && l->groups[2] > l->groups[0] ? 2 : l->groups[1] > l->groups[0];
    const int64_t all = l->groups[longest];
    int64_t parts = l->separable ? (int64_t)ceil(l->flops / gpu->max_flops) : 1;
    parts = parts < 1 ? 1 : parts > all ? all : parts;
    enum tern_status st = TERN_OK;
    for (int64_t i = 0; i < parts && !st; i++) {
        part.first[longest] = (uint32_t)(all * i / parts);
        part.groups[longest] = (uint32_t)(all * (i + 1) / parts) - part.first[longest];
        st = enqueue_part(d, kernel, l, slots, &part, l->flops / (double)parts);
    }
    if (d->capture) {
        d->capture->base.launches++;
        d->capture->failed = d->capture->failed || st;
    }
    return st;
}

/* Submits what is recorded; what must be waited for to have it done. */
static enum tern_status flush(struct vulkan_device *d, uint64_t *value)
{
    pthread_mutex_lock(&d->gpu.lock);
    enum tern_status st = tern_vulkan_submit(d);
    *value = d->submitted;
    pthread_mutex_unlock(&d->gpu.lock);
    return st;
}

static enum tern_status queue_finish(struct tern_queue *q)
{
    uint64_t value;
    enum tern_status st = flush(device_of(q), &value);
    return st ? st : tern_vulkan_wait(device_of(q), value);
}

static void event_destroy(struct tern_event *base) { tern_free(base->queue->device->ctx, base); }

static enum tern_status event_wait(struct tern_event *base)
{
    return tern_vulkan_wait(device_of(base->queue), ((struct vulkan_event *)base)->value);
}

static enum tern_status event_record(struct tern_event *base)
{
    return flush(device_of(base->queue), &((struct vulkan_event *)base)->value);
}

static const struct tern_event_fns event_fns = {event_destroy, event_wait, event_record};

static struct tern_event *queue_record(struct tern_queue *q)
{
    struct vulkan_event *e = tern_calloc(q->device->ctx, 1, sizeof(*e));
    if (!e)
        return NULL;
    e->base = (struct tern_event){&event_fns, q};
    if (!event_record(&e->base))
        return &e->base;
    tern_free(q->device->ctx, e);
    return NULL;
}

enum tern_status tern_vulkan_replay(struct tern_queue *q, struct tern_capture *base)
{
    struct vulkan_device *d = device_of(q);
    struct vulkan_capture *c = (struct vulkan_capture *)base;
    pthread_mutex_lock(&d->gpu.lock);
    bool stale = tern_gpu_capture_is_stale(&d->gpu, base);
    enum tern_status st = stale ? TERN_OK : tern_vulkan_submit(d);
    for (int i = 0; i <= c->r.n_ended && !st && !stale; i++) {
        st = hand_over(d, i < c->r.n_ended ? c->r.ended[i] : c->r.commands, &c->value);
        if (!st) /* it runs, even where the next one cannot be handed over */
            __atomic_store_n(&d->replayed, c->value, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&d->gpu.lock);
    return st;
}

/* The host writes while the device goes on with what came behind the event. */
static enum tern_status write_beside(struct tern_queue *q, const struct tern_event *after, struct tern_buffer *b, size_t offset,
                                     const void *src, size_t size)
{
    struct vulkan_device *d = device_of(q);
    uint64_t value;
    char *to = tern_vulkan_buffer_mapped(b);
    if (!to)
        return b->fns->write(b, offset, src, size);
    enum tern_status st = flush(d, &value); /* what is recorded should not wait for this */
    st = st ? st : tern_vulkan_wait(d, ((const struct vulkan_event *)after)->value);
    if (!st && size)
        memcpy(to + offset, src, size);
    return st;
}

#define CAPTURES .capture_begin = tern_vulkan_capture_begin, .capture_end = tern_vulkan_capture_end, .replay = tern_vulkan_replay
const struct tern_queue_fns tern_vulkan_queue_fns = {.launch = tern_queue_launch, .finish = queue_finish, .record = queue_record, CAPTURES};
const struct tern_queue_fns tern_vulkan_queue_fns_unified = {
    .launch = tern_queue_launch, .finish = queue_finish, .record = queue_record, CAPTURES, .write_beside = write_beside};
