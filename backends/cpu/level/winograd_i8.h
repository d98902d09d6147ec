/* Winograd's transforms for products of int8: tiles of 2 x 2 outputs of a 3 x 3 filter [Lavin and Gray 2016], points 0, 1, -1 and infinity.
 * Those of the input are sums of four values, in f32, and become bytes afterwards. Those of the weights are sums of 1, 3 or 9 bytes (four
 * times what they stand for in the middle, twice at the edges) that are scaled to bytes again. */
#ifndef TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I8_H
#define TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I8_H

#include "backends/cpu/level/i8.h"

/* ---- the input */

INLINE void winograd_i8_in(const vf d[4], vf v[4])
{
    v[0] = d[0] - d[2];
    v[1] = d[1] + d[2];
    v[2] = d[2] - d[1];
    v[3] = d[1] - d[3];
}

INLINE void winograd_i8_input_vector(const enum tern_dtype dtype, int64_t c, int64_t n, const void *const *x, float *v, int64_t step,
                                     vi most[TERN_WINOGRAD_I8_POINTS])
{
    vf t[4][4], d[4], r[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            d[i] = n == VW ? v_load_as(dtype, x[i * 4 + j], c) : v_load_as_n(dtype, x[i * 4 + j], c, n);
        winograd_i8_in(d, r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        winograd_i8_in(t[i], r);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            v_store(v + (i * 4 + j) * step + c, r[j]);
            most[i * 4 + j] = i8_larger(most[i * 4 + j], r[j]);
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

INLINE void winograd_i8_weight(v16 a, v16 b, v16 c, v16 u[4])
{
    const v16 ends = a + c;
    u[0] = a;
    u[1] = ends + b;
    u[2] = ends - b;
    u[3] = c;
}

/* The 16 points of a vector of weights; those that are single taps are there, too. */
INLINE void winograd_i8_weights(const int8_t *taps, int64_t step, v16 u[4][4])
{
    v16 t[4][3], r[4];
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) {
        winograd_i8_weight(v16_widen(taps + j * step), v16_widen(taps + (3 + j) * step), v16_widen(taps + (6 + j) * step), r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        winograd_i8_weight(t[i][0], t[i][1], t[i][2], u[i]);
}

/* f(sum, value) for the points that are sums, in their order. */
#define FOR_SUMS(u, f)                                                                                                            \
    f(0, u[0][1]) f(1, u[0][2]) f(2, u[1][0]) f(3, u[1][1]) f(4, u[1][2]) f(5, u[1][3]) f(6, u[2][0]) f(7, u[2][1]) f(8, u[2][2]) \
        f(9, u[2][3]) f(10, u[3][1]) f(11, u[3][2])

static void winograd_i8_most(int64_t n, int64_t row, const int8_t *taps, int64_t step, int16_t *most)
{
    v16 u[4][4];
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
    v16 u[4][4];
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

INLINE void winograd_i8_output_of(const enum tern_dtype dtype, int64_t n, const int32_t *m, int64_t step, const int32_t *offset,
                                  const float *scale, int64_t columns, const float *row, const float *bias, void *const *y)
{
    for (int64_t c = 0; c < n; c += VW) {
        const vf b = bias ? v_load(bias + c) : v_set(0);
        vf t[2][4], d[4];
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++) {
                const int p = i * 4 + j;
                const vi sum = (vi)v_load((const float *)m + p * step + c) - (vi)v_load((const float *)offset + p * columns + c);
                d[i] = __builtin_convertvector(sum, vf) * (v_load(scale + p * columns + c) * row[p]);
            }
            t[0][j] = d[0] + d[1] + d[2];
            t[1][j] = d[1] - d[2] - d[3];
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            if (y[i * 2])
                i8_store_n(dtype, y[i * 2], c, n - c, t[i][0] + t[i][1] + t[i][2] + b);
            if (y[i * 2 + 1])
                i8_store_n(dtype, y[i * 2 + 1], c, n - c, t[i][1] - t[i][2] - t[i][3] + b);
        }
    }
}

static void winograd_i8_output(enum tern_dtype dtype, int64_t n, const int32_t *m, int64_t step, const int32_t *offset, const float *scale,
                               int64_t columns, const float *row, const float *bias, void *const *y)
{
    FOR_DTYPE(dtype, winograd_i8_output_of, n, m, step, offset, scale, columns, row, bias, y)
}

#endif
