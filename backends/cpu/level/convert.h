/* f16 and bf16 to f32 and back. */
#ifndef TERN_BACKENDS_CPU_CONVERT_H
#define TERN_BACKENDS_CPU_CONVERT_H

#include "backends/cpu/level/vec.h"

/* Nearest even; NaN stays NaN. By integers also where there is an instruction: that one takes denormals for zero. */
#if defined(TERN_LEVEL_512)
/* In the high halves; of the other 16 bits of each nothing is to be used. */
INLINE __m512i rounded_bf16(vf x)
{
    vu u = (vu)x;
    __m512i rounded = (__m512i)(u + 0x7fff + ((u >> 16) & 1));
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), (__m512i)u, _mm512_set1_epi32(1 << 22));
}

INLINE __m512i odd_words(__m512i a, __m512i b)
{
    const __m512i odd = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21, 19, 17, 15,
                                         13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, odd, b);
}

INLINE vh to_bf16(vf x)
{
    __m512i rounded = rounded_bf16(x);
    return (vh)_mm512_castsi512_si256(odd_words(rounded, rounded));
}

#define DENORMAL 0x20

/* Those of a before those of b. */
INLINE __m512i two_to_bf16(vf a, vf b)
{
#if defined(TERN_LEVEL_BF16)
    if (__builtin_expect(_kortestz_mask16_u8(_mm512_fpclass_ps_mask((__m512)a, DENORMAL), _mm512_fpclass_ps_mask((__m512)b, DENORMAL)), 1))
        return (__m512i)_mm512_cvtne2ps_pbh((__m512)b, (__m512)a);
#endif
    return odd_words(rounded_bf16(a), rounded_bf16(b));
}
#else
INLINE vh to_bf16(vf x)
{
    vu u = (vu)x;
    vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    vu nan = (u >> 16) | 0x40;
    vu mask = (vu)(x != x);
    return __builtin_convertvector((nan & mask) | (rounded & ~mask), vh);
}
#endif

#if defined(TERN_LEVEL_512)
INLINE vh to_f16(vf x) { return (vh)_mm512_cvtps_ph((__m512)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(TERN_LEVEL_256)
INLINE vh to_f16(vf x) { return (vh)_mm256_cvtps_ph((__m256)x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(TERN_LEVEL_NEON)
INLINE vh to_f16(vf x) { return (vh)vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)x)); }
#else
/* Nearest even by magic numbers: the addition of a float with the right exponent does the rounding of subnormals. */
INLINE vh to_f16(vf x)
{
    vu u = (vu)x, sign = (u >> 16) & 0x8000, mag = u & 0x7fffffff;
    vu odd = (mag >> 13) & 1;
    vu normal = (mag + 0xc8000fff + odd) >> 13; /* re-bias by -112 << 23, round */
    vu subnormal = (vu)((vf)mag + 0.5f) - 0x3f000000;
    vu inf = {0};
    inf += 0x7c00;
    vu nan = inf | 0x200 | ((mag >> 13) & 0x3ff);
    vu big = (vu)(mag >= 0x477ff000), small = (vu)(mag < 0x38800000), is_nan = (vu)(mag > 0x7f800000);
    vu r = (subnormal & small) | (normal & ~small);
    r = (inf & big) | (r & ~big);
    r = (nan & is_nan) | (r & ~is_nan);
    return __builtin_convertvector(r | sign, vh);
}
#endif

/* VW values from element i on of an array of that dtype, which is a constant wherever these are inlined. */
INLINE vf v_load_as(const enum tern_dtype dtype, const void *p, int64_t i)
{
    const uint16_t *h = (const uint16_t *)p + i;
    return dtype == TERN_F32 ? v_load((const float *)p + i) : dtype == TERN_F16 ? v_from_f16(h) : v_from_bf16(h);
}

/* 2 VW values from element i on, in any order. */
INLINE void v_load_any_two_as(const enum tern_dtype dtype, const void *p, int64_t i, vf v[2])
{
#if defined(TERN_LEVEL_512)
    if (dtype == TERN_BF16) { /* those in even places and those in odd ones */
        const __m512i pairs = _mm512_loadu_si512((const uint16_t *)p + i);
        v[0] = (vf)_mm512_slli_epi32(pairs, 16);
        v[1] = (vf)_mm512_and_si512(pairs, _mm512_set1_epi32((int)0xffff0000));
        return;
    }
#endif
    v[0] = v_load_as(dtype, p, i);
    v[1] = v_load_as(dtype, p, i + VW);
}

/* The first n < VW of them; the rest is zero. */
INLINE vf v_load_as_n(const enum tern_dtype dtype, const void *p, int64_t i, int64_t n)
{
    if (dtype == TERN_F32)
        return v_load_n((const float *)p + i, n);
    vh h = h_load_n((const uint16_t *)p + i, n);
    return dtype == TERN_F16 ? v_widen_f16(h) : v_widen_bf16(h);
}

INLINE void v_store_as(const enum tern_dtype dtype, void *p, int64_t i, vf v)
{
    if (dtype == TERN_F32) {
        v_store((float *)p + i, v);
        return;
    }
    vh h = dtype == TERN_F16 ? to_f16(v) : to_bf16(v);
    memcpy((uint16_t *)p + i, &h, sizeof(h));
}

/* Whether two vectors at once are stored in less time than one after the other. */
INLINE bool stores_two(const enum tern_dtype dtype)
{
#if defined(TERN_LEVEL_512)
    return dtype == TERN_BF16;
#else
    return false;
#endif
}

/* 2 VW values from element i on. */
INLINE void v_store_two_as(const enum tern_dtype dtype, void *p, int64_t i, vf a, vf b)
{
#if defined(TERN_LEVEL_512)
    if (dtype == TERN_BF16) {
        _mm512_storeu_si512((uint16_t *)p + i, two_to_bf16(a, b));
        return;
    }
#endif
    v_store_as(dtype, p, i, a);
    v_store_as(dtype, p, i + VW, b);
}

/* 4 VW values from element i on, in less time than two and two: where no result is zero none was a denormal. */
INLINE void v_store_four_as(const enum tern_dtype dtype, void *p, int64_t i, const vf v[4])
{
#if defined(TERN_LEVEL_512) && defined(TERN_LEVEL_BF16)
    if (dtype == TERN_BF16) {
        const __m512i a = (__m512i)_mm512_cvtne2ps_pbh((__m512)v[1], (__m512)v[0]),
                      b = (__m512i)_mm512_cvtne2ps_pbh((__m512)v[3], (__m512)v[2]);
        const __m512i magnitude = _mm512_set1_epi16(0x7fff);
        if (__builtin_expect(_kortestz_mask32_u8(_mm512_testn_epi16_mask(a, magnitude), _mm512_testn_epi16_mask(b, magnitude)), 1)) {
            _mm512_storeu_si512((uint16_t *)p + i, a);
            _mm512_storeu_si512((uint16_t *)p + i + 2 * VW, b);
            return;
        }
    }
#endif
    v_store_two_as(dtype, p, i, v[0], v[1]);
    v_store_two_as(dtype, p, i + 2 * VW, v[2], v[3]);
}

INLINE void v_store_as_n(const enum tern_dtype dtype, void *p, int64_t i, vf v, int64_t n)
{
    if (dtype == TERN_F32)
        v_store_n((float *)p + i, v, n);
    else
        h_store_n((uint16_t *)p + i, dtype == TERN_F16 ? to_f16(v) : to_bf16(v), n);
}

INLINE float load_as(const enum tern_dtype dtype, const void *p, int64_t i)
{
    return dtype == TERN_F32 ? ((const float *)p)[i] : v_load_as_n(dtype, p, i, 1)[0];
}

INLINE void convert(const enum tern_dtype from, const enum tern_dtype to, int64_t n, const void *x, void *y)
{
    int64_t i = 0;
    for (; stores_two(to) && i + 4 * VW <= n; i += 4 * VW)
        v_store_four_as(to, y, i,
                        (vf[]){v_load_as(from, x, i), v_load_as(from, x, i + VW), v_load_as(from, x, i + 2 * VW),
                               v_load_as(from, x, i + 3 * VW)});
    for (; stores_two(to) && i + 2 * VW <= n; i += 2 * VW)
        v_store_two_as(to, y, i, v_load_as(from, x, i), v_load_as(from, x, i + VW));
    for (; i + VW <= n; i += VW)
        v_store_as(to, y, i, v_load_as(from, x, i));
    if (i < n)
        v_store_as_n(to, y, i, v_load_as_n(from, x, i, n - i), n - i);
}

#if !defined(LEVEL_OVER)
static void to_f32(enum tern_dtype dtype, int64_t n, const void *x, float *y)
{
    if (dtype == TERN_F32)
        memcpy(y, x, (size_t)n * sizeof(float));
    else if (dtype == TERN_F16)
        convert(TERN_F16, TERN_F32, n, x, y);
    else
        convert(TERN_BF16, TERN_F32, n, x, y);
}

static void from_f32(enum tern_dtype dtype, int64_t n, const float *x, void *y)
{
    if (dtype == TERN_F32)
        memcpy(y, x, (size_t)n * sizeof(float));
    else if (dtype == TERN_F16)
        convert(TERN_F32, TERN_F16, n, x, y);
    else
        convert(TERN_F32, TERN_BF16, n, x, y);
}
#endif

/* f(dtype, …) with a dtype that is a constant there: one text, three loops. */
#define FOR_DTYPE(dtype, f, ...)   \
    switch (dtype) {               \
    case TERN_F16:                 \
        f(TERN_F16, __VA_ARGS__);  \
        break;                     \
    case TERN_BF16:                \
        f(TERN_BF16, __VA_ARGS__); \
        break;                     \
    default:                       \
        f(TERN_F32, __VA_ARGS__);  \
    }

#endif
