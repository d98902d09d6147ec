/* Elements of the libraries that stand in: loads and stores by dtype, rounded as the device rounds. */
#ifndef TERN_TESTS_CUDA_ELEMENT_H
#define TERN_TESTS_CUDA_ELEMENT_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tests/cuda/half.h"

enum element { ELEMENT_F32, ELEMENT_F16, ELEMENT_BF16 };

static inline size_t element_size(enum element e) { return e == ELEMENT_F32 ? 4 : 2; }

static inline float element_load(const void *at, enum element e, int64_t i)
{
    uint32_t bits;
    float f;
    if (e == ELEMENT_F16)
        return half_to_float(((const uint16_t *)at)[i]);
    bits = e == ELEMENT_F32 ? ((const uint32_t *)at)[i] : (uint32_t)((const uint16_t *)at)[i] << 16;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static inline void element_store(void *at, enum element e, int64_t i, float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof(f));
    if (e == ELEMENT_F32)
        ((float *)at)[i] = f;
    else if (e == ELEMENT_F16)
        ((uint16_t *)at)[i] = half_from_float(f);
    else
        ((uint16_t *)at)[i] = (uint16_t)(isnan(f) ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
