/* Kernels of a Vulkan device: SPIR-V from the cache folder or from shaderc, pipelines through the driver's cache, which is kept, too. */
#include <stdio.h>
#include <string.h>

#include "backends/vulkan/vulkan.h"
#include "core/cache.h"
#include "core/context.h"

#define BINDINGS (TERN_MAX_SLOTS + 1)
#define VERSION "1" /* of what is done to a source before it is kept */

static uint64_t hash_device(const struct vulkan_device *d)
{
    const uint32_t numbers[3] = {d->properties.vendorID, d->properties.deviceID, d->properties.driverVersion};
    uint64_t h = tern_gpu_hash(0x9e3779b97f4a7c15u, d->properties.deviceName, strlen(d->properties.deviceName));
    h = tern_gpu_hash(h, d->driver, strlen(d->driver));
    h = tern_gpu_hash(h, numbers, sizeof(numbers));
    return tern_gpu_hash(h, d->uuid, sizeof(d->uuid));
}

/* NULL where there is no cache folder. */
static char *path_of(const struct vulkan_device *d, uint64_t a, uint64_t b, const char *ending)
{
    char name[64];
    snprintf(name, sizeof(name), "%016llx%016llx%s", (unsigned long long)a, (unsigned long long)b, ending);
    return tern_cache_path(d->gpu.base.ctx, "vulkan", name);
}

/* ---- pipelines ---- */

static char *path_of_pipelines(const struct vulkan_device *d)
{
    return path_of(d, hash_device(d), tern_gpu_hash(0xcbf29ce484222325u, d->uuid, sizeof(d->uuid)), ".pipelines");
}

/* A driver ignores what is not its own; what is damaged does not get to it. */
static enum tern_status open_pipelines(struct vulkan_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    char *path = path_of_pipelines(d), *data = tern_gpu_binary_read(ctx, path, "pipelines are made again", &size);
    VkPipelineCacheCreateInfo info = {.sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO, .initialDataSize = size, .pInitialData = data};
    VkResult result = tern_failed(ctx) ? VK_SUCCESS : d->vk.vkCreatePipelineCache(d->device, &info, NULL, &d->pipelines);
    tern_free(ctx, data);
    tern_free(ctx, path);
    if (result) {
        d->pipelines = VK_NULL_HANDLE;
        return tern_vulkan_failed(d, "making a pipeline cache", result);
    }
    return tern_failed(ctx) ? tern_error_status(ctx) : TERN_OK;
}

static void keep_pipelines(struct vulkan_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    if (!d->pipelines_new || tern_failed(ctx) || d->vk.vkGetPipelineCacheData(d->device, d->pipelines, &size, NULL) || !size)
        return;
    char *path = path_of_pipelines(d), *data = path ? tern_alloc(ctx, size) : NULL;
    if (data && !d->vk.vkGetPipelineCacheData(d->device, d->pipelines, &size, data))
        tern_gpu_binary_keep(ctx, path, data, size);
    tern_free(ctx, data);
    tern_free(ctx, path);
    tern_error_clear(ctx);
}

static VkResult make_layouts(struct vulkan_device *d)
{
    VkDescriptorSetLayoutBinding bindings[BINDINGS];
    for (uint32_t i = 0; i < BINDINGS; i++)
        bindings[i] = (VkDescriptorSetLayoutBinding){.binding = i,
                                                     .descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                                                     .descriptorCount = 1,
                                                     .stageFlags = VK_SHADER_STAGE_COMPUTE_BIT};
    const VkDescriptorSetLayoutCreateInfo set = {.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO,
                                                 .bindingCount = BINDINGS,
                                                 .pBindings = bindings};
    VkResult result = d->vk.vkCreateDescriptorSetLayout(d->device, &set, NULL, &d->set_layout);
    if (result) {
        d->set_layout = VK_NULL_HANDLE;
        return result;
    }
    const VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO,
                                               .setLayoutCount = 1,
                                               .pSetLayouts = &d->set_layout};
    result = d->vk.vkCreatePipelineLayout(d->device, &layout, NULL, &d->layout);
    if (result)
        d->layout = VK_NULL_HANDLE;
    return result;
}

enum tern_status tern_vulkan_programs_open(struct vulkan_device *d)
{
    VkResult result = make_layouts(d);
    return result ? tern_vulkan_failed(d, "making a layout", result) : open_pipelines(d);
}

void tern_vulkan_programs_close(struct vulkan_device *d)
{
    if (d->pipelines)
        keep_pipelines(d);
    if (d->pipelines)
        d->vk.vkDestroyPipelineCache(d->device, d->pipelines, NULL);
    if (d->layout)
        d->vk.vkDestroyPipelineLayout(d->device, d->layout, NULL);
    if (d->set_layout)
        d->vk.vkDestroyDescriptorSetLayout(d->device, d->set_layout, NULL);
    tern_vulkan_compiler_close(d);
}

/* ---- kernels ---- */

static enum tern_status make_pipeline(struct vulkan_device *d, const uint32_t *words, size_t size, const struct tern_launch *l,
                                      VkPipeline *pipeline)
{
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfoEXT subgroup = {
        .sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO_EXT,
        .requiredSubgroupSize = (uint32_t)l->matrix_subgroup};
    VkShaderModule module = VK_NULL_HANDLE;
    const VkShaderModuleCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO, .codeSize = size, .pCode = words};
    VkResult result = d->vk.vkCreateShaderModule(d->device, &info, NULL, &module);
    if (result)
        return tern_vulkan_failed(d, l->text, result);
    const bool whole = l->subgroups || l->matrix_subgroup;
    const VkComputePipelineCreateInfo compute = {.sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
                                                 .flags = l->separable ? VK_PIPELINE_CREATE_DISPATCH_BASE_BIT : 0,
                                                 .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                                                           .pNext = l->matrix_subgroup ? &subgroup : NULL,
                                                           .flags =
                                                               whole ? VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT_EXT : 0,
                                                           .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                                                           .module = module,
                                                           .pName = tern_text_entry(TERN_TEXT_GLSL)},
                                                 .layout = d->layout};
    result = d->vk.vkCreateComputePipelines(d->device, d->pipelines, 1, &compute, NULL, pipeline);
    d->vk.vkDestroyShaderModule(d->device, module, NULL);
    return result ? tern_vulkan_failed(d, l->text, result) : TERN_OK;
}

/* The module of a source, from the cache folder or compiled and kept there. */
static uint32_t *module_of(struct vulkan_device *d, const char *source, const char *name, size_t *size)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    const char kept[2] = {d->keeps_nan ? 'n' : '-', d->keeps_denormals ? 'd' : '-'};
    const uint64_t options = tern_gpu_hash(tern_gpu_hash(hash_device(d), VERSION, sizeof(VERSION)), kept, sizeof(kept));
    char *path =
        path_of(d, tern_gpu_hash(0xcbf29ce484222325u, source, strlen(source)), tern_gpu_hash(options, source, strlen(source)), ".spv");
    void *words = tern_gpu_binary_read(ctx, path, "the kernel is built again", size);
    if (!words && !tern_failed(ctx)) {
        words = tern_vulkan_spirv_compile(d, source, name, size);
        if (words)
            tern_gpu_binary_keep(ctx, path, words, *size);
    }
    tern_free(ctx, path);
    return words;
}

bool tern_vulkan_can_compile(struct vulkan_device *d, const char *source, const char *name)
{
    size_t size = 0;
    uint32_t *words = module_of(d, source, name, &size);
    tern_free(d->gpu.base.ctx, words);
    return words != NULL;
}

static void *compile(struct tern_gpu *gpu, const char *source, const struct tern_launch *l)
{
    struct vulkan_device *d = (struct vulkan_device *)gpu;
    size_t size = 0;
    struct vulkan_kernel *k = tern_vulkan_alive(d) ? NULL : tern_calloc(gpu->base.ctx, 1, sizeof(*k));
    uint32_t *words = k ? module_of(d, source, l->text, &size) : NULL;
    if (words && !make_pipeline(d, words, size, l, &k->pipeline)) {
        d->pipelines_new = true;
    } else {
        tern_free(gpu->base.ctx, k);
        k = NULL;
    }
    tern_free(gpu->base.ctx, words);
    return k;
}

static void release(struct tern_gpu *gpu, void *kernel)
{
    struct vulkan_device *d = (struct vulkan_device *)gpu;
    d->vk.vkDestroyPipeline(d->device, ((struct vulkan_kernel *)kernel)->pipeline, NULL);
    tern_free(gpu->base.ctx, kernel);
}

const struct tern_gpu_fns tern_vulkan_gpu_fns = {compile, release, tern_vulkan_enqueue};
