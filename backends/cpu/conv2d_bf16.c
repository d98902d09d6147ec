/* conv2d in bf16 as an implicit GEMM on channels-last pictures; weights and bias of any floating dtype. Where sixteen neighbouring
 * outputs lie in one row of the picture, the taps of a row of the filter are shifted views of one strip of pixels: three times less to
 * copy for a 3 x 3 filter than its patches, and nothing where the strip lies inside the picture. */
#include <string.h>

#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/patches.h"
#include "backends/cpu/weights.h"

#define HALF (TERN_DOT_ROWS / 2)

/* ---- patches, gathered: any shape */

static int stage_patches(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch,
                         struct tern_dot_piece *pieces)
{
    int64_t k0, there = cpu_dot_range(g, part, &k0);
    cpu_picture_gather(g->source, row0, rows, k0, there, scratch, cpu_dot_lda(g));
    return cpu_dot_gathered(g, rows, part, scratch, pieces);
}

/* ---- strips: a part of the depth is a row of the filter and a range of channels */

/* Pixels of the strip of n outputs. */
static int64_t strip(const struct cpu_picture *s, int64_t n) { return (n - 1) * s->stride_w + (s->kw - 1) * s->dilation_w + 1; }

static bool has_strips(const struct cpu_picture *s, int64_t step)
{
    return s->ow % HALF == 0 && s->c % step == 0 && s->c % 32 == 0 && s->kw <= TERN_DOT_PIECES;
}

/* The most that a block of rows has, in one row of the picture or two. */
static int64_t most_pixels(const struct cpu_picture *s) { return max64(2 * strip(s, HALF), strip(s, TERN_DOT_ROWS)); }

/* The row of the picture that tap row `ky` of an output reads; NULL in the padding. ix: of its first tap. */
static const uint16_t *row_of(const struct cpu_picture *s, int64_t output, int64_t ky, int64_t *ix)
{
    int64_t ox = output % s->ow, oy = output / s->ow % s->oh, n = output / s->ow / s->oh;
    int64_t iy = oy * s->stride_h - s->pad_h + ky * s->dilation_h;
    *ix = ox * s->stride_w - s->pad_w;
    return iy < 0 || iy >= s->h ? NULL : (const uint16_t *)(const void *)s->x + (n * s->h + iy) * s->w * s->c;
}

/* Channels c .. c + n of pixels ix .. ix + count of a row of the picture, zeros outside of it; packed. */
static void copy_strip(const struct cpu_picture *s, const uint16_t *row, int64_t ix, int64_t count, int64_t c, int64_t n, uint16_t *to)
{
    int64_t first = row ? min64(max64(-ix, 0), count) : count, end = row ? max64(min64(s->w - ix, count), first) : count;
    memset(to, 0, (size_t)(first * n) * sizeof(*to));
    if (n == s->c && first < end)
        memcpy(to + first * n, row + (ix + first) * s->c, (size_t)((end - first) * n) * sizeof(*to));
    for (int64_t i = first; n < s->c && i < end; i++)
        memcpy(to + i * n, row + (ix + i) * s->c + c, (size_t)n * sizeof(*to));
    memset(to + end * n, 0, (size_t)((count - end) * n) * sizeof(*to));
}

/* The rows of B that belong to a part: a range of channels of each tap. */
static int strip_ranges(const struct cpu_dot_gemm *g, int part, struct tern_dot_piece *pieces)
{
    const struct cpu_picture *s = g->source;
    const int64_t most = g->part_depth / s->kw, chunks = ceil_div(s->c, most), ky = part / chunks, c = part % chunks * most;
    for (int64_t kx = 0; kx < s->kw; kx++)
        pieces[kx] = (struct tern_dot_piece){.k0 = (ky * s->kw + kx) * s->c + c, .depth = min64(most, s->c - c)};
    return (int)s->kw;
}

static int stage_strips(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch,
                        struct tern_dot_piece *pieces)
{
    const struct cpu_picture *s = g->source;
    const int64_t most = g->part_depth / s->kw, chunks = ceil_div(s->c, most), ky = part / chunks, c = part % chunks * most;
    const int64_t n = min64(most, s->c - c);
    const bool one = rows > HALF && s->ow % TERN_DOT_ROWS == 0; /* strip: a block does not leave its row */
    const int64_t count = strip(s, one ? rows : HALF);
    const uint16_t *row[2], *a[2];
    int64_t ix[2], pitch = s->c;
    bool inside = true;
    for (int i = 0; i < 2; i++) {
        row[i] = row_of(s, i && rows > HALF && !one ? row0 + HALF : row0, ky, &ix[i]);
        inside = inside && row[i] && ix[i] >= 0 && ix[i] + count <= s->w;
    }
    if (!row[0] && !row[1])
        return 0;
    if (!inside)
        pitch = n;
    for (int i = 0; i < (one ? 1 : 2); i++) {
        a[i] = inside ? row[i] + ix[i] * s->c + c : scratch + i * count * n;
        if (!inside)
            copy_strip(s, row[i], ix[i], count, c, n, scratch + i * count * n);
    }
    if (one)
        a[1] = a[0] + HALF * s->stride_w * pitch;
    for (int64_t kx = 0; kx < s->kw; kx++) {
        int64_t at = kx * s->dilation_w * pitch;
        pieces[kx] = (struct tern_dot_piece){{a[0] + at, a[1] + at}, s->stride_w * pitch, (ky * s->kw + kx) * s->c + c, n};
    }
    return (int)s->kw;
}

/* ---- the kernel */

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_BF16 && (!d->present[2] || tern_dtype_is_float(d->in[2].dtype)) && cpu_picture_fits(d);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    return cpu_post_fits(d, TERN_BF16, &rows);
}

static struct cpu_dot_gemm conv_gemm(struct tern_context *ctx, const struct tern_op_desc *d, const struct cpu_picture *s)
{
    const int64_t *o = d->out.shape;
    struct cpu_dot_gemm g = {.m = o[0] * o[2] * o[3],
                             .n = o[1],
                             .k = s->c * s->kh * s->kw,
                             .dot = &cpu_level(ctx)->bf16.dot,
                             .bias_input = 2,
                             .source = s,
                             .ldc = o[1]};
    if (has_strips(s, g.dot->step)) {
        int64_t pixels = most_pixels(s), channels = round_up(cpu_dot_part(ctx, g.dot, s->c, pixels), 32);
        g.parts = (int)(s->kh * ceil_div(s->c, channels));
        g.part_depth = s->kw * channels;
        g.scratch = (size_t)(pixels * channels);
        g.stage = stage_strips;
        g.ranges = strip_ranges;
    } else {
        cpu_dot_parts(ctx, &g);
        g.stage = stage_patches;
    }
    return g;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_picture s = cpu_picture_make(d, NULL);
    const struct cpu_weights w = cpu_weights_bf16(ctx, d);
    struct cpu_dot_gemm g = conv_gemm(ctx, d, &s);
    g.kept = w.bits ? &w : NULL;
    return cpu_dot_workspace(ctx, &g);
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t *shape = d->in[1].shape;
    if (cpu_weight_bits(d)) {
        const struct cpu_weights w = cpu_weights_bf16(ctx, d);
        return cpu_weights_size(&w);
    }
    return cpu_bf16_packed_size(cpu_level(ctx), shape[0], shape[1] * shape[2] * shape[3]);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    if (cpu_weight_bits(d)) {
        const struct cpu_weights w = cpu_weights_bf16(ctx, d);
        return cpu_weights_pack(ctx, &w, &d->in[1], src, dst);
    }
    cpu_bf16_pack(ctx, &d->in[1], false, src, dst);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct cpu_picture s = cpu_picture_make(d, tern_arg_host(&a->in[0]));
    const struct cpu_weights w = cpu_weights_bf16(a->ctx, d);
    struct cpu_dot_gemm g = conv_gemm(a->ctx, d, &s);
    g.kept = w.bits ? &w : NULL;
    struct cpu_rows rows = cpu_rows_channels_last();
    return cpu_dot_launch(a, &g, &rows, tern_arg_host(&a->workspace));
}

const struct tern_kernel cpu_conv2d_bf16_igemm = {
    .name = "conv2d_bf16_igemm",
    .op = TERN_OP_conv2d,
    .revision = 1,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

const struct tern_kernel cpu_weight_only_conv2d_bf16_igemm = {
    .name = "weight_only_conv2d_bf16_igemm",
    .op = TERN_OP_weight_only_conv2d,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack_key = cpu_weight_key,
    .pack = pack,
    .run = run,
};
