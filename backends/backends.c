/* The backends of this build, in order of preference. One that could not be built says why when it is asked for. */
#include "core/registry.h"
#include "core/status.h"

extern const struct tern_backend tern_backend_cpu, tern_backend_null;

#ifdef TERN_HAVE_CUDA
extern const struct tern_backend tern_backend_cuda;
#else
static struct tern_device *no_cuda(struct tern_context *ctx, int ordinal)
{
    tern_fail(ctx, TERN_E_UNSUPPORTED, "cuda: this build was made for a system that opens no libraries at run time");
    return NULL;
}
static const struct tern_backend tern_backend_cuda = {"cuda", no_cuda};
#endif

#ifdef TERN_HAVE_OPENCL
extern const struct tern_backend tern_backend_opencl;
#else
static struct tern_device *no_opencl(struct tern_context *ctx, int ordinal)
{
    tern_fail(ctx, TERN_E_UNSUPPORTED, "opencl: this build was made without CL/cl.h; the Debian package opencl-headers has it");
    return NULL;
}
static const struct tern_backend tern_backend_opencl = {"opencl", no_opencl};
#endif

#ifdef TERN_HAVE_VULKAN
extern const struct tern_backend tern_backend_vulkan;
#else
static struct tern_device *no_vulkan(struct tern_context *ctx, int ordinal)
{
    tern_fail(ctx, TERN_E_UNSUPPORTED,
              "vulkan: this build was made without vulkan/vulkan_core.h of 1.2; the Debian package libvulkan-dev has it");
    return NULL;
}
static const struct tern_backend tern_backend_vulkan = {"vulkan", no_vulkan};
#endif

const struct tern_backend *const tern_backends[] = {&tern_backend_cpu,    &tern_backend_cuda, &tern_backend_vulkan,
                                                    &tern_backend_opencl, &tern_backend_null, NULL};
