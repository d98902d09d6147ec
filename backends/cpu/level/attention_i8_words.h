/* Attention in int8 by vpdpbusd: powers of a group of queries and some blocks of keys, then the sums of values for eight queries at a time.
 */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_WORDS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_WORDS_H

#include "backends/cpu/level/attention_i8_scores.h"

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

/* A group and up to BLOCKS of keys. Where one needs another `most`, what those before it gave is added first. */
static void i8_meet(const struct tern_cpu_attend_i8 *a, int64_t first, int64_t row, struct i8_scratch *s)
{
    const int64_t left = a->head->keys - first, keys = left < BLOCKS * BLOCK ? left : BLOCKS * BLOCK;
    const int64_t whole = keys / BLOCK, blocks = filled(keys, BLOCK) / BLOCK;
    for (int64_t b = 0, added = 0;; added = b++) {
        if (first + b) /* else no row has a `most` yet */
            b += i8_at_once(a, first + b * BLOCK, whole - b, row, s->powers + b * BLOCK);
        if (b > added)
            i8_add_values(a, first + added * BLOCK, b - added, row, s->powers + added * BLOCK);
        if (b == blocks)
            return;
        i8_powers_by_rows(a, first + b * BLOCK, row, s->scores, s->powers + b * BLOCK);
    }
}

static void attend_i8(const struct tern_cpu_attend_i8 *a)
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int64_t rows = filled(a->rows, QUERIES);
    for (int64_t i = 0; i < rows; i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    for (int64_t first = 0; first < h->keys; first += BLOCKS * BLOCK)
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
