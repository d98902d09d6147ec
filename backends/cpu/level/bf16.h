/* Products of bf16 with sums in f32, by vdpbf16ps, the tiles of AMX, or bfmmla. All read the same packed panel of B and rows of A, and take
 * denormals for zero, as the instructions do. Of int8 with sums of 32 bits likewise, by vpdpbusd, the tiles, or smmla: only the instruction
 * is another. */
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

#if defined(TERN_LEVEL_amx)

#if defined(TERN_EMULATE_TILES)
#include "backends/cpu/level/tiles_emulated.h"
#endif

#define BF16_STEP 32
#define BF16_GAIN 16
#define I8_STEP 32
#define I8_GAIN 32
#define I8_ZERO 0
#define DOT_ROW_STEP 16
#define DOT_PAST_L1 true

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
            _tile_dpbssd(c, a, b);     \
        else                           \
            _tile_dpbf16ps(c, a, b);   \
    } while (0)

/* A tilestored that no other came before for some 2,000 cycles of products holds all up for 800 to 900 (bench/tiles.c). So something is
 * stored at every 16th step of the depth, at the place of sums that follow. */
#define STORE_STEPS 16

/* Sums are tiles 0..3, A 4 and 5, B 6 and 7: what is loaded once is used twice. high: 32 rows, else 16; wide: 32 columns. */
INLINE void dot_tiles(const bool bytes, const bool high, const bool wide, const struct tern_dot_block *d)
{
    const int64_t b_row = wide ? 128 : 64, c_row = d->ldc * 4;
    float *c = d->c, *c1 = c + 16 * d->ldc;
    int steps = 0;
    if (d->accumulate || d->start) { /* rows that lie on each other: one that all begin with */
        const int64_t row = d->accumulate ? c_row : 0;
        const float *from = d->accumulate ? c : d->start, *from1 = d->accumulate ? c1 : from;
        _tile_loadd(0, from, row);
        if (wide)
            _tile_loadd(1, from + 16, row);
        if (high)
            _tile_loadd(2, from1, row);
        if (high && wide)
            _tile_loadd(3, from1 + 16, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int p = 0; p < d->n; p++) {
        const struct tern_dot_piece *piece = &d->pieces[p];
        const uint16_t *a = piece->a[0], *a1 = piece->a[1], *b = d->panel + piece->k0 * (b_row / 4);
        const int64_t a_row = piece->ld * 2;
        for (int64_t i = 0; i < piece->depth; i += BF16_STEP) { /* B comes from L2 past L1, which A fills */
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
            if (++steps % STORE_STEPS == 0)
                _tile_stored(6, c, c_row);
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

INLINE void dot_block(const bool bytes, const struct tern_dot_block *d)
{
    if (d->rows > 16 && !d->half_panel)
        dot_tiles(bytes, true, true, d);
    else if (d->rows > 16)
        dot_tiles(bytes, true, false, d);
    else if (!d->half_panel)
        dot_tiles(bytes, false, true, d);
    else
        dot_tiles(bytes, false, false, d);
}

#else
#include "backends/cpu/level/dot_rows.h"
#endif
#elif defined(TERN_LEVEL_VNNI)
#include "backends/cpu/level/dot_rows.h"
#endif

/* The byte of A that counts as 0. */
#if !defined(I8_ZERO)
#define I8_ZERO 0
#endif

/* dot_block is that of the instructions. */
#if defined(TERN_LEVEL_BF16)
static void bf16_block(const struct tern_dot_block *b) { dot_block(false, b); }
#endif
#if defined(I8_STEP)
static void i8_block(const struct tern_dot_block *b) { dot_block(true, b); }
#endif
#endif
