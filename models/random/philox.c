/* Philox 4x32-10 as PyTorch's CUDA generator uses it through cuRAND: thread i has subsequence i, each call of randn or
 * rand moves the offset on by one block. The layout is that of a tensor for which the GPU starts one thread per value:
 * up to 256 threads x resident blocks (40,960 values on a T4, 221,184 on an A100, more on larger GPUs). */
#include <math.h>

#include "models/random/random.h"

/* cuRAND's constants: 2^-32 and 2 pi 2^-32 as it rounds them. */
#define UNIT 2.3283064e-10f
#define TURN (2.3283064e-10f * 6.2831855f)

void tern_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

static void block(const struct tern_generator *g, int64_t i, uint32_t out[4])
{
    const uint32_t counter[4] = {(uint32_t)g->offset, (uint32_t)(g->offset >> 32), (uint32_t)i, (uint32_t)((uint64_t)i >> 32)};
    const uint32_t key[2] = {(uint32_t)g->seed, (uint32_t)(g->seed >> 32)};
    tern_philox4x32(counter, key, out);
}

/* (0, 1] */
static float uniform(uint32_t word) { return fmaf((float)word, UNIT, UNIT / 2); }

/* Of the four words of a block one value is used: the sine of the first pair. A GPU takes it from its fast sine, good to
 * 4e-7 up to pi (CUDA C++ Programming Guide, __sinf); here it is the exact one, of the same f32 uniform and angle. */
void tern_philox_randn(struct tern_generator *g, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t x[4];
        block(g, i, x);
        double u = uniform(x[0]), v = fmaf((float)x[1], TURN, TURN / 2);
        out[i] = (float)(sqrt(-2 * log(u)) * sin(v));
    }
    g->offset++;
}

/* cuRAND's uniforms are in (0, 1]; PyTorch turns 1 into 0. */
void tern_philox_rand(struct tern_generator *g, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t x[4];
        block(g, i, x);
        float u = uniform(x[0]);
        out[i] = u == 1 ? 0 : u;
    }
    g->offset++;
}
