/* What VK_KHR_cooperative_matrix declares, as far as it is used: headers before 1.3.255 lack it. */
#ifndef TERN_BACKENDS_VULKAN_MATRIX_H
#define TERN_BACKENDS_VULKAN_MATRIX_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#define VULKAN_MATRIX_EXTENSION "VK_KHR_cooperative_matrix"

/* Values of the registry's VkStructureType, VkComponentTypeKHR and VkScopeKHR. */
enum { VULKAN_MATRIX_FEATURES_TYPE = 1000506000, VULKAN_MATRIX_SHAPE_TYPE = 1000506001 };
enum { VULKAN_MATRIX_FLOAT16 = 0, VULKAN_MATRIX_FLOAT32 = 1, VULKAN_MATRIX_SUBGROUP = 3 };

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
struct vulkan_matrix_features {
    VkStructureType sType;
    void *pNext;
    VkBool32 matrix, robust;
};

/* VkCooperativeMatrixPropertiesKHR */
struct vulkan_matrix_shape {
    VkStructureType sType;
    void *pNext;
    uint32_t m, n, k;
    int a, b, c, result; /* types of components */
    VkBool32 saturating;
    int scope;
};

typedef VkResult(VKAPI_PTR *vulkan_get_matrix_shapes)(VkPhysicalDevice device, uint32_t *n, struct vulkan_matrix_shape *shapes);

#endif
