/* Keys and values of attention in bf16 as its products read them. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_PACK_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_PACK_H

#include "backends/cpu/level/attention_sizes.h"

/* Pairs of up to 16 keys beside each other, 16 rows of them at most: a square of words is turned over its diagonal. */
INLINE void turn_keys(int64_t keys, int64_t e, const uint16_t *k, int64_t ld, uint16_t *to, int64_t to_ld)
{
    const __mmask32 there = e >= 32 ? ~0u : (1u << e) - 1;
    __m512i x[16], y[16];
    for (int i = 0; i < 16; i++)
        x[i] = i < keys ? _mm512_maskz_loadu_epi16(there, k + i * ld) : _mm512_setzero_si512();
    for (int i = 0; i < 16; i += 2) {
        y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
            x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
        }
    /* x[i]: rows i % 4, and 4, 8 and 12 more, of the keys 4 (i / 4) .. + 4 */
    for (int i = 0; i < 4; i++) {
        y[i] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
        y[i + 4] = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
        y[i + 8] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
        y[i + 12] = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        x[i] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0x88);
        x[i + 8] = _mm512_shuffle_i32x4(y[i], y[i + 8], 0xdd);
    }
    for (int i = 0; i < 16 && 2 * i < e; i++)
        _mm512_storeu_si512(to + i * to_ld, x[i]);
}

/* Pairs along the depth of each key beside those of the others, as bf16_block reads them. */
static void pack_keys(int64_t keys, int64_t e, const void *src, int64_t ld, int64_t depth, void *dst)
{
    for (int64_t first = 0; first < keys; first += TERN_DOT_NR) {
        const int64_t left = keys - first, width = left <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR;
        const uint16_t *k = (const uint16_t *)src + first * ld;
        uint16_t *to = (uint16_t *)dst + first * depth;
        for (int64_t j = 0; j < width; j += 16)
            for (int64_t i = 0; i < e; i += 32)
                turn_keys(left - j, e - i, k + j * ld + i, ld, to + i * width + j * 2, 2 * width);
        memset(to + filled(e, 2) * width, 0, (size_t)((depth - filled(e, 2)) * width) * sizeof(*to));
    }
}

/* A key of a panel of values: those that are there, and the one behind them. */
INLINE __m512i values_at(const uint16_t *v, int64_t left)
{
    uint32_t there = left >= 32 ? ~0u : left <= 0 ? 0 : (1u << left) - 1, one = left >= 0 && left < 32 ? 1u << left : 0;
    return _mm512_mask_mov_epi16(_mm512_maskz_loadu_epi16(there, v), one, _mm512_set1_epi16(0x3f80));
}

static void pack_values(int64_t key, int64_t keys, int64_t ev, const void *src, int64_t ld, int64_t depth, void *to)
{
    const uint16_t *v = src;
    const int64_t columns = filled(ev + (SUMS == 0), 16);
    __m512i low = _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007, 0x260006,
                                   0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i twice = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), low);
    for (int64_t c = 0; c < columns; c += TERN_DOT_NR) {
        const int64_t width = columns - c <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR;
        uint16_t *at = (uint16_t *)to + c * depth + key * width;
        for (int64_t i = 0; i < filled(keys, PAIR); i += i % 16 == 15 ? 17 : 1, at += 2 * width) {
            __m512i zero = _mm512_setzero_si512();
            __m512i x = i < keys ? values_at(v + i * ld + c, ev - c) : zero;
            __m512i y = i + 16 < keys ? values_at(v + (i + 16) * ld + c, ev - c) : zero;
            _mm512_storeu_si512(at, _mm512_permutex2var_epi16(x, c == shared_from(ev) ? twice : low, y));
            if (width == TERN_DOT_NR)
                _mm512_storeu_si512(at + 32, _mm512_permutex2var_epi16(x, high, y));
        }
    }
}

#endif
