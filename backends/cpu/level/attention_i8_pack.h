/* Keys and values of attention in int8 as its products read them. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_PACK_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_PACK_H

#include "backends/cpu/level/attention_sizes.h"
#include "backends/cpu/level/i8.h"
#include "ops/quantize.h"

#define BLOCK TERN_ATTENTION_I8_KEYS
#define LANES 16
#define WORDS (BLOCK / 4) /* of the powers of a block: key i, i + 16, i + 32 and i + 48 */
#define MOST_WIDTH TERN_ATTENTION_I8_WIDTH
#if defined(TERN_LEVEL_amx)
#define I8_DEPTH 64
#define I8_ONES true
#else
#define I8_DEPTH 4
#define I8_ONES false
#endif

INLINE vf value_at(const uint16_t *row, int64_t c, int64_t width)
{
    return width - c < LANES ? v_load_as_n(TERN_BF16, row, c, width - c) : v_load_as(TERN_BF16, row, c);
}

#define ROWS_AHEAD 16 /* rows that are fetched while one is added: they lie too far apart for the processor to see them coming */

/* Means of up to four vectors of columns. */
INLINE void means_of_vectors(const int vectors, int64_t rows, int64_t width, const uint16_t *x, int64_t ld, float *mean)
{
    vf sum[4] = {{0}};
    for (int64_t i = 0; i < rows; i++) {
        const uint16_t *soon = x + (i + ROWS_AHEAD < rows ? i + ROWS_AHEAD : rows - 1) * ld, *row = x + i * ld;
        __builtin_prefetch(soon);
        __builtin_prefetch(soon + width - 1);
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            sum[v] += value_at(row, v * LANES, width);
    }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        v_store(mean + v * LANES, sum[v] / v_set((float)rows));
}

static void means_of(int64_t rows, int64_t width, const uint16_t *x, int64_t ld, float *mean)
{
    for (int64_t c = 0, left = width; left > 0; c += 4 * LANES, left -= 4 * LANES)
        if (left > 3 * LANES)
            means_of_vectors(4, rows, left < 4 * LANES ? left : 4 * LANES, x + c, ld, mean + c);
        else if (left > 2 * LANES)
            means_of_vectors(3, rows, left, x + c, ld, mean + c);
        else if (left > LANES)
            means_of_vectors(2, rows, left, x + c, ld, mean + c);
        else
            means_of_vectors(1, rows, left, x + c, ld, mean + c);
}

/* Sixteen values to bytes. */
INLINE __m128i bytes_of(vf x) { return _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32((__m512)x)); }

/* Words along the depth of each of 64 keys beside those of the others. */
static void i8_pack_keys(const struct tern_cpu_head_i8 *h, const uint16_t *k, int64_t ld)
{
    float mean[MOST_WIDTH];
    means_of(h->keys, h->e, k, ld, mean);
    for (int64_t first = 0, b = 0; first < h->keys; first += BLOCK, b++) {
        const int64_t keys = h->keys - first < BLOCK ? h->keys - first : BLOCK;
        const uint16_t *x = k + first * ld;
        int8_t *to = h->k + first * h->depth;
        vi most = {0};
        for (int64_t j = 0; j < keys; j++)
            for (int64_t c = 0; c < h->e; c += LANES)
                most = i8_larger(most, value_at(x + j * ld, c, h->e) - v_load(mean + c));
        const int32_t top = _mm512_reduce_max_epi32((__m512i)most);
        float value;
        memcpy(&value, &top, sizeof(value));
        const struct tern_quantize_factors f = tern_quantize_factors_of(value);
        h->k_scale[b] = f.out;
        memset(to, 0, (size_t)(BLOCK * h->depth));
        if (I8_ZERO)
            memset(h->offset + first, 0, BLOCK * sizeof(*h->offset));
        for (int64_t j = 0; j < keys; j++) {
            int8_t row[MOST_WIDTH];
            __m512i sum = _mm512_setzero_si512();
            for (int64_t c = 0; c < h->e; c += LANES) {
                const __m128i bytes = bytes_of((value_at(x + j * ld, c, h->e) - v_load(mean + c)) * f.in);
                _mm_storeu_si128((__m128i *)(void *)(row + c), bytes);
                sum = _mm512_add_epi32(sum, _mm512_cvtepi8_epi32(bytes));
            }
            if (I8_ZERO)
                h->offset[first + j] = -I8_ZERO * _mm512_reduce_add_epi32(sum);
            for (int64_t c = 0; c < h->e; c += 4)
                memcpy(to + (c * BLOCK / 4 + j) * 4, row + c, 4);
        }
    }
}

static void i8_pack_values(const struct tern_cpu_head_i8 *h, const uint16_t *v, int64_t ld)
{
    float by[MOST_WIDTH] = {0};
    memset(h->v_mean, 0, (size_t)h->columns * sizeof(float));
    memset(h->v_scale, 0, (size_t)h->columns * sizeof(float));
    float mean[MOST_WIDTH];
    means_of(h->keys, h->values, v, ld, mean);
    memcpy(h->v_mean, mean, (size_t)h->values * sizeof(float));
    for (int64_t c = 0; c < h->values; c += LANES) {
        vi most = {0};
        for (int64_t j = 0; j < h->keys; j++)
            most = i8_larger(most, value_at(v + j * ld, c, h->values) - v_load(mean + c));
        for (int64_t i = c; i < h->values && i < c + LANES; i++) {
            const int32_t bits = most[i - c];
            float value;
            memcpy(&value, &bits, sizeof(value));
            const struct tern_quantize_factors f = tern_quantize_factors_of(value);
            by[i] = f.in;
            h->v_scale[i] = f.out;
        }
    }
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    for (int64_t first = 0; first < h->keys; first += BLOCK)
        for (int64_t c = 0; c < h->columns; c += LANES)
            for (int64_t i = 0; i < WORDS; i++) {
                __m512i word = _mm512_setzero_si512();
                for (int64_t part = 3; part >= 0; part--) {
                    const int64_t j = first + i + part * WORDS;
                    __m128i bytes = _mm_setzero_si128();
                    if (j < h->keys && c < h->values)
                        bytes = bytes_of((value_at(v + j * ld, c, h->values) - v_load(mean + c)) * v_load(by + c));
                    if (I8_ONES && j < h->keys && c <= h->values && h->values < c + LANES)
                        bytes = _mm_mask_set1_epi8(bytes, (__mmask16)(1 << (h->values - c)), 1);
                    word = _mm512_or_si512(_mm512_slli_epi32(word, 8), _mm512_cvtepu8_epi32(bytes));
                }
                if (c == shared_from(h->values))
                    word = _mm512_permutexvar_epi32(twice, word);
                _mm512_storeu_si512(h->v + ((first / 4 + i) * h->columns + c) * 4, word);
            }
}

#endif
