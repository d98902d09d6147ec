/* How int8 is made of values. */
#ifndef TERN_OPS_QUANTIZE_H
#define TERN_OPS_QUANTIZE_H

#include "ops/kernel.h"

/* The scale of slice i along the first dimension of an input: its largest |value| / 127, in f32. No number if a value is none. */
float tern_quantize_scale_of(const struct tern_kernel_args *a, int input, int64_t i);
/* round(x / scale), limited to -127 .. 127; 0 where the scale is 0 or no number. */
double tern_quantize_value(float x, float scale);

/* Of what comes into a product: what the values of a row or picture, of which `most` is the largest |value|, are multiplied with, and what
 * each whole number then counts. No number where a value is none. */
struct tern_quantize_factors {
    float in, out;
};
struct tern_quantize_factors tern_quantize_factors_of(float most);

#endif
