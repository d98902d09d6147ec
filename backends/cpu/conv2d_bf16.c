/* conv2d in bf16 as an implicit GEMM on channels-last pictures; weights and bias of any floating dtype. On AMX taps are views of a copied
 * picture (views.h). Elsewhere, where sixteen neighbouring outputs lie in one row of the picture, the taps of a row of the filter are
 * shifted views of one strip of pixels: three times less to copy for a 3 x 3 filter than its patches, and nothing where the strip lies
 * inside the picture. */
#include <string.h>

#include "backends/cpu/gemm_dot.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/norm_input.h"
#include "backends/cpu/strips.h"
#include "backends/cpu/views.h"
#include "backends/cpu/weights.h"

#define LINE 64 /* bytes */

/* ---- patches, gathered: any shape */

static int stage_patches(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch,
                         struct tern_dot_piece *pieces)
{
    int64_t k0, there = tern_cpu_dot_range(g, part, &k0);
    tern_cpu_picture_gather(g->source, row0, rows, k0, there, scratch, tern_cpu_dot_lda(g));
    return tern_cpu_dot_gathered(g, rows, part, scratch, pieces);
}

/* ---- strips: a part of the depth is a row of the filter and a range of channels */

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

static int stage_strips(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch,
                        struct tern_dot_piece *pieces)
{
    const struct cpu_picture *s = g->source;
    const struct cpu_strips t = tern_cpu_strips_of(g, row0, rows, part);
    const uint16_t *a[2] = {NULL, NULL};
    int64_t pitch = s->c;
    bool inside = true;
    for (int i = 0; i < 2; i++)
        inside = inside && t.row[i] && t.ix[i] >= 0 && t.ix[i] + t.pixels <= s->w;
    if (!t.row[0] && !t.row[1])
        return 0;
    if (!inside)
        pitch = t.n;
    for (int i = 0; i < t.count; i++) {
        const uint16_t *row = (const uint16_t *)(const void *)t.row[i];
        a[i] = inside ? row + t.ix[i] * s->c + t.c : scratch + i * t.pixels * t.n;
        if (!inside)
            copy_strip(s, row, t.ix[i], t.pixels, t.c, t.n, scratch + i * t.pixels * t.n);
    }
    return tern_cpu_strips_pieces(g, &t, a[0], a[1], pitch, pieces);
}

/* ---- views: on AMX sums that come and go cost more than a copy of the picture */

struct source {
    const struct cpu_picture *s;
    const struct groups *norm; /* NULL: none in front */
};

static void fill(const void *arg, const struct cpu_views *v, int64_t picture, int64_t iy, int64_t ix, int64_t n, uint16_t *to)
{
    const struct source *q = arg;
    const struct cpu_picture *s = q->s;
    const uint16_t *from = (const uint16_t *)(const void *)s->x + ((picture * s->h + iy) * s->w + ix) * s->c;
    if (q->norm) {
        tern_cpu_norm_input_apply(q->norm, picture, n, from, to, v->pitch);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * v->pitch, from + i * s->c, (size_t)s->c * sizeof(*to));
}

static bool goes_by_views(const struct tern_cpu_level *level, const struct tern_op_desc *d, const struct cpu_picture *s)
{
    return level->bf16.dot.past_l1 && !tern_cpu_picture_is_matrix(s) && s->c % 32 == 0 && s->stride_h == 1 && s->kw <= TERN_DOT_PIECES &&
           tern_cpu_has_views(s) && tern_cpu_views_fit(d, s->c * 2);
}

/* ---- the kernel */

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->in[0].dtype == TERN_BF16 && (!d->present[2] || tern_dtype_is_float(d->in[2].dtype)) && tern_cpu_picture_fits(d);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    return tern_cpu_post_fits(d, TERN_BF16, &rows);
}

static bool pre(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct cpu_picture s = tern_cpu_picture_make(d, NULL);
    return d->in[0].dtype == TERN_BF16 && goes_by_views(((struct cpu_device *)device)->level, d, &s) && tern_cpu_norm_input_fits(d);
}

/* v: its views, if it has. */
static struct cpu_dot_gemm conv_gemm(struct tern_context *ctx, const struct tern_op_desc *d, const struct cpu_picture *s,
                                     struct cpu_views *v)
{
    const int64_t *o = d->out.shape;
    struct cpu_dot_gemm g = {.m = o[0] * o[2] * o[3],
                             .n = o[1],
                             .k = s->c * s->kh * s->kw,
                             .dot = &cpu_level(ctx)->bf16.dot,
                             .bias_input = 2,
                             .source = s,
                             .ldc = o[1]};
    v->bands = 0;
    if (tern_cpu_picture_is_matrix(s)) {
        g.source = s->x;
        g.lda = s->c;
        g.stage = tern_cpu_dot_rows;
        tern_cpu_dot_parts(ctx, &g);
    } else if (goes_by_views(cpu_level(ctx), d, s)) {
        *v = tern_cpu_views_make(ctx, d, g.dot, s->c);
        tern_cpu_views_parts(ctx, v, &g);
    } else if (tern_cpu_has_strips(s)) {
        int64_t pixels = tern_cpu_strips_most(s), channels = round_up(tern_cpu_dot_part(ctx, g.dot, s->c, pixels), 32);
        tern_cpu_strips_parts(&g, channels);
        g.scratch = (size_t)(pixels * channels);
        g.stage = stage_strips;
    } else {
        tern_cpu_dot_parts(ctx, &g);
        g.stage = stage_patches;
    }
    return g;
}

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct cpu_picture s = tern_cpu_picture_make(d, NULL);
    const struct cpu_weights w = tern_cpu_weights_bf16(ctx, d);
    struct cpu_views v;
    struct cpu_dot_gemm g = conv_gemm(ctx, d, &s, &v);
    g.kept = w.bits ? &w : NULL;
    if (!v.bands)
        return tern_cpu_dot_workspace(ctx, &g);
    const size_t size = tern_cpu_views_workspace(ctx, &v, &g);
    return size ? size + tern_cpu_views_bytes(&v) + tern_cpu_norm_input_bytes(d) + LINE : 0;
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const int64_t *shape = d->in[1].shape;
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights w = tern_cpu_weights_bf16(ctx, d);
        return tern_cpu_weights_size(&w);
    }
    return tern_cpu_bf16_packed_size(cpu_level(ctx), shape[0], shape[1] * shape[2] * shape[3]);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    if (tern_cpu_weight_bits(d)) {
        const struct cpu_weights w = tern_cpu_weights_bf16(ctx, d);
        return tern_cpu_weights_pack(ctx, &w, &d->in[1], src, dst);
    }
    tern_cpu_bf16_pack(ctx, &d->in[1], false, src, dst);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct cpu_picture s = tern_cpu_picture_make(d, tern_arg_host(&a->in[0]));
    const struct cpu_weights w = tern_cpu_weights_bf16(a->ctx, d);
    struct cpu_views v;
    struct cpu_dot_gemm g = conv_gemm(a->ctx, d, &s, &v);
    g.kept = w.bits ? &w : NULL;
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    if (!v.bands || !a->workspace.buffer)
        return tern_cpu_dot_launch(a, &g, &rows, tern_arg_host(&a->workspace));
    char *at = tern_arg_host(&a->workspace);
    at += (LINE - (uintptr_t)at % LINE) % LINE;
    struct groups norm;
    if (d->pre.num_groups)
        norm = tern_cpu_norm_input_make(a, (float *)(void *)at);
    const struct source source = {&s, d->pre.num_groups ? &norm : NULL};
    at += tern_cpu_norm_input_bytes(d);
    v.at = (uint16_t *)(void *)at;
    for (int64_t i = 0; i < v.bands; i++) {
        tern_cpu_views_copy(a->ctx, &v, i, fill, &source, 0);
        g.m = tern_cpu_views_band(&v, i, &g.first);
        tern_cpu_dot_launch(a, &g, &rows, at + tern_cpu_views_bytes(&v));
    }
    return TERN_OK;
}

const struct tern_kernel tern_cpu_conv2d_bf16_igemm = {
    .name = "conv2d_bf16_igemm",
    .op = TERN_OP_conv2d,
    .revision = 6,
    .supports = supports,
    .post = post,
    .pre = pre,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};

const struct tern_kernel tern_cpu_weight_only_conv2d_bf16_igemm = {
    .name = "weight_only_conv2d_bf16_igemm",
    .op = TERN_OP_weight_only_conv2d,
    .revision = 4,
    .supports = supports,
    .post = post,
    .pre = pre,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack_key = tern_cpu_weight_key,
    .pack = pack,
    .run = run,
};
