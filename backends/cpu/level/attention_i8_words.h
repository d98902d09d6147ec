/* Attention in int8 by vpdpbusd: scores and powers of a block of keys for four queries at a time, in registers, then the sums of values for
 * eight. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_WORDS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_WORDS_H

#include "backends/cpu/level/attention_i8_most.h"

#define FEW 4                /* queries whose scores are made together */
#define LD_BYTES (2 * BLOCK) /* from a row of powers to the next: two blocks meet their values together, so that sums come and go less */

/* acc += products of unsigned x and signed y, four to a sum. The builtin of gcc 12 copies each sum there and back. */
INLINE void add_words(__m512i *acc, __m512i x, __m512i y) { __asm__("vpdpbusd %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y)); }

/* ---- scores and powers */

struct i8_scratch {
    uint8_t powers[QUERIES * LD_BYTES];
    float scores[FEW * BLOCK];
};

/* Scores of four queries with a block of keys, as whole numbers. */
INLINE void i8_scores(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, __m512i acc[FEW][4])
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int8_t *k = h->k + first * h->depth;
    const uint8_t *q = a->q + row * a->ldq;
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
        acc[0][v] = acc[1][v] = acc[2][v] = acc[3][v] = _mm512_loadu_si512(h->offset + first + v * LANES);
    for (int64_t t = 0; t < h->depth; t += 4, k += BLOCK * 4) {
        __m512i y[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++)
            y[v] = _mm512_loadu_si512(k + v * 64);
#pragma GCC unroll 4
        for (int i = 0; i < FEW; i++) {
            int32_t word;
            memcpy(&word, q + i * a->ldq + t, sizeof(word));
            const __m512i x = _mm512_set1_epi32(word);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++)
                add_words(&acc[i][v], x, y[v]);
        }
    }
}

/* Those of a group with a whole block, from sums that are still in registers. False: one is too large for the `most` of its row, or no
 * number, and nothing is to be taken from here. */
static bool i8_powers_at_once(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, uint8_t *to)
{
    const float scale = a->head->k_scale[first / BLOCK];
    const __m512i base = _mm512_set1_epi32(BYTES_BASE);
    __m512i strange = _mm512_setzero_si512(); /* bits of what is not in 2^15 .. 2^15 + 256 */
    for (int64_t few = 0; few < QUERIES; few += FEW) {
        __m512i acc[FEW][4];
        i8_scores(a, first, row + few, acc);
#pragma GCC unroll 4
        for (int i = 0; i < FEW; i++) {
            const __m512 factor = _mm512_set1_ps(a->row[row + few + i] * scale),
                         shift = _mm512_set1_ps(BYTES_SHIFT + a->most[row + few + i]);
            __m512 y[4];
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) {
                y[v] = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(acc[i][v]), factor, shift);
                strange = _mm512_ternarylogic_epi32(strange, (__m512i)y[v], base, 0xf6); /* strange | (y ^ base) */
            }
            i8_powers(i, y, to + (few + i) * LD_BYTES);
        }
    }
    return !_mm512_test_epi32_mask(strange, _mm512_set1_epi32((int)0xffff0000));
}

static void i8_powers_by_rows(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, float *scores, uint8_t *to)
{
    const float scale = a->head->k_scale[first / BLOCK];
    const int64_t keys = a->head->keys - first < BLOCK ? a->head->keys - first : BLOCK;
    for (int64_t few = 0; few < QUERIES; few += FEW) {
        __m512i acc[FEW][4];
        i8_scores(a, first, row + few, acc);
        for (int i = 0; i < FEW; i++)
            for (int v = 0; v < 4; v++)
                _mm512_storeu_ps(scores + i * BLOCK + v * LANES,
                                 _mm512_mul_ps(_mm512_cvtepi32_ps(acc[i][v]), _mm512_set1_ps(a->row[row + few + i] * scale)));
#pragma GCC unroll 4
        for (int i = 0; i < FEW; i++) {
            const int64_t r = row + few + i;
            float *x = scores + i * BLOCK;
            if (r < a->rows)
                i8_another_most(a, r, keys, x);
            for (int64_t j = keys; j < BLOCK; j++)
                x[j] = -INFINITY;
            i8_row_powers(i, x, a->most[r], to + (few + i) * LD_BYTES);
        }
    }
}

/* ---- sums of values */

/* Eight rows of powers times nv vectors of values, the third of which has eight columns, each twice: even lanes are of even rows. */
INLINE void i8_add_vectors(const int nv, int64_t words, const uint8_t *p, const int8_t *v, int64_t columns, int32_t *o, int64_t ldo)
{
    __m512i acc[8][3];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            if (j < 2 || i % 2 == 0)
                acc[i][j] = _mm512_loadu_si512(o + i * ldo + j * LANES);
    for (int64_t t = 0; t < words; t++, v += columns * 4) {
        __m512i y[3], x[8];
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            y[j] = _mm512_loadu_si512(v + j * 64);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            int32_t word;
            memcpy(&word, p + i * LD_BYTES + t * 4, sizeof(word));
            x[i] = _mm512_set1_epi32(word);
            add_words(&acc[i][0], x[i], y[0]);
            if (nv > 1)
                add_words(&acc[i][1], x[i], y[1]);
            if (nv > 2 && i % 2)
                add_words(&acc[i - 1][2], _mm512_mask_blend_epi32(0xaaaa, x[i - 1], x[i]), y[2]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            if (j < 2 || i % 2 == 0)
                _mm512_storeu_si512(o + i * ldo + j * LANES, acc[i][j]);
}

static void i8_add_values(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t blocks, int64_t row, const uint8_t *p)
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int8_t *v = h->v + first * h->columns;
    int32_t *o = a->o + row * a->ldo;
    for (int i = 0; i < QUERIES; i++) {
        int32_t *sum = o + i * a->ldo + h->columns;
        __m512i all = _mm512_loadu_si512(sum);
        for (int64_t b = 0; b < blocks; b++)
            all = _mm512_dpbusd_epi32(all, _mm512_loadu_si512(p + i * LD_BYTES + b * BLOCK), _mm512_set1_epi8(1));
        _mm512_storeu_si512(sum, all);
    }
    for (int64_t half = 0; half < QUERIES; half += 8, p += 8 * LD_BYTES, o += 8 * a->ldo)
        for (int64_t c = 0; c < h->columns; c += 2 * LANES) {
            if (c + 2 * LANES == shared_from(h->values)) {
                i8_add_vectors(3, blocks * WORDS, p, v + c * 4, h->columns, o + c, a->ldo);
                break;
            }
            if (h->columns - c > LANES)
                i8_add_vectors(2, blocks * WORDS, p, v + c * 4, h->columns, o + c, a->ldo);
            else
                i8_add_vectors(1, blocks * WORDS, p, v + c * 4, h->columns, o + c, a->ldo);
        }
}

/* A group and two blocks of keys, or the last one. Where the second needs another `most`, what the first gave is added before. */
static void i8_meet(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, struct i8_scratch *s)
{
    const int64_t keys = a->head->keys - first, second = first + BLOCK;
    if (first == 0 || keys < BLOCK || !i8_powers_at_once(a, first, row, s->powers))
        i8_powers_by_rows(a, first, row, s->scores, s->powers);
    const bool both = keys >= 2 * BLOCK && i8_powers_at_once(a, second, row, s->powers + BLOCK);
    i8_add_values(a, first, both ? 2 : 1, row, s->powers);
    if (both || keys <= BLOCK)
        return;
    i8_powers_by_rows(a, second, row, s->scores, s->powers);
    i8_add_values(a, second, 1, row, s->powers);
}

static void attend_i8(const struct tern_cpu_attend_i8 *a)
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int64_t rows = filled(a->rows, QUERIES);
    for (int64_t i = 0; i < rows; i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    for (int64_t first = 0; first < h->keys; first += 2 * BLOCK)
        for (int64_t row = 0; row < rows; row += QUERIES)
            i8_meet(a, first, row, a->scratch);
    for (int64_t i = 0; i < a->rows; i++) {
        int32_t *o = a->o + i * a->ldo;
        if (i % 2 == 0 && shared_from(h->values) < h->columns)
            part_rows(o + shared_from(h->values), a->ldo);
        a->sum[i] = isnan(a->most[i]) ? NAN : (float)_mm512_reduce_add_epi32(_mm512_loadu_si512(o + h->columns));
    }
}

#endif
