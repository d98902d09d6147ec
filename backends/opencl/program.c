/* Kernels of an OpenCL device: built from source, or from what the driver made of it before (the cache folder), and enqueued. */
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "backends/opencl/opencl.h"
#include "core/cache.h"
#include "core/context.h"
#include "core/files.h"

#define OPTIONS "-cl-std=CL1.2"
#define MOST_BINARY ((size_t)64 << 20)

/* The file of a source's binary; NULL where there is no cache folder. A driver refuses what is not its own, and then it is built. */
static char *path_of(const struct opencl_device *d, const char *source)
{
    char name[64];
    uint64_t a = tern_gpu_hash(0xcbf29ce484222325u, source, strlen(source)),
             b = tern_gpu_hash(0x9e3779b97f4a7c15u, d->name, strlen(d->name));
    b = tern_gpu_hash(tern_gpu_hash(b, d->driver, strlen(d->driver)), source, strlen(source));
    snprintf(name, sizeof(name), "%016llx%016llx.bin", (unsigned long long)a, (unsigned long long)b);
    return tern_cache_path(d->gpu.base.ctx, "opencl", name);
}

static cl_kernel kernel_of(const struct opencl_device *d, cl_program program, cl_int *error)
{
    *error = d->cl.clBuildProgram(program, 1, &d->id, OPTIONS, NULL, NULL);
    return *error ? NULL : d->cl.clCreateKernel(program, tern_text_entry(TERN_TEXT_OPENCL), error);
}

/* Drivers trust their binaries: a damaged one does not get to them. */
static uint32_t checksum(const unsigned char *data, size_t size) { return (uint32_t)crc32(0, data, (uInt)size); }

static cl_kernel from_binary(struct opencl_device *d, const unsigned char *binary, size_t size)
{
    cl_int status = CL_SUCCESS, error = CL_SUCCESS;
    cl_program program = d->cl.clCreateProgramWithBinary(d->context, 1, &d->id, &size, &binary, &status, &error);
    cl_kernel kernel = program && !status && !error ? kernel_of(d, program, &error) : NULL;
    if (program)
        d->cl.clReleaseProgram(program);
    return kernel;
}

/* NULL when there is none, it is damaged, or the driver does not want it. The file: the binary, then its CRC-32. */
static cl_kernel from_cache(struct opencl_device *d, const char *path)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    uint32_t expected = 0;
    char *data = path ? tern_read_file(ctx, path, MOST_BINARY, &size) : NULL;
    if (!data) {
        if (tern_error_status(ctx) != TERN_E_NO_MEMORY)
            tern_error_clear(ctx);
        return NULL;
    }
    const unsigned char *binary = (const unsigned char *)data;
    if (size > sizeof(expected))
        memcpy(&expected, data + size - sizeof(expected), sizeof(expected));
    bool whole = size > sizeof(expected) && checksum(binary, size - sizeof(expected)) == expected;
    cl_kernel kernel = whole ? from_binary(d, binary, size - sizeof(expected)) : NULL;
    if (!kernel)
        tern_message(ctx, TERN_LOG_WARN, "%s: %s; the kernel is built again", path,
                     whole ? "the driver does not take it" : "it is damaged");
    tern_free(ctx, data);
    return kernel;
}

static enum tern_status write_file(struct tern_context *ctx, const char *path, const unsigned char *binary, size_t size)
{
    uint32_t sum = checksum(binary, size);
    struct tern_writer *w = tern_cache_prepare(ctx, path) ? NULL : tern_writer_open(ctx, path);
    if (!w)
        return tern_error_status(ctx);
    fwrite(binary, 1, size, w->file);
    fwrite(&sum, 1, sizeof(sum), w->file);
    return tern_writer_commit(&w);
}

/* What cannot be kept is built again in the next process. */
static void keep(struct opencl_device *d, const char *path, cl_program program)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    size_t size = 0;
    if (!path || d->cl.clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL) || !size || size > MOST_BINARY - 4)
        return;
    unsigned char *binary = tern_alloc(ctx, size);
    if (binary && !d->cl.clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL))
        write_file(ctx, path, binary, size);
    tern_free(ctx, binary);
    if (tern_failed(ctx)) {
        tern_message(ctx, TERN_LOG_INFO, "a kernel was not kept on disk: %s", tern_error(ctx));
        tern_error_clear(ctx);
    }
}

static void fail_build(struct opencl_device *d, cl_program program, const struct tern_launch *l, cl_int error)
{
    char log[600] = "", text[32];
    d->cl.clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, sizeof(log) - 1, log, NULL);
    tern_fail(d->gpu.base.ctx, TERN_E_DEVICE, "opencl: kernel text %s on %s: %s; the driver says: %s", l->text, d->name,
              opencl_error_text(error, text), log);
}

static void *compile(struct tern_gpu *gpu, const char *source, const struct tern_launch *l)
{
    struct opencl_device *d = (struct opencl_device *)gpu;
    cl_int error = CL_SUCCESS;
    char *path = path_of(d, source);
    cl_kernel kernel = tern_failed(gpu->base.ctx) ? NULL : from_cache(d, path);
    cl_program program = NULL;
    if (!kernel && !tern_failed(gpu->base.ctx)) {
        program = d->cl.clCreateProgramWithSource(d->context, 1, &source, NULL, &error);
        kernel = program ? kernel_of(d, program, &error) : NULL;
        if (kernel)
            keep(d, path, program);
        else if (program)
            fail_build(d, program, l, error);
        else
            opencl_fail(gpu->base.ctx, "making a program", error);
    }
    if (program)
        d->cl.clReleaseProgram(program);
    tern_free(gpu->base.ctx, path);
    return kernel;
}

static void release(struct tern_gpu *gpu, void *kernel) { ((struct opencl_device *)gpu)->cl.clReleaseKernel(kernel); }

static enum tern_status enqueue(struct tern_gpu *gpu, void *kernel, const struct tern_launch *l, const struct tern_arg *slots)
{
    struct opencl_device *d = (struct opencl_device *)gpu;
    size_t global[3], local[3] = {(size_t)l->group_size[0], (size_t)l->group_size[1], 1};
    cl_int error = d->cl.clSetKernelArg(kernel, 0, l->params_size, &l->params);
    for (int i = 0; i < l->n_slots && !error; i++)
        error = d->cl.clSetKernelArg(kernel, (cl_uint)(1 + i), sizeof(cl_mem), &((struct opencl_buffer *)slots[i].buffer)->memory);
    for (int i = 0; i < 3; i++)
        global[i] = (size_t)l->groups[i] * local[i];
    if (!error)
        error = d->cl.clEnqueueNDRangeKernel(d->commands, kernel, 3, NULL, global, local, 0, NULL, NULL);
    return error ? opencl_fail(gpu->base.ctx, l->text, error) : TERN_OK;
}

const struct tern_gpu_fns opencl_gpu_fns = {compile, release, enqueue};
