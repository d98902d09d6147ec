/* CUDA devices: find, describe, open, close. */
#include <stdio.h>
#include <string.h>

#include "backends/cuda/blas.h"
#include "backends/cuda/dnn.h"
#include "core/context.h"
#include "core/registry.h"

static void close_streams(struct cuda_device *d)
{
    CUcontext popped;
    if ((d->gone = d->cu.cuCtxPushCurrent_v2(d->context) != CUDA_SUCCESS))
        return;
    if (d->stream)
        d->cu.cuStreamSynchronize(d->stream); /* its error was told, or concerns nobody any more */
    tern_cuda_blas_close(d);
    tern_cuda_dnn_close(d);
    tern_gpu_drop_calls(&d->gpu);
    tern_gpu_drop_programs(&d->gpu);
    tern_cuda_slots_free(d);
    if (d->before)
        d->cu.cuEventDestroy_v2(d->before);
    if (d->copied)
        d->cu.cuEventDestroy_v2(d->copied);
    if (d->side)
        d->cu.cuStreamDestroy_v2(d->side);
    if (d->stream)
        d->cu.cuStreamDestroy_v2(d->stream);
    if (d->pool)
        d->cu.cuMemPoolDestroy(d->pool);
    d->cu.cuCtxPopCurrent_v2(&popped);
}

static void device_destroy(struct tern_device *device)
{
    struct cuda_device *d = (struct cuda_device *)device;
    if (d->retained) {
        close_streams(d);
        d->cu.cuDevicePrimaryCtxRelease_v2(d->id);
    }
    tern_cuda_blas_close(d);
    tern_cuda_dnn_close(d);
    tern_gpu_close(&d->gpu);
    tern_cuda_nvrtc_close(d);
    tern_cuda_unload(d);
    tern_free(device->ctx, d);
}

/* Of the generations that have them. Some of Turing, 7.5, are without: TU116 and TU117, under these names. */
static bool has_tensor_cores(const struct cuda_device *d)
{
    static const char *const without[] = {"GTX 16", "CMP 30HX", "MX450", "MX550", "T400", "T500",
                                          "T550",   "T600",     "T1000", "T1200", "T2000"};
    for (size_t i = 0; i < sizeof(without) / sizeof(*without) && d->capability == 75; i++)
        if (strstr(d->name, without[i]))
            return false;
    return d->capability >= 70;
}

/* Which texts use them. */
static const char *matrix_units(const struct cuda_device *d)
{
    const struct tern_launch_limits *l = &d->gpu.limits;
    return l->matrix_bf16        ? "tensor cores used for f16, bf16 and int8"
           : l->matrix_i8        ? "tensor cores used for f16 and int8"
           : l->matrix_f16       ? "tensor cores used for f16"
           : has_tensor_cores(d) ? "tensor cores not used"
                                 : "no tensor cores";
}

static void describe(const struct tern_device *device, char *out, size_t size)
{
    struct cuda_device *d = (struct cuda_device *)(uintptr_t)device; /* the libraries are opened by it */
    char blas[240], dnn[240];
    tern_cuda_blas_describe(d, blas, sizeof(blas));
    tern_cuda_dnn_describe(d, dnn, sizeof(dnn));
    snprintf(out, size, "%s, %.1f GiB, driver of CUDA %d.%d, sm_%d, %s, NVRTC %d.%d%s, %s, %s", d->name, (double)d->memory / (1 << 30),
             d->driver / 1000, d->driver / 10 % 100, d->capability, matrix_units(d), d->nvrtc_version / 1000, d->nvrtc_version / 10 % 100,
             d->arch == d->capability ? "" : " (older than the device: PTX)", blas, dnn);
}

static const struct tern_device_fns device_fns = {.destroy = device_destroy,
                                                  .describe = describe,
                                                  .buffer_create = tern_gpu_buffer_create,
                                                  .weight_create = tern_gpu_weight_create,
                                                  .weight_mark = tern_gpu_weight_mark,
                                                  .weights_use = tern_gpu_weights_use,
                                                  .trim = tern_cuda_memory_trim};

static enum tern_status find_device(struct cuda_device *d, int ordinal)
{
    struct tern_context *ctx = d->gpu.base.ctx;
    int count = 0;
    CUresult error = d->cu.cuInit(0);
    if (error == CUDA_ERROR_NO_DEVICE)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "cuda: device %d was asked for, there are 0", ordinal);
    if (error == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH || error == CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE)
        return tern_fail(ctx, TERN_E_UNSUPPORTED,
                         "cuda: libcuda is of another version than the kernel's driver (error %d): a restart after an update, or taking "
                         "away the package cuda-compat, would help",
                         error);
    if (error)
        return tern_cuda_fail(d, "cuInit", error);
    if ((error = d->cu.cuDriverGetVersion(&d->driver)) || (error = d->cu.cuDeviceGetCount(&count)))
        return tern_cuda_fail(d, "looking for devices", error);
    if (d->driver < 11020)
        return tern_fail(ctx, TERN_E_UNSUPPORTED, "cuda: the driver is of CUDA %d.%d; expected one of 11.2 or later", d->driver / 1000,
                         d->driver / 10 % 100);
    if (ordinal >= count)
        return tern_fail(ctx, TERN_E_NOT_FOUND, "cuda: device %d was asked for, there are %d", ordinal, count);
    error = d->cu.cuDeviceGet(&d->id, ordinal);
    return error ? tern_cuda_fail(d, "finding the device", error) : TERN_OK;
}

/* 0 when the driver does not know it. */
static int number(const struct cuda_device *d, CUdevice_attribute what)
{
    int value = 0;
    return d->cu.cuDeviceGetAttribute(&value, what, d->id) ? 0 : value;
}

static int power_of_two_below(int n)
{
    int p = 1;
    while (p * 2 <= n && p < 1024)
        p *= 2;
    return p;
}

static enum tern_status read_facts(struct cuda_device *d)
{
    CUresult error = d->cu.cuDeviceGetName(d->name, sizeof(d->name) - 1, d->id);
    error = error ? error : d->cu.cuDeviceTotalMem_v2(&d->memory, d->id);
    if (error)
        return tern_cuda_fail(d, "asking the device what it is", error);
    d->capability = 10 * number(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) + number(d, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    d->maps_host = number(d, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
    d->gpu.limits = (struct tern_launch_limits){.max_group = power_of_two_below(number(d, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)),
                                                .shared_bytes = (size_t)number(d, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
                                                .max_groups = 65535,
                                                .storage16 = true,
                                                .storage8 = true,
                                                .vectors = true,
                                                .subgroup = 32, /* a warp, of every device so far */
                                                .dot_product = d->capability >= 61};
    d->gpu.binding_alignment = 16;
    if (has_tensor_cores(d)) {
        d->gpu.limits.matrix_subgroup = 32;
        d->gpu.limits.matrix_f16 = true;
        d->gpu.limits.matrix_bf16 = d->capability >= 80;
        d->gpu.limits.matrix_i8 = d->capability >= 72;
    }
    if (d->capability < 53 || d->gpu.limits.max_group < 64 || d->gpu.limits.shared_bytes < 16384)
        return tern_fail(
            d->gpu.base.ctx, TERN_E_UNSUPPORTED,
            "cuda: %s: expected compute capability 5.3 or later, which converts f16, blocks of 64 threads and 16 KiB of shared "
            "memory; found %d.%d, %d and %zu KiB",
            d->name, d->capability / 10, d->capability % 10, d->gpu.limits.max_group, d->gpu.limits.shared_bytes >> 10);
    return tern_gpu_lower(&d->gpu);
}

/* Freed memory stays in the pool up to that much: whole, so that the second run of a plan asks the system for nothing. The device's
 * default pool is the application's. */
static void make_pool(struct cuda_device *d)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, d->id}};
    cuuint64_t threshold = UINT64_MAX;
    if (!number(d, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) || d->cu.cuMemPoolCreate(&d->pool, &properties)) {
        d->pool = NULL;
    } else if (d->cu.cuMemPoolSetAttribute(d->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold)) {
        d->cu.cuMemPoolDestroy(d->pool);
        d->pool = NULL;
    }
}

static enum tern_status open_streams(struct cuda_device *d)
{
    CUresult error = d->cu.cuDevicePrimaryCtxRetain(&d->context, d->id);
    d->retained = !error;
    if (error)
        return tern_cuda_fail(d, "making a context", error);
    if (tern_cuda_enter(d, "entering the context"))
        return tern_error_status(d->gpu.base.ctx);
    make_pool(d);
    size_t unused = 0, total = 0;
    error = d->cu.cuStreamCreate(&d->stream, CU_STREAM_NON_BLOCKING);
    error = error ? error : d->cu.cuStreamCreate(&d->side, CU_STREAM_NON_BLOCKING);
    error = error ? error : d->cu.cuEventCreate(&d->before, CU_EVENT_DISABLE_TIMING);
    error = error ? error : d->cu.cuEventCreate(&d->copied, CU_EVENT_DISABLE_TIMING);
    error = error ? error : d->cu.cuMemGetInfo_v2(&unused, &total);
    tern_cuda_leave(d);
    tern_gpu_memory_open(&d->gpu, &tern_cuda_memory_fns, unused, d->memory, false);
    return error ? tern_cuda_fail(d, "making a stream", error) : TERN_OK;
}

/* An NVRTC that is older than the device makes code for an older one. */
static void limit_by_compiler(struct cuda_device *d)
{
    d->gpu.limits.dot_product = d->gpu.limits.dot_product && d->arch >= 61;
    d->gpu.limits.matrix_f16 = d->gpu.limits.matrix_f16 && d->arch >= 70;
    d->gpu.limits.matrix_bf16 = d->gpu.limits.matrix_bf16 && d->arch >= 80;
    d->gpu.limits.matrix_i8 = d->gpu.limits.matrix_i8 && d->arch >= 72;
    d->gpu.base.caps.fast_dtype = d->gpu.limits.matrix_f16 ? TERN_F16 : TERN_F32;
}

static void list_kernels(struct cuda_device *d)
{
    int n = 0;
    d->kernels[n++] = &tern_cuda_matmul_cublaslt;
    d->kernels[n++] = &tern_cuda_linear_cublaslt;
    d->kernels[n++] = &tern_cuda_conv2d_cudnn;
    d->kernels[n++] = &tern_cuda_sdpa_cudnn;
    for (int i = 0; i < TERN_OP_COUNT; i++)
        d->kernels[n++] = tern_gpu_kernels[i];
    d->gpu.base.kernels = d->kernels;
}

static struct tern_device *create(struct tern_context *ctx, int ordinal)
{
    struct cuda_device *d = tern_calloc(ctx, 1, sizeof(*d));
    if (!d)
        return NULL;
    tern_gpu_open(&d->gpu, ctx, "cuda");
    d->gpu.fns = &tern_cuda_gpu_fns;
    d->gpu.language = TERN_TEXT_CUDA;
    d->gpu.base.fns = &device_fns;
    d->gpu.base.queue = &d->queue;
    d->gpu.base.caps.uniform_bias = d->gpu.base.caps.uniform_weights = true; /* cuBLASLt and cuDNN's compiled kernels take no other */
    if (tern_cuda_load(d) || find_device(d, ordinal) || read_facts(d) || tern_cuda_nvrtc_open(d) || open_streams(d)) {
        device_destroy(&d->gpu.base);
        return NULL;
    }
    limit_by_compiler(d);
    list_kernels(d);
    bool captures = d->cu.cuGraphInstantiateWithFlags != NULL;
    d->queue = (struct tern_queue){.fns = captures ? &tern_cuda_queue_fns : &tern_cuda_queue_fns_without_capture, .device = &d->gpu.base};
    return &d->gpu.base;
}

extern const struct tern_backend tern_backend_cuda;
const struct tern_backend tern_backend_cuda = {"cuda", create};
