/* Where the buffers of a GPU lie: see memory.h. The order of allocations does not decide: what runs has the device's memory, and weights
 * that were used longest ago make room for it. */
#include <stdio.h>
#include <unistd.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"

/* Of what the driver has free, a sixteenth stays so, for programs, libraries and others; where it does not tell, a quarter of all.
 * Of the host's memory a quarter may be taken: it is pinned, the system cannot take it back. */
void tern_gpu_memory_open(struct tern_gpu *gpu, const struct tern_gpu_memory_fns *fns, size_t unused, size_t total, bool unified)
{
    struct tern_gpu_memory *m = &gpu->memory;
    size_t left = unused ? unused - unused / 16 : total - total / 4, budget = gpu->base.ctx->params.device_budget;
    m->fns = fns;
    m->share = budget ? budget : unified ? 0 : left;
    if (!m->host_share) /* not lowered yet */
        m->host_share = (size_t)sysconf(_SC_PHYS_PAGES) / 4 * (size_t)sysconf(_SC_PAGESIZE);
    gpu->base.caps.memory = m->share;
    gpu->base.caps.host_share = m->host_share;
}

static bool has_room(const struct tern_gpu_memory *m, bool on_host, size_t size)
{
    size_t share = on_host ? m->host_share : m->share ? m->share : SIZE_MAX, taken = on_host ? m->on_host : m->on_device;
    return size <= share && taken <= share - size;
}

static void count(struct tern_gpu_memory *m, const struct tern_gpu_buffer *b, bool comes)
{
    size_t *sum = b->on_host ? &m->on_host : &m->on_device;
    *sum = comes ? *sum + b->base.size : *sum - b->base.size;
}

static enum tern_status take(struct tern_gpu *gpu, struct tern_gpu_buffer *b, bool on_host, bool *full)
{
    *full = !has_room(&gpu->memory, on_host, b->base.size);
    enum tern_status st = *full ? TERN_OK : gpu->memory.fns->take(gpu, b, on_host, full);
    if (st || *full)
        return st;
    b->on_host = on_host;
    count(&gpu->memory, b, true);
    return TERN_OK;
}

/* ---- moving weights ---- */

static enum tern_status move(struct tern_gpu *gpu, struct tern_gpu_buffer *w, bool *full)
{
    *full = !has_room(&gpu->memory, !w->on_host, w->base.size);
    enum tern_status st = *full ? TERN_OK : gpu->memory.fns->move(gpu, w, full);
    if (st || *full)
        return st;
    count(&gpu->memory, w, false);
    w->on_host = !w->on_host;
    count(&gpu->memory, w, true);
    __atomic_add_fetch(&gpu->base.moved, 1, __ATOMIC_RELAXED);
    return TERN_OK;
}

/* Whether it can go to the host's memory for one that is wanted now. */
static bool may_go(const struct tern_gpu_memory *m, const struct tern_gpu_buffer *w, uint64_t time)
{
    return !w->on_host && w->used < time && has_room(m, true, w->base.size);
}

/* Of the weights that may go: the one whose time is longest ago. */
static struct tern_gpu_buffer *oldest(const struct tern_gpu_memory *m, uint64_t time)
{
    struct tern_gpu_buffer *found = NULL;
    for (struct tern_gpu_buffer *w = m->weights; w; w = w->next)
        if (may_go(m, w, time) && (!found || w->used < found->used))
            found = w;
    return found;
}

/* Whether so many bytes could be moved out. */
static bool can_evict(const struct tern_gpu_memory *m, size_t bytes, uint64_t time)
{
    size_t sum = 0;
    for (const struct tern_gpu_buffer *w = m->weights; w; w = w->next)
        sum += may_go(m, w, time) ? w->base.size : 0;
    return sum >= bytes && has_room(m, true, bytes);
}

/* Moves that much out, or as much as there is. */
static enum tern_status evict(struct tern_gpu *gpu, size_t bytes, uint64_t time, size_t *freed)
{
    struct tern_gpu_buffer *w;
    enum tern_status st = TERN_OK;
    bool full = false;
    *freed = 0;
    while (!st && !full && *freed < bytes && (w = oldest(&gpu->memory, time)))
        if (!(st = move(gpu, w, &full)) && !full)
            *freed += w->base.size;
    return st;
}

/* What must go so that `size` more bytes are within the share; the driver may have less: then as much again. */
static size_t lacking(const struct tern_gpu_memory *m, size_t size)
{
    return m->share && m->on_device + size > m->share ? m->on_device + size - m->share : size;
}

/* Room for what runs: weights go until it is on the device. */
static enum tern_status take_anyway(struct tern_gpu *gpu, struct tern_gpu_buffer *b, uint64_t time, bool *full)
{
    struct tern_gpu_memory *m = &gpu->memory;
    enum tern_status st = TERN_OK;
    size_t freed = 1;
    if ((m->share && b->base.size > m->share) || !can_evict(m, lacking(m, b->base.size), time))
        return TERN_OK;
    while (!st && *full && freed) {
        st = evict(gpu, lacking(m, b->base.size), time, &freed);
        if (!st && freed) {
            m->fns->trim(gpu);
            st = take(gpu, b, false, full);
        }
    }
    return st;
}

/* ---- buffers ---- */

static enum tern_status fail_full(struct tern_gpu *gpu, size_t size)
{
    const struct tern_gpu_memory *m = &gpu->memory;
    char share[64] = "";
    if (m->share)
        snprintf(share, sizeof(share), " of a share of %zu", m->share);
    return tern_fail(
        gpu->base.ctx, TERN_E_NO_MEMORY,
        "%s: a buffer of %zu bytes was asked for; of the device's memory %zu bytes are taken%s, of the host's %zu of %zu; a smaller "
        "picture, another dtype, offload or a larger device budget would help",
        gpu->base.name, size, m->on_device, share, m->on_host, m->host_share);
}

static enum tern_status place(struct tern_gpu *gpu, struct tern_gpu_buffer *b)
{
    struct tern_gpu_memory *m = &gpu->memory;
    bool full;
    enum tern_status st = take(gpu, b, false, &full);
    if (!st && full && has_room(m, false, b->base.size)) { /* what is kept for reuse may be in the way */
        m->fns->trim(gpu);
        st = take(gpu, b, false, &full);
    }
    if (!st && full && !b->weight)
        st = take_anyway(gpu, b, UINT64_MAX, &full);
    if (!st && full)
        st = take(gpu, b, true, &full);
    return !st && full ? fail_full(gpu, b->base.size) : st;
}

static void list(struct tern_gpu_memory *m, struct tern_gpu_buffer *b)
{
    b->weight = true;
    b->used = ++m->clock;
    b->next = m->weights;
    if (b->next)
        b->next->before = b;
    m->weights = b;
}

static struct tern_buffer *create(struct tern_gpu *gpu, size_t size, bool weight)
{
    struct tern_context *ctx = gpu->base.ctx;
    if (size > SIZE_MAX / 2) {
        tern_fail(ctx, TERN_E_NO_MEMORY, "%s: a buffer of %zu bytes was asked for", gpu->base.name, size);
        return NULL;
    }
    struct tern_gpu_buffer *b = tern_calloc(ctx, 1, gpu->memory.fns->buffer_size);
    if (!b || tern_memory_charge(ctx, gpu->base.name, size)) {
        tern_free(ctx, b);
        return NULL;
    }
    b->base = (struct tern_buffer){.fns = &gpu->memory.fns->buffer, .device = &gpu->base, .refs = 1, .size = size};
    b->weight = weight;
    pthread_mutex_lock(&gpu->lock);
    enum tern_status st = place(gpu, b);
    if (!st && weight)
        list(&gpu->memory, b);
    pthread_mutex_unlock(&gpu->lock);
    if (!st)
        return &b->base;
    tern_memory_discharge(ctx, size);
    tern_free(ctx, b);
    return NULL;
}

struct tern_buffer *tern_gpu_buffer_create(struct tern_device *device, size_t size)
{
    return create((struct tern_gpu *)device, size, false);
}

struct tern_buffer *tern_gpu_weight_create(struct tern_device *device, size_t size)
{
    return create((struct tern_gpu *)device, size, true);
}

/* NULL for memory that something else owns. */
static struct tern_gpu_buffer *own(struct tern_gpu *gpu, struct tern_buffer *b)
{
    return b && b->device == &gpu->base && b->fns == &gpu->memory.fns->buffer ? (struct tern_gpu_buffer *)b : NULL;
}

void tern_gpu_weight_mark(struct tern_buffer *base)
{
    struct tern_gpu *gpu = (struct tern_gpu *)base->device;
    struct tern_gpu_buffer *b = own(gpu, base);
    pthread_mutex_lock(&gpu->lock);
    if (b && !b->weight)
        list(&gpu->memory, b);
    pthread_mutex_unlock(&gpu->lock);
}

void tern_gpu_buffer_destroy(struct tern_buffer *base)
{
    struct tern_gpu_buffer *b = (struct tern_gpu_buffer *)base;
    struct tern_gpu *gpu = (struct tern_gpu *)base->device;
    struct tern_context *ctx = gpu->base.ctx;
    pthread_mutex_lock(&gpu->lock);
    if (b->next)
        b->next->before = b->before;
    if (b->before)
        b->before->next = b->next;
    else if (b->weight)
        gpu->memory.weights = b->next;
    count(&gpu->memory, b, false);
    gpu->memory.fns->give(gpu, b);
    pthread_mutex_unlock(&gpu->lock);
    tern_memory_discharge(ctx, base->size);
    tern_free(ctx, b);
}

/* ---- what runs ---- */

static void tell(struct tern_gpu *gpu)
{
    struct tern_gpu_memory *m = &gpu->memory;
    if (!m->on_host || m->told)
        return;
    m->told = true;
    tern_message(
        gpu->base.ctx, TERN_LOG_WARN,
        "%s: %zu bytes do not fit the device's memory (%zu are taken of %zu) and lie in the host's, where kernels read them slowly; "
        "a smaller dtype, a smaller picture or --offload sequential would help",
        gpu->base.name, m->on_host, m->on_device, m->share);
}

/* Back to the device, in place of weights that are not among those that run. */
static enum tern_status fetch(struct tern_gpu *gpu, struct tern_gpu_buffer *w, bool *full)
{
    struct tern_gpu_memory *m = &gpu->memory;
    size_t freed, size = w->base.size;
    enum tern_status st = TERN_OK;
    if (!has_room(m, false, size) && can_evict(m, lacking(m, size), m->clock))
        st = evict(gpu, lacking(m, size), m->clock, &freed);
    return st ? st : move(gpu, w, full);
}

enum tern_status tern_gpu_weights_use(struct tern_device *device, struct tern_buffer *const *buffers, int n)
{
    struct tern_gpu *gpu = (struct tern_gpu *)device;
    enum tern_status st = TERN_OK;
    bool full = false;
    size_t too_large = SIZE_MAX;
    pthread_mutex_lock(&gpu->lock);
    gpu->memory.clock++;
    for (int i = 0; i < n; i++) {
        struct tern_gpu_buffer *w = own(gpu, buffers[i]);
        if (w && w->weight)
            w->used = gpu->memory.clock;
    }
    for (int i = 0; i < n && !st; i++) { /* behind one that is too large smaller ones may come */
        struct tern_gpu_buffer *w = own(gpu, buffers[i]);
        if (w && w->weight && w->on_host && w->base.size < too_large)
            st = fetch(gpu, w, &full);
        if (!st && full)
            too_large = w->base.size;
        full = false;
    }
    if (!st)
        tell(gpu);
    pthread_mutex_unlock(&gpu->lock);
    return st;
}

bool tern_gpu_capture_is_stale(const struct tern_gpu *gpu, struct tern_capture *c)
{
    c->stale = c->stale || c->moved != gpu->base.moved;
    return c->stale;
}
