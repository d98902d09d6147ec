/* Loops along rows of f32: maxima, sums, exp with its sum. */
#ifndef TERN_BACKENDS_CPU_ROWS_H
#define TERN_BACKENDS_CPU_ROWS_H

#include <math.h>

#include "backends/cpu/level/mathfun.h"

static float max_of(int64_t n, const float *x)
{
    vf m = v_set(-INFINITY), odd = m;
    int64_t i = 0;
    for (; i + 2 * VW <= n; i += 2 * VW) {
        m = v_max(v_load(x + i), m);
        odd = v_max(v_load(x + i + VW), odd);
    }
    m = v_max(m, odd);
    if (i + VW <= n)
        m = v_max(v_load(x + i), m);
    if (n >= VW) { /* some of the last vector were there before */
        m = v_max(v_load(x + n - VW), m);
        i = n;
    }
    float r = v_most(m);
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
        vf e = v_exp_normal(v_load(x + i) - max);
        v_store(x + i, e);
        s += e;
    }
    if (i < n) {
        vf e = v_exp_normal(v_load_n(x + i, n - i) - max);
        v_store_n(x + i, e, n - i);
        s += v_keep(e, n - i);
    }
    return v_sum(s);
}

#endif
