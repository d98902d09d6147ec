/* Winograd's transforms for tiles of 4 x 4 outputs of a 3 x 3 filter [Lavin and Gray 2016], a vector of channels at a time.
 * Points 0, +-A, +-B and infinity: what +A and -A share is computed once. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_H
#define TERN_BACKENDS_CPU_WINOGRAD_H

#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/gemm.h"

/* Their squares are exact, and of ten pairs tried these round least, with (11/16, 3/2): a fifth of the squared error of (1, 2). */
#define A1 0.625f
#define A2 (A1 * A1)
#define A3 (A1 * A2)
#define B1 1.5f
#define B2 (B1 * B1)
#define B3 (B1 * B2)
/* What the weights' values at 0, at +-A and at +-B are scaled by. */
#define WEIGHT_0 (1 / (A2 * B2))
#define WEIGHT_A (1 / (2 * A2 * (A2 - B2)))
#define WEIGHT_B (1 / (2 * B2 * (B2 - A2)))

/* Rows of B^T: the coefficients of the product of (x - q) over all other points q. */
INLINE void winograd_in(const vf d[6], vf v[6])
{
    vf even_a = d[4] - B2 * d[2], odd_a = d[3] - B2 * d[1];
    vf even_b = d[4] - A2 * d[2], odd_b = d[3] - A2 * d[1];
    v[0] = (d[4] - (A2 + B2) * d[2]) + (A2 * B2) * d[0];
    v[1] = even_a + A1 * odd_a;
    v[2] = even_a - A1 * odd_a;
    v[3] = even_b + B1 * odd_b;
    v[4] = even_b - B1 * odd_b;
    v[5] = (d[5] - (A2 + B2) * d[3]) + (A2 * B2) * d[1];
}

/* Rows of A^T: powers of the points. */
INLINE void winograd_out(const vf m[6], vf y[4])
{
    vf sum_a = m[1] + m[2], difference_a = m[1] - m[2];
    vf sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + (sum_a + sum_b);
    y[1] = A1 * difference_a + B1 * difference_b;
    y[2] = A2 * sum_a + B2 * sum_b;
    y[3] = (A3 * difference_a + B3 * difference_b) + m[5];
}

/* n channels from c on; n is VW but for the last vector. */
INLINE void winograd_input_vector(const enum tern_dtype dtype, int64_t c, int64_t n, const void *const *x, float *v, int64_t step)
{
    vf t[6][6], d[6], r[6];
#pragma GCC unroll 6
    for (int j = 0; j < 6; j++) {
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            d[i] = n == VW ? v_load_as(dtype, x[i * 6 + j], c) : v_load_as_n(dtype, x[i * 6 + j], c, n);
        winograd_in(d, r);
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++) {
        winograd_in(t[i], r);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++) {
            float *to = v + (i * 6 + j) * step + c;
            if (n == VW)
                v_store(to, r[j]);
            else
                v_store_n(to, r[j], n);
        }
    }
}

INLINE void winograd_input_as(const enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        winograd_input_vector(dtype, c, VW, x, v, step);
    if (c < n)
        winograd_input_vector(dtype, c, n - c, x, v, step);
}

static void winograd_input(enum tern_dtype dtype, int64_t n, const void *const *x, float *v,
                           int64_t step){FOR_DTYPE(dtype, winograd_input_as, n, x, v, step)}

INLINE void winograd_output_vector(int64_t c, int64_t n, const float *m, int64_t step, const float *unit, int64_t columns,
                                   const float *bias, float *const *y)
{
    vf t[4][6], d[6], r[4], b = !bias ? v_set(0) : n == VW ? v_load(bias + c) : v_load_n(bias + c, n);
#pragma GCC unroll 6
    for (int j = 0; j < 6; j++) {
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++) {
            const float *from = m + (i * 6 + j) * step + c;
            d[i] = n == VW ? v_load(from) : v_load_n(from, n);
            if (unit) {
                const float *factor = unit + (i * 6 + j) * columns + c;
                d[i] *= n == VW ? v_load(factor) : v_load_n(factor, n);
            }
        }
        winograd_out(d, r);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        winograd_out(t[i], r);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            float *to = y[i * 4 + j];
            if (to && n == VW)
                v_store(to + c, r[j] + b);
            else if (to)
                v_store_n(to + c, r[j] + b, n);
        }
    }
}

INLINE void winograd_output_of(int64_t n, const float *m, int64_t step, const float *unit, int64_t columns, const float *bias,
                               float *const *y)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        winograd_output_vector(c, VW, m, step, unit, columns, bias, y);
    if (c < n)
        winograd_output_vector(c, n - c, m, step, unit, columns, bias, y);
}

static void winograd_output(int64_t n, const float *m, int64_t step, const float *unit, int64_t columns, const float *bias, float *const *y)
{
    if (unit)
        winograd_output_of(n, m, step, unit, columns, bias, y);
    else
        winograd_output_of(n, m, step, NULL, 0, bias, y);
}

/* Rows of G: 1, p, p^2 over the product of the distances to the other finite points; (0, 0, 1) for infinity. */
INLINE void winograd_weight(const vf g[3], vf u[6])
{
    const float near = WEIGHT_A, far = WEIGHT_B;
    vf even_a = near * g[0] + (near * A2) * g[2], odd_a = (near * A1) * g[1];
    vf even_b = far * g[0] + (far * B2) * g[2], odd_b = (far * B1) * g[1];
    u[0] = WEIGHT_0 * g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[2];
}

/* What a channel of a vector of output channels becomes along one side of the filter; w: 9 rows `tap` apart. */
INLINE void winograd_filter_side(const enum tern_dtype dtype, const void *w, int64_t at, int64_t tap, vf t[6][3])
{
    vf g[3], r[6];
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) {
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++)
            g[i] = v_load_as(dtype, w, at + (i * 3 + j) * tap);
        winograd_weight(g, r);
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++)
            t[i][j] = r[i];
    }
}

INLINE void winograd_filter_vector(const enum tern_dtype dtype, const void *w, int64_t at, int64_t tap, float *u, int64_t step)
{
    vf t[6][3], r[6];
    winograd_filter_side(dtype, w, at, tap, t);
#pragma GCC unroll 6
    for (int i = 0; i < 6; i++, u += 6 * step) {
        __asm__("" : "+r"(u)); /* else gcc makes 36 addresses a channel and keeps them in memory */
        winograd_weight(t[i], r);
#pragma GCC unroll 6
        for (int j = 0; j < 6; j++)
            v_store(u + j * step, r[j]);
    }
}

#define AHEAD 8 /* channels: weights come from memory, and their transform would wait for it three quarters of its time */

/* Begins to fetch a channel's rows of a panel, AHEAD of the one that is transformed. */
INLINE void winograd_fetch_filter(const enum tern_dtype dtype, int64_t width, const void *w, int64_t i, int64_t channel, int64_t tap)
{
    const int64_t size = dtype == TERN_F32 ? 4 : 2;
    for (int64_t row = 0; row < 9; row++)
        for (int64_t at = 0; at < width * size; at += 4 * LINE)
            __builtin_prefetch((const char *)w + ((i + AHEAD) * channel + row * tap) * size + at);
}

INLINE void winograd_filter_as(const enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap, float *u,
                               int64_t step)
{
    for (int64_t i = 0; i < n; i++) {
        winograd_fetch_filter(dtype, width, w, i, channel, tap);
        for (int64_t j = 0; j < width; j += VW)
            winograd_filter_vector(dtype, w, i * channel + j, tap, u + i * width + j, step);
    }
}

static void winograd_filter(enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap, float *u,
                            int64_t step)
{
    FOR_DTYPE(dtype, winograd_filter_as, n, width, w, channel, tap, u, step)
}

#endif
