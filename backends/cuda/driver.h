/* What is used of CUDA's driver API and of NVRTC: types, values and functions as cuda.h and nvrtc.h publish them, so that the backend
 * is in every build. tests/cuda/check_types.c compares them with those headers where they are installed. */
#ifndef TERN_BACKENDS_CUDA_DRIVER_H
#define TERN_BACKENDS_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

/* clang-format off */
#define CUDA_VALUES(V) \
    V(CUDA_SUCCESS, 0) V(CUDA_ERROR_INVALID_VALUE, 1) V(CUDA_ERROR_OUT_OF_MEMORY, 2) V(CUDA_ERROR_NOT_INITIALIZED, 3) \
    V(CUDA_ERROR_DEINITIALIZED, 4) V(CUDA_ERROR_NO_DEVICE, 100) V(CUDA_ERROR_INVALID_DEVICE, 101) V(CUDA_ERROR_INVALID_IMAGE, 200) \
    V(CUDA_ERROR_INVALID_CONTEXT, 201) V(CUDA_ERROR_NO_BINARY_FOR_GPU, 209) V(CUDA_ERROR_ECC_UNCORRECTABLE, 214) \
    V(CUDA_ERROR_INVALID_PTX, 218) V(CUDA_ERROR_NVLINK_UNCORRECTABLE, 220) V(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, 222) V(CUDA_ERROR_INVALID_HANDLE, 400) \
    V(CUDA_ERROR_NOT_FOUND, 500) V(CUDA_ERROR_NOT_READY, 600) V(CUDA_ERROR_ILLEGAL_ADDRESS, 700) \
    V(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, 701) V(CUDA_ERROR_LAUNCH_TIMEOUT, 702) V(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709) \
    V(CUDA_ERROR_ASSERT, 710) V(CUDA_ERROR_HARDWARE_STACK_ERROR, 714) V(CUDA_ERROR_ILLEGAL_INSTRUCTION, 715) \
    V(CUDA_ERROR_MISALIGNED_ADDRESS, 716) V(CUDA_ERROR_INVALID_ADDRESS_SPACE, 717) V(CUDA_ERROR_INVALID_PC, 718) \
    V(CUDA_ERROR_LAUNCH_FAILED, 719) V(CUDA_ERROR_NOT_SUPPORTED, 801) V(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803) \
    V(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) V(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900) \
    V(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901) V(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903) \
    V(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908) V(CUDA_ERROR_CAPTURED_EVENT, 907) V(CUDA_ERROR_UNKNOWN, 999) \
    V(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1) V(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 8) \
    V(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16) V(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 19) \
    V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75) V(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76) \
    V(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 115) V(CU_STREAM_NON_BLOCKING, 1) V(CU_EVENT_DISABLE_TIMING, 2) \
    V(CU_MEMHOSTALLOC_DEVICEMAP, 2) V(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 4) \
    V(CU_MEM_ALLOCATION_TYPE_PINNED, 1) V(CU_MEM_LOCATION_TYPE_DEVICE, 1) V(CU_STREAM_CAPTURE_MODE_RELAXED, 2) V(NVRTC_SUCCESS, 0) \
    V(NVRTC_ERROR_OUT_OF_MEMORY, 1) V(NVRTC_ERROR_INVALID_INPUT, 3) V(NVRTC_ERROR_INVALID_PROGRAM, 4) V(NVRTC_ERROR_INVALID_OPTION, 5) \
    V(NVRTC_ERROR_COMPILATION, 6)

/* Present since CUDA 11.2, the floor; names as in the library, where cuda.h maps others to them. */
#define CUDA_FUNCTIONS(F) \
    F(cuInit, (unsigned flags)) \
    F(cuDriverGetVersion, (int *version)) \
    F(cuGetErrorName, (CUresult error, const char **name)) \
    F(cuGetErrorString, (CUresult error, const char **text)) \
    F(cuDeviceGetCount, (int *count)) \
    F(cuDeviceGet, (CUdevice *device, int ordinal)) \
    F(cuDeviceGetName, (char *name, int size, CUdevice device)) \
    F(cuDeviceTotalMem_v2, (size_t *bytes, CUdevice device)) \
    F(cuDeviceGetAttribute, (int *value, CUdevice_attribute what, CUdevice device)) \
    F(cuDevicePrimaryCtxRetain, (CUcontext *context, CUdevice device)) \
    F(cuDevicePrimaryCtxRelease_v2, (CUdevice device)) \
    F(cuCtxPushCurrent_v2, (CUcontext context)) \
    F(cuCtxPopCurrent_v2, (CUcontext *context)) \
    F(cuMemGetInfo_v2, (size_t *unused, size_t *total)) \
    F(cuMemAlloc_v2, (CUdeviceptr *at, size_t size)) \
    F(cuMemFree_v2, (CUdeviceptr at)) \
    F(cuMemHostAlloc, (void **at, size_t size, unsigned flags)) \
    F(cuMemFreeHost, (void *at)) \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *at, void *host, unsigned flags)) \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t size, CUstream stream)) \
    F(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t size, CUstream stream)) \
    F(cuStreamCreate, (CUstream *stream, unsigned flags)) \
    F(cuStreamDestroy_v2, (CUstream stream)) \
    F(cuStreamSynchronize, (CUstream stream)) \
    F(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags)) \
    F(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode)) \
    F(cuStreamEndCapture, (CUstream stream, CUgraph *graph)) \
    F(cuEventCreate, (CUevent *event, unsigned flags)) \
    F(cuEventDestroy_v2, (CUevent event)) \
    F(cuEventRecord, (CUevent event, CUstream stream)) \
    F(cuEventSynchronize, (CUevent event)) \
    F(cuModuleLoadData, (CUmodule *module, const void *image)) \
    F(cuModuleUnload, (CUmodule module)) \
    F(cuModuleGetFunction, (CUfunction *function, CUmodule module, const char *name)) \
    F(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, \
                       unsigned block_z, unsigned shared, CUstream stream, void **arguments, void **extra)) \
    F(cuGraphLaunch, (CUgraphExec exec, CUstream stream)) \
    F(cuGraphExecDestroy, (CUgraphExec exec)) \
    F(cuGraphDestroy, (CUgraph graph)) \
    F(cuMemPoolCreate, (CUmemoryPool *pool, const CUmemPoolProps *properties)) \
    F(cuMemPoolDestroy, (CUmemoryPool pool)) \
    F(cuMemPoolSetAttribute, (CUmemoryPool pool, CUmemPool_attribute what, void *value)) \
    F(cuMemPoolTrimTo, (CUmemoryPool pool, size_t keep)) \
    F(cuMemAllocFromPoolAsync, (CUdeviceptr *at, size_t size, CUmemoryPool pool, CUstream stream)) \
    F(cuMemFreeAsync, (CUdeviceptr at, CUstream stream))

/* Since 11.4; captures need it. */
#define CUDA_LATER_FUNCTIONS(F) F(cuGraphInstantiateWithFlags, (CUgraphExec *exec, CUgraph graph, unsigned long long flags))

#define NVRTC_FUNCTIONS(F) \
    F(nvrtcVersion, (int *major, int *minor)) \
    F(nvrtcGetNumSupportedArchs, (int *count)) \
    F(nvrtcGetSupportedArchs, (int *archs)) \
    F(nvrtcCreateProgram, (nvrtcProgram *program, const char *source, const char *name, int n_headers, const char *const *headers, \
                           const char *const *names)) \
    F(nvrtcDestroyProgram, (nvrtcProgram *program)) \
    F(nvrtcCompileProgram, (nvrtcProgram program, int n_options, const char *const *options)) \
    F(nvrtcGetCUBINSize, (nvrtcProgram program, size_t *size)) \
    F(nvrtcGetCUBIN, (nvrtcProgram program, char *image)) \
    F(nvrtcGetPTXSize, (nvrtcProgram program, size_t *size)) \
    F(nvrtcGetPTX, (nvrtcProgram program, char *text)) \
    F(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t *size)) \
    F(nvrtcGetProgramLog, (nvrtcProgram program, char *text))
/* clang-format on */

#ifndef CUDA_VERSION /* cuda.h was not included before */
typedef int CUresult, CUdevice, CUdevice_attribute, CUstreamCaptureMode, CUmemPool_attribute;
typedef unsigned long long CUdeviceptr, cuuint64_t;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;
typedef struct CUmemPoolHandle_st *CUmemoryPool;
typedef struct {
    int allocType, handleTypes;
    struct {
        int type, id;
    } location;
    void *win32SecurityAttributes;
    unsigned char reserved[64];
} CUmemPoolProps;
typedef int nvrtcResult;
typedef struct _nvrtcProgram *nvrtcProgram;
#define VALUE(name, value) name = value,
enum { CUDA_VALUES(VALUE) };
#undef VALUE
#endif

struct cuda_api {
    void *library;
#define MEMBER(name, arguments) CUresult(*name) arguments;
    CUDA_FUNCTIONS(MEMBER)
    CUDA_LATER_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct nvrtc_api {
    void *library;
#define MEMBER(name, arguments) nvrtcResult(*name) arguments;
    NVRTC_FUNCTIONS(MEMBER)
#undef MEMBER
};

#endif
