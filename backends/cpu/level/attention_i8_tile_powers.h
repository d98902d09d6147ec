/* Powers of attention in int8 by the tiles of AMX: as few instructions as can be, since vectors wait for tiles. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILE_POWERS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILE_POWERS_H

#include "backends/cpu/level/attention_i8_most.h"

#define LD_BYTES 64 /* from a row of powers to the next */

/* Sums of scores begin with scores_from, the bits of SCORES_ZERO, whose last place counts ones, and are floats from the start. So
 * y = shift - factor x score needs no conversion; shift is rounded once, to 1/128 at most, which is the same for all keys of a block. */
#define SCORES_ZERO 12582912.0f
#define MOST_OF_SHIFT 49152 /* of factor x SCORES_ZERO */
#define MOST_SCORE 12000    /* of factor x score: no y is so far below 2^15 that it has none but bits of BYTES_BASE */

#define SCORES_FROM 0x4b400000
static const int32_t scores_from[LANES]
    __attribute__((aligned(64))) = {SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM,
                                    SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM, SCORES_FROM};

/* 2^-f in 1/256, for f in the middle of a 64th. A power is wrong by 0.9 % at most, 0.35 % in the mean square, before it is cut. */
static const uint8_t tiles_table[64]
    __attribute__((aligned(64))) = {255, 252, 249, 246, 244, 241, 239, 236, 233, 231, 228, 226, 224, 221, 219, 216,
                                    214, 212, 210, 207, 205, 203, 201, 198, 196, 194, 192, 190, 188, 186, 184, 182,
                                    180, 178, 176, 174, 172, 171, 169, 167, 165, 163, 162, 160, 158, 156, 155, 153,
                                    151, 150, 148, 147, 145, 143, 142, 140, 139, 137, 136, 134, 133, 132, 130, 129};

/* Rows of powers of a whole block, one after the other. */
struct i8_rows {
    const float *x, *factor, *shift;
    uint8_t *to;
    __m512i any; /* bits that some y has */
    int row;
};

/* As i8_word_powers. */
INLINE __m512i i8_tile_powers(__m512i x, __m512i y, const uint16_t *part)
{
    const __m512i low = _mm512_set4_epi32(0x0d0c0000, 0x09080000, 0x05040000, 0x01000000);
    const __m512i words = _mm512_mask_shuffle_epi8(x, 0xcccccccccccccccc, y, low);
    const __m512i top = _mm512_maskz_permutexvar_epi8(0xaaaaaaaaaaaaaaaa, _mm512_slli_epi16(words, 6), _mm512_load_si512(tiles_table));
    return _mm512_adds_epu16(_mm512_srlv_epi16(top, _mm512_srli_epi16(words, 8)), _mm512_load_si512(part));
}

INLINE void i8_next_row(struct i8_rows *r)
{
    const __m512 factor = _mm512_set1_ps(r->factor[r->row]), shift = _mm512_set1_ps(r->shift[r->row]);
    const float *x = r->x + r->row * LD_SCORES;
    __m512i y[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
        y[v] = (__m512i)_mm512_fnmadd_ps(_mm512_loadu_ps(x + v * LANES), factor, shift);
    r->any = _mm512_ternarylogic_epi32(r->any, y[0], y[1], 0xfe); /* any | y[0] | y[1] */
    r->any = _mm512_ternarylogic_epi32(r->any, y[2], y[3], 0xfe);
    const __m512i even = i8_tile_powers(y[0], y[2], bytes_parts[r->row % 4]);
    const __m512i odd = i8_tile_powers(y[1], y[3], bytes_parts[r->row % 4 + 1]);
    const __m512i turned = _mm512_set4_epi32(0x0e0f0c0d, 0x0a0b0809, 0x06070405, 0x02030001); /* high bytes in the place of low ones */
    _mm512_storeu_si512(r->to + r->row * LD_BYTES, _mm512_mask_shuffle_epi8(odd, 0x5555555555555555, even, turned));
    r->row++;
}

/* All y were in 2^15 .. 2^15 + 256. */
INLINE bool i8_rows_fit(const struct i8_rows *r)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(r->any, high), _mm512_set1_epi32(BYTES_BASE)) == 0xffff;
}

INLINE void i8_rows_until(struct i8_rows *r, const int row)
{
    while (r->row < row)
        i8_next_row(r);
}

#endif
