/* Kernel texts as OpenCL C, on whatever device the system has (PoCL: the processor): every case of the op table that they run.
 * TERN_TEXT_ONE_ORDER: each in one order of its output; for devices that are slow to watch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/text_run.h"

#ifdef TERN_HAVE_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

struct device {
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    struct text_cache cache;
};

static bool open_device(struct device *d)
{
    cl_platform_id platform;
    cl_uint n = 0;
    cl_int error;
    memset(d, 0, sizeof(*d));
    if (clGetPlatformIDs(1, &platform, &n) || !n || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &d->id, &n) || !n)
        return false;
    d->context = clCreateContext(NULL, 1, &d->id, NULL, NULL, &error);
    d->queue = d->context ? clCreateCommandQueue(d->context, d->id, 0, &error) : NULL;
    return d->queue != NULL;
}

static void destroy(void *kernel) { clReleaseKernel(kernel); }

static void close_device(struct device *d)
{
    text_cache_clear(&d->cache, destroy);
    clReleaseCommandQueue(d->queue);
    clReleaseContext(d->context);
}

static cl_kernel build(struct device *d, const char *source, char *message, size_t size)
{
    cl_int error;
    cl_program program = clCreateProgramWithSource(d->context, 1, &source, NULL, &error);
    cl_kernel kernel = NULL;
    if (!program)
        return NULL;
    if (clBuildProgram(program, 1, &d->id, "-cl-std=CL1.2", NULL, NULL)) {
        size_t n = snprintf(message, size, "build: ");
        clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, size - n - 1, message + n, NULL);
        message[size - 1] = 0;
    } else if (!(kernel = clCreateKernel(program, tern_text_entry(TERN_TEXT_OPENCL), &error))) {
        snprintf(message, size, "clCreateKernel: %d", error);
    }
    clReleaseProgram(program);
    return kernel;
}

static bool enqueue(struct device *d, cl_kernel kernel, const struct tern_launch *l, const struct text_buffer *buffers, char *message,
                    size_t size)
{
    cl_mem memory[TERN_MAX_SLOTS] = {0};
    size_t global[3], local[3] = {(size_t)l->group_size[0], (size_t)l->group_size[1], 1};
    cl_int error = clSetKernelArg(kernel, 0, l->params_size, &l->params);
    for (int i = 0; i < 3; i++)
        global[i] = (size_t)l->groups[i] * local[i];
    for (int i = 0; i < l->n_slots && !error; i++) {
        /* the whole buffer from its base to the argument's end, so that offsets count; slots of the workspace share it */
        size_t bytes = buffers[i].end + 4;
        for (int k = 0; k < i && !memory[i]; k++)
            if (buffers[k].base == buffers[i].base && !clRetainMemObject(memory[k]))
                memory[i] = memory[k];
        const bool shared = memory[i] != NULL;
        if (!shared)
            memory[i] = clCreateBuffer(d->context, CL_MEM_READ_WRITE, bytes, NULL, &error);
        if (!error && buffers[i].end && !shared)
            error = clEnqueueWriteBuffer(d->queue, memory[i], CL_TRUE, 0, buffers[i].end, buffers[i].base, 0, NULL, NULL);
        if (!error)
            error = clSetKernelArg(kernel, (cl_uint)(1 + i), sizeof(memory[i]), &memory[i]);
    }
    if (!error)
        error = clEnqueueNDRangeKernel(d->queue, kernel, 3, NULL, global, local, 0, NULL, NULL);
    for (int i = 0; i < l->n_slots && !error; i++)
        if (l->slot[i].what >= TERN_SLOT_OUT && buffers[i].end)
            error = clEnqueueReadBuffer(d->queue, memory[i], CL_TRUE, 0, buffers[i].end, buffers[i].base, 0, NULL, NULL);
    if (!error)
        error = clFinish(d->queue);
    for (int i = 0; i < l->n_slots; i++)
        if (memory[i])
            clReleaseMemObject(memory[i]);
    if (error)
        snprintf(message, size, "OpenCL error %d", error);
    return !error;
}

static bool run(void *user, const char *source, const struct tern_launch *l, const struct text_buffer *buffers, char *message, size_t size)
{
    struct device *d = user;
    cl_kernel kernel = text_cache_find(&d->cache, source);
    message[0] = 0;
    if (!kernel) {
        kernel = build(d, source, message, size);
        if (!kernel || !text_cache_add(&d->cache, source, kernel))
            return false;
    }
    return enqueue(d, kernel, l, buffers, message, size);
}

static void test_table(void **state)
{
    struct device d;
    if (!open_device(&d)) {
        print_message("no OpenCL device: package pocl-opencl-icd has one\n");
        skip();
    }
    struct text_executor e = {.name = "OpenCL",
                              .language = TERN_TEXT_OPENCL,
                              .limits = text_limits_full(),
                              .run = run,
                              .user = &d,
                              .one_in = 16,
                              .one_order = getenv("TERN_TEXT_ONE_ORDER") != NULL};
    text_run_all(&e);
    close_device(&d);
}
#else
static void test_table(void **state)
{
    print_message("built without OpenCL: packages opencl-headers and ocl-icd-opencl-dev have it\n");
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
