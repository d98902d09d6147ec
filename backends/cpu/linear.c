/* linear and linear_geglu on the gemm: weights are packed once. */
#include "backends/cpu/gemm.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/weights.h"

/* x (..., k) f32 contiguous, weight (n, k) in any floating dtype, bias f32. linear_geglu: weight (2 n, k), bias (2 n) */

bool tern_cpu_is_gated(const struct tern_op_desc *d) { return d->op == TERN_OP_linear_geglu || d->op == TERN_OP_weight_only_linear_geglu; }

bool tern_cpu_linear_fits(const struct tern_op_desc *d)
{
    return tern_meta_is_contiguous(&d->in[0]) && tern_dtype_is_float(d->in[1].dtype) && tern_meta_is_contiguous(&d->in[1]) &&
           (!d->present[2] || tern_meta_is_contiguous(&d->in[2])) && tern_meta_is_contiguous(&d->out) && d->in[1].shape[1] > 0;
}

bool tern_cpu_linear_supports_f32(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && (!d->present[2] || d->in[2].dtype == TERN_F32) && tern_cpu_linear_fits(d);
}

bool tern_cpu_linear_post_f32(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    return tern_cpu_post_fits(d, TERN_F32, &rows);
}

static struct cpu_gemm linear_gemm(const struct tern_op_desc *d)
{
    int64_t n = d->out.shape[d->out.ndim - 1], k = d->in[1].shape[1];
    return (struct cpu_gemm){.m = k ? tern_meta_numel(&d->in[0]) / k : 0,
                             .n = n,
                             .k = k,
                             .lda = k,
                             .b_dtype = d->in[1].dtype,
                             .ldc = n,
                             .gated = tern_cpu_is_gated(d)};
}

static size_t linear_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_weights w = tern_cpu_weights_f32(ctx, d);
    struct cpu_gemm g = linear_gemm(d);
    g.kept = w.bits ? &w : NULL;
    return tern_cpu_gemm_workspace(ctx, &g);
}

size_t tern_cpu_linear_packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_cpu_level *l = cpu_level(ctx);
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights w = tern_cpu_weights_f32(ctx, d);
        return tern_cpu_weights_size(&w);
    }
    int64_t n = d->in[1].shape[0], columns = d->op == TERN_OP_linear_geglu ? 2 * round_up(n / 2, l->nr) : n;
    return tern_cpu_packed_size(l, columns, d->in[1].shape[1], tern_dtype_size(d->in[1].dtype));
}

static struct cpu_pack linear_weights(const struct tern_op_desc *d)
{
    int64_t k = d->in[1].shape[1];
    return (struct cpu_pack){.n = d->out.shape[d->out.ndim - 1],
                             .k = k,
                             .inner = k,
                             .column = k,
                             .within = 1,
                             .element = tern_dtype_size(d->in[1].dtype),
                             .gated = tern_cpu_is_gated(d)};
}

enum tern_status tern_cpu_linear_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights w = tern_cpu_weights_f32(ctx, d);
        return tern_cpu_weights_pack(ctx, &w, &d->in[1], src, dst);
    }
    struct cpu_pack p = linear_weights(d);
    tern_cpu_pack_b(ctx, &p, src, dst, NULL, NULL);
    return TERN_OK;
}

static enum tern_status linear_run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct cpu_weights w = tern_cpu_weights_f32(a->ctx, d);
    struct cpu_gemm g = linear_gemm(d);
    g.kept = w.bits ? &w : NULL;
    struct cpu_rows rows = tern_cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    g.source = tern_arg_host(&a->in[0]);
    return tern_cpu_gemm_launch(a, &g, &rows);
}

const struct tern_kernel tern_cpu_linear_f32_gemm = {
    .name = "linear_f32_gemm",
    .revision = 1,
    .op = TERN_OP_linear,
    .supports = tern_cpu_linear_supports_f32,
    .post = tern_cpu_linear_post_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_linear_packed_size,
    .pack = tern_cpu_linear_pack,
    .run = linear_run,
};

const struct tern_kernel tern_cpu_weight_only_linear_f32_gemm = {
    .name = "weight_only_linear_f32_gemm",
    .op = TERN_OP_weight_only_linear,
    .supports = tern_cpu_linear_supports_f32,
    .post = tern_cpu_linear_post_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_linear_packed_size,
    .pack_key = tern_cpu_weight_key,
    .pack = tern_cpu_linear_pack,
    .run = linear_run,
};

const struct tern_kernel tern_cpu_linear_geglu_f32_gemm = {
    .name = "linear_geglu_f32_gemm",
    .revision = 2,
    .op = TERN_OP_linear_geglu,
    .supports = tern_cpu_linear_supports_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_linear_packed_size,
    .pack = tern_cpu_linear_pack,
    .run = linear_run,
};

const struct tern_kernel tern_cpu_weight_only_linear_geglu_f32_gemm = {
    .name = "weight_only_linear_geglu_f32_gemm",
    .revision = 1,
    .op = TERN_OP_weight_only_linear_geglu,
    .supports = tern_cpu_linear_supports_f32,
    .workspace = linear_workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_linear_packed_size,
    .pack_key = tern_cpu_weight_key,
    .pack = tern_cpu_linear_pack,
    .run = linear_run,
};
