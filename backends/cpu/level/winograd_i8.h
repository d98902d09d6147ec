/* Winograd's transforms for products of int8: tiles of 2 x 4 outputs of a 3 x 3 filter [Lavin and Gray 2016], down by the points 0, 1, -1
 * and infinity, across by 0, 2/3, -2/3, 3/2, -3/2 and infinity (docs/kernels/int8.md compares them with others). Every row of a transform
 * may have a factor of its own, which the units of its point take back: those of the input are such that whole numbers stay exact, those of
 * the weights are of whole numbers. */
#ifndef TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I8_H
#define TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I8_H

#include "backends/cpu/level/i8.h"

/* ---- the input */

INLINE void winograd_i8_in_down(const vf d[4], vf v[4])
{
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
}

/* Times 36, -12, -12, 18, 18 and 36, over 64. */
INLINE void winograd_i8_in_across(const vf d[6], vf v[6])
{
    const float in64 = 1.0f / 64;
    const vf inner = v_fma(d[2], v_set(27 * in64), d[4] * (-12 * in64)), inner_odd = v_fma(d[1], v_set(18 * in64), d[3] * (-8 * in64));
    const vf outer = v_fma(d[4], v_set(18 * in64), d[2] * (-8 * in64)), outer_odd = v_fma(d[3], v_set(27 * in64), d[1] * (-12 * in64));
    v[0] = v_fma(d[2], v_set(-97 * in64), (d[0] + d[4]) * (36 * in64));
    v[1] = inner + inner_odd;
    v[2] = inner - inner_odd;
    v[3] = outer + outer_odd;
    v[4] = outer - outer_odd;
    v[5] = v_fma(d[3], v_set(-97 * in64), (d[1] + d[5]) * (36 * in64));
}

INLINE void winograd_i8_input_vector(const enum tern_dtype dtype, int64_t c, int64_t n, const void *const *x, float *v, int64_t step,
                                     vi most[TERN_WINOGRAD_I8_POINTS])
{
    vf t[4][6], d[4], r[6];
#pragma GCC unroll 6
    for (int j = 0; j < 6; j++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            d[i] = n == VW ? v_load_as(dtype, x[i * 6 + j], c) : v_load_as_n(dtype, x[i * 6 + j], c, n);
        winograd_i8_in_down(d, r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        winograd_i8_in_across(t[i], r);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            v_store(v + (i * 6 + j) * step + c, r[j]);
            most[i * 6 + j] = i8_larger(most[i * 6 + j], r[j]);
        }
    }
}

INLINE void winograd_i8_input_of(const enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step, float *most)
{
    vi lanes[TERN_WINOGRAD_I8_POINTS] = {{0}};
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        winograd_i8_input_vector(dtype, c, VW, x, v, step, lanes);
    if (c < n)
        winograd_i8_input_vector(dtype, c, n - c, x, v, step, lanes);
    for (int p = 0; p < TERN_WINOGRAD_I8_POINTS; p++)
        most[p] = i8_most_lane(lanes[p]);
}

static void winograd_i8_input(enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step, float *most)
{
    FOR_DTYPE(dtype, winograd_i8_input_of, n, x, v, step, most)
}

/* ---- the weights */

#define HALVES (2 * VW)
typedef int16_t v16 __attribute__((vector_size(4 * VW)));
typedef int8_t v8 __attribute__((vector_size(2 * VW)));

INLINE v16 v16_load(const int16_t *p)
{
    v16 v;
    memcpy(&v, p, sizeof(v));
    return v;
}

#if defined(TERN_LEVEL_512)
INLINE v16 v16_widen(const int8_t *p) { return (v16)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p)); }
INLINE void v16_narrow(int8_t *p, v16 x) { _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi16_epi8((__m512i)x)); }
/* (x f + 2^14) / 2^15, rounded down */
INLINE v16 v16_scale(v16 x, v16 f) { return (v16)_mm512_mulhrs_epi16((__m512i)x, (__m512i)f); }
INLINE v16 v16_larger(v16 most, v16 x) { return (v16)_mm512_max_epi16((__m512i)most, _mm512_abs_epi16((__m512i)x)); }
#else
INLINE v16 v16_widen(const int8_t *p)
{
    v8 b;
    memcpy(&b, p, sizeof(b));
    return __builtin_convertvector(b, v16);
}

INLINE void v16_narrow(int8_t *p, v16 x)
{
    v8 b = __builtin_convertvector(x, v8);
    memcpy(p, &b, sizeof(b));
}

#if defined(TERN_LEVEL_256)
INLINE v16 v16_scale(v16 x, v16 f) { return (v16)_mm256_mulhrs_epi16((__m256i)x, (__m256i)f); }
#elif defined(TERN_LEVEL_NEON)
INLINE v16 v16_scale(v16 x, v16 f) { return (v16)vqrdmulhq_s16((int16x8_t)x, (int16x8_t)f); }
#else
INLINE v16 v16_scale(v16 x, v16 f)
{
    for (int i = 0; i < HALVES; i++)
        x[i] = (int16_t)((x[i] * f[i] + (1 << 14)) >> 15);
    return x;
}
#endif

INLINE v16 v16_larger(v16 most, v16 x)
{
    const v16 sign = x >> 15, size = (x ^ sign) - sign, above = size > most;
    return (size & above) | (most & ~above);
}
#endif

INLINE void winograd_i8_weight_down(const v16 t[3], v16 u[4])
{
    const v16 ends = t[0] + t[2];
    u[0] = t[0];
    u[1] = ends + t[1];
    u[2] = ends - t[1];
    u[3] = t[2];
}

INLINE void winograd_i8_weight_across(const v16 t[3], v16 u[6])
{
    const v16 inner = t[0] * 9 + t[2] * 4, outer = t[0] * 4 + t[2] * 9, odd = t[1] * 6;
    u[0] = t[0];
    u[1] = inner + odd;
    u[2] = inner - odd;
    u[3] = outer + odd;
    u[4] = outer - odd;
    u[5] = t[2];
}

/* The 24 points of a vector of weights; those that are single taps are there, too. At most 127 * 3 * 19. */
INLINE void winograd_i8_weights(const int8_t *taps, int64_t step, v16 u[4][6])
{
    v16 t[4][3], d[3], r[4];
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) {
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++)
            d[i] = v16_widen(taps + (i * 3 + j) * step);
        winograd_i8_weight_down(d, r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        winograd_i8_weight_across(t[i], u[i]);
}

/* f(sum, value) for the points that are sums, in their order. */
#define FOR_SUMS(u, f)                                                                                                            \
    f(0, u[0][1]) f(1, u[0][2]) f(2, u[0][3]) f(3, u[0][4]) f(4, u[1][0]) f(5, u[1][1]) f(6, u[1][2]) f(7, u[1][3]) f(8, u[1][4]) \
        f(9, u[1][5]) f(10, u[2][0]) f(11, u[2][1]) f(12, u[2][2]) f(13, u[2][3]) f(14, u[2][4]) f(15, u[2][5]) f(16, u[3][1])    \
            f(17, u[3][2]) f(18, u[3][3]) f(19, u[3][4])

static void winograd_i8_most(int64_t n, int64_t row, const int8_t *taps, int64_t step, int16_t *most)
{
    v16 u[4][6];
    for (int64_t i = 0; i < n; i += row)
        for (int64_t j = 0; j < row; j += HALVES) {
            winograd_i8_weights(taps + i + j, step, u);
#define LARGER(s, value)                                                    \
    {                                                                       \
        const v16 larger = v16_larger(v16_load(most + (s)*row + j), value); \
        memcpy(most + (s)*row + j, &larger, sizeof(larger));                \
    }
            FOR_SUMS(u, LARGER)
#undef LARGER
        }
}

static void winograd_i8_filter(int64_t n, int64_t row, const int8_t *taps, int64_t step, const int16_t *factor, int8_t *y, int64_t y_step)
{
    v16 u[4][6];
    for (int64_t i = 0; i < n; i += row)
        for (int64_t j = 0; j < row; j += HALVES) {
            winograd_i8_weights(taps + i + j, step, u);
#define SCALE(s, value) v16_narrow(y + (s)*y_step + i + j, v16_scale(value, v16_load(factor + (s)*row + j)));
            FOR_SUMS(u, SCALE)
#undef SCALE
        }
}
#undef FOR_SUMS
#undef HALVES

/* ---- the output */

INLINE void winograd_i8_out_across(const vf d[6], vf b, vf y[4])
{
    const vf inner = d[1] + d[2], inner_odd = d[1] - d[2], outer = d[3] + d[4], outer_odd = d[3] - d[4];
    y[0] = d[0] + inner + outer + b;
    y[1] = v_fma(inner_odd, v_set(2.0f / 3), v_fma(outer_odd, v_set(3.0f / 2), b));
    y[2] = v_fma(inner, v_set(4.0f / 9), v_fma(outer, v_set(9.0f / 4), b));
    y[3] = v_fma(inner_odd, v_set(8.0f / 27), v_fma(outer_odd, v_set(27.0f / 8), d[5] + b));
}

INLINE void winograd_i8_output_of(const enum tern_dtype dtype, int64_t n, const int32_t *m, int64_t step, const int32_t *offset,
                                  const float *scale, int64_t columns, const float *row, const float *bias, void *const *y)
{
    for (int64_t c = 0; c < n; c += VW) {
        const vf b = bias ? v_load(bias + c) : v_set(0);
        vf t[2][6], d[4], r[4];
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const int p = i * 6 + j;
                const vi sum = (vi)v_load((const float *)m + p * step + c) - (vi)v_load((const float *)offset + p * columns + c);
                d[i] = __builtin_convertvector(sum, vf) * (v_load(scale + p * columns + c) * row[p]);
            }
            t[0][j] = d[0] + d[1] + d[2];
            t[1][j] = d[1] - d[2] - d[3];
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            winograd_i8_out_across(t[i], b, r);
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                if (y[i * 4 + j])
                    store_value_n(dtype, y[i * 4 + j], c, n - c, r[j]);
        }
    }
}

static void winograd_i8_output(enum tern_dtype dtype, int64_t n, const int32_t *m, int64_t step, const int32_t *offset, const float *scale,
                               int64_t columns, const float *row, const float *bias, void *const *y)
{
    FOR_DTYPE(dtype, winograd_i8_output_of, n, m, step, offset, scale, columns, row, bias, y)
}

#endif
