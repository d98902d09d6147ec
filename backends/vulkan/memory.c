/* Buffers of a Vulkan device, and the way of their bytes: straight where the host sees the memory, else through a staging buffer. */
#include <string.h>

#include "backends/vulkan/vulkan.h"
#include "core/context.h"

#define STAGE ((size_t)16 << 20) /* bytes of each of the two halves: one is filled while the other is copied */

static struct vulkan_device *device_of(const struct tern_buffer *b) { return (struct vulkan_device *)b->device; }

/* The last batch that may work on it. */
static uint64_t used_by(const struct vulkan_device *d, const struct vulkan_buffer *b)
{
    uint64_t replayed = __atomic_load_n(&d->replayed, __ATOMIC_RELAXED);
    return b->captured && replayed > b->used ? replayed : b->used;
}

static void buffer_destroy(struct tern_buffer *base)
{
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    struct vulkan_device *d = device_of(base);
    vulkan_piece_destroy(d, b->piece, used_by(d, b));
    tern_memory_discharge(d->gpu.base.ctx, base->size);
    tern_free(d->gpu.base.ctx, b);
}

/* Until nothing works on the buffer. The wait is without the lock: other threads go on. */
static enum tern_status settle(struct vulkan_device *d, const struct vulkan_buffer *b)
{
    pthread_mutex_lock(&d->gpu.lock);
    enum tern_status st = vulkan_alive(d);
    st = st ? st : vulkan_submit_for(d, used_by(d, b));
    uint64_t value = used_by(d, b) < d->submitted ? used_by(d, b) : d->submitted;
    pthread_mutex_unlock(&d->gpu.lock);
    return st ? st : vulkan_wait(d, value);
}

/* A half of the staging memory that is idle. */
static struct vulkan_stage *take_stage(struct vulkan_device *d)
{
    struct vulkan_stage *s = &d->stage[d->next_stage];
    d->next_stage ^= 1;
    if (!s->piece && !(s->piece = vulkan_piece_create(d, VULKAN_MEMORY_STAGING, STAGE, &s->used)))
        return NULL;
    return vulkan_submit_for(d, s->used) || vulkan_wait(d, s->used < d->submitted ? s->used : d->submitted) ? NULL : s;
}

static char *mapped(const struct vulkan_piece *p) { return p->block->mapped + p->offset; }

/* One part through the staging memory; `to` is NULL on the way up. */
static enum tern_status copy_part(struct vulkan_device *d, struct vulkan_buffer *b, size_t offset, const char *from, char *to, size_t n)
{
    struct vulkan_stage *s = take_stage(d);
    if (s && from)
        memcpy(mapped(s->piece), from, n);
    struct vulkan_recorder *r = s ? vulkan_recording(d) : NULL;
    if (!r)
        return tern_error_status(d->gpu.base.ctx);
    if (from)
        vulkan_record_copy(d, r, s->piece, 0, b->piece, offset, n);
    else
        vulkan_record_copy(d, r, b->piece, offset, s->piece, 0, n);
    s->used = b->used = d->submitted + 1;
    enum tern_status st = vulkan_submit(d);
    if (!st && to && !(st = vulkan_wait(d, d->submitted)))
        memcpy(to, mapped(s->piece), n);
    return st;
}

static enum tern_status copy(struct vulkan_buffer *b, size_t offset, const char *from, char *to, size_t size)
{
    struct vulkan_device *d = device_of(&b->base);
    pthread_mutex_lock(&d->gpu.lock);
    enum tern_status st = vulkan_alive(d);
    for (size_t at = 0; !st && at < size; at += STAGE) {
        size_t n = size - at < STAGE ? size - at : STAGE;
        st = copy_part(d, b, offset + at, from ? from + at : NULL, to ? to + at : NULL, n);
    }
    pthread_mutex_unlock(&d->gpu.lock);
    return st;
}

static enum tern_status buffer_write(struct tern_buffer *base, size_t offset, const void *src, size_t size)
{
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    if (!b->piece->block->mapped)
        return copy(b, offset, src, NULL, size);
    enum tern_status st = settle(device_of(base), b);
    if (!st && size)
        memcpy(mapped(b->piece) + offset, src, size);
    return st;
}

static enum tern_status buffer_read(struct tern_buffer *base, size_t offset, void *dst, size_t size)
{
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    if (!b->piece->block->mapped || !b->piece->block->cached)
        return copy(b, offset, NULL, dst, size);
    enum tern_status st = settle(device_of(base), b);
    if (!st && size)
        memcpy(dst, mapped(b->piece) + offset, size);
    return st;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

struct tern_buffer *vulkan_buffer_create(struct tern_device *device, size_t size)
{
    struct vulkan_device *d = (struct vulkan_device *)device;
    struct vulkan_buffer *b = tern_calloc(device->ctx, 1, sizeof(*b));
    if (!b || tern_memory_charge(device->ctx, device->name, size)) {
        tern_free(device->ctx, b);
        return NULL;
    }
    b->base = (struct tern_buffer){.fns = &buffer_fns, .device = device, .refs = 1, .size = size};
    b->piece = vulkan_piece_create(d, VULKAN_MEMORY_DEVICE, size, &b->used);
    if (b->piece)
        return &b->base;
    tern_memory_discharge(device->ctx, size);
    tern_free(device->ctx, b);
    return NULL;
}

void vulkan_stages_close(struct vulkan_device *d)
{
    for (int i = 0; i < 2; i++)
        vulkan_piece_destroy(d, d->stage[i].piece, d->stage[i].used);
}
