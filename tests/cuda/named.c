/* A libcuda.so.1 without a device, which cuDNN finds by that name when it compiles kernels: it takes what was compiled, and refuses all
 * else. */
#include "tests/cuda/standin.h"

static CUresult give(void **object)
{
    static char thing;
    *object = &thing;
    return CUDA_SUCCESS;
}

#define FUNCTION(name, arguments, result) \
    STANDIN_API CUresult name arguments;  \
    CUresult name arguments { return result; }
FUNCTION(cuDriverGetVersion, (int *version), (*version = 13000, CUDA_SUCCESS))
FUNCTION(cuLibraryLoadData, (void **library, const void *code), give(library))
FUNCTION(cuLibraryGetKernel, (void **kernel, void *library, const char *name), give(kernel))
FUNCTION(cuLibraryGetModule, (void **module, void *library), give(module))
FUNCTION(cuLibraryUnload, (void *library), CUDA_SUCCESS)
FUNCTION(cuKernelGetFunction, (void **function, void *kernel), give(function))
FUNCTION(cuKernelSetAttribute, (int what, int value, void *kernel, int device), CUDA_SUCCESS)
FUNCTION(cuFuncSetAttribute, (void *function, int what, int value), CUDA_SUCCESS)

/* cuDNN wants them to be there. */
#define REFUSED(name) FUNCTION(name, (void), CUDA_ERROR_NOT_SUPPORTED)
REFUSED(cuGetErrorName)
REFUSED(cuGetErrorString)
REFUSED(cuCtxGetCurrent)
REFUSED(cuCtxGetLimit)
REFUSED(cuCtxPopCurrent)
REFUSED(cuCtxPushCurrent)
REFUSED(cuStreamGetCtx)
REFUSED(cuLinkCreate)
REFUSED(cuLinkAddData)
REFUSED(cuLinkComplete)
REFUSED(cuLinkDestroy)
REFUSED(cuLaunchKernel)
REFUSED(cuLaunchCooperativeKernel)
REFUSED(cuLaunchKernelEx)
REFUSED(cuDeviceGetCount)
REFUSED(cuDeviceGet)
REFUSED(cuLibraryLoadFromFile)
REFUSED(cuKernelGetAttribute)
REFUSED(cuOccupancyMaxPotentialClusterSize)
