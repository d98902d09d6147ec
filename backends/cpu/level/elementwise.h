/* Element-wise loops over contiguous f32, f16 or bf16: values are widened and rounded in registers. */
#ifndef TERN_BACKENDS_CPU_ELEMENTWISE_H
#define TERN_BACKENDS_CPU_ELEMENTWISE_H

#include <math.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/mathfun.h"

INLINE vf v_sqrt(vf x)
{
    vf r;
    for (int i = 0; i < VW; i++)
        r[i] = __builtin_sqrtf(x[i]);
    return r;
}

/* One function a row: the expression sees x (and s), vectors of VW values. TWO: another one serves where the result is of 16 bits. */
#define UNARY_ROWS(ONE, TWO)                                                                                                         \
    ONE(NEG, neg, -x)                                                                                                                \
    ONE(ABS, abs, v_abs(x))                                                                                                          \
    ONE(EXP, exp, v_exp(x))                                                                                                          \
    ONE(SQRT, sqrt, v_sqrt(x))                                                                                                       \
    ONE(RSQRT, rsqrt, 1.0f / v_sqrt(x))                                                                                              \
    ONE(RECIPROCAL, reciprocal, 1.0f / x)                                                                                            \
    ONE(SQUARE, square, (x * x))                                                                                                     \
    ONE(TANH, tanh, v_tanh(x))                                                                                                       \
    TWO(SIGMOID, sigmoid, v_sigmoid(x), v_sigmoid_half(x, 1))                                                                        \
    ONE(RELU, relu, v_select(x < 0.0f, v_set(0), x))                                                                                 \
    TWO(SILU, silu, (x * v_sigmoid(x)), (x * v_sigmoid_half(x, 1)))                                                                  \
    TWO(GELU, gelu, v_gelu(x), v_gelu_half(x))                                                                                       \
    TWO(GELU_TANH, gelu_tanh, (0.5f * x * (1.0f + v_tanh(0.79788456080286536f * (x + 0.044715f * x * x * x)))), v_gelu_tanh_half(x)) \
    TWO(QUICK_GELU, quick_gelu, (x * v_sigmoid(1.702f * x)), (x * v_sigmoid_half(x, 1.702f)))                                        \
    ONE(ADD_SCALAR, add_scalar, (x + s))                                                                                             \
    ONE(MUL_SCALAR, mul_scalar, (x * s))

#define BINARY_ROWS(ROW) ROW(ADD, add, (x + y)) ROW(SUB, sub, (x - y)) ROW(MUL, mul, (x * y)) ROW(DIV, div, (x / y))

/* Loops of f(x, s), or of h(x, s) for results of 16 bits, which `half` says. */
#define UNARY_LOOPS(name, f, h)                                                                                          \
    INLINE void loop_##name(const enum tern_dtype dtype, const bool half, int64_t n, const void *px, void *py, float ps) \
    {                                                                                                                    \
        vf s = v_set(ps);                                                                                                \
        int64_t i = 0;                                                                                                   \
        for (; stores_two(dtype) && i + 4 * VW <= n; i += 4 * VW) {                                                      \
            vf v[4];                                                                                                     \
            for (int k = 0; k < 4; k++) {                                                                                \
                v[k] = v_load_as(dtype, px, i + k * VW);                                                                 \
                v[k] = half ? h(v[k], s) : f(v[k], s);                                                                   \
            }                                                                                                            \
            v_store_four_as(dtype, py, i, v);                                                                            \
        }                                                                                                                \
        for (; stores_two(dtype) && i + 2 * VW <= n; i += 2 * VW) {                                                      \
            vf x = v_load_as(dtype, px, i), y = v_load_as(dtype, px, i + VW);                                            \
            v_store_two_as(dtype, py, i, half ? h(x, s) : f(x, s), half ? h(y, s) : f(y, s));                            \
        }                                                                                                                \
        for (; i + VW <= n; i += VW) {                                                                                   \
            vf x = v_load_as(dtype, px, i);                                                                              \
            v_store_as(dtype, py, i, half ? h(x, s) : f(x, s));                                                          \
        }                                                                                                                \
        if (i < n) {                                                                                                     \
            vf x = v_load_as_n(dtype, px, i, n - i);                                                                     \
            v_store_as_n(dtype, py, i, half ? h(x, s) : f(x, s), n - i);                                                 \
        }                                                                                                                \
    }                                                                                                                    \
    INLINE void many_##name(const enum tern_dtype dtype, int64_t n, const void *x, void *y, float s)                     \
    {                                                                                                                    \
        loop_##name(dtype, dtype != TERN_F32, n, x, y, s);                                                               \
    }                                                                                                                    \
    static void unary_##name(int64_t n, const float *x, float *y, float s) { loop_##name(TERN_F32, false, n, x, y, s); } \
    static void unary_of_##name(enum tern_dtype dtype, int64_t n, const void *x, void *y, float s)                       \
    {                                                                                                                    \
        FOR_DTYPE(dtype, many_##name, n, x, y, s)                                                                        \
    }
#define UNARY_ONE(which, name, expression)                \
    INLINE vf f_##name(vf x, vf s) { return expression; } \
    UNARY_LOOPS(name, f_##name, f_##name)
#define UNARY_TWO(which, name, expression, expression_half)    \
    INLINE vf f_##name(vf x, vf s) { return expression; }      \
    INLINE vf h_##name(vf x, vf s) { return expression_half; } \
    UNARY_LOOPS(name, f_##name, h_##name)                      \
    static void unary_half_##name(int64_t n, const float *x, float *y, float s) { loop_##name(TERN_F32, true, n, x, y, s); }
UNARY_ROWS(UNARY_ONE, UNARY_TWO)

/* An operand with step 0 is one value for all. */
#define BINARY(which, name, expression)                                                                                                  \
    INLINE vf g_##name(vf x, vf y) { return expression; }                                                                                \
    INLINE void loop_##name(const enum tern_dtype dtype, int64_t n, const void *px, int x_step, const void *py, int y_step, void *out)   \
    {                                                                                                                                    \
        vf x = v_set(n ? load_as(dtype, px, 0) : 0), y = v_set(n ? load_as(dtype, py, 0) : 0);                                           \
        int64_t i = 0;                                                                                                                   \
        for (; stores_two(dtype) && i + 2 * VW <= n; i += 2 * VW)                                                                        \
            v_store_two_as(dtype, out, i, g_##name(x_step ? v_load_as(dtype, px, i) : x, y_step ? v_load_as(dtype, py, i) : y),          \
                           g_##name(x_step ? v_load_as(dtype, px, i + VW) : x, y_step ? v_load_as(dtype, py, i + VW) : y));              \
        for (; i + VW <= n; i += VW)                                                                                                     \
            v_store_as(dtype, out, i, g_##name(x_step ? v_load_as(dtype, px, i) : x, y_step ? v_load_as(dtype, py, i) : y));             \
        if (i < n)                                                                                                                       \
            v_store_as_n(dtype, out, i,                                                                                                  \
                         g_##name(x_step ? v_load_as_n(dtype, px, i, n - i) : x, y_step ? v_load_as_n(dtype, py, i, n - i) : y), n - i); \
    }                                                                                                                                    \
    static void binary_##name(int64_t n, const float *x, int x_step, const float *y, int y_step, float *out)                             \
    {                                                                                                                                    \
        loop_##name(TERN_F32, n, x, x_step, y, y_step, out);                                                                             \
    }                                                                                                                                    \
    static void binary_of_##name(enum tern_dtype dtype, int64_t n, const void *x, int x_step, const void *y, int y_step, void *out)      \
    {                                                                                                                                    \
        FOR_DTYPE(dtype, loop_##name, n, x, x_step, y, y_step, out)                                                                      \
    }
BINARY_ROWS(BINARY)

INLINE vf silu_for(const enum tern_dtype dtype, vf x) { return dtype == TERN_F32 ? f_silu(x, x) : h_silu(x, x); }

#endif
