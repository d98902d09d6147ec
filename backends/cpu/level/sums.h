/* Sums of products to values: those of int8 with their scales and bias, those of f32 as they are; what is added to them; one rounding. */
#ifndef TERN_BACKENDS_CPU_LEVEL_SUMS_H
#define TERN_BACKENDS_CPU_LEVEL_SUMS_H

#include "backends/cpu/level/bf16.h"
#include "backends/cpu/level/convert.h"

/* A result in bf16, where there are instructions for it: they take denormals for zero, as the products do. */
INLINE void store_value(const enum tern_dtype dtype, void *y, int64_t i, vf v)
{
#if defined(TERN_LEVEL_512) && defined(TERN_LEVEL_BF16)
    if (dtype == TERN_BF16) {
        __m256bh h = _mm512_cvtneps_pbh((__m512)v);
        memcpy((uint16_t *)y + i, &h, sizeof(h));
        return;
    }
#elif defined(TERN_LEVEL_neonbf16)
    if (dtype == TERN_BF16) {
        bfloat16x4_t h = vcvt_bf16_f32((float32x4_t)v);
        memcpy((uint16_t *)y + i, &h, sizeof(h));
        return;
    }
#endif
    v_store_as(dtype, y, i, v);
}

/* The first n of them. */
INLINE void store_value_n(const enum tern_dtype dtype, void *y, int64_t i, int64_t n, vf v)
{
    if (n >= VW)
        store_value(dtype, y, i, v);
    else if (dtype == TERN_F32)
        v_store_n((float *)y + i, v, n);
    else {
        uint16_t whole[VW];
        store_value(dtype, whole, 0, v);
        memcpy((uint16_t *)y + i, whole, (size_t)n * sizeof(*whole));
    }
}

/* Values i .. i + n of a vector's width, of an array of f32 or of words. */
INLINE vf lanes_at(const void *p, int64_t i, int64_t n)
{
    return n < VW ? v_load_n((const float *)p + i, n) : v_load((const float *)p + i);
}

/* What makes values of sums of int8 in a vector of columns. */
struct sum_columns {
    vi offset;
    vf scale, bias;
};

INLINE struct sum_columns sum_columns_at(const struct tern_i8_values *s, int64_t i, int64_t n)
{
    return (struct sum_columns){I8_ZERO ? (vi)lanes_at(s->offset, i, n) : (vi){0}, lanes_at(s->scale, i, n),
                                s->bias ? lanes_at(s->bias, i, n) : v_set(0)};
}

INLINE vf value_of_sum(const struct sum_columns *c, vf sum, float factor)
{
    return v_fma(__builtin_convertvector(I8_ZERO ? (vi)sum - c->offset : (vi)sum, vf), c->scale * factor, c->bias);
}

/* Columns c .. c + n, of one vector or two whole ones, of all rows: what columns have in common stays in registers. bytes: x are sums of
 * int8, else values. more: its dtype, or TERN_I32 where there is none. */
INLINE void columns_of_sums(const bool bytes, const enum tern_dtype dtype, const enum tern_dtype more, int64_t rows, int64_t c, int64_t n,
                            const int32_t *x, int64_t ldx, const struct tern_i8_values *s, void *y, int64_t ldy)
{
    const int vectors = n > VW ? 2 : 1;
    struct sum_columns of[2];
    for (int j = 0; bytes && j < vectors; j++)
        of[j] = sum_columns_at(s, c + j * VW, n);
    for (int64_t r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) {
            const int64_t i = c + j * VW;
            vf v = lanes_at(x + r * ldx, i, n);
            if (bytes)
                v = value_of_sum(&of[j], v, s->factor[r]);
            if (more != TERN_I32)
                v += n < VW ? v_load_as_n(more, s->more[r], i, n) : v_load_as(more, s->more[r], i);
            store_value_n(dtype, y, r * ldy + i, n, v);
        }
}

INLINE void sum_rows(const bool bytes, const enum tern_dtype dtype, const enum tern_dtype more, int64_t rows, int64_t n, const int32_t *x,
                     int64_t ldx, const struct tern_i8_values *s, void *y, int64_t ldy)
{
    const struct tern_i8_values local = *s; /* that y does not touch */
    int64_t c = 0;
    for (; c + 2 * VW <= n; c += 2 * VW)
        columns_of_sums(bytes, dtype, more, rows, c, 2 * VW, x, ldx, &local, y, ldy);
    for (; c + VW <= n; c += VW)
        columns_of_sums(bytes, dtype, more, rows, c, VW, x, ldx, &local, y, ldy);
    if (c < n)
        columns_of_sums(bytes, dtype, more, rows, c, n - c, x, ldx, &local, y, ldy);
}

INLINE void sums_of(const enum tern_dtype dtype, const bool bytes, int64_t rows, int64_t n, const int32_t *x, int64_t ldx,
                    const struct tern_i8_values *s, void *y, int64_t ldy)
{
    if (!s->more)
        sum_rows(bytes, dtype, TERN_I32, rows, n, x, ldx, s, y, ldy);
    else if (s->more_dtype == TERN_F32)
        sum_rows(bytes, dtype, TERN_F32, rows, n, x, ldx, s, y, ldy);
    else if (s->more_dtype == TERN_F16)
        sum_rows(bytes, dtype, TERN_F16, rows, n, x, ldx, s, y, ldy);
    else
        sum_rows(bytes, dtype, TERN_BF16, rows, n, x, ldx, s, y, ldy);
}

static void i8_scale(enum tern_dtype dtype, int64_t rows, int64_t n, const int32_t *x, int64_t ldx, const struct tern_i8_values *s, void *y,
                     int64_t ldy)
{
    FOR_DTYPE(dtype, sums_of, true, rows, n, x, ldx, s, y, ldy)
}

#if !defined(LEVEL_OVER)
static void store_rows(enum tern_dtype dtype, int64_t rows, int64_t n, const float *x, int64_t ldx, const void *const *more,
                       enum tern_dtype more_dtype, void *y, int64_t ldy)
{
    const struct tern_i8_values s = {.more = more, .more_dtype = more_dtype};
    FOR_DTYPE(dtype, sums_of, false, rows, n, (const int32_t *)(const void *)x, ldx, &s, y, ldy)
}
#endif

#endif
