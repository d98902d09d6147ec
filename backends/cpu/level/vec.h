/* Vectors of f32 in the width of the level that is being compiled, by the compiler's vector types: one text for
 * every instruction set. TERN_LEVEL_<name> is defined on the command line. */
#ifndef TERN_BACKENDS_CPU_VEC_H
#define TERN_BACKENDS_CPU_VEC_H

#include <stdint.h>
#include <string.h>
#if defined(__F16C__) || defined(__AVX512F__)
#include <immintrin.h>
#endif
#if defined(TERN_LEVEL_neon) || defined(TERN_LEVEL_neondot) || defined(TERN_LEVEL_neonbf16)
#define TERN_LEVEL_NEON
#include <arm_neon.h>
#endif

#include "backends/cpu/level/level.h"

#if defined(TERN_LEVEL_avx512) || defined(TERN_LEVEL_avx512vnni) || defined(TERN_LEVEL_avx512bf16) || defined(TERN_LEVEL_amx)
#define TERN_LEVEL_512
#endif
#if defined(TERN_LEVEL_avx2) || defined(TERN_LEVEL_avxvnni)
#define TERN_LEVEL_256
#endif
#if defined(TERN_LEVEL_avx512bf16) || defined(TERN_LEVEL_amx) || defined(TERN_LEVEL_neonbf16)
#define TERN_LEVEL_BF16 /* instructions for bf16 */
#endif
#if defined(TERN_LEVEL_avxvnni) || defined(TERN_LEVEL_avx512vnni) || defined(TERN_LEVEL_avx512bf16) || defined(TERN_LEVEL_amx)
#define TERN_LEVEL_VNNI /* instructions for words of int8: every processor with avx512_bf16 has them */
#endif

/* Whose functions serve where a level's own instructions change nothing. */
#if defined(TERN_LEVEL_amx)
#define LEVEL_OVER tern_cpu_level_avx512bf16
#elif defined(TERN_LEVEL_avx512vnni)
#define LEVEL_OVER tern_cpu_level_avx512
#elif defined(TERN_LEVEL_avxvnni)
#define LEVEL_OVER tern_cpu_level_avx2
#elif defined(TERN_LEVEL_neondot)
#define LEVEL_OVER tern_cpu_level_neon
#endif

#if defined(TERN_LEVEL_amx)
#define LEVEL(name) name##_amx
#elif defined(TERN_LEVEL_avx512bf16)
#define LEVEL(name) name##_avx512bf16
#elif defined(TERN_LEVEL_avx512vnni)
#define LEVEL(name) name##_avx512vnni
#elif defined(TERN_LEVEL_avx512)
#define LEVEL(name) name##_avx512
#elif defined(TERN_LEVEL_avxvnni)
#define LEVEL(name) name##_avxvnni
#elif defined(TERN_LEVEL_avx2)
#define LEVEL(name) name##_avx2
#elif defined(TERN_LEVEL_neonbf16)
#define LEVEL(name) name##_neonbf16
#elif defined(TERN_LEVEL_neondot)
#define LEVEL(name) name##_neondot
#elif defined(TERN_LEVEL_neon)
#define LEVEL(name) name##_neon
#else
#define LEVEL(name) name##_scalar
#endif

#if defined(TERN_LEVEL_512)
#define VW 16 /* f32 per vector */
#define MR 12 /* gemm tile: 24 accumulators, 2 of B, 1 of A */
#elif defined(TERN_LEVEL_256)
#define VW 8
#define MR 6
#elif defined(TERN_LEVEL_NEON)
#define VW 4
#define MR 6 /* 24 accumulators, 4 of B, 1 of A: a row of A is read half as often as with 12 x 8 */
#define NV 4
#else
#define VW 4
#define MR 4
#endif
#ifndef NV
#define NV 2 /* vectors of a row of a panel of B */
#endif
#define NR (NV * VW)

typedef float vf __attribute__((vector_size(4 * VW)));
typedef int32_t vi __attribute__((vector_size(4 * VW)));
typedef uint32_t vu __attribute__((vector_size(4 * VW)));
typedef uint16_t vh __attribute__((vector_size(2 * VW)));

#define INLINE static inline __attribute__((always_inline))

INLINE vf v_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof(v));
    return v;
}

INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof(v)); }

INLINE vf v_set(float x) { return x - (vf){0}; }

/* a b + c, rounded once where the level has the instruction. Left to compilers, some tiles had it and others not: a row's bits depended on
 * how many rows there were. */
INLINE vf v_fma(vf a, vf b, vf c)
{
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(TERN_LEVEL_256)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(TERN_LEVEL_NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* The first n < VW values; the rest is zero, or is not written. */
#if defined(TERN_LEVEL_512)
INLINE __mmask16 v_lanes(int64_t n) { return (__mmask16)((1u << n) - 1); }
INLINE vf v_keep(vf v, int64_t n) { return (vf)_mm512_maskz_mov_ps(v_lanes(n), (__m512)v); }
INLINE vf v_load_n(const float *p, int64_t n) { return (vf)_mm512_maskz_loadu_ps(v_lanes(n), p); }
INLINE void v_store_n(float *p, vf v, int64_t n) { _mm512_mask_storeu_ps(p, v_lanes(n), (__m512)v); }
INLINE vh h_load_n(const uint16_t *p, int64_t n) { return (vh)_mm256_maskz_loadu_epi16(v_lanes(n), p); }
INLINE void h_store_n(uint16_t *p, vh h, int64_t n) { _mm256_mask_storeu_epi16(p, v_lanes(n), (__m256i)h); }
#else
INLINE vf v_keep(vf v, int64_t n)
{
    vf kept = {0};
    memcpy(&kept, &v, (size_t)n * sizeof(float));
    return kept;
}

INLINE vf v_load_n(const float *p, int64_t n)
{
    vf v = {0};
    memcpy(&v, p, (size_t)n * sizeof(float));
    return v;
}

INLINE void v_store_n(float *p, vf v, int64_t n) { memcpy(p, &v, (size_t)n * sizeof(float)); }

INLINE vh h_load_n(const uint16_t *p, int64_t n)
{
    vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof(*p));
    return h;
}

INLINE void h_store_n(uint16_t *p, vh h, int64_t n) { memcpy(p, &h, (size_t)n * sizeof(*p)); }
#endif

INLINE vh h_load(const uint16_t *p)
{
    vh h;
    memcpy(&h, p, sizeof(h));
    return h;
}

/* mask ? a : b, lane by lane; mask lanes are 0 or -1. v_max, v_min: b where one is NaN. v_zero_below: v, but zero where x is below the
 * limit. x86 has instructions for that, which GCC 12 does not find. */
#if defined(TERN_LEVEL_256)
INLINE vf v_select(vi mask, vf a, vf b) { return (vf)_mm256_blendv_ps((__m256)b, (__m256)a, (__m256)mask); }
#else
INLINE vf v_select(vi mask, vf a, vf b) { return (vf)(((vi)a & mask) | ((vi)b & ~mask)); }
#endif
#if defined(TERN_LEVEL_512)
INLINE vf v_max(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf v_min(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE vi v_larger(vi a, vi b) { return (vi)_mm512_max_epi32((__m512i)a, (__m512i)b); }
INLINE vf v_zero_below(vf x, float limit, vf v)
{
    return (vf)_mm512_maskz_mov_ps(_mm512_cmp_ps_mask((__m512)x, _mm512_set1_ps(limit), _CMP_NLT_UQ), (__m512)v);
}
#else
#if defined(TERN_LEVEL_256)
INLINE vf v_max(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf v_min(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
INLINE vi v_larger(vi a, vi b) { return (vi)_mm256_max_epi32((__m256i)a, (__m256i)b); }
#else
INLINE vf v_max(vf a, vf b) { return v_select(a > b, a, b); }
INLINE vf v_min(vf a, vf b) { return v_select(a < b, a, b); }
INLINE vi v_larger(vi a, vi b) { return (vi)v_select(a > b, (vf)a, (vf)b); }
#endif
INLINE vf v_zero_below(vf x, float limit, vf v) { return (vf)((vi)v & ~(x < limit)); }
#endif
INLINE vf v_abs(vf a) { return (vf)((vi)a & 0x7fffffff); }

#if defined(TERN_LEVEL_512)
INLINE float v_sum(vf v) { return _mm512_reduce_add_ps((__m512)v); }
INLINE float v_most(vf v) { return _mm512_reduce_max_ps((__m512)v); } /* of numbers */
#else
INLINE float v_sum(vf v)
{
    float s[VW];
    memcpy(s, &v, sizeof(v));
    for (int w = VW / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            s[i] += s[i + w];
    return s[0];
}
INLINE float v_most(vf v)
{
    float s[VW];
    memcpy(s, &v, sizeof(v));
    for (int w = VW / 2; w; w /= 2)
        for (int i = 0; i < w; i++)
            s[i] = s[i] > s[i + w] ? s[i] : s[i + w];
    return s[0];
}
#endif

/* The instructions by name: GCC 12 makes three or four of a conversion of the whole vector. */
#if defined(TERN_LEVEL_512)
INLINE vf v_widen_bf16(vh h) { return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16); }
INLINE vf v_widen_f16(vh h) { return (vf)_mm512_cvtph_ps((__m256i)h); }
#elif defined(TERN_LEVEL_256)
INLINE vf v_widen_bf16(vh h) { return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16); }
INLINE vf v_widen_f16(vh h) { return (vf)_mm256_cvtph_ps((__m128i)h); }
#elif defined(TERN_LEVEL_NEON)
INLINE vf v_widen_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }
INLINE vf v_widen_f16(vh h) { return (vf)vcvt_f32_f16((float16x4_t)h); }
#else
INLINE vf v_widen_bf16(vh h) { return (vf)(__builtin_convertvector(h, vu) << 16); }
/* By integer arithmetic: exponent re-biased; subnormal halves go through a float subtraction. */
INLINE vf v_widen_f16(vh h)
{
    vu x = __builtin_convertvector(h, vu), sign = (x & 0x8000) << 16, mag = x & 0x7fff;
    vf normal = (vf)((mag << 13) + (112u << 23));
    vf special = (vf)((mag << 13) + (224u << 23));
    vf subnormal = (vf)(mag + (126u << 23)) - 0.5f; /* mag * 2^-24 */
    vf r = v_select((vi)(mag < 0x400), subnormal, v_select((vi)(mag >= 0x7c00), special, normal));
    return (vf)((vu)r | sign);
}
#endif

INLINE vf v_from_bf16(const uint16_t *p) { return v_widen_bf16(h_load(p)); }
INLINE vf v_from_f16(const uint16_t *p) { return v_widen_f16(h_load(p)); }

#endif
