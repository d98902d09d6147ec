/* cuBLASLt as a candidate for products. */
#ifndef TERN_BACKENDS_CUDA_BLAS_H
#define TERN_BACKENDS_CUDA_BLAS_H

#include "backends/cuda/cublas.h"
#include "backends/cuda/cuda.h"

enum { CUDA_BLAS_TABLE = 256 };

/* Bytes of workspace that its algorithms may ask for: what NVIDIA recommends. */
static inline size_t cuda_blas_workspace(const struct cuda_device *d) { return (size_t)(d->capability >= 90 ? 32 : 4) << 20; }

struct cuda_blas {
    struct cublas_api api;
    cublasLtHandle_t handle;
    char name[240];                                /* of the library's file, and its version */
    bool warned;                                   /* that it failed */
    struct cuda_blas_plan *plans[CUDA_BLAS_TABLE]; /* chains, by description */
};

/* The file of the library that serves, or that there is none. Opens it. */
void tern_cuda_blas_describe(struct cuda_device *d, char *out, size_t size);

extern const struct tern_kernel tern_cuda_matmul_cublaslt, tern_cuda_linear_cublaslt;

#endif
