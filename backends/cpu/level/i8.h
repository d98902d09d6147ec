/* int8: values to bytes and sums to values; the products themselves where bf16.h has none for words of bytes. */
#ifndef TERN_BACKENDS_CPU_LEVEL_I8_H
#define TERN_BACKENDS_CPU_LEVEL_I8_H

#include "backends/cpu/level/bf16.h"
#include "backends/cpu/level/convert.h"

typedef uint8_t vb __attribute__((vector_size(VW)));

#if defined(TERN_LEVEL_VNNI)
#define I8_ZERO 128 /* vpdpbusd and tdpbusd take A unsigned */
#else
#define I8_ZERO 0
#endif

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

INLINE float i8_most_of(const enum tern_dtype dtype, int64_t n, const void *x)
{
    vi most[I8_SUMS] = {{0}};
    int64_t i = 0;
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

INLINE void i8_quantize_of(const enum tern_dtype dtype, int64_t n, const void *x, float factor, uint8_t *y)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vb b = v_bytes(v_to_int(v_load_as(dtype, x, i) * factor) + I8_ZERO);
        memcpy(y + i, &b, sizeof(b));
    }
    if (i < n) {
        vb b = v_bytes(v_to_int(v_load_as_n(dtype, x, i, n - i) * factor) + I8_ZERO);
        memcpy(y + i, &b, (size_t)(n - i));
    }
}

static void i8_quantize(enum tern_dtype dtype, int64_t n, const void *x, float factor,
                        uint8_t *y){FOR_DTYPE(dtype, i8_quantize_of, n, x, factor, y)}

/* A result in bf16, where there are instructions for it: they take denormals for zero, as the products do. */
INLINE void i8_store(const enum tern_dtype dtype, void *y, int64_t i, vf v)
{
#if defined(TERN_LEVEL_512) && defined(TERN_LEVEL_BF16)
    if (dtype == TERN_BF16) {
        __m256bh h = _mm512_cvtneps_pbh((__m512)v);
        memcpy((uint16_t *)y + i, &h, sizeof(h));
        return;
    }
#elif defined(TERN_LEVEL_neonbf16)
    if (dtype == TERN_BF16) {
        bfloat16x4_t h = vcvt_bf16_f32((float32x4_t)v);
        memcpy((uint16_t *)y + i, &h, sizeof(h));
        return;
    }
#endif
    v_store_as(dtype, y, i, v);
}

/* The first n of them. */
INLINE void i8_store_n(const enum tern_dtype dtype, void *y, int64_t i, int64_t n, vf v)
{
    if (n >= VW)
        i8_store(dtype, y, i, v);
    else if (dtype == TERN_F32)
        v_store_n((float *)y + i, v, n);
    else {
        uint16_t whole[VW];
        i8_store(dtype, whole, 0, v);
        memcpy((uint16_t *)y + i, whole, (size_t)n * sizeof(*whole));
    }
}

/* Values i .. i + n of a vector's width, of an array of f32 or of words. */
INLINE vf i8_lanes(const void *p, int64_t i, int64_t n)
{
    return n < VW ? v_load_n((const float *)p + i, n) : v_load((const float *)p + i);
}

/* Columns c .. c + n, of one vector or two whole ones, of all rows: what columns have in common stays in registers. bytes: x are sums of
 * int8, else values. more: its dtype, or TERN_I32 where there is none. */
INLINE void i8_scale_columns(const bool bytes, const enum tern_dtype dtype, const enum tern_dtype more, int64_t rows, int64_t c, int64_t n,
                             const int32_t *x, int64_t ldx, const struct tern_i8_values *s, void *y, int64_t ldy)
{
    const int vectors = n > VW ? 2 : 1;
    vi offset[2];
    vf scale[2], bias[2];
    for (int j = 0; bytes && j < vectors; j++) {
        offset[j] = (vi)i8_lanes(s->offset, c + j * VW, n);
        scale[j] = i8_lanes(s->scale, c + j * VW, n);
        bias[j] = s->bias ? i8_lanes(s->bias, c + j * VW, n) : v_set(0);
    }
    for (int64_t r = 0; r < rows; r++)
        for (int j = 0; j < vectors; j++) {
            const int64_t i = c + j * VW;
            vf v = i8_lanes(x + r * ldx, i, n);
            if (bytes)
                v = v_fma(__builtin_convertvector((vi)v - offset[j], vf), scale[j] * s->factor[r], bias[j]);
            if (more != TERN_I32)
                v += n < VW ? v_load_as_n(more, s->more[r], i, n) : v_load_as(more, s->more[r], i);
            i8_store_n(dtype, y, r * ldy + i, n, v);
        }
}

INLINE void i8_scale_more(const bool bytes, const enum tern_dtype dtype, const enum tern_dtype more, int64_t rows, int64_t n,
                          const int32_t *x, int64_t ldx, const struct tern_i8_values *s, void *y, int64_t ldy)
{
    const struct tern_i8_values local = *s; /* that y does not touch */
    int64_t c = 0;
    for (; c + 2 * VW <= n; c += 2 * VW)
        i8_scale_columns(bytes, dtype, more, rows, c, 2 * VW, x, ldx, &local, y, ldy);
    for (; c + VW <= n; c += VW)
        i8_scale_columns(bytes, dtype, more, rows, c, VW, x, ldx, &local, y, ldy);
    if (c < n)
        i8_scale_columns(bytes, dtype, more, rows, c, n - c, x, ldx, &local, y, ldy);
}

INLINE void i8_scale_of(const enum tern_dtype dtype, const bool bytes, int64_t rows, int64_t n, const int32_t *x, int64_t ldx,
                        const struct tern_i8_values *s, void *y, int64_t ldy)
{
    if (!s->more)
        i8_scale_more(bytes, dtype, TERN_I32, rows, n, x, ldx, s, y, ldy);
    else if (s->more_dtype == TERN_F32)
        i8_scale_more(bytes, dtype, TERN_F32, rows, n, x, ldx, s, y, ldy);
    else if (s->more_dtype == TERN_F16)
        i8_scale_more(bytes, dtype, TERN_F16, rows, n, x, ldx, s, y, ldy);
    else
        i8_scale_more(bytes, dtype, TERN_BF16, rows, n, x, ldx, s, y, ldy);
}

static void i8_scale(enum tern_dtype dtype, int64_t rows, int64_t n, const int32_t *x, int64_t ldx, const struct tern_i8_values *s, void *y,
                     int64_t ldy)
{
    FOR_DTYPE(dtype, i8_scale_of, true, rows, n, x, ldx, s, y, ldy)
}

#if !defined(LEVEL_OVER)
static void store_rows(enum tern_dtype dtype, int64_t rows, int64_t n, const float *x, int64_t ldx, const void *const *more,
                       enum tern_dtype more_dtype, void *y, int64_t ldy)
{
    const struct tern_i8_values s = {.more = more, .more_dtype = more_dtype};
    FOR_DTYPE(dtype, i8_scale_of, false, rows, n, (const int32_t *)(const void *)x, ldx, &s, y, ldy)
}
#endif

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
#endif
