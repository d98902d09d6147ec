/* Buffers of an OpenCL device. */
#include "backends/opencl/opencl.h"
#include "core/context.h"

static struct opencl_device *device_of(const struct tern_buffer *b) { return (struct opencl_device *)b->device; }

/* Commands that use the memory keep it until they are done. */
static void buffer_destroy(struct tern_buffer *base)
{
    struct opencl_buffer *b = (struct opencl_buffer *)base;
    struct opencl_device *d = device_of(base);
    d->cl.clReleaseMemObject(b->memory);
    tern_memory_discharge(d->gpu.base.ctx, base->size);
    tern_free(d->gpu.base.ctx, b);
}

static enum tern_status buffer_write(struct tern_buffer *base, size_t offset, const void *src, size_t size)
{
    struct opencl_device *d = device_of(base);
    cl_mem memory = ((struct opencl_buffer *)base)->memory;
    cl_int error = size ? d->cl.clEnqueueWriteBuffer(d->commands, memory, CL_TRUE, offset, size, src, 0, NULL, NULL) : CL_SUCCESS;
    return error ? opencl_fail(d->gpu.base.ctx, "writing a buffer", error) : TERN_OK;
}

static enum tern_status buffer_read(struct tern_buffer *base, size_t offset, void *dst, size_t size)
{
    struct opencl_device *d = device_of(base);
    cl_mem memory = ((struct opencl_buffer *)base)->memory;
    cl_int error = size ? d->cl.clEnqueueReadBuffer(d->commands, memory, CL_TRUE, offset, size, dst, 0, NULL, NULL) : CL_SUCCESS;
    return error ? opencl_fail(d->gpu.base.ctx, "reading a buffer", error) : TERN_OK;
}

static const struct tern_buffer_fns buffer_fns = {buffer_destroy, buffer_write, buffer_read};

struct tern_buffer *opencl_buffer_create(struct tern_device *device, size_t size)
{
    struct opencl_device *d = (struct opencl_device *)device;
    struct opencl_buffer *b = tern_calloc(device->ctx, 1, sizeof(*b));
    cl_int error = CL_SUCCESS;
    if (!b || tern_memory_charge(device->ctx, device->name, size)) {
        tern_free(device->ctx, b);
        return NULL;
    }
    /* kernels may read a whole word where the last elements of a small dtype end */
    b->memory = d->cl.clCreateBuffer(d->context, CL_MEM_READ_WRITE, (size + 19) / 16 * 16, NULL, &error);
    if (!b->memory) {
        opencl_fail(device->ctx, "making a buffer", error);
        tern_memory_discharge(device->ctx, size);
        tern_free(device->ctx, b);
        return NULL;
    }
    b->base = (struct tern_buffer){.fns = &buffer_fns, .device = device, .refs = 1, .size = size};
    return &b->base;
}
