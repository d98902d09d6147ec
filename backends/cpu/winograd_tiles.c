/* The tiles of Winograd's convolution: 6 x 6 pixels in, 4 x 4 pixels out, at the edges of pictures fewer. */
#include "backends/cpu/integers.h"
#include "backends/cpu/winograd.h"

bool cpu_winograd_supports(struct tern_device *device, const struct tern_op_desc *d)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    const struct tern_meta *w = &d->in[1];
    return p->groups == 1 && p->stride[0] == 1 && p->stride[1] == 1 && p->dilation[0] == 1 && p->dilation[1] == 1 && w->shape[2] == 3 &&
           w->shape[3] == 3 && w->shape[1] > 0 && tern_dtype_is_float(w->dtype) && tern_meta_is_contiguous(w) &&
           d->in[0].dtype == TERN_F32 && tern_meta_is_channels_last(&d->in[0]) && tern_meta_is_channels_last(&d->out) &&
           (!d->present[2] || (d->in[2].dtype == TERN_F32 && tern_meta_is_contiguous(&d->in[2])));
}

bool cpu_winograd_post(const struct tern_op_desc *d)
{
    struct cpu_rows rows = cpu_rows_channels_last();
    return cpu_post_fits(d, TERN_F32, &rows);
}

struct cpu_winograd cpu_winograd_sizes(const struct tern_op_desc *d)
{
    const int64_t *x = d->in[0].shape, *y = d->out.shape;
    struct cpu_winograd w = {.n = y[0], .c = x[1], .h = x[2], .w = x[3], .o = y[1], .oh = y[2], .ow = y[3]};
    w.pad_h = d->attrs.conv2d.padding[0];
    w.pad_w = d->attrs.conv2d.padding[1];
    w.across = ceil_div(w.ow, 4);
    w.down = ceil_div(w.oh, 4);
    w.tiles = w.n * w.down * w.across;
    return w;
}

double cpu_winograd_pair(const struct tern_op_desc *d)
{
    if (d->in[1].ndim != 4 || d->out.ndim != 4 || !d->constant[1])
        return 0;
    const struct cpu_winograd w = cpu_winograd_sizes(d);
    return 2.0 * (double)(w.down * w.across);
}

struct cpu_winograd cpu_winograd_call(const struct tern_kernel_args *a, const float *zero, const struct cpu_post *post)
{
    struct cpu_winograd w = cpu_winograd_sizes(a->desc);
    w.x = tern_arg_host(&a->in[0]);
    w.bias = a->desc->present[2] ? tern_arg_host(&a->in[2]) : NULL;
    w.zero = zero;
    w.y = tern_arg_host(&a->out);
    w.level = cpu_level(a->ctx);
    w.post = post->n ? post : NULL;
    return w;
}

void cpu_winograd_pixels(const struct cpu_winograd *w, int64_t t, const float *pixel[TERN_WINOGRAD_POINTS])
{
    const int64_t x0 = t % w->across * 4 - w->pad_w, y0 = t / w->across % w->down * 4 - w->pad_h;
    const float *picture = w->x + t / w->across / w->down * w->h * w->w * w->c;
    for (int p = 0; p < TERN_WINOGRAD_POINTS; p++) {
        int64_t y = y0 + p / 6, x = x0 + p % 6;
        pixel[p] = y >= 0 && y < w->h && x >= 0 && x < w->w ? picture + (y * w->w + x) * w->c : w->zero;
    }
}

void cpu_winograd_finish(const struct cpu_winograd *w, int64_t t, int64_t col, int64_t n, const float *m, int64_t step)
{
    const int64_t x0 = t % w->across * 4, y0 = t / w->across % w->down * 4, row0 = t / w->across / w->down * w->oh * w->ow;
    float *pixel[16];
    for (int p = 0; p < 16; p++) {
        int64_t y = y0 + p / 4, x = x0 + p % 4;
        pixel[p] = y < w->oh && x < w->ow ? w->y + (row0 + y * w->ow + x) * w->o + col : NULL;
    }
    w->level->winograd_output(n, m, step, w->bias ? w->bias + col : NULL, pixel);
    for (int p = 0; w->post && p < 16; p++)
        if (pixel[p])
            cpu_post_apply(w->post, pixel[p], row0 + (y0 + p / 4) * w->ow + x0 + p % 4, col, n);
}

struct cpu_pack cpu_winograd_weights(const struct tern_op_desc *d, int64_t n)
{
    return (struct cpu_pack){.n = d->in[1].shape[0],
                             .k = n * 9,
                             .inner = n * 9,
                             .column = d->in[1].shape[1] * 9,
                             .within = 1,
                             .element = tern_dtype_size(d->in[1].dtype)};
}

int64_t cpu_winograd_apart(int64_t n) { return ceil_div(n, 1024) * 1024 + 16; }
