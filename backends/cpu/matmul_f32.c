/* matmul in f32. */
#include "backends/cpu/kernels.h"
#include "backends/cpu/matmul.h"

static struct cpu_gemm gemm_of(const struct cpu_matmul *p, int64_t batch)
{
    return (struct cpu_gemm){.m = p->m, .n = p->n, .k = p->k, .lda = p->lda, .b_dtype = TERN_F32, .ldc = p->n, .batch = batch};
}

static int64_t panel_width(const struct tern_cpu_level *level) { return level->nr; }

static size_t packed_size(const struct tern_cpu_level *level, const struct cpu_matmul *p)
{
    return tern_cpu_packed_size(level, p->n, p->k, sizeof(float));
}

static size_t gemm_workspace(struct tern_context *ctx, const struct cpu_matmul *p, int64_t batch)
{
    const struct cpu_gemm g = gemm_of(p, batch);
    return tern_cpu_gemm_workspace(ctx, &g);
}

static void product(const void *products, int64_t i, struct cpu_gemm *one)
{
    one->source = tern_cpu_matmul_x(products, i);
    one->b = tern_cpu_matmul_b(products, i);
    one->c = tern_cpu_matmul_out(products, i);
}

static void multiply(struct tern_context *ctx, const struct cpu_matmul_run *r, int64_t count, void *workspace)
{
    struct cpu_gemm g = gemm_of(&r->p, count);
    g.product = product;
    g.products = r;
    tern_cpu_gemm_run(ctx, &g, workspace);
}

static const struct cpu_matmul_kind kind = {TERN_F32, panel_width, packed_size, gemm_workspace, tern_cpu_pack_panel, multiply};

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    struct cpu_matmul p;
    return tern_cpu_matmul_of(d, TERN_F32, &p);
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d) { return tern_cpu_matmul_workspace(ctx, d, &kind); }
static enum tern_status run(const struct tern_kernel_args *a) { return tern_cpu_matmul_launch(a, &kind); }

const struct tern_kernel tern_cpu_matmul_f32_gemm = {
    .name = "matmul_f32_gemm", .revision = 2, .op = TERN_OP_matmul, .supports = supports, .workspace = workspace, .run = run};
