/* Vector exp, erf and tanh. Errors against double over the whole range are stated in tests/test_cpu_level.c. */
#ifndef TERN_BACKENDS_CPU_MATHFUN_H
#define TERN_BACKENDS_CPU_MATHFUN_H

#include "backends/cpu/level/vec.h"

/* exp: x = n ln 2 + r, |r| <= ln 2 / 2; 2^n in two halves, so that results near the ends of the range
 * are exact in the exponent. Coefficients: Cephes expf (Moshier 1989). */
INLINE vf v_exp(vf x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vf t = v_min(v_max(x, v_set(-104.0f)), v_set(89.0f));
    vf n = (t * 1.44269504088896341f + magic) - magic;
    vf r = t - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = v_set(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    vi e = __builtin_convertvector(n, vi), e1 = e >> 1, e2 = e - e1;
    p = p * (vf)((e1 + 127) << 23) * (vf)((e2 + 127) << 23);
    return v_select(x == x, p, x);
}

/* erf: a polynomial below 0.93, 1 - exp(polynomial) above it. Coefficients: minimax fit, below 1 ulp (Juffa). */
INLINE vf v_erf(vf x)
{
    vf t = v_abs(x), s = x * x;
    vf far = t * -1.72853470e-5f + 3.83197126e-4f;
    vf u = t * -3.88396438e-3f + 2.42546219e-2f;
    far = far * s + u;
    far = far * t - 1.06777877e-1f;
    far = far * t - 6.34846687e-1f;
    far = far * t - 1.28717512e-1f;
    far = far * t - t;
    far = 1.0f - v_exp(far);
    far = v_select(t > 4.0f, v_set(1.0f), far);
    far = (vf)((vi)far | ((vi)x & (int32_t)0x80000000));
    vf near = s * -5.96761703e-4f + 4.99119423e-3f;
    near = near * s - 2.67681349e-2f;
    near = near * s + 1.12819925e-1f;
    near = near * s - 3.76125336e-1f;
    near = near * s + 1.28379166e-1f;
    near = near * x + x;
    return v_select(x == x, v_select(t > 0.927734375f, far, near), x);
}

/* tanh: odd polynomial below 0.625 (Cephes tanhf), 1 - 2 / (exp(2 |x|) + 1) above. */
INLINE vf v_tanh(vf x)
{
    vf t = v_abs(x), z = x * x;
    vf p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    vf near = p * z * t + t;
    vf far = 1.0f - 2.0f / (v_exp(t + t) + 1.0f);
    return (vf)((vi)v_select(t < 0.625f, near, far) | ((vi)x & (int32_t)0x80000000)); /* odd; -0 stays -0 */
}

INLINE vf v_sigmoid(vf x) { return 1.0f / (1.0f + v_exp(-x)); }

#endif
