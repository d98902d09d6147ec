/* Vector exp, tanh, sigmoid and gelu. Errors against double over the whole range are stated in tests/test_cpu_level.c. */
#ifndef TERN_BACKENDS_CPU_MATHFUN_H
#define TERN_BACKENDS_CPU_MATHFUN_H

#include "backends/cpu/level/vec.h"

/* exp of x, or of `most` where x is above it: x = n ln 2 + r, |r| <= ln 2 / 2. Coefficients: Cephes expf (Moshier 1989). */
INLINE vf v_exp_up_to(vf x, float most)
{
    const vf t = v_min(v_set(most), v_max(v_set(-104.0f), x)); /* NaN is the second operand, which both give back */
#if defined(TERN_LEVEL_512)
    const vf n = (vf)_mm512_roundscale_ps((__m512)(t * 1.44269504088896341f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    const vf n = (t * 1.44269504088896341f + magic) - magic;
#endif
    vf r = t - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    vf p = v_set(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else /* 2^n in two halves, so that results near the ends of the range are exact in the exponent */
    vi e = __builtin_convertvector(n, vi), e1 = e >> 1, e2 = e - e1;
    p = p * (vf)((e1 + 127) << 23) * (vf)((e2 + 127) << 23);
    return v_select(x == x, p, x);
#endif
}

INLINE vf v_exp(vf x) { return v_exp_up_to(x, 89.0f); }

/* 1 / x for 2^-126 < x < 2^126: an estimate of 14 bits and one step of Newton's, which takes half of the time of a division. */
INLINE vf v_reciprocal(vf x)
{
#if defined(TERN_LEVEL_512)
    vf r = (vf)_mm512_rcp14_ps((__m512)x);
    return r + r * (1.0f - x * r);
#else
    return 1.0f / x;
#endif
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

/* Below -87 it is taken for zero. */
INLINE vf v_sigmoid(vf x) { return v_zero_below(x, -87.0f, v_reciprocal(1.0f + v_exp_up_to(-x, 87.0f))); }

/* gelu: max(x, 0) - |x| Q(|x|), where Q(t) = erfc(t / sqrt 2) / 2 = exp(-t^2 / 2) R(t): so the left tail keeps its digits. R is a
 * polynomial in 1 / (1 + 0.23 t), of the least relative error over 0 <= t <= 13 (5e-8), found by reweighted least squares. */
INLINE vf v_gelu(vf x)
{
    vf t = v_abs(x), near = v_min(t, v_set(16.0f)); /* Q(16) is zero */
    vf u = v_reciprocal(1.0f + 0.23f * near);
    vf p = v_set(-0.07836835705f);
    p = p * u + 0.28990998019f;
    p = p * u - 0.27703025289f;
    p = p * u + 0.30014251771f;
    p = p * u - 0.03193775407f;
    p = p * u + 0.11906242591f;
    p = p * u + 0.08588893082f;
    p = p * u + 0.09235897118f;
    p = p * u - 2.648529078749e-5f;
    vf half = 0.5f * x + 0.5f * t; /* exact; NaN for NaN and minus infinity */
    return half - near * (p * v_exp(-0.5f * (near * near)));
}

#endif
