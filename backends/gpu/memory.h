/* Where the buffers of a GPU lie: in its own memory, as far as its share goes; weights beyond it in the host's, over the bus.
 * The rule and its reasons stand in docs/architecture.md, "Memory of devices". */
#ifndef TERN_BACKENDS_GPU_MEMORY_H
#define TERN_BACKENDS_GPU_MEMORY_H

#include "core/hal.h"

struct tern_gpu;

/* A backend's buffer begins with it. */
struct tern_gpu_buffer {
    struct tern_buffer base; /* first */
    bool on_host;
    bool weight;                           /* may be moved */
    uint64_t used;                         /* of tern_gpu_memory.clock, when it was wanted last */
    struct tern_gpu_buffer *before, *next; /* all weights */
};

/* What a backend does; the device's lock is held. *full: there is no memory of that kind, all is as it was, and no error is recorded. */
struct tern_gpu_memory_fns {
    size_t buffer_size; /* of the struct that begins with tern_gpu_buffer */
    enum tern_status (*take)(struct tern_gpu *gpu, struct tern_gpu_buffer *b, bool on_host, bool *full);
    void (*give)(struct tern_gpu *gpu, struct tern_gpu_buffer *b);
    /* To the other kind, with its contents, behind all launches before. Full, too, while launches are captured. */
    enum tern_status (*move)(struct tern_gpu *gpu, struct tern_gpu_buffer *b, bool *full);
    /* Waits until memory that was given back is free, and gives back what is kept for reuse. */
    void (*trim)(struct tern_gpu *gpu);
    struct tern_buffer_fns buffer; /* .destroy is tern_gpu_buffer_destroy */
};

/* Under the device's lock. */
struct tern_gpu_memory {
    const struct tern_gpu_memory_fns *fns;
    size_t share, host_share; /* bytes at most; share 0: as much as there is */
    size_t on_device, on_host;
    uint64_t clock;
    struct tern_gpu_buffer *weights;
    bool told; /* that some lie in the host's memory */
};

/* What a driver is asked for: whole units, and a word behind the last element, which kernels may read where those of a small dtype end. */
#define TERN_GPU_BEHIND 4
static inline size_t tern_gpu_padded(size_t size, size_t unit) { return (size + TERN_GPU_BEHIND + unit - 1) / unit * unit; }
/* The largest size for which that is at most `most`; 0: no limit, or none that is known. */
static inline size_t tern_gpu_largest(size_t most, size_t unit) { return most < unit ? 0 : most / unit * unit - TERN_GPU_BEHIND; }

/* Called once, when the facts are known. unused: bytes of the device's memory that its driver has free, 0: it does not tell; total: all
 * of it; unified: it is the host's. */
void tern_gpu_memory_open(struct tern_gpu *gpu, const struct tern_gpu_memory_fns *fns, size_t unused, size_t total, bool unified);

/* The entries of the device's table, and of the buffers'. */
struct tern_buffer *tern_gpu_buffer_create(struct tern_device *device, size_t size);
struct tern_buffer *tern_gpu_weight_create(struct tern_device *device, size_t size);
void tern_gpu_weight_mark(struct tern_buffer *b);
enum tern_status tern_gpu_weights_use(struct tern_device *device, struct tern_buffer *const *buffers, int n);
void tern_gpu_buffer_destroy(struct tern_buffer *b);

/* Whether a capture has launches on memory that is another's now; then it is marked, and may only be destroyed. Under the lock. */
bool tern_gpu_capture_is_stale(const struct tern_gpu *gpu, struct tern_capture *c);

#endif
