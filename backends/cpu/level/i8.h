/* int8: values to bytes; the products themselves where bf16.h has none for words of bytes. */
#ifndef TERN_BACKENDS_CPU_LEVEL_I8_H
#define TERN_BACKENDS_CPU_LEVEL_I8_H

#include "backends/cpu/level/bf16.h"
#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/sums.h"

typedef uint8_t vb __attribute__((vector_size(VW)));

/* To the nearest, even where two are as near. */
#if defined(TERN_LEVEL_512)
INLINE vi v_to_int(vf x) { return (vi)_mm512_cvtps_epi32((__m512)x); }
INLINE vb v_bytes(vi x) { return (vb)_mm512_cvtepi32_epi8((__m512i)x); }
#else
INLINE vb v_bytes(vi x) { return __builtin_convertvector(x, vb); }
#if defined(TERN_LEVEL_256)
INLINE vi v_to_int(vf x) { return (vi)_mm256_cvtps_epi32((__m256)x); }
#elif defined(TERN_LEVEL_NEON)
INLINE vi v_to_int(vf x) { return (vi)vcvtnq_s32_f32((float32x4_t)x); }
#else
/* By a number whose last bit is worth 1. */
INLINE vi v_to_int(vf x)
{
    const float magic = 12582912.0f; /* 3 * 2^22 */
    __asm__("" : "+m"(x));           /* a product that x is stays rounded */
    x += magic;
    return (vi)x - (vi)v_set(magic);
}
#endif
#endif

#define I8_SUMS 4

/* The larger of |x| and `most`, as bits: without the sign, floats are in the order of these, and NaN is above all of them. */
INLINE vi i8_larger(vi most, vf x) { return v_larger(most, (vi)v_abs(x)); }

INLINE float i8_most_lane(vi most)
{
    int32_t bits = 0, lanes[VW];
    memcpy(lanes, &most, sizeof(lanes));
    for (int k = 0; k < VW; k++)
        bits = lanes[k] > bits ? lanes[k] : bits;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

#if defined(TERN_LEVEL_512)
/* Of bf16 without widening it: 32 at once. */
INLINE float i8_most_bf16(int64_t n, const uint16_t *x)
{
    const __m512i sign = _mm512_set1_epi16(0x7fff);
    __m512i first = _mm512_setzero_si512(), second = first;
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        first = _mm512_max_epi16(first, _mm512_and_si512(_mm512_loadu_si512(x + i), sign));
        second = _mm512_max_epi16(second, _mm512_and_si512(_mm512_loadu_si512(x + i + 32), sign));
    }
    for (; i < n; i += 32) {
        const __mmask32 there = n - i < 32 ? (1u << (n - i)) - 1 : 0xffffffffu;
        first = _mm512_max_epi16(first, _mm512_and_si512(_mm512_maskz_loadu_epi16(there, x + i), sign));
    }
    const __m512i all = _mm512_max_epi16(first, second);
    const __m512i low = _mm512_slli_epi32(all, 16), high = _mm512_and_si512(all, _mm512_set1_epi32(-65536));
    return i8_most_lane((vi)_mm512_max_epi32(low, high));
}
#endif

INLINE float i8_most_of(const enum tern_dtype dtype, int64_t n, const void *x)
{
    vi most[I8_SUMS] = {{0}};
    int64_t i = 0;
#if defined(TERN_LEVEL_512)
    if (dtype == TERN_BF16)
        return i8_most_bf16(n, x);
#endif
    for (; i + I8_SUMS * VW <= n; i += I8_SUMS * VW)
        for (int j = 0; j < I8_SUMS; j++)
            most[j] = i8_larger(most[j], v_load_as(dtype, x, i + j * VW));
    for (; i < n; i += VW)
        most[0] = i8_larger(most[0], n - i < VW ? v_load_as_n(dtype, x, i, n - i) : v_load_as(dtype, x, i));
    for (int j = 1; j < I8_SUMS; j++)
        most[0] = i8_larger(most[0], (vf)most[j]);
    return i8_most_lane(most[0]);
}

static float i8_most(enum tern_dtype dtype, int64_t n, const void *x)
{
    return dtype == TERN_F32 ? i8_most_of(TERN_F32, n, x) : dtype == TERN_F16 ? i8_most_of(TERN_F16, n, x) : i8_most_of(TERN_BF16, n, x);
}

#if defined(TERN_LEVEL_512)
/* 32 values of bf16 as whole numbers of 16 bits. */
INLINE __m512i i8_whole_bf16(const uint16_t *x, float factor)
{
    const __m512i both = _mm512_loadu_si512(x);
    const vi even = v_to_int((vf)_mm512_slli_epi32(both, 16) * factor);
    const vi odd = v_to_int((vf)_mm512_and_si512(both, _mm512_set1_epi32(-65536)) * factor);
    return _mm512_mask_blend_epi16(0xaaaaaaaau, (__m512i)even, _mm512_slli_epi32((__m512i)odd, 16));
}

/* 64 of them as bytes. */
INLINE void i8_quantize_bf16(const uint16_t *x, float factor, uint8_t *y)
{
    const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0); /* packing goes by quarters of a register */
    const __m512i bytes = _mm512_packs_epi16(i8_whole_bf16(x, factor), i8_whole_bf16(x + 32, factor));
    _mm512_storeu_si512(y, _mm512_xor_si512(_mm512_permutexvar_epi64(order, bytes), _mm512_set1_epi8((char)I8_ZERO)));
}
#endif

/* Values times a factor as bytes of A; or weights over their scale, which may have been rounded: then the quotient may be too large. */
INLINE vb i8_bytes(const bool weights, vf x, float by)
{
    return weights ? v_bytes(v_to_int(v_max(v_min(x / by, v_set(TERN_I8_MOST)), v_set(-TERN_I8_MOST))))
                   : v_bytes(v_to_int(x * by) + I8_ZERO);
}

/* Values i .. n. */
INLINE void i8_bytes_of(const enum tern_dtype dtype, const bool weights, int64_t i, int64_t n, const void *x, float by, void *y)
{
    for (; i + VW <= n; i += VW) {
        const vb b = i8_bytes(weights, v_load_as(dtype, x, i), by);
        memcpy((char *)y + i, &b, sizeof(b));
    }
    if (i < n) {
        const vb b = i8_bytes(weights, v_load_as_n(dtype, x, i, n - i), by);
        memcpy((char *)y + i, &b, (size_t)(n - i));
    }
}

INLINE void i8_quantize_of(const enum tern_dtype dtype, int64_t n, const void *x, float factor, uint8_t *y)
{
    int64_t i = 0;
#if defined(TERN_LEVEL_512)
    for (; dtype == TERN_BF16 && i + 64 <= n; i += 64)
        i8_quantize_bf16((const uint16_t *)x + i, factor, y + i);
#endif
    i8_bytes_of(dtype, false, i, n, x, factor, y);
}

static void i8_quantize(enum tern_dtype dtype, int64_t n, const void *x, float factor, uint8_t *y)
{
    FOR_DTYPE(dtype, i8_quantize_of, n, x, factor, y)
}

static void i8_weights(enum tern_dtype dtype, int64_t n, const void *x, float scale, int8_t *y)
{
    FOR_DTYPE(dtype, i8_bytes_of, true, 0, n, x, scale, y)
}

#if defined(TERN_LEVEL_neondot)
#include "backends/cpu/level/i8_neon.h"
#elif !defined(I8_STEP)

#define I8_STEP 2
#define I8_GAIN 2

static void i8_begin(void) {}
static void i8_end(void) {}

#if defined(TERN_LEVEL_512) || defined(TERN_LEVEL_256)
/* By vpmaddwd: bytes are widened to 16 bits, those of A once for all columns of a panel. vpmaddubsw takes 32 bytes at a time, but wants one
 * side without signs, and its sums in 16 bits have to be widened too: that is four instructions in place of two for 16 products each. */
#define I8_ROWS 6
#define I8_WORDS 256                 /* of the depth at a time */
#define I8_PITCH (4 * I8_WORDS + 32) /* between rows that are widened: they share no sets of L1 */

/* Rows of A times 8 columns of the panel: words of four, each to two sums of a column. width: of the panel. */
INLINE void i8_columns(const int rows, int64_t words, const int16_t *a, const uint16_t *b, int width, int32_t *c, int64_t ldc,
                       bool accumulate)
{
    __m256i acc[I8_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = _mm256_setzero_si256();
    for (int64_t t = 0; t < words; t++, b += 2 * width, a += 4) {
        const __m128i *from = (const __m128i *)(const void *)b;
        const __m256i left = _mm256_cvtepi8_epi16(_mm_loadu_si128(from)), right = _mm256_cvtepi8_epi16(_mm_loadu_si128(from + 1));
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            long long word;
            memcpy(&word, a + i * I8_PITCH, sizeof(word));
            const __m256i x = _mm256_set1_epi64x(word);
            acc[i][0] = _mm256_add_epi32(acc[i][0], _mm256_madd_epi16(x, left));
            acc[i][1] = _mm256_add_epi32(acc[i][1], _mm256_madd_epi16(x, right));
            __asm__ volatile("" : "+x"(acc[i][0]), "+x"(acc[i][1])); /* else gcc 12 loads all rows first, and the sums go to memory */
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        __m256i *to = (__m256i *)(void *)(c + i * ldc);
        __m256i sums = _mm256_permute4x64_epi64(_mm256_hadd_epi32(acc[i][0], acc[i][1]), 0xd8); /* columns 0, 1, 4, 5, then 2, 3, 6, 7 */
        _mm256_storeu_si256(to, accumulate ? _mm256_add_epi32(sums, _mm256_loadu_si256(to)) : sums);
    }
}

/* `words` words of a row, widened; I8_WORDS words are written, those behind them mean nothing. */
INLINE void i8_widen(int64_t words, const uint16_t *a, int16_t *to)
{
    int64_t t = 0;
    for (; t + 4 <= words; t += 4)
        _mm256_storeu_si256((__m256i *)(void *)(to + 4 * t),
                            _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(a + 2 * t))));
    for (; t < words; t++)
        _mm_storel_epi64((__m128i *)(void *)(to + 4 * t), _mm_cvtepi8_epi16(_mm_loadu_si32(a + 2 * t)));
}

/* What a row of sums begins with. */
INLINE void i8_start(int width, const int32_t *start, int32_t *c)
{
    if (start)
        memcpy(c, start, (size_t)width * sizeof(*c));
    else
        memset(c, 0, (size_t)width * sizeof(*c));
}

#define I8_COLUMNS(n)                                                                                                                   \
    static void i8_columns_##n(int64_t words, const int16_t *a, const uint16_t *b, int width, int32_t *c, int64_t ldc, bool accumulate) \
    {                                                                                                                                   \
        i8_columns(n, words, a, b, width, c, ldc, accumulate);                                                                          \
    }
I8_COLUMNS(1)
I8_COLUMNS(2)
I8_COLUMNS(4)
I8_COLUMNS(6)

typedef void i8_columns_fn(int64_t words, const int16_t *a, const uint16_t *b, int width, int32_t *c, int64_t ldc, bool accumulate);
static const struct {
    int rows;
    i8_columns_fn *columns;
} i8_heights[] = {{6, i8_columns_6}, {4, i8_columns_4}, {2, i8_columns_2}, {1, i8_columns_1}};

static void i8_block(const struct tern_dot_block *d)
{
    const int width = d->half_panel ? TERN_DOT_NR / 2 : TERN_DOT_NR;
    int16_t wide[I8_ROWS * I8_PITCH];
    for (int row = 0, h = 0; row < d->rows; row += i8_heights[h].rows) {
        int32_t *c = (int32_t *)d->c + row * d->ldc;
        bool more = d->accumulate || d->start || d->n == 0;
        while (i8_heights[h].rows > d->rows - row)
            h++;
        for (int i = 0; more && !d->accumulate && i < i8_heights[h].rows; i++)
            i8_start(width, d->start, c + i * d->ldc);
        for (int p = 0; p < d->n; p++) {
            const struct tern_dot_piece *piece = &d->pieces[p];
            for (int64_t t = 0, words; t < piece->depth; t += 2 * words, more = true) {
                words = piece->depth - t < 2 * I8_WORDS ? (piece->depth - t) / 2 : I8_WORDS;
                for (int i = 0; i < i8_heights[h].rows; i++)
                    i8_widen(words, piece->a[(row + i) / 16] + (row + i) % 16 * piece->ld + t, wide + i * I8_PITCH);
                for (int col = 0; col < width; col += 8)
                    i8_heights[h].columns(words, wide, d->panel + (piece->k0 + t) * width + 2 * col, width, c + col, d->ldc, more);
            }
        }
    }
}

#else
#define I8_ROWS 4
INLINE void i8_rows(const int rows, const int nv, const struct tern_dot_block *d, int row)
{
    const int width = nv * 8, half = row / 16, first = row % 16;
    const int64_t ldc = d->ldc;
    const int32_t *start = d->start;
    int32_t acc[I8_ROWS][TERN_DOT_NR], *c = (int32_t *)d->c + row * ldc;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            acc[i][j] = d->accumulate ? c[i * ldc + j] : start ? start[j] : 0;
    for (int p = 0; p < d->n; p++) {
        const int64_t ld = d->pieces[p].ld;
        const uint16_t *a = d->pieces[p].a[half] + first * ld, *b = d->panel + d->pieces[p].k0 * width;
        for (int64_t t = 0; t < d->pieces[p].depth; t += I8_STEP, b += width * 2)
            for (int i = 0; i < rows; i++) {
                const int8_t *x = (const int8_t *)(a + i * ld + t), *y = (const int8_t *)b;
                for (int j = 0; j < width; j++)
                    acc[i][j] += x[0] * y[4 * j] + x[1] * y[4 * j + 1] + x[2] * y[4 * j + 2] + x[3] * y[4 * j + 3];
            }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            c[i * ldc + j] = acc[i][j];
}

static void i8_block(const struct tern_dot_block *d)
{
    for (int row = 0, height; row < d->rows; row += height) {
        height = d->rows - row < I8_ROWS ? 1 : I8_ROWS;
        if (d->half_panel && height > 1)
            i8_rows(I8_ROWS, 2, d, row);
        else if (d->half_panel)
            i8_rows(1, 2, d, row);
        else if (height > 1)
            i8_rows(I8_ROWS, 4, d, row);
        else
            i8_rows(1, 4, d, row);
    }
}
#endif

#endif
/* Of both kinds of products, where the instructions do not say otherwise. */
#if !defined(DOT_ROW_STEP)
#define DOT_ROW_STEP 1
#endif
#if !defined(DOT_PAST_L1)
#define DOT_PAST_L1 false
#endif
#if !defined(DOT_TILE)
#define DOT_TILE 0
#endif
#if !defined(DOT_BLOCK)
#define DOT_BLOCK TERN_DOT_ROWS
#endif

#endif
