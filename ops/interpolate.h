/* Which pixel interpolate takes. */
#ifndef TERN_OPS_INTERPOLATE_H
#define TERN_OPS_INTERPOLATE_H

#include <math.h>
#include <stdint.h>

/* That of output position o by mode nearest, by `scale` if one was given, else by the sizes. PyTorch computes this in f32, and twice the
 * size and the same size by themselves, whatever the scale is; so must everyone, because the result is an index. */
static inline int64_t tern_nearest(int64_t o, int64_t in, int64_t out, double scale)
{
    if (out == in)
        return o;
    if (out == 2 * in)
        return o / 2;
    const float step = scale > 0 ? (float)(1.0 / scale) : (float)in / (float)out;
    const int64_t i = (int64_t)floorf((float)o * step);
    return i < in - 1 ? i : in - 1;
}

#endif
