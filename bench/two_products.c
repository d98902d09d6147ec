/* How fast a device multiplies: matmul of 4096 x 4096 x 4096 and conv2d 3 x 3 of 320 channels at 64 x 64, batch 2, channels-last.
 * usage: bench_two_products DEVICE [f16|f32|bf16] [SIDE]. Public headers only; a JSON object for each line "run" on standard input. TFLOP/s
 * of the best of three bursts, each as long as it takes to hide a read of the result. TERN_CUBLASLT_LIBRARY=none and
 * TERN_CUDNN_LIBRARY=none leave the vendor's libraries out. SIDE: of the matrices, 4096. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

#define BURST 20

struct product {
    const char *name;
    tern_tensor *x, *w;
    double flops;
};

static tern_tensor *noise(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    return tern_cast(tern_mul_scalar(tern_randn(ctx, ndim, shape, 1, 0), 0.02), dtype);
}

static tern_tensor *multiply(const struct product *p)
{
    return p->name[0] == 'm' ? tern_matmul(p->x, p->w) : tern_conv2d(p->x, p->w, NULL, .padding = 1);
}

/* Seconds of one call; 0: it failed. */
static double time_of(struct tern_context *ctx, const struct product *p, int calls)
{
    float one;
    double start = now();
    for (int i = 0; i < calls; i++) {
        tern_scope_begin(ctx);
        tern_tensor *y = multiply(p);
        int ndim = y ? tern_tensor_ndim(y) : 0;
        if (i == calls - 1) /* its last value, which waits for all before it */
            for (int d = 0; d < ndim; d++)
                y = tern_slice(y, d, tern_tensor_shape(y)[d] - 1, tern_tensor_shape(y)[d], 1);
        bool bad = !y || (i == calls - 1 && tern_tensor_read(y, TERN_F32, &one, sizeof(one)));
        tern_scope_end(ctx, NULL);
        if (bad)
            return 0;
    }
    return (now() - start) / calls;
}

static bool run(struct tern_context *ctx, const struct product *p)
{
    double best = 0;
    if (time_of(ctx, p, 1) <= 0) /* compiles */
        return false;
    int calls = time_of(ctx, p, 1) > 0.2 ? 1 : BURST;
    for (int i = 0; i < 3; i++) {
        double t = time_of(ctx, p, calls);
        best = t > 0 && (best <= 0 || t < best) ? t : best;
    }
    printf("{\"product\": \"%s\", \"seconds\": %.3g, \"tflops\": %.4g}\n", p->name, best, p->flops / best * 1e-12);
    fflush(stdout);
    return best > 0;
}

static enum tern_dtype dtype_of(const char *name) { return !strcmp(name, "f16") ? TERN_F16 : !strcmp(name, "bf16") ? TERN_BF16 : TERN_F32; }

int main(int argc, char **argv)
{
    char line[64];
    int64_t n = argc > 3 ? atoi(argv[3]) : 4096;
    enum tern_dtype dtype = dtype_of(argc > 2 ? argv[2] : "f16");
    if (argc < 2 || argc > 4 || n < 64) {
        fprintf(stderr, "usage: %s DEVICE [f16|f32|bf16] [SIDE]\n", argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = argv[1]});
    if (!ctx) {
        fprintf(stderr, "%s\n", tern_create_error());
        return 1;
    }
    tern_scope_begin(ctx);
    const int64_t square[] = {n, n}, picture[] = {2, 320, 64, 64}, filter[] = {320, 320, 3, 3};
    const struct product all[] = {{"matmul", noise(ctx, dtype, 2, square), noise(ctx, dtype, 2, square),
                                   2.0 * (double)n * (double)n * (double)n},
                                  {"conv2d", tern_contiguous(noise(ctx, dtype, 4, picture), TERN_CHANNELS_LAST),
                                   tern_contiguous(noise(ctx, dtype, 4, filter), TERN_CHANNELS_LAST), 2.0 * 2 * 64 * 64 * 320 * 320 * 9}};
    bool good = true;
    while (good && fgets(line, sizeof(line), stdin))
        for (int i = 0; good && i < 2; i++)
            good = run(ctx, &all[i]);
    if (!good)
        fprintf(stderr, "%s\n", tern_error(ctx));
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
    return !good;
}
