/* The Mersenne Twister MT19937, with the state that tern_generator carries.
 * Source: Matsumoto, Nishimura, "Mersenne Twister", ACM TOMACS 8 (1998); initialisation of 2002. */
#include "models/random/random.h"

#define N 624
#define M 397

void tern_mt19937_seed(struct tern_generator *g, uint64_t seed)
{
    g->mt[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < N; i++) {
        uint32_t last = g->mt[i - 1];
        g->mt[i] = 1812433253u * (last ^ (last >> 30)) + i;
    }
    g->mt_index = N;
}

static void twist(uint32_t *mt)
{
    for (int i = 0; i < N; i++) {
        uint32_t y = (mt[i] & 0x80000000u) | (mt[(i + 1) % N] & 0x7fffffffu);
        mt[i] = mt[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfu : 0);
    }
}

uint32_t tern_mt19937_next(struct tern_generator *g)
{
    /* Also when a caller hands over a state that was never seeded. */
    if (g->mt_index < 0 || g->mt_index >= N) {
        twist(g->mt);
        g->mt_index = 0;
    }
    uint32_t y = g->mt[g->mt_index++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}
