/* What devices that compile kernel texts share: one kernel for each op, made of launches (ops/kernels/launch.h), and the table of
 * compiled programs. A backend's device begins with struct tern_gpu. */
#ifndef TERN_BACKENDS_GPU_H
#define TERN_BACKENDS_GPU_H

#include <pthread.h>

#include "backends/gpu/memory.h"
#include "ops/kernels/launch.h"
#include "ops/kernels/text.h"

struct tern_gpu;

struct tern_gpu_fns {
    /* The compiled kernel of a launch; `source` is complete. NULL with the error recorded. */
    void *(*compile)(struct tern_gpu *gpu, const char *source, const struct tern_launch *launch);
    void (*release)(struct tern_gpu *gpu, void *kernel);
    /* Enqueues it behind everything before. slots: of launch->slot; launch->params is complete, with the offsets of the arguments. */
    enum tern_status (*enqueue)(struct tern_gpu *gpu, void *kernel, const struct tern_launch *launch, const struct tern_arg *slots);
};

/* A program by text and macros. */
struct tern_gpu_program;
/* The launches of a description that was met before. */
struct tern_gpu_call;

#define TERN_GPU_TABLE 1024 /* chains of a table */
#define TERN_GPU_CHAIN 4    /* calls that a chain keeps */

struct tern_gpu {
    struct tern_device base;
    const struct tern_gpu_fns *fns;
    enum tern_text_language language;
    struct tern_launch_limits limits;
    char lowered[128]; /* what TERN_GPU_LIMITS said; then it is the device's level, so that plans and reports tell it apart */
    /* How buffers are bound: from a multiple of binding_alignment (a power of two) on, at most max_binding bytes. 0: from their start.
     * What begins in front of binding_from is, too. */
    size_t binding_alignment, max_binding, binding_from;
    double max_flops;     /* of what the driver gets at once, where it ends what takes long; 0: as much as there is */
    pthread_mutex_t lock; /* recursive; held while a kernel is looked up and enqueued: threads may share a device. Where a
                           * buffer lies may be asked under it only: weights are moved */
    struct tern_gpu_memory memory;
    struct tern_gpu_program *programs[TERN_GPU_TABLE];
    struct tern_gpu_call *calls[TERN_GPU_TABLE];
};

/* The text of each op, by its number; NULL-terminated. */
extern const struct tern_kernel *const tern_gpu_kernels[];

/* Sets what all have alike. */
void tern_gpu_open(struct tern_gpu *gpu, struct tern_context *ctx, const char *name);
/* limits.c: lowers the limits that the backend has found by what the environment variable TERN_GPU_LIMITS says, so that one device
 * stands for weaker ones: "group=64,shared=16K,buffer=32M,host=1M,flops=1M,storage16=no,storage8=no,subgroups=no,matrix=no,dot=no"; host:
 * of the host's memory for weights; flops: of a submission of Vulkan. Called once, when all facts are known. An unknown name or a value
 * above what the device has is TERN_E_INVALID.
 */
enum tern_status tern_gpu_lower(struct tern_gpu *gpu);
/* Releases all programs. The backend calls it while its device still works. */
void tern_gpu_close(struct tern_gpu *gpu);

/* The part of an argument's offset that its binding takes; params.head.offset has the rest. */
static inline size_t tern_gpu_bound(const struct tern_gpu *gpu, size_t offset)
{
    return gpu->binding_alignment && offset >= gpu->binding_from ? offset & ~(gpu->binding_alignment - 1) : 0;
}
/* kernels.c: bytes that the argument of a slot has from its offset on. */
size_t tern_gpu_slot_bytes(const struct tern_op_desc *d, int what, size_t workspace);

/* programs.c: the program of a launch and its macros, compiled when it is met first. NULL with the error recorded. Borrowed. */
void *tern_gpu_program(struct tern_gpu *gpu, const struct tern_launch *launch, const char *defines);
void tern_gpu_drop_programs(struct tern_gpu *gpu);
/* calls.c: the launches of a description with their programs. `aligned`: every argument begins at a multiple of 16 bytes. NULL with
 * the error recorded. What was borrowed goes back. Those used last are kept, so that numbers that change from call to call take no
 * memory, and only while there is memory: a plan's calls are some hundred KB that no prediction counts. */
struct tern_gpu_call {
    struct tern_gpu_call *next;
    uint64_t hash;
    bool aligned;
    struct tern_op_desc desc;
    int n;
    void *program[TERN_MAX_INPUTS];
    struct tern_launch launch[]; /* n of them */
};
struct tern_gpu_call *tern_gpu_borrow_call(struct tern_gpu *gpu, const struct tern_op_desc *d, bool aligned);
void tern_gpu_return_call(struct tern_gpu *gpu, struct tern_gpu_call *call);
/* All that are not borrowed go. A part of each device's trim. */
void tern_gpu_trim(struct tern_device *device);
void tern_gpu_drop_calls(struct tern_gpu *gpu);

/* binaries.c: what a driver's compiler made of a source, on disk. Path: by what `facts` says of device, driver and options, and by
 * the source; NULL where there is no cache folder. tern_free. */
char *tern_gpu_binary_path(struct tern_context *ctx, const char *kind, const char *facts, const char *source);
/* Whether that is the error on record: TERN_E_NO_MEMORY, TERN_E_BUDGET. */
bool tern_gpu_lacks_memory(const struct tern_context *ctx);
/* NULL when there is no path or no file, or it is damaged, which is told with `again`: what is done then. An error is recorded only for
 * lack of memory. tern_free. */
void *tern_gpu_binary_read(struct tern_context *ctx, const char *path, const char *again, size_t *size);
/* What cannot be kept is built again in the next process. Nothing is done without a path. */
void tern_gpu_binary_keep(struct tern_context *ctx, const char *path, const void *binary, size_t size);

static inline uint64_t tern_gpu_hash(uint64_t h, const void *data, size_t n)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3u;
    return h;
}

#endif
