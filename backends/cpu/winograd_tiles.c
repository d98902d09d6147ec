/* The tiles of Winograd's convolution: 6 x 6 pixels in, 4 x 4 pixels out, or 4 x 6 and 2 x 4; at the edges of pictures fewer. */
#include "backends/cpu/integers.h"
#include "backends/cpu/winograd.h"

#define FINISH 2048 /* values: 8 KiB */
#define LINE 64     /* bytes */

bool tern_cpu_winograd_fits(const struct tern_op_desc *d)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    const struct tern_meta *w = &d->in[1];
    return p->groups == 1 && p->stride[0] == 1 && p->stride[1] == 1 && p->dilation[0] == 1 && p->dilation[1] == 1 && w->shape[2] == 3 &&
           w->shape[3] == 3 && w->shape[1] > 0 && tern_meta_is_contiguous(w) && tern_meta_is_channels_last(&d->in[0]) &&
           tern_meta_is_channels_last(&d->out);
}

static bool supports(enum tern_dtype dtype, const struct tern_op_desc *d)
{
    return tern_cpu_winograd_fits(d) && tern_dtype_is_float(d->in[1].dtype) && d->in[0].dtype == dtype &&
           (!d->present[2] || (d->in[2].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[2])));
}

bool tern_cpu_winograd_supports(struct tern_device *device, const struct tern_op_desc *d) { return supports(TERN_F32, d); }

bool tern_cpu_winograd_supports_bf16(struct tern_device *device, const struct tern_op_desc *d)
{
    return ((const struct cpu_device *)device)->level->winograd_i16.multiply && supports(TERN_BF16, d);
}

bool tern_cpu_winograd_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = tern_cpu_rows_channels_last();
    return tern_cpu_post_fits(d, d->in[0].dtype, &rows);
}

struct cpu_winograd tern_cpu_winograd_sizes(const struct tern_op_desc *d, int high, int wide)
{
    const int64_t *x = d->in[0].shape, *y = d->out.shape;
    struct cpu_winograd w = {.high = high, .wide = wide, .n = y[0], .c = x[1], .h = x[2], .w = x[3], .o = y[1], .oh = y[2], .ow = y[3]};
    w.pixels = high * wide;
    w.points = (high + 2) * (wide + 2);
    w.dtype = d->in[0].dtype;
    w.y_dtype = d->out.dtype;
    w.pad_h = d->attrs.conv2d.padding[0];
    w.pad_w = d->attrs.conv2d.padding[1];
    w.across = ceil_div(w.ow, wide);
    w.down = ceil_div(w.oh, high);
    w.tiles = w.n * w.down * w.across;
    return w;
}

double tern_cpu_winograd_pair(const struct tern_op_desc *d)
{
    if (d->in[1].ndim != 4 || d->out.ndim != 4 || !d->constant[1])
        return 0;
    const struct cpu_winograd w = tern_cpu_winograd_sizes(d, TERN_WINOGRAD_EDGE, TERN_WINOGRAD_EDGE);
    return 2.0 * (double)(w.down * w.across);
}

struct cpu_winograd tern_cpu_winograd_call(const struct tern_kernel_args *a, const void *zero, const struct cpu_post *post)
{
    struct cpu_winograd w = tern_cpu_winograd_sizes(a->desc, TERN_WINOGRAD_EDGE, TERN_WINOGRAD_EDGE);
    w.x = tern_arg_host(&a->in[0]);
    w.bias = a->desc->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    w.zero = zero;
    w.y = tern_arg_host(&a->out);
    w.level = cpu_level(a->ctx);
    w.post = post->n ? post : NULL;
    return w;
}

static int64_t pixel_bytes(const struct cpu_winograd *w) { return (int64_t)tern_dtype_size(w->dtype); }

void tern_cpu_winograd_pixels(const struct cpu_winograd *w, int64_t t, const void *pixel[TERN_WINOGRAD_POINTS])
{
    const int64_t x0 = t % w->across * w->wide - w->pad_w, y0 = t / w->across % w->down * w->high - w->pad_h, bytes = w->c * pixel_bytes(w);
    const char *picture = w->x + t / w->across / w->down * w->h * w->w * bytes;
    const int wide = w->wide + 2;
    for (int p = 0; p < w->points; p++) {
        int64_t y = y0 + p / wide, x = x0 + p % wide;
        pixel[p] = y >= 0 && y < w->h && x >= 0 && x < w->w ? picture + (y * w->w + x) * bytes : w->zero;
    }
}

void tern_cpu_winograd_fetch_pixels(const struct cpu_winograd *w, int64_t t)
{
    const void *pixel[TERN_WINOGRAD_POINTS];
    const int64_t bytes = w->c * pixel_bytes(w), wide = w->wide + 2;
    tern_cpu_winograd_pixels(w, t, pixel);
    for (int64_t p = 0; p < w->points; p++) {
        if (p % wide < 2 || pixel[p] == w->zero)
            continue;
        for (int64_t at = 0; at < bytes; at += LINE)
            __builtin_prefetch((const char *)pixel[p] + at, 0, 2);
    }
}

void tern_cpu_winograd_rows(const struct cpu_winograd *w, int64_t t, int64_t *row)
{
    const int64_t x0 = t % w->across * w->wide, y0 = t / w->across % w->down * w->high, picture = t / w->across / w->down * w->oh;
    for (int p = 0; p < w->pixels; p++) {
        int64_t y = y0 + p / w->wide, x = x0 + p % w->wide;
        row[p] = y < w->oh && x < w->ow ? (picture + y) * w->ow + x : -1;
    }
}

static const float *unit_of(const struct cpu_winograd *w, int64_t col) { return w->unit ? w->unit + col : NULL; }

static void finish_f32(const struct cpu_winograd *w, const int64_t *row, int64_t col, int64_t n, const float *m, int64_t step)
{
    float *pixel[TERN_WINOGRAD_PIXELS] = {NULL};
    const int pixels = w->pixels;
    for (int p = 0; p < pixels; p++)
        pixel[p] = row[p] < 0 ? NULL : (float *)(void *)w->y + row[p] * w->o + col;
    w->level->winograd_output(n, m, step, unit_of(w, col), w->o, w->bias ? w->bias + col : NULL, pixel);
    for (int p = 0; w->post && p < pixels; p++)
        if (pixel[p])
            tern_cpu_post_apply(w->post, pixel[p], pixel[p], row[p], col, n);
}

/* Channels, some at a time, in f32 in L1, then posts and one rounding. */
static void finish_bf16(const struct cpu_winograd *w, const int64_t *row, int64_t col, int64_t n, const float *m, int64_t step)
{
    const int pixels = w->pixels, most = FINISH / pixels;
    float out[FINISH + TERN_WINOGRAD_PIXELS * 16], *pixel[TERN_WINOGRAD_PIXELS];
    for (int p = 0; p < pixels; p++)
        pixel[p] = row[p] < 0 ? NULL : out + p * (most + 16);
    for (int64_t c = 0, part; c < n; c += part) {
        part = min64(n - c, most);
        w->level->winograd_output(part, m + c, step, unit_of(w, col + c), w->o, w->bias ? w->bias + col + c : NULL, pixel);
        for (int p = 0; p < pixels; p++) {
            if (row[p] < 0)
                continue;
            tern_cpu_post_store(w->level, w->post, w->y_dtype, row[p], col + c, part, pixel[p],
                                w->y + (row[p] * w->o + col + c) * (int64_t)tern_dtype_size(w->y_dtype));
        }
    }
}

void tern_cpu_winograd_finish(const struct cpu_winograd *w, int64_t t, int64_t col, int64_t n, const float *m, int64_t step)
{
    int64_t row[TERN_WINOGRAD_PIXELS];
    tern_cpu_winograd_rows(w, t, row);
    (w->y_dtype == TERN_F32 ? finish_f32 : finish_bf16)(w, row, col, n, m, step);
}

void tern_cpu_winograd_fetch_rows(const struct cpu_winograd *w, int64_t t, int64_t col, int64_t n)
{
    int64_t row[TERN_WINOGRAD_PIXELS], size = (int64_t)tern_dtype_size(w->y_dtype);
    tern_cpu_winograd_rows(w, t, row);
    for (int p = 0; p < w->pixels; p++) {
        if (row[p] < 0)
            continue;
        tern_cpu_fetch_to_write(w->y + (row[p] * w->o + col) * size, n * size);
        if (w->post)
            tern_cpu_post_fetch(w->post, row[p], col, n);
    }
}
