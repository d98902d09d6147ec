/* Products of words by instructions that multiply a vector of B, a word for each column, with one word of A: vdpbf16ps and vpdpbusd.
 * Included by bf16.h. */
#ifndef TERN_BACKENDS_CPU_LEVEL_DOT_ROWS_H
#define TERN_BACKENDS_CPU_LEVEL_DOT_ROWS_H

#include "backends/cpu/level/vec.h"

#define I8_STEP 2
#define I8_GAIN 4

static void i8_begin(void) {}
static void i8_end(void) {}

/* DOT_ROWS: rows whose sums, two vectors each, are in registers at most. */
#if defined(TERN_LEVEL_512)
#define DOT_ROWS 11
typedef __m512i vd;
INLINE vd vd_load(const void *p) { return _mm512_loadu_si512(p); }
INLINE void vd_store(void *p, vd v) { _mm512_storeu_si512(p, v); }
INLINE vd vd_zero(void) { return _mm512_setzero_si512(); }
INLINE vd vd_word(int32_t word) { return _mm512_set1_epi32(word); }

INLINE vd vd_multiply_add(const bool bytes, vd sum, vd x, vd y)
{
#if defined(TERN_LEVEL_BF16)
    if (!bytes)
        return (__m512i)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)y);
#endif
    return _mm512_dpbusd_epi32(sum, x, y);
}
#else
#define DOT_ROWS 6
typedef __m256i vd;
INLINE vd vd_load(const void *p) { return _mm256_loadu_si256(p); }
INLINE void vd_store(void *p, vd v) { _mm256_storeu_si256(p, v); }
INLINE vd vd_zero(void) { return _mm256_setzero_si256(); }
INLINE vd vd_word(int32_t word) { return _mm256_set1_epi32(word); }

INLINE vd vd_multiply_add(const bool bytes, vd sum, vd x, vd y)
{
#if defined(TERN_EMULATE_TILES)
    /* Unsigned bytes of x times signed ones of y: even ones and odd ones in 16 bits, two products to a sum. */
    const __m256i low = _mm256_set1_epi16(255);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, low), _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8)),
                  odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(y, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
#else
    return _mm256_dpbusd_avx_epi32(sum, x, y);
#endif
}
#endif

/* Columns col .. col + 2 vectors of a panel, or one where it is no wider; rows first .. first + rows of a half. rows and nv (vectors of
 * columns) are constants wherever this is inlined, so that acc lives in registers. A part of the panel `next` is fetched meanwhile: as much
 * as a quarter of it takes, so that four such calls make a block of 32 rows where a call has all columns. */
INLINE void dot_rows(const bool bytes, const int rows, const int nv, int half, int first, int n, const struct tern_dot_piece *pieces,
                     const uint16_t *panel, int64_t width, int64_t col, const uint16_t *next, int32_t *c, int64_t ldc, bool accumulate)
{
    vd acc[DOT_ROWS][2];
#pragma GCC unroll 11
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            acc[i][j] = accumulate ? vd_load(c + i * ldc + j * VW) : vd_zero();
    for (int p = 0; p < n; p++) {
        const uint16_t *a = pieces[p].a[half] + first * pieces[p].ld, *b = panel + pieces[p].k0 * width + 2 * col;
        const uint16_t *ahead = next + (pieces[p].k0 + pieces[p].depth * (half * 2 + (first > 0)) / 4) * width;
        for (int64_t t = 0; t < pieces[p].depth; t += 2) {
            vd y[2];
            __builtin_prefetch(ahead + t * width / 4, 0, 2);
#pragma GCC unroll 2
            for (int j = 0; j < nv; j++)
                y[j] = vd_load(b + t * width + j * 2 * VW);
#pragma GCC unroll 11
            for (int i = 0; i < rows; i++) {
                int32_t word;
                memcpy(&word, a + i * pieces[p].ld + t, sizeof(word));
                const vd x = vd_word(word);
#pragma GCC unroll 2
                for (int j = 0; j < nv; j++)
                    acc[i][j] = vd_multiply_add(bytes, acc[i][j], x, y[j]);
            }
        }
    }
#pragma GCC unroll 11
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            vd_store(c + i * ldc + j * VW, acc[i][j]);
}

/* Halves are tiles of nearly equal rows, as few as registers allow: the fewer sums a tile has, the longer each waits for itself. */
INLINE int dot_height(int left)
{
    const int tiles = (left + DOT_ROWS - 1) / DOT_ROWS;
    return (left + tiles - 1) / tiles;
}

INLINE void dot_block(const bool bytes, int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next,
                      bool half_panel, void *sums, int64_t ldc, bool accumulate)
{
    const int width = half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR;
#define HEIGHT(height)                                                                                       \
    case height:                                                                                             \
        if (width < 2 * VW)                                                                                  \
            dot_rows(bytes, height, 1, half, first, n, pieces, panel, width, col, next, c, ldc, accumulate); \
        else                                                                                                 \
            dot_rows(bytes, height, 2, half, first, n, pieces, panel, width, col, next, c, ldc, accumulate); \
        break;
    for (int col = 0; col < width; col += 2 * VW)
        for (int half = 0; half * 16 < rows; half++) {
            const int there = rows - half * 16 < 16 ? rows - half * 16 : 16;
            for (int first = 0, height; first < there; first += height) {
                int32_t *c = (int32_t *)sums + (half * 16 + first) * ldc + col;
                height = dot_height(there - first);
                switch (height) {
                    HEIGHT(1)
                    HEIGHT(2)
                    HEIGHT(3)
                    HEIGHT(4)
                    HEIGHT(5)
                    HEIGHT(6)
#if DOT_ROWS > 6
                    HEIGHT(7)
                    HEIGHT(8)
                    HEIGHT(9)
                    HEIGHT(10)
                    HEIGHT(11)
#endif
                }
            }
        }
#undef HEIGHT
}

#if defined(TERN_LEVEL_BF16)
#define BF16_STEP 2
#define BF16_GAIN 2

static void bf16_begin(void) {}
static void bf16_end(void) {}
#endif

#endif
