/* CPU buffers. Freed big blocks are kept for the next tensor of about that size, because getting fresh pages from
 * the system costs more than many kernels. They never raise the context's peak: before that, they go. */
#include "backends/cpu/cpu.h"

#include <string.h>

#define CACHE_FROM ((size_t)64 << 10) /* smaller blocks go straight to the allocator */
#define CACHE_MOST ((size_t)512 << 20)

struct cpu_block { /* lies at the start of the free block itself */
    struct cpu_block *next;
    size_t size;
};

struct cpu_buffer {
    struct tern_buffer base;
    size_t capacity;
};

/* Best fit among blocks that waste less than a quarter. */
static void *take_cached(struct cpu_device *d, size_t size, size_t *capacity)
{
    struct cpu_block **best = NULL;
    pthread_mutex_lock(&d->lock);
    for (struct cpu_block **p = &d->cached; *p; p = &(*p)->next)
        if ((*p)->size >= size && (*p)->size - size <= size / 4 && (!best || (*p)->size < (*best)->size))
            best = p;
    struct cpu_block *b = best ? *best : NULL;
    if (b) {
        *best = b->next;
        *capacity = b->size;
        d->cached_bytes -= b->size;
    }
    pthread_mutex_unlock(&d->lock);
    return b;
}

static bool put_cached(struct cpu_device *d, void *p, size_t size)
{
    pthread_mutex_lock(&d->lock);
    bool keep = size >= CACHE_FROM && d->cached_bytes + size <= CACHE_MOST;
    if (keep) {
        struct cpu_block *b = p;
        *b = (struct cpu_block){d->cached, size};
        d->cached = b;
        d->cached_bytes += size;
    }
    pthread_mutex_unlock(&d->lock);
    return keep;
}

void tern_cpu_memory_trim(struct tern_device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;
    pthread_mutex_lock(&d->lock);
    struct cpu_block *b = d->cached;
    d->cached = NULL;
    d->cached_bytes = 0;
    pthread_mutex_unlock(&d->lock);
    while (b) {
        struct cpu_block *next = b->next;
        tern_free(device->ctx, b);
        b = next;
    }
}

/* The block that was freed first; NULL when there is none. */
static struct cpu_block *take_oldest(struct cpu_device *d)
{
    pthread_mutex_lock(&d->lock);
    struct cpu_block **p = &d->cached, *b;
    while (*p && (*p)->next)
        p = &(*p)->next;
    b = *p;
    if (b) {
        *p = NULL;
        d->cached_bytes -= b->size;
    }
    pthread_mutex_unlock(&d->lock);
    return b;
}

/* Gives cached blocks back until `size` more bytes stay below the peak. */
static void make_room(struct cpu_device *d, size_t size)
{
    struct tern_context *ctx = d->base.ctx;
    struct cpu_block *b;
    while (tern_memory_used(ctx) + size > tern_memory_peak(ctx) && (b = take_oldest(d)))
        tern_free(ctx, b);
}

static void buffer_destroy(struct tern_buffer *b)
{
    struct cpu_buffer *c = (struct cpu_buffer *)b;
    struct cpu_device *d = (struct cpu_device *)b->device;
    if (!put_cached(d, b->host, c->capacity))
        tern_free(d->base.ctx, b->host);
    tern_free(d->base.ctx, b);
}

static enum tern_status buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    memcpy((char *)b->host + offset, src, size);
    return TERN_OK;
}

static enum tern_status buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    memcpy(dst, (const char *)b->host + offset, size);
    return TERN_OK;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

struct tern_buffer *tern_cpu_buffer_create(struct tern_device *device, size_t size)
{
    struct cpu_buffer *c = tern_calloc(device->ctx, 1, sizeof(*c));
    if (!c)
        return NULL;
    c->base = (struct tern_buffer){.fns = &buffer_fns, .device = device, .refs = 1, .size = size};
    c->capacity = size;
    if (size >= CACHE_FROM)
        c->base.host = take_cached((struct cpu_device *)device, size, &c->capacity);
    if (!c->base.host) {
        make_room((struct cpu_device *)device, size);
        c->base.host = tern_alloc(device->ctx, size);
    }
    if (!c->base.host) {
        tern_free(device->ctx, c);
        return NULL;
    }
    return &c->base;
}
