/* linear and linear_geglu in bf16: x (..., k) contiguous, weight and bias of any floating dtype. */
#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/weights.h"

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_BF16 && (!d->present[2] || tern_dtype_is_float(d->in[2].dtype)) && tern_cpu_linear_fits(d);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    return tern_cpu_post_fits(d, TERN_BF16, &rows);
}

static struct cpu_dot_gemm linear_gemm(struct tern_context *ctx, const struct tern_op_desc *d)
{
    int64_t n = d->out.shape[d->out.ndim - 1], k = d->in[1].shape[1];
    struct cpu_dot_gemm g = {.m = tern_meta_numel(&d->in[0]) / k,
                             .n = n,
                             .k = k,
                             .dot = &cpu_level(ctx)->bf16.dot,
                             .bias_input = 2,
                             .stage = tern_cpu_dot_rows,
                             .lda = k,
                             .ldc = n,
                             .gated = tern_cpu_is_gated(d)};
    tern_cpu_dot_parts(ctx, &g);
    return g;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_weights w = tern_cpu_weights_bf16(ctx, d);
    struct cpu_dot_gemm g = linear_gemm(ctx, d);
    g.kept = w.bits ? &w : NULL;
    return tern_cpu_dot_workspace(ctx, &g);
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights w = tern_cpu_weights_bf16(ctx, d);
        return tern_cpu_weights_size(&w);
    }
    int64_t n = d->in[1].shape[0], columns = d->op == TERN_OP_linear_geglu ? 2 * round_up(n / 2, TERN_DOT_NR) : n;
    return tern_cpu_bf16_packed_size(cpu_level(ctx), columns, d->in[1].shape[1]);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights w = tern_cpu_weights_bf16(ctx, d);
        return tern_cpu_weights_pack(ctx, &w, &d->in[1], src, dst);
    }
    tern_cpu_bf16_pack(ctx, &d->in[1], d->op == TERN_OP_linear_geglu, src, dst);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct cpu_weights w = tern_cpu_weights_bf16(a->ctx, d);
    struct cpu_dot_gemm g = linear_gemm(a->ctx, d);
    g.kept = w.bits ? &w : NULL;
    struct cpu_rows rows = tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    g.source = tern_arg_host(&a->in[0]);
    return tern_cpu_dot_launch(a, &g, &rows, tern_arg_host(&a->workspace));
}

const struct tern_kernel tern_cpu_linear_bf16_gemm = {
    .name = "linear_bf16_gemm",
    .op = TERN_OP_linear,
    .revision = 6,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

const struct tern_kernel tern_cpu_weight_only_linear_bf16_gemm = {
    .name = "weight_only_linear_bf16_gemm",
    .op = TERN_OP_weight_only_linear,
    .revision = 4,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack_key = tern_cpu_weight_key,
    .pack = pack,
    .run = run,
};

const struct tern_kernel tern_cpu_linear_geglu_bf16_gemm = {
    .name = "linear_geglu_bf16_gemm",
    .op = TERN_OP_linear_geglu,
    .revision = 8,
    .supports = supports,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

const struct tern_kernel tern_cpu_weight_only_linear_geglu_bf16_gemm = {
    .name = "weight_only_linear_geglu_bf16_gemm",
    .op = TERN_OP_weight_only_linear_geglu,
    .revision = 7,
    .supports = supports,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack_key = tern_cpu_weight_key,
    .pack = pack,
    .run = run,
};
