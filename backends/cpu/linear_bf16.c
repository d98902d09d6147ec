/* linear in bf16: x (..., k) contiguous, weight (n, k) and bias of any floating dtype. */
#include "backends/cpu/gemm_bf16.h"
#include "backends/cpu/kernels.h"

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_BF16 && (!d->present[2] || tern_dtype_is_float(d->in[2].dtype)) && cpu_linear_fits(d);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    return cpu_post_fits(d, TERN_BF16, &rows);
}

static struct cpu_bf16_gemm linear_gemm(struct tern_context *ctx, const struct tern_op_desc *d)
{
    int64_t n = d->in[1].shape[0], k = d->in[1].shape[1];
    struct cpu_bf16_gemm g = {.m = tern_meta_numel(&d->in[0]) / k, .n = n, .k = k, .bias_dtype = d->in[2].dtype, .ldc = n};
    cpu_bf16_matrix_parts(ctx, &g);
    return g;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_bf16_gemm g = linear_gemm(ctx, d);
    return cpu_bf16_workspace(ctx, &g);
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    return cpu_bf16_packed_size(cpu_level(ctx), d->in[1].shape[0], d->in[1].shape[1]);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    struct cpu_pack p = cpu_linear_weights(d);
    cpu_bf16_pack(ctx, &p, d->in[1].dtype, src, dst);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct cpu_bf16_gemm g = linear_gemm(a->ctx, d);
    struct cpu_bf16_matrix x = {tern_arg_host(&a->in[0]), g.k};
    struct cpu_rows rows = cpu_rows_contiguous(d->out.ndim, d->out.ndim - 1);
    struct cpu_post after = cpu_post_make(a, &rows);
    g.post = after.n ? &after : NULL;
    g.source = &x;
    g.b = tern_arg_host(&a->packed);
    g.bias = d->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    g.c = tern_arg_host(&a->out);
    cpu_bf16_run(a->ctx, &g, tern_arg_host(&a->workspace));
    return TERN_OK;
}

const struct tern_kernel cpu_linear_bf16_gemm = {
    .name = "linear_bf16_gemm",
    .op = TERN_OP_linear,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};
