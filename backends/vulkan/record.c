/* One command buffer with its descriptor sets and parameters: launches and copies, with barriers only where one touches what another
 * wrote. Nothing is allocated for a launch but in captures, which grow. */
#include <string.h>

#include "backends/vulkan/vulkan.h"
#include "core/context.h"

#define BINDINGS (TERN_MAX_SLOTS + 1)

_Static_assert(sizeof(union tern_launch_params) <= VULKAN_PARAMS_STRIDE, "parameters fit their place");

/* ---- descriptor sets and parameters ---- */

static enum tern_status make_sets(struct vulkan_device *d, struct vulkan_chunk *c)
{
    VkDescriptorSetLayout layouts[VULKAN_CHUNK_LAUNCHES];
    const VkDescriptorPoolSize size = {VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, VULKAN_CHUNK_LAUNCHES * BINDINGS};
    const VkDescriptorPoolCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO, .maxSets = VULKAN_CHUNK_LAUNCHES, .poolSizeCount = 1, .pPoolSizes = &size};
    VkResult result = d->vk.vkCreateDescriptorPool(d->device, &info, NULL, &c->pool);
    if (result) {
        c->pool = VK_NULL_HANDLE;
        return tern_vulkan_failed(d, "making a descriptor pool", result);
    }
    for (int i = 0; i < VULKAN_CHUNK_LAUNCHES; i++)
        layouts[i] = d->set_layout;
    const VkDescriptorSetAllocateInfo sets = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO,
                                              .descriptorPool = c->pool,
                                              .descriptorSetCount = VULKAN_CHUNK_LAUNCHES,
                                              .pSetLayouts = layouts};
    result = d->vk.vkAllocateDescriptorSets(d->device, &sets, c->sets);
    return result ? tern_vulkan_failed(d, "making descriptor sets", result) : TERN_OK;
}

static void chunk_free(struct vulkan_device *d, struct vulkan_chunk *c, uint64_t used)
{
    if (c->pool)
        d->vk.vkDestroyDescriptorPool(d->device, c->pool, NULL);
    tern_vulkan_piece_destroy(d, c->params, used);
    tern_free(d->gpu.base.ctx, c);
}

/* Puts another chunk behind those that are there. */
static enum tern_status add_chunk(struct vulkan_device *d, struct vulkan_recorder *r)
{
    struct vulkan_chunk *c = tern_calloc(d->gpu.base.ctx, 1, sizeof(*c)), **last = &r->chunks;
    if (!c)
        return tern_error_status(d->gpu.base.ctx);
    uint64_t used = 0;
    c->params = tern_vulkan_piece_create(d, VULKAN_MEMORY_PARAMS, VULKAN_CHUNK_LAUNCHES * VULKAN_PARAMS_STRIDE, &used, NULL);
    /* the host writes them: nothing may still read what was there */
    enum tern_status st = c->params ? tern_vulkan_submit_for(d, used) : tern_error_status(d->gpu.base.ctx);
    st = st ? st : tern_vulkan_wait(d, used < d->submitted ? used : d->submitted);
    if (st || make_sets(d, c)) {
        chunk_free(d, c, used);
        return tern_error_status(d->gpu.base.ctx);
    }
    while (*last)
        last = &(*last)->next;
    *last = c;
    return TERN_OK;
}

/* ---- the command buffer ---- */

static enum tern_status make_commands(struct vulkan_device *d, struct vulkan_recorder *r)
{
    const VkCommandBufferAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                              .commandPool = r->pool,
                                              .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
                                              .commandBufferCount = 1};
    r->commands = NULL;
    VkResult result = d->vk.vkAllocateCommandBuffers(d->device, &info, &r->commands);
    return result ? tern_vulkan_failed(d, "making a command buffer", result) : TERN_OK;
}

enum tern_status tern_vulkan_recorder_open(struct vulkan_device *d, struct vulkan_recorder *r)
{
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = d->family};
    VkResult result = d->vk.vkCreateCommandPool(d->device, &pool, NULL, &r->pool);
    if (result) {
        r->pool = VK_NULL_HANDLE;
        return tern_vulkan_failed(d, "making a command pool", result);
    }
    enum tern_status st = make_commands(d, r);
    return st ? st : add_chunk(d, r);
}

void tern_vulkan_recorder_close(struct vulkan_device *d, struct vulkan_recorder *r, uint64_t used)
{
    while (r->chunks) {
        struct vulkan_chunk *c = r->chunks;
        r->chunks = c->next;
        chunk_free(d, c, used);
    }
    if (r->pool)
        d->vk.vkDestroyCommandPool(d->device, r->pool, NULL); /* with its command buffers */
    r->pool = VK_NULL_HANDLE;
    tern_free(d->gpu.base.ctx, r->ended);
}

#define WORK_STAGES (VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT)
#define WORK_WRITES (VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT)
#define WORK_READS (VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_TRANSFER_READ_BIT)

/* What comes behind it sees all that came before it, in earlier command buffers too. */
static void barrier(struct vulkan_device *d, struct vulkan_recorder *r)
{
    const VkMemoryBarrier all = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                 .srcAccessMask = WORK_WRITES,
                                 .dstAccessMask = WORK_READS | WORK_WRITES};
    d->vk.vkCmdPipelineBarrier(r->commands, WORK_STAGES, WORK_STAGES, 0, 1, &all, 0, NULL, 0, NULL);
    r->n_spans = 0;
}

static enum tern_status begin(struct vulkan_device *d, struct vulkan_recorder *r, VkCommandBufferUsageFlags usage)
{
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO, .flags = usage};
    VkResult result = d->vk.vkBeginCommandBuffer(r->commands, &info);
    if (result)
        return tern_vulkan_failed(d, "beginning a command buffer", result);
    r->flops = 0;
    barrier(d, r);
    return TERN_OK;
}

enum tern_status tern_vulkan_recorder_begin(struct vulkan_device *d, struct vulkan_recorder *r, VkCommandBufferUsageFlags usage)
{
    for (struct vulkan_chunk *c = r->chunks; c; c = c->next)
        c->n = 0;
    return begin(d, r, usage);
}

enum tern_status tern_vulkan_recorder_next(struct vulkan_device *d, struct vulkan_recorder *r)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    VkCommandBuffer *ended = tern_realloc(ctx, r->ended, ((size_t)r->n_ended + 1) * sizeof(VkCommandBuffer));
    if (!ended)
        return tern_error_status(ctx);
    r->ended = ended;
    enum tern_status st = tern_vulkan_recorder_end(d, r);
    if (st)
        return st;
    r->ended[r->n_ended++] = r->commands;
    st = make_commands(d, r);
    return st ? st : begin(d, r, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
}

/* The host sees what was written once it has waited for the batch. */
enum tern_status tern_vulkan_recorder_end(struct vulkan_device *d, struct vulkan_recorder *r)
{
    const VkMemoryBarrier to_host = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                     .srcAccessMask = WORK_WRITES,
                                     .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    d->vk.vkCmdPipelineBarrier(r->commands, WORK_STAGES, VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &to_host, 0, NULL, 0, NULL);
    VkResult result = d->vk.vkEndCommandBuffer(r->commands);
    return result ? tern_vulkan_failed(d, "ending a command buffer", result) : TERN_OK;
}

/* ---- launches and copies ---- */

static bool conflict(const struct vulkan_span *a, const struct vulkan_span *b)
{
    return a->buffer == b->buffer && a->begin < b->end && b->begin < a->end && (a->write || b->write);
}

/* A barrier if one of these meets what was recorded since the last one; then they count as recorded. */
static void touch(struct vulkan_device *d, struct vulkan_recorder *r, const struct vulkan_span *spans, int n)
{
    bool wanted = r->n_spans + n > VULKAN_SPANS;
    for (int i = 0; i < n && !wanted; i++)
        for (int k = 0; k < r->n_spans && !wanted; k++)
            wanted = conflict(&spans[i], &r->spans[k]);
    if (wanted)
        barrier(d, r);
    memcpy(&r->spans[r->n_spans], spans, (size_t)n * sizeof(*spans));
    r->n_spans += n;
}

/* From what the binding's alignment leaves of the offset to the argument's end, in whole words. */
static VkDescriptorBufferInfo bind(const struct vulkan_device *d, const struct tern_launch *l, int slot, const struct tern_arg *a)
{
    const struct vulkan_piece *p = ((const struct vulkan_buffer *)a->buffer)->piece;
    size_t begin = tern_gpu_bound(&d->gpu, a->offset), end = (a->offset + l->slot[slot].bytes + 3) & ~(size_t)3;
    return (VkDescriptorBufferInfo){p->block->buffer, p->offset + begin, end > begin ? end - begin : 4};
}

enum tern_status tern_vulkan_record_launch(struct vulkan_device *d, struct vulkan_recorder *r, const struct vulkan_kernel *k,
                                           const struct tern_launch *l, const struct tern_arg *slots, const struct vulkan_part *part)
{
    VkDescriptorBufferInfo buffers[BINDINGS];
    struct vulkan_span spans[TERN_MAX_SLOTS];
    struct vulkan_chunk *c = r->chunks;
    while (c->n == VULKAN_CHUNK_LAUNCHES && c->next)
        c = c->next;
    if (c->n == VULKAN_CHUNK_LAUNCHES) {
        if (add_chunk(d, r))
            return tern_error_status(d->gpu.base.ctx);
        c = c->next;
    }
    int n = c->n++;
    size_t place = c->params->offset + (size_t)n * VULKAN_PARAMS_STRIDE;
    memcpy(c->params->block->mapped + place, &l->params, l->params_size);
    buffers[0] = (VkDescriptorBufferInfo){c->params->block->buffer, place, l->params_size};
    for (int i = 0; i < l->n_slots; i++) {
        buffers[1 + i] = bind(d, l, i, &slots[i]);
        VkDeviceSize begin = buffers[1 + i].offset;
        spans[i] = (struct vulkan_span){buffers[1 + i].buffer, begin, begin + buffers[1 + i].range, l->slot[i].what >= TERN_SLOT_OUT};
    }
    /* Nothing reads the rest, but they must not name buffers that are gone: lavapipe (Mesa 22.3) binds them with the others. */
    for (int i = l->n_slots; i < TERN_MAX_SLOTS; i++)
        buffers[1 + i] = buffers[0];
    touch(d, r, spans, l->n_slots);
    /* one write goes over all bindings, since they are alike */
    const VkWriteDescriptorSet write = {.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET,
                                        .dstSet = c->sets[n],
                                        .descriptorCount = BINDINGS,
                                        .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                        .pBufferInfo = buffers};
    d->vk.vkUpdateDescriptorSets(d->device, 1, &write, 0, NULL);
    d->vk.vkCmdBindPipeline(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, k->pipeline);
    d->vk.vkCmdBindDescriptorSets(r->commands, VK_PIPELINE_BIND_POINT_COMPUTE, d->layout, 0, 1, &c->sets[n], 0, NULL);
    const uint32_t *at = part->first, *n_groups = part->groups;
    if (at[0] | at[1] | at[2])
        d->vk.vkCmdDispatchBase(r->commands, at[0], at[1], at[2], n_groups[0], n_groups[1], n_groups[2]);
    else
        d->vk.vkCmdDispatch(r->commands, n_groups[0], n_groups[1], n_groups[2]);
    return TERN_OK;
}

void tern_vulkan_record_copy(struct vulkan_device *d, struct vulkan_recorder *r, const struct vulkan_piece *from, size_t from_offset,
                             const struct vulkan_piece *to, size_t to_offset, size_t size)
{
    const VkBufferCopy part = {from->offset + from_offset, to->offset + to_offset, size};
    const struct vulkan_span spans[2] = {{from->block->buffer, part.srcOffset, part.srcOffset + size, false},
                                         {to->block->buffer, part.dstOffset, part.dstOffset + size, true}};
    touch(d, r, spans, 2);
    d->vk.vkCmdCopyBuffer(r->commands, from->block->buffer, to->block->buffer, 1, &part);
}
