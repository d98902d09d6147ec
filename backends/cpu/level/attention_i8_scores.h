/* Scores and powers of attention in int8 by vpdpbusd: a block of keys and four queries at a time, or two, in registers. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_SCORES_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_SCORES_H

#include "backends/cpu/level/attention_i8_most.h"

#define LD_BYTES (BLOCKS * BLOCK) /* from a row of powers to the next: blocks that meet their values together */

/* acc += products of unsigned x and signed y, four to a sum. The builtin of gcc 12 copies each sum there and back. */
INLINE void add_words(__m512i *acc, __m512i x, __m512i y) { __asm__("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y)); }

#define SOME 4 /* queries whose scores are made together */

struct i8_scratch {
    uint8_t powers[QUERIES * LD_BYTES];
    float scores[SOME * BLOCK];
};

/* Adds products of some rows of queries and a block of keys, `words` of four values. rows, SOME at most, is a constant wherever this is
 * inlined, so that acc lives in registers. */
INLINE void i8_multiply(const int rows, int64_t words, const uint8_t *q, int64_t ldq, const int8_t *k, __m512i acc[][4])
{
#pragma GCC unroll 4
    for (int64_t t = 0; t < words; t++, q += 4, k += BLOCK * 4) {
        __m512i y[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            y[v] = _mm512_loadu_si512(k + v * 64);
            __asm__("" : "+v"(y[v])); /* else gcc loads it again for each row */
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            int32_t word;
            memcpy(&word, q + i * ldq, sizeof(word));
            const __m512i x = _mm512_set1_epi32(word);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++)
                add_words(&acc[i][v], x, y[v]);
        }
    }
}

INLINE void i8_offsets(const int rows, const int32_t *offset, __m512i acc[][4])
{
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            acc[i][v] = _mm512_loadu_si512(offset + v * LANES);
}

/* Scores of some rows with a block of keys, as whole numbers. */
INLINE void i8_scores(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, __m512i acc[][4])
{
    const struct tern_cpu_head_i8 *h = a->head;
    i8_offsets(SOME, h->offset + first, acc);
    i8_multiply(SOME, h->depth / 4, a->q + row * a->ldq, a->ldq, h->k + first * h->depth, acc);
}

/* What makes exponents of a group's scores with a block: factors, and behind them shifts. */
INLINE void i8_exponents(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, float to[2 * QUERIES])
{
    const __m512 scale = _mm512_set1_ps(a->head->k_scale[first / BLOCK]);
    _mm512_storeu_ps(to, _mm512_mul_ps(_mm512_loadu_ps(a->row + row), scale));
    _mm512_storeu_ps(to + QUERIES, _mm512_add_ps(_mm512_loadu_ps(a->most + row), _mm512_set1_ps(BYTES_SHIFT)));
}

/* Powers of two vectors of a row's scores. strange: bits of what is not in 2^15 .. 2^15 + 256. */
INLINE __m512i i8_pair_at_once(__m512i x, __m512i y, const float *exponents, const uint16_t *part, __m512i *strange)
{
    const __m512i base = _mm512_set1_epi32(BYTES_BASE);
    const __m512 factor = _mm512_set1_ps(exponents[0]), shift = _mm512_set1_ps(exponents[QUERIES]);
    const __m512 a = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(x), factor, shift), b = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(y), factor, shift);
    *strange = _mm512_ternarylogic_epi32(*strange, (__m512i)a, base, 0xf6); /* strange | (a ^ base) */
    *strange = _mm512_ternarylogic_epi32(*strange, (__m512i)b, base, 0xf6);
    return i8_word_powers(a, b, part);
}

/* Those of a row. parts: its own, and those of the next one. */
INLINE void i8_row_at_once(const __m512i x[4], const float *exponents, const uint16_t *parts, __m512i *strange, uint8_t *to)
{
    const __m512i even = i8_pair_at_once(x[0], x[2], exponents, parts, strange);
    const __m512i odd = i8_pair_at_once(x[1], x[3], exponents, parts + 32, strange);
    _mm512_storeu_si512(to, i8_join(even, odd));
}

INLINE bool i8_fit(__m512i strange) { return !_mm512_test_epi32_mask(strange, _mm512_set1_epi32((int)0xffff0000)); }

/* Those of a group with a whole block, from sums that are still in registers. False: one is too large for the `most` of its row, or no
 * number, and nothing is to be taken from here. */
static bool i8_powers_at_once(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, uint8_t *to)
{
    float e[2 * QUERIES];
    i8_exponents(a, first, row, e);
    __m512i strange = _mm512_setzero_si512();
    for (int64_t some = 0; some < QUERIES; some += SOME) {
        __m512i acc[SOME][4];
        i8_scores(a, first, row + some, acc);
#pragma GCC unroll 4
        for (int i = 0; i < SOME; i++)
            i8_row_at_once(acc[i], e + some + i, bytes_parts[i], &strange, to + (some + i) * LD_BYTES);
    }
    return i8_fit(strange);
}

/* The same of some blocks, one at least, for a processor that computes a vector in two halves: sums of two rows keep it busy. So these and
 * the ones before stay in registers, and powers of the latter are made between products, where they take no time. How many are right: it
 * ends with one that is not. words are those of a query, a constant for the usual ones. */
INLINE int64_t i8_blocks(const int64_t words, const struct tern_cpu_attend_i8 *a, int64_t first, int64_t blocks, int64_t row, uint8_t *to)
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int64_t shares[2] = {words / 4, words / 2 - words / 4}, rest = words - shares[0] - words / 2;
    float e[BLOCKS][2 * QUERIES];
    __m512i strange = _mm512_setzero_si512(), acc[2][4], scores[2][4], even;
    for (int64_t b = 0; b < blocks; b++)
        i8_exponents(a, first + b * BLOCK, row, e[b]);
    i8_offsets(2, h->offset + first, acc);
    i8_multiply(2, words, a->q + row * a->ldq, a->ldq, h->k + first * h->depth, acc);
    const float *exponents = e[0];
    const uint16_t *parts = bytes_parts[0];
    uint8_t *powers = to;
#pragma GCC unroll 1
    for (int64_t b = 0, r = 2; b < blocks; b++, r = 0)
#pragma GCC unroll 1
        for (; r < QUERIES; r += 2) {
            const uint8_t *q = a->q + (row + r) * a->ldq;
            const int8_t *k = h->k + (first + b * BLOCK) * h->depth;
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++)
#pragma GCC unroll 4
                for (int v = 0; v < 4; v++)
                    scores[i][v] = acc[i][v];
            i8_offsets(2, h->offset + first + b * BLOCK, acc);
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                i8_multiply(2, i < 3 ? shares[i % 2] : rest, q, a->ldq, k, acc);
                q += shares[i % 2] * 4;
                k += shares[i % 2] * 4 * BLOCK;
                const __m512i *x = scores[i / 2] + i % 2;
                const __m512i pair = i8_pair_at_once(x[0], x[2], exponents + i / 2, parts + (i / 2 + i % 2) * 32, &strange);
                if (i % 2)
                    _mm512_storeu_si512(powers + i / 2 * LD_BYTES, i8_join(even, pair));
                else
                    even = pair;
            }
            if (r == 0 && !i8_fit(strange)) /* these were the last ones of the block before */
                return b - 1;
            exponents = e[b] + r;
            parts = bytes_parts[r % 4];
            powers = to + r * LD_BYTES + b * BLOCK;
        }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        i8_row_at_once(acc[i], exponents + i, parts + i * 32, &strange, powers + i * LD_BYTES);
    return i8_fit(strange) ? blocks : blocks - 1;
}

static int64_t i8_blocks_at_once(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t blocks, int64_t row, uint8_t *to)
{
    switch (a->head->depth) {
    case 40:
        return i8_blocks(10, a, first, blocks, row, to);
    case 64:
        return i8_blocks(16, a, first, blocks, row, to);
    case 80:
        return i8_blocks(20, a, first, blocks, row, to);
    default:
        return i8_blocks(a->head->depth / 4, a, first, blocks, row, to);
    }
}

/* Of so many whole blocks from `first` on, if any, those that have powers now; the one behind them wants to go by rows. */
static int64_t i8_at_once(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t blocks, int64_t row, uint8_t *to)
{
    int64_t n = 0;
    if (!quick_mosts_fit(a->most + row))
        return 0;
    if (a->halves && blocks > 0)
        return i8_blocks_at_once(a, first, blocks, row, to);
    while (n < blocks && i8_powers_at_once(a, first + n * BLOCK, row, to + n * BLOCK))
        n++;
    return n;
}

static void i8_powers_by_rows(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, float *scores, uint8_t *to)
{
    const float scale = a->head->k_scale[first / BLOCK];
    const int64_t keys = a->head->keys - first < BLOCK ? a->head->keys - first : BLOCK;
    for (int64_t some = 0; some < QUERIES; some += SOME) {
        __m512i acc[SOME][4];
        i8_scores(a, first, row + some, acc);
        for (int i = 0; i < SOME; i++)
            for (int v = 0; v < 4; v++)
                _mm512_storeu_ps(scores + i * BLOCK + v * LANES,
                                 _mm512_mul_ps(_mm512_cvtepi32_ps(acc[i][v]), _mm512_set1_ps(a->row[row + some + i] * scale)));
#pragma GCC unroll 4
        for (int i = 0; i < SOME; i++) {
            const int64_t r = row + some + i;
            float *x = scores + i * BLOCK;
            if (r < a->rows)
                i8_another_most(a, r, keys, x);
            for (int64_t j = keys; j < BLOCK; j++)
                x[j] = -INFINITY;
            i8_row_powers(i, x, a->most[r], to + (some + i) * LD_BYTES);
        }
    }
}

#endif
