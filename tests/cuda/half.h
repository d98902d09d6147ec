/* f16 as a GPU converts it: for the kernels that the stand-in compiles (C++), and for its cuBLASLt. clang 14 has no _Float16 on x86. */
#ifndef TERN_TESTS_CUDA_HALF_H
#define TERN_TESTS_CUDA_HALF_H

static inline unsigned half_bits(float f)
{
    unsigned u;
    __builtin_memcpy(&u, &f, sizeof(u));
    return u;
}

static inline float half_float(unsigned u)
{
    float f;
    __builtin_memcpy(&f, &u, sizeof(f));
    return f;
}

static inline float half_to_float(unsigned short h)
{
    unsigned sign = (unsigned)(h >> 15) << 31, exponent = h >> 10 & 31u, fraction = h & 1023u;
    if (exponent == 0)
        return half_float(sign | half_bits((float)fraction * 5.9604644775390625e-8f));
    return half_float(sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13);
}

static inline unsigned short half_from_float(float v)
{
    unsigned u = half_bits(v), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return 0x7fff;
    if (a >= 0x477ff000u) /* 65520 and more round to infinity */
        return (unsigned short)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14: a multiple of 2^-24; the sum rounds to even */
        return (unsigned short)(sign | (half_bits(half_float(a) + 0.5f) - 0x3f000000u));
    return (unsigned short)(sign | ((a + 0xfffu + (a >> 13 & 1u) - 0x38000000u) >> 13));
}

#endif
