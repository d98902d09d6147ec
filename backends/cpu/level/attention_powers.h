/* Powers of the scores of attention in bf16, and the reference of each row that they are relative to. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_POWERS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_POWERS_H

#include <math.h>

#include "backends/cpu/level/attention_sizes.h"

/* 2^x, and `more` of the power of two below it on top. floor(x) goes to the exponent; for the rest a polynomial (minimax, by Remez'
 * algorithm) whose error is 7.5e-5 of the result at most. Its values are in 1..2. */
INLINE __m512 power_of_two(__m512 x, const float more)
{
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(7.80245215e-2f), _mm512_set1_ps(2.26067156e-1f));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(6.95833564e-1f));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(9.99925196e-1f + more));
    return _mm512_scalef_ps(p, x);
}

#define HALF_UNIT 0x1p-8f /* of bf16 in 1..2: what is cut then is rounded to nearest */

/* Values of x beside those of y, as bf16. By hand: vcvtne2ps2bf16 takes as long as four additions. */
INLINE __m512i two_powers(__m512 x, __m512 y, __m512 factor, __m512 most)
{
    __m512 a = power_of_two(_mm512_fmsub_ps(x, factor, most), HALF_UNIT), b = power_of_two(_mm512_fmsub_ps(y, factor, most), HALF_UNIT);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32((__m512i)a, 16), (__m512i)b);
}

/* y[2 i] of x[i], y[2 i + 1] of x[i + 16] in each PAIR. */
INLINE bool powers_of(int64_t n, const float *x, float factor, float most, uint16_t *y)
{
    const __m512 c = _mm512_set1_ps(factor), m = _mm512_set1_ps(most);
    __m512i high = _mm512_setzero_si512();
    for (int64_t j = 0; j < n; j += PAIR) {
        __m512i both = two_powers(_mm512_loadu_ps(x + j), _mm512_loadu_ps(x + j + 16), c, m);
        _mm512_storeu_si512(y + j, both);
        high = _mm512_max_epu16(high, both);
    }
    return !_mm512_cmpge_epu16_mask(high, _mm512_set1_epi16((short)TOO_MUCH));
}

static bool attention_power(int64_t n, const float *x, float factor, float most, void *y) { return powers_of(n, x, factor, most, y); }

/* The powers of a block of keys and a group of queries, row by row. */
struct powers {
    const struct tern_cpu_attend *a;
    float *x;     /* scores */
    uint16_t *to; /* powers */
    float *most;
    int64_t row, rows, keys; /* keys: filled up to PAIR */
    bool grown;
    float shrink[QUERIES]; /* where `most` has grown: what the row's results are to be multiplied by */
};

/* From here on what a reference lacks for its rounding is 16 or more in the exponent of each power: infinity, or nothing at all. So far
 * from zero scores of two keys are the same or so different that one of the keys counts. */
#define LARGE_MOST 0x1p28f

/* A row whose powers are too large for its `most`, as in its first block, or no numbers. */
static __attribute__((noinline)) void another_most(struct powers *w, float *x, uint16_t *to)
{
    __m512 most = _mm512_set1_ps(-INFINITY);
    __mmask16 nan = 0;
    float *m = w->most + w->row;
    for (int64_t j = 0; j < w->keys; j += 16) {
        __m512 v = _mm512_loadu_ps(x + j);
        nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        most = _mm512_max_ps(most, v);
    }
    float top = _mm512_reduce_max_ps(most);
    if (nan || top == -INFINITY) { /* all of the row is no number; or nothing is visible so far */
        for (int64_t j = 0; j < w->keys; j++)
            to[j] = nan ? 0x7fc0 : 0;
        return;
    }
    const float largest = top;
    top *= w->a->factor;
    if (top > *m) {
        w->shrink[w->row] = *m == -INFINITY ? 0 : exp2f(*m - top);
        w->grown = true;
        *m = top;
    }
    const bool large = fabsf(top) > LARGE_MOST;
    for (int64_t j = 0; j < w->keys && large; j += 16)
        _mm512_storeu_ps(x + j, _mm512_sub_ps(_mm512_loadu_ps(x + j), _mm512_set1_ps(largest)));
    powers_of(w->keys, x, w->a->factor, large ? 0 : top, to);
}

INLINE void next_row(struct powers *w)
{
    float *x = w->x + w->row * LD_SCORES;
    uint16_t *to = w->to + w->row * LD_POWERS;
    bool fits = w->most[w->row] > -INFINITY;
    if (fits) /* a constant number of keys, of all blocks but the last, is unrolled */
        fits = w->keys == KEYS ? powers_of(KEYS, x, w->a->factor, w->most[w->row], to)
                               : powers_of(w->keys, x, w->a->factor, w->most[w->row], to);
    if (!fits)
        another_most(w, x, to);
    w->row++;
}

/* Results by an older `most` become those by the newer one. */
static void shrink_results(const struct powers *w, float *o)
{
    const int64_t shared = shared_from(w->a->values), ldo = w->a->ldo;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t c = 0; w->shrink[i] != 1 && c < w->a->columns + SUMS; c += 16) {
            float *at = o + (c == shared ? i / 2 * 2 : i) * ldo + c;
            __mmask16 which = c == shared ? (i % 2 ? 0xaaaa : 0x5555) : 0xffff;
            __m512 x = _mm512_loadu_ps(at);
            _mm512_storeu_ps(at, _mm512_mask_mul_ps(x, which, x, _mm512_set1_ps(w->shrink[i])));
        }
}

#endif
