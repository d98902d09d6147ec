/* What the references share: element access by any dtype, walking over strided memory, moments. */
#ifndef TERN_OPS_REFERENCE_H
#define TERN_OPS_REFERENCE_H

#include <string.h>

#include "ops/kernel.h"

/* Element at `index` (in elements from p). Integers beyond 2^53 lose their last bits: use tern_load_i64 for ids. */
double tern_load(enum tern_dtype dtype, const void *p, int64_t index);
/* Rounds once, to nearest even, for f32, f16 and bf16, NaN stays NaN; integers truncate towards zero, are limited to
 * the range of i64 (NaN gives 0) and wrap below it; bool is x != 0. */
void tern_store(enum tern_dtype dtype, void *p, int64_t index, double value);
int64_t tern_load_i64(enum tern_dtype dtype, const void *p, int64_t index);
/* Integers wrap; bool is x != 0. */
void tern_store_i64(enum tern_dtype dtype, void *p, int64_t index, int64_t value);

/* Row-major position -> offset in elements for these strides. */
int64_t tern_offset_of(int64_t position, int ndim, const int64_t *shape, const int64_t *stride);

/* Mean (0 without `centred`) and mean square deviation from it of n elements of input 0 that begin at `from`; NaN without any. */
void tern_moments(const struct tern_kernel_args *a, int64_t from, int ndim, const int64_t *shape, const int64_t *stride, int64_t n,
                  bool centred, double *mean, double *square);

/* Elements of an input, which a product of rows takes: n of them from an offset on, `step` apart. The first is `depth` deep in its row. */
struct tern_row {
    int input;
    int64_t offset, step, depth, n;
};

/* The values of a row. */
typedef void (*tern_row_fn)(const void *arg, const struct tern_row *row, double *out);

/* To each of n sums the products of the values of its row x and of w, one after the other. Rows are as long as w, or have no elements. */
void tern_dots(int n, double *sums, const struct tern_row *x, struct tern_row w, tern_row_fn values, const void *arg);

/* Of a linear layer: sum + the row of x (input 0) that begins at `from` times row j of the weight (input 1). */
double tern_dot_linear(const struct tern_kernel_args *a, double sum, int64_t from, int64_t j, tern_row_fn values, const void *arg);

/* Results of a convolution from number `first` on, of its channel alone and at most so many, before bias and scales: the sums over a filter
 * of elements of x (input 0) times those of the weight (input 1). Depth: tap x input channels + channel. Returns how many there are. */
#define TERN_CONVOLVED 16
int tern_convolve(const struct tern_kernel_args *a, int64_t first, tern_row_fn values, const void *arg, double sums[TERN_CONVOLVED]);

/* The bits of one element of `size` bytes. */
static inline void tern_copy_element(size_t size, void *dst, int64_t to, const void *src, int64_t from)
{
    memcpy((char *)dst + (size_t)to * size, (const char *)src + (size_t)from * size, size);
}

/* Offset of a row-major position in a tensor of that meta. */
static inline int64_t tern_meta_offset(const struct tern_meta *m, int64_t position)
{
    return tern_offset_of(position, m->ndim, m->shape, m->stride);
}

/* Input i as the double at an offset in elements. */
static inline double tern_in(const struct tern_kernel_args *a, int i, int64_t offset)
{
    return tern_load(a->desc->in[i].dtype, tern_arg_host(&a->in[i]), offset);
}

/* The values of a row as they are; args: struct tern_kernel_args. */
void tern_in_row(const void *args, const struct tern_row *row, double *out);

static inline void tern_out(const struct tern_kernel_args *a, int64_t offset, double value)
{
    tern_store(a->desc->out.dtype, tern_arg_host(&a->out), offset, value);
}

#endif
