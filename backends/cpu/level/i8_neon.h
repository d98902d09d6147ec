/* Products of int8 by sdot: four columns of a row of words, each times a word of A, to one sum a column. Included by i8.h. */
#ifndef TERN_BACKENDS_CPU_LEVEL_I8_NEON_H
#define TERN_BACKENDS_CPU_LEVEL_I8_NEON_H

#include "backends/cpu/level/vec.h"

#define I8_STEP 8 /* four words: a vector of A's bytes */
#define I8_GAIN 4

static void i8_begin(void) {}
static void i8_end(void) {}

/* Which of the four words is part of the instruction. */
#define I8_WORD(word)                                                                   \
    do {                                                                                \
        int8x16_t y[4];                                                                 \
        for (int j = 0; j < quads; j++)                                                 \
            y[j] = vreinterpretq_s8_u16(vld1q_u16(b + (t + 2 * word) * width + 8 * j)); \
        for (int i = 0; i < rows; i++)                                                  \
            for (int j = 0; j < quads; j++)                                             \
                acc[i][j] = vdotq_laneq_s32(acc[i][j], y[j], x[i], word);               \
    } while (0)

/* Rows first .. first + rows of a half. rows and quads (of columns) are constants wherever this is inlined, so that acc lives in registers;
 * col: of the panel. */
INLINE void i8_tile(const int rows, const int quads, const struct tern_dot_block *d, int half, int first, int col)
{
    const int64_t width = d->half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR, ldc = d->ldc;
    int32_t *c = (int32_t *)d->c + (half * 16 + first) * ldc + col;
    const int32_t *start = d->start;
    int32x4_t acc[8][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < quads; j++)
            acc[i][j] = d->accumulate ? vld1q_s32(c + i * ldc + 4 * j) : start ? vld1q_s32(start + col + 4 * j) : vdupq_n_s32(0);
    for (int p = 0; p < d->n; p++) {
        const int64_t ld = d->pieces[p].ld;
        const uint16_t *a = d->pieces[p].a[half] + first * ld, *b = d->panel + d->pieces[p].k0 * width + 2 * col;
        for (int64_t t = 0; t < d->pieces[p].depth; t += I8_STEP) {
            int8x16_t x[8];
            for (int i = 0; i < rows; i++)
                x[i] = vreinterpretq_s8_u16(vld1q_u16(a + i * ld + t));
            I8_WORD(0);
            I8_WORD(1);
            I8_WORD(2);
            I8_WORD(3);
        }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < quads; j++)
            vst1q_s32(c + i * ldc + 4 * j, acc[i][j]);
}
#undef I8_WORD

/* Tiles of 8 rows x 8 columns: 16 sums, 8 of A, 2 of B; few rows take more columns, so that enough sums are in flight. */
static void i8_block(const struct tern_dot_block *d)
{
    const int width = d->half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR;
#define HEIGHT(height, quads)                               \
    for (; left >= height; left -= height, first += height) \
        for (int q = 0; q < 16; q += 4 * quads)             \
            i8_tile(height, quads, d, half, first, col + q);
    for (int col = 0; col < width; col += 16)
        for (int half = 0; half * 16 < d->rows; half++) {
            int first = 0, left = d->rows - half * 16 < 16 ? d->rows - half * 16 : 16;
            HEIGHT(8, 2)
            HEIGHT(4, 4)
            HEIGHT(2, 4)
            HEIGHT(1, 4)
        }
#undef HEIGHT
}

#endif
