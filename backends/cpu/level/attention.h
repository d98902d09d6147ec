/* Attention in bf16: scores, powers and sums of values for queries of one head, a group of queries and a block of keys at a time, so that
 * what they have in common stays in L1. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_H

#include "backends/cpu/level/bf16.h"

#if defined(TERN_LEVEL_BF16) && defined(TERN_LEVEL_512)
#define LEVEL_ATTENTION

#include "backends/cpu/level/attention_meeting.h"
#include "backends/cpu/level/attention_pack.h"
#include "backends/cpu/level/attention_quick_powers.h"
#if defined(TERN_LEVEL_amx)
#include "backends/cpu/level/attention_amx.h"
#else
#include "backends/cpu/level/attention_at_once.h"
#endif

#if !defined(TERN_LEVEL_amx)
/* Eight rows of powers times nv vectors of values, beside each other. */
INLINE void add_vectors(const int nv, int64_t keys, const struct tile *s, float *o, int64_t ldo)
{
    __m512 acc[8][3];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            acc[i][j] = _mm512_loadu_ps(o + i * ldo + j * 16);
    multiply(8, nv, keys, s, acc);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            if (j < 2 || i % 2 == 0)
                _mm512_storeu_ps(o + i * ldo + j * 16, acc[i][j]);
}

/* Sums of the powers, sixteen of each row, behind its results. */
static void add_powers(int64_t keys, const uint16_t *p, float *sums, int64_t ldo)
{
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    for (int i = 0; i < QUERIES; i++, p += LD_POWERS, sums += ldo) {
        __m512 sum = _mm512_loadu_ps(sums);
        for (int64_t j = 0; j < keys; j += PAIR)
            sum = _mm512_dpbf16_ps(sum, pairs_at(p + j), (__m512bh)ones);
        _mm512_storeu_ps(sums, sum);
    }
}

/* Of `keys` keys, a multiple of PAIR. All rows of a group, those that are not there, too. */
static void add_values(const struct tern_cpu_attend *a, const struct meeting *m, int64_t keys, const uint16_t *p)
{
    const int64_t depth = filled(a->keys, PAIR);
    float *o = a->o + m->row * a->ldo;
    add_powers(keys, p, o + a->columns, a->ldo);
    for (int64_t half = 0; half < QUERIES; half += 8, p += 8 * LD_POWERS, o += 8 * a->ldo)
        for (int64_t j = 0; j < a->columns; j += 32) {
            const int64_t left = a->values - j;
            const struct tile s = {p, values_of(a) + j * depth + m->key * (left > 16 ? 32 : 16),
                                   values_of(a) + (j + 32) * depth + m->key * 16, LD_POWERS};
            if (left > 32 && half_vector(left - 32)) {
                add_vectors(3, keys, &s, o + j, a->ldo);
                break;
            }
            if (left > 16)
                add_vectors(2, keys, &s, o + j, a->ldo);
            else
                add_vectors(1, keys, &s, o + j, a->ldo);
        }
}

/* Powers of any block of keys, and another `most` for rows that need one. */
static void powers_by_rows(const struct tern_cpu_attend *a, const struct meeting *m, float *scores, uint16_t *to)
{
    const struct factors f = score_factors(a, m, scores);
    product(&f, false);
    if (hides(a, m))
        hide(a, m, scores);
    powers_for(a, m, scores, to);
}

/* A group and some blocks of keys. */
static void some_meetings(const struct tern_cpu_attend *a, const struct meeting *m)
{
    struct attention_scratch *s = a->scratch;
    const int64_t keys = seen_keys(a, m, BLOCKS * KEYS);
    if (!a->mask &&
        (m->key ? powers_at_once(a, m, keys, a->most + m->row, s->powers[0]) : first_powers_at_once(a, m, keys, s->powers[0]))) {
        add_values(a, m, filled(keys, PAIR), s->powers[0]);
        return;
    }
    for (struct meeting block = *m; block.key < m->key + keys; block.key += KEYS) {
        powers_by_rows(a, &block, s->scores[0], s->powers[0]);
        add_values(a, &block, filled(seen_keys(a, &block, KEYS), PAIR), s->powers[0]);
    }
}

static void all_meetings(const struct tern_cpu_attend *a)
{
    for (struct meeting m = {0}; m.key < a->keys; m.key += BLOCKS * KEYS)
        for (m.row = 0; m.row < a->rows; m.row += QUERIES)
            if (meets(a, &m))
                some_meetings(a, &m);
}
#endif

/* Results of two rows, of 32 bits each, from where add_vectors keeps them. */
static void part_rows(void *o, int64_t ldo)
{
    const __m512i both = _mm512_loadu_si512(o);
    _mm512_storeu_si512(o, _mm512_maskz_compress_epi32(0x5555, both));
    _mm512_storeu_si512((int32_t *)o + ldo, _mm512_maskz_compress_epi32(0xaaaa, both));
}

/* By whole loads: a masked one waits for all that was stored there. */
static void write_row(int64_t n, const float *x, float factor, void *to)
{
    const __m512 f = _mm512_set1_ps(factor);
    uint16_t *y = to;
    for (; n > 0; n -= 16, x += 16, y += 16) {
        const __m256i rounded = (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_loadu_ps(x), f));
        if (n >= 16)
            _mm256_storeu_si256((__m256i *)(void *)y, rounded);
        else
            _mm256_mask_storeu_epi16(y, (__mmask16)((1u << n) - 1), rounded);
    }
}

/* Powers of small exponents are flushed to zero: a denormal takes 200 cycles. */
static void attend(const struct tern_cpu_attend *a)
{
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8000);
    bf16_begin();
    for (int64_t i = 0; i < filled(a->rows, QUERIES); i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    all_meetings(a);
    bf16_end();
    _mm_setcsr(control);
    for (int64_t i = 0; i < a->rows; i++) {
        float *o = a->o + i * a->ldo;
        if (i % 2 == 0 && shared_from(a->values) < a->columns)
            part_rows(o + shared_from(a->values), a->ldo);
        a->sum[i] = SUMS ? _mm512_reduce_add_ps(_mm512_loadu_ps(o + a->columns)) : o[a->values];
    }
}

#endif
#endif
