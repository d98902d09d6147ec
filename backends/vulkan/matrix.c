/* Cooperative matrices: whether device, driver and compiler have those that kernel texts use: f16 x f16 to f32, 16 x 16 x 16, by subgroups
 * of a size that can be told. */
#include "backends/vulkan/matrix.h"

#include "backends/vulkan/vulkan.h"
#include "core/context.h"

/* Behind it every text for matrix units begins. */
static const char probe[] = "#version 450\n"
                            "#extension GL_KHR_cooperative_matrix : require\n"
                            "#extension GL_KHR_memory_scope_semantics : require\n"
                            "#extension GL_KHR_shader_subgroup_basic : require\n"
                            "#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require\n"
                            "layout(local_size_x = 32) in;\n"
                            "shared uvec4 tile[32];\n"
                            "void main()\n"
                            "{\n"
                            "    coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> a;\n"
                            "    coopMatLoad(a, tile, 0u, 2u, gl_CooperativeMatrixLayoutRowMajor);\n"
                            "}\n";

enum { MOST_SHAPES = 256 };

/* Whether one of the shapes is that of the texts. */
static bool has_shape(const struct vulkan_device *d)
{
    struct vulkan_matrix_shape shapes[MOST_SHAPES];
    uint32_t n = MOST_SHAPES;
    vulkan_get_matrix_shapes get =
        (vulkan_get_matrix_shapes)d->vk.vkGetInstanceProcAddr(d->instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR");
    for (uint32_t i = 0; i < MOST_SHAPES; i++)
        shapes[i] = (struct vulkan_matrix_shape){.sType = (VkStructureType)VULKAN_MATRIX_SHAPE_TYPE};
    if (!get || get(d->physical, &n, shapes) < 0)
        return false;
    for (uint32_t i = 0; i < n && i < MOST_SHAPES; i++) {
        const struct vulkan_matrix_shape *s = &shapes[i];
        if (s->m == 16 && s->n == 16 && s->k == 16 && s->a == VULKAN_MATRIX_FLOAT16 && s->b == VULKAN_MATRIX_FLOAT16 &&
            s->c == VULKAN_MATRIX_FLOAT32 && s->result == VULKAN_MATRIX_FLOAT32 && s->scope == VULKAN_MATRIX_SUBGROUP)
            return true;
    }
    return false;
}

/* Whether a pipeline can be told the size of its subgroups, and that they be full. */
static bool tells_subgroups(const struct vulkan_device *d)
{
    VkPhysicalDeviceSubgroupSizeControlPropertiesEXT sizes = {.sType =
                                                                  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, .pNext = &sizes};
    VkPhysicalDeviceSubgroupSizeControlFeaturesEXT control = {.sType =
                                                                  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES_EXT};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &control};
    uint32_t size = (uint32_t)d->subgroup;
    if (!tern_vulkan_has_extension(d, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME))
        return false;
    d->vk.vkGetPhysicalDeviceProperties2(d->physical, &properties);
    d->vk.vkGetPhysicalDeviceFeatures2(d->physical, &features);
    return control.subgroupSizeControl && control.computeFullSubgroups && size && size >= sizes.minSubgroupSize &&
           size <= sizes.maxSubgroupSize && sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT &&
           sizes.maxComputeWorkgroupSubgroups >= 8;
}

static bool is_enabled(const struct vulkan_device *d)
{
    struct vulkan_matrix_features matrix = {.sType = (VkStructureType)VULKAN_MATRIX_FEATURES_TYPE};
    VkPhysicalDeviceFeatures2 features = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, .pNext = &matrix};
    d->vk.vkGetPhysicalDeviceFeatures2(d->physical, &features);
    return matrix.matrix;
}

/* NULL: nothing speaks against them. */
static const char *missing(const struct vulkan_device *d, bool memory_model)
{
    if (!is_enabled(d))
        return "the driver does not allow it";
    if (!has_shape(d))
        return "none of 16 x 16 x 16 from f16 to f32";
    if (!d->float16 || !memory_model || !d->gpu.limits.storage16)
        return "no f16, no 16-bit storage or no memory model";
    return tells_subgroups(d) ? NULL : "the size of subgroups cannot be told";
}

void tern_vulkan_read_matrix(struct vulkan_device *d, bool memory_model)
{
    d->matrix = tern_vulkan_has_extension(d, VULKAN_MATRIX_EXTENSION);
    d->no_matrix = d->matrix ? missing(d, memory_model) : NULL;
    d->gpu.limits.matrix_f16 = d->matrix && !d->no_matrix;
    d->gpu.limits.matrix_subgroup = d->subgroup;
}

enum tern_status tern_vulkan_probe_matrix(struct vulkan_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    if (!d->gpu.limits.matrix_f16 || tern_vulkan_can_compile(d, probe, "cooperative matrix"))
        return TERN_OK;
    if (tern_gpu_lacks_memory(ctx))
        return tern_error_status(ctx);
    d->gpu.limits.matrix_f16 = false;
    d->no_matrix = "the compiler of GLSL (shaderc or glslc) does not know it; one of 2024 does";
    tern_message(ctx, TERN_LOG_INFO, "vulkan: %s: no cooperative matrix: %s", d->properties.deviceName, tern_error(ctx));
    tern_error_clear(ctx);
    return TERN_OK;
}
