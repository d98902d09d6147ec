/* Loops along rows: sums, moments, maxima, exp with its sum, scale and offset. */
#ifndef TERN_BACKENDS_CPU_ROWS_H
#define TERN_BACKENDS_CPU_ROWS_H

#include <math.h>

#include "backends/cpu/level/mathfun.h"

/* Values per partial sum: short enough for f32, the rest is added in double. */
#define CHUNK 4096

static void moments_chunk(int64_t n, const float *x, float shift, double *sum, double *square)
{
    vf s[2] = {v_set(0), v_set(0)}, q[2] = {v_set(0), v_set(0)}, d;
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW)
        for (int j = 0; j < 2; j++) {
            d = v_load(x + i + j * VW) - shift;
            s[j] += d;
            q[j] += d * d;
        }
    float tail_s = 0, tail_q = 0;
    for (; i < n; i++) {
        float t = x[i] - shift;
        tail_s += t;
        tail_q += t * t;
    }
    *sum += (double)v_sum(s[0] + s[1]) + tail_s;
    *square += (double)v_sum(q[0] + q[1]) + tail_q;
}

static void moments(int64_t n, const float *x, float shift, double *sum, double *square)
{
    *sum = *square = 0;
    for (int64_t i = 0; i < n; i += CHUNK)
        moments_chunk(n - i < CHUNK ? n - i : CHUNK, x + i, shift, sum, square);
}

static void moments_by_column(int64_t rows, int64_t n, const float *x, int64_t ldx, const float *shift, float *sum, float *square)
{
    int64_t c = 0;
    for (; c + VW <= n; c += VW) {
        vf s = v_load(sum + c), q = v_load(square + c), m = v_load(shift + c);
        for (int64_t r = 0; r < rows; r++) {
            vf d = v_load(x + r * ldx + c) - m;
            s += d;
            q += d * d;
        }
        v_store(sum + c, s);
        v_store(square + c, q);
    }
    for (; c < n; c++)
        for (int64_t r = 0; r < rows; r++) {
            float d = x[r * ldx + c] - shift[c];
            sum[c] += d;
            square[c] += d * d;
        }
}

static void affine(int64_t n, const float *x, const struct tern_cpu_affine *a, bool vectors, float *y)
{
    int64_t i = 0, step = vectors;
    vf shift = v_set(*a->shift), delta = v_set(*a->delta), scale = v_set(*a->scale), offset = v_set(*a->offset);
    for (; i + VW <= n; i += VW) {
        if (vectors) {
            shift = v_load(a->shift + i);
            delta = v_load(a->delta + i);
            scale = v_load(a->scale + i);
            offset = v_load(a->offset + i);
        }
        v_store(y + i, ((v_load(x + i) - shift) - delta) * scale + offset);
    }
    for (; i < n; i++)
        y[i] = ((x[i] - a->shift[i * step]) - a->delta[i * step]) * a->scale[i * step] + a->offset[i * step];
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
