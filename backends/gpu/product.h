/* Products of dense matrices, as libraries for linear algebra take them: matmul and linear, by their strides. */
#ifndef TERN_BACKENDS_GPU_PRODUCT_H
#define TERN_BACKENDS_GPU_PRODUCT_H

#include "ops/op.h"

/* A matrix by rows: one of its dimensions is contiguous. */
struct tern_gpu_matrix {
    int64_t ld; /* elements from a row to the next; of a transposed one from a column to the next */
    int64_t batch_stride;
    bool transposed; /* columns are contiguous */
};

/* y (m, n) = a (m, k) b (k, n), `batch` times. */
struct tern_gpu_product {
    int64_t m, n, k, batch;
    struct tern_gpu_matrix a, b, y; /* y is not transposed */
    int bias;                       /* input with n values of the output's dtype, one after the other; -1: none */
};

/* False when a description is no such product: other strides, mixed dtypes, nothing to do. Posts are not looked at. */
bool tern_gpu_product_of(const struct tern_op_desc *d, struct tern_gpu_product *p);

/* Whether two tensors of one dtype and shape have their elements in the same places. */
bool tern_gpu_same_place(const struct tern_meta *a, const struct tern_meta *b);

#endif
