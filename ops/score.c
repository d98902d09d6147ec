/* What a device is worth: the layers that diffusion models spend their time in, measured for "auto". */
#include <math.h>
#include <tern/ops.h>
#include <tern/tensor.h>

#include "core/context.h"
#include "core/line.h"

/* A piece of Stable Diffusion 1.5's UNet at 32 x 32: 3 x 3 convolution of 320 channels, projection to 1280, attention of 8 heads. */
enum { SIDE = 32, CHANNELS = 320, WIDE = 1280, HEADS = 8, TOKENS = SIDE * SIDE };
#define LAYERS_FLOPS (2.0 * TOKENS * CHANNELS * CHANNELS * 9 + 2.0 * TOKENS * CHANNELS * WIDE + 4.0 * TOKENS * TOKENS * CHANNELS)

/* Measuring takes at least that long, so that clocks count, and so many runs, and ends after it. Compiling comes before. The fastest run
 * counts: what stops the machine for a while says nothing about the device. */
#define SECONDS 0.4
#define LEAST_RUNS 2

struct layers {
    tern_tensor *x, *conv, *scale, *shift, *wide, *heads;
};

static tern_tensor *random_of(struct tern_context *ctx, int ndim, const int64_t *shape, uint64_t seed)
{
    return tern_randn(ctx, ndim, shape, seed, 0);
}

static void run_layers(const struct layers *l)
{
    tern_tensor *h = tern_silu(tern_group_norm(l->x, 32, l->scale, l->shift, 1e-5));
    tern_conv2d(h, l->conv, l->shift, .padding = 1);
    tern_linear(tern_reshape(l->heads, 2, (int64_t[]){TOKENS, CHANNELS}), l->wide, NULL);
    tern_sdpa(l->heads, l->heads, l->heads);
}

static enum tern_status run_once(struct tern_context *ctx, const struct layers *l)
{
    tern_scope_begin(ctx);
    run_layers(l);
    enum tern_status st = tern_failed(ctx) ? tern_error_status(ctx) : ctx->device->queue->fns->finish(ctx->device->queue);
    tern_scope_end(ctx, NULL);
    return st;
}

static double measure(struct tern_context *ctx, const struct layers *l)
{
    double least = INFINITY, seconds = 0;
    /* the first compiles, the second finds its memory */
    for (int run = -2; run < LEAST_RUNS || seconds < SECONDS; run++) {
        double start = tern_now();
        if (run_once(ctx, l))
            return 0;
        double took = tern_now() - start;
        if (run >= 0) {
            least = fmin(least, took);
            seconds += took;
        }
    }
    return LAYERS_FLOPS / fmax(least, 1e-9);
}

double tern_device_score(struct tern_context *ctx)
{
    tern_scope_begin(ctx);
    struct layers l = {.x = random_of(ctx, 4, (int64_t[]){1, CHANNELS, SIDE, SIDE}, 1),
                       .conv = random_of(ctx, 4, (int64_t[]){CHANNELS, CHANNELS, 3, 3}, 2),
                       .scale = random_of(ctx, 1, (int64_t[]){CHANNELS}, 3),
                       .shift = random_of(ctx, 1, (int64_t[]){CHANNELS}, 4),
                       .wide = random_of(ctx, 2, (int64_t[]){WIDE, CHANNELS}, 5),
                       .heads = random_of(ctx, 4, (int64_t[]){1, HEADS, TOKENS, CHANNELS / HEADS}, 6)};
    double flops = tern_failed(ctx) ? 0 : measure(ctx, &l);
    tern_scope_end(ctx, NULL);
    return flops;
}
