/* Element access for the references: conversions between double, i64 and every dtype, rounded once; and their moments. */
#include "ops/reference.h"

#include <math.h>

/* A float of 1 sign, 15 - m exponent and m mantissa bits (m = 10: f16, m = 7: bf16). */
static uint16_t encode(double value, int m)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    uint16_t sign = (uint16_t)(bits >> 63 << 15);
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff), bias = (1 << (14 - m)) - 1, shift = 52 - m;
    uint64_t infinity = (((uint64_t)1 << (15 - m)) - 1) << m;
    if (exponent == 0x7ff)
        return sign | (uint16_t)(infinity | (fraction ? (uint64_t)1 << (m - 1) | fraction >> shift : 0));
    if (exponent == 0)
        return sign; /* denormal doubles are far below both formats */
    fraction |= (uint64_t)1 << 52;
    exponent += bias - 1023;
    if (exponent < 1) { /* denormal in the target */
        shift += 1 - exponent;
        exponent = 1;
    }
    if (shift > 53)
        return sign; /* below half of the smallest denormal */
    uint64_t q = fraction >> shift, rest = fraction & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    q += rest > half || (rest == half && (q & 1));
    q += (uint64_t)(exponent - 1) << m; /* q holds the leading 1, and a carry moves up the exponent */
    return sign | (uint16_t)(q < infinity ? q : infinity);
}

static float from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

static float decode_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h >> 15) << 31, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 0)
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000u | fraction << 13);
    return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

/* C leaves the conversion of NaN and of large values open. */
static int64_t to_i64(double v)
{
    if (v >= 0x1p63)
        return INT64_MAX;
    if (v <= -0x1p63)
        return INT64_MIN;
    return v == v ? (int64_t)v : 0;
}

double tern_load(enum tern_dtype dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TERN_F32:
        return ((const float *)p)[i];
    case TERN_F16:
        return decode_f16(((const uint16_t *)p)[i]);
    case TERN_BF16:
        return from_bits((uint32_t)((const uint16_t *)p)[i] << 16);
    default:
        return (double)tern_load_i64(dtype, p, i);
    }
}

int64_t tern_load_i64(enum tern_dtype dtype, const void *p, int64_t i)
{
    switch (dtype) {
    case TERN_I8:
        return ((const int8_t *)p)[i];
    case TERN_U8:
        return ((const uint8_t *)p)[i];
    case TERN_I32:
        return ((const int32_t *)p)[i];
    case TERN_I64:
        return ((const int64_t *)p)[i];
    case TERN_BOOL:
        return ((const uint8_t *)p)[i] != 0;
    default:
        return to_i64(tern_load(dtype, p, i));
    }
}

void tern_store(enum tern_dtype dtype, void *p, int64_t i, double value)
{
    switch (dtype) {
    case TERN_F32:
        ((float *)p)[i] = (float)value;
        break;
    case TERN_F16:
        ((uint16_t *)p)[i] = encode(value, 10);
        break;
    case TERN_BF16:
        ((uint16_t *)p)[i] = encode(value, 7);
        break;
    case TERN_BOOL:
        ((uint8_t *)p)[i] = value != 0;
        break;
    default:
        tern_store_i64(dtype, p, i, to_i64(value));
        break;
    }
}

void tern_store_i64(enum tern_dtype dtype, void *p, int64_t i, int64_t value)
{
    switch (dtype) {
    case TERN_F32:
        ((float *)p)[i] = (float)value;
        break; /* not through double: that would round twice */
    case TERN_I8:
        ((int8_t *)p)[i] = (int8_t)value;
        break;
    case TERN_U8:
        ((uint8_t *)p)[i] = (uint8_t)value;
        break;
    case TERN_I32:
        ((int32_t *)p)[i] = (int32_t)value;
        break;
    case TERN_I64:
        ((int64_t *)p)[i] = value;
        break;
    case TERN_BOOL:
        ((uint8_t *)p)[i] = value != 0;
        break;
    default:
        tern_store(dtype, p, i, (float)value);
        break; /* by way of f32, as PyTorch */
    }
}

int64_t tern_offset_of(int64_t position, int ndim, const int64_t *shape, const int64_t *stride)
{
    int64_t offset = 0;
    for (int i = ndim - 1; i >= 0; i--) {
        offset += position % shape[i] * stride[i];
        position /= shape[i];
    }
    return offset;
}

void tern_moments(const struct tern_kernel_args *a, int64_t from, int ndim, const int64_t *shape, const int64_t *stride, int64_t n,
                  bool centred, double *mean, double *square)
{
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n && centred; j++)
        sum += tern_in(a, 0, from + tern_offset_of(j, ndim, shape, stride));
    *mean = centred ? sum / (double)n : 0;
    for (int64_t j = 0; j < n; j++) {
        double deviation = tern_in(a, 0, from + tern_offset_of(j, ndim, shape, stride)) - *mean;
        squares += deviation * deviation;
    }
    *square = squares / (double)n;
}

void tern_in_row(const void *args, const struct tern_row *row, double *out)
{
    const struct tern_kernel_args *a = args;
    const enum tern_dtype dtype = a->desc->in[row->input].dtype;
    const void *p = tern_arg_host(&a->in[row->input]);
    const int64_t n = row->n, step = row->step;
    int64_t at = row->offset;
    if (dtype == TERN_F32) /* apart, since sanitizers check what a call for each element does */
        for (int64_t i = 0; i < n; i++, at += step)
            out[i] = ((const float *)p)[at];
    else
        for (int64_t i = 0; i < n; i++, at += step)
            out[i] = tern_load(dtype, p, at);
}

void tern_dots(int n, double *sums, const struct tern_row *x, struct tern_row w, tern_row_fn values, const void *arg)
{
    double a[256], b[256];
    const int64_t whole = w.n;
    for (int64_t done = 0; done < whole; done += w.n) {
        w.n = whole - done < 256 ? whole - done : 256;
        values(arg, &w, b);
        for (int k = 0; k < n; k++) {
            struct tern_row row = x[k];
            if (row.n == 0)
                continue;
            row.offset += done * row.step;
            row.depth += done;
            row.n = w.n;
            values(arg, &row, a);
            double sum = sums[k];
            for (int64_t i = 0; i < row.n; i++)
                sum += a[i] * b[i];
            sums[k] = sum;
        }
        w.offset += w.n * w.step;
        w.depth += w.n;
    }
}

double tern_dot_linear(const struct tern_kernel_args *a, double sum, int64_t from, int64_t j, tern_row_fn values, const void *arg)
{
    const struct tern_meta *x = &a->desc->in[0], *w = &a->desc->in[1];
    const struct tern_row row = {0, from, x->stride[x->ndim - 1], 0, w->shape[1]};
    tern_dots(1, &sum, &row, (struct tern_row){1, j * w->stride[0], w->stride[1], 0, w->shape[1]}, values, arg);
    return sum;
}
