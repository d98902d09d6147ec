/* matmul in bf16: sums in f32, one rounding. */
#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/matmul.h"

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    struct cpu_matmul p;
    return cpu_matmul_of(d, TERN_BF16, &p);
}

static struct cpu_dot_gemm gemm_of(struct tern_context *ctx, const struct cpu_matmul *p, int64_t batch)
{
    struct cpu_dot_gemm g = {.m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .dot = &cpu_level(ctx)->bf16.dot,
                             .stage = cpu_dot_rows,
                             .lda = p->lda,
                             .c_dtype = TERN_BF16,
                             .ldc = p->n,
                             .batch = batch};
    cpu_dot_parts(ctx, &g);
    return g;
}

static size_t packed_size(struct tern_context *ctx, const struct cpu_matmul *p)
{
    return (size_t)round_up((int64_t)cpu_bf16_packed_size(cpu_level(ctx), p->n, p->k), 64);
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_matmul p;
    if (!cpu_matmul_of(d, TERN_BF16, &p))
        return 0;
    const size_t packed = packed_size(ctx, &p);
    const int64_t chunk = cpu_matmul_chunk(ctx, &p, packed), rest = chunk ? p.batch % chunk : 0;
    const struct cpu_dot_gemm all = gemm_of(ctx, &p, chunk), last = gemm_of(ctx, &p, rest);
    const size_t most = cpu_dot_workspace(ctx, &all), least = rest ? cpu_dot_workspace(ctx, &last) : 0;
    return (size_t)chunk * packed + (most > least ? most : least) + 64;
}

static void pack(const struct cpu_matmul_run *r, const void *other, void *packed, int64_t panel)
{
    const struct cpu_pack p = {.n = r->p.n, .k = r->p.k, .inner = r->p.k, .column = r->p.column, .within = r->p.row, .element = r->element};
    cpu_bf16_pack_panel(r->level, &p, other, packed, panel);
}

static void product(const void *products, int64_t i, struct cpu_dot_gemm *one)
{
    const struct cpu_matmul_run *r = products;
    one->source = (const uint16_t *)(const void *)r->x + cpu_matmul_x(&r->p, r->first + i);
    one->b = r->packed + (size_t)i * r->packed_size;
    one->c = (uint16_t *)(void *)r->out + (r->first + i) * r->p.m * r->p.n;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    struct cpu_matmul p;
    if (!cpu_matmul_of(a->desc, TERN_BF16, &p))
        return TERN_OK;
    struct cpu_matmul_run r = cpu_matmul_begin(a, &p);
    r.packed_size = packed_size(a->ctx, &p);
    r.panels = ceil_div(p.n, TERN_DOT_NR);
    r.pack = pack;
    const int64_t chunk = cpu_matmul_chunk(a->ctx, &p, r.packed_size);
    for (; r.first < p.batch; r.first += chunk) {
        struct cpu_dot_gemm g = gemm_of(a->ctx, &p, min64(chunk, p.batch - r.first));
        g.product = product;
        g.products = &r;
        cpu_matmul_pack(a->ctx, &r, g.batch);
        cpu_dot_run(a->ctx, &g, r.packed + (size_t)chunk * r.packed_size);
    }
    return TERN_OK;
}

const struct tern_kernel cpu_matmul_bf16_gemm = {
    .name = "matmul_bf16_gemm", .op = TERN_OP_matmul, .supports = supports, .workspace = workspace, .run = run};
