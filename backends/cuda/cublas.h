/* What is used of cuBLASLt: types, values and functions as cublasLt.h publishes them. tests/cuda/check_types.c compares them. */
#ifndef TERN_BACKENDS_CUDA_CUBLAS_H
#define TERN_BACKENDS_CUDA_CUBLAS_H

#include <stddef.h>
#include <stdint.h>

#include "backends/cuda/driver.h"

/* clang-format off */
#define CUBLAS_VALUES(V) \
    V(CUBLAS_STATUS_SUCCESS, 0) V(CUBLAS_STATUS_NOT_INITIALIZED, 1) V(CUBLAS_STATUS_ALLOC_FAILED, 3) V(CUBLAS_STATUS_INVALID_VALUE, 7) \
    V(CUBLAS_STATUS_EXECUTION_FAILED, 13) V(CUBLAS_STATUS_NOT_SUPPORTED, 15) V(CUBLAS_OP_N, 0) V(CUBLAS_OP_T, 1) V(CUDA_R_32F, 0) \
    V(CUDA_R_16F, 2) V(CUDA_R_16BF, 14) V(CUBLAS_COMPUTE_32F, 68) V(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5) \
    V(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6) V(CUBLASLT_MATMUL_DESC_TRANSA, 3) V(CUBLASLT_MATMUL_DESC_TRANSB, 4) \
    V(CUBLASLT_MATMUL_DESC_EPILOGUE, 7) V(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8) V(CUBLASLT_EPILOGUE_DEFAULT, 1) \
    V(CUBLASLT_EPILOGUE_BIAS, 4) V(CUBLASLT_EPILOGUE_GELU, 32) V(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1) \
    V(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3) V(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2) \
    V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5) V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6) \
    V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7) V(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUBLAS_FUNCTIONS(F) \
    F(cublasLtCreate, (cublasLtHandle_t *handle)) \
    F(cublasLtDestroy, (cublasLtHandle_t handle)) \
    F(cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)) \
    F(cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc)) \
    F(cublasLtMatmulDescSetAttribute, (cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const void *value, size_t size)) \
    F(cublasLtMatrixLayoutCreate, (cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)) \
    F(cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout)) \
    F(cublasLtMatrixLayoutSetAttribute, (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what, const void *value, size_t size)) \
    F(cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t *preference)) \
    F(cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference)) \
    F(cublasLtMatmulPreferenceSetAttribute, (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what, \
                                             const void *value, size_t size)) \
    F(cublasLtMatmulAlgoGetHeuristic, (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, \
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted, \
                                       cublasLtMatmulHeuristicResult_t results[], int *found)) \
    F(cublasLtMatmul, (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout, \
                       const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, \
                       void *d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algorithm, void *workspace, \
                       size_t workspace_size, cudaStream_t stream))
/* clang-format on */

#ifndef CUBLAS_VER_MAJOR /* cublasLt.h was not included before */
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType_t, cudaDataType, cublasLtMatmulDescAttributes_t,
    cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque *cublasLtMatmulPreference_t;
typedef CUstream cudaStream_t;
typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;
typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;
#define VALUE(name, value) name = value,
enum { CUBLAS_VALUES(VALUE) };
#undef VALUE
#endif

struct cublas_api {
    void *library;
#define MEMBER(name, arguments) cublasStatus_t(*name) arguments;
    CUBLAS_FUNCTIONS(MEMBER)
#undef MEMBER
};

#endif
