/* Devices, contexts and errors of the stand-in driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/cuda/inside.h"

enum { DEPTH = 16 };
/* Contexts of this thread. There is one context, the primary one; an application's own is any other pointer. */
static __thread CUcontext stack[DEPTH];
static __thread int depth;
#define PRIMARY ((CUcontext)(uintptr_t)0x7e40)

bool standin_has_context(void);
bool standin_has_context(void) { return depth && stack[depth - 1] == PRIMARY && standin.retained; }
void standin_forget_context(void) { depth = 0; }

/* For programs that call none of standin.h's functions. */
static void read_environment(void)
{
    const char *compute = getenv("TERN_STANDIN_COMPUTE"), *memory = getenv("TERN_STANDIN_GIB");
    if (compute && !strcmp(compute, "0"))
        standin.facts.compute = 0;
    if (memory && atoi(memory) > 0)
        standin.facts.memory = (size_t)atoi(memory) << 30;
}

CUresult cuInit(unsigned flags)
{
    ENTER(false);
    if (!standin.initialised)
        read_environment();
    standin.initialised = true;
    return standin.facts.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

CUresult cuDriverGetVersion(int *version)
{
    ENTER(false);
    *version = standin.facts.driver;
    return CUDA_SUCCESS;
}

static const struct {
    CUresult error;
    const char *name;
} names[] = {
#define V(name, value) {value, #name},
    CUDA_VALUES(V)
#undef V
};

CUresult cuGetErrorName(CUresult error, const char **name)
{
    *name = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names) && !*name; i++)
        if (names[i].error == error && !strncmp(names[i].name, "CUDA_", 5))
            *name = names[i].name;
    return *name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = "as the stand-in has it";
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    ENTER(false);
    *count = standin.facts.devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER(false);
    *device = ordinal;
    return ordinal >= 0 && ordinal < standin.facts.devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    ENTER(false);
    snprintf(name, (size_t)size, "%s", standin.facts.name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    ENTER(false);
    *bytes = standin.facts.memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute what, CUdevice device)
{
    ENTER(false);
    const struct standin_facts *f = &standin.facts;
    switch (what) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = f->threads;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
        *value = f->shared;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
        *value = f->maps_host;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = f->capability / 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = f->capability % 10;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
        *value = f->pools;
        return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 1;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER(false);
    standin.retained++;
    *context = PRIMARY;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    ENTER(false);
    if (!standin.retained)
        return standin_misuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context is released more often than retained");
    standin.retained--;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    ENTER(false);
    if (context == PRIMARY && !standin.retained)
        return standin_misuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context is made current when nobody has retained it");
    if (depth == DEPTH)
        return standin_misuse(CUDA_ERROR_INVALID_VALUE, "%d contexts were made current and not taken back", DEPTH);
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    ENTER(false);
    if (!depth)
        return standin_misuse(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPopCurrent without a current context");
    *context = stack[--depth];
    return CUDA_SUCCESS;
}
