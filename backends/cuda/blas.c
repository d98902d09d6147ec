/* matmul and linear by cuBLASLt, when it is there: products of dense matrices of one dtype, sums in f32, with bias, tanh-GELU or the sum
 * with another tensor as epilogue. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/blas.h"
#include "backends/gpu/product.h"
#include "core/context.h"
#include "ops/kernel.h"

struct product {
    struct tern_gpu_product dense;
    cudaDataType type;
    int epilogue, addend; /* addend: input; -1: none */
};

/* None; GELU by tanh; or the sum with a tensor that lies as the result does. */
static bool posts_of(const struct tern_op_desc *d, struct product *p)
{
    const struct tern_post *post = &d->post[0];
    p->addend = -1;
    p->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (d->n_post == 1 && post->op == TERN_OP_gelu && post->value != 0)
        p->epilogue = CUBLASLT_EPILOGUE_GELU;
    else if (d->n_post == 1 && post->op == TERN_OP_add && post->input >= 0 && tern_gpu_same_place(&d->in[post->input], &d->out))
        p->addend = (int)post->input;
    else if (d->n_post)
        return false;
    if (p->dense.bias >= 0)
        p->epilogue = p->epilogue == CUBLASLT_EPILOGUE_DEFAULT ? CUBLASLT_EPILOGUE_BIAS : p->epilogue | CUBLASLT_EPILOGUE_BIAS;
    return true;
}

/* cuBLASLt of CUDA 11 adds f32's bias to some columns only when its result has one row and their distance is more
 * (https://github.com/dfyz/cublaslt-bias-epilogue). Products so small are not worth asking which one this is. */
static bool may_lose_bias(const struct product *p)
{
    return p->type == CUDA_R_32F && p->dense.bias >= 0 && p->dense.n == 1 && p->dense.y.ld > 1;
}

static bool product_of(const struct tern_op_desc *d, struct product *p)
{
    static const struct {
        enum tern_dtype dtype;
        cudaDataType type;
    } types[] = {{TERN_F32, CUDA_R_32F}, {TERN_F16, CUDA_R_16F}, {TERN_BF16, CUDA_R_16BF}};
    *p = (struct product){.type = -1};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (d->out.dtype == types[i].dtype)
            p->type = types[i].type;
    return p->type >= 0 && tern_gpu_product_of(d, &p->dense) && posts_of(d, p) && !may_lose_bias(p);
}

/* ---- what cuBLASLt chose for a description ---- */

struct cuda_blas_plan {
    struct cuda_blas_plan *next;
    struct tern_op_desc desc;
    int alignment;
    struct product product;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, y;
    cublasLtMatmulAlgo_t algorithm;
    bool works;
};

/* cuBLASLt counts columns first: memory of y (m x n) in rows is y' (n x m) there, so y' = b' a'. */
static cublasStatus_t make_layout(struct cuda_blas *s, const struct product *p, int64_t rows, int64_t cols, const struct tern_gpu_matrix *m,
                                  cublasLtMatrixLayout_t *layout)
{
    int32_t batch = (int32_t)p->dense.batch;
    uint64_t down = (uint64_t)(m->transposed ? rows : cols), across = (uint64_t)(m->transposed ? cols : rows);
    cublasStatus_t error = s->api.cublasLtMatrixLayoutCreate(layout, p->type, down, across, m->ld);
    if (error) {
        *layout = NULL;
        return error;
    }
    if (batch == 1)
        return CUBLAS_STATUS_SUCCESS;
    error = s->api.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
    return error ? error
                 : s->api.cublasLtMatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &m->batch_stride,
                                                           sizeof(m->batch_stride));
}

static cublasStatus_t make_matmul(struct cuda_blas *s, struct cuda_blas_plan *b)
{
    const struct product *p = &b->product;
    int32_t left = p->dense.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, right = p->dense.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasStatus_t error = s->api.cublasLtMatmulDescCreate(&b->matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (error) {
        b->matmul = NULL;
        return error;
    }
    error = s->api.cublasLtMatmulDescSetAttribute(b->matmul, CUBLASLT_MATMUL_DESC_TRANSA, &left, sizeof(left));
    error = error ? error : s->api.cublasLtMatmulDescSetAttribute(b->matmul, CUBLASLT_MATMUL_DESC_TRANSB, &right, sizeof(right));
    return error ? error : s->api.cublasLtMatmulDescSetAttribute(b->matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof(int32_t));
}

static cublasStatus_t choose(const struct cuda_device *d, struct cuda_blas *s, struct cuda_blas_plan *b)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
                                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    uint32_t alignment = (uint32_t)b->alignment, reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* parts of a sum stay f32 */
    uint64_t workspace = cuda_blas_workspace(d);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t result;
    int found = 0;
    cublasStatus_t error = s->api.cublasLtMatmulPreferenceCreate(&preference);
    if (error)
        return error;
    error =
        s->api.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace));
    if (!error)
        error = s->api.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction,
                                                            sizeof(reduction));
    for (int i = 0; i < 4 && !error; i++)
        error = s->api.cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof(alignment));
    memset(&result, 0, sizeof(result));
    if (!error)
        error = s->api.cublasLtMatmulAlgoGetHeuristic(s->handle, b->matmul, b->b, b->a, b->y, b->y, preference, 1, &result, &found);
    b->algorithm = result.algo;
    s->api.cublasLtMatmulPreferenceDestroy(preference);
    return error ? error : found < 1 ? CUBLAS_STATUS_NOT_SUPPORTED : result.state;
}

static void plan_free(struct cuda_device *d, struct cuda_blas_plan *b)
{
    const struct cublas_api *api = &d->blas->api;
    if (b->matmul && !d->gone)
        api->cublasLtMatmulDescDestroy(b->matmul);
    cublasLtMatrixLayout_t layouts[] = {b->a, b->b, b->y};
    for (int i = 0; i < 3; i++)
        if (layouts[i] && !d->gone)
            api->cublasLtMatrixLayoutDestroy(layouts[i]);
    tern_free(d->gpu.base.ctx, b);
}

/* The plan of a description, found or made. NULL without memory (recorded). The device is entered. */
static struct cuda_blas_plan *plan_of(struct cuda_device *d, const struct tern_op_desc *desc, const struct product *p, int alignment)
{
    struct cuda_blas *s = d->blas;
    struct cuda_blas_plan **chain = &s->plans[tern_gpu_hash((uint64_t)alignment, desc, sizeof(*desc)) % CUDA_BLAS_TABLE], *b = *chain;
    while (b && (b->alignment != alignment || memcmp(&b->desc, desc, sizeof(*desc))))
        b = b->next;
    if (b || !(b = tern_calloc(d->gpu.base.ctx, 1, sizeof(*b))))
        return b;
    b->desc = *desc;
    b->alignment = alignment;
    b->product = *p;
    const struct tern_gpu_product *q = &p->dense;
    b->works = !make_layout(s, p, q->m, q->k, &q->a, &b->a) && !make_layout(s, p, q->k, q->n, &q->b, &b->b) &&
               !make_layout(s, p, q->m, q->n, &q->y, &b->y) && !make_matmul(s, b) && !choose(d, s, b);
    b->next = *chain;
    return *chain = b;
}

/* ---- the library ---- */

static void close_library(struct cuda_blas *s)
{
    if (s->api.library)
        dlclose(s->api.library);
    memset(&s->api, 0, sizeof(s->api));
}

static bool open_one(struct cuda_blas *s, const char *file)
{
    const char *missing = NULL;
    if (!(s->api.library = tern_cuda_dlopen(file)))
        return false;
#define LOAD(name, arguments)                                      \
    *(void **)(void *)&s->api.name = dlsym(s->api.library, #name); \
    missing = s->api.name ? missing : #name;
    CUBLAS_FUNCTIONS(LOAD)
#undef LOAD
    if (!missing && !s->api.cublasLtCreate(&s->handle)) {
        size_t (*version)(void);
        *(void **)(void *)&version = dlsym(s->api.library, "cublasLtGetVersion");
        snprintf(s->name, sizeof(s->name), version ? "%s (%zu)" : "%s", file, version ? version() : 0);
        return true;
    }
    close_library(s);
    return false;
}

/* The newest that the driver runs and that works. That of CUDA 13 opens on devices below 7.5, and has nothing for them. */
static bool open_library(struct cuda_blas *s, const struct cuda_device *d)
{
    static const char *const names[] = {"libcublasLt.so.11", "libcublasLt.so.12", "libcublasLt.so.13"};
    const char *given = getenv("TERN_CUBLASLT_LIBRARY");
    const int most = d->capability < 75 ? 1 : 2, newest = d->driver / 1000 - 11;
    for (int i = newest < most ? newest : most; i >= 0; i = given ? -1 : i - 1)
        if (open_one(s, given ? given : names[i]))
            return true;
    return false;
}

/* Opened when a product or a description first asks for it. NULL when there is none, or it does not work here: then texts serve. */
static struct cuda_blas *blas_of(struct cuda_device *d)
{
    if (d->blas || d->no_blas)
        return d->blas;
    struct cuda_blas *s = tern_calloc(d->gpu.base.ctx, 1, sizeof(*s));
    if (!s)
        return NULL;
    if (open_library(s, d))
        return d->blas = s;
    d->no_blas = true;
    tern_free(d->gpu.base.ctx, s);
    return NULL;
}

void tern_cuda_blas_describe(struct cuda_device *d, char *out, size_t size)
{
    const bool entered = !tern_cuda_enter(d, NULL);
    const struct cuda_blas *s = entered ? blas_of(d) : NULL;
    snprintf(out, size, "%s", s ? s->name : "no cuBLASLt");
    if (entered)
        tern_cuda_leave(d);
}

void tern_cuda_blas_close(struct cuda_device *d)
{
    struct cuda_blas *s = d->blas;
    for (int i = 0; s && i < CUDA_BLAS_TABLE; i++)
        while (s->plans[i]) {
            struct cuda_blas_plan *b = s->plans[i];
            s->plans[i] = b->next;
            plan_free(d, b);
        }
    if (s && !d->gone)
        s->api.cublasLtDestroy(s->handle);
    if (s)
        close_library(s);
    tern_free(d->gpu.base.ctx, s);
    d->blas = NULL;
}

/* ---- kernels ---- */

static bool supports(struct tern_device *device, const struct tern_op_desc *desc)
{
    struct cuda_device *d = (struct cuda_device *)device;
    struct product p;
    if (!product_of(desc, &p) || d->no_blas || !tern_gpu_kernels[desc->op]->supports(device, desc) || tern_cuda_enter(d, NULL))
        return false;
    struct cuda_blas_plan *b = blas_of(d) ? plan_of(d, desc, &p, 16) : NULL;
    bool works = b && b->works;
    tern_cuda_leave(d);
    return works;
}

static bool post(const struct tern_op_desc *d)
{
    struct product p = {.dense = {.bias = -1}};
    return posts_of(d, &p);
}

/* As much as the text in its place needs, too. */
static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    size_t text = tern_gpu_kernels[d->op]->workspace(ctx, d),
           own = cuda_blas_workspace((struct cuda_device *)ctx->device) + CUDA_WORKSPACE_ALIGNMENT;
    return text > own ? text : own;
}
/* Of the texts: 1. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d) { return 0.5; }

static CUdeviceptr at(const struct tern_arg *a) { return a->buffer ? ((const struct cuda_buffer *)a->buffer)->at + a->offset : 0; }

/* A status of the library, not of the device: texts serve from here on. */
static void give_up(struct cuda_device *d, struct cuda_blas_plan *b, cublasStatus_t error)
{
    char shape[TERN_META_TEXT];
    b->works = false;
    if (!d->blas->warned)
        tern_message(
            d->gpu.base.ctx, TERN_LOG_WARN,
            "cuda: %s %s: cuBLASLt failed with status %d; what it fails at runs by our own kernels. TERN_CUBLASLT_LIBRARY=none leaves "
            "it out",
            tern_op_get(b->desc.op).name, tern_meta_text(&b->desc.in[0], shape), error);
    d->blas->warned = true;
}

/* The library says alike that a kernel failed and that a launch was refused: no memory for a kernel that is loaded when it is used first, a
 * call that a capture does not permit. The stream tells them apart; one that captures cannot be asked, and that run fails alone. */
static enum tern_status recover(struct cuda_device *d, struct cuda_blas_plan *b, cublasStatus_t error)
{
    const bool refused = error == CUBLAS_STATUS_EXECUTION_FAILED;
    CUresult of_stream = refused && !d->capturing ? d->cu.cuStreamSynchronize(d->stream) : CUDA_SUCCESS;
    if (of_stream)
        return tern_cuda_fail(d, "cuBLASLt", of_stream);
    give_up(d, b, error);
    if (refused && d->capturing)
        return tern_fail(d->gpu.base.ctx, TERN_E_DEVICE, "cuda: %s: cuBLASLt failed with status %d in a capture",
                         tern_op_get(b->desc.op).name, error);
    return TERN_OK;
}

static cublasStatus_t multiply(struct cuda_device *d, struct cuda_blas_plan *b, const struct tern_kernel_args *a)
{
    const float one = 1, beta = b->product.addend >= 0 ? 1 : 0;
    struct cuda_blas *s = d->blas;
    CUdeviceptr bias = b->product.dense.bias >= 0 ? at(&a->in[b->product.dense.bias]) : 0, y = at(&a->out);
    CUdeviceptr c = b->product.addend >= 0 ? at(&a->in[b->product.addend]) : y;
    cublasStatus_t error = CUBLAS_STATUS_SUCCESS;
    if (bias)
        error = s->api.cublasLtMatmulDescSetAttribute(b->matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
#define POINTER(address) ((void *)(uintptr_t)(address))
    return error ? error
                 : s->api.cublasLtMatmul(s->handle, b->matmul, &one, POINTER(at(&a->in[1])), b->b, POINTER(at(&a->in[0])), b->a, &beta,
                                         POINTER(c), b->y, POINTER(y), b->y, &b->algorithm, POINTER(cuda_workspace_at(at(&a->workspace))),
                                         a->workspace.buffer ? cuda_blas_workspace(d) : 0, d->stream);
#undef POINTER
}

/* Kernels may read a bias by 16 bytes, whatever alignment they were told of: the preferences do not cover it. */
static bool bias_fits(const struct tern_kernel_args *a, const struct product *p)
{
    return p->dense.bias < 0 || at(&a->in[p->dense.bias]) % 16 == 0;
}

/* 16 when all that is touched begins at such a multiple, else one element. */
static int alignment_of(const struct tern_kernel_args *a)
{
    CUdeviceptr bits = at(&a->out);
    for (int i = 0; i < a->desc->n_in; i++)
        bits |= a->desc->present[i] ? at(&a->in[i]) : 0;
    return bits % 16 ? (int)tern_dtype_size(a->desc->out.dtype) : 16;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cuda_device *d = (struct cuda_device *)a->out.buffer->device;
    struct product p;
    if (!product_of(a->desc, &p))
        return tern_fail(a->ctx, TERN_E_INTERNAL, "cuda: cuBLASLt was asked for a product that it does not support");
    if (tern_cuda_enter(d, "cuBLASLt"))
        return TERN_E_DEVICE;
    struct cuda_blas_plan *b = blas_of(d) ? plan_of(d, a->desc, &p, alignment_of(a)) : NULL;
    const bool here = b && b->works && bias_fits(a, &p);
    cublasStatus_t error = here ? multiply(d, b, a) : CUBLAS_STATUS_SUCCESS;
    enum tern_status st = error ? recover(d, b, error) : !b ? tern_error_status(a->ctx) : TERN_OK;
    d->captured += d->capturing && here && !error;
    tern_cuda_leave(d);
    return st || (here && !error) ? st
                                  : tern_gpu_kernels[a->desc->op]->run(a); /* memory that is aligned to less than supports() asked for */
}

const struct tern_kernel tern_cuda_matmul_cublaslt = {
    .name = "matmul_cublaslt", .op = TERN_OP_matmul, .cost = cost, .supports = supports, .post = post, .workspace = workspace, .run = run};
const struct tern_kernel tern_cuda_linear_cublaslt = {
    .name = "linear_cublaslt", .op = TERN_OP_linear, .cost = cost, .supports = supports, .post = post, .workspace = workspace, .run = run};
