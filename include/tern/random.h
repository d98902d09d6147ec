/* The ecosystem's random numbers: PyTorch's CPU generator (MT19937) and CUDA generator (Philox). */
#ifndef TERN_RANDOM_H
#define TERN_RANDOM_H

#include <tern/base.h>

#ifdef __cplusplus
extern "C" {
#endif

enum tern_generator_kind { TERN_GENERATOR_CPU = 0, TERN_GENERATOR_CUDA };

/* State of a generator; plain data, copy it to fork it. Zero is no valid state: use tern_generator_seed. */
struct tern_generator {
    enum tern_generator_kind kind;
    uint64_t seed;
    uint64_t offset;  /* CUDA: draws so far */
    uint32_t mt[624]; /* CPU: MT19937 state */
    int mt_index;
    bool has_next_normal; /* CPU: second value of a Box-Muller pair (the path for fewer than 16 values) */
    double next_normal;
};

/* torch.Generator(device).manual_seed(seed). */
TERN_API void tern_generator_seed(struct tern_generator *g, enum tern_generator_kind kind, uint64_t seed);

/* torch.randn(n, generator=g), float32. CPU: PyTorch's bits (x86-64 with AVX2), its path for n < 16 (f64, as exact as
 * libm) and the one for n >= 16. CUDA: PyTorch's values to about 1e-6, while the GPU has a thread for each of the n values
 * (40,960 on a T4, 221,184 on an A100; larger tensors depend on the GPU). */
TERN_API void tern_generator_randn(struct tern_generator *g, float *out, int64_t n);

/* torch.rand(n, generator=g), float32 in [0, 1). */
TERN_API void tern_generator_rand(struct tern_generator *g, float *out, int64_t n);

/* A Brownian motion over noise levels for each seed, n values wide: the noise of the samplers dpm++sde, dpm++2m_sde … A step's noise
 * depends on the seed and on the two levels, not on how many steps were made before. */
struct tern_brownian;

/* low..high: the range of levels, 0 <= low <= high <= 2^30. kind: whose unit noise it is made of. NULL with the error recorded. */
TERN_API struct tern_brownian *tern_brownian_create(struct tern_context *ctx, enum tern_generator_kind kind, double low, double high,
                                                    int64_t n);
TERN_API void tern_brownian_destroy(struct tern_brownian **b);

/* (W(to) - W(from)) / sqrt(|to - from|): unit noise, n values. Levels out of the range count as its ends. With CPU the bits of
 * k-diffusion's BrownianTreeNoiseSampler(seed) on the CPU, which is what A1111 takes for each picture of a batch. Levels are rounded
 * to 1e-6; two that then are the same give zeros. One thread at a time. */
TERN_API enum tern_status tern_brownian_noise(struct tern_brownian *b, uint64_t seed, double from, double to, float *out);

#ifdef __cplusplus
}
#endif
#endif
