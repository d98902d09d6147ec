/* The Vulkan backend: 1.2 is the floor. The loader and the compiler of GLSL are opened at run time.
 * Launches are recorded into batches, a batch is a command buffer; a timeline semaphore counts the submitted ones. */
#ifndef TERN_BACKENDS_VULKAN_H
#define TERN_BACKENDS_VULKAN_H

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

#include "backends/gpu/gpu.h"

/* What is used of the API. `global` ones need no instance, those of a device go past the loader. */
/* clang-format off */
#define VULKAN_GLOBAL_FUNCTIONS(F) F(vkEnumerateInstanceVersion) F(vkCreateInstance)
#define VULKAN_INSTANCE_FUNCTIONS(F) \
    F(vkDestroyInstance) F(vkEnumeratePhysicalDevices) F(vkGetPhysicalDeviceProperties2) F(vkGetPhysicalDeviceFeatures2) \
    F(vkGetPhysicalDeviceMemoryProperties2) F(vkGetPhysicalDeviceQueueFamilyProperties) F(vkEnumerateDeviceExtensionProperties) \
    F(vkCreateDevice) F(vkGetDeviceProcAddr)
#define VULKAN_DEVICE_FUNCTIONS(F) \
    F(vkDestroyDevice) F(vkGetDeviceQueue) F(vkDeviceWaitIdle) F(vkQueueSubmit) \
    F(vkCreateSemaphore) F(vkDestroySemaphore) F(vkWaitSemaphores) F(vkGetSemaphoreCounterValue) \
    F(vkAllocateMemory) F(vkFreeMemory) F(vkMapMemory) F(vkCreateBuffer) F(vkDestroyBuffer) F(vkGetBufferMemoryRequirements) \
    F(vkBindBufferMemory) F(vkCreateCommandPool) F(vkDestroyCommandPool) F(vkAllocateCommandBuffers) F(vkBeginCommandBuffer) \
    F(vkEndCommandBuffer) F(vkCmdBindPipeline) F(vkCmdBindDescriptorSets) F(vkCmdDispatch) F(vkCmdDispatchBase) F(vkCmdPipelineBarrier) \
    F(vkCmdCopyBuffer) F(vkCreateDescriptorSetLayout) F(vkDestroyDescriptorSetLayout) F(vkCreateDescriptorPool) \
    F(vkDestroyDescriptorPool) F(vkAllocateDescriptorSets) F(vkUpdateDescriptorSets) F(vkCreatePipelineLayout) \
    F(vkDestroyPipelineLayout) F(vkCreateShaderModule) F(vkDestroyShaderModule) F(vkCreateComputePipelines) F(vkDestroyPipeline) \
    F(vkCreatePipelineCache) F(vkDestroyPipelineCache) F(vkGetPipelineCacheData)
/* clang-format on */

struct vulkan_api {
    void *library;
    PFN_vkGetInstanceProcAddr vkGetInstanceProcAddr;
#define MEMBER(name) PFN_##name name;
    VULKAN_GLOBAL_FUNCTIONS(MEMBER)
    VULKAN_INSTANCE_FUNCTIONS(MEMBER)
    VULKAN_DEVICE_FUNCTIONS(MEMBER)
#undef MEMBER
};

/* ---- memory: blocks of the device, each with one VkBuffer over all of it, cut into pieces ---- */

/* Bytes that pieces are multiples of: at least every minStorageBufferOffsetAlignment that the specification allows. */
#define VULKAN_UNIT ((size_t)256)

enum vulkan_kind { VULKAN_MEMORY_DEVICE = 0, VULKAN_MEMORY_HOST, VULKAN_MEMORY_PARAMS, VULKAN_MEMORY_STAGING };

struct vulkan_block {
    struct vulkan_block *next;
    enum vulkan_kind kind;
    VkDeviceMemory memory;
    VkBuffer buffer;
    size_t size;
    char *mapped;                /* NULL when the host does not see it */
    bool cached;                 /* the host reads it at the speed of its own memory */
    uint64_t used;               /* by batches up to this one, as far as freed pieces go */
    int live;                    /* pieces that are not free */
    struct vulkan_piece *pieces; /* by address; neighbours are never both free */
};

struct vulkan_piece {
    struct vulkan_piece *before, *behind;
    struct vulkan_block *block;
    size_t offset, size;
    bool free;
};

/* ---- recording ---- */

#define VULKAN_CHUNK_LAUNCHES 64  /* of a batch: then it is submitted */
#define VULKAN_PARAMS_STRIDE 1024 /* bytes for the parameters of a launch; above every minStorageBufferOffsetAlignment */
#define VULKAN_BATCHES 4
#define VULKAN_SPANS 64
/* Drivers end a submission that takes some seconds (2 on Windows, 2 to 10 on Linux), and the device is lost: that much is a quarter of a
 * second on one of 0.2 TFLOP/s. */
#define VULKAN_FLOPS 5e10

/* Descriptor sets and parameters of 64 launches. */
struct vulkan_chunk {
    struct vulkan_chunk *next;
    VkDescriptorPool pool;
    VkDescriptorSet sets[VULKAN_CHUNK_LAUNCHES];
    struct vulkan_piece *params;
    int n;
};

/* What launches since the last barrier touch. */
struct vulkan_span {
    VkBuffer buffer;
    VkDeviceSize begin, end;
    bool write;
};

struct vulkan_recorder {
    VkCommandPool pool;
    VkCommandBuffer commands, *ended; /* the one that is recorded, and those before it: of captures */
    int n_ended;
    double flops;                /* of the one that is recorded */
    struct vulkan_chunk *chunks; /* the last one is filled; a batch has one */
    struct vulkan_span spans[VULKAN_SPANS];
    int n_spans;
};

struct vulkan_batch {
    struct vulkan_recorder r;
    uint64_t value; /* of the timeline when it is done */
};

struct vulkan_capture {
    struct tern_capture base; /* first */
    struct vulkan_recorder r;
    bool failed;
    uint64_t value; /* of its last replay */
};

/* Groups of a launch. */
struct vulkan_part {
    uint32_t first[3], groups[3];
};

struct vulkan_kernel {
    VkPipeline pipeline;
};

struct vulkan_buffer {
    struct tern_gpu_buffer gpu; /* first */
    struct vulkan_piece *piece;
    uint64_t used; /* by batches up to this one */
    bool captured; /* and by replays */
};

/* One half of the memory through which data goes that the host does not see. */
struct vulkan_stage {
    struct vulkan_piece *piece;
    uint64_t used;
};

struct vulkan_device {
    struct tern_gpu gpu; /* first */
    struct tern_queue queue;
    struct vulkan_api vk;
    VkInstance instance;
    VkPhysicalDevice physical;
    VkDevice device;
    VkQueue commands;
    uint32_t family;

    /* facts */
    VkPhysicalDeviceProperties properties;
    VkPhysicalDeviceMemoryProperties memory_properties;
    char driver[VK_MAX_DRIVER_NAME_SIZE + VK_MAX_DRIVER_INFO_SIZE + 1];
    uint8_t uuid[VK_UUID_SIZE]; /* of the driver's pipeline cache */
    size_t memory;              /* bytes of the largest heap of the device's own */
    size_t unused;              /* of them, when the device was opened; 0: the driver does not tell */
    int subgroup;
    bool unified;          /* the host sees all memory */
    bool keeps_nan;        /* SignedZeroInfNanPreserve for f32 */
    bool keeps_denormals;  /* DenormPreserve for f32, whatever f16 does */
    bool float16, int8;    /* told, not used by the texts but those for matrices */
    bool matrix;           /* VK_KHR_cooperative_matrix; limits.matrix_f16 says whether it is used */
    const char *no_matrix; /* why it is not; NULL: it is, or is not there */

    /* the queue; under gpu.lock */
    VkSemaphore timeline;
    uint64_t submitted, replayed; /* values: the last one handed over, the last replay's */
    struct vulkan_batch batch[VULKAN_BATCHES];
    struct vulkan_batch *recording; /* NULL: nothing is recorded */
    int next_batch;
    struct vulkan_capture *capture; /* between its begin and end */
    bool lost;                      /* atomic */

    /* memory.c; never held while something else is locked */
    pthread_mutex_t memory_lock;
    struct vulkan_block *blocks;
    size_t held; /* bytes of blocks of device memory */
    struct vulkan_stage stage[2];
    int next_stage;

    /* program.c */
    VkDescriptorSetLayout set_layout;
    VkPipelineLayout layout;
    VkPipelineCache pipelines;
    bool pipelines_new;               /* since the cache was read */
    struct vulkan_compiler *compiler; /* NULL until a source is met that is not in the cache folder */
};

/* library.c: TERN_E_NOT_FOUND with what would help. */
enum tern_status tern_vulkan_load(struct tern_context *ctx, struct vulkan_api *vk);
enum tern_status tern_vulkan_load_instance(struct tern_context *ctx, struct vulkan_api *vk, VkInstance instance);
enum tern_status tern_vulkan_load_device(struct tern_context *ctx, struct vulkan_api *vk, VkDevice device);
void tern_vulkan_unload(struct vulkan_api *vk);
/* Records it: TERN_E_NO_MEMORY for lack of memory, else TERN_E_DEVICE. */
enum tern_status tern_vulkan_fail(struct tern_context *ctx, const char *what, VkResult result);
/* The same for calls of an open device, which is marked when it is lost. */
enum tern_status tern_vulkan_failed(struct vulkan_device *d, const char *what, VkResult result);
/* TERN_OK, or the error that every call gives once the device is lost. */
enum tern_status tern_vulkan_alive(struct vulkan_device *d);

/* facts.c: what a device can; TERN_E_UNSUPPORTED when that is not enough. */
enum tern_status tern_vulkan_read_facts(struct vulkan_device *d);
bool tern_vulkan_has_extension(const struct vulkan_device *d, const char *name);
/* matrix.c: whether the device has cooperative matrices for the texts; then, when it is open, whether GLSL's compiler knows them. */
void tern_vulkan_read_matrix(struct vulkan_device *d, bool memory_model);
enum tern_status tern_vulkan_probe_matrix(struct vulkan_device *d);
/* dot.c: the same of dot products of int8. */
void tern_vulkan_read_dot_product(struct vulkan_device *d);
enum tern_status tern_vulkan_probe_dot_product(struct vulkan_device *d);
void tern_vulkan_describe(const struct tern_device *device, char *out, size_t size);

/* blocks.c. A piece of at least `size` bytes, aligned for bindings; NULL with the error recorded, but where `full` is given and there is no
 * memory: then that is set. What may still run on memory that was freed is in *used, which may be NULL. */
struct vulkan_piece *tern_vulkan_piece_create(struct vulkan_device *d, enum vulkan_kind kind, size_t size, uint64_t *used, bool *full);
/* Launches up to `used` may still work on it: the memory itself is freed later. Thread safe, never waits. */
void tern_vulkan_piece_destroy(struct vulkan_device *d, struct vulkan_piece *p, uint64_t used);
void tern_vulkan_trim(struct tern_device *device);
/* All of it, when nothing runs any more. */
void tern_vulkan_blocks_close(struct vulkan_device *d);

extern const struct tern_gpu_memory_fns tern_vulkan_memory_fns; /* memory.c */
void tern_vulkan_stages_close(struct vulkan_device *d);
/* Where the host sees a buffer that is no weight, or NULL. */
char *tern_vulkan_buffer_mapped(struct tern_buffer *b);

/* record.c: one command buffer with its sets and parameters. */
enum tern_status tern_vulkan_recorder_open(struct vulkan_device *d, struct vulkan_recorder *r);
enum tern_status tern_vulkan_recorder_begin(struct vulkan_device *d, struct vulkan_recorder *r, VkCommandBufferUsageFlags usage);
/* What comes goes into another command buffer, which may run beside a second submission of it. */
enum tern_status tern_vulkan_recorder_next(struct vulkan_device *d, struct vulkan_recorder *r);
enum tern_status tern_vulkan_recorder_end(struct vulkan_device *d, struct vulkan_recorder *r);
void tern_vulkan_recorder_close(struct vulkan_device *d, struct vulkan_recorder *r, uint64_t used);
enum tern_status tern_vulkan_record_launch(struct vulkan_device *d, struct vulkan_recorder *r, const struct vulkan_kernel *k,
                                           const struct tern_launch *l, const struct tern_arg *slots, const struct vulkan_part *part);
void tern_vulkan_record_copy(struct vulkan_device *d, struct vulkan_recorder *r, const struct vulkan_piece *from, size_t from_offset,
                             const struct vulkan_piece *to, size_t to_offset, size_t size);

/* queue.c; the caller holds gpu.lock but for tern_vulkan_wait, tern_vulkan_done. */
extern const struct tern_queue_fns tern_vulkan_queue_fns, tern_vulkan_queue_fns_unified;
enum tern_status tern_vulkan_queue_open(struct vulkan_device *d);
void tern_vulkan_queue_close(struct vulkan_device *d);
/* The batch that is recorded; a new one when there is none. NULL with the error recorded. */
struct vulkan_recorder *tern_vulkan_recording(struct vulkan_device *d);
enum tern_status tern_vulkan_submit(struct vulkan_device *d);
/* Submits what is recorded when that is needed for `value`. */
enum tern_status tern_vulkan_submit_for(struct vulkan_device *d, uint64_t value);
/* Until the timeline has come to that value, which was submitted. */
enum tern_status tern_vulkan_wait(struct vulkan_device *d, uint64_t value);
/* How far the timeline has come. */
uint64_t tern_vulkan_done(struct vulkan_device *d);
enum tern_status tern_vulkan_enqueue(struct tern_gpu *gpu, void *kernel, const struct tern_launch *l, const struct tern_arg *slots);

/* capture.c */
enum tern_status tern_vulkan_capture_begin(struct tern_queue *q);
struct tern_capture *tern_vulkan_capture_end(struct tern_queue *q);
enum tern_status tern_vulkan_replay(struct tern_queue *q, struct tern_capture *c);

extern const struct tern_gpu_fns tern_vulkan_gpu_fns; /* program.c */
enum tern_status tern_vulkan_programs_open(struct vulkan_device *d);
void tern_vulkan_programs_close(struct vulkan_device *d);
/* Whether the compiler takes a source; if not, the error says why. */
bool tern_vulkan_can_compile(struct vulkan_device *d, const char *source, const char *name);

/* spirv.c: GLSL to SPIR-V for Vulkan 1.2 by shaderc. NULL with the error recorded; tern_free. */
uint32_t *tern_vulkan_spirv_compile(struct vulkan_device *d, const char *source, const char *name, size_t *size);
void tern_vulkan_compiler_close(struct vulkan_device *d);
uint32_t *tern_vulkan_glslc(struct tern_context *ctx, const char *source, const char *name, size_t *size); /* glslc.c, in the same way */
/* Puts the execution modes SignedZeroInfNanPreserve and DenormPreserve for f32 into a module (Vulkan 1.2 has no other way to ask for them
 * in GLSL). `words` has room for VULKAN_SPIRV_MORE further ones; the new number of words, or 0 when it is no module. */
#define VULKAN_SPIRV_MORE 12
size_t tern_vulkan_spirv_keep(uint32_t *words, size_t n, bool nan, bool denormals);

#endif
