/* Products of f32 by the tiles of bf16 [Henry, Tang and Heinecke 2019]. A value is the sum of three of bf16, of 8 bits each: its upper
 * half, that of what is left, and the rest. Of the products of such pieces those are left out that lie below the last bit of an f32. */
#ifndef TERN_BACKENDS_CPU_LEVEL_BF16X3_H
#define TERN_BACKENDS_CPU_LEVEL_BF16X3_H

#include "backends/cpu/level/bf16.h"
#include "backends/cpu/level/convert.h"

#if defined(TERN_LEVEL_amx)
#define LEVEL_BF16X3

/* Rows i and i + 16 of a step of the depth are a word: then both come from vectors that lie behind each other, and nothing is permuted. */
#define X3_STEP 32

/* The upper halves of the values of x, beside those of y. */
INLINE __m512i x3_words(__m512 x, __m512 y)
{
    /* Where the mask has ones, y, else x. */
    return _mm512_ternarylogic_epi32(_mm512_set1_epi32((int)0xffff0000), (__m512i)y, _mm512_srli_epi32((__m512i)x, 16), 0xca);
}
INLINE __m512 x3_upper(__m512 x) { return (__m512)_mm512_and_epi32((__m512i)x, _mm512_set1_epi32((int)0xffff0000)); }

/* What the upper half leaves: of infinity nothing, so that it stays what it is. */
INLINE __m512 x3_rest(__m512 x) { return _mm512_range_ps(_mm512_sub_ps(x, x3_upper(x)), _mm512_setzero_ps(), 7); }

/* The same of a factor of it: no piece of what is not zero is zero, for infinity times zero would be no number. */
INLINE __m512 x3_rest_of_b(__m512 x, __m512 whole)
{
    return _mm512_fmadd_ps(whole, _mm512_set1_ps(0x1p-40f), _mm512_sub_ps(x, x3_upper(x)));
}

/* No number may have all that says so in the lower half: the upper one alone would be infinity. */
INLINE __m512 x3_quiet(__m512 x)
{
    return (__m512)_mm512_mask_or_epi32((__m512i)x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), (__m512i)x, _mm512_set1_epi32(0x00400000));
}

/* Two vectors, as words of the three pieces; y: `plane` values between them. */
INLINE void x3_split(__m512 a, __m512 b, uint16_t *y, int64_t plane)
{
    a = x3_quiet(a);
    b = x3_quiet(b);
    _mm512_storeu_si512(y, x3_words(a, b));
    a = x3_rest(a);
    b = x3_rest(b);
    _mm512_storeu_si512(y + plane, x3_words(a, b));
    a = _mm512_sub_ps(a, x3_upper(a));
    b = _mm512_sub_ps(b, x3_upper(b));
    _mm512_storeu_si512(y + 2 * plane, x3_words(a, b));
}

static void x3_split_rows(int64_t rows, int64_t n, const float *x, int64_t ldx, uint16_t *y, int64_t ldy, int64_t plane)
{
    for (int64_t i = 0; i < rows; i++, x += ldx, y += ldy) {
        int64_t j = 0;
        for (; j + X3_STEP <= n; j += X3_STEP)
            x3_split(_mm512_loadu_ps(x + j), _mm512_loadu_ps(x + j + 16), y + j, plane);
        if (j < n) {
            const uint32_t left = ~0u >> (X3_STEP - (n - j));
            x3_split(_mm512_maskz_loadu_ps((__mmask16)left, x + j), _mm512_maskz_loadu_ps((__mmask16)(left >> 16), x + j + 16), y + j,
                     plane);
        }
    }
}

/* Columns j .. j + 16 of row i of a panel; zeros behind the last row. */
INLINE __m512 x3_column(enum tern_dtype dtype, int64_t rows, int64_t width, const void *b, int64_t i, int64_t j)
{
    const int64_t at = i * width + j;
    if (i >= rows)
        return _mm512_setzero_ps();
    if (dtype == TERN_F32)
        return _mm512_loadu_ps((const float *)b + at);
    return dtype == TERN_F16 ? (__m512)v_from_f16((const uint16_t *)b + at) : (__m512)v_from_bf16((const uint16_t *)b + at);
}

INLINE void x3_panel(const enum tern_dtype dtype, int64_t rows, int64_t width, const void *b, uint16_t *y, int64_t plane)
{
    for (int64_t k = 0; k < rows; k += X3_STEP, y += X3_STEP * width)
        for (int64_t i = 0; i < 16; i++)
            for (int64_t j = 0; j < width; j += 16) {
                const __m512 v = x3_column(dtype, rows, width, b, k + i, j), w = x3_column(dtype, rows, width, b, k + i + 16, j);
                uint16_t *to = y + (i * width + j) * 2;
                _mm512_storeu_si512(to, x3_words(v, w));
                if (dtype == TERN_BF16)
                    continue;
                const __m512 v1 = x3_rest_of_b(v, v), w1 = x3_rest_of_b(w, w);
                _mm512_storeu_si512(to + plane, x3_words(v1, w1));
                if (dtype == TERN_F32)
                    _mm512_storeu_si512(to + 2 * plane, x3_words(x3_rest_of_b(v1, v), x3_rest_of_b(w1, w)));
            }
}

static void x3_split_panel(enum tern_dtype dtype, int64_t rows, int64_t width, const void *b, uint16_t *y, int64_t plane)
{
    if (dtype == TERN_F32)
        x3_panel(TERN_F32, rows, width, b, y, plane);
    else if (dtype == TERN_F16)
        x3_panel(TERN_F16, rows, width, b, y, plane);
    else
        x3_panel(TERN_BF16, rows, width, b, y, plane);
}

#define X3_LOAD_A(p)                                    \
    do {                                                \
        _tile_loadd(4, a + (p)*d->a_plane, a_row);      \
        if (high)                                       \
            _tile_loadd(5, a1 + (p)*d->a_plane, a_row); \
    } while (0)
#define X3_LOAD_B(p)                                               \
    do {                                                           \
        _tile_stream_loadd(6, b + (p)*d->b_plane, b_row);          \
        if (wide)                                                  \
            _tile_stream_loadd(7, b + (p)*d->b_plane + 32, b_row); \
    } while (0)
#define X3_MULTIPLY()                \
    do {                             \
        _tile_dpbf16ps(0, 4, 6);     \
        if (wide)                    \
            _tile_dpbf16ps(1, 4, 7); \
        if (high)                    \
            _tile_dpbf16ps(2, 5, 6); \
        if (high && wide)            \
            _tile_dpbf16ps(3, 5, 7); \
    } while (0)

/* The pieces of a step: the large products, or the others. to: where sums will be. */
INLINE void x3_products(const bool large, const bool high, const bool wide, const int planes, const struct tern_dot_block *d, float *to,
                        int64_t to_row)
{
    const int64_t b_row = wide ? 128 : 64;
    const int stores = large ? STORE_STEPS : STORE_STEPS / 5; /* the small ones are five products of 16 bits a step */
    int steps = 0;
    for (int p = 0; p < d->n; p++) {
        const struct tern_dot_piece *piece = &d->pieces[p];
        const uint16_t *a = piece->a[0], *a1 = piece->a[1], *b = d->panel + piece->k0 * (b_row / 4);
        const int64_t a_row = piece->ld * 2;
        for (int64_t i = 0; i < piece->depth; i += X3_STEP, a += X3_STEP, a1 += X3_STEP, b += b_row * (X3_STEP / 4)) {
            X3_LOAD_B(0);
            if (++steps % stores == 0)
                _tile_stored(6, to, to_row);
            if (large) {
                X3_LOAD_A(0);
                X3_MULTIPLY();
                continue;
            }
            X3_LOAD_A(2);
            X3_MULTIPLY();
            X3_LOAD_A(1);
            X3_MULTIPLY();
            if (planes > 1) {
                X3_LOAD_B(1);
                X3_MULTIPLY();
                X3_LOAD_A(0);
                X3_MULTIPLY();
            }
            if (planes > 2) {
                X3_LOAD_B(2);
                X3_MULTIPLY();
            }
        }
    }
}

/* The small products are summed before the large ones, and a part of the depth before it is added to C: so the rounding of a sum counts
 * no more often than in f32. */
INLINE void x3_tiles(const bool high, const bool wide, const int planes, const struct tern_dot_block *d)
{
    float sums[TERN_DOT_ROWS][TERN_DOT_NR] __attribute__((aligned(64)));
    const int64_t ldc = d->ldc, start_ld = d->accumulate ? ldc : 0;
    float *c = d->c;
    const float *start = d->accumulate ? c : d->start;
    float *to = start ? sums[0] : c;
    const int64_t to_ld = start ? TERN_DOT_NR : ldc, to_row = to_ld * 4;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    x3_products(false, high, wide, planes, d, to, to_row);
    x3_products(true, high, wide, planes, d, to, to_row);
    _tile_stored(0, to, to_row);
    if (wide)
        _tile_stored(1, to + 16, to_row);
    if (high)
        _tile_stored(2, to + 16 * to_ld, to_row);
    if (high && wide)
        _tile_stored(3, to + 16 * to_ld + 16, to_row);
    for (int64_t i = 0; start && i < d->rows; i++)
        for (int64_t j = 0; j < (wide ? 32 : 16); j += 16)
            _mm512_storeu_ps(c + i * ldc + j, _mm512_add_ps(_mm512_loadu_ps(start + i * start_ld + j), _mm512_loadu_ps(sums[i] + j)));
}

#define X3_PLANES(high, wide)           \
    do {                                \
        if (d->planes == 1)             \
            x3_tiles(high, wide, 1, d); \
        else if (d->planes == 2)        \
            x3_tiles(high, wide, 2, d); \
        else                            \
            x3_tiles(high, wide, 3, d); \
    } while (0)

static void x3_block(const struct tern_dot_block *d)
{
    if (d->rows > 16 && !d->half_panel)
        X3_PLANES(true, true);
    else if (d->rows > 16)
        X3_PLANES(true, false);
    else if (!d->half_panel)
        X3_PLANES(false, true);
    else
        X3_PLANES(false, false);
}
#endif
#endif
