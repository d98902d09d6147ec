/* Powers of two of the scores of attention as bf16, by additions and a table: the products beside them need all
 * multiplications. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_QUICK_POWERS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_QUICK_POWERS_H

#include "backends/cpu/level/attention_sizes.h"

/* A float in 2^15 .. 2^16 counts in 1/256. With x + 111 on top of 2^15, half of what its last bits hold is the bf16 of 2^x, but for 16 that
 * its exponent lacks, and for what 2^f is below 1 + f, f being the part of x behind the point. Both are in a table, by the first six bits
 * of f. A sixteenth more lets one byte of the table's words be the same in all. So x is from -111 to 16.9. */
#define QUICK_BASE 0x47000000
#define QUICK_SHIFT (0x1p15f + 111 + 0x1p-4f)
#define QUICK_HIGH 0x0f00
#define QUICK_FAR 0x1p15f /* a shift by it is off by 2^-8 at most */

/* The reference of rows that have none yet: scores are from FIRST_MOST - 111 to FIRST_MOST + 16.9, and a row's largest power is
 * FIRST_LEAST, 2^-40, or more, so that products with values stay far from where bf16 and f32 end. */
#define FIRST_MOST 16
#define FIRST_LEAST ((127 - 40) << 7)

/* Each the one of 0 .. 255 that makes the squares of the relative errors of its four results least, for x in the middles of the quarters of
 * each 1/256. So a power is wrong by 0.6 % at most, 0.2 % in the mean square; rounding to bf16 alone by 0.4 and 0.17 %. */
static const uint8_t quick_table[64] = {234, 236, 237, 238, 239, 238, 237, 235, 235, 233, 232, 231, 230, 229, 229, 227,
                                        227, 226, 225, 224, 224, 223, 222, 222, 221, 221, 220, 220, 219, 219, 219, 218,
                                        218, 218, 218, 218, 218, 217, 217, 218, 218, 218, 218, 218, 218, 219, 219, 220,
                                        220, 220, 221, 222, 222, 223, 224, 224, 226, 226, 227, 228, 230, 230, 232, 233};

/* Rows of powers of a block of keys, one after the other, by a `most` that each has. */
struct quick_powers {
    const float *x, *most;
    uint16_t *to;
    int64_t keys, seen; /* that are there; that the next row sees, one fewer than the row after it: KEYS or more where all see all */
    __m512 factor;
    __m512i strange; /* bits of sums that are not in 2^15 .. 2^15 + 128 */
};

INLINE struct quick_powers quick_powers_begin(const float *x, uint16_t *to, float factor, const float *most)
{
    return (struct quick_powers){x, most, to, KEYS, KEYS, _mm512_set1_ps(factor), _mm512_setzero_si512()};
}

/* Whether those of a group are so near that a shift by each is off by less than what a power is: it is rounded to its own last place, which
 * the powers that go one by one are not, and keys that are alike would count differently. */
INLINE bool quick_mosts_fit(const float *most)
{
    return !_mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_loadu_ps(most)), _mm512_set1_ps(QUICK_FAR), _CMP_NLE_UQ);
}

/* The low halves of a beside those of b. One instruction is faster beside tiles, two are beside vdpbf16ps. */
INLINE __m512i low_words(__m512i a, __m512i b)
{
#if defined(TERN_LEVEL_amx)
    return _mm512_mask_shuffle_epi8(a, 0xcccccccccccccccc, b, _mm512_set4_epi32(0x0d0c0000, 0x09080000, 0x05040000, 0x01000000));
#else
    return _mm512_mask_blend_epi16(0xaaaaaaaa, a, _mm512_bslli_epi128(b, 2));
#endif
}

/* Those of x beside those of y. */
INLINE __m512i quick_pairs(struct quick_powers *q, __m512 x, __m512 y, __m512 shift)
{
    const __m512i base = _mm512_set1_epi32(QUICK_BASE), table = _mm512_loadu_si512(quick_table);
    const __m512i a = (__m512i)_mm512_fmadd_ps(x, q->factor, shift), b = (__m512i)_mm512_fmadd_ps(y, q->factor, shift);
    q->strange = _mm512_ternarylogic_epi32(q->strange, a, base, 0xf6); /* strange | (a ^ base) */
    q->strange = _mm512_ternarylogic_epi32(q->strange, b, base, 0xf6);
    const __m512i words = low_words(a, b);
    const __m512i more =
        _mm512_mask_permutexvar_epi8(_mm512_set1_epi16(QUICK_HIGH), 0x5555555555555555, _mm512_srli_epi16(words, 2), table);
    return _mm512_avg_epu16(words, more);
}

/* Which of a panel's powers are of its first `keys` keys, none for less than one. */
INLINE __mmask32 pairs_there(int64_t keys)
{
    const __m512i key = _mm512_set_epi32(0x1f000f, 0x1e000e, 0x1d000d, 0x1c000c, 0x1b000b, 0x1a000a, 0x190009, 0x180008, 0x170007, 0x160006,
                                         0x150005, 0x140004, 0x130003, 0x120002, 0x110001, 0x100000);
    return _mm512_cmplt_epi16_mask(key, _mm512_set1_epi16((short)keys));
}

INLINE void quick_powers_next(struct quick_powers *q)
{
    const __m512 shift = _mm512_set1_ps(QUICK_SHIFT - *q->most);
#pragma GCC unroll 2
    for (int j = 0; j < KEYS; j += PAIR)
        _mm512_storeu_si512(q->to + j, quick_pairs(q, _mm512_loadu_ps(q->x + j), _mm512_loadu_ps(q->x + j + 16), shift));
    q->x += LD_SCORES;
    q->to += LD_POWERS;
    q->most++;
}

/* The same of any block, in whole PAIRs: zero for a key that is not there or that the row does not see. Of a panel that is half as wide
 * there are no sums behind the first 16. */
INLINE void quick_powers_some(struct quick_powers *q)
{
    const __m512 shift = _mm512_set1_ps(QUICK_SHIFT - *q->most);
    const int64_t seen = q->seen < q->keys ? q->seen : q->keys;
    for (int64_t j = 0; j < q->keys; j += PAIR) {
        const __m512 x = _mm512_loadu_ps(q->x + j), y = q->keys - j > 16 ? _mm512_loadu_ps(q->x + j + 16) : x;
        const __m512i powers = quick_pairs(q, x, y, shift);
        _mm512_storeu_si512(q->to + j, seen - j < PAIR ? _mm512_maskz_mov_epi16(pairs_there(seen - j), powers) : powers);
    }
    q->seen++;
    q->x += LD_SCORES;
    q->to += LD_POWERS;
    q->most++;
}

/* The first powers of some rows, by FIRST_MOST, are large enough: each row has one that is. keys: in whole PAIRs. */
INLINE bool first_powers_count(int64_t rows, int64_t keys, const uint16_t *powers)
{
    for (int64_t i = 0; i < rows; i++, powers += LD_POWERS) {
        __m512i largest = _mm512_loadu_si512(powers);
        for (int64_t j = PAIR; j < keys; j += PAIR)
            largest = _mm512_max_epu16(largest, _mm512_loadu_si512(powers + j));
        if (!_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(FIRST_LEAST)))
            return false;
    }
    return true;
}

/* All were numbers in their range: else rows need another `most`, or the other way to make powers. */
INLINE bool quick_powers_fit(const struct quick_powers *q)
{
    return !_mm512_test_epi32_mask(q->strange, _mm512_set1_epi32((int)0xffff8000));
}

/* y of KEYS values, as attention_power. */
static bool quick_power(const float *x, float factor, float most, uint16_t *y)
{
    struct quick_powers q = quick_powers_begin(x, y, factor, &most);
    quick_powers_next(&q);
    return quick_powers_fit(&q);
}

#endif
