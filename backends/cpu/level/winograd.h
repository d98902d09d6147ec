/* Winograd's transforms for tiles of 4 x 4 and of 8 x 8 outputs of a 3 x 3 filter [Lavin and Gray 2016], a vector of channels at a time:
 * along columns, then along rows. */
#ifndef TERN_BACKENDS_CPU_WINOGRAD_H
#define TERN_BACKENDS_CPU_WINOGRAD_H

#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/gemm.h"
#include "backends/cpu/level/winograd_points.h"

/* n channels from c on; n is VW but for the last vector. */
INLINE void winograd_input_vector(const int edge, const enum tern_dtype dtype, int64_t c, int64_t n, const void *const *x, float *v,
                                  int64_t step)
{
    const int side = edge + 2;
    vf t[TERN_WINOGRAD_MOST + 2][TERN_WINOGRAD_MOST + 2], d[TERN_WINOGRAD_MOST + 2], r[TERN_WINOGRAD_MOST + 2];
#pragma GCC unroll 6
    for (int j = 0; j < side; j++) {
#pragma GCC unroll 10
        for (int i = 0; i < side; i++)
            d[i] = n == VW ? v_load_as(dtype, x[i * side + j], c) : v_load_as_n(dtype, x[i * side + j], c, n);
        winograd_in(edge, d, r);
#pragma GCC unroll 10
        for (int i = 0; i < side; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 6
    for (int i = 0; i < side; i++) {
        winograd_in(edge, t[i], r);
#pragma GCC unroll 10
        for (int j = 0; j < side; j++) {
            float *to = v + (i * side + j) * step + c;
            if (n == VW)
                v_store(to, r[j]);
            else
                v_store_n(to, r[j], n);
        }
    }
}

INLINE void winograd_input_as(const int edge, const enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        winograd_input_vector(edge, dtype, c, VW, x, v, step);
    if (c < n)
        winograd_input_vector(edge, dtype, c, n - c, x, v, step);
}

INLINE void winograd_input_of(const int edge, enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step)
{
    if (dtype == TERN_F32)
        winograd_input_as(edge, TERN_F32, n, x, v, step);
    else if (dtype == TERN_F16)
        winograd_input_as(edge, TERN_F16, n, x, v, step);
    else
        winograd_input_as(edge, TERN_BF16, n, x, v, step);
}

static void winograd_input(int edge, enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step)
{
    if (edge == 4)
        winograd_input_of(4, dtype, n, x, v, step);
    else
        winograd_input_of(8, dtype, n, x, v, step);
}

INLINE void winograd_output_vector(const int edge, int64_t c, int64_t n, const float *m, int64_t step, const float *bias, float *const *y)
{
    const int side = edge + 2;
    vf t[TERN_WINOGRAD_MOST][TERN_WINOGRAD_MOST + 2], d[TERN_WINOGRAD_MOST + 2], r[TERN_WINOGRAD_MOST];
    const vf b = !bias ? v_set(0) : n == VW ? v_load(bias + c) : v_load_n(bias + c, n);
#pragma GCC unroll 6
    for (int j = 0; j < side; j++) {
#pragma GCC unroll 10
        for (int i = 0; i < side; i++) {
            const float *from = m + (i * side + j) * step + c;
            d[i] = n == VW ? v_load(from) : v_load_n(from, n);
        }
        winograd_out(edge, d, r);
#pragma GCC unroll 8
        for (int i = 0; i < edge; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 4
    for (int i = 0; i < edge; i++) {
        winograd_out(edge, t[i], r);
#pragma GCC unroll 8
        for (int j = 0; j < edge; j++) {
            float *to = y[i * edge + j];
            if (to && n == VW)
                v_store(to + c, r[j] + b);
            else if (to)
                v_store_n(to + c, r[j] + b, n);
        }
    }
}

INLINE void winograd_output_of(const int edge, int64_t n, const float *m, int64_t step, const float *bias, float *const *y)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        winograd_output_vector(edge, c, VW, m, step, bias, y);
    if (c < n)
        winograd_output_vector(edge, c, n - c, m, step, bias, y);
}

static void winograd_output(int edge, int64_t n, const float *m, int64_t step, const float *bias, float *const *y)
{
    if (edge == 4)
        winograd_output_of(4, n, m, step, bias, y);
    else
        winograd_output_of(8, n, m, step, bias, y);
}

/* The filters of a vector of output channels; w: 9 rows `tap` apart. */
INLINE void winograd_filter_vector(const int edge, const void *w, int64_t at, int64_t tap, float *u, int64_t step,
                                   const enum storage storage)
{
    vf t[TERN_WINOGRAD_MOST + 2][3], g[3], r[TERN_WINOGRAD_MOST + 2];
#pragma GCC unroll 3
    for (int j = 0; j < 3; j++) {
#pragma GCC unroll 3
        for (int i = 0; i < 3; i++)
            g[i] = load_b(w, at + (i * 3 + j) * tap, storage);
        winograd_weight(edge, g, r);
#pragma GCC unroll 10
        for (int i = 0; i < edge + 2; i++)
            t[i][j] = r[i];
    }
#pragma GCC unroll 10
    for (int i = 0; i < edge + 2; i++, u += (edge + 2) * step) {
        __asm__("" : "+r"(u)); /* else gcc makes 36 addresses a channel and keeps them in memory */
        winograd_weight(edge, t[i], r);
#pragma GCC unroll 10
        for (int j = 0; j < edge + 2; j++)
            v_store(u + j * step, r[j]);
    }
}

#define AHEAD 8 /* channels: weights come from memory, and their transform would wait for it three quarters of its time */

INLINE void winograd_filter_as(const int edge, const enum storage storage, int64_t n, int64_t width, const void *w, int64_t channel,
                               int64_t tap, float *u, int64_t step)
{
    const int64_t size = storage == STORE_F32 ? 4 : 2;
    for (int64_t i = 0; i < n; i++) {
        for (int64_t row = 0; row < 9; row++)
            for (int64_t at = 0; at < width * size; at += 4 * LINE)
                __builtin_prefetch((const char *)w + ((i + AHEAD) * channel + row * tap) * size + at);
        for (int64_t j = 0; j < width; j += VW)
            winograd_filter_vector(edge, w, i * channel + j, tap, u + i * width + j, step, storage);
    }
}

INLINE void winograd_filter_of(const int edge, enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                               float *u, int64_t step)
{
    if (dtype == TERN_F32)
        winograd_filter_as(edge, STORE_F32, n, width, w, channel, tap, u, step);
    else if (dtype == TERN_F16)
        winograd_filter_as(edge, STORE_F16, n, width, w, channel, tap, u, step);
    else
        winograd_filter_as(edge, STORE_BF16, n, width, w, channel, tap, u, step);
}

static void winograd_filter(int edge, enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap,
                            float *u, int64_t step)
{
    if (edge == 4)
        winograd_filter_of(4, dtype, n, width, w, channel, tap, u, step);
    else
        winograd_filter_of(8, dtype, n, width, w, channel, tap, u, step);
}

#endif
