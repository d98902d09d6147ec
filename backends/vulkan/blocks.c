/* Memory of a Vulkan device: few large allocations, since drivers limit their number, cut into pieces.
 * A piece that is freed may be given out at once, since launches run in order; its memory goes when nothing works on it. */
#include "backends/vulkan/vulkan.h"
#include "core/context.h"

#define MIB ((size_t)1 << 20)
#define KEPT_EMPTY (256 * MIB) /* of a device's blocks without live pieces */

#define HOST (VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT)
#define LOCAL VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT
#define CACHED VK_MEMORY_PROPERTY_HOST_CACHED_BIT

/* Who has not enabled a feature for them may not allocate these. */
#define SPECIAL                                                                                                                \
    (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | \
     VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD | VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV)

struct kind {
    const char *name;
    size_t block;                    /* bytes of a block that holds several pieces */
    VkMemoryPropertyFlags wanted[4]; /* in order of preference, 0 behind the last */
};

static const struct kind kinds[] = {
    [VULKAN_MEMORY_DEVICE] = {"device memory", 32 * MIB, {LOCAL}},
    [VULKAN_MEMORY_HOST] = {"host memory", 32 * MIB, {HOST}},
    [VULKAN_MEMORY_PARAMS] = {"memory for parameters", MIB / 2, {LOCAL | HOST, HOST}},
    [VULKAN_MEMORY_STAGING] = {"memory for copies", 32 * MIB, {HOST | CACHED, HOST}},
};
static const struct kind unified_memory = {"memory", 32 * MIB, {LOCAL | HOST | CACHED, LOCAL | HOST, LOCAL, HOST}};

static const struct kind *kind_of(const struct vulkan_device *d, enum vulkan_kind k)
{
    return k == VULKAN_MEMORY_DEVICE && d->unified ? &unified_memory : &kinds[k];
}

/* Memory of the device that the host sees is no place for what has no room on the device. */
static bool is_wanted(const struct vulkan_device *d, enum vulkan_kind k, VkMemoryPropertyFlags wanted, VkMemoryPropertyFlags flags)
{
    return (flags & wanted) == wanted && !(flags & SPECIAL) && !(k == VULKAN_MEMORY_HOST && flags & LOCAL && !d->unified);
}

static void block_free(struct vulkan_device *d, struct vulkan_block *b)
{
    if (b->kind == VULKAN_MEMORY_DEVICE)
        __atomic_sub_fetch(&d->held, b->size, __ATOMIC_RELAXED);
    if (b->buffer)
        d->vk.vkDestroyBuffer(d->device, b->buffer, NULL);
    if (b->memory)
        d->vk.vkFreeMemory(d->device, b->memory, NULL); /* unmaps it */
    tern_free(d->gpu.base.ctx, b->pieces);
    tern_free(d->gpu.base.ctx, b);
}

/* ---- making blocks ---- */

static VkResult make_buffer(struct vulkan_device *d, struct vulkan_block *b, VkMemoryRequirements *needs)
{
    const VkBufferCreateInfo info = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
                                     .size = b->size,
                                     .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                                              VK_BUFFER_USAGE_TRANSFER_DST_BIT};
    VkResult result = d->vk.vkCreateBuffer(d->device, &info, NULL, &b->buffer);
    if (result)
        b->buffer = VK_NULL_HANDLE;
    else
        d->vk.vkGetBufferMemoryRequirements(d->device, b->buffer, needs);
    return result;
}

/* Memory of that type under the buffer, mapped when the host can see it. */
static VkResult take_type(struct vulkan_device *d, struct vulkan_block *b, const VkMemoryRequirements *needs, uint32_t type)
{
    VkMemoryPropertyFlags flags = d->memory_properties.memoryTypes[type].propertyFlags;
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .allocationSize = needs->size,
                                       .memoryTypeIndex = type};
    void *mapped = NULL;
    VkResult result = d->vk.vkAllocateMemory(d->device, &info, NULL, &b->memory);
    if (result) {
        b->memory = VK_NULL_HANDLE;
        return result;
    }
    bool map = (flags & HOST) == HOST && (b->kind != VULKAN_MEMORY_DEVICE || d->unified || !(flags & LOCAL));
    result = d->vk.vkBindBufferMemory(d->device, b->buffer, b->memory, 0);
    if (!result && map)
        result = d->vk.vkMapMemory(d->device, b->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    b->mapped = result ? NULL : mapped;
    b->cached = flags & CACHED;
    if (result) {
        d->vk.vkFreeMemory(d->device, b->memory, NULL);
        b->memory = VK_NULL_HANDLE;
    }
    return result;
}

/* The types that have what is wanted, best first, until one has room. A buffer is bound once: another try gets another one. */
static VkResult take_memory(struct vulkan_device *d, struct vulkan_block *b)
{
    const struct kind *k = kind_of(d, b->kind);
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (int w = 0; w < 4 && k->wanted[w]; w++)
        for (uint32_t t = 0; t < d->memory_properties.memoryTypeCount; t++) {
            VkMemoryRequirements needs = {0};
            if (!is_wanted(d, b->kind, k->wanted[w], d->memory_properties.memoryTypes[t].propertyFlags))
                continue;
            result = make_buffer(d, b, &needs);
            if (!result && !(needs.memoryTypeBits & (uint32_t)1 << t))
                result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
            else if (!result && !(result = take_type(d, b, &needs, t)))
                return VK_SUCCESS;
            if (b->buffer)
                d->vk.vkDestroyBuffer(d->device, b->buffer, NULL);
            b->buffer = VK_NULL_HANDLE;
            if (result == VK_ERROR_DEVICE_LOST)
                return result;
        }
    return result;
}

/* The device's share counts blocks, whether there is something in them or not. */
static bool is_within_share(const struct vulkan_device *d, enum vulkan_kind kind, size_t size)
{
    size_t share = d->gpu.memory.share, held = __atomic_load_n(&d->held, __ATOMIC_RELAXED);
    return kind != VULKAN_MEMORY_DEVICE || !share || (size <= share && held <= share - size);
}

/* One piece over all of a block of that size. NULL without an error recorded when the driver has no memory: *result. */
static struct vulkan_block *block_create(struct vulkan_device *d, enum vulkan_kind kind, size_t size, VkResult *result)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    *result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (!is_within_share(d, kind, size))
        return NULL;
    struct vulkan_block *b = tern_calloc(ctx, 1, sizeof(*b));
    struct vulkan_piece *p = b ? tern_calloc(ctx, 1, sizeof(*p)) : NULL;
    *result = VK_SUCCESS;
    if (p) {
        *b = (struct vulkan_block){.kind = kind, .size = size, .pieces = p};
        *p = (struct vulkan_piece){.block = b, .size = size, .free = true};
        *result = take_memory(d, b);
        if (!*result) {
            if (kind == VULKAN_MEMORY_DEVICE)
                __atomic_add_fetch(&d->held, size, __ATOMIC_RELAXED);
            return b;
        }
    }
    tern_free(ctx, p);
    tern_free(ctx, b);
    return NULL;
}

/* ---- pieces; the caller holds memory_lock ---- */

static bool is_empty(const struct vulkan_block *b) { return b->live == 0; }

/* The smallest free piece that is large enough. */
static struct vulkan_piece *find(struct vulkan_device *d, enum vulkan_kind kind, size_t size)
{
    struct vulkan_piece *best = NULL;
    for (struct vulkan_block *b = d->blocks; b; b = b->next)
        for (struct vulkan_piece *p = b->kind == kind ? b->pieces : NULL; p; p = p->behind)
            if (p->free && p->size >= size && (!best || p->size < best->size))
                best = p;
    return best;
}

/* Its first bytes; `rest` becomes the piece behind it, unless nothing is left: then it comes back. */
static struct vulkan_piece *take(struct vulkan_piece *p, size_t size, struct vulkan_piece *rest)
{
    p->free = false;
    p->block->live++;
    if (p->size == size)
        return rest;
    *rest = (struct vulkan_piece){p, p->behind, p->block, p->offset + size, p->size - size, true};
    if (p->behind)
        p->behind->before = rest;
    p->behind = rest;
    p->size = size;
    return NULL;
}

/* Joins a piece with the one behind it, which comes back to be freed. */
static struct vulkan_piece *join(struct vulkan_piece *p)
{
    struct vulkan_piece *gone = p->behind;
    p->size += gone->size;
    p->behind = gone->behind;
    if (p->behind)
        p->behind->before = p;
    return gone;
}

/* Takes those empty blocks out of the list that nothing works on, until at most `keep` bytes of them are left. */
static struct vulkan_block *take_empty(struct vulkan_device *d, uint64_t done, size_t keep)
{
    struct vulkan_block *gone = NULL, **at = &d->blocks;
    size_t empty = 0;
    while (*at) {
        struct vulkan_block *b = *at;
        if (is_empty(b) && (empty += b->size) > keep && b->used <= done) {
            *at = b->next;
            b->next = gone;
            gone = b;
            empty -= b->size;
        } else {
            at = &b->next;
        }
    }
    return gone;
}

/* ---- */

static void free_empty(struct vulkan_device *d, size_t keep)
{
    uint64_t done = tern_vulkan_done(d);
    pthread_mutex_lock(&d->memory_lock);
    struct vulkan_block *gone = take_empty(d, done, keep);
    pthread_mutex_unlock(&d->memory_lock);
    while (gone) {
        struct vulkan_block *b = gone;
        gone = b->next;
        block_free(d, b);
    }
}

void tern_vulkan_trim(struct tern_device *device)
{
    tern_gpu_trim(device);
    free_empty((struct vulkan_device *)device, 0);
}

/* Of the blocks there are. NULL when none has room; `rest` is used up when it comes back as NULL. */
static struct vulkan_piece *take_piece(struct vulkan_device *d, enum vulkan_kind kind, size_t size, uint64_t *used,
                                       struct vulkan_piece **rest)
{
    pthread_mutex_lock(&d->memory_lock);
    struct vulkan_piece *p = find(d, kind, size);
    if (p) {
        *rest = take(p, size, *rest);
        if (used)
            *used = p->block->used;
    }
    pthread_mutex_unlock(&d->memory_lock);
    return p;
}

/* First of the usual size, then as small as it may be. */
static struct vulkan_block *more(struct vulkan_device *d, enum vulkan_kind kind, size_t size, VkResult *result)
{
    size_t usual = kind_of(d, kind)->block;
    struct vulkan_block *b = NULL;
    if (size < usual / 4)
        b = block_create(d, kind, usual, result);
    return b || tern_failed(d->gpu.base.ctx) ? b : block_create(d, kind, size, result);
}

static enum tern_status add_block(struct vulkan_device *d, enum vulkan_kind kind, size_t size, bool *full)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    VkResult result = VK_SUCCESS;
    struct vulkan_block *b = more(d, kind, size, &result);
    if (!b && !tern_failed(ctx)) { /* what is kept for reuse may be in the way */
        if (!tern_vulkan_wait(d, __atomic_load_n(&d->submitted, __ATOMIC_RELAXED)))
            free_empty(d, 0);
        b = tern_failed(ctx) ? NULL : block_create(d, kind, size, &result);
    }
    if (b) {
        pthread_mutex_lock(&d->memory_lock);
        b->next = d->blocks;
        d->blocks = b;
        pthread_mutex_unlock(&d->memory_lock);
        return TERN_OK;
    }
    if (tern_failed(ctx))
        return tern_error_status(ctx);
    if (result == VK_ERROR_DEVICE_LOST)
        return tern_vulkan_failed(d, "making memory", result);
    if (full) {
        *full = true;
        return TERN_E_NO_MEMORY;
    }
    return tern_fail(
        ctx, TERN_E_NO_MEMORY,
        "vulkan: %s has no %zu bytes of %s left; it has %zu in all. A lower budget, --offload, or a smaller picture would help",
        d->properties.deviceName, size, kind_of(d, kind)->name, d->memory);
}

struct vulkan_piece *tern_vulkan_piece_create(struct vulkan_device *d, enum vulkan_kind kind, size_t size, uint64_t *used, bool *full)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    struct vulkan_piece *p = NULL, *rest = tern_calloc(ctx, 1, sizeof(*rest));
    size_t whole = size < SIZE_MAX - 2 * VULKAN_UNIT ? tern_gpu_padded(size, VULKAN_UNIT) : size;
    if (full)
        *full = false;
    if (!rest || tern_vulkan_alive(d)) {
        tern_free(ctx, rest);
        return NULL;
    }
    if (used)
        *used = 0;
    while (!(p = take_piece(d, kind, whole, used, &rest)) && !add_block(d, kind, whole, full))
        ;
    tern_free(ctx, rest);
    return p;
}

void tern_vulkan_piece_destroy(struct vulkan_device *d, struct vulkan_piece *p, uint64_t used)
{
    struct vulkan_piece *gone[2] = {NULL, NULL};
    if (!p)
        return;
    pthread_mutex_lock(&d->memory_lock);
    struct vulkan_block *b = p->block;
    b->used = used > b->used ? used : b->used;
    b->live--;
    p->free = true;
    if (p->behind && p->behind->free)
        gone[0] = join(p);
    if (p->before && p->before->free)
        gone[1] = join(p->before);
    bool empty = is_empty(b);
    pthread_mutex_unlock(&d->memory_lock);
    tern_free(d->gpu.base.ctx, gone[0]);
    tern_free(d->gpu.base.ctx, gone[1]);
    if (empty)
        free_empty(d, KEPT_EMPTY);
}

void tern_vulkan_blocks_close(struct vulkan_device *d)
{
    while (d->blocks) {
        struct vulkan_block *b = d->blocks;
        d->blocks = b->next;
        while (b->pieces->behind) /* what was not given back */
            tern_free(d->gpu.base.ctx, join(b->pieces));
        block_free(d, b);
    }
}
