/* Normalisations of rows of f32, f16 or bf16, in f32: moments, scale and offset. */
#ifndef TERN_BACKENDS_CPU_LEVEL_NORMS_H
#define TERN_BACKENDS_CPU_LEVEL_NORMS_H

#include "backends/cpu/level/affine.h"
#include "backends/cpu/level/convert.h"

/* Values per partial sum: short enough for f32, the rest is added in double. */
#define NORM_CHUNK 4096

#define NORM_SUMS 4

INLINE void moments_chunk(const enum tern_dtype dtype, int64_t n, const void *x, int64_t at, float shift, double *sum, double *square)
{
    vf s[NORM_SUMS], q[NORM_SUMS], two[2], d;
    int64_t i = at, end = at + n;
    for (int j = 0; j < NORM_SUMS; j++)
        s[j] = q[j] = v_set(0);
    for (; i + NORM_SUMS * VW <= end; i += NORM_SUMS * VW)
        for (int j = 0; j < NORM_SUMS; j += 2) {
            v_load_any_two_as(dtype, x, i + j * VW, two);
            for (int k = j; k < j + 2; k++) {
                d = two[k - j] - shift;
                s[k] += d;
                q[k] += d * d;
            }
        }
    for (; i < end; i += VW) {
        d = end - i < VW ? v_keep(v_load_as_n(dtype, x, i, end - i) - shift, end - i) : v_load_as(dtype, x, i) - shift;
        s[0] += d;
        q[0] += d * d;
    }
    *sum += v_sum((s[0] + s[1]) + (s[2] + s[3]));
    *square += v_sum((q[0] + q[1]) + (q[2] + q[3]));
}

INLINE void moments_of(const enum tern_dtype dtype, int64_t n, const void *x, float shift, double *sum, double *square)
{
    *sum = *square = 0;
    for (int64_t i = 0; i < n; i += NORM_CHUNK)
        moments_chunk(dtype, n - i < NORM_CHUNK ? n - i : NORM_CHUNK, x, i, shift, sum, square);
}

static void moments(enum tern_dtype dtype, int64_t n, const void *x, float shift, double *sum,
                    double *square){FOR_DTYPE(dtype, moments_of, n, x, shift, sum, square)}

/* n <= VW columns from c on */
INLINE void column_moments(const enum tern_dtype dtype, const int rows, int64_t n, int64_t c, const void *x, int64_t ldx,
                           const float *shift, float *sum, float *square)
{
    const bool whole = n == VW;
    vf s = whole ? v_load(sum + c) : v_load_n(sum + c, n), q = whole ? v_load(square + c) : v_load_n(square + c, n);
    vf m = whole ? v_load(shift + c) : v_load_n(shift + c, n);
    for (int r = 0; r < rows; r++) {
        vf d = (whole ? v_load_as(dtype, x, r * ldx + c) : v_load_as_n(dtype, x, r * ldx + c, n)) - m;
        s += d;
        q += d * d;
    }
    if (whole) {
        v_store(sum + c, s);
        v_store(square + c, q);
    } else {
        v_store_n(sum + c, s, n);
        v_store_n(square + c, q, n);
    }
}

INLINE void columns_moments(const enum tern_dtype dtype, const int rows, int64_t n, const void *x, int64_t ldx, const float *shift,
                            float *sum, float *square)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW)
        column_moments(dtype, rows, VW, c, x, ldx, shift, sum, square);
    if (c < n)
        column_moments(dtype, rows, n - c, c, x, ldx, shift, sum, square);
}

INLINE void moments_by_column_of(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, bool near,
                                 const float *shift, float *sum, float *square)
{
    int64_t r = 0;
    for (; goes_together(n, near) && r + NORM_ROWS <= rows; r += NORM_ROWS)
        columns_moments(dtype, NORM_ROWS, n, row_of(dtype, x, r * ldx), ldx, shift, sum, square);
    for (; r < rows; r++)
        columns_moments(dtype, 1, n, row_of(dtype, x, r * ldx), ldx, shift, sum, square);
}

static void moments_by_column(enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, bool near, const float *shift,
                              float *sum, float *square){FOR_DTYPE(dtype, moments_by_column_of, rows, n, x, ldx, near, shift, sum, square)}

/* Columns i .. i + n of a row, n <= VW, by (x - shift) scale + offset. affine: with weights and a bias. */
INLINE vf normalized(const enum tern_dtype from, const bool affine, const void *x, int64_t i, int64_t n, const struct columns *by,
                     const float *weight, const float *bias)
{
    const bool whole = n == VW;
    const vf v = v_affine(whole ? v_load_as(from, x, i) : v_load_as_n(from, x, i, n), by);
    if (affine)
        return whole ? v_fma(v, v_load(weight + i), v_load(bias + i)) : v_fma(v, v_load_n(weight + i, n), v_load_n(bias + i, n));
    return v * (weight ? v_load_n(weight + i, n) : v_set(1)) + (bias ? v_load_n(bias + i, n) : v_set(0));
}

/* A row that comes later is asked for meanwhile. */
INLINE void normalize_row(const enum tern_dtype from, const enum tern_dtype to, const bool affine, int64_t n, const void *x,
                          const struct columns *by, const struct tern_cpu_norm *p, void *y)
{
    const float *weight = p->weight, *bias = p->bias;
    int64_t i = 0;
    for (; stores_two(to) && i + 2 * VW <= n; i += 2 * VW) {
        __builtin_prefetch(row_of(from, x, NORM_ROWS * n + i));
        v_store_two_as(to, y, i, normalized(from, affine, x, i, VW, by, weight, bias),
                       normalized(from, affine, x, i + VW, VW, by, weight, bias));
    }
    for (; i + VW <= n; i += VW) {
        __builtin_prefetch(row_of(from, x, NORM_ROWS * n + i));
        v_store_as(to, y, i, normalized(from, affine, x, i, VW, by, weight, bias));
    }
    if (i < n)
        v_store_as_n(to, y, i, normalized(from, affine, x, i, n - i, by, weight, bias), n - i);
}

/* Several rows, so that they do not wait for each other's roots and divisions. */
INLINE void normalize_rows(const enum tern_dtype from, const enum tern_dtype to, int rows, int64_t n, const void *x,
                           const struct tern_cpu_norm *p, void *y)
{
    float shift[NORM_ROWS], scale[NORM_ROWS], offset[NORM_ROWS];
    for (int r = 0; r < rows; r++) {
        double sum, square;
        const void *row = row_of(from, x, r * n);
        shift[r] = p->center ? load_as(from, row, 0) : 0;
        moments_of(from, n, row, shift[r], &sum, &square);
        const double mean = p->center ? sum / (double)n : 0, variance = square / (double)n - mean * mean;
        const double by = 1 / __builtin_sqrt((variance < 0 ? 0 : variance) + p->eps); /* NaN stays NaN */
        scale[r] = (float)by;
        offset[r] = (float)(-mean * by);
    }
    for (int r = 0; r < rows; r++) {
        const struct columns by = {v_set(shift[r]), v_set(scale[r]), v_set(offset[r])};
        const void *row = row_of(from, x, r * n);
        if (p->weight && p->bias)
            normalize_row(from, to, true, n, row, &by, p, (void *)row_of(to, y, r * n));
        else
            normalize_row(from, to, false, n, row, &by, p, (void *)row_of(to, y, r * n));
    }
}

INLINE void normalize_of(const enum tern_dtype from, const enum tern_dtype to, int64_t rows, int64_t n, const void *x,
                         const struct tern_cpu_norm *p, void *y)
{
    for (int64_t r = 0; r < rows; r += NORM_ROWS)
        normalize_rows(from, to, (int)(rows - r < NORM_ROWS ? rows - r : NORM_ROWS), n, row_of(from, x, r * n), p,
                       (void *)row_of(to, y, r * n));
}

INLINE void normalize_alike(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, const struct tern_cpu_norm *p, void *y)
{
    normalize_of(dtype, dtype, rows, n, x, p, y);
}

INLINE void normalize_wide(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, const struct tern_cpu_norm *p, void *y)
{
    normalize_of(TERN_F32, dtype, rows, n, x, p, y);
}

static void normalize(enum tern_dtype from, enum tern_dtype to, int64_t rows, int64_t n, const void *x, const struct tern_cpu_norm *p,
                      void *y)
{
    if (from == to)
        FOR_DTYPE(from, normalize_alike, rows, n, x, p, y)
    else
        FOR_DTYPE(to, normalize_wide, rows, n, x, p, y)
}

#endif
