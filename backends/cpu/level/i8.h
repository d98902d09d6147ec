/* int8: values to bytes and sums to values; the products themselves where dot.h has no instruction for words of bytes. */
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
#if defined(TERN_LEVEL_avx2)
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
#if defined(TERN_LEVEL_VNNI)
    if (dtype == TERN_BF16) {
        __m256bh h = _mm512_cvtneps_pbh((__m512)v);
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

INLINE void i8_scale_of(const enum tern_dtype dtype, int64_t n, const int32_t *x, const int32_t *offset, const float *scale, float factor,
                        const float *bias, void *y)
{
    int64_t i = 0;
    for (; i + VW <= n; i += VW) {
        vf v = __builtin_convertvector((vi)v_load((const float *)x + i) - (vi)v_load((const float *)offset + i), vf);
        i8_store(dtype, y, i, v_fma(v, v_load(scale + i) * factor, bias ? v_load(bias + i) : v_set(0)));
    }
    if (i < n) {
        const int64_t left = n - i;
        vf v = __builtin_convertvector((vi)v_load_n((const float *)x + i, left) - (vi)v_load_n((const float *)offset + i, left), vf);
        i8_store_n(dtype, y, i, left, v_fma(v, v_load_n(scale + i, left) * factor, bias ? v_load_n(bias + i, left) : v_set(0)));
    }
}

/* y may be x. */
static void i8_scale(enum tern_dtype dtype, int64_t n, const int32_t *x, const int32_t *offset, const float *scale, float factor,
                     const float *bias, void *y)
{
    FOR_DTYPE(dtype, i8_scale_of, n, x, offset, scale, factor, bias, y)
}

#if !defined(TERN_LEVEL_VNNI)

#define I8_STEP 2

static void i8_begin(void) {}
static void i8_end(void) {}

#if defined(TERN_LEVEL_512) || defined(TERN_LEVEL_avx2)
#define I8_ROWS 2
/* Rows of A times a panel of 8 nv columns. Products of two pairs of bytes go into 16 bits: 2 * 127 * 127 fits. */
INLINE void i8_rows(const int rows, const int nv, int n, const struct tern_dot_piece *pieces, int half, int first, const uint16_t *panel,
                    int32_t *c, int64_t ldc, bool accumulate)
{
    const __m256i one = _mm256_set1_epi16(1);
    __m256i acc[I8_ROWS][4];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < nv; j++)
            acc[i][j] = accumulate ? _mm256_loadu_si256((const __m256i *)(const void *)(c + i * ldc + j * 8)) : _mm256_setzero_si256();
    for (int p = 0; p < n; p++) {
        const uint16_t *a = pieces[p].a[half] + first * pieces[p].ld, *b = panel + pieces[p].k0 * nv * 8;
        for (int64_t t = 0; t < pieces[p].depth; t += I8_STEP, b += nv * 16)
            for (int i = 0; i < rows; i++) {
                int32_t word;
                memcpy(&word, a + i * pieces[p].ld + t, sizeof(word));
                __m256i x = _mm256_set1_epi32(word), size = _mm256_abs_epi8(x);
                for (int j = 0; j < nv; j++) {
                    __m256i y = _mm256_sign_epi8(_mm256_loadu_si256((const __m256i *)(const void *)(b + j * 16)), x);
                    acc[i][j] = _mm256_add_epi32(acc[i][j], _mm256_madd_epi16(_mm256_maddubs_epi16(size, y), one));
                }
            }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < nv; j++)
            _mm256_storeu_si256((__m256i *)(void *)(c + i * ldc + j * 8), acc[i][j]);
}
#else
#define I8_ROWS 4
INLINE void i8_rows(const int rows, const int nv, int n, const struct tern_dot_piece *pieces, int half, int first, const uint16_t *panel,
                    int32_t *c, int64_t ldc, bool accumulate)
{
    const int width = nv * 8;
    int32_t acc[I8_ROWS][TERN_DOT_NR];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            acc[i][j] = accumulate ? c[i * ldc + j] : 0;
    for (int p = 0; p < n; p++) {
        const uint16_t *a = pieces[p].a[half] + first * pieces[p].ld, *b = panel + pieces[p].k0 * width;
        for (int64_t t = 0; t < pieces[p].depth; t += I8_STEP, b += width * 2)
            for (int i = 0; i < rows; i++) {
                const int8_t *x = (const int8_t *)(a + i * pieces[p].ld + t), *y = (const int8_t *)b;
                for (int j = 0; j < width; j++)
                    acc[i][j] += x[0] * y[4 * j] + x[1] * y[4 * j + 1] + x[2] * y[4 * j + 2] + x[3] * y[4 * j + 3];
            }
    }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < width; j++)
            c[i * ldc + j] = acc[i][j];
}
#endif

static void i8_block(int rows, int n, const struct tern_dot_piece *pieces, const uint16_t *panel, const uint16_t *next, bool half_panel,
                     void *sums, int64_t ldc, bool accumulate)
{
    int32_t *c = sums;
    for (int i = 0, height; i < rows; i += height, c += height * ldc) {
        const int half = i / 16, first = i % 16;
        height = rows - i < I8_ROWS ? 1 : I8_ROWS;
        if (half_panel && height > 1)
            i8_rows(I8_ROWS, 2, n, pieces, half, first, panel, c, ldc, accumulate);
        else if (half_panel)
            i8_rows(1, 2, n, pieces, half, first, panel, c, ldc, accumulate);
        else if (height > 1)
            i8_rows(I8_ROWS, 4, n, pieces, half, first, panel, c, ldc, accumulate);
        else
            i8_rows(1, 4, n, pieces, half, first, panel, c, ldc, accumulate);
    }
}

#endif
#endif
