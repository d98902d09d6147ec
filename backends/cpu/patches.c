/* The pictures that convolutions read, and their patches as rows of a matrix. */
#include "backends/cpu/patches.h"

#include <string.h>

struct cpu_picture tern_cpu_picture_make(const struct tern_op_desc *d, const void *x)
{
    const struct tern_conv2d_attrs *p = &d->attrs.conv2d;
    return (struct cpu_picture){.x = x,
                                .element = (int64_t)tern_dtype_size(d->in[0].dtype),
                                .h = d->in[0].shape[2],
                                .w = d->in[0].shape[3],
                                .c = d->in[0].shape[1],
                                .oh = d->out.shape[2],
                                .ow = d->out.shape[3],
                                .kh = d->in[1].shape[2],
                                .kw = d->in[1].shape[3],
                                .stride_h = p->stride[0],
                                .stride_w = p->stride[1],
                                .pad_h = p->padding[0],
                                .pad_w = p->padding[1],
                                .dilation_h = p->dilation[0],
                                .dilation_w = p->dilation[1]};
}

bool tern_cpu_picture_is_matrix(const struct cpu_picture *s)
{
    return s->kh == 1 && s->kw == 1 && s->pad_h == 0 && s->pad_w == 0 && s->oh == s->h && s->ow == s->w;
}

/* Runs of channels of one tap. */
void tern_cpu_picture_gather(const struct cpu_picture *s, int64_t row0, int64_t rows, int64_t k0, int64_t kc, void *dst, int64_t ld)
{
    for (int64_t i = 0; i < rows; i++) {
        int64_t pixel = row0 + i, ox = pixel % s->ow, oy = pixel / s->ow % s->oh, n = pixel / s->ow / s->oh;
        const char *x = s->x + n * s->h * s->w * s->c * s->element;
        char *to = (char *)dst + i * ld * s->element;
        for (int64_t k = k0; k < k0 + kc;) {
            int64_t tap = k / s->c, c = k % s->c, run = s->c - c < k0 + kc - k ? s->c - c : k0 + kc - k;
            int64_t iy = oy * s->stride_h - s->pad_h + tap / s->kw * s->dilation_h;
            int64_t ix = ox * s->stride_w - s->pad_w + tap % s->kw * s->dilation_w;
            if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
                memcpy(to, x + ((iy * s->w + ix) * s->c + c) * s->element, (size_t)(run * s->element));
            else
                memset(to, 0, (size_t)(run * s->element));
            to += run * s->element;
            k += run;
        }
    }
}

bool tern_cpu_picture_fits(const struct tern_op_desc *d)
{
    return d->attrs.conv2d.groups == 1 && tern_meta_is_channels_last(&d->in[0]) && tern_dtype_is_float(d->in[1].dtype) &&
           tern_meta_is_contiguous(&d->in[1]) && (!d->present[2] || tern_meta_is_contiguous(&d->in[2])) &&
           tern_meta_is_channels_last(&d->out) && d->in[1].shape[1] * d->in[1].shape[2] * d->in[1].shape[3] > 0;
}

struct cpu_pack tern_cpu_picture_weights(const struct tern_op_desc *d)
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
