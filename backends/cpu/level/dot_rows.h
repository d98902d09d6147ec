/* Products of words by instructions that multiply a vector of B, a word for each column, with one word of A: vdpbf16ps and vpdpbusd.
 * Included by bf16.h. */
#ifndef TERN_BACKENDS_CPU_LEVEL_DOT_ROWS_H
#define TERN_BACKENDS_CPU_LEVEL_DOT_ROWS_H

#include "backends/cpu/level/vec.h"

#define I8_STEP 2
#define I8_GAIN 4
#define I8_ZERO 128  /* vpdpbusd takes A unsigned */
#define DOT_FAR 4096 /* values of a panel that are on their way from L2 */

#define DOT_ROW_STEP 1
#define DOT_BLOCK (TERN_DOT_ROWS / DOT_ROWS * DOT_ROWS) /* whole tiles */

static void i8_begin(void) {}
static void i8_end(void) {}

/* DOT_ROWS: rows whose sums, two vectors each, are in registers at most. */
#if defined(TERN_LEVEL_512)
#define DOT_ROWS 14
#define DOT_TILE DOT_ROWS
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

/* What a call makes of a block: rows first .. of those that begin with row `half` x 16, columns col .. col + 2 vectors of the panel, or one
 * where it is no wider. Of `calls` in all it is number `call`, and fetches that part of the next panel. */
struct dot_part {
    int half, first, col, width, call, calls;
};

#if defined(TERN_LEVEL_512)
#define DOT_SHARE 3 /* rows that share a register for their address, by what an address can scale */
#else
#define DOT_SHARE 1
#endif

/* stream, rows and nv (vectors of columns) are constants wherever this is inlined, so that acc lives in registers. What is fetched goes to
 * L1: by way of L2 alone it came later (Zen 5, weights in memory: 1.13 to 1.33 of the time of those in L2, in place of 1.08 to 1.15). */
INLINE void dot_rows(const bool bytes, const bool stream, const int rows, const int nv, const struct tern_dot_block *d,
                     const struct dot_part *part)
{
    const int64_t ldc = d->ldc, width = part->width, step = 2 * width / part->calls;
    int32_t *c = (int32_t *)d->c + (part->half * 16 + part->first) * ldc + part->col;
    const int32_t *start = d->accumulate ? c : d->start ? (const int32_t *)d->start + part->col : NULL;
    const int64_t start_ld = d->accumulate ? ldc : 0;
    vd acc[DOT_ROWS][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            acc[i][j] = start ? vd_load(start + i * start_ld + j * VW) : vd_zero();
    for (int p = 0; p < d->n; p++) {
        const struct tern_dot_piece *piece = &d->pieces[p];
        const int64_t ld = piece->ld, depth = piece->depth;
        const char *row[DOT_ROWS]; /* every DOT_SHARE-th one, at the current depth */
        const uint16_t *b = d->panel + piece->k0 * width + 2 * part->col;
        const uint16_t *ahead = d->next + (piece->k0 + depth * part->call / part->calls) * width;
#pragma GCC unroll 14
        for (int i = 0; i < rows; i += DOT_SHARE)
            row[i] = (const char *)(piece->a[part->half] + (part->first + i) * ld);
        for (int64_t t = 0; t < depth; t += 2, ahead += step) {
            vd y[2];
            if (stream) {
                __builtin_prefetch(b + t * width + DOT_FAR);
                __builtin_prefetch(b + t * width + DOT_FAR + 32);
            } else {
                __builtin_prefetch(ahead);
            }
#pragma GCC unroll 2
            for (int j = 0; j < nv; j++)
                y[j] = vd_load(b + t * width + j * 2 * VW);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
                int32_t word;
                memcpy(&word, row[i / DOT_SHARE * DOT_SHARE] + i % DOT_SHARE * ld * 2, sizeof(word));
                const vd x = vd_word(word);
#pragma GCC unroll 2
                for (int j = 0; j < nv; j++)
                    acc[i][j] = vd_multiply_add(bytes, acc[i][j], x, y[j]);
            }
#pragma GCC unroll 14
            for (int i = 0; i < rows; i += DOT_SHARE) {
                row[i] += sizeof(int32_t);
                __asm__("" : "+r"(row[i])); /* else gcc keeps an address for each row */
            }
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            vd_store(c + i * ldc + j * VW, acc[i][j]);
}

INLINE int dot_tiles_of(int rows) { return (rows + DOT_ROWS - 1) / DOT_ROWS; }

/* Tiles of nearly equal rows, as few as registers allow: the fewer sums a tile has, the longer each waits for itself, and the more often
 * the panel goes by. */
INLINE int dot_height(int left)
{
    const int tiles = dot_tiles_of(left);
    return (left + tiles - 1) / tiles;
}

INLINE int dot_run(const struct tern_dot_block *d)
{
    int run = TERN_DOT_ROWS;
    for (int i = 0; i < d->n; i++)
        run = d->pieces[i].a[1] == d->pieces[i].a[0] + 16 * d->pieces[i].ld ? run : 16;
    return run;
}

INLINE void dot_block(const bool bytes, const struct tern_dot_block *d)
{
    struct dot_part part = {.width = d->half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR};
    const int run = dot_run(d); /* rows that lie behind each other */
    part.calls = (dot_tiles_of(d->rows < run ? d->rows : run) + dot_tiles_of(d->rows > run ? d->rows - run : 0)) *
                 ((part.width + 2 * VW - 1) / (2 * VW));
#define HEIGHT(height)                                   \
    case height:                                         \
        if (part.width < 2 * VW)                         \
            dot_rows(bytes, false, height, 1, d, &part); \
        else                                             \
            dot_rows(bytes, false, height, 2, d, &part); \
        break;
    for (part.col = 0; part.col < part.width; part.col += 2 * VW)
        for (part.half = 0; part.half * run < d->rows; part.half++) {
            const int there = d->rows - part.half * run < run ? d->rows - part.half * run : run;
            int height;
            for (part.first = 0; part.first < there; part.first += height, part.call++) {
                height = dot_height(there - part.first);
#if defined(DOT_TILE)
                if (d->stream && height == DOT_TILE && part.width == 2 * VW) {
                    dot_rows(bytes, true, DOT_TILE, 2, d, &part);
                    continue;
                }
#endif
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
                    HEIGHT(12)
                    HEIGHT(13)
                    HEIGHT(14)
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
