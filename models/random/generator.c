/* The public generator: PyTorch's rules for how many words a value takes and in which order. */
#include <math.h>
#include <string.h>

#include "models/random/random.h"

#define TWO_PI 6.283185307179586476925

void tern_generator_seed(struct tern_generator *g, enum tern_generator_kind kind, uint64_t seed)
{
    if (!g)
        return;
    memset(g, 0, sizeof(*g));
    g->kind = kind;
    g->seed = seed;
    tern_mt19937_seed(g, seed);
}

/* 24 bits in [0, 1) */
static float uniform_f32(struct tern_generator *g) { return (float)(tern_mt19937_next(g) & 0xffffffu) * 0x1p-24f; }

/* 53 bits in [0, 1) of two words, high word first */
static double uniform_f64(struct tern_generator *g)
{
    uint64_t high = tern_mt19937_next(g);
    uint64_t bits = high << 32 | tern_mt19937_next(g);
    return (double)(bits & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

/* One value in f64; of each pair the sine is kept for the next call. */
static double normal_f64(struct tern_generator *g)
{
    if (g->has_next_normal) {
        g->has_next_normal = false;
        return g->next_normal;
    }
    double angle = TWO_PI * uniform_f64(g);
    double radius = sqrt(-2 * log1p(-uniform_f64(g)));
    g->next_normal = radius * sin(angle);
    g->has_next_normal = true;
    return radius * cos(angle);
}

void tern_generator_randn(struct tern_generator *g, float *out, int64_t n)
{
    if (!g || !out || n <= 0)
        return;
    if (g->kind == TERN_GENERATOR_CUDA) {
        tern_philox_randn(g, out, n);
        return;
    }
    if (n < 16) {
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)normal_f64(g);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = uniform_f32(g);
    for (int64_t i = 0; i + 16 <= n; i += 16)
        tern_box_muller_16(out + i);
    if (n % 16) { /* the last 16 values are drawn again */
        for (int64_t i = n - 16; i < n; i++)
            out[i] = uniform_f32(g);
        tern_box_muller_16(out + n - 16);
    }
}

void tern_generator_rand(struct tern_generator *g, float *out, int64_t n)
{
    if (!g || !out || n <= 0)
        return;
    if (g->kind == TERN_GENERATOR_CUDA) {
        tern_philox_rand(g, out, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        out[i] = uniform_f32(g);
}
