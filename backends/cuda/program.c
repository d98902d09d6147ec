/* Kernels of a CUDA device: compiled by NVRTC, or found in the cache folder, and enqueued. */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "core/context.h"

struct cuda_kernel {
    CUmodule module;
    CUfunction function;
};

/* The file of a source's image: by source, options, compiler, driver and architecture. NULL where there is no cache folder. */
static char *path_of(const struct cuda_device *d, const char *source)
{
    char facts[160], architecture[40];
    const char *options[CUDA_OPTIONS];
    tern_cuda_nvrtc_options(d->arch, d->arch == d->capability, architecture, options);
    snprintf(facts, sizeof(facts), "%s %s sm_%d driver %d nvrtc %d", options[0], options[1], d->capability, d->driver, d->nvrtc_version);
    return tern_gpu_binary_path(d->gpu.base.ctx, "cuda", facts, source);
}

static CUresult load_once(struct cuda_device *d, const char *image, struct cuda_kernel *k)
{
    CUresult error = d->cu.cuModuleLoadData(&k->module, image);
    if (error)
        return error;
    if ((error = d->cu.cuModuleGetFunction(&k->function, k->module, tern_text_entry(TERN_TEXT_CUDA))))
        d->cu.cuModuleUnload(k->module);
    return error;
}

/* A driver that loads lazily takes the memory when the function is asked for. */
static CUresult load(struct cuda_device *d, const char *image, struct cuda_kernel *k)
{
    CUresult error = load_once(d, image, k);
    if (error == CUDA_ERROR_OUT_OF_MEMORY && !d->capturing) { /* the pool may have kept what it needs */
        d->gpu.memory.fns->trim(&d->gpu);
        error = load_once(d, image, k);
    }
    return error;
}

static void fail_load(struct cuda_device *d, const char *text, CUresult error)
{
    char what[96];
    snprintf(what, sizeof(what), "loading kernel text %s", text);
    if (error == CUDA_ERROR_UNSUPPORTED_PTX_VERSION || error == CUDA_ERROR_NO_BINARY_FOR_GPU || error == CUDA_ERROR_INVALID_IMAGE)
        tern_fail(d->gpu.base.ctx, TERN_E_UNSUPPORTED,
                  "cuda: %s: %s: the driver, of CUDA %d.%d, does not take what NVRTC %d.%d makes for sm_%d (error %d); a newer driver, or "
                  "NVRTC of the driver's version, would help",
                  d->name, what, d->driver / 1000, d->driver / 10 % 100, d->nvrtc_version / 1000, d->nvrtc_version / 10 % 100, d->arch,
                  error);
    else
        tern_cuda_fail(d, what, error);
}

static bool from_cache(struct cuda_device *d, const char *path, const char *text, struct cuda_kernel *k)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    void *image = tern_gpu_binary_read(ctx, path, "the kernel is built again", &size);
    CUresult error = image ? load(d, image, k) : CUDA_SUCCESS;
    if (error == CUDA_ERROR_OUT_OF_MEMORY) /* of what is built again there would be no more */
        fail_load(d, text, error);
    else if (error)
        tern_message(ctx, TERN_LOG_WARN, "%s: the driver does not take it (error %d); the kernel is built again", path, error);
    bool found = image && !error;
    tern_free(ctx, image);
    return found;
}

static bool from_source(struct cuda_device *d, const char *path, const char *source, const char *text, struct cuda_kernel *k)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    char *image = tern_cuda_nvrtc_compile(d, source, text, &size);
    if (!image)
        return false;
    CUresult error = load(d, image, k);
    if (error)
        fail_load(d, text, error);
    else
        tern_gpu_binary_keep(ctx, path, image, size);
    tern_free(ctx, image);
    return !error;
}

static void *compile(struct tern_gpu *gpu, const char *source, const struct tern_launch *l)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    struct cuda_kernel *k = tern_calloc(gpu->base.ctx, 1, sizeof(*k));
    if (!k || tern_cuda_enter(d, l->text)) {
        tern_free(gpu->base.ctx, k);
        return NULL;
    }
    char *path = path_of(d, source);
    bool good = from_cache(d, path, l->text, k) || (!tern_failed(gpu->base.ctx) && from_source(d, path, source, l->text, k));
    tern_cuda_leave(d);
    tern_free(gpu->base.ctx, path);
    if (good)
        return k;
    tern_free(gpu->base.ctx, k);
    return NULL;
}

/* The device is entered when it closes, which is when programs go. */
static void release(struct tern_gpu *gpu, void *kernel)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    if (!d->gone)
        d->cu.cuModuleUnload(((struct cuda_kernel *)kernel)->module);
    tern_free(gpu->base.ctx, kernel);
}

/* Arguments: the parameters by value, then a pointer for each slot; what its offset is beyond a multiple of 16 bytes is in the
 * parameters. */
static enum tern_status enqueue(struct tern_gpu *gpu, void *kernel, const struct tern_launch *l, const struct tern_arg *slots)
{
    struct cuda_device *d = (struct cuda_device *)gpu;
    union tern_launch_params params = l->params;
    CUdeviceptr at[TERN_MAX_SLOTS];
    void *arguments[1 + TERN_MAX_SLOTS] = {&params};
    for (int i = 0; i < l->n_slots; i++) {
        at[i] = slots[i].buffer ? ((const struct cuda_buffer *)slots[i].buffer)->at + tern_gpu_bound(gpu, slots[i].offset) : 0;
        arguments[1 + i] = &at[i];
    }
    if (tern_cuda_enter(d, l->text))
        return TERN_E_DEVICE;
    CUresult error = d->cu.cuLaunchKernel(((struct cuda_kernel *)kernel)->function, (unsigned)l->groups[0], (unsigned)l->groups[1],
                                          (unsigned)l->groups[2], (unsigned)l->group_size[0], (unsigned)l->group_size[1], 1, 0, d->stream,
                                          arguments, NULL);
    d->captured += d->capturing && !error;
    tern_cuda_leave(d);
    return error ? tern_cuda_fail(d, l->text, error) : TERN_OK;
}

const struct tern_gpu_fns tern_cuda_gpu_fns = {compile, release, enqueue};
