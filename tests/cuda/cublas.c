/* A stand-in for cuBLASLt: checks descriptors as the library does, and multiplies on the host, in the order of the stream. */
#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cublas.h"
#include "tests/cuda/element.h"
#include "tests/cuda/inside.h"

#define DECLARE(name, arguments) STANDIN_API cublasStatus_t name arguments;
CUBLAS_FUNCTIONS(DECLARE)
#undef DECLARE

struct cublasLtContext {
    __typeof__(standin_launch_host) *launch;
    __typeof__(standin_holds) *holds;
};
struct cublasLtMatmulDescOpaque {
    int32_t trans_a, trans_b, epilogue;
    const void *bias;
};
struct cublasLtMatrixLayoutOpaque {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld, batch_stride;
    int32_t batch;
};
struct cublasLtMatmulPreferenceOpaque {
    uint64_t workspace;
    uint32_t alignment[4], reduction;
};

static int live, products, refusals;
static cublasStatus_t next_error;

int standin_blas_live(void) { return live; }
int standin_blas_products(void) { return products; }
int standin_blas_refusals(void) { return refusals; }
void standin_blas_fail(int error) { next_error = error; }

static void *make(size_t size)
{
    live++;
    return calloc(1, size);
}

static cublasStatus_t drop(void *object)
{
    live -= object != NULL;
    free(object);
    return object ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    const char *path = getenv("TERN_CUDA_LIBRARY");
    void *driver = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    if (!driver)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = make(sizeof(**handle));
    *(void **)(void *)&(*handle)->launch = dlsym(driver, "standin_launch_host");
    *(void **)(void *)&(*handle)->holds = dlsym(driver, "standin_holds");
    dlclose(driver);
    return (*handle)->launch && (*handle)->holds ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return drop(handle); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *desc = make(sizeof(**desc));
    (*desc)->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return drop(desc); }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t what, const void *value,
                                              size_t size)
{
    bool pointer = what == CUBLASLT_MATMUL_DESC_BIAS_POINTER;
    void *to = what == CUBLASLT_MATMUL_DESC_TRANSA     ? (void *)&desc->trans_a
               : what == CUBLASLT_MATMUL_DESC_TRANSB   ? (void *)&desc->trans_b
               : what == CUBLASLT_MATMUL_DESC_EPILOGUE ? (void *)&desc->epilogue
               : pointer                               ? (void *)&desc->bias
                                                       : NULL;
    if (!to || size != (pointer ? sizeof(void *) : sizeof(int32_t)))
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if (!rows || !cols || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *layout = make(sizeof(**layout));
    **layout = (struct cublasLtMatrixLayoutOpaque){.type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return drop(layout); }

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t what, const void *value,
                                                size_t size)
{
    if (what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && size == sizeof(int32_t))
        memcpy(&layout->batch, value, size);
    else if (what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && size == sizeof(int64_t))
        memcpy(&layout->batch_stride, value, size);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    *preference = make(sizeof(**preference));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return drop(preference); }

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t size)
{
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && size == sizeof(uint64_t))
        memcpy(&preference->workspace, value, size);
    else if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && size == 4)
        memcpy(&preference->reduction, value, size);
    else if (what >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES && what <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && size == 4)
        memcpy(&preference->alignment[what - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, size);
    else
        return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

static enum element element(cudaDataType type)
{
    return type == CUDA_R_32F ? ELEMENT_F32 : type == CUDA_R_16F ? ELEMENT_F16 : ELEMENT_BF16;
}

/* Sizes, types and batches of the four fit together. */
static bool fits(cublasLtMatmulDesc_t m, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                 cublasLtMatrixLayout_t d)
{
    uint64_t a_rows = m->trans_a ? a->cols : a->rows, a_cols = m->trans_a ? a->rows : a->cols;
    uint64_t b_rows = m->trans_b ? b->cols : b->rows, b_cols = m->trans_b ? b->rows : b->cols;
    return a_rows == d->rows && b_cols == d->cols && a_cols == b_rows && a->type == b->type && a->type == d->type && c->type == d->type &&
           c->rows == d->rows && c->cols == d->cols && a->batch == d->batch && b->batch == d->batch && c->batch == d->batch;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
                                              int *found)
{
    int32_t plain = desc->epilogue & ~(CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_GELU);
    *found = 0;
    if (preference->reduction != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) /* others sum parts in 16 bits */
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (wanted < 1 || !fits(desc, a, b, c, d) || (plain && desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT))
        return CUBLAS_STATUS_INVALID_VALUE;
    results[0] = (cublasLtMatmulHeuristicResult_t){.workspaceSize = preference->workspace, .state = CUBLAS_STATUS_SUCCESS};
    for (int i = 0; i < 4; i++) /* what the pointers must be multiples of */
        results[0].algo.data[i] = preference->alignment[i];
    results[0].algo.data[4] = preference->workspace;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- the product ---- */

struct call {
    struct cublasLtMatmulDescOpaque desc;
    struct cublasLtMatrixLayoutOpaque a, b, c, d;
    float alpha, beta;
};

static float gelu(float v) { return 0.5f * v * (1 + tanhf(0.7978845608028654f * (v + 0.044715f * v * v * v))); }

/* Arguments: the call, a, b, c, bias, d. */
static void multiply(void **arguments)
{
    const struct call *q = arguments[0];
    const void *a = *(void **)arguments[1], *b = *(void **)arguments[2], *c = *(void **)arguments[3], *bias = *(void **)arguments[4];
    void *d = *(void **)arguments[5];
    int64_t k = (int64_t)(q->desc.trans_a ? q->a.rows : q->a.cols);
    for (int64_t batch = 0; batch < q->d.batch; batch++)
        for (int64_t col = 0; col < (int64_t)q->d.cols; col++)
            for (int64_t row = 0; row < (int64_t)q->d.rows; row++) {
                double sum = 0;
                for (int64_t i = 0; i < k; i++)
                    sum += (double)element_load(a, element(q->a.type),
                                                batch * q->a.batch_stride + (q->desc.trans_a ? row * q->a.ld + i : i * q->a.ld + row)) *
                           (double)element_load(b, element(q->b.type),
                                                batch * q->b.batch_stride + (q->desc.trans_b ? i * q->b.ld + col : col * q->b.ld + i));
                int64_t at = batch * q->d.batch_stride + col * q->d.ld + row;
                float v = q->alpha * (float)sum;
                if (q->beta != 0)
                    v += q->beta * element_load(c, element(q->c.type), batch * q->c.batch_stride + col * q->c.ld + row);
                if (q->desc.epilogue & CUBLASLT_EPILOGUE_BIAS)
                    v += element_load(bias, element(q->d.type), row);
                element_store(d, element(q->d.type), at, q->desc.epilogue & CUBLASLT_EPILOGUE_GELU ? gelu(v) : v);
            }
}

static bool holds(cublasLtHandle_t handle, const void *at, const struct cublasLtMatrixLayoutOpaque *l, uint64_t alignment)
{
    int64_t last = (l->batch - 1) * l->batch_stride + (int64_t)(l->cols - 1) * l->ld + (int64_t)l->rows;
    return (uintptr_t)at % (alignment ? alignment : 1) == 0 && handle->holds((uintptr_t)at, (size_t)last * element_size(element(l->type)));
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_size, cudaStream_t stream)
{
    struct call q = {*desc, *a_layout, *b_layout, *c_layout, *d_layout, *(const float *)alpha, *(const float *)beta};
    const void *bias = desc->epilogue & CUBLASLT_EPILOGUE_BIAS ? desc->bias : a;
    const uint64_t *alignment = algorithm->data;
    static const struct standin_kernel kernel = {.n_arguments = 6,
                                                 .arguments = {{sizeof(struct call), STANDIN_VALUE, 0},
                                                               {8, STANDIN_READS, 1},
                                                               {8, STANDIN_READS, 1},
                                                               {8, STANDIN_READS, 1},
                                                               {8, STANDIN_READS, 1},
                                                               {8, STANDIN_WRITES, 1}},
                                                 .invoke = multiply};
    cublasStatus_t error = next_error;
    next_error = CUBLAS_STATUS_SUCCESS;
    if (error)
        return error;
    if (!fits(desc, a_layout, b_layout, c_layout, d_layout) || !holds(handle, a, a_layout, alignment[0]) ||
        !holds(handle, b, b_layout, alignment[1]) || !holds(handle, c, c_layout, alignment[2]) ||
        !holds(handle, d, d_layout, alignment[3]) ||
        !handle->holds((uintptr_t)bias, d_layout->rows * element_size(element(d_layout->type))) || workspace_size < alignment[4] ||
        (desc->epilogue & CUBLASLT_EPILOGUE_BIAS && (uintptr_t)bias % 16) || /* of which nobody told: kernels read 16 bytes at once */
        (workspace_size && ((uintptr_t)workspace % 256 || !handle->holds((uintptr_t)workspace, workspace_size)))) {
        refusals++;
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    products++;
    return handle->launch(stream, &kernel, (void *[]){&q, &a, &b, &c, &bias, &d}) ? CUBLAS_STATUS_EXECUTION_FAILED : CUBLAS_STATUS_SUCCESS;
}
