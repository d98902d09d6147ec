/* conv2d as an implicit GEMM on channels-last pictures: row = output pixel, column = output channel, depth = tap x input
 * channel. Patches are gathered block by block; there is no im2col buffer. */
#include <string.h>

#include "backends/cpu/gemm.h"
#include "backends/cpu/kernels.h"

struct picture {
    const char *x; /* (N, H, W, C) in memory */
    int64_t h, w, c, oh, ow, kw;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};

/* Runs of channels of one tap, or zeros where the tap lies in the padding. */
static void gather_patches(const struct cpu_gemm *g, int64_t row0, int64_t rows, int64_t k0, int64_t kc, void *dst, int64_t ld)
{
    const struct picture *s = g->source;
    const int64_t element = (int64_t)tern_dtype_size(g->dtype);
    for (int64_t i = 0; i < rows; i++) {
        int64_t pixel = row0 + i, ox = pixel % s->ow, oy = pixel / s->ow % s->oh, n = pixel / s->ow / s->oh;
        const char *x = s->x + n * s->h * s->w * s->c * element;
        char *to = (char *)dst + i * ld * element;
        for (int64_t k = k0; k < k0 + kc;) {
            int64_t tap = k / s->c, c = k % s->c, run = s->c - c < k0 + kc - k ? s->c - c : k0 + kc - k;
            int64_t iy = oy * s->stride_h - s->pad_h + tap / s->kw * s->dilation_h;
            int64_t ix = ox * s->stride_w - s->pad_w + tap % s->kw * s->dilation_w;
            if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
                memcpy(to, x + ((iy * s->w + ix) * s->c + c) * element, (size_t)(run * element));
            else
                memset(to, 0, (size_t)(run * element));
            to += run * element;
            k += run;
        }
    }
}

/* All but the dtypes of picture and bias. */
static bool fits(const struct tern_op_desc *d)
{
    return d->attrs.conv2d.groups == 1 && tern_meta_is_channels_last(&d->in[0]) && tern_dtype_is_float(d->in[1].dtype) &&
           tern_meta_is_contiguous(&d->in[1]) && (!d->present[2] || tern_meta_is_contiguous(&d->in[2])) &&
           tern_meta_is_channels_last(&d->out) && d->in[1].shape[1] * d->in[1].shape[2] * d->in[1].shape[3] > 0;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_F32 && (!d->present[2] || d->in[2].dtype == TERN_F32) && fits(d);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    return cpu_post_fits(d, TERN_F32, &rows);
}

static struct cpu_gemm conv_gemm(const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape, *o = d->out.shape;
    return (struct cpu_gemm){.m = o[0] * o[2] * o[3],
                             .n = w[0],
                             .k = w[1] * w[2] * w[3],
                             .dtype = d->in[0].dtype,
                             .gather = gather_patches,
                             .b_dtype = d->in[1].dtype,
                             .bias_dtype = d->in[2].dtype,
                             .ldc = w[0]};
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_gemm g = conv_gemm(d);
    return cpu_gemm_workspace(ctx, &g);
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    return cpu_packed_size(cpu_level(ctx), w[0], w[1] * w[2] * w[3], tern_dtype_size(d->in[1].dtype));
}

/* (O, C, kh, kw): the depth is a tap, then a channel */
static struct cpu_pack weights(const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    int64_t taps = w[2] * w[3];
    return (struct cpu_pack){.n = w[0],
                             .k = w[1] * taps,
                             .inner = w[1],
                             .column = w[1] * taps,
                             .within = taps,
                             .between = 1,
                             .element = tern_dtype_size(d->in[1].dtype)};
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    struct cpu_pack p = weights(d);
    cpu_pack_b(ctx, &p, src, dst);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    struct cpu_gemm g = conv_gemm(d);
    struct picture s = {.x = tern_arg_host(&a->in[0]),
                        .h = d->in[0].shape[2],
                        .w = d->in[0].shape[3],
                        .c = d->in[0].shape[1],
                        .oh = d->out.shape[2],
                        .ow = d->out.shape[3],
                        .kw = d->in[1].shape[3],
                        .stride_h = p->stride[0],
                        .stride_w = p->stride[1],
                        .pad_h = p->padding[0],
                        .pad_w = p->padding[1],
                        .dilation_h = p->dilation[0],
                        .dilation_w = p->dilation[1]};
    struct cpu_rows rows = cpu_rows_channels_last();
    struct cpu_post after = cpu_post_make(a, &rows);
    g.post = after.n ? &after : NULL;
    g.source = &s;
    g.b = tern_arg_host(&a->packed);
    g.bias = d->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    g.c = tern_arg_host(&a->out);
    (g.dtype == TERN_BF16 ? cpu_gemm_bf16_run : cpu_gemm_run)(a->ctx, &g, tern_arg_host(&a->workspace));
    return TERN_OK;
}

const struct tern_kernel cpu_conv2d_f32_igemm = {
    .name = "conv2d_f32_igemm",
    .op = TERN_OP_conv2d,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

/* ---- bf16: weights and bias of any floating dtype */

static bool bf16_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_BF16 && (!d->present[2] || tern_dtype_is_float(d->in[2].dtype)) && fits(d);
}

static bool bf16_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    return cpu_post_fits(d, TERN_BF16, &rows);
}

static size_t bf16_workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_gemm g = conv_gemm(d);
    return cpu_gemm_bf16_workspace(ctx, &g);
}

static size_t bf16_packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    return cpu_bf16_packed_size(cpu_level(ctx), w[0], w[1] * w[2] * w[3]);
}

static enum tern_status bf16_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    struct cpu_pack p = weights(d);
    cpu_bf16_pack(ctx, &p, d->in[1].dtype, src, dst);
    return TERN_OK;
}

const struct tern_kernel cpu_conv2d_bf16_igemm = {
    .name = "conv2d_bf16_igemm",
    .op = TERN_OP_conv2d,
    .supports = bf16_supports,
    .post = bf16_post,
    .workspace = bf16_workspace,
    .pack_input = 1,
    .packed_size = bf16_packed_size,
    .pack = bf16_pack,
    .run = run,
};
