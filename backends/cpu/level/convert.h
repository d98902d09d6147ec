/* f16 and bf16 to f32 and back. */
#ifndef TERN_BACKENDS_CPU_CONVERT_H
#define TERN_BACKENDS_CPU_CONVERT_H

#include "backends/cpu/level/vec.h"

static void to_f32(enum tern_dtype dtype, int64_t n, const void *x, float *y)
{
    const uint16_t *h = x;
    int64_t i = 0;
    if (dtype == TERN_F32) {
        memcpy(y, x, (size_t)n * sizeof(float));
        return;
    }
    for (; i + VW <= n; i += VW)
        v_store(y + i, dtype == TERN_F16 ? v_from_f16(h + i) : v_from_bf16(h + i));
    if (i < n) {
        uint16_t tail[VW] = {0};
        memcpy(tail, h + i, (size_t)(n - i) * sizeof(*h));
        v_store_n(y + i, dtype == TERN_F16 ? v_from_f16(tail) : v_from_bf16(tail), n - i);
    }
}

/* Nearest even; NaN stays NaN. */
INLINE vh to_bf16(vf x)
{
    vu u = (vu)x;
    vu rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    vu nan = (u >> 16) | 0x40;
    vu mask = (vu)(x != x);
    return __builtin_convertvector((nan & mask) | (rounded & ~mask), vh);
}

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

static void from_f32(enum tern_dtype dtype, int64_t n, const float *x, void *y)
{
    uint16_t *h = y;
    int64_t i = 0;
    if (dtype == TERN_F32) {
        memcpy(y, x, (size_t)n * sizeof(float));
        return;
    }
    for (; i < n; i += VW) {
        int64_t left = n - i < VW ? n - i : VW;
        vf v = left == VW ? v_load(x + i) : v_load_n(x + i, left);
        vh r = dtype == TERN_F16 ? to_f16(v) : to_bf16(v);
        memcpy(h + i, &r, (size_t)left * sizeof(*h));
    }
}

#endif
