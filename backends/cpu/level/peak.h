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

#if !defined(LEVEL_OVER)
/* Chain c starts from c, each round makes x / 2 + 1 of x: it stays between 0 and CHAINS, and no two chains are equal. The compiler is not
 * told where they start: it knows that 2 stays 2 and would leave that chain out. */
static double multiply_add(int64_t rounds, float *sum)
{
    volatile float first = 0;
    vf acc[CHAINS], half = v_set(0.5f), one = v_set(1), all = v_set(0);
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        acc[c] = v_set(first + (float)c);
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

/* Ones times ones, of bf16 or of bytes: each round adds the depth of an instruction to every sum. */
#if defined(TERN_LEVEL_amx)
#define ADD_TILE(t) TILES_MULTIPLY(bytes, t, 6, 7)

INLINE double multiply_add_dot(const bool bytes, int64_t rounds, float *sum)
{
    uint16_t ones[16][32];
    uint32_t stored[16][16];
    float value;
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 32; j++)
            ones[i][j] = bytes ? 0x0101 : 0x3f80;
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
    for (int end = 0; end < 2; end++) {
        if (end)
            _tile_stored(5, stored, sizeof(stored[0]));
        else
            _tile_stored(0, stored, sizeof(stored[0]));
        memcpy(&value, &stored[15 * end][15 * end], sizeof(value));
        *sum += bytes ? (float)stored[15 * end][15 * end] : value;
    }
    bf16_end();
    return 2.0 * (double)rounds * 6 * 16 * 16 * (bytes ? 64 : 32);
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
#elif defined(TERN_LEVEL_VNNI)
INLINE double multiply_add_dot(const bool bytes, int64_t rounds, float *sum)
{
    vd acc[CHAINS], one = vd_word(bytes ? 0x01010101 : 0x3f803f80);
    int32_t most = 0, lanes[VW];
    vi all = {0};
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        acc[c] = vd_zero();
    for (int64_t r = 0; r < rounds; r++) {
        __asm__ volatile("" : "+v"(one)); /* else equal sums would become one */
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) {
            acc[c] = vd_multiply_add(bytes, acc[c], one, one);
            __asm__ volatile("" : "+v"(acc[c]));
        }
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++) /* which are of numbers from 0 on: in the order of their bits */
        all = v_larger(all, (vi)acc[c]);
    memcpy(lanes, &all, sizeof(lanes));
    for (int k = 0; k < VW; k++)
        most = lanes[k] > most ? lanes[k] : most;
    memcpy(sum, &most, sizeof(most));
    *sum = 2 * (bytes ? (float)most : *sum);
    return 2.0 * (double)rounds * CHAINS * VW * (bytes ? 4 : 2);
}
#endif

#if defined(TERN_LEVEL_VNNI)
#if defined(TERN_LEVEL_BF16)
static double multiply_add_bf16(int64_t rounds, float *sum) { return multiply_add_dot(false, rounds, sum); }
#endif
static double multiply_add_i8(int64_t rounds, float *sum) { return multiply_add_dot(true, rounds, sum); }
#define I8_PEAK multiply_add_i8
#endif

#if defined(TERN_LEVEL_neonbf16) || defined(TERN_LEVEL_neondot)
/* A step of the depth in a round: one smmla, or sdot for each of four words. */
static double multiply_add_i8(int64_t rounds, float *sum)
{
    int32x4_t acc[CHAINS], all = vdupq_n_s32(0);
    const int8x16_t one = vdupq_n_s8(1);
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        acc[c] = vdupq_n_s32(0);
    for (int64_t r = 0; r < rounds; r++) {
#pragma GCC unroll 24
        for (int c = 0; c < CHAINS; c++) {
#if defined(TERN_LEVEL_neonbf16)
            acc[c] = vmmlaq_s32(acc[c], one, one);
#else
            for (int word = 0; word < 4; word++)
                acc[c] = vdotq_s32(acc[c], one, one);
#endif
            __asm__ volatile("" : "+w"(acc[c])); /* else equal sums would become one */
        }
    }
#pragma GCC unroll 24
    for (int c = 0; c < CHAINS; c++)
        all = vmaxq_s32(all, acc[c]);
    *sum = 2 * (float)vmaxvq_s32(all);
    return 2.0 * (double)rounds * CHAINS * 2 * 2 * I8_STEP * 2;
}
#define I8_PEAK multiply_add_i8
#endif

#if !defined(I8_PEAK)
#define I8_PEAK NULL
#endif

#endif
