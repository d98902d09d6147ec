/* matmul and linear by CLBlast, when it is there: products of dense f32 matrices. A bias, or the sum with another tensor, is written to the
 * result first, which CLBlast then adds to. */
#include "backends/opencl/clblast.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/product.h"
#include "backends/opencl/opencl.h"
#include "core/context.h"
#include "ops/kernel.h"

struct opencl_clblast {
    struct clblast_api api;
    void *library;
    bool broken; /* its kernels do not work on this device */
};

/* ---- the library ---- */

static const char *library_name(void)
{
    const char *given = getenv("TERN_CLBLAST_LIBRARY");
    return given ? given : "libclblast.so.1";
}

/* NULL: it is there. */
static const char *load(struct opencl_clblast *s)
{
    const char *missing = NULL;
    s->library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
    if (!s->library)
        return library_name();
#define LOAD(name, arguments)                                  \
    *(void **)(void *)&s->api.name = dlsym(s->library, #name); \
    missing = s->api.name ? missing : #name;
    CLBLAST_FUNCTIONS(LOAD)
#undef LOAD
    if (missing)
        dlclose(s->library);
    return missing;
}

bool tern_opencl_clblast_there(void)
{
    struct opencl_clblast s = {.library = NULL};
    bool there = !load(&s);
    if (there)
        dlclose(s.library);
    return there;
}

/* Opened when a product first asks for it; NULL when there is none. The lock is held. */
static struct opencl_clblast *clblast_of(struct opencl_device *d)
{
    if (d->clblast || d->no_clblast)
        return d->clblast;
    struct opencl_clblast *s = tern_calloc(d->gpu.base.ctx, 1, sizeof(*s));
    if (s && !load(s))
        return d->clblast = s;
    d->no_clblast = s != NULL;
    tern_free(d->gpu.base.ctx, s);
    return NULL;
}

/* CLBlast keeps programs for each context, and with them the context, until it is told to let go. */
void tern_opencl_clblast_close(struct opencl_device *d)
{
    if (!d->clblast)
        return;
    d->clblast->api.CLBlastClearCache();
    dlclose(d->clblast->library);
    tern_free(d->gpu.base.ctx, d->clblast);
    d->clblast = NULL;
}

/* ---- what it can ---- */

/* The input that is added to the product; -1: none. False when the posts are others. */
static bool addend_of(const struct tern_op_desc *d, int *addend)
{
    const struct tern_post *post = &d->post[0];
    *addend = -1;
    if (!d->n_post)
        return true;
    if (d->n_post > 1 || post->op != TERN_OP_add || post->input < 0 || !tern_gpu_same_place(&d->in[post->input], &d->out))
        return false;
    *addend = (int)post->input;
    return true;
}

/* What the result is before the product is added: the bias for each row, the addend, or their sum. False: there is nothing. */
static bool start_of(const struct tern_op_desc *d, const struct tern_gpu_product *p, struct tern_op_desc *start, int from[2])
{
    int addend = -1, n = 0;
    addend_of(d, &addend);
    memset(start, 0, sizeof(*start));
    if (addend >= 0)
        from[n++] = addend;
    if (p->bias >= 0)
        from[n++] = p->bias;
    start->op = n == 2 ? TERN_OP_add : TERN_OP_expand;
    start->n_in = n;
    start->out = d->out;
    for (int i = 0; i < n; i++) {
        start->present[i] = true;
        start->in[i] = d->in[from[i]];
    }
    return n > 0;
}

static int transpose(const struct tern_gpu_matrix *m) { return m->transposed ? CLBlastTransposeYes : CLBlastTransposeNo; }

/* Bytes that CLBlast wants at most for one of the products: 0 where its kernels for small ones serve. An operand at offset 0 may need none,
 * which holds for no other place of the arena and for no other product of a batch. */
static int temporary_of(struct opencl_device *d, const struct tern_gpu_product *p, size_t *size)
{
    *size = 0;
    return d->clblast->api.CLBlastSGemmTempBufferSize(CLBlastLayoutRowMajor, transpose(&p->a), transpose(&p->b), (size_t)p->m, (size_t)p->n,
                                                      (size_t)p->k, 1, (size_t)p->a.ld, 1, (size_t)p->b.ld, 1, (size_t)p->y.ld,
                                                      &d->commands, size);
}

static bool supports(struct tern_device *device, const struct tern_op_desc *desc)
{
    struct opencl_device *d = (struct opencl_device *)device;
    struct tern_op_desc start;
    struct tern_gpu_product p;
    int from[2];
    size_t temporary;
    if (desc->out.dtype != TERN_F32 || !tern_gpu_product_of(desc, &p))
        return false;
    if (!tern_gpu_kernels[desc->op]->supports(device, desc)) /* it serves where CLBlast does not work */
        return false;
    if (start_of(desc, &p, &start, from) && !tern_gpu_kernels[start.op]->supports(device, &start))
        return false;
    pthread_mutex_lock(&d->gpu.lock);
    bool works = clblast_of(d) && !d->clblast->broken && !temporary_of(d, &p, &temporary);
    pthread_mutex_unlock(&d->gpu.lock);
    return works;
}

static bool post(const struct tern_op_desc *d)
{
    int addend;
    return addend_of(d, &addend);
}

/* A part of the workspace becomes a buffer of its own, which begins where devices let it. As much as the text in its place needs, too. */
static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *desc)
{
    struct opencl_device *d = (struct opencl_device *)ctx->device;
    struct tern_gpu_product p;
    size_t size = 0, text = tern_gpu_kernels[desc->op]->workspace(ctx, desc);
    pthread_mutex_lock(&d->gpu.lock);
    if (tern_gpu_product_of(desc, &p) && clblast_of(d))
        temporary_of(d, &p, &size);
    pthread_mutex_unlock(&d->gpu.lock);
    size = size ? size + d->base_alignment : 0;
    return size > text ? size : text;
}

/* Of the texts: 1. It pays to open the library where products are large, on devices of their own; docs/kernel-texts.md says why. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d)
{
    struct tern_gpu_product p;
    return tern_gpu_product_of(d, &p) && p.m >= 64 && p.n >= 64 && (double)p.m * (double)p.n * (double)p.k >= (1 << 27) ? 0.5 : 2;
}
static double cost_in_software(const struct tern_device *device, const struct tern_op_desc *d) { return 2; }

/* ---- running ---- */

static cl_mem memory_of(const struct tern_arg *a) { return ((const struct opencl_buffer *)a->buffer)->memory; }
static size_t first(const struct tern_arg *a) { return a->offset / sizeof(float); }

static int multiply_one(struct opencl_device *d, const struct tern_gpu_product *p, const struct tern_kernel_args *a, float beta, int64_t i,
                        cl_mem temporary)
{
    return d->clblast->api.CLBlastSgemmWithTempBuffer(
        CLBlastLayoutRowMajor, transpose(&p->a), transpose(&p->b), (size_t)p->m, (size_t)p->n, (size_t)p->k, 1, memory_of(&a->in[0]),
        first(&a->in[0]) + (size_t)(i * p->a.batch_stride), (size_t)p->a.ld, memory_of(&a->in[1]),
        first(&a->in[1]) + (size_t)(i * p->b.batch_stride), (size_t)p->b.ld, beta, memory_of(&a->out),
        first(&a->out) + (size_t)(i * p->y.batch_stride), (size_t)p->y.ld, &d->commands, NULL, temporary);
}

/* Large products one by one through the workspace: its batches would have their temporary memory from the driver, each time. */
static int multiply(struct opencl_device *d, const struct tern_gpu_product *p, const struct tern_kernel_args *a, float beta)
{
    size_t size, align = d->base_alignment;
    cl_mem temporary = NULL;
    int status = temporary_of(d, p, &size);
    if (status || (p->batch > 1 && !size))
        return status ? status
                      : d->clblast->api.CLBlastSgemmStridedBatched(CLBlastLayoutRowMajor, transpose(&p->a), transpose(&p->b), (size_t)p->m,
                                                                   (size_t)p->n, (size_t)p->k, 1, memory_of(&a->in[0]), first(&a->in[0]),
                                                                   (size_t)p->a.ld, (size_t)p->a.batch_stride, memory_of(&a->in[1]),
                                                                   first(&a->in[1]), (size_t)p->b.ld, (size_t)p->b.batch_stride, beta,
                                                                   memory_of(&a->out), first(&a->out), (size_t)p->y.ld,
                                                                   (size_t)p->y.batch_stride, (size_t)p->batch, &d->commands, NULL);
    if (size) {
        const cl_buffer_region region = {(a->workspace.offset + align - 1) / align * align, size};
        temporary = d->cl.clCreateSubBuffer(memory_of(&a->workspace), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    }
    for (int64_t i = 0; i < p->batch && !status; i++)
        status = multiply_one(d, p, a, beta, i, temporary);
    if (temporary)
        d->cl.clReleaseMemObject(temporary); /* commands that use it keep it */
    return status;
}

/* The codes of a device on which no product of CLBlast runs. */
static bool is_lasting(int status)
{
    static const int codes[] = {CLBlastOpenCLCompilerNotAvailable, CLBlastOpenCLBuildProgramFailure, CLBlastInvalidLocalThreadsTotal,
                                CLBlastInvalidLocalThreadsDim,     CLBlastInvalidLocalMemUsage,      CLBlastDatabaseError};
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i] == status)
            return true;
    return false;
}

static enum tern_status fail(const struct tern_kernel_args *a, int status)
{
    bool memory = status == CLBlastTempBufferAllocFailure || status == CLBlastOpenCLOutOfHostMemory;
    return tern_fail(a->ctx, memory ? TERN_E_NO_MEMORY : TERN_E_DEVICE,
                     "opencl: %s: CLBlast failed with code %d; TERN_CLBLAST_LIBRARY=none leaves it out", tern_op_get(a->desc->op).name,
                     status);
}

static enum tern_status run_start(const struct tern_kernel_args *a, const struct tern_op_desc *start, const int from[2])
{
    struct tern_kernel_args b = {.desc = start, .ctx = a->ctx, .out = a->out};
    for (int i = 0; i < start->n_in; i++)
        b.in[i] = a->in[from[i]];
    return tern_gpu_kernels[start->op]->run(&b);
}

/* Where its kernels do not work on the device at all the text serves, this time and from now on. */
static enum tern_status run_locked(struct opencl_device *d, const struct tern_kernel_args *a)
{
    struct tern_op_desc start;
    struct tern_gpu_product p;
    int from[2];
    if (!tern_gpu_product_of(a->desc, &p) || !clblast_of(d))
        return tern_fail(a->ctx, TERN_E_INTERNAL, "opencl: CLBlast was asked for a product that it does not support");
    if (d->clblast->broken)
        return tern_gpu_kernels[a->desc->op]->run(a);
    bool add = start_of(a->desc, &p, &start, from);
    enum tern_status st = add ? run_start(a, &start, from) : TERN_OK;
    int status = st ? CLBlastSuccess : multiply(d, &p, a, add ? 1 : 0);
    if (!status)
        return st;
    if (!is_lasting(status))
        return fail(a, status);
    d->clblast->broken = true;
    tern_message(a->ctx, TERN_LOG_WARN, "opencl: CLBlast does not work on %s (code %d); kernel texts take its place", d->name, status);
    return tern_gpu_kernels[a->desc->op]->run(a);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct opencl_device *d = (struct opencl_device *)a->out.buffer->device;
    pthread_mutex_lock(&d->gpu.lock);
    enum tern_status st = run_locked(d, a);
    pthread_mutex_unlock(&d->gpu.lock);
    return st;
}

#define KERNEL(op_name, what)                                                                                                           \
    {                                                                                                                                   \
        .name = #op_name "_clblast", .op = TERN_OP_##op_name, .cost = what, .supports = supports, .post = post, .workspace = workspace, \
        .run = run                                                                                                                      \
    }
static const struct tern_kernel kernels[] = {KERNEL(matmul, cost), KERNEL(linear, cost)};
static const struct tern_kernel in_software[] = {KERNEL(matmul, cost_in_software), KERNEL(linear, cost_in_software)};

void tern_opencl_list_kernels(struct opencl_device *d)
{
    int n = 0;
    for (int i = 0; i < 2; i++)
        d->kernels[n++] = d->gpu.base.caps.software ? &in_software[i] : &kernels[i];
    for (int i = 0; tern_gpu_kernels[i]; i++)
        d->kernels[n++] = tern_gpu_kernels[i];
    d->gpu.base.kernels = d->kernels;
}
