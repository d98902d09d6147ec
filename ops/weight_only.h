/* How weights are kept in few bits. 8 bits: int8 of -127 to 127 times the scale of an output channel, its largest |value| / 127, in f32.
 * 4 bits: -8 to 7 times the scale of 32 values of an output channel, which is the value of largest size / -8, in bf16. A channel's values
 * lie tap by tap, and channel by channel there. A scale below the least normal f32 counts as 0, and so do its values; where a value is no
 * number, or infinite, none of its channel (8) or its 32 (4) is a number.
 *
 * Packed, an output channel is a row of words of 32 bits. 8 bits: the scale's bits, then four values to a word, the first in its low bits.
 * 4 bits: for each 64 values nine words: two scales, then eight values to a word, each 8 more than it is; what is behind the depth is 0,
 * and so is its scale. A scale that is no number is 0x7fc00000, or 0x7fc0. */
#ifndef TERN_OPS_WEIGHT_ONLY_H
#define TERN_OPS_WEIGHT_ONLY_H

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ops/kernel.h"

#define TERN_WEIGHT_GROUP 32

/* Words of a row so deep. */
static inline int64_t tern_packed_words(int64_t depth, int64_t bits) { return bits == 8 ? 1 + (depth + 3) / 4 : (depth + 63) / 64 * 9; }

/* Of 8 and 4; anything else is an error, behind `st`. */
enum tern_status tern_weight_check_bits(struct tern_context *ctx, const struct tern_op_desc *d, int64_t bits, enum tern_status st);

/* What references need of a weight (O, ...) or (O, C, kh, kw), which is an input: values of a channel; the value so deep in one; the scale
 * of a channel (8 bits), and of a group of it (4). ops/weight_only.c */
int64_t tern_weight_depth(const struct tern_meta *weight);
float tern_weight_at(const struct tern_kernel_args *a, int input, int64_t channel, int64_t depth);
float tern_weight_channel_scale(const struct tern_kernel_args *a, int input, int64_t channel);
float tern_weight_group_scale(const struct tern_kernel_args *a, int input, int64_t channel, int64_t group);

static inline float tern_weight_scale(float scale)
{
    if (!isfinite(scale))
        return NAN;
    return fabsf(scale) < FLT_MIN ? 0 : scale;
}

/* In bf16, rounded to nearest even. */
static inline float tern_group_scale(int64_t n, const float *x)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= fabsf(most)) && !isnan(most)) /* NaN counts */
            most = x[i];
    float scale = tern_weight_scale(most / -8);
    uint32_t bits;
    memcpy(&bits, &scale, sizeof(bits));
    bits = isnan(scale) ? bits : (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&scale, &bits, sizeof(bits));
    return scale;
}

/* x / scale as a whole number of least .. most, to nearest even; 0 where the scale is none. */
static inline float tern_weight_value(float x, float scale, float least, float most)
{
    const float magic = 12582912.0f; /* 3 * 2^22: the last bit is worth 1 */
    if (scale == 0 || isnan(scale))
        return 0;
    float q = x / scale;
    q = q > most ? most : q < least ? least : q;
    q += magic;
    return q - magic;
}

#endif
