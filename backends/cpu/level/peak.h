/* Multiplications and additions without memory: what the level computes at most. */
#ifndef TERN_BACKENDS_CPU_PEAK_H
#define TERN_BACKENDS_CPU_PEAK_H

#include "backends/cpu/level/vec.h"

/* Sums that do not wait for each other: as many as there are registers for, more than two units with a latency of four cycles
 * each keep in flight (four on cores that have 32 registers of 128 bits). */
#if defined(TERN_LEVEL_512) || defined(__aarch64__)
#define CHAINS 24
#else
#define CHAINS 12
#endif

/* Chain c starts from c, each round makes x / 2 + 1 of x: it stays between 0 and CHAINS, and no two chains are equal. */
static double multiply_add(int64_t rounds, float *sum)
{
    vf acc[CHAINS], half = v_set(0.5f), one = v_set(1), all = v_set(0);
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        acc[c] = v_set((float)c);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++)
            acc[c] = acc[c] * half + one;
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        all += acc[c];
    *sum = v_sum(all);
    return 2.0 * (double)rounds * CHAINS * VW;
}

#endif
