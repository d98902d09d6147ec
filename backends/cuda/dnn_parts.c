/* The libraries without which cuDNN ends the process as soon as it wants them: they are opened before, and stay, so that it finds them. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/dnn.h"

/* Where the library lies, with the slash behind it; empty when that is not known. */
static void folder_of(const struct cudnn_api *api, char *folder, size_t size)
{
    Dl_info info;
    union {
        size_t (*function)(void);
        void *address;
    } version = {api->cudnnGetVersion};
    const char *slash = dladdr(version.address, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    int n = slash ? (int)(slash - info.dli_fname) + 1 : 0;
    if (snprintf(folder, size, "%.*s", n, n ? info.dli_fname : "") >= (int)size)
        folder[0] = 0;
}

/* Where cuDNN looks: at what is open by that name, beside itself, in the folders of NVIDIA's other wheels, on the loader's path. */
static bool opens(const char *folder, const char *name)
{
    static const char *const beside[] = {"", "../../cublas/lib/", "../../cu13/lib/"};
    const int how = RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE;
    void *part = dlopen(name, how | RTLD_NOLOAD);
    for (size_t i = 0; i < sizeof(beside) / sizeof(*beside) && folder[0] && !part; i++) {
        char path[1200];
        snprintf(path, sizeof(path), "%s%s%s", folder, beside[i], name);
        part = dlopen(path, how);
    }
    part = part ? part : dlopen(name, how);
    if (part)
        dlclose(part); /* it stays */
    return part != NULL;
}

bool tern_cuda_dnn_is_complete(const struct cudnn_api *api, char missing[CUDA_DNN_PART])
{
    char folder[1024];
    folder_of(api, folder, sizeof(folder));
    if (dlsym(api->library, "cudnnGraphVersionCheck")) { /* 9; not even its version may be asked for before */
        snprintf(missing, CUDA_DNN_PART, "libcudnn_graph.so.9");
        if (!opens(folder, missing))
            return false;
        snprintf(missing, CUDA_DNN_PART, "libcublasLt.so.%d", (int)(api->cudnnGetCudartVersion() / 1000));
        return opens(folder, missing);
    }
    const size_t version = api->cudnnGetVersion();
    if (version < 8300 || version >= 90000)
        return true;
    snprintf(missing, CUDA_DNN_PART, "libcudnn_ops_infer.so.8");
    if (!opens(folder, missing))
        return false;
    snprintf(missing, CUDA_DNN_PART, "libcudnn_cnn_infer.so.8");
    return opens(folder, missing);
}
