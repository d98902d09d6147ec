/* Winograd's convolution by whole numbers of 16 bits, which an instruction multiplies in pairs and adds to a sum of 32: twice as many
 * products as in f32. What a row of a tile's values, or a column of the weights', counts in is such that its norm over a part of the depth
 * is I16_NORM, rounded at most 32,767: so no sum of products is above the square of that [Cauchy and Schwarz], and none overflows. */
#ifndef TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I16_H
#define TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I16_H

#include "backends/cpu/level/winograd.h"

#if defined(TERN_LEVEL_avx512bf16)
#define LEVEL_WINOGRAD_I16

#include "backends/cpu/level/winograd_i16_tile.h"

#define I16_DEPTH TERN_WINOGRAD_I16_DEPTH
#define I16_NORM TERN_WINOGRAD_I16_NORM
#define MAGIC 12582912.0f /* 3 * 2^22: in a sum with it the low bits are the other one, rounded to a whole number */

INLINE __m512i i16_whole(vf x, vf scale) { return (__m512i)v_fma(x, scale, v_set(MAGIC)); }

/* Of channel i in the low halves, of channel i + 1 in the high ones. */
INLINE __m512i i16_pairs(__m512i low, __m512i high) { return _mm512_mask_blend_epi16(0xaaaaaaaau, low, _mm512_slli_epi32(high, 16)); }

/* ---- the input */

INLINE float i16_squares(const float *x, float factor)
{
    vf sum[2] = {v_set(0), v_set(0)};
#pragma GCC unroll 10
    for (int64_t i = 0; i < I16_DEPTH; i += VW) {
        const vf v = v_load(x + i) * factor;
        sum[i / VW % 2] += v * v;
    }
    return v_sum(sum[0] + sum[1]);
}

/* The norm of a row, where its squares leave the range of f32. */
static float i16_odd_norm(const float *x)
{
    float most = 0;
    for (int64_t i = 0; i < I16_DEPTH; i++) {
        if (!(__builtin_fabsf(x[i]) < __builtin_inff()))
            return __builtin_nanf("");
        most = __builtin_fabsf(x[i]) > most ? __builtin_fabsf(x[i]) : most;
    }
    return most < TERN_WINOGRAD_I16_LEAST ? 0 : most * __builtin_sqrtf(i16_squares(x, 1 / most));
}

INLINE float i16_row(const float *x, int16_t *y, int64_t n)
{
    const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26, 24, 22, 20, 18, 16,
                                          14, 12, 10, 8, 6, 4, 2, 0);
    const float squares = i16_squares(x, 1);
    float norm = squares > 1e-30f && squares < 1e30f ? __builtin_sqrtf(squares) : i16_odd_norm(x);
    if (norm < TERN_WINOGRAD_I16_LEAST)
        norm = TERN_WINOGRAD_I16_LEAST;
    const vf scale = v_set(I16_NORM / norm);
    for (int64_t i = 0; i < n; i += 2 * VW) {
        const __m512i words = _mm512_permutex2var_epi16(i16_whole(v_load(x + i), scale), even, i16_whole(v_load(x + i + VW), scale));
        _mm512_storeu_si512(y + i, words);
    }
    return norm / I16_NORM;
}

static void winograd_i16_input(enum tern_dtype dtype, int64_t n, const void *const *x, int16_t *v, int64_t step, float *unit,
                               int64_t unit_step)
{
    float wide[36 * I16_DEPTH];
    const int64_t whole = (n + 2 * VW - 1) / (2 * VW) * 2 * VW;
    for (int p = 0; n < I16_DEPTH && p < 36; p++)
        memset(wide + p * I16_DEPTH + n, 0, (size_t)(I16_DEPTH - n) * sizeof(*wide));
    winograd_input(dtype, n, x, wide, I16_DEPTH);
    for (int p = 0; p < 36; p++)
        unit[p * unit_step] = i16_row(wide + p * I16_DEPTH, v + p * step, whole);
}

/* ---- the weights */

INLINE void i16_filter_vector(const enum tern_dtype dtype, const void *w, int64_t at, int64_t next, int64_t tap, const float *scale,
                              int64_t width, int16_t *u, int64_t step)
{
    vf low[6][3], high[6][3], r[6], s[6];
    winograd_filter_side(dtype, w, at, tap, low);
    if (next >= 0)
        winograd_filter_side(dtype, w, next, tap, high);
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++, u += 6 * step, scale += 6 * width) {
        __asm__("" : "+r"(u), "+r"(scale)); /* as in winograd_filter_vector */
        winograd_weight(low[i], r);
        if (next >= 0)
            winograd_weight(high[i], s);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            const vf factor = v_load(scale + j * width);
            const __m512i odd = next >= 0 ? i16_whole(s[j], factor) : _mm512_setzero_si512();
            _mm512_storeu_si512(u + j * step, i16_pairs(i16_whole(r[j], factor), odd));
        }
    }
}

INLINE void winograd_i16_filter_as(const enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                                   const float *scale, int16_t *u, int64_t step)
{
    for (int64_t i = 0; i < n; i += 2) {
        winograd_fetch_filter(dtype, width, w, i, channel, tap);
        winograd_fetch_filter(dtype, width, w, i + 1, channel, tap);
        for (int64_t j = 0; j < width; j += VW)
            if (i + 1 < n)
                i16_filter_vector(dtype, w, i * channel + j, (i + 1) * channel + j, tap, scale + j, width, u + i * width + 2 * j, step);
            else
                i16_filter_vector(dtype, w, i * channel + j, -1, tap, scale + j, width, u + i * width + 2 * j, step);
    }
}

static void winograd_i16_filter(enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                                const float *scale, int16_t *u,
                                int64_t step){FOR_DTYPE(dtype, winograd_i16_filter_as, n, width, w, channel, tap, scale, u, step)}

/* Two of the six values that winograd_weight makes, before they are scaled: the ends, or those at a point and at its negative. */
INLINE void i16_filter_pair(int pair, vf g0, vf g1, vf g2, vf u[2])
{
    const float at = pair == 1 ? A1 : B1;
    const vf even = g0 + (at * at) * g2;
    u[0] = pair ? even + at * g1 : g0;
    u[1] = pair ? even - at * g1 : g2;
}

/* The squares of a vector's values at two of six rows of points, summed in registers over the channels; those of all six, and where they
 * are added, would not fit. */
INLINE void i16_pair_squares(const enum tern_dtype dtype, int pair, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                             float *squares)
{
    const float factor[6] = {WEIGHT_0, WEIGHT_A, WEIGHT_A, WEIGHT_B, WEIGHT_B, 1};
    const int rows[3][2] = {{0, 5}, {1, 2}, {3, 4}};
    vf sum[2][6] = {{v_set(0), v_set(0), v_set(0), v_set(0), v_set(0), v_set(0)},
                    {v_set(0), v_set(0), v_set(0), v_set(0), v_set(0), v_set(0)}};
    for (int64_t i = 0; i < n; i++) {
        vf t[3][2];
#pragma GCC unroll 3
        for (int j = 0; j < 3; j++)
            i16_filter_pair(pair, v_load_as(dtype, w, i * channel + j * tap), v_load_as(dtype, w, i * channel + (3 + j) * tap),
                            v_load_as(dtype, w, i * channel + (6 + j) * tap), t[j]);
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++)
#pragma GCC unroll 3
            for (int q = 0; q < 3; q++) {
                vf u[2];
                i16_filter_pair(q, t[0][k], t[1][k], t[2][k], u);
                sum[k][rows[q][0]] = v_fma(u[0], u[0], sum[k][rows[q][0]]);
                sum[k][rows[q][1]] = v_fma(u[1], u[1], sum[k][rows[q][1]]);
            }
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++)
#pragma GCC unroll 6
        for (int q = 0; q < 6; q++) {
            float *to = squares + (rows[pair][k] * 6 + q) * width;
            const float by = factor[rows[pair][k]] * factor[q];
            v_store(to, v_fma(sum[k][q], v_set(by * by), v_load(to)));
        }
}

INLINE void winograd_i16_squares_as(const enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                                    float *squares)
{
    const int64_t size = dtype == TERN_F32 ? 4 : 2;
    for (int64_t j = 0; j < width; j += VW) {
        const char *from = (const char *)w + j * size;
        i16_pair_squares(dtype, 0, n, width, from, channel, tap, squares + j);
        i16_pair_squares(dtype, 1, n, width, from, channel, tap, squares + j);
        i16_pair_squares(dtype, 2, n, width, from, channel, tap, squares + j);
    }
}

static void winograd_i16_squares(enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                                 float *squares)
{
    FOR_DTYPE(dtype, winograd_i16_squares_as, n, width, w, channel, tap, squares)
}

#endif
#endif
