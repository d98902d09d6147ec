/* matmul in f32 on the gemm. Matrices of `other` are packed for each call, many of a batch at a time; then threads share the products of
 * all. */
#include "backends/cpu/matmul.h"

#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "core/threads.h"
#include "ops/reference.h"

#define MOST_PACKED ((size_t)8 << 20) /* bytes of a chunk of packed matrices */

/* All of a batch as rows of one product: they meet the same matrix, and are as far apart as rows. */
static bool merges(const struct cpu_matmul *p)
{
    int64_t next = p->m * p->lda;
    for (int i = p->dims.ndim - 1; i >= 0; i--) {
        if (p->dims.shape[i] == 1)
            continue;
        if (p->other_stride[i] || p->x_stride[i] != next)
            return false;
        next *= p->dims.shape[i];
    }
    return true;
}

bool cpu_matmul_of(const struct tern_op_desc *d, enum tern_dtype dtype, struct cpu_matmul *p)
{
    struct tern_product q = {.m = 0};
    if (d->in[0].dtype != dtype || d->in[1].dtype != dtype || d->out.dtype != dtype || !tern_meta_is_contiguous(&d->out) ||
        !tern_product_of(d, &q) || q.k < 1)
        return false;
    const int64_t *x = q.x.stride + q.x.ndim - 2, *other = q.other.stride + q.other.ndim - 2;
    if (q.k > 1 && x[1] != 1)
        return false;
    *p = (struct cpu_matmul){.batch = tern_meta_numel(&q.batch),
                             .m = q.m,
                             .n = q.n,
                             .k = q.k,
                             .lda = q.m > 1 ? x[0] : q.k,
                             .row = other[0],
                             .column = q.n > 1 ? other[1] : 1,
                             .dims = q.batch};
    tern_product_strides(&q, p->x_stride, p->other_stride);
    if (p->batch > 1 && merges(p)) {
        p->m *= p->batch;
        p->batch = 1;
        p->dims.ndim = 0;
    }
    return true;
}

int64_t cpu_matmul_x(const struct cpu_matmul *p, int64_t i) { return tern_offset_of(i, p->dims.ndim, p->dims.shape, p->x_stride); }
int64_t cpu_matmul_other(const struct cpu_matmul *p, int64_t i) { return tern_offset_of(i, p->dims.ndim, p->dims.shape, p->other_stride); }

int64_t cpu_matmul_chunk(struct tern_context *ctx, const struct cpu_matmul *p, size_t packed)
{
    const int64_t most = max64(packed ? (int64_t)(MOST_PACKED / packed) : p->batch, 1);
    const int64_t chunk = ceil_div(p->batch, max64(ceil_div(p->batch, most), 1)), threads = tern_thread_count(ctx);
    return chunk > threads ? min64(round_up(chunk, threads), p->batch) : chunk;
}

struct cpu_matmul_run cpu_matmul_begin(const struct tern_kernel_args *a, const struct cpu_matmul *p)
{
    char *packed = tern_arg_host(&a->workspace);
    return (struct cpu_matmul_run){.level = cpu_level(a->ctx),
                                   .p = *p,
                                   .x = tern_arg_host(&a->in[0]),
                                   .other = tern_arg_host(&a->in[1]),
                                   .out = tern_arg_host(&a->out),
                                   .packed = packed + (64 - (uintptr_t)packed % 64) % 64,
                                   .element = tern_dtype_size(a->desc->out.dtype)};
}

static void pack_task(void *arg, int64_t begin, int64_t end)
{
    const struct cpu_matmul_run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        const int64_t matrix = i / r->panels;
        const char *from = r->other + cpu_matmul_other(&r->p, r->first + matrix) * (int64_t)r->element;
        r->pack(r, from, r->packed + (size_t)matrix * r->packed_size, i % r->panels);
    }
}

void cpu_matmul_pack(struct tern_context *ctx, const struct cpu_matmul_run *r, int64_t count)
{
    const int64_t n = count * r->panels;
    tern_parallel(ctx, n, ceil_div(max64(n, 1), 2 * tern_thread_count(ctx)), pack_task, (void *)(uintptr_t)r);
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    struct cpu_matmul p;
    return cpu_matmul_of(d, TERN_F32, &p);
}

static struct cpu_gemm gemm_of(const struct cpu_matmul *p, int64_t batch)
{
    return (struct cpu_gemm){.m = p->m, .n = p->n, .k = p->k, .lda = p->lda, .b_dtype = TERN_F32, .ldc = p->n, .batch = batch};
}

static size_t packed_size(struct tern_context *ctx, const struct cpu_matmul *p)
{
    return (size_t)round_up((int64_t)cpu_packed_size(cpu_level(ctx), p->n, p->k, 4), 64);
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_matmul p;
    if (!cpu_matmul_of(d, TERN_F32, &p))
        return 0;
    const size_t packed = packed_size(ctx, &p);
    const int64_t chunk = cpu_matmul_chunk(ctx, &p, packed), rest = chunk ? p.batch % chunk : 0;
    const struct cpu_gemm all = gemm_of(&p, chunk), last = gemm_of(&p, rest);
    const size_t most = cpu_gemm_workspace(ctx, &all), least = rest ? cpu_gemm_workspace(ctx, &last) : 0;
    return (size_t)chunk * packed + (most > least ? most : least) + 64;
}

static void pack(const struct cpu_matmul_run *r, const void *other, void *packed, int64_t panel)
{
    const struct cpu_pack p = {.n = r->p.n, .k = r->p.k, .inner = r->p.k, .column = r->p.column, .within = r->p.row, .element = r->element};
    cpu_pack_panel(r->level, &p, other, packed, panel);
}

static void product(const void *products, int64_t i, struct cpu_gemm *one)
{
    const struct cpu_matmul_run *r = products;
    one->source = (const float *)(const void *)r->x + cpu_matmul_x(&r->p, r->first + i);
    one->b = r->packed + (size_t)i * r->packed_size;
    one->c = (float *)(void *)r->out + (r->first + i) * r->p.m * r->p.n;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cpu_matmul p;
    if (!cpu_matmul_of(a->desc, TERN_F32, &p))
        return TERN_OK;
    struct cpu_matmul_run r = cpu_matmul_begin(a, &p);
    r.packed_size = packed_size(a->ctx, &p);
    r.panels = cpu_panel_count(r.level, p.n);
    r.pack = pack;
    const int64_t chunk = cpu_matmul_chunk(a->ctx, &p, r.packed_size);
    for (; r.first < p.batch; r.first += chunk) {
        struct cpu_gemm g = gemm_of(&p, min64(chunk, p.batch - r.first));
        g.product = product;
        g.products = &r;
        cpu_matmul_pack(a->ctx, &r, g.batch);
        cpu_gemm_run(a->ctx, &g, r.packed + (size_t)chunk * r.packed_size);
    }
    return TERN_OK;
}

const struct tern_kernel cpu_matmul_f32_gemm = {
    .name = "matmul_f32_gemm", .revision = 2, .op = TERN_OP_matmul, .supports = supports, .workspace = workspace, .run = run};
