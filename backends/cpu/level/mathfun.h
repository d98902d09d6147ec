/* Vector exp, tanh, sigmoid and gelu, and some that are exact enough for results of 16 bits. Errors against double over the whole range are
 * stated in tests/test_cpu_level.c. */
#ifndef TERN_BACKENDS_CPU_MATHFUN_H
#define TERN_BACKENDS_CPU_MATHFUN_H

#include "backends/cpu/level/vec.h"

/* e^t = p 2^n: t = n ln 2 + r, |r| <= ln 2 / 2, p a polynomial in r (minimax, by reweighted least squares; error 3e-9, in f32 6.2e-8). ln 2
 * in two parts: Cephes expf (Moshier 1989). */
INLINE vf exp_parts(vf t, vf *n)
{
#if defined(TERN_LEVEL_512)
    *n = (vf)_mm512_roundscale_ps((__m512)(t * 1.44269504088896341f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    *n = (t * 1.44269504088896341f + magic) - magic;
#endif
    vf r = t - *n * 0.693359375f;
    r = r + *n * 2.12194440e-4f;
    vf p = r * 1.38145988e-3f + 8.36871658e-3f;
    p = p * r + 4.1668389e-2f;
    p = p * r + 1.66665211e-1f;
    p = p * r + 4.9999994e-1f;
    p = p * r + 1.0f;
    return p * r + 1.0f;
}

INLINE vf v_exp(vf x)
{
    vf n, p = exp_parts(v_min(v_set(89.0f), v_max(v_set(-104.0f), x)), &n); /* NaN is the second operand, which both give back */
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else /* 2^n in two halves, so that results near the ends of the range are exact in the exponent */
    vi e = __builtin_convertvector(n, vi), e1 = e >> 1, e2 = e - e1;
    p = p * (vf)((e1 + 127) << 23) * (vf)((e2 + 127) << 23);
    return v_select(x == x, p, x);
#endif
}

#if defined(TERN_LEVEL_512)
#define LEAST_POWER -200 /* scalef makes a zero of it */
#else
#define LEAST_POWER -127 /* which as bits of an exponent is zero */
#endif

/* The same for x <= 88, where what is no normal number may be zero, as it is far below: one scale will do. */
INLINE vf v_exp_normal(vf x)
{
    vf n, p = exp_parts(v_max(v_set(LEAST_POWER * 0.69314718f), x), &n);
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    return p * (vf)((vu)(n + (12582912.0f + 127)) << 23); /* the last bits of the sum are n + 127 */
#endif
}

/* What makes a power of two, in memory: who has few registers left reads it there. */
struct power_terms {
    float least, magic, polynomial[6];
};

/* 2^x, zero far below -126, infinite from 128 on. The polynomial (minimax, by reweighted least squares) is one of x - floor(x) where the
 * level has instructions for that, with an error of 8.2e-8, else of x - round(x), with 9.1e-8; that of the result is 1.7e-7. */
#if defined(TERN_LEVEL_512)
static const struct power_terms power_terms = {0, 0, {1.86713005e-3f, 9.01703071e-3f, 5.57999127e-2f, 2.40164444e-1f, 6.93151295e-1f, 1}};
#else
static const struct power_terms power_terms = {LEAST_POWER,
                                               12582912.0f + 127,
                                               {1.3264727e-3f, 9.671513e-3f, 5.5507336e-2f, 2.4022242e-1f, 6.93147e-1f, 1}};
#endif

/* By the polynomial's coefficients from `first` on. */
INLINE vf power_of_two_from(const int first, const struct power_terms *c, vf x)
{
#if defined(TERN_LEVEL_512)
    const vf r = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
#else
    const vf t = v_min(v_set(128), v_max(v_set(c->least), x)), shifted = t + v_set(c->magic), r = t - (shifted - v_set(c->magic));
#endif
    vf p = v_set(c->polynomial[first]);
#pragma GCC unroll 6
    for (int i = first + 1; i < 6; i++)
        p = v_fma(p, r, v_set(c->polynomial[i]));
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
    return p * (vf)((vu)shifted << 23); /* its last bits are round(x) + 127 */
#endif
}

INLINE vf v_power_of_two(const struct power_terms *c, vf x) { return power_of_two_from(0, c, x); }

/* 1 / x for 2^-126 < x < 2^126: an estimate of 12 bits or more and one step of Newton's, which takes half of the time of a division. */
INLINE vf v_reciprocal(vf x)
{
#if defined(TERN_LEVEL_512)
    vf r = (vf)_mm512_rcp14_ps((__m512)x);
    return r + r * (1.0f - x * r);
#elif defined(TERN_LEVEL_256)
    vf r = (vf)_mm256_rcp_ps((__m256)x);
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
    vf far = 1.0f - 2.0f / (v_exp_normal(v_min(v_set(40.0f), t + t)) + 1.0f);
    return (vf)((vi)v_select(t < 0.625f, near, far) | ((vi)x & (int32_t)0x80000000)); /* odd; -0 stays -0 */
}

/* Below -87 it is taken for zero. */
INLINE vf v_sigmoid(vf x) { return v_zero_below(x, -87.0f, v_reciprocal(1.0f + v_exp_normal(v_min(v_set(87.0f), -x)))); }

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
    return half - near * (p * v_exp_normal(-0.5f * (near * near)));
}

/* ---- for results that are rounded to f16 or bf16: relative errors within 1e-4, of gelu 1.5e-4, where half a unit of f16 is 2.4e-4 or more
 */

/* 2^x as above, by a polynomial of degree 4; its error is 2.6e-6. */
INLINE vf v_power_of_two_half(vf x)
{
#if defined(TERN_LEVEL_512)
    static const struct power_terms terms = {0, 0, {0, 1.35341678e-2f, 5.20114638e-2f, 2.41442755e-1f, 6.93003833e-1f, 1.0000026f}};
#else
    static const struct power_terms terms = {LEAST_POWER,
                                             12582912.0f + 127,
                                             {0, 9.5701022e-3f, 5.59178628e-2f, 2.40247443e-1f, 6.93121791e-1f, 0.999999285f}};
#endif
    return power_of_two_from(1, &terms, x);
}

/* 1 / x; 6.1e-5 with AVX-512. */
INLINE vf v_reciprocal_half(vf x)
{
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_rcp14_ps((__m512)x);
#else
    return v_reciprocal(x);
#endif
}

/* sigmoid(factor x); zero far below, so that the least floats times it are zero, too */
INLINE vf v_sigmoid_half(vf x, const float factor)
{
    const vf t = x * (-1.44269504088896341f * factor);
#if defined(TERN_LEVEL_256) /* of infinity Newton's step makes no number */
    return v_zero_below(-t, -126.0f, v_reciprocal_half(1.0f + v_power_of_two_half(v_min(v_set(126.0f), t))));
#else
    return v_reciprocal_half(1.0f + v_power_of_two_half(t));
#endif
}

/* As v_gelu; R within 1.1e-5. */
INLINE vf v_gelu_half(vf x)
{
    vf t = v_abs(x), near = v_min(t, v_set(16.0f));
    vf u = v_reciprocal_half(1.0f + 0.36f * near);
    vf p = v_set(-0.09927664697f);
    p = p * u + 0.25639805198f;
    p = p * u + 0.03312301263f;
    p = p * u + 0.16961590946f;
    p = p * u + 0.13992747664f;
    p = p * u + 2.06805038e-4f;
    vf half = 0.5f * x + 0.5f * t;
    return half - near * (p * v_power_of_two_half((-0.5f * 1.44269504088896341f) * (near * near)));
}

/* For results that are rounded to bf16, in fewer instructions: x Phi(x), where Phi(-t) = 2^h(t), h a polynomial of the least
 * error over 0 <= t <= 8 by reweighted least squares. It is the gelu of an argument that is wrong by 2.7e-4 at most; rounding that to bf16
 * may change it by 2e-3. Infinite for infinity, no number for minus infinity, as the others. */
INLINE vf v_gelu_bf16(vf x)
{
#if defined(TERN_LEVEL_512)
    static const struct power_terms terms = {0, 0, {0, 0, 7.80245222e-2f, 2.26067171e-1f, 6.95833526e-1f, 9.99925221e-1f}};
#else
    static const struct power_terms terms = {LEAST_POWER,
                                             12582912.0f + 127,
                                             {0, 0, 5.51716687e-2f, 2.42611133e-1f, 6.93260986e-1f, 9.99928073e-1f}};
#endif
    const vf t = v_abs(x);
    vf h = v_set(-1.90967577e-4f);
    h = v_fma(h, t, v_set(4.48096751e-3f));
    h = v_fma(h, t, v_set(-4.37382383e-2f));
    h = v_fma(h, t, v_set(-4.69644241e-1f));
    h = v_fma(h, t, v_set(-1.14693696f));
    h = v_fma(h, t, v_set(-1.00026323f));
    const vf tail = power_of_two_from(2, &terms, h);
    return x * v_select(x < 0, tail, 1.0f - tail);
}

/* By the logistic function: (1 + tanh(y)) / 2 = sigmoid(2 y). */
INLINE vf v_gelu_tanh_half(vf x) { return x * v_sigmoid_half(x + 0.044715f * x * x * x, 1.59576912160573071f); }

#endif
