/* Keys and values of attention in bf16 as its products read them. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_PACK_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_PACK_H

#include "backends/cpu/level/attention_sizes.h"

/* Pairs along the depth of each key beside those of the others, as bf16_block reads them. */
static void pack_keys(int64_t keys, int64_t e, const uint16_t *k, int64_t ld, int64_t depth, uint16_t *to)
{
    const int64_t width = keys <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR;
    memset(to, 0, (size_t)(width * depth) * sizeof(*to));
    for (int64_t j = 0; j < keys; j += 8) {
        const __m512i at = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(ld));
        const __mmask8 there = (__mmask8)(keys - j >= 8 ? 0xff : (1 << (keys - j)) - 1);
        for (int64_t i = 0; i + 2 <= e; i += 2)
            _mm256_storeu_si256((__m256i *)(void *)(to + i * width + j * 2),
                                _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), there, at, k + j * ld + i, 2));
    }
    for (int64_t j = 0; e % 2 && j < keys; j++)
        to[(e - 1) * width + j * 2] = k[j * ld + e - 1];
}

/* A key of a panel of values: those that are there, and the one behind them. */
INLINE __m512i values_at(const uint16_t *v, int64_t left)
{
    uint32_t there = left >= 32 ? ~0u : left <= 0 ? 0 : (1u << left) - 1, one = left >= 0 && left < 32 ? 1u << left : 0;
    return _mm512_mask_mov_epi16(_mm512_maskz_loadu_epi16(there, v), one, _mm512_set1_epi16(0x3f80));
}

static void pack_values(int64_t key, int64_t keys, int64_t ev, const uint16_t *v, int64_t ld, int64_t depth, uint16_t *to)
{
    const int64_t columns = filled(ev + (SUMS == 0), 16);
    __m512i low = _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007, 0x260006,
                                   0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i twice = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), low);
    for (int64_t c = 0; c < columns; c += TERN_DOT_NR) {
        const int64_t width = columns - c <= TERN_DOT_NR / 2 ? TERN_DOT_NR / 2 : TERN_DOT_NR;
        uint16_t *at = to + c * depth + key * width;
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
