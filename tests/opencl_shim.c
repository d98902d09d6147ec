/* The stand-in for the OpenCL loader: see opencl_shim.h. What is not here the caller finds in the loader itself, which is linked. */
#include "tests/opencl_shim.h"

#include <dlfcn.h>
#include <string.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#define EXPORT __attribute__((visibility("default")))

static struct opencl_shim shim;
EXPORT struct opencl_shim *opencl_shim(void);
EXPORT struct opencl_shim *opencl_shim(void) { return &shim; }

/* Without a use of the loader it would not be linked. */
EXPORT extern __typeof__(clFinish) *const opencl_shim_rest;
__typeof__(clFinish) *const opencl_shim_rest = clFinish;

static void *real(const char *name)
{
    static void *library;
    library = library ? library : dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
    return dlsym(library, name);
}
#define REAL(name)               \
    __typeof__(name) *passed_on; \
    *(void **)(void *)&passed_on = real(#name)

static cl_int answer(const void *value, size_t size, size_t room, void *out, size_t *needed)
{
    if (needed)
        *needed = size;
    if (out && room < size)
        return CL_INVALID_VALUE;
    if (out)
        memcpy(out, value, size);
    return CL_SUCCESS;
}

static const char *text_of(cl_device_info what)
{
    return what == CL_DRIVER_VERSION      ? shim.driver
           : what == CL_DEVICE_VERSION    ? shim.version
           : what == CL_DEVICE_EXTENSIONS ? shim.extensions
                                          : NULL;
}

EXPORT cl_int clGetDeviceInfo(cl_device_id d, cl_device_info what, size_t room, void *out, size_t *needed)
{
    enum { DOT_PRODUCT_CAPABILITIES = 0x1073 };
    const cl_ulong most = shim.max_allocation;
    const cl_bitfield packed = 1;
    const char *text = text_of(what);
    REAL(clGetDeviceInfo);
    if (what == CL_DEVICE_MAX_MEM_ALLOC_SIZE && most)
        return answer(&most, sizeof(most), room, out, needed);
    if (what == DOT_PRODUCT_CAPABILITIES && shim.dot_products)
        return answer(&packed, sizeof(packed), room, out, needed);
    if (what == CL_DEVICE_HOST_UNIFIED_MEMORY && shim.discrete)
        return answer(&(const cl_bool){CL_FALSE}, sizeof(cl_bool), room, out, needed);
    if (text)
        return answer(text, strlen(text) + 1, room, out, needed);
    return passed_on(d, what, room, out, needed);
}

EXPORT cl_mem clCreateBuffer(cl_context c, cl_mem_flags flags, size_t size, void *host, cl_int *error)
{
    REAL(clCreateBuffer);
    if (shim.max_allocation && size > shim.max_allocation) {
        *error = CL_INVALID_BUFFER_SIZE;
        return NULL;
    }
    return passed_on(c, flags, size, host, error);
}

EXPORT cl_int clEnqueueWriteBuffer(cl_command_queue q, cl_mem memory, cl_bool waits, size_t offset, size_t size, const void *from,
                                   cl_uint n, const cl_event *after, cl_event *done)
{
    REAL(clEnqueueWriteBuffer);
    cl_mem_flags flags = 0;
    size_t bytes = 0;
    clGetMemObjectInfo(memory, CL_MEM_FLAGS, sizeof(flags), &flags, NULL);
    clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof(bytes), &bytes, NULL);
    if (shim.discrete && !(flags & CL_MEM_ALLOC_HOST_PTR) && bytes > shim.most_found)
        return CL_OUT_OF_RESOURCES;
    return passed_on(q, memory, waits, offset, size, from, n, after, done);
}
