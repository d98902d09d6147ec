/* OpenBLAS as a candidate for matmul, found at run time. The few functions used are declared here, so that its headers
 * are not needed to build. */
#include <dlfcn.h>
#include <string.h>

#include "backends/cpu/borrow.h"
#include "backends/cpu/kernels.h"

/* cblas.h: CblasRowMajor and CblasNoTrans; int is 32 bits in Debian's build. */
enum { ROW_MAJOR = 101, NO_TRANS = 111 };
typedef void sgemm_fn(int order, int trans_a, int trans_b, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc);

struct cpu_openblas {
    void *library;
    sgemm_fn *sgemm;
    struct cpu_borrowed threads; /* of the process */
    struct cpu_borrowed openmp;  /* of the calling thread, on which a build with OpenMP runs; none in others */
    char *(*config)(void);       /* "OpenBLAS 0.3.21 … SkylakeX"; NULL: it does not tell */
};

static struct cpu_openblas *open_library(struct tern_device *device)
{
    void *library = tern_cpu_is_child() ? NULL : dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    sgemm_fn *sgemm = NULL;
    if (library)
        *(void **)&sgemm = dlsym(library, "cblas_sgemm");
    struct cpu_openblas *b = sgemm ? tern_calloc(device->ctx, 1, sizeof(*b)) : NULL;
    if (!b) {
        if (library)
            dlclose(library);
        return NULL;
    }
    b->library = library;
    b->sgemm = sgemm;
    b->threads = cpu_borrowed_find(library, "openblas_get_num_threads", "openblas_set_num_threads");
    b->openmp = cpu_borrowed_find(library, "omp_get_max_threads", "omp_set_num_threads");
    *(void **)&b->config = dlsym(library, "openblas_get_config");
    return b;
}

struct cpu_openblas *tern_cpu_openblas_open(struct tern_device *device)
{
    struct cpu_device *d = (struct cpu_device *)device;
    pthread_mutex_lock(&d->library_lock);
    if (!d->opened_openblas) {
        d->openblas = open_library(device);
        d->opened_openblas = d->openblas || !tern_failed(device->ctx); /* without memory it may be there */
    }
    pthread_mutex_unlock(&d->library_lock);
    return d->openblas;
}

void tern_cpu_openblas_close(struct cpu_device *d)
{
    /* The library itself stays: it has threads of its own that do not survive being unmapped. */
    tern_free(d->base.ctx, d->openblas);
    d->openblas = NULL;
}

static uint64_t library(struct tern_device *device)
{
    const struct cpu_openblas *b = tern_cpu_openblas_open(device);
    uint64_t h = b != NULL;
    for (const char *c = b && b->config ? b->config() : ""; *c; c++)
        h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    return h;
}

/* ---- matmul of two or more dimensions: f32, contiguous, leading dimensions equal */

static bool fits_int(int64_t n) { return n >= 0 && n < INT32_MAX; }

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0], *y = &d->in[1];
    if (x->dtype != TERN_F32 || y->dtype != TERN_F32 || x->ndim < 2 || x->ndim != y->ndim || !tern_meta_is_contiguous(x) ||
        !tern_meta_is_contiguous(y) || !tern_meta_is_contiguous(&d->out))
        return false;
    if (memcmp(x->shape, y->shape, sizeof(x->shape[0]) * (size_t)(x->ndim - 2)) || tern_meta_numel(x) == 0 || tern_meta_numel(y) == 0)
        return false;
    for (int i = x->ndim - 2; i < x->ndim; i++)
        if (!fits_int(x->shape[i]) || !fits_int(y->shape[i]))
            return false;
    return tern_cpu_openblas_open(device) != NULL;
}

static double cost(const struct tern_device *device, const struct tern_op_desc *d) { return 2; }

/* The number of threads is the process's: of one context at a time. */
static pthread_mutex_t of_process = PTHREAD_MUTEX_INITIALIZER;

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_meta *x = &a->desc->in[0], *y = &a->desc->in[1];
    int64_t m = x->shape[x->ndim - 2], k = x->shape[x->ndim - 1], n = y->shape[y->ndim - 1], batch = tern_meta_numel(x) / (m * k);
    const float *px = tern_arg_host(&a->in[0]), *py = tern_arg_host(&a->in[1]);
    float *out = tern_arg_host(&a->out);
    const struct cpu_openblas *b = cpu_device_of(a->ctx)->openblas;
    pthread_mutex_lock(&of_process);
    const int n_threads = tern_thread_count(a->ctx), openmp = cpu_borrowed_use(&b->openmp, n_threads),
              before = cpu_borrowed_use(&b->threads, n_threads);
    for (int64_t i = 0; i < batch; i++)
        b->sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, (int)m, (int)n, (int)k, 1, px + i * m * k, (int)k, py + i * k * n, (int)n, 0,
                 out + i * m * n, (int)n);
    cpu_borrowed_use(&b->threads, before); /* which sets OpenMP's, too */
    cpu_borrowed_use(&b->openmp, openmp);
    pthread_mutex_unlock(&of_process);
    return TERN_OK;
}

const struct tern_kernel tern_cpu_matmul_f32_openblas = {
    .name = "matmul_f32_openblas", .op = TERN_OP_matmul, .library = library, .supports = supports, .cost = cost, .run = run};
