/* Products of dense matrices out of descriptions of matmul and linear. */
#include "backends/gpu/product.h"

#include <string.h>

static bool matrix_of(int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride, struct tern_gpu_matrix *m)
{
    if (col_stride == 1 && (row_stride >= cols || rows == 1))
        *m = (struct tern_gpu_matrix){.ld = rows == 1 ? cols : row_stride};
    else if (row_stride == 1 && (col_stride >= rows || cols == 1))
        *m = (struct tern_gpu_matrix){.ld = cols == 1 ? rows : col_stride, .transposed = true};
    else
        return false;
    return true;
}

/* Dimensions 0 .. n - 1 as one: its size, and the stride of its elements. */
static bool merge(const struct tern_meta *t, int n, int64_t *size, int64_t *stride)
{
    *size = 1;
    *stride = 0;
    for (int i = n - 1; i >= 0; i--) {
        if (t->shape[i] == 1)
            continue;
        if (*size > 1 && t->stride[i] != *stride * *size)
            return false;
        *stride = *size > 1 ? *stride : t->stride[i];
        *size *= t->shape[i];
    }
    return true;
}

static bool product_of_linear(const struct tern_op_desc *d, struct tern_gpu_product *p)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    int64_t x_stride = 0, y_stride = 0, rows = 0;
    int last = x->ndim - 1;
    if (last < 0 || !merge(x, last, &p->m, &x_stride) || !merge(&d->out, last, &rows, &y_stride))
        return false;
    p->n = w->shape[0];
    p->k = w->shape[1];
    p->batch = 1;
    p->bias = d->n_in > 2 && d->present[2] ? 2 : -1;
    if (p->bias >= 0 && (d->in[2].dtype != d->out.dtype || d->in[2].stride[0] != 1))
        return false;
    return matrix_of(p->m, p->k, x_stride, x->stride[last], &p->a) && matrix_of(p->k, p->n, w->stride[1], w->stride[0], &p->b) &&
           matrix_of(p->m, p->n, y_stride, d->out.stride[last], &p->y) && !p->y.transposed;
}

static bool product_of_matmul(const struct tern_op_desc *d, struct tern_gpu_product *p)
{
    const struct tern_meta *a = &d->in[0], *b = &d->in[1], *y = &d->out;
    int n = y->ndim - 2;
    int64_t sizes[2], a_stride = 0, b_stride = 0, y_stride = 0;
    if (a->ndim != y->ndim || b->ndim != y->ndim || n < 0 || !merge(y, n, &p->batch, &y_stride) || !merge(a, n, &sizes[0], &a_stride) ||
        !merge(b, n, &sizes[1], &b_stride) || sizes[0] != p->batch || sizes[1] != p->batch)
        return false;
    p->m = y->shape[n];
    p->n = y->shape[n + 1];
    p->k = a->shape[n + 1];
    bool good = matrix_of(p->m, p->k, a->stride[n], a->stride[n + 1], &p->a) &&
                matrix_of(p->k, p->n, b->stride[n], b->stride[n + 1], &p->b) &&
                matrix_of(p->m, p->n, y->stride[n], y->stride[n + 1], &p->y) && !p->y.transposed;
    p->a.batch_stride = a_stride;
    p->b.batch_stride = b_stride;
    p->y.batch_stride = y_stride;
    return good;
}

bool tern_gpu_product_of(const struct tern_op_desc *d, struct tern_gpu_product *p)
{
    *p = (struct tern_gpu_product){.bias = -1};
    if (d->in[0].dtype != d->out.dtype || d->in[1].dtype != d->out.dtype)
        return false;
    bool good = d->op == TERN_OP_linear ? product_of_linear(d, p) : d->op == TERN_OP_matmul && product_of_matmul(d, p);
    return good && p->m > 0 && p->n > 0 && p->k > 0 && p->batch > 0 && p->batch <= INT32_MAX;
}

bool tern_gpu_same_place(const struct tern_meta *a, const struct tern_meta *b)
{
    return a->dtype == b->dtype && tern_meta_same_shape(a, b) && !memcmp(a->stride, b->stride, sizeof(a->stride[0]) * (size_t)a->ndim);
}
