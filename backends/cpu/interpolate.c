/* Nearest-neighbour resizing of channels-last pictures: whole pixels are copied. */
#include <math.h>
#include <string.h>
#include <tern/ops.h>

#include "backends/cpu/kernels.h"
#include "core/threads.h"

struct run {
    const char *x;
    char *y;
    int64_t h, w, oh, ow;
    size_t pixel; /* bytes */
    float scale_h, scale_w;
};

static int64_t source(int64_t i, float scale, int64_t n)
{
    int64_t s = (int64_t)floorf((float)i * scale);
    return s < n - 1 ? s : n - 1;
}

static void part(void *arg, int64_t begin, int64_t end)
{
    const struct run *r = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t n = i / r->oh, iy = source(i % r->oh, r->scale_h, r->h);
        const char *x = r->x + (size_t)((n * r->h + iy) * r->w) * r->pixel;
        char *y = r->y + (size_t)(i * r->ow) * r->pixel;
        for (int64_t ox = 0; ox < r->ow; ox++)
            memcpy(y + (size_t)ox * r->pixel, x + (size_t)source(ox, r->scale_w, r->w) * r->pixel, r->pixel);
    }
}

static bool supports(struct tern_device *device, const struct tern_op_desc *d)
{
    return d->attrs.interpolate.mode == TERN_NEAREST && tern_meta_is_channels_last(&d->in[0]) && tern_meta_is_channels_last(&d->out) &&
           tern_meta_numel(&d->in[0]) > 0;
}

/* 1 / scale_factor when one was given, as PyTorch. */
static float scale(double factor, int64_t in, int64_t out) { return factor > 0 ? (float)(1 / factor) : (float)in / (float)out; }

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
                    .scale_h = scale(d->attrs.interpolate.scale_h, x[2], y[2]),
                    .scale_w = scale(d->attrs.interpolate.scale_w, x[3], y[3])};
    tern_parallel(a->ctx, y[0] * y[2], 4, part, &r);
    return TERN_OK;
}

const struct tern_kernel cpu_interpolate_nearest = {
    .name = "interpolate_nearest", .op = TERN_OP_interpolate, .supports = supports, .run = run};
