/* matmul in bf16: sums in f32, one rounding. */
#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/matmul.h"

static struct cpu_dot_gemm gemm_of(struct tern_context *ctx, const struct cpu_matmul *p, int64_t batch)
{
    struct cpu_dot_gemm g = {.m = p->m,
                             .n = p->n,
                             .k = p->k,
                             .dot = &cpu_level(ctx)->bf16.dot,
                             .stage = tern_cpu_dot_rows,
                             .lda = p->lda,
                             .c_dtype = TERN_BF16,
                             .ldc = p->n,
                             .batch = batch};
    tern_cpu_dot_parts(ctx, &g);
    return g;
}

static int64_t panel_width(const struct tern_cpu_level *level) { return TERN_DOT_NR; }

static size_t packed_size(const struct tern_cpu_level *level, const struct cpu_matmul *p)
{
    return tern_cpu_bf16_packed_size(level, p->n, p->k);
}

static size_t gemm_workspace(struct tern_context *ctx, const struct cpu_matmul *p, int64_t batch)
{
    const struct cpu_dot_gemm g = gemm_of(ctx, p, batch);
    return tern_cpu_dot_workspace(ctx, &g);
}

static void product(const void *products, int64_t i, struct cpu_dot_gemm *one)
{
    one->source = tern_cpu_matmul_x(products, i);
    one->b = tern_cpu_matmul_b(products, i);
    one->c = tern_cpu_matmul_out(products, i);
}

static void multiply(struct tern_context *ctx, const struct cpu_matmul_run *r, int64_t count, void *workspace)
{
    struct cpu_dot_gemm g = gemm_of(ctx, &r->p, count);
    g.product = product;
    g.products = r;
    tern_cpu_dot_run(ctx, &g, workspace);
}

static const struct cpu_matmul_kind kind = {TERN_BF16, panel_width, packed_size, gemm_workspace, tern_cpu_bf16_pack_panel, multiply};

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    struct cpu_matmul p;
    return tern_cpu_matmul_of(d, TERN_BF16, &p);
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return tern_cpu_matmul_workspace(ctx, d, &kind); }
static enum tern_status run(const struct tern_kernel_args *a) { return tern_cpu_matmul_launch(a, &kind); }

const struct tern_kernel tern_cpu_matmul_bf16_gemm = {
    .name = "matmul_bf16_gemm", .revision = 4, .op = TERN_OP_matmul, .supports = supports, .workspace = workspace, .run = run};
