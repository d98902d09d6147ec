/* Dot products of int8: whether device and compiler have what kernel texts use, OpSDot of four bytes in a word. */
#include "backends/vulkan/vulkan.h"
#include "core/context.h"

/* As texts write it (glsl.h). */
static const char probe[] = "#version 450\n"
                            "#extension GL_EXT_spirv_intrinsics : require\n"
                            "spirv_instruction(extensions = [\"SPV_KHR_integer_dot_product\"], capabilities = [6018, 6019], id = 4450)\n"
                            "int dot_of_words(uint a, uint b, spirv_literal int format);\n"
                            "layout(local_size_x = 1) in;\n"
                            "layout(std430, set = 0, binding = 0) buffer block { uint at[]; } b;\n"
                            "void main() { b.at[0] = uint(dot_of_words(b.at[0], b.at[1], 0)); }\n";

void tern_vulkan_read_dot_product(struct vulkan_device *d)
{
    VkPhysicalDeviceShaderIntegerDotProductFeaturesKHR dot = {
        .sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES_KHR};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &dot};
    if (!tern_vulkan_has_extension(d, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME))
        return;
    d->vk.vkGetPhysicalDeviceFeatures2(d->physical, &features);
    d->gpu.limits.dot_product = dot.shaderIntegerDotProduct;
}

enum tern_status tern_vulkan_probe_dot_product(struct vulkan_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    if (!d->gpu.limits.dot_product || tern_vulkan_can_compile(d, probe, "dot products"))
        return TERN_OK;
    if (tern_gpu_lacks_memory(ctx))
        return tern_error_status(ctx);
    d->gpu.limits.dot_product = false;
    tern_message(ctx, TERN_LOG_INFO, "vulkan: %s: no dot products of int8, the compiler of GLSL (shaderc or glslc) does not know them: %s",
                 d->properties.deviceName, tern_error(ctx));
    tern_error_clear(ctx);
    return TERN_OK;
}
