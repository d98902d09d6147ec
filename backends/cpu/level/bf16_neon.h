/* Products of bf16 by bfmmla, of int8 by smmla: a sum is 2 rows x 2 columns, two rows of A times two columns of B, 8 bytes of the depth at
 * a time. Included by bf16.h. */
#ifndef TERN_BACKENDS_CPU_LEVEL_BF16_NEON_H
#define TERN_BACKENDS_CPU_LEVEL_BF16_NEON_H

#include "backends/cpu/level/vec.h"

#define BF16_STEP 4
#define BF16_GAIN 4
#define DOT_ROW_STEP 2
#define I8_STEP 4
#define I8_GAIN 8

static void bf16_begin(void) {}
static void bf16_end(void) {}

#define i8_begin bf16_begin
#define i8_end bf16_end

/* Two sums beside each other and two rows of four values are each other's halves. */
INLINE void swap_halves(vf *p, vf *q)
{
    float64x2_t low = (float64x2_t)*p, high = (float64x2_t)*q;
    *p = (vf)vzip1q_f64(low, high);
    *q = (vf)vzip2q_f64(low, high);
}

/* Columns 0 and 1, 2 and 3 of a panel, 8 bytes of the depth: from two rows of words. */
INLINE void columns_at(const uint16_t *b, int64_t width, uint16x8_t y[2])
{
    uint32x4_t first = vreinterpretq_u32_u16(vld1q_u16(b)), second = vreinterpretq_u32_u16(vld1q_u16(b + 2 * width));
    y[0] = vreinterpretq_u16_u32(vzip1q_u32(first, second));
    y[1] = vreinterpretq_u16_u32(vzip2q_u32(first, second));
}

INLINE uint16x8_t rows_at(const uint16_t *a, int64_t lda) { return vcombine_u16(vld1_u16(a), vld1_u16(a + lda)); }

INLINE vf dot_add(const bool bytes, vf sum, uint16x8_t x, uint16x8_t y)
{
    return bytes ? (vf)vmmlaq_s32((int32x4_t)sum, vreinterpretq_s8_u16(x), vreinterpretq_s8_u16(y))
                 : (vf)vbfmmlaq_f32((float32x4_t)sum, vreinterpretq_bf16_u16(x), vreinterpretq_bf16_u16(y));
}

/* Rows first .. first + rows (even) of a half. rows and quads (of columns) are constants wherever this is inlined, so that acc lives in
 * registers; col: of the panel. */
INLINE void dot_tile(const bool bytes, const int rows, const int quads, const struct tern_dot_block *d, int half, int first, int col)
{
    const int64_t width = d->half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR, ldc = d->ldc;
    float *c = (float *)d->c + (half * 16 + first) * ldc + col;
    const float *start = d->accumulate ? c : d->start ? (const float *)d->start + col : NULL;
    const int64_t start_ld = d->accumulate ? ldc : 0;
    vf acc[4][8];
#pragma GCC unroll 4
    for (int i = 0; i < rows / 2; i++)
#pragma GCC unroll 4
        for (int j = 0; j < quads; j++) {
            acc[i][2 * j] = start ? v_load(start + 2 * i * start_ld + 4 * j) : v_set(0);
            acc[i][2 * j + 1] = start ? v_load(start + (2 * i + 1) * start_ld + 4 * j) : v_set(0);
            swap_halves(&acc[i][2 * j], &acc[i][2 * j + 1]);
        }
    for (int p = 0; p < d->n; p++) {
        const int64_t ld = d->pieces[p].ld;
        const uint16_t *a = d->pieces[p].a[half] + first * ld, *b = d->panel + d->pieces[p].k0 * width + 2 * col;
        for (int64_t t = 0; t < d->pieces[p].depth; t += BF16_STEP) {
            uint16x8_t y[8];
#pragma GCC unroll 4
            for (int j = 0; j < quads; j++)
                columns_at(b + t * width + 8 * j, width, y + 2 * j);
#pragma GCC unroll 4
            for (int i = 0; i < rows / 2; i++) {
                uint16x8_t x = rows_at(a + 2 * i * ld + t, ld);
#pragma GCC unroll 8
                for (int j = 0; j < 2 * quads; j++)
                    acc[i][j] = dot_add(bytes, acc[i][j], x, y[j]);
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows / 2; i++)
#pragma GCC unroll 4
        for (int j = 0; j < quads; j++) {
            swap_halves(&acc[i][2 * j], &acc[i][2 * j + 1]);
            v_store(c + 2 * i * ldc + 4 * j, acc[i][2 * j]);
            v_store(c + (2 * i + 1) * ldc + 4 * j, acc[i][2 * j + 1]);
        }
}

/* Tiles of 8 rows x 8 columns: 16 sums, 4 of B, 1 of A; few rows take more columns, so that enough sums are in flight. Strips of columns
 * come first: of B, such a strip stays in L1 for all rows. Of an odd number of rows the last has a neighbour that means nothing. */
INLINE void dot_block(const bool bytes, const struct tern_dot_block *d)
{
    const int width = d->half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR;
#define HEIGHT(height, quads)                                  \
    for (; left > height - 2; left -= height, first += height) \
        for (int q = 0; q < 16; q += 4 * quads)                \
            dot_tile(bytes, height, quads, d, half, first, col + q);
    for (int col = 0; col < width; col += 16)
        for (int half = 0; half * 16 < d->rows; half++) {
            int first = 0, left = d->rows - half * 16 < 16 ? d->rows - half * 16 : 16;
            HEIGHT(8, 2)
            HEIGHT(4, 4)
            HEIGHT(2, 4)
        }
#undef HEIGHT
}

#endif
