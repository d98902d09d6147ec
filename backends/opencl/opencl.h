/* The OpenCL backend: 1.2 is the floor. The loader is opened at run time. */
#ifndef TERN_BACKENDS_OPENCL_H
#define TERN_BACKENDS_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "backends/gpu/gpu.h"

/* What is used of the API; each is a pointer of the function's own type. */
/* clang-format off */
#define OPENCL_FUNCTIONS(F) \
    F(clGetPlatformIDs) F(clGetDeviceIDs) F(clGetDeviceInfo) F(clCreateContext) F(clReleaseContext) \
    F(clCreateCommandQueue) F(clReleaseCommandQueue) F(clFinish) F(clFlush) F(clCreateBuffer) F(clCreateSubBuffer) F(clReleaseMemObject) \
    F(clEnqueueReadBuffer) F(clEnqueueWriteBuffer) F(clEnqueueCopyBuffer) F(clCreateProgramWithSource) F(clCreateProgramWithBinary) \
    F(clBuildProgram) F(clGetProgramBuildInfo) F(clGetProgramInfo) F(clReleaseProgram) F(clCreateKernel) \
    F(clReleaseKernel) F(clSetKernelArg) F(clEnqueueNDRangeKernel) F(clEnqueueMarkerWithWaitList) F(clWaitForEvents) \
    F(clReleaseEvent)
/* clang-format on */

struct opencl_api {
    void *library;
#define MEMBER(name) __typeof__(name) *name;
    OPENCL_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct opencl_clblast;

#define OPENCL_UNIT ((size_t)16) /* bytes: buffers are multiples of it */

struct opencl_device {
    struct tern_gpu gpu; /* first */
    struct tern_queue queue;
    struct opencl_api cl;
    cl_device_id id;
    cl_context context;
    cl_command_queue commands;
    cl_command_queue copies;                   /* writes beside the commands */
    unsigned launches;                         /* so far; under gpu.lock */
    char name[256], driver[256], version[256]; /* "OpenCL 3.0 ..." */
    size_t memory;                             /* bytes */
    size_t base_alignment;                     /* of buffers that are parts of others, in bytes */
    bool fp16, unified;                        /* unified: its memory is the host's */
    struct opencl_clblast *clblast;            /* NULL: not asked for yet, or no_clblast */
    bool no_clblast;
    const struct tern_kernel *kernels[TERN_OP_COUNT + 3];
};

struct opencl_buffer {
    struct tern_gpu_buffer gpu; /* first */
    cl_mem memory;
};

/* library.c: the loader and its functions; TERN_E_NOT_FOUND with what would help. */
enum tern_status tern_opencl_load(struct tern_context *ctx, struct opencl_api *cl);
void tern_opencl_unload(struct opencl_api *cl);
/* "out of resources (-5)"; static, or for unknown ones written to `out`. */
const char *tern_opencl_error_text(cl_int error, char out[32]);
bool tern_opencl_is_memory(cl_int error); /* lack of memory */
/* Records it: TERN_E_NO_MEMORY for lack of memory, else TERN_E_DEVICE. */
enum tern_status tern_opencl_fail(struct tern_context *ctx, const char *what, cl_int error);

extern const struct tern_gpu_memory_fns tern_opencl_memory_fns; /* memory.c */
enum tern_status tern_opencl_write_beside(struct tern_buffer *b, cl_event after, size_t offset, const void *src, size_t size);
extern const struct tern_queue_fns tern_opencl_queue_fns; /* queue.c */
extern const struct tern_gpu_fns tern_opencl_gpu_fns;     /* program.c */

/* clblast.c: CLBlast's kernels before those of the texts. */
void tern_opencl_list_kernels(struct opencl_device *d);
bool tern_opencl_clblast_there(void);
void tern_opencl_clblast_close(struct opencl_device *d);

#endif
