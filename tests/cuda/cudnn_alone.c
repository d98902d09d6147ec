/* libcudnn.so.9 as it is without the libraries that it opens: a function that is called before they are open ends the process. And, by
 * another name, the first of them. */
#include <dlfcn.h>
#include <stdlib.h>

#include "backends/cuda/cudnn.h"
#include "tests/cuda/standin.h"

/* Version 9.90, of CUDA 99: no machine has its cuBLASLt. */
static size_t answer(const char *needed)
{
    void *library = dlopen(needed, RTLD_LAZY | RTLD_NOLOAD);
    if (!library)
        abort();
    dlclose(library);
    return 99000;
}

/* Versions need the first; all others stand for planning, which needs cuBLASLt. */
#define FUNCTION(type, name, arguments) \
    STANDIN_API type name arguments;    \
    type name arguments { return (type)answer(_Generic((type)0, size_t : "libcudnn_graph.so.9", default : "libcublasLt.so.99")); }
CUDNN_FUNCTIONS(FUNCTION)
FUNCTION(size_t, cudnnGraphVersionCheck, (void))
