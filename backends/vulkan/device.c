/* Vulkan devices: find, open, close. What they can is read in facts.c. */
#include <string.h>

#include "backends/vulkan/matrix.h"
#include "backends/vulkan/vulkan.h"
#include "core/context.h"
#include "core/registry.h"

#define MOST_DEVICES 64
#define MOST_FAMILIES 32

/* Nothing runs any more when objects go; a lost device has stopped. */
static void device_destroy(struct tern_device *device)
{
    struct vulkan_device *d = (struct vulkan_device *)device;
    if (d->device) {
        d->vk.vkDeviceWaitIdle(d->device);
        tern_vulkan_queue_close(d);
        tern_vulkan_stages_close(d);
    }
    tern_gpu_close(&d->gpu);
    if (d->device) {
        tern_vulkan_programs_close(d);
        tern_vulkan_blocks_close(d);
        d->vk.vkDestroyDevice(d->device, NULL);
    }
    if (d->instance && d->vk.vkDestroyInstance)
        d->vk.vkDestroyInstance(d->instance, NULL);
    tern_vulkan_unload(&d->vk);
    pthread_mutex_destroy(&d->memory_lock);
    tern_free(device->ctx, d);
}

static const struct tern_device_fns device_fns = {.destroy = device_destroy,
                                                  .describe = tern_vulkan_describe,
                                                  .buffer_create = tern_gpu_buffer_create,
                                                  .weight_create = tern_gpu_weight_create,
                                                  .weight_mark = tern_gpu_weight_mark,
                                                  .weights_use = tern_gpu_weights_use,
                                                  .trim = tern_vulkan_trim};

static enum tern_status make_instance(struct vulkan_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    uint32_t version = 0;
    VkResult result = d->vk.vkEnumerateInstanceVersion(&version);
    if (!result && version < VK_API_VERSION_1_2)
        return tern_fail(ctx, TERN_E_UNSUPPORTED,
                         "vulkan: expected a loader of Vulkan 1.2 or later, found %u.%u; a newer libvulkan.so.1 would help",
                         VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));
    const VkApplicationInfo application = {
        .sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .pApplicationName = "tern", .pEngineName = "tern", .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
    if (!result)
        result = d->vk.vkCreateInstance(&info, NULL, &d->instance);
    if (result) {
        d->instance = VK_NULL_HANDLE;
        return tern_vulkan_fail(ctx, "making an instance", result);
    }
    return tern_vulkan_load_instance(ctx, &d->vk, d->instance);
}

static enum tern_status find_device(struct vulkan_device *d, int ordinal)
{
    VkPhysicalDevice devices[MOST_DEVICES];
    uint32_t n = MOST_DEVICES;
    VkResult result = d->vk.vkEnumeratePhysicalDevices(d->instance, &n, devices);
    if (result && result != VK_INCOMPLETE)
        return tern_vulkan_fail(d->gpu.base.ctx, "looking for devices", result);
    if ((uint32_t)ordinal >= n)
        return tern_fail(d->gpu.base.ctx, TERN_E_NOT_FOUND, "vulkan: device %d was asked for, there are %u", ordinal, n);
    d->physical = devices[ordinal];
    return TERN_OK;
}

/* The first family of queues that computes. */
static enum tern_status find_family(struct vulkan_device *d)
{
    VkQueueFamilyProperties families[MOST_FAMILIES];
    uint32_t n = MOST_FAMILIES;
    d->vk.vkGetPhysicalDeviceQueueFamilyProperties(d->physical, &n, families);
    for (uint32_t i = 0; i < n && i < MOST_FAMILIES; i++)
        if (families[i].queueFlags & VK_QUEUE_COMPUTE_BIT && families[i].queueCount) {
            d->family = i;
            return TERN_OK;
        }
    return tern_fail(d->gpu.base.ctx, TERN_E_UNSUPPORTED, "vulkan: %s has no queue that computes", d->properties.deviceName);
}

/* With the features that the texts use, as far as they are there. */
static enum tern_status make_device(struct vulkan_device *d)
{
    const char *extensions[3];
    uint32_t n = 0;
    const float priority = 1;
    const bool matrix = d->gpu.limits.matrix_f16, sizes = matrix || d->gpu.limits.subgroup, dots = d->gpu.limits.dot_product;
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {.sType =
                                                                  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR,
                                                              .shaderIntegerDotProduct = VK_TRUE};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT control = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT,
                                                              .pNext = dots ? &dot : NULL,
                                                              .subgroupSizeControl = matrix,
                                                              .computeFullSubgroups = VK_TRUE};
    struct vulkan_matrix_features matrices = {.sType = (VkStructureType)VULKAN_MATRIX_FEATURES_TYPE, .pNext = &control, .matrix = VK_TRUE};
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES,
                                            .pNext = matrix  ? (void *)&matrices
                                                     : sizes ? (void *)&control
                                                     : dots  ? (void *)&dot
                                                             : NULL,
                                            .storageBuffer8BitAccess = d->gpu.limits.storage8,
                                            .shaderFloat16 = matrix,
                                            .vulkanMemoryModel = matrix,
                                            .timelineSemaphore = VK_TRUE};
    if (sizes)
        extensions[n++] = VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME;
    if (matrix)
        extensions[n++] = VULKAN_MATRIX_EXTENSION;
    if (dots)
        extensions[n++] = VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME;
    const VkPhysicalDeviceVulkan11Features v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES,
                                                  .pNext = &v12,
                                                  .storageBuffer16BitAccess = d->gpu.limits.storage16};
    const VkDeviceQueueCreateInfo queue = {
        .sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO, .queueFamilyIndex = d->family, .queueCount = 1, .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .pNext = &v11,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue,
                                     .enabledExtensionCount = n,
                                     .ppEnabledExtensionNames = extensions};
    VkResult result = d->vk.vkCreateDevice(d->physical, &info, NULL, &d->device);
    if (result) {
        d->device = VK_NULL_HANDLE;
        return tern_vulkan_fail(d->gpu.base.ctx, "opening the device", result);
    }
    if (tern_vulkan_load_device(d->gpu.base.ctx, &d->vk, d->device)) {
        if (d->vk.vkDestroyDevice)
            d->vk.vkDestroyDevice(d->device, NULL);
        d->device = VK_NULL_HANDLE;
        return tern_error_status(d->gpu.base.ctx);
    }
    d->vk.vkGetDeviceQueue(d->device, d->family, 0, &d->commands);
    return TERN_OK;
}

static enum tern_status open_device(struct vulkan_device *d, int ordinal)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    if (tern_vulkan_load(ctx, &d->vk) || make_instance(d) || find_device(d, ordinal) || tern_vulkan_read_facts(d) || find_family(d) ||
        make_device(d) || tern_vulkan_programs_open(d) || tern_vulkan_probe_matrix(d) || tern_vulkan_probe_dot_product(d))
        return tern_error_status(ctx);
    if (d->unified)
        d->queue.fns = &tern_vulkan_queue_fns_unified;
    d->gpu.base.caps.uniform_weights = d->gpu.limits.matrix_f16;
    d->gpu.base.caps.fast_dtype = d->gpu.limits.matrix_f16 ? TERN_F16 : TERN_F32;
    return tern_vulkan_queue_open(d);
}

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    struct vulkan_device *d = tern_calloc(ctx, 1, sizeof(*d));
    if (!d)
        return NULL;
    pthread_mutex_init(&d->memory_lock, NULL);
    tern_gpu_open(&d->gpu, ctx, "vulkan");
    d->gpu.fns = &tern_vulkan_gpu_fns;
    d->gpu.language = TERN_TEXT_GLSL;
    d->gpu.base.fns = &device_fns;
    d->gpu.base.queue = &d->queue;
    d->queue = (struct tern_queue){.fns = &tern_vulkan_queue_fns, .device = &d->gpu.base};
    if (open_device(d, ordinal)) {
        device_destroy(&d->gpu.base);
        return NULL;
    }
    return &d->gpu.base;
}

extern const struct tern_backend tern_backend_vulkan;
const struct tern_backend tern_backend_vulkan = {"vulkan", create};
