/* libcuda, opened at run time; its errors; and entering the device's context. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "core/status.h"

void *tern_cuda_dlopen(const char *name)
{
    char path[256];
    void *library = dlopen(name, CUDA_DLOPEN);
    snprintf(path, sizeof(path), "/usr/local/cuda/lib64/%.200s", name);
    return library || strchr(name, '/') ? library : dlopen(path, CUDA_DLOPEN);
}

static const char *load_functions(struct cuda_api *cu)
{
    const char *missing = NULL;
#define LOAD(name, arguments) *(void **)(void *)&cu->name = dlsym(cu->library, #name);
#define NEED(name, arguments) missing = cu->name ? missing : #name;
    CUDA_FUNCTIONS(LOAD)
    CUDA_FUNCTIONS(NEED)
    CUDA_LATER_FUNCTIONS(LOAD)
#undef NEED
#undef LOAD
    return missing;
}

enum tern_status tern_cuda_load(struct cuda_device *d)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    const char *given = getenv("TERN_CUDA_LIBRARY"), *name = given ? given : "libcuda.so.1";
    d->cu.library = dlopen(name, CUDA_DLOPEN);
    if (!d->cu.library)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "cuda: %s cannot be opened; NVIDIA's driver has it (%s)", name, dlerror());
    const char *missing = load_functions(&d->cu);
    if (!missing)
        return TERN_OK;
    tern_cuda_unload(d);
    return tern_fail(ctx, TERN_E_UNSUPPORTED, "cuda: %s has no function %s: a driver of CUDA 11.2 or later is needed", name, missing);
}

void tern_cuda_unload(struct cuda_device *d)
{
    if (d->cu.library)
        dlclose(d->cu.library);
    memset(&d->cu, 0, sizeof(d->cu));
}

/* Errors of kernels that ran: the context answers every later call with them, and a process does not get another one. */
static bool is_final(CUresult error)
{
    enum { CONTAINED = 226, TENSOR_MEMORY_LEAK = 721 }; /* headers have them since 12.8 */
    return error == CONTAINED || error == TENSOR_MEMORY_LEAK || error == CUDA_ERROR_NVLINK_UNCORRECTABLE ||
           error == CUDA_ERROR_ECC_UNCORRECTABLE || error == CUDA_ERROR_ILLEGAL_ADDRESS || error == CUDA_ERROR_LAUNCH_TIMEOUT ||
           error == CUDA_ERROR_CONTEXT_IS_DESTROYED || error == CUDA_ERROR_ASSERT ||
           (error >= CUDA_ERROR_HARDWARE_STACK_ERROR && error <= CUDA_ERROR_LAUNCH_FAILED) || error == CUDA_ERROR_UNKNOWN ||
           error == CUDA_ERROR_DEINITIALIZED;
}

/* Before there is a context no kernel ran. */
enum tern_status tern_cuda_fail(struct cuda_device *d, const char *what, CUresult error)
{
    const char *name = NULL, *text = NULL;
    char number[32];
    if (d->cu.cuGetErrorName(error, &name) || !name) {
        snprintf(number, sizeof(number), "error %d", error);
        name = number;
    }
    if (d->cu.cuGetErrorString(error, &text) || !text)
        text = "no text";
    bool final = d->context && is_final(error), before = __atomic_load_n(&d->lost, __ATOMIC_RELAXED) != CUDA_SUCCESS;
    if (final)
        __atomic_store_n(&d->lost, error, __ATOMIC_RELAXED);
    return tern_fail(d->gpu.base.ctx, error == CUDA_ERROR_OUT_OF_MEMORY ? TERN_E_NO_MEMORY : TERN_E_DEVICE, "cuda: %s: %s, %s%s", what,
                     name, text,
                     before  ? "; the device was lost to an earlier launch"
                     : final ? "; this launch or one before it failed, and the device can be used again by a new process"
                             : "");
}

enum tern_status tern_cuda_enter(struct cuda_device *d, const char *what)
{
    pthread_mutex_lock(&d->gpu.lock);
    CUresult error = __atomic_load_n(&d->lost, __ATOMIC_RELAXED);
    error = error ? error : d->cu.cuCtxPushCurrent_v2(d->context);
    if (!error)
        return TERN_OK;
    pthread_mutex_unlock(&d->gpu.lock);
    return what ? tern_cuda_fail(d, what, error) : TERN_E_DEVICE;
}

void tern_cuda_leave(struct cuda_device *d)
{
    CUcontext popped;
    d->cu.cuCtxPopCurrent_v2(&popped);
    pthread_mutex_unlock(&d->gpu.lock);
}
