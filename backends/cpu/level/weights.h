/* Weights that are kept in 8 or 4 bits, expanded to what the products read. A panel: rows of `width` bytes, one for each of 8 bits, one for
 * two of 4 (the first in the low halves, all + 8); then the scales of its columns, in f32 for all rows or in bf16 for each 32. */
#ifndef TERN_BACKENDS_CPU_LEVEL_WEIGHTS_H
#define TERN_BACKENDS_CPU_LEVEL_WEIGHTS_H

#include "backends/cpu/level/convert.h"

#define WEIGHT_GROUP 32

/* VW bytes as words. */
#if defined(TERN_LEVEL_512)
INLINE vi bytes_at(const void *p) { return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128(p)); }
INLINE vi halves_at(const void *p) { return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128(p)); }
#elif defined(TERN_LEVEL_256)
INLINE vi bytes_at(const void *p) { return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(p)); }
INLINE vi halves_at(const void *p) { return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64(p)); }
#else
typedef int8_t vsb __attribute__((vector_size(VW)));
typedef uint8_t vub __attribute__((vector_size(VW)));
INLINE vi bytes_at(const void *p)
{
    vsb b;
    memcpy(&b, p, sizeof(b));
    return __builtin_convertvector(b, vi);
}
INLINE vi halves_at(const void *p)
{
    vub b;
    memcpy(&b, p, sizeof(b));
    return __builtin_convertvector(b, vi);
}
#endif

/* Columns j .. j + VW of a row, times their scales. bits is a constant wherever this is inlined. */
INLINE vf weights_at(const int bits, const uint8_t *values, int64_t width, int64_t row, int64_t j, vf scale)
{
    if (bits == 8)
        return __builtin_convertvector(bytes_at(values + row * width + j), vf) * scale;
    const vi x = halves_at(values + row / 2 * width + j);
    return __builtin_convertvector((row % 2 ? x >> 4 : x & 15) - 8, vf) * scale;
}

INLINE vf scales_at(const int bits, const void *scales, int64_t width, int64_t row, int64_t j)
{
    return bits == 8 ? v_load((const float *)scales + j) : v_from_bf16((const uint16_t *)scales + row / WEIGHT_GROUP * width + j);
}

/* The row behind those of `row` that have its scales. */
INLINE int64_t group_end(int64_t row, int64_t end)
{
    const int64_t next = (row / WEIGHT_GROUP + 1) * WEIGHT_GROUP;
    return next < end ? next : end;
}

INLINE void expand_to_f32(const int bits, const void *values, const void *scales, int64_t width, int64_t row0, int64_t rows, float *y)
{
    for (int64_t j = 0; j < width; j += VW)
        for (int64_t row = row0, end; row < row0 + rows; row = end) {
            const vf scale = scales_at(bits, scales, width, row, j);
            end = group_end(row, row0 + rows);
            for (int64_t i = row; i < end; i++)
                v_store(y + (i - row0) * width + j, weights_at(bits, values, width, i, j, scale));
        }
}

static void expand_f32(int bits, const void *values, const void *scales, int64_t width, int64_t row0, int64_t rows, float *y)
{
    if (bits == 8)
        expand_to_f32(8, values, scales, width, row0, rows, y);
    else
        expand_to_f32(4, values, scales, width, row0, rows, y);
}

#if defined(TERN_LEVEL_BF16)
/* bf16 of a and of b by turns. */
#if defined(TERN_LEVEL_512)
INLINE vu bf16_pairs(vf a, vf b)
{
    const __m512i turns = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3,
                                           18, 2, 17, 1, 16, 0);
    return (vu)_mm512_permutexvar_epi16(turns, (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a));
}
#else
INLINE vu bf16_pairs(vf a, vf b) { return __builtin_convertvector(to_bf16(a), vu) | __builtin_convertvector(to_bf16(b), vu) << 16; }
#endif

INLINE void expand_to_bf16(const int bits, const void *values, const void *scales, int64_t width, int64_t row0, int64_t rows, uint16_t *y)
{
    for (int64_t j = 0; j < width; j += VW)
        for (int64_t row = row0, end; row < row0 + rows; row = end) {
            const vf scale = scales_at(bits, scales, width, row, j);
            end = group_end(row, row0 + rows);
            for (int64_t i = row; i < end; i += 2) {
                const vu pairs = bf16_pairs(weights_at(bits, values, width, i, j, scale), weights_at(bits, values, width, i + 1, j, scale));
                memcpy(y + (i - row0) * width + j * 2, &pairs, sizeof(pairs));
            }
        }
}

static void expand_bf16(int bits, const void *values, const void *scales, int64_t width, int64_t row0, int64_t rows, uint16_t *y)
{
    if (bits == 8)
        expand_to_bf16(8, values, scales, width, row0, rows, y);
    else
        expand_to_bf16(4, values, scales, width, row0, rows, y);
}
#endif

#endif
