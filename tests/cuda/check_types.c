/* Compares backends/cuda/driver.h, cublas.h and cudnn.h with the headers of the toolkit, where the build finds them. Compiled, never run. */
#include <cuda.h>
#include <nvrtc.h>

#include "backends/cuda/driver.h"

#define CHECK(name, value) _Static_assert((int)name == value, #name);
CUDA_VALUES(CHECK)
#undef CHECK

/* cuda.h maps names to those of the library, as in the list. */
#define CHECK(name, arguments) _Static_assert(__builtin_types_compatible_p(CUresult(*) arguments, __typeof__(&name)), #name);
CUDA_FUNCTIONS(CHECK)
CUDA_LATER_FUNCTIONS(CHECK)
#undef CHECK
_Static_assert(sizeof(CUmemPoolProps) == 88 && offsetof(CUmemPoolProps, location.id) == 12, "CUmemPoolProps");
#define CHECK(name, arguments) _Static_assert(__builtin_types_compatible_p(nvrtcResult(*) arguments, __typeof__(&name)), #name);
NVRTC_FUNCTIONS(CHECK)
#undef CHECK

#ifdef TERN_HAVE_CUBLASLT_H
#include <cublasLt.h>

#include "backends/cuda/cublas.h"

#define CHECK(name, value) _Static_assert((int)name == value, #name);
CUBLAS_VALUES(CHECK)
#undef CHECK
#define CHECK(name, arguments) _Static_assert(__builtin_types_compatible_p(cublasStatus_t(*) arguments, __typeof__(&name)), #name);
CUBLAS_FUNCTIONS(CHECK)
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96, "cublasLtMatmulHeuristicResult_t");
#endif

#ifdef TERN_HAVE_CUDNN_H
#undef CHECK
#include <cudnn.h>

#include "backends/cuda/cudnn.h"

#define CHECK(name, value) _Static_assert((int)name == value, #name);
CUDNN_VALUES(CHECK)
#undef CHECK
#define CHECK(type, name, arguments) _Static_assert(__builtin_types_compatible_p(type(*) arguments, __typeof__(&name)), #name);
CUDNN_FUNCTIONS(CHECK)
#endif
