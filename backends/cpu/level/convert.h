/* f16 and bf16 to f32 and back. */
#ifndef TERN_BACKENDS_CPU_CONVERT_H
#define TERN_BACKENDS_CPU_CONVERT_H

#include "backends/cpu/level/vec.h"

/* Nearest even; NaN stays NaN. By integers also where there is an instruction: that one takes denormals for zero. */
#if defined(TERN_LEVEL_512)
INLINE vh to_bf16(vf x)
{
    const __m512i odd = _mm512_set_epi16(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7,
                                         5, 3, 1); /* the high halves; of the other 16 nothing is used */
    vu u = (vu)x;
    __m512i rounded = (__m512i)(u + 0x7fff + ((u >> 16) & 1));
    rounded = _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_UNORD_Q), (__m512i)u, _mm512_set1_epi32(1 << 22));
    return (vh)_mm512_castsi512_si256(_mm512_permutexvar_epi16(odd, rounded));
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
