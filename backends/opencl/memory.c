/* Memory of an OpenCL device's buffers: the device's own, or the host's, which kernels read over the bus. backends/gpu/memory.c decides. */
#include "backends/opencl/opencl.h"
#include "core/context.h"

/* Many drivers find memory for a buffer only when it is used: so it is, by its last word, beside the commands. */
static cl_int use(struct opencl_device *d, cl_mem memory, size_t size)
{
    static const cl_uint zero = 0;
    size_t last = tern_gpu_padded(size, OPENCL_UNIT) - sizeof(zero);
    cl_int error = d->cl.clEnqueueWriteBuffer(d->copies, memory, CL_TRUE, last, sizeof(zero), &zero, 0, NULL, NULL);
    return error == CL_OUT_OF_RESOURCES ? CL_MEM_OBJECT_ALLOCATION_FAILURE : error; /* as NVIDIA's says it */
}

/* NULL without memory: *full; or with the error recorded. */
static cl_mem make(struct opencl_device *d, size_t size, bool on_host, bool *full)
{
    cl_int error = CL_SUCCESS;
    cl_mem_flags flags = CL_MEM_READ_WRITE | (on_host ? CL_MEM_ALLOC_HOST_PTR : 0);
    cl_mem memory = d->cl.clCreateBuffer(d->context, flags, tern_gpu_padded(size, OPENCL_UNIT), NULL, &error);
    if (memory && !d->unified && (error = use(d, memory, size))) {
        d->cl.clReleaseMemObject(memory);
        memory = NULL;
    }
    *full = !memory && tern_opencl_is_memory(error);
    if (!memory && !*full)
        tern_opencl_fail(d->gpu.base.ctx, "making a buffer", error);
    return memory;
}

static enum tern_status take(struct tern_gpu *gpu, struct tern_gpu_buffer *b, bool on_host, bool *full)
{
    cl_mem memory = make((struct opencl_device *)gpu, b->base.size, on_host, full);
    ((struct opencl_buffer *)b)->memory = memory;
    return memory || *full ? TERN_OK : tern_error_status(gpu->base.ctx);
}

/* Commands that use the memory keep it until they are done. */
static void give(struct tern_gpu *gpu, struct tern_gpu_buffer *b)
{
    ((struct opencl_device *)gpu)->cl.clReleaseMemObject(((struct opencl_buffer *)b)->memory);
}

static enum tern_status move(struct tern_gpu *gpu, struct tern_gpu_buffer *base, bool *full)
{
    struct opencl_device *d = (struct opencl_device *)gpu;
    struct opencl_buffer *b = (struct opencl_buffer *)base;
    cl_mem to = make(d, base->base.size, !base->on_host, full);
    if (!to)
        return *full ? TERN_OK : tern_error_status(gpu->base.ctx);
    cl_int error = d->cl.clEnqueueCopyBuffer(d->commands, b->memory, to, 0, 0, base->base.size, 0, NULL, NULL);
    d->cl.clReleaseMemObject(error ? to : b->memory);
    *full = error && tern_opencl_is_memory(error);
    if (!error)
        b->memory = to;
    return error && !*full ? tern_opencl_fail(gpu->base.ctx, "moving a weight", error) : TERN_OK;
}

static void trim(struct tern_gpu *gpu)
{
    struct opencl_device *d = (struct opencl_device *)gpu;
    d->cl.clFinish(d->commands);
}

/* ---- contents ---- */

static enum tern_status await(struct opencl_device *d, const char *what, cl_int error, cl_event done)
{
    if (!error) {
        error = d->cl.clWaitForEvents(1, &done);
        d->cl.clReleaseEvent(done);
    }
    return error ? tern_opencl_fail(d->gpu.base.ctx, what, error) : TERN_OK;
}

/* Enqueued under the lock, since weights are moved; waited for without it. */
static enum tern_status copy(struct tern_buffer *base, size_t offset, const void *src, void *dst, size_t size)
{
    struct opencl_device *d = (struct opencl_device *)base->device;
    const char *what = src ? "writing a buffer" : "reading a buffer";
    cl_event done = NULL;
    if (!size)
        return TERN_OK;
    pthread_mutex_lock(&d->gpu.lock);
    cl_mem memory = ((struct opencl_buffer *)base)->memory;
    cl_int error = src ? d->cl.clEnqueueWriteBuffer(d->commands, memory, CL_FALSE, offset, size, src, 0, NULL, &done)
                       : d->cl.clEnqueueReadBuffer(d->commands, memory, CL_FALSE, offset, size, dst, 0, NULL, &done);
    pthread_mutex_unlock(&d->gpu.lock);
    return await(d, what, error, done);
}

/* The commands go on while it is waited for, so they have to be on their way. */
enum tern_status tern_opencl_write_beside(struct tern_buffer *base, cl_event after, size_t offset, const void *src, size_t size)
{
    struct opencl_device *d = (struct opencl_device *)base->device;
    cl_event done = NULL;
    if (!size)
        return TERN_OK;
    pthread_mutex_lock(&d->gpu.lock);
    cl_int error = d->cl.clFlush(d->commands);
    if (!error)
        error =
            d->cl.clEnqueueWriteBuffer(d->copies, ((struct opencl_buffer *)base)->memory, CL_FALSE, offset, size, src, 1, &after, &done);
    pthread_mutex_unlock(&d->gpu.lock);
    return await(d, "writing a buffer", error, done);
}

static enum tern_status buffer_write(struct tern_buffer *b, size_t offset, const void *src, size_t size)
{
    return copy(b, offset, src, NULL, size);
}

static enum tern_status buffer_read(struct tern_buffer *b, size_t offset, void *dst, size_t size)
{
    return copy(b, offset, NULL, dst, size);
}

const struct tern_gpu_memory_fns tern_opencl_memory_fns = {.buffer_size = sizeof(struct opencl_buffer),
                                                           .take = take,
                                                           .give = give,
                                                           .move = move,
                                                           .trim = trim,
                                                           .buffer = {tern_gpu_buffer_destroy, buffer_write, buffer_read}};
