/* The CPU device: what its files share. */
#ifndef TERN_BACKENDS_CPU_H
#define TERN_BACKENDS_CPU_H

#include "backends/cpu/level/level.h"
#include "core/context.h"
#include "ops/kernel.h"

struct cpu_block;
struct cpu_openblas;
struct cpu_onednn;

struct cpu_device {
    struct tern_device base;
    struct tern_queue queue;
    const struct tern_cpu_level *level;
    bool halves;   /* vectors of 512 bits are computed in two halves: a product each cycle, not two */
    size_t l1, l2; /* data cache sizes in bytes, of one core */

    /* Freed buffers that wait for their next use. */
    pthread_mutex_t lock;
    struct cpu_block *cached;
    size_t cached_bytes;

    pthread_mutex_t peak_lock;
    struct tern_device_peak peak; /* zero: not measured yet */

    /* Vendor libraries, opened when first asked for; opened_*: the search is over. A lock of their own: opening one allocates, which may
     * trim what waits. */
    pthread_mutex_t library_lock;
    struct cpu_openblas *openblas;
    struct cpu_onednn *onednn;
    bool opened_openblas, opened_onednn;
};

static inline struct cpu_device *cpu_device_of(struct tern_context *ctx) { return (struct cpu_device *)ctx->host; }

/* The vector functions of the chosen instruction set. */
static inline const struct tern_cpu_level *cpu_level(struct tern_context *ctx) { return cpu_device_of(ctx)->level; }

struct tern_buffer *tern_cpu_buffer_create(struct tern_device *device, size_t size);
void tern_cpu_memory_trim(struct tern_device *device);

/* Measures at the first call that the budget has room for. Thread safe. */
enum tern_status tern_cpu_peak(struct tern_device *device, struct tern_device_peak *out);

/* Whether the process was forked by the one that loaded this. There libraries with threads of their own are left alone: these did not come
 * along, and would be waited for. */
bool tern_cpu_is_child(void);
/* NULL when the library is not there, or the process is a child. */
struct cpu_openblas *tern_cpu_openblas_open(struct tern_device *device);
void tern_cpu_openblas_close(struct cpu_device *d);
struct cpu_onednn *tern_cpu_onednn_open(struct tern_device *device);
void tern_cpu_onednn_close(struct cpu_device *d);

/* NULL-terminated. tern_cpu_kernels_bf16: with those for levels that have instructions for bf16; tern_cpu_kernels_i8_attention: and
 * Winograd's products of 16 bits, and attention in int8; tern_cpu_kernels_bf16x3: and products of f32 by pieces of bf16. */
extern const struct tern_kernel *const tern_cpu_kernels[], *const tern_cpu_kernels_bf16[], *const tern_cpu_kernels_i8_attention[];
extern const struct tern_kernel *const tern_cpu_kernels_bf16x3[];

#endif
