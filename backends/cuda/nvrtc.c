/* NVRTC, opened at run time: which one serves device and driver, and what it makes of a source. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "core/context.h"

enum { MOST_ARCHS = 256 };

void tern_cuda_nvrtc_close(struct cuda_device *d)
{
    if (d->nvrtc.library)
        dlclose(d->nvrtc.library);
    memset(&d->nvrtc, 0, sizeof(d->nvrtc));
}

static bool load(struct nvrtc_api *n, const char *name, char *why, size_t size)
{
    const char *missing = NULL;
    n->library = tern_cuda_dlopen(name);
    if (!n->library)
        return false;
#define LOAD(function, arguments)                                  \
    *(void **)(void *)&n->function = dlsym(n->library, #function); \
    missing = n->function ? missing : #function;
    NVRTC_FUNCTIONS(LOAD)
#undef LOAD
    if (missing)
        snprintf(why, size, "%s has no function %s; NVRTC 11.2 or later is needed", name, missing);
    return !missing;
}

/* The highest architecture that it knows and the device runs; 0: none, and *least is the lowest it knows. */
static int choose_arch(const struct nvrtc_api *n, int capability, int *least)
{
    int archs[MOST_ARCHS], count = 0, best = 0;
    *least = 0;
    if (n->nvrtcGetNumSupportedArchs(&count) || count > MOST_ARCHS || n->nvrtcGetSupportedArchs(archs))
        return 0;
    for (int i = 0; i < count; i++) {
        best = archs[i] <= capability && archs[i] > best ? archs[i] : best;
        *least = !*least || archs[i] < *least ? archs[i] : *least;
    }
    return best;
}

/* Its words about a program, of which the first matter; tern_free. NULL: it has none, or there is no memory. */
static char *log_of(const struct cuda_device *d, nvrtcProgram program)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    char *log = program && !d->nvrtc.nvrtcGetProgramLogSize(program, &size) && size ? tern_calloc(ctx, 1, size + 1) : NULL;
    if (log && d->nvrtc.nvrtcGetProgramLog(program, log))
        log[0] = 0;
    return log;
}

/* Whether it compiles anything for the device: without its libnvrtc-builtins, which it opens then, it does not. */
static bool compiles(struct cuda_device *d, const char *name, char *why, size_t size)
{
    static const char source[] = "extern \"C\" __global__ void __launch_bounds__(32) tern_kernel(float *y)\n{\n    y[0] = 1;\n}\n";
    char architecture[40];
    const char *options[CUDA_OPTIONS];
    nvrtcProgram program = NULL;
    tern_cuda_nvrtc_options(d->arch, d->arch == d->capability, architecture, options);
    nvrtcResult error = d->nvrtc.nvrtcCreateProgram(&program, source, "nothing", 0, NULL, NULL);
    error = error ? error : d->nvrtc.nvrtcCompileProgram(program, CUDA_OPTIONS, options);
    if (error) {
        char *log = log_of(d, program);
        snprintf(why, size, "%s compiles nothing (error %d): %.*s", name, error, log ? (int)strcspn(log, "\n") : 0, log ? log : "");
        tern_free(d->gpu.base.ctx, log);
    }
    if (program)
        d->nvrtc.nvrtcDestroyProgram(&program);
    return !error;
}

/* Whether this one will do; else it is closed, and `why` says what is wrong. */
static bool serves(struct cuda_device *d, const char *name, char *why, size_t size)
{
    int major = 0, minor = 0, least = 0;
    if (!load(&d->nvrtc, name, why, size) || d->nvrtc.nvrtcVersion(&major, &minor)) {
        tern_cuda_nvrtc_close(d);
        return false;
    }
    int arch = choose_arch(&d->nvrtc, d->capability, &least);
    if (major > d->driver / 1000)
        snprintf(why, size, "%s is of CUDA %d.%d, the driver of CUDA %d.%d; a newer driver, or libnvrtc.so.%d, would help", name, major,
                 minor, d->driver / 1000, d->driver / 10 % 100, d->driver / 1000);
    else if (!arch)
        snprintf(why, size, "%s (CUDA %d.%d) compiles for sm_%d and later, the device is sm_%d; one of an earlier CUDA would help", name,
                 major, minor, least, d->capability);
    else {
        d->arch = arch;
        d->nvrtc_version = 1000 * major + 10 * minor;
        if (compiles(d, name, why, size))
            return true;
    }
    tern_cuda_nvrtc_close(d);
    return false;
}

enum tern_status tern_cuda_nvrtc_open(struct cuda_device *d)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", NULL};
    const char *given = getenv("TERN_NVRTC_LIBRARY");
    char why[300] = "";
    for (int i = 0; given ? i < 1 : names[i] != NULL; i++)
        if (serves(d, given ? given : names[i], why, sizeof(why)))
            return TERN_OK;
    if (why[0])
        return tern_fail(d->gpu.base.ctx, TERN_E_UNSUPPORTED, "cuda: %s: no compiler for it: %s", d->name, why);
    return tern_fail(d->gpu.base.ctx, TERN_E_NOT_FOUND,
                     "cuda: %s: no compiler for it: %s cannot be opened; the CUDA toolkit has NVRTC, and so has the Python wheel "
                     "nvidia-cuda-nvrtc-cu12, where TERN_NVRTC_LIBRARY can point",
                     d->name, given ? given : "libnvrtc.so.13, .12 or .11.2");
}

void tern_cuda_nvrtc_options(int arch, bool binary, char text[40], const char *options[CUDA_OPTIONS])
{
    snprintf(text, 40, "--gpu-architecture=%s_%d", binary ? "sm" : "compute", arch);
    options[0] = text;
    options[1] = "--std=c++14";
}

static void fail_compile(struct cuda_device *d, nvrtcProgram program, const char *text, nvrtcResult error)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    char *log = log_of(d, program);
    tern_fail(ctx, error == NVRTC_ERROR_OUT_OF_MEMORY ? TERN_E_NO_MEMORY : TERN_E_DEVICE,
              "cuda: kernel text %s on %s (sm_%d): NVRTC %d.%d failed with error %d and says: %.600s", text, d->name, d->capability,
              d->nvrtc_version / 1000, d->nvrtc_version / 10 % 100, error, log ? log : "");
    tern_free(ctx, log);
}

static char *take_image(struct cuda_device *d, nvrtcProgram program, bool binary, size_t *size, nvrtcResult *error)
{
    const struct nvrtc_api *n = &d->nvrtc;
    *error = binary ? n->nvrtcGetCUBINSize(program, size) : n->nvrtcGetPTXSize(program, size);
    char *image = *error ? NULL : tern_calloc(d->gpu.base.ctx, 1, *size + 1);
    if (image)
        *error = binary ? n->nvrtcGetCUBIN(program, image) : n->nvrtcGetPTX(program, image);
    if (image && *error) {
        tern_free(d->gpu.base.ctx, image);
        image = NULL;
    }
    return image;
}

char *tern_cuda_nvrtc_compile(struct cuda_device *d, const char *source, const char *text, size_t *size)
{
    char architecture[40], *image = NULL;
    const char *options[CUDA_OPTIONS];
    bool binary = d->arch == d->capability;
    nvrtcProgram program = NULL;
    tern_cuda_nvrtc_options(d->arch, binary, architecture, options);
    nvrtcResult error = d->nvrtc.nvrtcCreateProgram(&program, source, text, 0, NULL, NULL);
    if (!error)
        error = d->nvrtc.nvrtcCompileProgram(program, CUDA_OPTIONS, options);
    if (!error)
        image = take_image(d, program, binary, size, &error);
    if (error)
        fail_compile(d, program, text, error);
    if (program)
        d->nvrtc.nvrtcDestroyProgram(&program);
    return image;
}
