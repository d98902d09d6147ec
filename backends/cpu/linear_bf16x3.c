/* linear and linear_geglu in f32 by pieces of bf16 (level/bf16x3.h); weights as linear_f32_gemm has them. */
#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/kernels.h"

static int stage(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces)
{
    int64_t k0;
    tern_cpu_dot_range(g, part, &k0);
    return tern_cpu_dot_split(g, rows, part, (const float *)g->source + row0 * g->k + k0, g->k, scratch, pieces);
}

static struct cpu_dot_gemm linear_gemm(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t n = d->out.shape[d->out.ndim - 1], k = d->in[1].shape[1];
    struct cpu_dot_gemm g = {.m = tern_meta_numel(&d->in[0]) / k,
                             .n = n,
                             .k = k,
                             .split = &cpu_level(ctx)->bf16x3,
                             .dot = &cpu_level(ctx)->bf16x3.dot,
                             .b_dtype = d->in[1].dtype,
                             .bias_input = 2,
                             .stage = stage,
                             .ldc = n,
                             .gated = tern_cpu_is_gated(d)};
    tern_cpu_dot_parts(ctx, &g);
    return g;
}

/* Blocks of rows are always whole, and weights are split for each: with few rows f32 is faster. How many there are in a batch has no say,
 * so that each of it has the same bits alone. */
static double cost(const struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_meta *x = &d->in[0];
    int64_t rows = 1;
    for (int i = x->ndim > 2 ? 1 : 0; i < x->ndim - 1; i++)
        rows *= x->shape[i];
    return rows < TERN_DOT_ROWS ? 2 : 0.5;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_dot_gemm g = linear_gemm(ctx, d);
    return tern_cpu_dot_workspace(ctx, &g);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct cpu_dot_gemm g = linear_gemm(a->ctx, d);
    struct cpu_rows rows = tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    g.source = tern_arg_host(&a->in[0]);
    return tern_cpu_dot_launch(a, &g, &rows, tern_arg_host(&a->workspace));
}

const struct tern_kernel tern_cpu_linear_f32_bf16x3 = {
    .name = "linear_f32_bf16x3",
    .revision = 2,
    .op = TERN_OP_linear,
    .cost = cost,
    .supports = tern_cpu_linear_supports_f32,
    .post = tern_cpu_linear_post_f32,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_linear_packed_size,
    .pack = tern_cpu_linear_pack,
    .run = run,
};

const struct tern_kernel tern_cpu_linear_geglu_f32_bf16x3 = {
    .name = "linear_geglu_f32_bf16x3",
    .revision = 2,
    .op = TERN_OP_linear_geglu,
    .cost = cost,
    .supports = tern_cpu_linear_supports_f32,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_linear_packed_size,
    .pack = tern_cpu_linear_pack,
    .run = run,
};
