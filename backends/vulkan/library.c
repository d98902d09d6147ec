/* The Vulkan loader, opened at run time, and names of its errors. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/vulkan/vulkan.h"
#include "core/status.h"

static enum tern_status fail_missing(struct tern_context *ctx, struct vulkan_api *vk, const char *missing)
{
    tern_vulkan_unload(vk);
    return tern_fail(ctx, TERN_E_NOT_FOUND, "vulkan: the loader has no function %s: version 1.2 is needed", missing);
}

#define LOAD(name)                                                     \
    vk->name = (PFN_##name)vk->vkGetInstanceProcAddr(instance, #name); \
    if (!vk->name)                                                     \
        missing = #name;

enum tern_status tern_vulkan_load(struct tern_context *ctx, struct vulkan_api *vk)
{
    static const char *const names[] = {"libvulkan.so.1", "libvulkan.so"}; /* the second: of phones */
    const char *path = getenv("TERN_VULKAN_LIBRARY"), *missing = NULL;
    const VkInstance instance = VK_NULL_HANDLE;
    memset(vk, 0, sizeof(*vk));
    for (int i = 0; i < (path ? 1 : 2) && !vk->library; i++)
        vk->library = dlopen(path ? path : names[i], RTLD_NOW | RTLD_LOCAL);
    if (!vk->library && path)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "vulkan: TERN_VULKAN_LIBRARY: %s", dlerror());
    if (!vk->library)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "vulkan: libvulkan.so.1 is not there; a driver, or the Debian package libvulkan1, has it");
    *(void **)(void *)&vk->vkGetInstanceProcAddr = dlsym(vk->library, "vkGetInstanceProcAddr");
    if (!vk->vkGetInstanceProcAddr)
        return fail_missing(ctx, vk, "vkGetInstanceProcAddr");
    VULKAN_GLOBAL_FUNCTIONS(LOAD)
    return missing ? fail_missing(ctx, vk, missing) : TERN_OK;
}

enum tern_status tern_vulkan_load_instance(struct tern_context *ctx, struct vulkan_api *vk, VkInstance instance)
{
    const char *missing = NULL;
    VULKAN_INSTANCE_FUNCTIONS(LOAD)
    if (!missing)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_NOT_FOUND, "vulkan: the loader has no function %s: version 1.2 is needed", missing);
}
#undef LOAD

enum tern_status tern_vulkan_load_device(struct tern_context *ctx, struct vulkan_api *vk, VkDevice device)
{
    const char *missing = NULL;
#define LOAD(name)                                                 \
    vk->name = (PFN_##name)vk->vkGetDeviceProcAddr(device, #name); \
    if (!vk->name)                                                 \
        missing = #name;
    VULKAN_DEVICE_FUNCTIONS(LOAD)
#undef LOAD
    return missing ? tern_fail(ctx, TERN_E_UNSUPPORTED, "vulkan: the driver has no function %s: version 1.2 is needed", missing) : TERN_OK;
}

void tern_vulkan_unload(struct vulkan_api *vk)
{
    if (vk->library)
        dlclose(vk->library);
    vk->library = NULL;
}

static const char *error_text(VkResult result, char out[32])
{
    static const struct {
        VkResult result;
        const char *text;
    } names[] = {{VK_TIMEOUT, "timeout"},
                 {VK_ERROR_OUT_OF_HOST_MEMORY, "out of host memory"},
                 {VK_ERROR_OUT_OF_DEVICE_MEMORY, "out of device memory"},
                 {VK_ERROR_INITIALIZATION_FAILED, "initialization failed"},
                 {VK_ERROR_DEVICE_LOST, "the device is lost (its driver was reset, or it was removed); a new context opens it again"},
                 {VK_ERROR_MEMORY_MAP_FAILED, "memory map failed"},
                 {VK_ERROR_LAYER_NOT_PRESENT, "a layer that VK_INSTANCE_LAYERS asks for is not installed"},
                 {VK_ERROR_EXTENSION_NOT_PRESENT, "an extension is not there"},
                 {VK_ERROR_FEATURE_NOT_PRESENT, "a feature is not there"},
                 {VK_ERROR_INCOMPATIBLE_DRIVER, "no driver is installed; the Debian package mesa-vulkan-drivers has some"},
                 {VK_ERROR_TOO_MANY_OBJECTS, "too many objects"},
                 {VK_ERROR_OUT_OF_POOL_MEMORY, "out of pool memory"},
                 {VK_ERROR_INVALID_SHADER_NV, "the driver refuses the shader"},
                 {VK_ERROR_UNKNOWN, "unknown error"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].result == result)
            return names[i].text;
    snprintf(out, 32, "error %d", (int)result);
    return out;
}

enum tern_status tern_vulkan_fail(struct tern_context *ctx, const char *what, VkResult result)
{
    char text[32];
    bool memory = result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_TOO_MANY_OBJECTS ||
                  result == VK_ERROR_OUT_OF_POOL_MEMORY;
    return tern_fail(ctx,
                     memory                                   ? TERN_E_NO_MEMORY
                     : result == VK_ERROR_INCOMPATIBLE_DRIVER ? TERN_E_NOT_FOUND
                                                              : TERN_E_DEVICE,
                     "vulkan: %s: %s", what, error_text(result, text));
}

enum tern_status tern_vulkan_failed(struct vulkan_device *d, const char *what, VkResult result)
{
    if (result == VK_ERROR_DEVICE_LOST)
        __atomic_store_n(&d->lost, true, __ATOMIC_RELAXED);
    return tern_vulkan_fail(d->gpu.base.ctx, what, result);
}

enum tern_status tern_vulkan_alive(struct vulkan_device *d)
{
    if (!__atomic_load_n(&d->lost, __ATOMIC_RELAXED))
        return TERN_OK;
    return tern_vulkan_fail(d->gpu.base.ctx, d->properties.deviceName, VK_ERROR_DEVICE_LOST);
}
