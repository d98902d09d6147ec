/* What matmul multiplies. */
#ifndef TERN_OPS_MATMUL_H
#define TERN_OPS_MATMUL_H

#include "core/tensor.h"
#include "ops/op.h"

/* x (..., M, K) x other (..., K, N); a vector is a matrix of one row (x) or one column (other), whose dimension is
 * left out of the result. */
struct tern_product {
    struct tern_meta x, other; /* with the vectors as matrices */
    struct tern_meta batch;    /* broadcast leading dimensions */
    int64_t m, n, k;
};

/* False when the leading dimensions do not broadcast. */
bool tern_product_of(const struct tern_op_desc *d, struct tern_product *p);
/* From one matrix to the next in each dimension of the batch. */
void tern_product_strides(const struct tern_product *p, int64_t *x, int64_t *other);

#endif
