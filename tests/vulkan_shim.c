/* The stand-in for the Vulkan loader: see vulkan_shim.h. */
#include "tests/vulkan_shim.h"

#include <dlfcn.h>
#include <string.h>

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "backends/vulkan/matrix.h"

#define EXPORT __attribute__((visibility("default")))

static struct vulkan_shim shim;
static PFN_vkGetInstanceProcAddr real_vkGetInstanceProcAddr;

EXPORT struct vulkan_shim *vulkan_shim(void);
EXPORT struct vulkan_shim *vulkan_shim(void) { return &shim; }
EXPORT PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name);

/* What the call of that function gives instead of being passed on; VK_SUCCESS: it is. */
static VkResult verdict(const char *name)
{
    if (shim.fail_of && strcmp(shim.fail_of, name))
        return VK_SUCCESS;
    long n = __atomic_add_fetch(&shim.calls, 1, __ATOMIC_RELAXED);
    return shim.fail_at && (n == shim.fail_at || (shim.stays_lost && n > shim.fail_at)) ? (VkResult)shim.fail_with : VK_SUCCESS;
}

static VkResult count(VkResult result)
{
    if (!result) {
        shim.made++;
        shim.live++;
    }
    return result;
}

/* F(name, parameters, arguments): functions that can fail. */
#define FAILING(F)                                                                                                                   \
    F(vkEnumerateInstanceVersion, (uint32_t * version), (version))                                                                   \
    F(vkEnumeratePhysicalDevices, (VkInstance i, uint32_t * n, VkPhysicalDevice * d), (i, n, d))                                     \
    F(vkMapMemory, (VkDevice d, VkDeviceMemory m, VkDeviceSize o, VkDeviceSize n, VkMemoryMapFlags f, void **p), (d, m, o, n, f, p)) \
    F(vkBindBufferMemory, (VkDevice d, VkBuffer b, VkDeviceMemory m, VkDeviceSize o), (d, b, m, o))                                  \
    F(vkAllocateCommandBuffers, (VkDevice d, const VkCommandBufferAllocateInfo *info, VkCommandBuffer *c), (d, info, c))             \
    F(vkBeginCommandBuffer, (VkCommandBuffer c, const VkCommandBufferBeginInfo *info), (c, info))                                    \
    F(vkEndCommandBuffer, (VkCommandBuffer c), (c))                                                                                  \
    F(vkAllocateDescriptorSets, (VkDevice d, const VkDescriptorSetAllocateInfo *info, VkDescriptorSet *s), (d, info, s))             \
    F(vkGetPipelineCacheData, (VkDevice d, VkPipelineCache c, size_t * n, void *p), (d, c, n, p))
/* C(name, what describes it, its type): functions of a device that make an object. */
#define MAKING(C)                                                                          \
    C(vkCreateSemaphore, VkSemaphoreCreateInfo, VkSemaphore)                               \
    C(vkCreateBuffer, VkBufferCreateInfo, VkBuffer)                                        \
    C(vkCreateCommandPool, VkCommandPoolCreateInfo, VkCommandPool)                         \
    C(vkCreateDescriptorSetLayout, VkDescriptorSetLayoutCreateInfo, VkDescriptorSetLayout) \
    C(vkCreateDescriptorPool, VkDescriptorPoolCreateInfo, VkDescriptorPool)                \
    C(vkCreatePipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout)                \
    C(vkCreateShaderModule, VkShaderModuleCreateInfo, VkShaderModule)                      \
    C(vkCreatePipelineCache, VkPipelineCacheCreateInfo, VkPipelineCache)
#define DESTROYING(D)                                      \
    D(vkDestroySemaphore, VkSemaphore)                     \
    D(vkDestroyBuffer, VkBuffer)                           \
    D(vkDestroyCommandPool, VkCommandPool)                 \
    D(vkDestroyDescriptorSetLayout, VkDescriptorSetLayout) \
    D(vkDestroyDescriptorPool, VkDescriptorPool)           \
    D(vkDestroyPipelineLayout, VkPipelineLayout)           \
    D(vkDestroyShaderModule, VkShaderModule)               \
    D(vkDestroyPipelineCache, VkPipelineCache)             \
    D(vkDestroyPipeline, VkPipeline)

#define WRAP_FAILING(name, parameters, arguments)               \
    static PFN_##name real_##name;                              \
    static VKAPI_ATTR VkResult VKAPI_CALL own_##name parameters \
    {                                                           \
        VkResult v = verdict(#name);                            \
        return v ? v : real_##name arguments;                   \
    }
#define WRAP_MAKING(name, info_type, type)                                                                                         \
    static PFN_##name real_##name;                                                                                                 \
    static VKAPI_ATTR VkResult VKAPI_CALL own_##name(VkDevice d, const info_type *info, const VkAllocationCallbacks *a, type *out) \
    {                                                                                                                              \
        VkResult v = verdict(#name);                                                                                               \
        return v ? v : count(real_##name(d, info, a, out));                                                                        \
    }
#define WRAP_DESTROYING(name, type)                                                                       \
    static PFN_##name real_##name;                                                                        \
    static VKAPI_ATTR void VKAPI_CALL own_##name(VkDevice d, type object, const VkAllocationCallbacks *a) \
    {                                                                                                     \
        shim.live -= object != VK_NULL_HANDLE;                                                            \
        real_##name(d, object, a);                                                                        \
    }
FAILING(WRAP_FAILING)
MAKING(WRAP_MAKING)
DESTROYING(WRAP_DESTROYING)

/* F(name): those with a body of their own. */
/* clang-format off */
#define OTHERS(F) \
    F(vkEnumerateDeviceExtensionProperties) F(vkGetPhysicalDeviceFeatures2) \
    F(vkCreateInstance) F(vkDestroyInstance) F(vkCreateDevice) F(vkDestroyDevice) F(vkGetDeviceProcAddr) \
    F(vkCreateComputePipelines) F(vkAllocateMemory) F(vkFreeMemory) F(vkQueueSubmit) F(vkDeviceWaitIdle) F(vkGetPhysicalDeviceProperties2) \
    F(vkGetPhysicalDeviceMemoryProperties2) F(vkGetBufferMemoryRequirements) F(vkCmdCopyBuffer) F(vkCmdBindPipeline) \
    F(vkCmdDispatch) F(vkCmdDispatchBase) F(vkWaitSemaphores) F(vkGetSemaphoreCounterValue)
/* clang-format on */
#define REAL(name) static PFN_##name real_##name;
OTHERS(REAL)

static VKAPI_ATTR VkResult VKAPI_CALL own_vkCreateInstance(const VkInstanceCreateInfo *info, const VkAllocationCallbacks *a,
                                                           VkInstance *out)
{
    VkResult v = verdict("vkCreateInstance");
    return v ? v : count(real_vkCreateInstance(info, a, out));
}

static VKAPI_ATTR void VKAPI_CALL own_vkDestroyInstance(VkInstance i, const VkAllocationCallbacks *a)
{
    shim.live -= i != NULL;
    real_vkDestroyInstance(i, a);
}

static VKAPI_ATTR VkResult VKAPI_CALL own_vkCreateDevice(VkPhysicalDevice p, const VkDeviceCreateInfo *info, const VkAllocationCallbacks *a,
                                                         VkDevice *out)
{
    VkResult v = verdict("vkCreateDevice");
    VkDeviceCreateInfo copy = *info;
    const char *names[8];
    copy.enabledExtensionCount = 0;
    copy.ppEnabledExtensionNames = names;
    for (uint32_t i = 0; i < info->enabledExtensionCount && copy.enabledExtensionCount < 8; i++)
        if (!shim.matrix || strcmp(info->ppEnabledExtensionNames[i], VULKAN_MATRIX_EXTENSION))
            names[copy.enabledExtensionCount++] = info->ppEnabledExtensionNames[i];
        else
            shim.matrices_enabled++;
    return v ? v : count(real_vkCreateDevice(p, &copy, a, out));
}

/* The own extension stands behind those of the driver. */
static VKAPI_ATTR VkResult VKAPI_CALL own_vkEnumerateDeviceExtensionProperties(VkPhysicalDevice d, const char *layer, uint32_t *n,
                                                                               VkExtensionProperties *p)
{
    VkResult v = verdict("vkEnumerateDeviceExtensionProperties");
    uint32_t room = *n;
    v = v ? v : real_vkEnumerateDeviceExtensionProperties(d, layer, n, p);
    if (!v && shim.matrix && !p)
        ++*n;
    else if (!v && shim.matrix && *n < room)
        p[(*n)++] = (VkExtensionProperties){VULKAN_MATRIX_EXTENSION, 1};
    return v;
}

static VKAPI_ATTR void VKAPI_CALL own_vkGetPhysicalDeviceFeatures2(VkPhysicalDevice d, VkPhysicalDeviceFeatures2 *f)
{
    real_vkGetPhysicalDeviceFeatures2(d, f);
    for (VkBaseOutStructure *next = f->pNext; next && shim.matrix; next = next->pNext)
        if (next->sType == (VkStructureType)VULKAN_MATRIX_FEATURES_TYPE)
            ((struct vulkan_matrix_features *)(void *)next)->matrix = VK_TRUE;
}

static VKAPI_ATTR VkResult VKAPI_CALL own_shapes(VkPhysicalDevice d, uint32_t *n, struct vulkan_matrix_shape *shapes)
{
    static const int ks[3] = {8, 32, 16}; /* the texts' is the last */
    *n = shim.matrix == 1 ? 3 : 2;
    for (uint32_t i = 0; i < *n; i++) {
        shapes[i].m = shapes[i].n = 16;
        shapes[i].k = (uint32_t)ks[i];
        shapes[i].a = shapes[i].b = VULKAN_MATRIX_FLOAT16;
        shapes[i].c = shapes[i].result = VULKAN_MATRIX_FLOAT32;
        shapes[i].scope = VULKAN_MATRIX_SUBGROUP;
    }
    return VK_SUCCESS;
}

static VKAPI_ATTR void VKAPI_CALL own_vkDestroyDevice(VkDevice d, const VkAllocationCallbacks *a)
{
    shim.live -= d != NULL;
    real_vkDestroyDevice(d, a);
}

static VKAPI_ATTR VkResult VKAPI_CALL own_vkCreateComputePipelines(VkDevice d, VkPipelineCache c, uint32_t n,
                                                                   const VkComputePipelineCreateInfo *info, const VkAllocationCallbacks *a,
                                                                   VkPipeline *out)
{
    VkResult v = verdict("vkCreateComputePipelines");
    return v ? v : count(real_vkCreateComputePipelines(d, c, n, info, a, out));
}

/* What was allocated, for when it is freed. */
enum { MOST_MEMORIES = 4096 };
static struct {
    VkDeviceMemory memory;
    size_t size, *used;
} memories[MOST_MEMORIES];

static void remember(VkDeviceMemory memory, size_t size, size_t *used)
{
    for (int i = 0; i < MOST_MEMORIES; i++)
        if (!memories[i].memory) {
            memories[i].memory = memory;
            memories[i].size = size;
            memories[i].used = used;
            *used += size;
            return;
        }
}

static VKAPI_ATTR void VKAPI_CALL own_vkFreeMemory(VkDevice d, VkDeviceMemory memory, const VkAllocationCallbacks *a)
{
    for (int i = 0; i < MOST_MEMORIES; i++)
        if (memory && memories[i].memory == memory) {
            memories[i].memory = VK_NULL_HANDLE;
            *memories[i].used -= memories[i].size;
        }
    shim.live -= memory != VK_NULL_HANDLE;
    real_vkFreeMemory(d, memory, a);
}

/* Type 0 is the device's own, type 1 the host's; the driver has one for both. */
static VKAPI_ATTR VkResult VKAPI_CALL own_vkAllocateMemory(VkDevice d, const VkMemoryAllocateInfo *info, const VkAllocationCallbacks *a,
                                                           VkDeviceMemory *out)
{
    VkResult v = verdict("vkAllocateMemory");
    VkMemoryAllocateInfo copy = *info;
    size_t *used = info->memoryTypeIndex ? &shim.host_used : &shim.local_used;
    if (v)
        return v;
    if (shim.discrete && !info->memoryTypeIndex && shim.local_bytes && shim.local_used + info->allocationSize > shim.local_bytes)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (shim.max_allocation && info->allocationSize > shim.max_allocation)
        return VK_ERROR_OUT_OF_DEVICE_MEMORY;
    shim.not_asked_for += info->memoryTypeIndex == 2;
    copy.memoryTypeIndex = 0;
    v = count(real_vkAllocateMemory(d, &copy, a, out));
    if (!v)
        remember(*out, info->allocationSize, used);
    return v;
}

static VKAPI_ATTR VkResult VKAPI_CALL own_vkQueueSubmit(VkQueue q, uint32_t n, const VkSubmitInfo *info, VkFence f)
{
    VkResult v = verdict("vkQueueSubmit");
    shim.submits++;
    return v ? v : real_vkQueueSubmit(q, n, info, f);
}

/* Passed on whatever is said: the driver's threads work in truth. */
static VKAPI_ATTR VkResult VKAPI_CALL own_vkDeviceWaitIdle(VkDevice d)
{
    VkResult v = verdict("vkDeviceWaitIdle"), result = real_vkDeviceWaitIdle(d);
    shim.idles++;
    return v ? v : result;
}

static VKAPI_ATTR void VKAPI_CALL own_vkGetPhysicalDeviceProperties2(VkPhysicalDevice d, VkPhysicalDeviceProperties2 *p)
{
    real_vkGetPhysicalDeviceProperties2(d, p);
    if (shim.version)
        p->properties.apiVersion = shim.version;
    for (VkBaseOutStructure *next = p->pNext; next; next = next->pNext) {
        if (shim.rearranges && next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES)
            ((VkPhysicalDeviceVulkan12Properties *)(void *)next)->shaderSignedZeroInfNanPreserveFloat32 = VK_FALSE;
        if (shim.max_allocation && next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES)
            ((VkPhysicalDeviceVulkan11Properties *)(void *)next)->maxMemoryAllocationSize = shim.max_allocation;
    }
    if (shim.discrete)
        p->properties.deviceType = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
}

/* The device's own heap is as large as the test says; of it the driver has free what is not taken, if it tells at all. Drivers of AMD list
 * memory that is coherent within the device behind the other, which takes a feature (VUID-vkAllocateMemory-deviceCoherentMemory-02790). */
static VKAPI_ATTR void VKAPI_CALL own_vkGetPhysicalDeviceMemoryProperties2(VkPhysicalDevice d, VkPhysicalDeviceMemoryProperties2 *p2)
{
    VkPhysicalDeviceMemoryProperties *p = &p2->memoryProperties;
    real_vkGetPhysicalDeviceMemoryProperties2(d, p2);
    if (!shim.discrete)
        return;
    p->memoryTypeCount = 3;
    p->memoryHeapCount = 2;
    p->memoryTypes[0] = (VkMemoryType){VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0};
    p->memoryTypes[1] = (VkMemoryType){VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT, 1};
    p->memoryTypes[2] = (VkMemoryType){
        VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT | VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD, 0};
    p->memoryHeaps[1] = (VkMemoryHeap){p->memoryHeaps[0].size, 0};
    if (shim.heap_bytes)
        p->memoryHeaps[0].size = shim.heap_bytes;
    for (VkBaseOutStructure *next = p2->pNext; next; next = next->pNext)
        if (next->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT) {
            VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = (void *)next;
            budget->heapBudget[0] = shim.free_bytes ? shim.free_bytes : p->memoryHeaps[0].size;
            budget->heapUsage[0] = 0;
            shim.tells_free = true;
        }
}

static VKAPI_ATTR void VKAPI_CALL own_vkGetBufferMemoryRequirements(VkDevice d, VkBuffer b, VkMemoryRequirements *r)
{
    real_vkGetBufferMemoryRequirements(d, b, r);
    if (shim.discrete)
        r->memoryTypeBits = 7;
}

static VKAPI_ATTR void VKAPI_CALL own_vkCmdCopyBuffer(VkCommandBuffer c, VkBuffer from, VkBuffer to, uint32_t n, const VkBufferCopy *parts)
{
    shim.copies++;
    real_vkCmdCopyBuffer(c, from, to, n, parts);
}

static VKAPI_ATTR void VKAPI_CALL own_vkCmdBindPipeline(VkCommandBuffer c, VkPipelineBindPoint point, VkPipeline p)
{
    shim.binds++;
    real_vkCmdBindPipeline(c, point, p);
}

static VKAPI_ATTR void VKAPI_CALL own_vkCmdDispatch(VkCommandBuffer c, uint32_t x, uint32_t y, uint32_t z)
{
    shim.dispatches++;
    if (!shim.drops_dispatches)
        real_vkCmdDispatch(c, x, y, z);
}

static VKAPI_ATTR void VKAPI_CALL own_vkCmdDispatchBase(VkCommandBuffer c, uint32_t at_x, uint32_t at_y, uint32_t at_z, uint32_t x,
                                                        uint32_t y, uint32_t z)
{
    shim.parts++;
    if (!shim.drops_dispatches)
        real_vkCmdDispatchBase(c, at_x, at_y, at_z, x, y, z);
}

static VKAPI_ATTR VkResult VKAPI_CALL own_vkWaitSemaphores(VkDevice d, const VkSemaphoreWaitInfo *w, uint64_t timeout)
{
    VkResult v = verdict("vkWaitSemaphores");
    shim.waits++;
    return v ? v : real_vkWaitSemaphores(d, w, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL own_vkGetSemaphoreCounterValue(VkDevice d, VkSemaphore s, uint64_t *value)
{
    VkResult v = verdict("vkGetSemaphoreCounterValue");
    v = v ? v : real_vkGetSemaphoreCounterValue(d, s, value);
    *value = !v && shim.counter ? shim.counter : *value;
    return v;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL own_vkGetDeviceProcAddr(VkDevice d, const char *wanted);

/* The own function in place of the real one, which is kept. */
static PFN_vkVoidFunction exchange(const char *name, PFN_vkVoidFunction real)
{
#define EXCHANGE(function, ...)                    \
    if (real && !strcmp(name, #function)) {        \
        real_##function = (PFN_##function)real;    \
        return (PFN_vkVoidFunction)own_##function; \
    }
    FAILING(EXCHANGE)
    MAKING(EXCHANGE)
    DESTROYING(EXCHANGE)
#define EXCHANGE_OTHER(function) EXCHANGE(function, )
    OTHERS(EXCHANGE_OTHER)
    return real;
}

static VKAPI_ATTR PFN_vkVoidFunction VKAPI_CALL own_vkGetDeviceProcAddr(VkDevice d, const char *wanted)
{
    return exchange(wanted, real_vkGetDeviceProcAddr(d, wanted));
}

PFN_vkVoidFunction vkGetInstanceProcAddr(VkInstance instance, const char *name)
{
    if (!real_vkGetInstanceProcAddr) {
        void *library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return NULL;
        *(void **)(void *)&real_vkGetInstanceProcAddr = dlsym(library, "vkGetInstanceProcAddr");
    }
    if (shim.matrix && !strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"))
        return (PFN_vkVoidFunction)own_shapes;
    return exchange(name, real_vkGetInstanceProcAddr(instance, name));
}
