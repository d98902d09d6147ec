/* Philox 4x32-10 [Salmon 2011] and its numbers as PyTorch's CUDA generator draws them: value i of a draw is made from
 * counter (offset, i) and key seed alone, so that any device computes any part of it. */
#ifndef TERN_OPS_PHILOX_H
#define TERN_OPS_PHILOX_H

#include <math.h>
#include <stdint.h>

static inline void tern_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3], k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The four words of value i: counter (offset low, offset high, i low, i high), as curand_init(seed, i, 4 * offset). */
static inline void tern_philox_words(uint64_t seed, uint64_t offset, uint64_t i, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)offset, (uint32_t)(offset >> 32), (uint32_t)i, (uint32_t)(i >> 32)};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    tern_philox4x32(counter, key, out);
}

/* curand_uniform gives (0, 1]; torch.rand turns 1 into 0. */
static inline float tern_philox_uniform(uint64_t seed, uint64_t offset, uint64_t i)
{
    uint32_t w[4];
    tern_philox_words(seed, offset, i, w);
    float u = fmaf((float)w[0], 0x1p-32f, 0x1p-33f);
    return u == 1.0f ? 0.0f : u;
}

/* curand_normal: the first of a Box-Muller pair. The uniforms are f32 as in cuRAND; the functions are in double, because
 * cuRAND's fast sine is known to about 1e-6 only. */
static inline float tern_philox_normal(uint64_t seed, uint64_t offset, uint64_t i)
{
    uint32_t w[4];
    tern_philox_words(seed, offset, i, w);
    const float tau = 2.3283064e-10f * 6.2831855f; /* 2 pi / 2^32, rounded as in cuRAND */
    float u = fmaf((float)w[0], 0x1p-32f, 0x1p-33f), v = fmaf((float)w[1], tau, tau / 2);
    return (float)(sqrt(-2 * log((double)u)) * sin((double)v));
}

#endif
