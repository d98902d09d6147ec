/* The tiles of AMX in plain C, for tests on processors without them: a sanitizer sees every byte that a tile reads and writes, which it
 * does not of the instructions. Eight tiles of 16 rows of 64 bytes, whatever is configured. */
#ifndef TERN_BACKENDS_CPU_LEVEL_TILES_EMULATED_H
#define TERN_BACKENDS_CPU_LEVEL_TILES_EMULATED_H

#include <stdbool.h>
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
#undef _tile_dpbssd
#define _tile_loadconfig(config) amx_use(config)
#define _tile_release() amx_forget()
#define _tile_zero(t) memset(amx_tile[t], 0, sizeof(amx_tile[t]))
#define _tile_loadd(t, from, step) amx_load(t, from, step)
#define _tile_stream_loadd(t, from, step) amx_load(t, from, step)
#define _tile_stored(t, to, step) amx_store(t, to, step)
#define _tile_dpbf16ps(c, a, b) amx_multiply(c, a, b)
#define _tile_dpbusd(c, a, b) amx_multiply_bytes(false, c, a, b)
#define _tile_dpbssd(c, a, b) amx_multiply_bytes(true, c, a, b)

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

/* What follows reads and writes tiles alone, by indices that are constants: watched, it would take most of a test's time. */
#define AMX_UNWATCHED __attribute__((noinline, no_sanitize("address", "undefined")))

/* Word i of a tile as bf16: its lower half, then its upper one. */
AMX_UNWATCHED static void amx_values(const uint8_t (*tile)[64], float (*low)[16], float (*high)[16])
{
    for (int i = 0; i < 16; i++) {
        uint32_t words[16];
        memcpy(words, tile[i], sizeof(words));
        for (int j = 0; j < 16; j++) {
            const uint32_t bits[2] = {words[j] << 16, words[j] & 0xffff0000u};
            memcpy(&low[i][j], &bits[0], sizeof(float));
            memcpy(&high[i][j], &bits[1], sizeof(float));
        }
    }
}

/* C += A B: A has 16 rows of 32 values, B 16 rows of pairs of values, one below the other, for 16 columns. */
AMX_UNWATCHED static void amx_multiply(int c, int a, int b)
{
    float a_low[16][16], a_high[16][16], b_low[16][16], b_high[16][16];
    amx_values(amx_tile[a], a_low, a_high);
    amx_values(amx_tile[b], b_low, b_high);
    for (int i = 0; i < 16; i++) {
        float sums[16];
        memcpy(sums, amx_tile[c][i], sizeof(sums));
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 16; j++) {
                sums[j] += a_low[i][k] * b_low[k][j];
                sums[j] += a_high[i][k] * b_high[k][j];
            }
        memcpy(amx_tile[c][i], sums, sizeof(sums));
    }
}

/* The same of bytes, four in a word: B with a sign, A with one if it has. */
AMX_UNWATCHED static void amx_multiply_bytes(bool sign, int c, int a, int b)
{
    int32_t column[4][16][16];
    for (int k = 0; k < 16; k++)
        for (int j = 0; j < 16; j++)
            for (int q = 0; q < 4; q++)
                column[q][k][j] = (int8_t)amx_tile[b][k][4 * j + q];
    for (int i = 0; i < 16; i++) {
        uint32_t sums[16];
        memcpy(sums, amx_tile[c][i], sizeof(sums));
        for (int k = 0; k < 16; k++)
            for (int q = 0; q < 4; q++) {
                const uint8_t byte = amx_tile[a][i][4 * k + q];
                const int value = sign ? (int8_t)byte : byte;
                for (int j = 0; j < 16; j++)
                    sums[j] += (uint32_t)(value * column[q][k][j]);
            }
        memcpy(amx_tile[c][i], sums, sizeof(sums));
    }
}

#endif
