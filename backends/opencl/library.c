/* The OpenCL loader, opened at run time, and names of its errors. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/status.h"

enum tern_status tern_opencl_load(struct tern_context *ctx, struct opencl_api *cl)
{
    static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so"}; /* the second: of phones */
    const char *path = getenv("TERN_OPENCL_LIBRARY");
    memset(cl, 0, sizeof(*cl));
    for (int i = 0; i < (path ? 1 : 2) && !cl->library; i++)
        cl->library = dlopen(path ? path : names[i], RTLD_NOW | RTLD_LOCAL);
    if (!cl->library && path)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "opencl: TERN_OPENCL_LIBRARY: %s", dlerror());
    if (!cl->library)
        return tern_fail(ctx, TERN_E_NOT_FOUND,
                         "opencl: libOpenCL.so.1 is not there; a driver, or the Debian package ocl-icd-libopencl1, has it");
    const char *missing = NULL;
#define LOAD(name)                                           \
    *(void **)(void *)&cl->name = dlsym(cl->library, #name); \
    if (!cl->name)                                           \
        missing = #name;
    OPENCL_FUNCTIONS(LOAD)
#undef LOAD
    if (!missing)
        return TERN_OK;
    tern_opencl_unload(cl);
    return tern_fail(ctx, TERN_E_NOT_FOUND, "opencl: libOpenCL.so.1 has no function %s: version 1.2 is needed", missing);
}

void tern_opencl_unload(struct opencl_api *cl)
{
    if (cl->library)
        dlclose(cl->library);
    cl->library = NULL;
}

const char *tern_opencl_error_text(cl_int error, char out[32])
{
    static const struct {
        cl_int error;
        const char *text;
    } names[] = {{CL_DEVICE_NOT_FOUND, "device not found"},
                 {CL_DEVICE_NOT_AVAILABLE, "device not available"},
                 {CL_COMPILER_NOT_AVAILABLE, "compiler not available"},
                 {CL_MEM_OBJECT_ALLOCATION_FAILURE, "memory object allocation failure"},
                 {CL_OUT_OF_RESOURCES, "out of resources"},
                 {CL_OUT_OF_HOST_MEMORY, "out of host memory"},
                 {CL_BUILD_PROGRAM_FAILURE, "build program failure"},
                 {CL_INVALID_BUFFER_SIZE, "invalid buffer size"},
                 {CL_INVALID_WORK_GROUP_SIZE, "invalid work group size"},
                 {CL_INVALID_KERNEL_ARGS, "invalid kernel arguments"},
                 {-1001, "no platform: no driver is installed"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (names[i].error == error)
            return names[i].text;
    snprintf(out, 32, "error %d", error);
    return out;
}

bool tern_opencl_is_memory(cl_int error)
{
    return error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY || error == CL_INVALID_BUFFER_SIZE;
}

enum tern_status tern_opencl_fail(struct tern_context *ctx, const char *what, cl_int error)
{
    char text[32];
    return tern_fail(ctx, tern_opencl_is_memory(error) ? TERN_E_NO_MEMORY : TERN_E_DEVICE, "opencl: %s: %s", what,
                     tern_opencl_error_text(error, text));
}
