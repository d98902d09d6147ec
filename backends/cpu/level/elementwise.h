/* Element-wise loops over contiguous f32. */
#ifndef TERN_BACKENDS_CPU_ELEMENTWISE_H
#define TERN_BACKENDS_CPU_ELEMENTWISE_H

#include <math.h>

#include "backends/cpu/level/mathfun.h"

INLINE vf v_sqrt(vf x)
{
    vf r;
    for (int i = 0; i < VW; i++)
        r[i] = __builtin_sqrtf(x[i]);
    return r;
}

/* One function a row: the expression sees x (and s), vectors of VW values. */
#define UNARY(name, expression)                                               \
    INLINE vf f_##name(vf x, vf s) { return expression; }                     \
    static void unary_##name(int64_t n, const float *px, float *py, float ps) \
    {                                                                         \
        vf s = v_set(ps);                                                     \
        int64_t i = 0;                                                        \
        for (; i + VW <= n; i += VW)                                          \
            v_store(py + i, f_##name(v_load(px + i), s));                     \
        if (i < n)                                                            \
            v_store_n(py + i, f_##name(v_load_n(px + i, n - i), s), n - i);   \
    }
UNARY(neg, -x)
UNARY(abs, v_abs(x))
UNARY(exp, v_exp(x))
UNARY(sqrt, v_sqrt(x))
UNARY(rsqrt, 1.0f / v_sqrt(x))
UNARY(reciprocal, 1.0f / x)
UNARY(square, x *x)
UNARY(tanh, v_tanh(x))
UNARY(sigmoid, v_sigmoid(x))
UNARY(relu, v_select(x < 0.0f, v_set(0), x))
UNARY(silu, x *v_sigmoid(x))
UNARY(gelu, 0.5f * x * (1.0f + v_erf(x * 0.70710678118654752f)))
UNARY(gelu_tanh, 0.5f * x * (1.0f + v_tanh(0.79788456080286536f * (x + 0.044715f * x * x * x))))
UNARY(quick_gelu, x *v_sigmoid(1.702f * x))
UNARY(add_scalar, x + s)
UNARY(mul_scalar, x *s)

#define BINARY(name, expression)                                                                                             \
    INLINE vf g_##name(vf x, vf y) { return expression; }                                                                    \
    static void binary_##name(int64_t n, const float *px, int x_step, const float *py, int y_step, float *out)               \
    {                                                                                                                        \
        vf x = n ? v_set(*px) : v_set(0), y = n ? v_set(*py) : v_set(0);                                                     \
        int64_t i = 0;                                                                                                       \
        for (; i + VW <= n; i += VW)                                                                                         \
            v_store(out + i, g_##name(x_step ? v_load(px + i) : x, y_step ? v_load(py + i) : y));                            \
        if (i < n)                                                                                                           \
            v_store_n(out + i, g_##name(x_step ? v_load_n(px + i, n - i) : x, y_step ? v_load_n(py + i, n - i) : y), n - i); \
    }
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)

#endif
