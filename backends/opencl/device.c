/* OpenCL devices: find, describe, open, close. */
#include <stdio.h>
#include <string.h>

#include "backends/opencl/opencl.h"
#include "core/context.h"
#include "core/registry.h"

#define MOST_DEVICES 64
#define SUB_GROUP_SIZES 0x4108 /* CL_DEVICE_SUB_GROUP_SIZES_INTEL */

static void device_destroy(struct tern_device *device)
{
    struct opencl_device *d = (struct opencl_device *)device;
    if (d->commands)
        d->cl.clFinish(d->commands);
    tern_opencl_clblast_close(d);
    tern_gpu_close(&d->gpu);
    if (d->copies)
        d->cl.clReleaseCommandQueue(d->copies);
    if (d->commands)
        d->cl.clReleaseCommandQueue(d->commands);
    if (d->context)
        d->cl.clReleaseContext(d->context);
    tern_opencl_unload(&d->cl);
    tern_free(device->ctx, d);
}

static void describe(const struct tern_device *device, char *out, size_t size)
{
    const struct opencl_device *d = (const struct opencl_device *)device;
    char subgroups[32] = "";
    if (d->gpu.limits.subgroup)
        snprintf(subgroups, sizeof(subgroups), ", subgroups of %d", d->gpu.limits.subgroup);
    snprintf(out, size, "%s, %.1f GiB, driver %s, groups of %d, %zu KiB shared%s%s%s%s", d->name, (double)d->memory / (1 << 30), d->driver,
             d->gpu.limits.max_group, d->gpu.limits.shared_bytes >> 10, subgroups, d->fp16 ? ", f16" : "",
             d->gpu.limits.dot_product ? ", dot products of i8" : "",
             tern_opencl_clblast_there() ? ", CLBlast" : "; not there: CLBlast (libclblast.so.1)");
}

static const struct tern_device_fns device_fns = {.destroy = device_destroy,
                                                  .describe = describe,
                                                  .buffer_create = tern_gpu_buffer_create,
                                                  .weight_create = tern_gpu_weight_create,
                                                  .weight_mark = tern_gpu_weight_mark,
                                                  .weights_use = tern_gpu_weights_use,
                                                  .trim = tern_gpu_trim};

/* Devices of all platforms in their order; the one of that number. */
static enum tern_status find_device(struct tern_context *ctx, const struct opencl_api *cl, int ordinal, cl_device_id *id)
{
    cl_platform_id platforms[16];
    cl_device_id devices[MOST_DEVICES];
    cl_uint n_platforms = 0, total = 0;
    cl_int error = cl->clGetPlatformIDs(16, platforms, &n_platforms);
    if (error)
        return tern_opencl_fail(ctx, "looking for platforms", error);
    for (cl_uint i = 0; i < n_platforms && i < 16; i++) {
        cl_uint n = 0;
        if (cl->clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_ALL, MOST_DEVICES, devices, &n))
            continue;
        n = n < MOST_DEVICES ? n : MOST_DEVICES;
        if ((cl_uint)ordinal < total + n) {
            *id = devices[(cl_uint)ordinal - total];
            return TERN_OK;
        }
        total += n;
    }
    return tern_fail(ctx, TERN_E_NOT_FOUND, "opencl: device %d was asked for, there are %u", ordinal, total);
}

static size_t number(const struct opencl_device *d, cl_device_info what, size_t size)
{
    cl_ulong value = 0; /* little-endian: smaller ones fill its first bytes */
    if (d->cl.clGetDeviceInfo(d->id, what, size, &value, NULL))
        value = 0;
    return (size_t)value;
}

/* All of a text: a driver writes nothing of one that is longer than the room for it. NULL without memory; tern_free. */
static char *text_of(const struct opencl_device *d, cl_device_info what)
{
    size_t n = 0;
    if (d->cl.clGetDeviceInfo(d->id, what, 0, NULL, &n))
        n = 0;
    char *text = tern_calloc(d->gpu.base.ctx, 1, n + 1);
    if (text && n && d->cl.clGetDeviceInfo(d->id, what, n, text, NULL))
        text[0] = 0;
    return text;
}

/* As much of it as there is room for. */
static void read_text(const struct opencl_device *d, cl_device_info what, char *out, size_t room)
{
    char *text = text_of(d, what);
    snprintf(out, room, "%s", text ? text : "");
    tern_free(d->gpu.base.ctx, text);
}

/* Bytes, where the driver tells (cl_amd_device_attribute_query: in KiB, the whole and the largest block); else 0. */
static size_t free_memory(const struct opencl_device *d, const char *extensions)
{
    enum { GLOBAL_FREE_MEMORY_AMD = 0x4039 };
    size_t kib[2] = {0, 0};
    if (!strstr(extensions, "cl_amd_device_attribute_query") ||
        d->cl.clGetDeviceInfo(d->id, GLOBAL_FREE_MEMORY_AMD, sizeof(kib), kib, NULL) || kib[0] > SIZE_MAX >> 10)
        return 0;
    return kib[0] << 10;
}

static int power_of_two_below(size_t n)
{
    int p = 1;
    while ((size_t)p * 2 <= n && p < 1024)
        p *= 2;
    return p;
}

/* Texts exchange values within subgroups where their size can be asked for: the largest up to 32. 0: not here. */
static int subgroup_of(const struct opencl_device *d, const char *extensions)
{
    size_t sizes[16] = {0};
    int largest = 0;
    if (strncmp(d->version, "OpenCL 3", 8) || !strstr(extensions, "cl_khr_subgroup_shuffle ") ||
        !strstr(extensions, "cl_intel_required_subgroup_size") || d->cl.clGetDeviceInfo(d->id, SUB_GROUP_SIZES, sizeof(sizes), sizes, NULL))
        return 0;
    for (int i = 0; i < 16; i++)
        if (sizes[i] >= 2 && sizes[i] <= 32 && !(sizes[i] & (sizes[i] - 1)) && (int)sizes[i] > largest)
            largest = (int)sizes[i];
    return largest;
}

/* Words of four int8 are multiplied by cl_khr_integer_dot_product, in OpenCL C 3.0. */
static bool dot_product_of(const struct opencl_device *d, const char *extensions)
{
    enum { DOT_PRODUCT_CAPABILITIES = 0x1073, PACKED = 1 };
    return !strncmp(d->version, "OpenCL 3", 8) && strstr(extensions, "cl_khr_integer_dot_product") &&
           number(d, DOT_PRODUCT_CAPABILITIES, sizeof(cl_bitfield)) & PACKED;
}

/* Items of a group, also where one direction has them all. */
static size_t group_of(const struct opencl_device *d)
{
    size_t most = number(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t)), sizes[8];
    const cl_uint dims = (cl_uint)number(d, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS, sizeof(cl_uint));
    if (dims >= 2 && dims <= 8 && !d->cl.clGetDeviceInfo(d->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, dims * sizeof(*sizes), sizes, NULL))
        for (int i = 0; i < 2; i++)
            most = sizes[i] < most ? sizes[i] : most;
    return most;
}

static void read_features(struct opencl_device *d, const char *extensions)
{
    d->memory = number(d, CL_DEVICE_GLOBAL_MEM_SIZE, sizeof(cl_ulong));
    d->unified = number(d, CL_DEVICE_HOST_UNIFIED_MEMORY, sizeof(cl_bool));
    tern_gpu_memory_open(&d->gpu, &tern_opencl_memory_fns, free_memory(d, extensions), d->memory, d->unified);
    d->base_alignment = number(d, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(cl_uint)) / 8;
    d->base_alignment = d->base_alignment ? d->base_alignment : 1;
    d->fp16 = strstr(extensions, "cl_khr_fp16") != NULL;
    d->gpu.base.caps.software = number(d, CL_DEVICE_TYPE, sizeof(cl_device_type)) & CL_DEVICE_TYPE_CPU;
    d->gpu.base.caps.max_buffer = tern_gpu_largest(number(d, CL_DEVICE_MAX_MEM_ALLOC_SIZE, sizeof(cl_ulong)), OPENCL_UNIT);
    d->gpu.binding_alignment = d->base_alignment > 16 && !(d->base_alignment & (d->base_alignment - 1)) ? d->base_alignment : 16;
    d->gpu.binding_from = INT32_MAX / 2;
    d->gpu.base.caps.reach = INT32_MAX / 2; /* of bytes, as texts count from the start of a buffer to a place inside of an argument */
    d->gpu.limits = (struct tern_launch_limits){.max_group = power_of_two_below(group_of(d)),
                                                .shared_bytes = number(d, CL_DEVICE_LOCAL_MEM_SIZE, sizeof(cl_ulong)),
                                                .max_groups = 65535,
                                                .storage16 = true,
                                                .storage8 = true,
                                                .vectors = true,
                                                .subgroup = subgroup_of(d, extensions),
                                                .dot_product = dot_product_of(d, extensions)};
}

/* "OpenCL 1.2 ...": the form of it is the specification's. */
static enum tern_status check_version(const struct opencl_device *d)
{
    int major = 0, minor = 0;
    if (sscanf(d->version, "OpenCL %d.%d", &major, &minor) == 2 && (major > 1 || (major == 1 && minor >= 2)))
        return TERN_OK;
    return tern_fail(d->gpu.base.ctx, TERN_E_UNSUPPORTED,
                     "opencl: %s: expected a device of OpenCL 1.2 or later, found \"%.100s\" (driver %.100s); a newer driver would help",
                     d->name, d->version, d->driver);
}

static enum tern_status read_facts(struct opencl_device *d)
{
    read_text(d, CL_DEVICE_NAME, d->name, sizeof(d->name));
    read_text(d, CL_DRIVER_VERSION, d->driver, sizeof(d->driver));
    read_text(d, CL_DEVICE_VERSION, d->version, sizeof(d->version));
    char *extensions = text_of(d, CL_DEVICE_EXTENSIONS);
    if (extensions)
        read_features(d, extensions);
    tern_free(d->gpu.base.ctx, extensions);
    if (tern_failed(d->gpu.base.ctx) || check_version(d))
        return tern_error_status(d->gpu.base.ctx);
    if (d->gpu.limits.max_group < 64 || d->gpu.limits.shared_bytes < 16384 || !number(d, CL_DEVICE_AVAILABLE, sizeof(cl_bool)) ||
        !number(d, CL_DEVICE_ENDIAN_LITTLE, sizeof(cl_bool)))
        return tern_fail(
            d->gpu.base.ctx, TERN_E_UNSUPPORTED,
            "opencl: %s: expected an available little-endian device with groups of 64 and 16 KiB of local memory, found groups "
            "of %d and %zu KiB",
            d->name, d->gpu.limits.max_group, d->gpu.limits.shared_bytes >> 10);
    return tern_gpu_lower(&d->gpu);
}

static enum tern_status open_device(struct opencl_device *d, int ordinal)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    cl_int error = CL_SUCCESS;
    if (tern_opencl_load(ctx, &d->cl) || find_device(ctx, &d->cl, ordinal, &d->id) || read_facts(d))
        return tern_error_status(ctx);
    d->context = d->cl.clCreateContext(NULL, 1, &d->id, NULL, NULL, &error);
    if (!d->context)
        return tern_opencl_fail(ctx, "making a context", error);
    d->commands = d->cl.clCreateCommandQueue(d->context, d->id, 0, &error);
    d->copies = d->commands ? d->cl.clCreateCommandQueue(d->context, d->id, 0, &error) : NULL;
    return d->copies ? TERN_OK : tern_opencl_fail(ctx, "making a queue", error);
}

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    struct opencl_device *d = tern_calloc(ctx, 1, sizeof(*d));
    if (!d)
        return NULL;
    tern_gpu_open(&d->gpu, ctx, "opencl");
    d->gpu.fns = &tern_opencl_gpu_fns;
    d->gpu.language = TERN_TEXT_OPENCL;
    d->gpu.base.fns = &device_fns;
    d->gpu.base.queue = &d->queue;
    d->queue = (struct tern_queue){.fns = &tern_opencl_queue_fns, .device = &d->gpu.base};
    if (open_device(d, ordinal)) {
        device_destroy(&d->gpu.base);
        return NULL;
    }
    tern_opencl_list_kernels(d);
    return &d->gpu.base;
}

extern const struct tern_backend tern_backend_opencl;
const struct tern_backend tern_backend_opencl = {"opencl", create};
