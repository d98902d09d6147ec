/* Sums of products, f32 or those of int8 with their scales and bias, to x * gelu(gate), rounded once. */
#ifndef TERN_BACKENDS_CPU_LEVEL_GEGLU_H
#define TERN_BACKENDS_CPU_LEVEL_GEGLU_H

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "backends/cpu/level/mathfun.h"
#include "backends/cpu/level/sums.h"

struct geglu_sums {
    const int32_t *x, *gate;
    int64_t ld;
    const struct tern_i8_values *x_values, *gate_values; /* of int8 */
    void *y;
    int64_t ldy;
};

INLINE vf gelu_for(const enum tern_dtype dtype, vf x)
{
    return dtype == TERN_F32 ? v_gelu(x) : dtype == TERN_BF16 ? v_gelu_bf16(x) : v_gelu_half(x);
}

/* Columns c .. c + n, of one vector or two whole ones, of all rows. */
INLINE void geglu_columns(const bool bytes, const enum tern_dtype dtype, int64_t rows, int64_t c, int64_t n, const struct geglu_sums *s)
{
    const int vectors = n > VW ? 2 : 1;
    struct sum_columns x[2], gate[2];
    for (int j = 0; bytes && j < vectors; j++) {
        x[j] = sum_columns_at(s->x_values, c + j * VW, n);
        gate[j] = sum_columns_at(s->gate_values, c + j * VW, n);
    }
    for (int64_t r = 0; r < rows; r++) {
        vf y[2];
        for (int j = 0; j < vectors; j++) {
            const int64_t i = r * s->ld + c + j * VW;
            const vf value = lanes_at(s->x, i, n), g = lanes_at(s->gate, i, n);
            y[j] = bytes ? value_of_sum(&x[j], value, s->x_values->factor[r]) *
                               gelu_for(dtype, value_of_sum(&gate[j], g, s->gate_values->factor[r]))
                         : value * gelu_for(dtype, g);
        }
        if (vectors == 2 && stores_two(dtype))
            v_store_two_as(dtype, s->y, r * s->ldy + c, y[0], y[1]);
        else
            for (int j = 0; j < vectors; j++)
                store_value_n(dtype, s->y, r * s->ldy + c + j * VW, n, y[j]);
    }
}

INLINE void geglu_rows(const enum tern_dtype dtype, const bool bytes, int64_t rows, int64_t n, const struct geglu_sums *s)
{
    const struct geglu_sums local = *s; /* that y does not touch */
    int64_t c = 0;
    for (; c + 2 * VW <= n; c += 2 * VW)
        geglu_columns(bytes, dtype, rows, c, 2 * VW, &local);
    for (; c < n; c += VW)
        geglu_columns(bytes, dtype, rows, c, n - c < VW ? n - c : VW, &local);
}

static void geglu_of(enum tern_dtype dtype, const bool bytes, int64_t rows, int64_t n, const struct geglu_sums *s)
{
#if defined(__x86_64__) /* the tail of gelu: a result below the normal numbers takes Intel's processors 150 cycles */
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8000);
#endif
    FOR_DTYPE(dtype, geglu_rows, bytes, rows, n, s)
#if defined(__x86_64__)
    _mm_setcsr(control);
#endif
}

static void i8_geglu(enum tern_dtype dtype, int64_t rows, int64_t n, const int32_t *x, const int32_t *gate, int64_t ld,
                     const struct tern_i8_values *x_values, const struct tern_i8_values *gate_values, void *y, int64_t ldy)
{
    geglu_of(dtype, true, rows, n, &(const struct geglu_sums){x, gate, ld, x_values, gate_values, y, ldy});
}

#if !defined(LEVEL_OVER)
static void geglu(enum tern_dtype dtype, int64_t rows, int64_t n, const float *x, const float *gate, int64_t ld, void *y, int64_t ldy)
{
    geglu_of(dtype, false, rows, n,
             &(const struct geglu_sums){(const int32_t *)(const void *)x, (const int32_t *)(const void *)gate, ld, NULL, NULL, y, ldy});
}
#endif

#endif
