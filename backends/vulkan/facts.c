/* What a Vulkan device can, and one line of it for people. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/vulkan/vulkan.h"
#include "core/context.h"

/* Every launch binds its parameters and up to TERN_MAX_SLOTS buffers by one layout. */
#define BINDINGS (TERN_MAX_SLOTS + 1)

static int power_of_two_below(uint32_t n)
{
    int p = 1;
    while ((uint32_t)p * 2 <= n && p < 1024)
        p *= 2;
    return p;
}

static uint32_t least(uint32_t a, uint32_t b) { return a < b ? a : b; }

bool tern_vulkan_has_extension(const struct vulkan_device *d, const char *name)
{
    uint32_t n = 0;
    bool found = false;
    if (d->vk.vkEnumerateDeviceExtensionProperties(d->physical, NULL, &n, NULL) || !n || n > 4096)
        return false;
    VkExtensionProperties *all = tern_calloc(d->gpu.base.ctx, n, sizeof(*all));
    if (all && d->vk.vkEnumerateDeviceExtensionProperties(d->physical, NULL, &n, all) >= 0)
        for (uint32_t i = 0; i < n && !found; i++)
            found = !strcmp(all[i].extensionName, name);
    tern_free(d->gpu.base.ctx, all);
    return found;
}

/* What is free is asked by VK_EXT_memory_budget: for a fact of the physical device it need not be enabled. */
static void read_memory(struct vulkan_device *d)
{
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 all = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2};
    bool tells = tern_vulkan_has_extension(d, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    all.pNext = tells ? &budget : NULL;
    d->vk.vkGetPhysicalDeviceMemoryProperties2(d->physical, &all);
    d->memory_properties = all.memoryProperties;
    const VkPhysicalDeviceMemoryProperties *m = &d->memory_properties;
    for (uint32_t i = 0; i < m->memoryHeapCount; i++)
        if (m->memoryHeaps[i].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT && m->memoryHeaps[i].size > d->memory) {
            d->memory = m->memoryHeaps[i].size;
            d->unused = budget.heapBudget[i] > budget.heapUsage[i] ? budget.heapBudget[i] - budget.heapUsage[i] : 0;
        }
    d->unified =
        d->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU || d->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    tern_gpu_memory_open(&d->gpu, &tern_vulkan_memory_fns, d->unused, d->memory, d->unified);
}

static void read_features(struct vulkan_device *d)
{
    VkPhysicalDeviceVulkan12Features v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES};
    VkPhysicalDeviceVulkan11Features v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, .pNext = &v12};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &v11};
    d->vk.vkGetPhysicalDeviceFeatures2(d->physical, &features);
    d->gpu.limits.storage16 = v11.storageBuffer16BitAccess;
    d->gpu.limits.storage8 = v12.storageBuffer8BitAccess;
    d->float16 = v12.shaderFloat16;
    d->int8 = v12.shaderInt8;
    tern_vulkan_read_matrix(d, v12.vulkanMemoryModel);
    tern_vulkan_read_dot_product(d);
}

/* Texts exchange values within subgroups where groups can be made of whole ones. */
static void read_subgroups(struct vulkan_device *d, const VkPhysicalDeviceVulkan11Properties *v11)
{
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT sizes = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &sizes};
    const VkSubgroupFeatureFlags wanted = VK_SUBGROUP_FEATURE_BASIC_BIT | VK_SUBGROUP_FEATURE_SHUFFLE_BIT;
    uint32_t size = v11->subgroupSize;
    if (!(v11->subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) || (v11->subgroupSupportedOperations & wanted) != wanted ||
        size < 2 || size > 256 || size & (size - 1) || !tern_vulkan_has_extension(d, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        return;
    d->vk.vkGetPhysicalDeviceFeatures2(d->physical, &features);
    d->gpu.limits.subgroup = sizes.computeFullSubgroups ? (int)size : 0;
}

static void read_limits(struct vulkan_device *d, const VkPhysicalDeviceVulkan11Properties *v11)
{
    const VkPhysicalDeviceLimits *l = &d->properties.limits;
    uint32_t group = least(l->maxComputeWorkGroupInvocations, least(l->maxComputeWorkGroupSize[0], l->maxComputeWorkGroupSize[1]));
    uint32_t groups = least(l->maxComputeWorkGroupCount[0], least(l->maxComputeWorkGroupCount[1], l->maxComputeWorkGroupCount[2]));
    d->gpu.limits.max_group = power_of_two_below(group);
    d->gpu.limits.shared_bytes = l->maxComputeSharedMemorySize;
    d->gpu.limits.max_groups = (int)least(groups, INT32_MAX);
    d->gpu.limits.vectors = true;
    d->gpu.max_flops = VULKAN_FLOPS;
    d->gpu.base.caps.max_buffer = tern_gpu_largest(v11->maxMemoryAllocationSize, VULKAN_UNIT);
    d->gpu.max_binding = l->maxStorageBufferRange;
    d->gpu.binding_alignment = l->minStorageBufferOffsetAlignment > 16 ? l->minStorageBufferOffsetAlignment : 16;
}

static enum tern_status check(struct vulkan_device *d)
{
    const VkPhysicalDeviceLimits *l = &d->properties.limits;
    uint32_t version = d->properties.apiVersion;
    if (version < VK_API_VERSION_1_2)
        return tern_fail(d->gpu.base.ctx, TERN_E_UNSUPPORTED,
                         "vulkan: %s: expected a driver of Vulkan 1.2 or later, found %u.%u (%s); a newer driver would help",
                         d->properties.deviceName, VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version), d->driver);
    if (d->gpu.limits.max_group < 64 || d->gpu.limits.shared_bytes < 16384 || d->gpu.limits.max_groups < 65535 ||
        l->maxPerStageDescriptorStorageBuffers < BINDINGS || l->maxDescriptorSetStorageBuffers < BINDINGS)
        return tern_fail(
            d->gpu.base.ctx, TERN_E_UNSUPPORTED,
            "vulkan: %s: expected groups of 64, 65535 groups, 16 KiB of shared memory and %d storage buffers, found groups of %d, %d "
            "groups, %zu KiB and %u storage buffers",
            d->properties.deviceName, BINDINGS, d->gpu.limits.max_group, d->gpu.limits.max_groups, d->gpu.limits.shared_bytes >> 10,
            least(l->maxPerStageDescriptorStorageBuffers, l->maxDescriptorSetStorageBuffers));
    return TERN_OK;
}

enum tern_status tern_vulkan_read_facts(struct vulkan_device *d)
{
    VkPhysicalDeviceVulkan12Properties v12 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES};
    VkPhysicalDeviceVulkan11Properties v11 = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES, .pNext = &v12};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &v11};
    d->vk.vkGetPhysicalDeviceProperties2(d->physical, &properties);
    d->properties = properties.properties;
    snprintf(d->driver, sizeof(d->driver), "%.*s %.*s", VK_MAX_DRIVER_NAME_SIZE - 1, v12.driverName, VK_MAX_DRIVER_INFO_SIZE - 1,
             v12.driverInfo);
    memcpy(d->uuid, d->properties.pipelineCacheUUID, VK_UUID_SIZE);
    d->gpu.base.caps.software = d->properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
    d->subgroup = (int)v11.subgroupSize;
    d->keeps_nan = v12.shaderSignedZeroInfNanPreserveFloat32;
    d->keeps_denormals = v12.shaderDenormPreserveFloat32 && v12.denormBehaviorIndependence != VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_NONE;
    read_limits(d, &v11);
    if (check(d))
        return tern_error_status(d->gpu.base.ctx);
    read_features(d);
    read_subgroups(d, &v11);
    read_memory(d);
    return tern_failed(d->gpu.base.ctx) ? tern_error_status(d->gpu.base.ctx) : tern_gpu_lower(&d->gpu);
}

/* Appends what fits. */
static void say(char *out, size_t size, const char *fmt, ...) TERN_PRINTF(3, 4);
static void say(char *out, size_t size, const char *fmt, ...)
{
    size_t n = strlen(out);
    va_list arguments;
    va_start(arguments, fmt);
    if (n < size)
        vsnprintf(out + n, size - n, fmt, arguments);
    va_end(arguments);
}

void tern_vulkan_describe(const struct tern_device *device, char *out, size_t size)
{
    const struct vulkan_device *d = (const struct vulkan_device *)device;
    static const char *const types[] = {"other", "integrated GPU", "GPU", "virtual GPU", "the host's processor"};
    unsigned type = (unsigned)d->properties.deviceType;
    const struct {
        const char *name;
        bool there;
    } features[] = {{"16-bit storage", d->gpu.limits.storage16},
                    {"8-bit storage", d->gpu.limits.storage8},
                    {"f16", d->float16},
                    {"i8", d->int8},
                    {"exchange in subgroups", d->gpu.limits.subgroup > 0},
                    {"NaN kept", d->keeps_nan},
                    {"denormals kept", d->keeps_denormals},
                    {"dot products of i8", d->gpu.limits.dot_product},
                    {"cooperative matrix", d->matrix}};
    if (!size)
        return;
    out[0] = 0;
    say(out, size, "%s (%s), %.1f GiB, Vulkan %u.%u, driver %s, groups of %d, %zu KiB shared, subgroups of %d, bindings of %zu MiB",
        d->properties.deviceName, types[type < 5 ? type : 0], (double)d->memory / (1 << 30), VK_API_VERSION_MAJOR(d->properties.apiVersion),
        VK_API_VERSION_MINOR(d->properties.apiVersion), d->driver, d->gpu.limits.max_group, d->gpu.limits.shared_bytes >> 10, d->subgroup,
        d->gpu.max_binding >> 20);
    for (int there = 1; there >= 0; there--) {
        const char *between = there ? ", " : "; not there: ";
        for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
            if (features[i].there == (there == 1)) {
                say(out, size, "%s%s", between, features[i].name);
                between = ", ";
            }
    }
    if (d->matrix && d->gpu.limits.matrix_f16)
        say(out, size, "; cooperative matrix used for f16");
    else if (d->matrix)
        say(out, size, "; cooperative matrix not used: %s", d->no_matrix ? d->no_matrix : "by TERN_GPU_LIMITS");
}
