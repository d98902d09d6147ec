/* References of the rows of attention in int8, which their powers are relative to. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_MOST_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_MOST_H

#include <math.h>

#include "backends/cpu/level/attention_i8_pack.h"
#include "backends/cpu/level/attention_i8_powers.h"

#define MOST_ROOM (ROOM - 0.01f) /* of a power; what is rounded stays below ROOM */
#define TOP 7                    /* the power of the largest score when a row gets its `most` */

/* Results of a row by an older `most` become those by a newer one. */
static void i8_shrink(const struct tern_cpu_attend_i8 *a, int64_t row, float by)
{
    const int64_t end = a->head->columns + (I8_ONES ? 0 : LANES); /* with the powers' own sums */
    for (int64_t c = 0; c < end; c += LANES) {
        const bool shared = c == shared_from(a->head->values);
        int32_t *at = a->o + (shared ? row / 2 * 2 : row) * a->ldo + c;
        const __m512i x = _mm512_loadu_si512(at), y = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_cvtepi32_ps(x), _mm512_set1_ps(by)));
        _mm512_storeu_si512(at, _mm512_mask_mov_epi32(x, shared ? (row % 2 ? 0xaaaa : 0x5555) : 0xffff, y));
    }
}

/* Another `most` for a row that has an exponent too large for the one that it has. */
static void i8_other_most(const struct tern_cpu_attend_i8 *a, int64_t row, float top)
{
    float *most = &a->most[row];
    if (top - *most < MOST_ROOM)
        return;
    if (*most > -INFINITY)
        i8_shrink(a, row, exp2f(*most - (top - TOP)));
    *most = top - TOP;
}

/* The same of a row's exponents with a block. NaN where one is no number. */
static void i8_another_most(const struct tern_cpu_attend_i8 *a, int64_t row, int64_t keys, const float *x)
{
    float *most = &a->most[row];
    __m512 tops = _mm512_set1_ps(-INFINITY);
    __mmask16 wrong = 0;
    for (int64_t j = 0; j < keys; j += LANES) {
        const __mmask16 there = (__mmask16)(keys - j < LANES ? (1 << (keys - j)) - 1 : 0xffff);
        const __m512 v = _mm512_maskz_loadu_ps(there, x + j);
        wrong |= _mm512_cmp_ps_mask(_mm512_abs_ps(v), _mm512_set1_ps(INFINITY), _CMP_NLT_UQ);
        tops = _mm512_mask_max_ps(tops, there, tops, v);
    }
    const float top = _mm512_reduce_max_ps(tops);
    const bool number = !wrong && !isnan(*most);
    if (!number) {
        *most = NAN;
        return;
    }
    i8_other_most(a, row, top);
}

/* Those of row i, x being exponents of two. What is far below, or no number, gives zero. */
INLINE void i8_row_powers(const int i, const float *x, float most, uint8_t *to)
{
    const __m512 least = _mm512_set1_ps(0x1p15f), far = _mm512_set1_ps(BYTES_MOST);
    __m512 y[4];
    for (int v = 0; v < 4; v++) {
        /* the difference first: the shift would be rounded to the last place of a large `most` */
        y[v] = _mm512_add_ps(_mm512_sub_ps(_mm512_set1_ps(most), _mm512_loadu_ps(x + v * LANES)), _mm512_set1_ps(BYTES_SHIFT));
        y[v] = _mm512_max_ps(_mm512_min_ps(y[v], far), least); /* of NaN and a number min makes the latter */
    }
    i8_powers(i, y, to);
}

#endif
