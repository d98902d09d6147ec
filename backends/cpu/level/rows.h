/* Loops along rows: moments, scale and offset in f32, f16 or bf16; sums, maxima, exp with its sum in f32. */
#ifndef TERN_BACKENDS_CPU_ROWS_H
#define TERN_BACKENDS_CPU_ROWS_H

#include <math.h>

#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/mathfun.h"

/* Values per partial sum: short enough for f32, the rest is added in double. */
#define CHUNK 4096

INLINE void moments_chunk(const enum tern_dtype dtype, int64_t n, const void *x, int64_t at, float shift, double *sum, double *square)
{
    vf s[2] = {v_set(0), v_set(0)}, q[2] = {v_set(0), v_set(0)}, d;
    int64_t i = at, end = at + n;
    for (; i + 2 * VW <= end; i += 2 * VW)
        for (int j = 0; j < 2; j++) {
            d = v_load_as(dtype, x, i + j * VW) - shift;
            s[j] += d;
            q[j] += d * d;
        }
    float tail_s = 0, tail_q = 0;
    for (; i < end; i++) {
        float t = load_as(dtype, x, i) - shift;
        tail_s += t;
        tail_q += t * t;
    }
    *sum += (double)v_sum(s[0] + s[1]) + tail_s;
    *square += (double)v_sum(q[0] + q[1]) + tail_q;
}

INLINE void moments_of(const enum tern_dtype dtype, int64_t n, const void *x, float shift, double *sum, double *square)
{
    *sum = *square = 0;
    for (int64_t i = 0; i < n; i += CHUNK)
        moments_chunk(dtype, n - i < CHUNK ? n - i : CHUNK, x, i, shift, sum, square);
}

static void moments(enum tern_dtype dtype, int64_t n, const void *x, float shift, double *sum, double *square)
{
    FOR_DTYPE(dtype, moments_of, n, x, shift, sum, square)
}

/* COLUMNS vectors side by side, which are whole lines of a row. */
#define COLUMNS 4

/* `vectors` of columns from c on: what they sum stays in registers. */
INLINE void moments_of_columns(const enum tern_dtype dtype, const int vectors, int64_t rows, int64_t c, const void *x, int64_t ldx,
                               const float *shift, float *sum, float *square)
{
    vf s[COLUMNS], q[COLUMNS], m[COLUMNS];
    for (int j = 0; j < vectors; j++) {
        s[j] = v_load(sum + c + j * VW);
        q[j] = v_load(square + c + j * VW);
        m[j] = v_load(shift + c + j * VW);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) {
            vf d = v_load_as(dtype, x, r * ldx + c + j * VW) - m[j];
            s[j] += d;
            q[j] += d * d;
        }
    for (int j = 0; j < vectors; j++) {
        v_store(sum + c + j * VW, s[j]);
        v_store(square + c + j * VW, q[j]);
    }
}

INLINE void moments_by_column_of(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, const float *shift,
                                 float *sum, float *square)
{
    int64_t c = 0;
    for (; c + COLUMNS * VW <= n; c += COLUMNS * VW)
        moments_of_columns(dtype, COLUMNS, rows, c, x, ldx, shift, sum, square);
    for (; c + VW <= n; c += VW)
        moments_of_columns(dtype, 1, rows, c, x, ldx, shift, sum, square);
    for (; c < n; c++)
        for (int64_t r = 0; r < rows; r++) {
            float d = load_as(dtype, x, r * ldx + c) - shift[c];
            sum[c] += d;
            square[c] += d * d;
        }
}

static void moments_by_column(enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, const float *shift, float *sum,
                              float *square){FOR_DTYPE(dtype, moments_by_column_of, rows, n, x, ldx, shift, sum, square)}

INLINE vf v_affine(vf x, vf shift, vf delta, vf scale, vf offset)
{
    return ((x - shift) - delta) * scale + offset;
}

INLINE void affine_of(const enum tern_dtype from, const enum tern_dtype to, int64_t n, const void *x, const struct tern_cpu_affine *a,
                      bool vectors, void *y)
{
    int64_t i = 0, left;
    vf shift = v_set(*a->shift), delta = v_set(*a->delta), scale = v_set(*a->scale), offset = v_set(*a->offset);
    for (; i + VW <= n; i += VW) {
        if (vectors) {
            shift = v_load(a->shift + i);
            delta = v_load(a->delta + i);
            scale = v_load(a->scale + i);
            offset = v_load(a->offset + i);
        }
        v_store_as(to, y, i, v_affine(v_load_as(from, x, i), shift, delta, scale, offset));
    }
    if (i == n)
        return;
    left = n - i;
    if (vectors) {
        shift = v_load_n(a->shift + i, left);
        delta = v_load_n(a->delta + i, left);
        scale = v_load_n(a->scale + i, left);
        offset = v_load_n(a->offset + i, left);
    }
    v_store_as_n(to, y, i, v_affine(v_load_as_n(from, x, i, left), shift, delta, scale, offset), left);
}

INLINE void affine_alike(const enum tern_dtype dtype, int64_t n, const void *x, const struct tern_cpu_affine *a, bool vectors, void *y)
{
    affine_of(dtype, dtype, n, x, a, vectors, y);
}

INLINE void affine_wide(const enum tern_dtype dtype, int64_t n, const void *x, const struct tern_cpu_affine *a, bool vectors, void *y)
{
    affine_of(dtype, TERN_F32, n, x, a, vectors, y);
}

static void affine(enum tern_dtype dtype, int64_t n, const void *x, const struct tern_cpu_affine *a, bool vectors, bool wide, void *y)
{
    if (wide)
        FOR_DTYPE(dtype, affine_wide, n, x, a, vectors, y)
    else
        FOR_DTYPE(dtype, affine_alike, n, x, a, vectors, y)
}

INLINE void normalize_of(const enum tern_dtype dtype, int64_t n, const void *x, const struct tern_cpu_affine *a, const float *weight,
                         const float *bias, void *y)
{
    const vf shift = v_set(*a->shift), delta = v_set(*a->delta), scale = v_set(*a->scale), one = v_set(1), zero = v_set(0);
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf v = ((v_load_as(dtype, x, i) - shift) - delta) * scale;
        v_store_as(dtype, y, i, v * (weight ? v_load(weight + i) : one) + (bias ? v_load(bias + i) : zero));
    }
    if (i < n) {
        vf v = ((v_load_as_n(dtype, x, i, n - i) - shift) - delta) * scale;
        v = v * (weight ? v_load_n(weight + i, n - i) : one) + (bias ? v_load_n(bias + i, n - i) : zero);
        v_store_as_n(dtype, y, i, v, n - i);
    }
}

static void normalize(enum tern_dtype dtype, int64_t n, const void *x, const struct tern_cpu_affine *a, const float *weight,
                      const float *bias, void *y)
{
    FOR_DTYPE(dtype, normalize_of, n, x, a, weight, bias, y)
}

static float max_of(int64_t n, const float *x)
{
    vf m = v_set(-INFINITY);
    int64_t i = 0;
    for (; i + VW <= n; i += VW)
        m = v_max(v_load(x + i), m);
    float r = -INFINITY;
    for (int j = 0; j < VW; j++)
        r = m[j] > r ? m[j] : r;
    for (; i < n; i++)
        r = x[i] > r ? x[i] : r;
    return r;
}

static float sum_of(int64_t n, const float *x)
{
    vf s[2] = {v_set(0), v_set(0)};
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW)
        for (int j = 0; j < 2; j++)
            s[j] += v_load(x + i + j * VW);
    float r = v_sum(s[0] + s[1]);
    for (; i < n; i++)
        r += x[i];
    return r;
}

static float exp_sum(int64_t n, float *x, float max)
{
    vf s = v_set(0);
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf e = v_exp(v_load(x + i) - max);
        v_store(x + i, e);
        s += e;
    }
    float r = v_sum(s);
    if (i < n) {
        vf e = v_exp(v_load_n(x + i, n - i) - max);
        v_store_n(x + i, e, n - i);
        for (int64_t j = 0; j < n - i; j++)
            r += e[j];
    }
    return r;
}

#endif
