/* Nearest-neighbour resizing of channels-last pictures: whole pixels are copied. */
#include <string.h>
#include <tern/ops.h>

#include "backends/cpu/kernels.h"
#include "core/threads.h"
#include "ops/interpolate.h"

struct run {
    const char *x;
    char *y;
    int64_t h, w, oh, ow;
    size_t pixel;            /* bytes */
    double scale_h, scale_w; /* 0: by the sizes */
};

static void part(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / r->oh, iy = tern_nearest(i % r->oh, r->h, r->oh, r->scale_h);
        const char *x = r->x + (size_t)((n * r->h + iy) * r->w) * r->pixel;
        char *y = r->y + (size_t)(i * r->ow) * r->pixel;
        for (int64_t ox = 0; ox < r->ow; ox++)
            memcpy(y + (size_t)ox * r->pixel, x + (size_t)tern_nearest(ox, r->w, r->ow, r->scale_w) * r->pixel, r->pixel);
    }
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->attrs.interpolate.mode == TERN_NEAREST && tern_meta_is_channels_last(&d->in[0]) && tern_meta_is_channels_last(&d->out) &&
           tern_meta_numel(&d->in[0]) > 0;
}

static enum tern_status run(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const int64_t *x = d->in[0].shape, *y = d->out.shape;
    struct run r = {.x = tern_arg_host(&a->in[0]),
                    .y = tern_arg_host(&a->out),
                    .h = x[2],
                    .w = x[3],
                    .oh = y[2],
                    .ow = y[3],
                    .pixel = (size_t)x[1] * tern_dtype_size(d->in[0].dtype),
                    .scale_h = d->attrs.interpolate.scale_h,
                    .scale_w = d->attrs.interpolate.scale_w};
    tern_parallel(a->ctx, y[0] * y[2], 4, part, &r);
    return TERN_OK;
}

const struct tern_kernel tern_cpu_interpolate_nearest = {
    .name = "interpolate_nearest", .op = TERN_OP_interpolate, .supports = supports, .run = run};
