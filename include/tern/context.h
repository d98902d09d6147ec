/* The context: one per independent use of tern. It owns the devices, the thread pool, the memory
 * accounting, the callbacks and the first error. There is no other state in the library. Threads do not come along with fork(): a child may
 * release what its parent had, and works with contexts of its own, which leave oneDNN and OpenBLAS alone. */
#ifndef TERN_CONTEXT_H
#define TERN_CONTEXT_H

#include <tern/base.h>
#include <tern/tune.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tern_log_level { TERN_LOG_DEBUG = 0, TERN_LOG_INFO, TERN_LOG_WARN, TERN_LOG_ERROR };

/* One event of a long job. `stage` is static text: "encode", "sample", "hires" or "decode" of a picture, "tune" of a plan, "write" of a
 * model, "quantize". */
struct tern_progress {
    const char *stage;
    int64_t done;   /* finished units, 0..total */
    int64_t total;  /* units in all */
    double seconds; /* since the stage began */
};

/* Memory for what the library allocates on the host, as far as it does so itself: libraries that it uses (JSON, zip, PNG, JPEG and WebP,
 * thread pools, vendors' and drivers') have the C library's, which no budget counts; nor are mapped files counted. NULL functions mean the
 * C library's. */
struct tern_allocator {
    void *(*alloc)(size_t size, size_t alignment, void *user); /* NULL when there is none left */
    void (*free)(void *ptr, size_t size, void *user);
    void *user;
};

/* Callbacks, here and in all other headers, return: they must not throw or longjmp through the library. No scope is open to them: what
 * tensors they make are theirs. They come from the thread that
 * calls it; `log` may be called by several threads at once where several use the context. A pipeline begins nothing in one that comes while
 * it makes a module or a plan: `log`, and `progress` of "tune". */
struct tern_context_params {
    const char *device;    /* "cpu" (default), "cuda:0", "vulkan", "opencl:1", …; a list "cuda,opencl,cpu": the first that works;
                              "auto": the best by a short measurement, which the cache folder keeps */
    int threads;           /* threads for CPU kernels; 0: one per core that the process may use, by its affinity and by what a container
                              leaves of their time, 256 at most, or as many as can be started */
    size_t budget;         /* most bytes that may be allocated at once; 0: no limit */
    size_t device_budget;  /* of them, most bytes of a GPU's own memory: weights beyond lie in the host's; 0: as its driver has free */
    const char *cache_dir; /* NULL, "": $XDG_CACHE_HOME/tern or ~/.cache/tern; relative: from where the process is now */

    enum tern_log_level log_level; /* messages below this level are not sent; default debug */
    void (*log)(enum tern_log_level level, const char *message, void *user);
    void (*progress)(const struct tern_progress *progress, void *user);
    bool (*cancel)(void *user); /* asked between ops, from the calling thread, by one thread at a time; true stops the job. What it
                                   calls of this context is not asked about; a pipeline that is at work begins nothing there. */
    void *user;                 /* handed to the three callbacks */

    struct tern_allocator allocator;
    struct tern_tune_params tune; /* default: nothing is measured, kernels are chosen by the cost model */
};

/* Makes a context. `params` may be NULL: all defaults. NULL when there is no memory, no such
 * device, or a parameter is out of range; tern_create_error() tells which. */
TERN_API struct tern_context *tern_context_create(const struct tern_context_params *params);

/* Why the last tern_context_create() of this thread returned NULL. The string is static. */
TERN_API const char *tern_create_error(void);

/* Gives the caller's reference back and sets *ctx to NULL. Objects made from the context keep it
 * alive until they are released themselves. NULL is allowed. */
TERN_API void tern_context_destroy(struct tern_context **ctx);

/* The first error since the context was made or cleared: what, where, expected, found, and what
 * would help. "" when there was none. Valid until the next call with this context. */
TERN_API const char *tern_error(const struct tern_context *ctx);
TERN_API enum tern_status tern_error_status(const struct tern_context *ctx);

/* Forgets the error, so that the context can be used again. */
TERN_API void tern_error_clear(struct tern_context *ctx);

/* Bytes that the context has allocated now and at most; peak restarts with tern_memory_reset_peak. */
TERN_API size_t tern_memory_used(const struct tern_context *ctx);
TERN_API size_t tern_memory_peak(const struct tern_context *ctx);
TERN_API void tern_memory_reset_peak(struct tern_context *ctx);
/* Number of allocations so far, for tests that count them. */
TERN_API uint64_t tern_memory_allocations(const struct tern_context *ctx);
/* Gives cached, unused memory back to the system. */
TERN_API void tern_memory_trim(struct tern_context *ctx);

/* Whether ops that run eagerly keep what they prepare of weights, which are packed forms and copies on a GPU. true, the default: as long as
 * the tensor lives. false: each is made for one call, and the file's pages go behind it, so that the weights of a network are never all in
 * memory; slower, the bits are the same. What is kept already is used on, and goes with its tensor. Returns what was set before. Plans say
 * it themselves (tern_plan_params.resident). One thread at a time, as for all of a context; NULL is allowed. */
TERN_API bool tern_context_keep_weights(struct tern_context *ctx, bool keep);

/* The devices that stand behind the one in use when the context was made with a list or "auto", as a list for
 * tern_context_params.device: what takes over when that one fails. NULL: there is none. Free with tern_free_text. */
TERN_API char *tern_context_devices_behind(struct tern_context *ctx);

/* The dtype in which models run fastest on the default device with pictures that look the same: bf16 on a CPU with instructions for it,
 * f16 on a GPU whose matrix units are used, else f32. What `--dtype auto` takes. Thread safe. */
TERN_API enum tern_dtype tern_context_fast_dtype(const struct tern_context *ctx);

/* Devices: what was found and what is missing. One text block, a line each; free with tern_free_text. NULL while an error is recorded,
 * without memory, and when `cancel` says so (recorded). */
TERN_API char *tern_devices_describe(struct tern_context *ctx);
TERN_API void tern_free_text(struct tern_context *ctx, char *text);

/* What a device does at most, each a second. 0: not known. */
struct tern_device_peak {
    double flops;      /* multiplications and additions in f32 */
    double flops_bf16; /* the same of bf16 with sums in f32; 0: the device has no instructions for that */
    double ops_i8;     /* the same of int8 with sums of 32 bits */
    double bytes;      /* read, or read and written, in memory outside of the caches: the faster of the two */
};
/* That of the default device. The CPU measures it at the first call, on all threads and with the kernels' instruction set: about
 * 0.4 s, and at most 256 MiB, which are given back and do not count in tern_memory_peak. All zero where a device cannot tell
 * ("null"), while the budget has no room, and on an error. Thread safe. */
TERN_API enum tern_status tern_device_peak(struct tern_context *ctx, struct tern_device_peak *peak);

/* Number of threads that CPU kernels use. */
TERN_API int tern_thread_count(const struct tern_context *ctx);

#ifdef __cplusplus
}
#endif
#endif
