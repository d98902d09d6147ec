/* How int8 is made of weights. */
#ifndef TERN_OPS_QUANTIZE_H
#define TERN_OPS_QUANTIZE_H

#include "ops/kernel.h"

/* The scale of slice i along the first dimension of an input: its largest |value| / 127, in f32. No number if a value is none. */
float tern_quantize_scale_of(const struct tern_kernel_args *a, int input, int64_t i);
/* round(x / scale), limited to -127 .. 127; 0 where the scale is 0 or no number. */
double tern_quantize_value(float x, float scale);

#endif
