/* Products of bf16 with sums in f32, by vdpbf16ps, the tiles of AMX, or bfmmla. All read the same packed panel of B and rows of A, and take
 * denormals for zero, as the instructions do. Of int8 with sums of 32 bits likewise, by vpdpbusd and the tiles: only the instruction is
 * another. */
#ifndef TERN_BACKENDS_CPU_LEVEL_BF16_H
#define TERN_BACKENDS_CPU_LEVEL_BF16_H

#include "backends/cpu/level/vec.h"

#if defined(TERN_LEVEL_neonbf16)
#include "backends/cpu/level/bf16_neon.h"
#elif defined(TERN_LEVEL_BF16)

INLINE __m512bh pairs_at(const uint16_t *p)
{
    __m512i v = _mm512_loadu_si512(p);
    return (__m512bh)v;
}

/* y[i] = bf16(x[i] + bias[i]) */
static void bf16_round(int64_t n, const float *x, const float *bias, uint16_t *y)
{
    const __m512 zero = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512 low = _mm512_loadu_ps(x + i), high = _mm512_loadu_ps(x + i + 16);
        if (bias) {
            low = _mm512_add_ps(low, _mm512_loadu_ps(bias + i));
            high = _mm512_add_ps(high, _mm512_loadu_ps(bias + i + 16));
        }
        _mm512_storeu_si512(y + i, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
    if (i < n) {
        uint32_t left = ~0u >> (32 - (n - i));
        __mmask16 first = (__mmask16)left, second = (__mmask16)(left >> 16);
        __m512 low = _mm512_maskz_loadu_ps(first, x + i), high = _mm512_maskz_loadu_ps(second, x + i + 16);
        low = _mm512_add_ps(low, bias ? _mm512_maskz_loadu_ps(first, bias + i) : zero);
        high = _mm512_add_ps(high, bias ? _mm512_maskz_loadu_ps(second, bias + i + 16) : zero);
        _mm512_mask_storeu_epi16(y + i, left, (__m512i)_mm512_cvtne2ps_pbh(high, low));
    }
}

#if defined(TERN_LEVEL_amx)

#if defined(TERN_EMULATE_TILES)
#include "backends/cpu/level/tiles_emulated.h"
#endif

#define BF16_STEP 32
#define BF16_GAIN 16
#define I8_STEP 32

/* Every tile is 16 rows of 64 bytes: rows and columns that a product lacks are computed too, into scratch. */
static void bf16_begin(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config
        __attribute__((aligned(64))) = {.palette = 1, .bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

static void bf16_end(void) { _tile_release(); }

#define i8_begin bf16_begin
#define i8_end bf16_end

#define TILES_MULTIPLY(bytes, c, a, b) \
    do {                               \
        if (bytes)                     \
            _tile_dpbusd(c, a, b);     \
        else                           \
            _tile_dpbf16ps(c, a, b);   \
    } while (0)

/* Sums are tiles 0..3, A 4 and 5, B 6 and 7: what is loaded once is used twice. high: 32 rows, else 16; wide: 32 columns. */
INLINE void dot_tiles(const bool bytes, const bool high, const bool wide, int n, const struct tern_dot_piece *pieces, const uint16_t *panel,
                      float *c, int64_t ldc, bool accumulate)
{
    const int64_t b_row = wide ? 128 : 64, c_row = ldc * 4;
    float *c1 = c + 16 * ldc;
    if (accumulate) {
        _tile_loadd(0, c, c_row);
        if (wide)
            _tile_loadd(1, c + 16, c_row);
        if (high)
            _tile_loadd(2, c1, c_row);
        if (high && wide)
            _tile_loadd(3, c1 + 16, c_row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int p = 0; p < n; p++) {
        const uint16_t *a = pieces[p].a[0], *a1 = pieces[p].a[1], *b = panel + pieces[p].k0 * (b_row / 4);
        const int64_t a_row = pieces[p].ld * 2;
        for (int64_t i = 0; i < pieces[p].depth; i += BF16_STEP) { /* B comes from L2 and goes by L1, which A fills */
            _tile_stream_loadd(6, b, b_row);
            if (wide)
                _tile_stream_loadd(7, b + 32, b_row);
            _tile_loadd(4, a + i, a_row);
            if (high)
                _tile_loadd(5, a1 + i, a_row);
            TILES_MULTIPLY(bytes, 0, 4, 6);
            if (wide)
                TILES_MULTIPLY(bytes, 1, 4, 7);
            if (high)
                TILES_MULTIPLY(bytes, 2, 5, 6);
            if (high && wide)
                TILES_MULTIPLY(bytes, 3, 5, 7);
            b += b_row * (BF16_STEP / 4);
        }
    }
    _tile_stored(0, c, c_row);
    if (wide)
        _tile_stored(1, c + 16, c_row);
    if (high)
        _tile_stored(2, c1, c_row);
    if (high && wide)
        _tile_stored(3, c1 + 16, c_row);
}

INLINE void dot_block(const bool bytes, int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, bool half_panel,
                      void *c, int64_t ldc, bool accumulate)
{
    if (rows > 16 && !half_panel)
        dot_tiles(bytes, true, true, n, pieces, panel, c, ldc, accumulate);
    else if (rows > 16)
        dot_tiles(bytes, true, false, n, pieces, panel, c, ldc, accumulate);
    else if (!half_panel)
        dot_tiles(bytes, false, true, n, pieces, panel, c, ldc, accumulate);
    else
        dot_tiles(bytes, false, false, n, pieces, panel, c, ldc, accumulate);
}

static void bf16_block(int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next, bool half_panel,
                       void *c, int64_t ldc, bool accumulate)
{
    dot_block(false, rows, n, pieces, panel, half_panel, c, ldc, accumulate);
}

static void i8_block(int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next, bool half_panel,
                     void *c, int64_t ldc, bool accumulate)
{
    dot_block(true, rows, n, pieces, panel, half_panel, c, ldc, accumulate);
}

#else

#define BF16_STEP 2
#define BF16_GAIN 2
#define I8_STEP 2
#define BF16_TILE 11 /* rows whose sums, two vectors each, are in registers at most */

static void bf16_begin(void) {}
static void bf16_end(void) {}

#define i8_begin bf16_begin
#define i8_end bf16_end

/* Rows first .. first + rows of a half. rows and nv (vectors of columns) are constants wherever this is inlined, so that acc lives in
 * registers. A quarter of the panel `next` is fetched meanwhile: four such calls make a block of 32 rows. */
INLINE void dot_rows(const bool bytes, const int rows, const int nv, int half, int first, int n, const struct tern_dot_piece *pieces,
                     const uint16_t *panel, const uint16_t *next, float *c, int64_t ldc, bool accumulate)
{
    __m512i acc[BF16_TILE][2];
#pragma GCC unroll 11
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            acc[i][j] = accumulate ? _mm512_loadu_si512(c + i * ldc + j * 16) : _mm512_setzero_si512();
    for (int p = 0; p < n; p++) {
        const uint16_t *a = pieces[p].a[half] + first * pieces[p].ld, *b = panel + pieces[p].k0 * nv * 16;
        const uint16_t *ahead = next + (pieces[p].k0 + pieces[p].depth * (half * 2 + (first > 0)) / 4) * nv * 16;
        for (int64_t t = 0; t < pieces[p].depth; t += BF16_STEP) {
            __m512i y[2];
            __builtin_prefetch(ahead + t * nv * 4, 0, 2);
#pragma GCC unroll 2
            for (int j = 0; j < nv; j++)
                y[j] = _mm512_loadu_si512(b + (t * nv + j * 2) * 16);
#pragma GCC unroll 11
            for (int i = 0; i < rows; i++) {
                int32_t pair;
                memcpy(&pair, a + i * pieces[p].ld + t, sizeof(pair));
                __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 2
                for (int j = 0; j < nv; j++)
                    acc[i][j] = bytes ? _mm512_dpbusd_epi32(acc[i][j], x, y[j])
                                      : (__m512i)_mm512_dpbf16_ps((__m512)acc[i][j], (__m512bh)x, (__m512bh)y[j]);
            }
        }
    }
#pragma GCC unroll 11
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            _mm512_storeu_si512(c + i * ldc + j * 16, acc[i][j]);
}

/* Halves are two tiles of rows, a last one of up to 11 rows is one: with 8 sums or fewer, each waits for itself. */
INLINE int bf16_height(int left) { return left <= BF16_TILE ? left : (left + 1) / 2; }

INLINE void dot_block(const bool bytes, int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next,
                      bool half_panel, float *c, int64_t ldc, bool accumulate)
{
#define HEIGHT(height)                                                                           \
    case height:                                                                                 \
        if (half_panel)                                                                          \
            dot_rows(bytes, height, 1, half, first, n, pieces, panel, next, c, ldc, accumulate); \
        else                                                                                     \
            dot_rows(bytes, height, 2, half, first, n, pieces, panel, next, c, ldc, accumulate); \
        break;
    for (int half = 0; half * 16 < rows; half++) {
        const int there = rows - half * 16 < 16 ? rows - half * 16 : 16;
        for (int first = 0, height; first < there; first += height, c += height * ldc) {
            height = bf16_height(there - first);
            switch (height) {
                HEIGHT(1)
                HEIGHT(2)
                HEIGHT(3)
                HEIGHT(4)
                HEIGHT(5)
                HEIGHT(6)
                HEIGHT(7)
                HEIGHT(8)
                HEIGHT(9)
                HEIGHT(10)
                HEIGHT(11)
            }
        }
    }
#undef HEIGHT
}

static void bf16_block(int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next, bool half_panel,
                       void *c, int64_t ldc, bool accumulate)
{
    dot_block(false, rows, n, pieces, panel, next, half_panel, c, ldc, accumulate);
}

static void i8_block(int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next, bool half_panel,
                     void *c, int64_t ldc, bool accumulate)
{
    dot_block(true, rows, n, pieces, panel, next, half_panel, c, ldc, accumulate);
}

#endif
#endif
#endif
