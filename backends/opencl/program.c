/* Kernels of an OpenCL device: built from source, or from what the driver made of it before (the cache folder), and enqueued. */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/context.h"

/* Subgroups and dot products are of a later language. */
static const char *options_of(const struct tern_launch *l) { return l->subgroups || l->dot_product ? "-cl-std=CL3.0" : "-cl-std=CL1.2"; }

/* The file of a source's binary; NULL where there is no cache folder. A driver refuses what is not its own, and then it is built. */
static char *path_of(const struct opencl_device *d, const char *source)
{
    char facts[sizeof(d->name) + sizeof(d->driver) + sizeof(d->version) + 16];
    snprintf(facts, sizeof(facts), "%s driver %s, %s", d->name, d->driver, d->version);
    return tern_gpu_binary_path(d->gpu.base.ctx, "opencl", facts, source);
}

static cl_kernel kernel_of(const struct opencl_device *d, cl_program program, const struct tern_launch *l, cl_int *error)
{
    *error = d->cl.clBuildProgram(program, 1, &d->id, options_of(l), NULL, NULL);
    return *error ? NULL : d->cl.clCreateKernel(program, tern_text_entry(TERN_TEXT_OPENCL), error);
}

static cl_kernel from_binary(struct opencl_device *d, const struct tern_launch *l, const unsigned char *binary, size_t size)
{
    cl_int status = CL_SUCCESS, error = CL_SUCCESS;
    cl_program program = d->cl.clCreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, &status, &error);
    cl_kernel kernel = program && !status && !error ? kernel_of(d, program, l, &error) : NULL;
    if (program)
        d->cl.clReleaseProgram(program);
    return kernel;
}

static cl_kernel from_cache(struct opencl_device *d, const struct tern_launch *l, const char *path)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    void *binary = tern_gpu_binary_read(ctx, path, "the kernel is built again", &size);
    cl_kernel kernel = binary ? from_binary(d, l, binary, size) : NULL;
    if (binary && !kernel)
        tern_message(ctx, TERN_LOG_WARN, "%s: the driver does not take it; the kernel is built again", path);
    tern_free(ctx, binary);
    return kernel;
}

static void keep(struct opencl_device *d, const char *path, cl_program program)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    if (!path || d->cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL) || !size)
        return;
    unsigned char *binary = tern_alloc(ctx, size);
    if (binary && !d->cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL))
        tern_gpu_binary_keep(ctx, path, binary, size);
    else if (!binary)
        tern_error_clear_own(ctx); /* the kernel is there; it is built again in the next process */
    tern_free(ctx, binary);
}

/* A driver gives its log as a whole, or not at all. */
static void fail_build(struct opencl_device *d, cl_program program, const struct tern_launch *l, cl_int error)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    char text[32];
    d->cl.clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *log = tern_calloc(ctx, 1, size + 1);
    if (!log || d->cl.clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, size, log, NULL))
        size = 0;
    tern_fail(ctx, TERN_E_DEVICE, "opencl: kernel text %s on %s: %s; the driver says: %.600s", l->text, d->name,
              tern_opencl_error_text(error, text), size ? log : "nothing");
    tern_free(ctx, log);
}

static void *compile(struct tern_gpu *gpu, const char *source, const struct tern_launch *l)
{
    struct opencl_device *d = (struct opencl_device *)gpu;
    cl_int error = CL_SUCCESS;
    char *path = path_of(d, source);
    cl_kernel kernel = tern_failed(gpu->base.ctx) ? NULL : from_cache(d, l, path);
    cl_program program = NULL;
    if (!kernel && !tern_failed(gpu->base.ctx)) {
        program = d->cl.clCreateProgramWithSource(d->context, 1, &source, NULL, &error);
        kernel = program ? kernel_of(d, program, l, &error) : NULL;
        if (kernel)
            keep(d, path, program);
        else if (program)
            fail_build(d, program, l, error);
        else
            tern_opencl_fail(gpu->base.ctx, "making a program", error);
    }
    if (program)
        d->cl.clReleaseProgram(program);
    tern_free(gpu->base.ctx, path);
    return kernel;
}

/* Drivers may keep launches back until somebody waits for them: a device that has none would be idle meanwhile. */
#define LAUNCHES_KEPT_BACK 16

static void release(struct tern_gpu *gpu, void *kernel) { ((struct opencl_device *)gpu)->cl.clReleaseKernel(kernel); }

/* *part: what is bound instead of a buffer whose start is too far away for indices. */
static cl_int bind(struct opencl_device *d, void *kernel, cl_uint index, const struct tern_arg *slot, size_t bytes, cl_mem *part)
{
    const cl_mem whole = slot->buffer ? ((struct opencl_buffer *)slot->buffer)->memory : NULL;
    const size_t from = slot->buffer ? tern_gpu_bound(&d->gpu, slot->offset) : 0;
    cl_int error = CL_SUCCESS;
    if (from) {
        /* no more than is used: what one launch reads and what it writes must not overlap */
        const size_t all = tern_gpu_padded(slot->buffer->size, OPENCL_UNIT), end = tern_gpu_padded(slot->offset + bytes, OPENCL_UNIT);
        const cl_buffer_region region = {from, (end < all ? end : all) - from};
        *part = d->cl.clCreateSubBuffer(whole, 0, CL_BUFFER_CREATE_TYPE_REGION, &region, &error);
    }
    return error ? error : d->cl.clSetKernelArg(kernel, index, sizeof(cl_mem), from ? part : &whole);
}

static enum tern_status enqueue(struct tern_gpu *gpu, void *kernel, const struct tern_launch *l, const struct tern_arg *slots)
{
    struct opencl_device *d = (struct opencl_device *)gpu;
    size_t global[3], local[3] = {(size_t)l->group_size[0], (size_t)l->group_size[1], 1};
    cl_mem part[TERN_MAX_SLOTS] = {NULL};
    cl_int error = d->cl.clSetKernelArg(kernel, 0, l->params_size, &l->params);
    for (int i = 0; i < l->n_slots && !error; i++)
        error = bind(d, kernel, (cl_uint)(1 + i), &slots[i], l->slot[i].bytes, &part[i]);
    for (int i = 0; i < 3; i++)
        global[i] = (size_t)l->groups[i] * local[i];
    if (!error)
        error = d->cl.clEnqueueNDRangeKernel(d->commands, kernel, 3, NULL, global, local, 0, NULL, NULL);
    if (!error && ++d->launches % LAUNCHES_KEPT_BACK == 0)
        error = d->cl.clFlush(d->commands);
    for (int i = 0; i < l->n_slots; i++)
        if (part[i])
            d->cl.clReleaseMemObject(part[i]); /* goes when the launch has ended */
    return error ? tern_opencl_fail(gpu->base.ctx, l->text, error) : TERN_OK;
}

const struct tern_gpu_fns tern_opencl_gpu_fns = {compile, release, enqueue};
