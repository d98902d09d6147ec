/* What benchmarks of SD 1.x's UNet share: what goes into it. */
#ifndef TERN_BENCH_UNET_H
#define TERN_BENCH_UNET_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <tern/tern.h>

/* Latents, time and context of two rows of a picture of side x side pixels: noise-like, the same each time. Tensors of the open scope. */
static inline bool unet_inputs(struct tern_context *ctx, enum tern_dtype dtype, int side, tern_tensor *in[3])
{
    const int64_t lat = side / 8, n = 2 * 4 * lat * lat, m = 2 * 77 * 768;
    float *x = calloc((size_t)(n > m ? n : m), sizeof(*x));
    for (int64_t i = 0; x && i < (n > m ? n : m); i++)
        x[i] = (float)((uint32_t)i * 2654435761u >> 8) / (1 << 23) - 1;
    in[0] = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){2, 4, lat, lat}, x), dtype);
    in[1] = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1, 320}, x);
    in[2] = tern_cast(tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){2, 77, 768}, x), dtype);
    free(x);
    return in[0] && in[1] && in[2];
}

#endif
