/* quantized_conv2d as an implicit GEMM on channels-last pictures of any floating dtype. The largest value of a picture is found first; then
 * bands of it become bytes, with their padding and with channels filled up to lines of the cache, of which taps are views (views.h). Where
 * that would mostly be filling, all that an output reads becomes a row of bytes. */
#include <math.h>
#include <string.h>

#include "backends/cpu/gemm_i8.h"
#include "backends/cpu/integers.h"
#include "backends/cpu/kernels.h"
#include "backends/cpu/views.h"
#include "core/threads.h"

#define MOST_PATCH 256  /* values that an output reads and that become a row */
#define LEAST_FILLING 3 /* times as many bytes as that row has, that taps would have */

/* A row of the depth: channels by channels, the taps of each. */
static bool reads_patches(const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape, taps = w[2] * w[3], values = w[1] * taps;
    return values <= MOST_PATCH && LEAST_FILLING * round_up(values, CPU_I8_LINE) <= round_up(w[1], CPU_I8_LINE) * taps;
}

/* As the products see it: by patches it is a convolution of 1 x 1. */
static struct tern_op_desc product_of(const struct tern_op_desc *d)
{
    struct tern_op_desc p = *d;
    const int64_t *w = d->in[1].shape, values = w[1] * w[2] * w[3];
    if (!reads_patches(d))
        return p;
    p.in[0] = tern_meta_make(d->in[0].dtype, 4, (const int64_t[]){d->out.shape[0], values, d->out.shape[2], d->out.shape[3]});
    p.in[1] = tern_meta_make(d->in[1].dtype, 4, (const int64_t[]){w[0], values, 1, 1});
    p.attrs.conv2d = (struct tern_conv2d_attrs){.stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    return p;
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const int64_t *w = d->in[1].shape;
    if (!tern_cpu_i8_fits(d, tern_meta_is_channels_last(&d->in[0]) && tern_meta_is_channels_last(&d->out)) || d->attrs.conv2d.groups != 1 ||
        w[1] * w[2] * w[3] == 0 || w[3] > TERN_DOT_PIECES)
        return false;
    const struct tern_op_desc p = product_of(d);
    const int64_t *as = p.in[1].shape, pixel = round_up(as[1], CPU_I8_LINE);
    return pixel * as[2] * as[3] <= CPU_I8_MOST_DEPTH && tern_cpu_views_fit(&p, pixel);
}

static bool post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    return tern_cpu_post_fits(d, d->in[0].dtype, &rows);
}

/* first: pictures are quantised before they are multiplied, band by band, and not by tasks. */
struct plan {
    struct cpu_views v;
    struct cpu_dot_values values;
    struct cpu_dot_gemm g;
    bool first;
};

static void plan_of(struct tern_context *ctx, const struct tern_op_desc *d, struct plan *p)
{
    const struct tern_op_desc as = product_of(d);
    const int64_t *o = d->out.shape, words = round_up(as.in[0].shape[1], CPU_I8_LINE) / 2;
    const struct tern_cpu_dot *dot = &cpu_level(ctx)->i8.dot;
    p->v = tern_cpu_views_make(ctx, &as, dot, words);
    p->g = (struct cpu_dot_gemm){.m = o[0] * o[2] * o[3], .n = o[1], .k = words * p->v.s.kh * p->v.s.kw, .dot = dot, .ldc = o[1]};
    tern_cpu_views_parts(ctx, &p->v, &p->g);
    p->values = (struct cpu_dot_values){.dtype = d->in[0].dtype, .k = d->in[0].shape[1], .pitch = 2 * p->v.pitch};
    p->first = reads_patches(d) || !tern_cpu_picture_is_matrix(&p->v.s) || !tern_cpu_i8_rows_by_tasks(ctx, &p->g, &p->values);
}

/* ---- the picture in bytes */

struct sizes {
    size_t picture, rows, factors; /* bytes of the copy of a band, of the largest values of their rows, of their factors */
};

static struct sizes sizes_of(const struct tern_op_desc *d, const struct plan *p)
{
    const int64_t *x = d->in[0].shape;
    return (struct sizes){p->first ? tern_cpu_views_bytes(&p->v) : 0, (size_t)round_up(x[0] * x[2] * 4, CPU_I8_LINE),
                          (size_t)round_up(x[0] * 8, CPU_I8_LINE)};
}

struct quantize {
    const struct tern_cpu_i8 *i8;
    const struct tern_op_desc *d;
    const char *x;
    float *most; /* of rows */
    float *in, *out;
};

static const char *row_of(const struct quantize *q, int64_t row)
{
    const int64_t *x = q->d->in[0].shape;
    return q->x + (size_t)(row * x[3] * x[1]) * tern_dtype_size(q->d->in[0].dtype);
}

static void measure_rows(void *arg, int64_t begin, int64_t end)
{
    const struct quantize *q = arg;
    const int64_t *x = q->d->in[0].shape;
    for (int64_t r = begin; r < end; r++)
        q->most[r] = q->i8->most(q->d->in[0].dtype, x[3] * x[1], row_of(q, r));
}

static void find_factors(const struct quantize *q)
{
    const int64_t *x = q->d->in[0].shape;
    for (int64_t n = 0; n < x[0]; n++) {
        float most = 0;
        for (int64_t y = 0; y < x[2]; y++)
            most = q->most[n * x[2] + y] <= most || isnan(most) ? most : q->most[n * x[2] + y];
        struct tern_quantize_factors f = tern_quantize_factors_of(most);
        q->in[n] = f.in;
        q->out[n] = f.out;
    }
}

static void fill(const void *arg, const struct cpu_views *v, int64_t picture, int64_t iy, int64_t ix, int64_t n, uint16_t *to)
{
    const struct quantize *q = arg;
    const int64_t *x = q->d->in[0].shape, rest = 2 * v->words - x[1];
    const enum tern_dtype dtype = q->d->in[0].dtype;
    const int64_t size = x[1] * (int64_t)tern_dtype_size(dtype);
    const char *from = row_of(q, picture * x[2] + iy) + ix * size;
    for (int64_t i = 0; i < n; i++, from += size, to += v->pitch) {
        q->i8->quantize(dtype, x[1], from, q->in[picture], (uint8_t *)to);
        memset((uint8_t *)to + x[1], q->i8->zero, (size_t)rest);
    }
}

/* Channels of a pixel, to every `step`th value. Calls of memcpy for a size that is not known would take longer than the product. */
static void spread(int64_t n, int64_t size, const char *from, char *to, int64_t step)
{
    for (int64_t c = 0; size == 2 && c < n; c++)
        memcpy(to + c * step * 2, from + c * 2, 2);
    for (int64_t c = 0; size == 4 && c < n; c++)
        memcpy(to + c * step * 4, from + c * 4, 4);
}

/* What an output reads, in the order that its weight has in memory (tern_cpu_picture_gather goes tap by tap); zeros beside the picture. */
static void gather(const struct quantize *q, const struct cpu_picture *s, int64_t picture, int64_t oy, int64_t ox, char *to)
{
    const int64_t taps = s->kh * s->kw, size = s->element;
    memset(to, 0, (size_t)(s->c * taps * size));
    for (int64_t ky = 0; ky < s->kh; ky++) {
        const int64_t iy = oy * s->stride_h - s->pad_h + ky * s->dilation_h;
        const char *row = iy < 0 || iy >= s->h ? NULL : row_of(q, picture * s->h + iy);
        for (int64_t kx = 0; row && kx < s->kw; kx++) {
            const int64_t ix = ox * s->stride_w - s->pad_w + kx * s->dilation_w;
            if (ix >= 0 && ix < s->w)
                spread(s->c, size, row + ix * s->c * size, to + (ky * s->kw + kx) * size, taps);
        }
    }
}

static void fill_patches(const void *arg, const struct cpu_views *v, int64_t picture, int64_t oy, int64_t ox, int64_t n, uint16_t *to)
{
    const struct quantize *q = arg;
    const struct cpu_picture s = tern_cpu_picture_make(q->d, q->x);
    float patch[MOST_PATCH]; /* of any dtype */
    for (int64_t i = 0; i < n; i++, to += v->pitch) {
        gather(q, &s, picture, oy, ox + i, (char *)patch);
        q->i8->quantize(q->d->in[0].dtype, v->s.c, patch, q->in[picture], (uint8_t *)to);
        memset((uint8_t *)to + v->s.c, q->i8->zero, (size_t)(2 * v->words - v->s.c));
    }
}

/* ---- the kernel */

static size_t workspace(struct tern_context *ctx, const struct tern_op_desc *d)
{
    struct plan p;
    plan_of(ctx, d, &p);
    struct sizes sizes = sizes_of(d, &p);
    size_t size = p.first ? tern_cpu_views_workspace(ctx, &p.v, &p.g) : tern_cpu_dot_workspace(ctx, &p.g);
    return size ? CPU_I8_LINE + sizes.picture + sizes.rows + sizes.factors + size : 0;
}

static size_t packed_size(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_op_desc p = product_of(d);
    const int64_t *w = p.in[1].shape;
    return tern_cpu_i8_packed_size(&p.in[1], round_up(w[1], CPU_I8_LINE) * w[2] * w[3], false);
}

static enum tern_status pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst)
{
    const struct tern_op_desc p = product_of(d);
    tern_cpu_i8_pack(ctx, &p.in[1], false, src, dst, NULL, NULL);
    return TERN_OK;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    if (!a->workspace.buffer)
        return TERN_OK;
    char *bytes = tern_arg_host(&a->workspace);
    bytes += (CPU_I8_LINE - (uintptr_t)bytes % CPU_I8_LINE) % CPU_I8_LINE;
    struct plan p;
    plan_of(a->ctx, d, &p);
    const struct sizes sizes = sizes_of(d, &p);
    const struct cpu_rows rows = tern_cpu_rows_channels_last();
    const int64_t *x = d->in[0].shape;
    char *product = bytes + sizes.picture + sizes.rows + sizes.factors;
    struct quantize q = {&cpu_level(a->ctx)->i8, d, tern_arg_host(&a->in[0]), (float *)(void *)(bytes + sizes.picture)};
    q.in = (float *)(void *)(bytes + sizes.picture + sizes.rows);
    q.out = q.in + x[0];
    tern_parallel(a->ctx, x[0] * x[2], max64(1, 16384 / (x[1] * x[3])), measure_rows, &q);
    find_factors(&q);
    p.values.x = q.x;
    p.values.in = q.in;
    p.values.rows = p.v.s.oh * p.v.s.ow;
    if (!p.first)
        return tern_cpu_i8_launch(a, &p.g, &rows, q.out, p.values.rows, product);
    p.v.at = (uint16_t *)(void *)bytes;
    for (int64_t i = 0; i < p.v.bands; i++) {
        tern_cpu_views_copy(a->ctx, &p.v, i, reads_patches(d) ? fill_patches : fill, &q, q.i8->zero);
        p.g.m = tern_cpu_views_band(&p.v, i, &p.g.first);
        tern_cpu_i8_launch(a, &p.g, &rows, q.out, p.values.rows, product);
    }
    return TERN_OK;
}

const struct tern_kernel tern_cpu_quantized_conv2d_i8_igemm = {
    .name = "quantized_conv2d_i8_igemm",
    .op = TERN_OP_quantized_conv2d,
    .revision = 6,
    .supports = supports,
    .post = post,
    .workspace = workspace,
    .pack_input = 1,
    .packed_size = packed_size,
    .pack = pack,
    .run = run,
};
