/* Multiplications and additions without memory: what the level computes at most. */
#ifndef TERN_BACKENDS_CPU_PEAK_H
#define TERN_BACKENDS_CPU_PEAK_H

#include "backends/cpu/level/bf16.h"

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

#if defined(TERN_LEVEL_BF16)
/* Ones times ones: each round adds the depth of an instruction to every sum. */
#if defined(TERN_LEVEL_amx)
#define ADD_TILE(t) _tile_dpbf16ps(t, 6, 7)

static double multiply_add_bf16(int64_t rounds, float *sum)
{
    uint16_t ones[16][32];
    float stored[16][16];
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 32; j++)
            ones[i][j] = 0x3f80;
    bf16_begin();
    _tile_loadd(6, ones, sizeof(ones[0]));
    _tile_loadd(7, ones, sizeof(ones[0]));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    for (int64_t r = 0; r < rounds; r++) {
        ADD_TILE(0);
        ADD_TILE(1);
        ADD_TILE(2);
        ADD_TILE(3);
        ADD_TILE(4);
        ADD_TILE(5);
    }
    *sum = 0;
    _tile_stored(0, stored, sizeof(stored[0]));
    *sum += stored[0][0];
    _tile_stored(5, stored, sizeof(stored[0]));
    *sum += stored[15][15];
    bf16_end();
    return 2.0 * (double)rounds * 6 * 16 * 16 * 32;
}
#elif defined(TERN_LEVEL_neonbf16)
static double multiply_add_bf16(int64_t rounds, float *sum)
{
    float32x4_t acc[CHAINS], all = vdupq_n_f32(0);
    uint16x8_t one_bits = vdupq_n_u16(0x3f80);
    __asm__("" : "+w"(one_bits)); /* gcc 12 makes a constant 1 of bf16 into one of f16 */
    bfloat16x8_t one = vreinterpretq_bf16_u16(one_bits);
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        acc[c] = vdupq_n_f32(0);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = vbfmmlaq_f32(acc[c], one, one);
            __asm__ volatile("" : "+w"(acc[c])); /* else equal sums would become one */
        }
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        all = vmaxq_f32(all, acc[c]);
    *sum = 2 * vmaxvq_f32(all);
    return 2.0 * (double)rounds * CHAINS * 2 * 2 * 4;
}
#else
static double multiply_add_bf16(int64_t rounds, float *sum)
{
    __m512 acc[CHAINS], all = _mm512_setzero_ps();
    __m512i one = _mm512_set1_epi16(0x3f80);
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        acc[c] = _mm512_setzero_ps();
    for (int64_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+v"(one)); /* else equal sums would become one */
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = _mm512_dpbf16_ps(acc[c], (__m512bh)one, (__m512bh)one);
            __asm__ volatile("" : "+v"(acc[c]));
        }
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        all = _mm512_max_ps(all, acc[c]);
    *sum = 2 * _mm512_reduce_max_ps(all);
    return 2.0 * (double)rounds * CHAINS * 32;
}
#endif
#endif

#endif
