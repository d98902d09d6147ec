/* Products of attention in bf16: by tiles of AMX, or by vdpbf16ps. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_TILES_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_TILES_H

#include "backends/cpu/level/attention_sizes.h"

/* C (rows x n) = or += A (rows x k) times rows k0 .. k0 + k of panels that are `depth` deep. */
struct factors {
    int64_t rows, n, k, k0, depth, lda, ldc;
    const uint16_t *a, *b;
    float *c;
};

#if defined(TERN_LEVEL_amx)
/* A panel of 32 columns, or 16: sums in the tiles t0 and t1. */
#define MULTIPLY(t0, t1)                                                         \
    do {                                                                         \
        if (accumulate) {                                                        \
            _tile_loadd(t0, c, c_row);                                           \
            if (wide)                                                            \
                _tile_loadd(t1, c + 16, c_row);                                  \
        } else {                                                                 \
            _tile_zero(t0);                                                      \
            _tile_zero(t1);                                                      \
        }                                                                        \
        for (int64_t i = 0; i < f->k; i += BF16_STEP, b += 8 * b_row, a += 32) { \
            _tile_loadd(4, a, a_row);                                            \
            _tile_loadd(6, b, b_row);                                            \
            _tile_dpbf16ps(t0, 4, 6);                                            \
            if (wide) {                                                          \
                _tile_loadd(7, b + 32, b_row);                                   \
                _tile_dpbf16ps(t1, 4, 7);                                        \
            }                                                                    \
        }                                                                        \
    } while (0)
#define STORE(t0, t1)                        \
    do {                                     \
        _tile_stored(t0, c, c_row);          \
        if (wide)                            \
            _tile_stored(t1, c + 16, c_row); \
    } while (0)

INLINE bool is_wide(const struct factors *f, int64_t j) { return f->n - j > 16; }

/* Begins to multiply columns j .. of C, in the first pair of tiles or the second. */
INLINE void multiply_panel(const struct factors *f, int64_t j, const bool accumulate, const bool second)
{
    const bool wide = is_wide(f, j);
    const int64_t a_row = f->lda * 2, c_row = f->ldc * 4, b_row = wide ? 128 : 64;
    const uint16_t *b = f->b + j * f->depth + f->k0 * (b_row / 4), *a = f->a;
    const float *c = f->c + j;
    if (second)
        MULTIPLY(2, 3);
    else
        MULTIPLY(0, 1);
}

INLINE void store_panel(float *c, int64_t ldc, const bool wide, const bool second)
{
    const int64_t c_row = ldc * 4;
    if (second)
        STORE(2, 3);
    else
        STORE(0, 1);
}
#undef MULTIPLY
#undef STORE
#else
static void product(const struct factors *f, bool accumulate)
{
    const struct tern_dot_piece whole = {.a = {f->a}, .ld = f->lda, .k0 = f->k0, .depth = f->k};
    struct tern_dot_block block = {.rows = (int)f->rows, .n = 1, .pieces = &whole, .ldc = f->ldc, .accumulate = accumulate};
    for (int64_t j = 0; j < f->n; j += TERN_DOT_NR) {
        block.panel = block.next = f->b + j * f->depth;
        block.half_panel = f->n - j <= TERN_DOT_NR / 2;
        block.c = f->c + j;
        bf16_block(&block);
    }
}

/* Rows of A, rows of B: panels of two vectors, of one where nv is 1. third: where nv is 3, a panel behind b that is one vector wide, of
 * eight columns, each twice; acc[i][2] of an even row i has its sums in even places and those of row i + 1 in odd ones. */
struct tile {
    const uint16_t *a, *b, *third;
    int64_t lda;
};

/* rows, 8 at most, and nv are constants wherever this is inlined, so that acc lives in registers. */
INLINE void multiply(const int rows, const int nv, int64_t k, const struct tile *s, __m512 acc[][3])
{
    const uint16_t *b = s->b, *third = s->third;
    for (int64_t t = 0; t < k; t += 2, b += nv == 1 ? 32 : 64, third += 32) {
        __m512bh y[3];
        __m512i x[8];
        y[0] = pairs_at(b);
        if (nv > 1)
            y[1] = pairs_at(b + 32);
        if (nv > 2)
            y[2] = pairs_at(third);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            int32_t pair;
            memcpy(&pair, s->a + i * s->lda + t, sizeof(pair));
            x[i] = _mm512_set1_epi32(pair);
            acc[i][0] = _mm512_dpbf16_ps(acc[i][0], (__m512bh)x[i], y[0]);
            if (nv > 1)
                acc[i][1] = _mm512_dpbf16_ps(acc[i][1], (__m512bh)x[i], y[1]);
            if (nv > 2 && i % 2)
                acc[i - 1][2] = _mm512_dpbf16_ps(acc[i - 1][2], (__m512bh)_mm512_mask_blend_epi32(0xaaaa, x[i - 1], x[i]), y[2]);
        }
    }
}
#endif

#endif
