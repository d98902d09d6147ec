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

/* Until nothing works on the buffer. The wait is without the lock: other threads go on. */
static enum tern_status settle(struct vulkan_device *d, const struct vulkan_buffer *b)
{
    pthread_mutex_lock(&d->gpu.lock);
    enum tern_status st = tern_vulkan_alive(d);
    st = st ? st : tern_vulkan_submit_for(d, used_by(d, b));
    uint64_t value = used_by(d, b) < d->submitted ? used_by(d, b) : d->submitted;
    pthread_mutex_unlock(&d->gpu.lock);
    return st ? st : tern_vulkan_wait(d, value);
}

/* A half of the staging memory that is idle. */
static struct vulkan_stage *take_stage(struct vulkan_device *d)
{
    struct vulkan_stage *s = &d->stage[d->next_stage];
    d->next_stage ^= 1;
    if (!s->piece && !(s->piece = tern_vulkan_piece_create(d, VULKAN_MEMORY_STAGING, STAGE, &s->used, NULL)))
        return NULL;
    return tern_vulkan_submit_for(d, s->used) || tern_vulkan_wait(d, s->used < d->submitted ? s->used : d->submitted) ? NULL : s;
}

static char *mapped(const struct vulkan_piece *p) { return p->block->mapped + p->offset; }

/* One part through the staging memory; `to` is NULL on the way up. */
static enum tern_status copy_part(struct vulkan_device *d, struct vulkan_buffer *b, size_t offset, const char *from, char *to, size_t n)
{
    struct vulkan_stage *s = take_stage(d);
    if (s && from)
        memcpy(mapped(s->piece), from, n);
    struct vulkan_recorder *r = s ? tern_vulkan_recording(d) : NULL;
    if (!r)
        return tern_error_status(d->gpu.base.ctx);
    if (from)
        tern_vulkan_record_copy(d, r, s->piece, 0, b->piece, offset, n);
    else
        tern_vulkan_record_copy(d, r, b->piece, offset, s->piece, 0, n);
    s->used = b->used = d->submitted + 1;
    enum tern_status st = tern_vulkan_submit(d);
    if (!st && to && !(st = tern_vulkan_wait(d, d->submitted)))
        memcpy(to, mapped(s->piece), n);
    return st;
}

static enum tern_status copy(struct vulkan_buffer *b, size_t offset, const char *from, char *to, size_t size)
{
    struct vulkan_device *d = device_of(&b->gpu.base);
    pthread_mutex_lock(&d->gpu.lock);
    enum tern_status st = tern_vulkan_alive(d);
    for (size_t at = 0; !st && at < size; at += STAGE) {
        size_t n = size - at < STAGE ? size - at : STAGE;
        st = copy_part(d, b, offset + at, from ? from + at : NULL, to ? to + at : NULL, n);
    }
    pthread_mutex_unlock(&d->gpu.lock);
    return st;
}

char *tern_vulkan_buffer_mapped(struct tern_buffer *base)
{
    const struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    return b->piece->block->mapped && !b->gpu.weight ? mapped(b->piece) : NULL;
}

/* Weights are moved: where one lies is asked under the lock, which is held until its bytes are copied. */
static enum tern_status access(struct tern_buffer *base, size_t offset, const char *from, char *to, size_t size)
{
    struct vulkan_device *d = device_of(base);
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    const bool weight = b->gpu.weight;
    if (weight)
        pthread_mutex_lock(&d->gpu.lock);
    const struct vulkan_block *block = b->piece->block;
    bool straight = block->mapped && (from || block->cached);
    enum tern_status st = straight ? settle(d, b) : copy(b, offset, from, to, size);
    if (!st && straight && size)
        memcpy(from ? mapped(b->piece) + offset : to, from ? from : mapped(b->piece) + offset, size);
    if (weight)
        pthread_mutex_unlock(&d->gpu.lock);
    return st;
}

static enum tern_status buffer_write(struct tern_buffer *base, size_t offset, const void *src, size_t size)
{
    return access(base, offset, src, NULL, size);
}

static enum tern_status buffer_read(struct tern_buffer *base, size_t offset, void *dst, size_t size)
{
    return access(base, offset, NULL, dst, size);
}

/* ---- where it lies ---- */

static enum tern_status take(struct tern_gpu *gpu, struct tern_gpu_buffer *base, bool on_host, bool *full)
{
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    b->piece = tern_vulkan_piece_create((struct vulkan_device *)gpu, on_host ? VULKAN_MEMORY_HOST : VULKAN_MEMORY_DEVICE, base->base.size,
                                        &b->used, full);
    return b->piece || *full ? TERN_OK : tern_error_status(gpu->base.ctx);
}

static void give(struct tern_gpu *gpu, struct tern_gpu_buffer *base)
{
    struct vulkan_device *d = (struct vulkan_device *)gpu;
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    tern_vulkan_piece_destroy(d, b->piece, used_by(d, b));
}

/* The copy is recorded behind the launches before; the old piece goes when it is done. */
static enum tern_status move(struct tern_gpu *gpu, struct tern_gpu_buffer *base, bool *full)
{
    struct vulkan_device *d = (struct vulkan_device *)gpu;
    struct vulkan_buffer *b = (struct vulkan_buffer *)base;
    struct vulkan_buffer to = *b;
    to.gpu.on_host = !base->on_host;
    *full = d->capture != NULL;
    if (*full || take(gpu, &to.gpu, to.gpu.on_host, full) || *full)
        return *full ? TERN_OK : tern_error_status(gpu->base.ctx);
    struct vulkan_recorder *r = tern_vulkan_recording(d);
    if (!r) {
        tern_vulkan_piece_destroy(d, to.piece, to.used);
        return tern_error_status(gpu->base.ctx);
    }
    tern_vulkan_record_copy(d, r, b->piece, 0, to.piece, 0, base->base.size);
    b->used = d->submitted + 1;
    give(gpu, base);
    b->piece = to.piece;
    return TERN_OK;
}

static void trim(struct tern_gpu *gpu)
{
    struct vulkan_device *d = (struct vulkan_device *)gpu;
    if (!tern_vulkan_submit(d) && !tern_vulkan_wait(d, d->submitted))
        tern_vulkan_trim(&gpu->base);
}

const struct tern_gpu_memory_fns tern_vulkan_memory_fns = {.buffer_size = sizeof(struct vulkan_buffer),
                                                           .take = take,
                                                           .give = give,
                                                           .move = move,
                                                           .trim = trim,
                                                           .buffer = {tern_gpu_buffer_destroy, buffer_write, buffer_read}};

void tern_vulkan_stages_close(struct vulkan_device *d)
{
    for (int i = 0; i < 2; i++)
        tern_vulkan_piece_destroy(d, d->stage[i].piece, d->stage[i].used);
}
