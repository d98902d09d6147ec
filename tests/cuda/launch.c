/* Modules and launches of the stand-in driver. An image is a shared object (nvrtc.c), or as "PTX" its hexadecimal form. */
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/cuda/inside.h"

/* Size of a shared object: the table of its sections lies at its end. */
static size_t size_of(const Elf64_Ehdr *e) { return e->e_shoff + (size_t)e->e_shnum * e->e_shentsize; }

static CUresult load(struct module *m, const void *data, size_t size)
{
    char path[] = "/tmp/tern-standin-XXXXXX";
    int file = mkstemp(path);
    bool written = file >= 0 && write(file, data, size) == (ssize_t)size;
    if (file >= 0)
        close(file);
    m->library = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file >= 0)
        unlink(path);
    void (*facts)(struct standin_kernel *) = NULL;
    if (m->library)
        *(void **)(void *)&facts = dlsym(m->library, "standin_kernel_facts");
    if (!facts) {
        if (m->library)
            dlclose(m->library);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    facts(&m->kernel);
    return CUDA_SUCCESS;
}

static CUresult load_ptx(struct module *m, const char *text)
{
    int major, minor, target, used = 0;
    if (sscanf(text, ".version %d.%d\n.target sm_%d\n%n", &major, &minor, &target, &used) < 3 || !used)
        return CUDA_ERROR_INVALID_PTX;
    if (1000 * major + 10 * minor > standin.facts.driver)
        return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    if (target > standin.facts.capability)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    size_t n = strlen(text + used) / 2;
    unsigned char *data = malloc(n + 1);
    unsigned byte;
    for (size_t i = 0; i < n; i++)
        data[i] = sscanf(text + used + 2 * i, "%2x", &byte) == 1 ? (unsigned char)byte : 0;
    CUresult error = load(m, data, n);
    free(data);
    return error;
}

static CUresult load_binary(struct module *m, const void *image)
{
    CUresult error = load(m, image, size_of(image));
    if (error || (m->kernel.arch / 10 == standin.facts.capability / 10 && m->kernel.arch <= standin.facts.capability))
        return error;
    dlclose(m->library);
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(true);
    struct module m = {NULL};
    CUresult error = !memcmp(image, ELFMAG, SELFMAG) ? load_binary(&m, image) : load_ptx(&m, image);
    if (error)
        return error;
    *(struct module *)standin_new(KIND_MODULE, sizeof(m), (void **)module) = m;
    standin.counts.modules++;
    return CUDA_SUCCESS;
}

/* Streams that may run its kernels are waited for, as the driver does. */
CUresult cuModuleUnload(CUmodule module)
{
    ENTER(true);
    struct module *m = standin_get(KIND_MODULE, module, __func__);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    for (int i = 0; i < STREAMS; i++)
        if (standin.streams[i])
            standin_run_until(standin.streams[i], UINT64_MAX);
    dlclose(m->library);
    return standin_delete(KIND_MODULE, module, __func__);
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    ENTER(true);
    struct module *m = standin_get(KIND_MODULE, module, __func__);
    if (!m)
        return CUDA_ERROR_INVALID_HANDLE;
    if (strcmp(name, "tern_kernel"))
        return CUDA_ERROR_NOT_FOUND;
    struct function *f = standin_new(KIND_FUNCTION, sizeof(*f), (void **)function);
    f->kernel = m->kernel;
    f->module = module;
    return CUDA_SUCCESS;
}

struct launch standin_copy_launch(const struct launch *l)
{
    struct launch copy = *l;
    copy.memory = malloc(l->bytes + 1);
    if (!copy.memory)
        abort();
    memcpy(copy.memory, l->memory, l->bytes);
    for (int i = 0; i < l->kernel.n_arguments; i++)
        copy.arguments[i] = (char *)copy.memory + ((char *)l->arguments[i] - (char *)l->memory);
    return copy;
}

/* The values of the arguments, each at a multiple of 16 bytes. */
static CUresult take_arguments(struct launch *l, void **arguments)
{
    for (int i = 0; i < l->kernel.n_arguments; i++)
        l->bytes += (l->kernel.arguments[i].size + 15) / 16 * 16;
    for (int i = 0; i < l->kernel.n_arguments; i++)
        if (!arguments || !arguments[i])
            return standin_misuse(CUDA_ERROR_INVALID_VALUE, "cuLaunchKernel: argument %d of %d is missing", i, l->kernel.n_arguments);
    char *to = l->memory = calloc(1, l->bytes + 1);
    for (int i = 0; to && i < l->kernel.n_arguments; i++) {
        memcpy(to, arguments[i], l->kernel.arguments[i].size);
        l->arguments[i] = to;
        to += (l->kernel.arguments[i].size + 15) / 16 * 16;
    }
    return to ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult check_pointer(struct stream *s, const struct launch *l, int i, const char *function)
{
    CUdeviceptr at = *(CUdeviceptr *)l->arguments[i];
    struct block *b = standin_block((uintptr_t)at, 1);
    if (!b || (b->host && !b->mapped))
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: argument %d is %llx, which is no memory of the device", function, i, at);
    if (at % l->kernel.arguments[i].align)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%s: argument %d is %llx, no multiple of %u bytes", function, i, at,
                              l->kernel.arguments[i].align);
    CUresult error = standin_touch_copied(b, s, (uintptr_t)at, 1, function);
    return error ? error : standin_touch(b, s, l->kernel.arguments[i].kind == STANDIN_WRITES, function);
}

CUresult standin_launch(struct stream *s, const struct launch *l, const char *function)
{
    if (l->module && !standin_get(KIND_MODULE, l->module, function))
        return CUDA_ERROR_INVALID_HANDLE;
    standin_learn(&s->known, &standin.host);
    for (int i = 0; i < l->kernel.n_arguments; i++) {
        CUresult error = l->kernel.arguments[i].kind == STANDIN_VALUE ? CUDA_SUCCESS : check_pointer(s, l, i, function);
        if (error)
            return error;
    }
    struct command c = {.what = WHAT_KERNEL, .launch = standin_copy_launch(l), .inject = standin_injected("kernel")};
    standin_enqueue(s, &c);
    return CUDA_SUCCESS;
}

static CUresult check_sizes(const struct launch *l, unsigned shared)
{
    unsigned long long threads = (unsigned long long)l->size.x * l->size.y * l->size.z;
    size_t memory = (size_t)(l->kernel.shared_end - l->kernel.shared) + shared;
    if (!threads || threads > (unsigned)standin.facts.threads || (l->kernel.bounds && threads > (unsigned)l->kernel.bounds))
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "a launch of %llu threads a block; the device allows %d, the kernel %d", threads,
                              standin.facts.threads, l->kernel.bounds);
    if (!l->groups.x || !l->groups.y || !l->groups.z || l->groups.x > INT32_MAX || l->groups.y > 65535 || l->groups.z > 65535)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "a launch of %u x %u x %u blocks", l->groups.x, l->groups.y, l->groups.z);
    if (memory > (size_t)standin.facts.shared)
        return standin_misuse(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "a launch with %zu bytes of shared memory; the device allows %d", memory,
                              standin.facts.shared);
    return CUDA_SUCCESS;
}

static CUresult submit(struct stream *s, struct launch *l, void **arguments, const char *name)
{
    CUresult error = take_arguments(l, arguments);
    if (!error && s->capture)
        standin_graph_add(s->capture, l);
    else if (!error)
        error = standin_launch(s, l, name);
    standin.counts.launches += !error && !s->capture;
    free(l->memory);
    return error;
}

CUresult standin_launch_host(CUstream stream, const struct standin_kernel *k, void **arguments)
{
    ENTER(true);
    struct stream *s = standin_get(KIND_STREAM, stream, __func__);
    struct launch l = {.kernel = *k, .groups = {1, 1, 1}, .size = {1, 1, 1}};
    return s ? submit(s, &l, arguments, "a launch of a library") : CUDA_ERROR_INVALID_HANDLE;
}

int standin_holds(CUdeviceptr at, size_t size)
{
    ENTER(true);
    return standin_block((uintptr_t)at, size) != NULL;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                        unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra)
{
    ENTER(true);
    struct function *f = standin_get(KIND_FUNCTION, function, __func__);
    struct stream *s = f ? standin_get(KIND_STREAM, stream, __func__) : NULL;
    if (!s || !standin_get(KIND_MODULE, f->module, __func__))
        return CUDA_ERROR_INVALID_HANDLE;
    struct launch l = {.module = f->module, .kernel = f->kernel, .groups = {grid_x, grid_y, grid_z}, .size = {block_x, block_y, block_z}};
    CUresult error = check_sizes(&l, shared);
    return error ? error : submit(s, &l, arguments, __func__);
}
