/* conv2d in f32 by pieces of bf16 (level/bf16x3.h) on channels-last pictures; weights as conv2d_f32_igemm has them. */
#include <string.h>

#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/strips.h"

#define PAD 32 /* values between pixels: so they do not share cache sets */

/* Patches, gathered behind the planes of their pieces: any shape. */
static int stage_patches(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch,
                         struct tern_dot_piece *pieces)
{
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0), lda = tern_cpu_dot_lda(g);
    float *whole = (float *)(void *)(scratch + CPU_X3_PLANES * g->a_plane);
    tern_cpu_picture_gather(g->source, row0, rows, k0, there, whole, lda);
    return tern_cpu_dot_split(g, rows, part, whole, lda, scratch, pieces);
}

/* Channels c .. c + n of pixels ix .. ix + count of a row of the picture in pieces, zeros outside of it. */
static void split_strip(const struct cpu_dot_gemm *g, const struct cpu_strips *t, int i, uint16_t *to)
{
    const struct cpu_picture *s = g->source;
    const int64_t pitch = t->n + PAD, first = t->row[i] ? min64(max64(-t->ix[i], 0), t->pixels) : t->pixels;
    const int64_t end = t->row[i] ? max64(min64(s->w - t->ix[i], t->pixels), first) : t->pixels;
    for (int p = 0; p < CPU_X3_PLANES; p++) {
        uint16_t *plane = to + p * g->a_plane;
        memset(plane, 0, (size_t)(first * pitch) * sizeof(*plane));
        memset(plane + end * pitch, 0, (size_t)((t->pixels - end) * pitch) * sizeof(*plane));
    }
    if (first < end)
        g->split->split_rows(end - first, t->n, (const float *)(const void *)t->row[i] + (t->ix[i] + first) * s->c + t->c, s->c,
                             to + first * pitch, pitch, g->a_plane);
}

static int stage_strips(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch,
                        struct tern_dot_piece *pieces)
{
    const struct cpu_strips t = tern_cpu_strips_of(g, row0, rows, part);
    const int64_t pitch = t.n + PAD;
    if (!t.row[0] && !t.row[1])
        return 0;
    for (int i = 0; i < t.count; i++)
        split_strip(g, &t, i, scratch + i * t.pixels * pitch);
    return tern_cpu_strips_pieces(g, &t, scratch, scratch + t.pixels * pitch, pitch, pieces);
}

static struct cpu_dot_gemm conv_gemm(struct tern_context *ctx, const struct tern_op_desc *d, const struct cpu_picture *s)
{
    const int64_t *o = d->out.shape;
    struct cpu_dot_gemm g = {.m = o[0] * o[2] * o[3],
                             .n = o[1],
                             .k = s->c * s->kh * s->kw,
                             .split = &cpu_level(ctx)->bf16x3,
                             .dot = &cpu_level(ctx)->bf16x3.dot,
                             .b_dtype = d->in[1].dtype,
                             .bias_input = 2,
                             .source = s,
                             .ldc = o[1]};
    if (tern_cpu_has_strips(s)) {
        const int64_t pixels = tern_cpu_strips_most(s), channels = tern_cpu_dot_part(ctx, g.dot, s->c, pixels * CPU_X3_PLANES);
        tern_cpu_strips_parts(&g, channels);
        g.a_plane = pixels * (channels + PAD);
        g.scratch = (size_t)(CPU_X3_PLANES * g.a_plane);
        g.stage = stage_strips;
    } else {
        tern_cpu_dot_parts(ctx, &g);
        g.scratch += (size_t)(g.a_plane * 2); /* patches in f32 */
        g.stage = stage_patches;
    }
    return g;
}

static double cost(const struct tern_device *device, const struct tern_op_desc *d) { return 0.5; }

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct cpu_picture s = tern_cpu_picture_make(d, NULL);
    const struct cpu_dot_gemm g = conv_gemm(ctx, d, &s);
    return tern_cpu_dot_workspace(ctx, &g);
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct cpu_picture s = tern_cpu_picture_make(d, tern_arg_host(&a->in[0]));
    const struct cpu_dot_gemm g = conv_gemm(a->ctx, d, &s);
    const struct cpu_rows rows = tern_cpu_rows_channels_last();
    return tern_cpu_dot_launch(a, &g, &rows, tern_arg_host(&a->workspace));
}

const struct tern_kernel tern_cpu_conv2d_f32_bf16x3 = {
    .name = "conv2d_f32_bf16x3",
    .revision = 2,
    .op = TERN_OP_conv2d,
    .cost = cost,
    .supports = tern_cpu_conv2d_supports_f32,
    .post = tern_cpu_conv2d_post_f32,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = tern_cpu_conv2d_packed_size,
    .pack = tern_cpu_conv2d_pack,
    .run = run,
};
