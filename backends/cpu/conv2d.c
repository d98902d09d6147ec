/* conv2d in f32 as an implicit GEMM on channels-last pictures. Patches are gathered block by block; there is no im2col buffer. */
#include "backends/cpu/kernels.h"
#include "backends/cpu/patches.h"
#include "backends/cpu/weights.h"

static void gather_patches(const struct cpu_gemm *g, int64_t row0, int64_t rows, int64_t k0, int64_t kc, float *dst, int64_t ld)
{
    tern_cpu_picture_gather(g->source, row0, rows, k0, kc, dst, ld);
}

bool tern_cpu_conv2d_supports_f32(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && (!d->present[2] || d->in[2].dtype == TERN_F32) && tern_cpu_picture_fits(d);
}

bool tern_cpu_conv2d_post_f32(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    return tern_cpu_post_fits(d, TERN_F32, &rows);
}

static struct cpu_gemm conv_gemm(const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape, *o = d->out.shape;
    return (struct cpu_gemm){
        .m = o[0] * o[2] * o[3], .n = w[0], .k = w[1] * w[2] * w[3], .gather = gather_patches, .b_dtype = d->in[1].dtype, .ldc = w[0]};
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_weights kept = tern_cpu_weights_f32(ctx, d);
    struct cpu_gemm g = conv_gemm(d);
    g.kept = kept.bits ? &kept : NULL;
    return tern_cpu_gemm_workspace(ctx, &g);
}

size_t tern_cpu_conv2d_packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights kept = tern_cpu_weights_f32(ctx, d);
        return tern_cpu_weights_size(&kept);
    }
    return tern_cpu_packed_size(cpu_level(ctx), w[0], w[1] * w[2] * w[3], tern_dtype_size(d->in[1].dtype));
}

enum tern_status tern_cpu_conv2d_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights kept = tern_cpu_weights_f32(ctx, d);
        return tern_cpu_weights_pack(ctx, &kept, &d->in[1], src, dst);
    }
    struct cpu_pack p = tern_cpu_picture_weights(d);
    tern_cpu_pack_b(ctx, &p, src, dst, NULL, NULL);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct cpu_weights kept = tern_cpu_weights_f32(a->ctx, d);
    struct cpu_gemm g = conv_gemm(d);
    g.kept = kept.bits ? &kept : NULL;
    struct cpu_picture s = tern_cpu_picture_make(d, tern_arg_host(&a->in[0]));
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    g.source = &s;
    return tern_cpu_gemm_launch(a, &g, &rows);
}

const struct tern_kernel tern_cpu_conv2d_f32_igemm = {
    .name = "conv2d_f32_igemm",
    .revision = 1,
    .op = TERN_OP_conv2d,
    .supports = tern_cpu_conv2d_supports_f32,
    .post = tern_cpu_conv2d_post_f32,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_conv2d_packed_size,
    .pack = tern_cpu_conv2d_pack,
    .run = run,
};

const struct tern_kernel tern_cpu_weight_only_conv2d_f32_igemm = {
    .name = "weight_only_conv2d_f32_igemm",
    .op = TERN_OP_weight_only_conv2d,
    .supports = tern_cpu_conv2d_supports_f32,
    .post = tern_cpu_conv2d_post_f32,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_conv2d_packed_size,
    .pack_key = tern_cpu_weight_key,
    .pack = tern_cpu_conv2d_pack,
    .run = run,
};
