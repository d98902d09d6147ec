/* The tiles of AMX in plain C, for tests on processors without them: a sanitizer sees every byte that a tile reads and writes, which it
 * does not of the instructions. Eight tiles of 16 rows of 64 bytes, whatever is configured. */
#ifndef TERN_BACKENDS_CPU_LEVEL_TILES_EMULATED_H
#define TERN_BACKENDS_CPU_LEVEL_TILES_EMULATED_H

#include <stdint.h>
#include <string.h>

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#undef _tile_dpbusd
#define _tile_loadconfig(config) amx_use(config)
#define _tile_release() amx_forget()
#define _tile_zero(t) memset(amx_tile[t], 0, sizeof(amx_tile[t]))
#define _tile_loadd(t, from, step) amx_load(t, from, step)
#define _tile_stream_loadd(t, from, step) amx_load(t, from, step)
#define _tile_stored(t, to, step) amx_store(t, to, step)
#define _tile_dpbf16ps(c, a, b) amx_multiply(c, a, b)
#define _tile_dpbusd(c, a, b) amx_multiply_bytes(c, a, b)

static __thread uint8_t amx_tile[8][16][64];

static inline void amx_use(const void *config) { (void)config; }

/* What is not loaded or zeroed again is NaN. */
static inline void amx_forget(void) { memset(amx_tile, 0xff, sizeof(amx_tile)); }

static inline void amx_load(int t, const void *from, int64_t step)
{
    for (int i = 0; i < 16; i++)
        memcpy(amx_tile[t][i], (const uint8_t *)from + i * step, 64);
}

static inline void amx_store(int t, void *to, int64_t step)
{
    for (int i = 0; i < 16; i++)
        memcpy((uint8_t *)to + i * step, amx_tile[t][i], 64);
}

/* Element i of a row of bf16. */
static inline float amx_value(const uint8_t *row, int i)
{
    uint16_t half;
    memcpy(&half, row + 2 * i, sizeof(half));
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* C += A B: A has 16 rows of 32 values, B 16 rows of pairs of values, one below the other, for 16 columns. */
static inline void amx_multiply(int c, int a, int b)
{
    for (int i = 0; i < 16; i++) {
        float sums[16];
        memcpy(sums, amx_tile[c][i], sizeof(sums));
        for (int k = 0; k < 32; k++)
            for (int j = 0; j < 16; j++)
                sums[j] += amx_value(amx_tile[a][i], k) * amx_value(amx_tile[b][k / 2], 2 * j + k % 2);
        memcpy(amx_tile[c][i], sums, sizeof(sums));
    }
}

/* The same of bytes, four in a word: A without, B with a sign. */
static inline void amx_multiply_bytes(int c, int a, int b)
{
    for (int i = 0; i < 16; i++) {
        uint32_t sums[16];
        memcpy(sums, amx_tile[c][i], sizeof(sums));
        for (int k = 0; k < 64; k++)
            for (int j = 0; j < 16; j++)
                sums[j] += (uint32_t)(amx_tile[a][i][k] * (int8_t)amx_tile[b][k / 4][4 * j + k % 4]);
        memcpy(amx_tile[c][i], sums, sizeof(sums));
    }
}

#endif
