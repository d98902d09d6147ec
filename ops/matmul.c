/* matmul: products of matrices. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/matmul.h"
#include "ops/reference.h"
#include "ops/rules.h"

static void insert_dim(struct tern_meta *m, int at)
{
    for (int i = m->ndim++; i > at; i--) {
        m->shape[i] = m->shape[i - 1];
        m->stride[i] = m->stride[i - 1];
    }
    m->shape[at] = 1;
    m->stride[at] = 0;
}

bool tern_product_of(const struct tern_op_desc *d, struct tern_product *p)
{
    p->x = d->in[0];
    p->other = d->in[1];
    if (p->x.ndim == 1)
        insert_dim(&p->x, 0);
    if (p->other.ndim == 1)
        insert_dim(&p->other, 1);
    p->m = p->x.shape[p->x.ndim - 2];
    p->k = p->x.shape[p->x.ndim - 1];
    p->n = p->other.shape[p->other.ndim - 1];
    struct tern_meta a = p->x, b = p->other;
    a.ndim -= 2;
    b.ndim -= 2;
    return tern_broadcast_shape(&a, &b, &p->batch);
}

void tern_product_strides(const struct tern_product *p, int64_t *x, int64_t *other)
{
    struct tern_meta a = p->x, b = p->other;
    a.ndim -= 2;
    b.ndim -= 2;
    tern_broadcast_strides(&a, &p->batch, x);
    tern_broadcast_strides(&b, &p->batch, other);
}

enum tern_status tern_shape_matmul(struct tern_context *ctx, struct tern_op_desc *d)
{
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    struct tern_product p = {.m = 0};
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = tern_rule_same_dtype(ctx, d, 0, 1);
    if (st)
        return st;
    tern_meta_text(&d->in[0], a);
    tern_meta_text(&d->in[1], b);
    if (!d->in[0].ndim || !d->in[1].ndim)
        return tern_fail(ctx, TERN_E_SHAPE, "matmul: a scalar: expected at least one dimension each, found %s and %s", a, b);
    bool broadcast = tern_product_of(d, &p);
    if (p.other.shape[p.other.ndim - 2] != p.k)
        return tern_fail(ctx, TERN_E_SHAPE,
                         "matmul: x ends in %lld columns, other has %lld rows: expected (..., M, K) and (..., K, N), found %s and %s",
                         (long long)p.k, (long long)p.other.shape[p.other.ndim - 2], a, b);
    if (!broadcast)
        return tern_fail(ctx, TERN_E_SHAPE, "matmul: the leading dimensions do not broadcast: expected equal sizes or 1, found %s and %s",
                         a, b);
    if (d->in[0].ndim > 1)
        p.batch.shape[p.batch.ndim++] = p.m;
    if (d->in[1].ndim > 1)
        p.batch.shape[p.batch.ndim++] = p.n;
    return tern_rule_out(ctx, d, d->in[0].dtype, p.batch.ndim, p.batch.shape);
}

void tern_ref_matmul(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *out = &d->out;
    struct tern_product p = {.m = 0};
    tern_product_of(d, &p);
    int nb = p.batch.ndim, last = nb;
    int64_t m_step = d->in[0].ndim > 1 ? out->stride[last++] : 0, n_step = d->in[1].ndim > 1 ? out->stride[last] : 0;
    int64_t xk = p.x.stride[p.x.ndim - 1], xm = p.x.stride[p.x.ndim - 2];
    int64_t on = p.other.stride[p.other.ndim - 1], ok = p.other.stride[p.other.ndim - 2];
    int64_t x_stride[TERN_MAX_DIMS], other_stride[TERN_MAX_DIMS], batches = tern_meta_numel(&p.batch);
    tern_product_strides(&p, x_stride, other_stride);
    for (int64_t r = 0; r < batches * p.m; r++) {
        int64_t b = r / p.m, i = r % p.m;
        int64_t x0 = tern_offset_of(b, nb, p.batch.shape, x_stride) + i * xm;
        int64_t o0 = tern_offset_of(b, nb, p.batch.shape, other_stride);
        int64_t to = tern_offset_of(b, nb, p.batch.shape, out->stride) + i * m_step;
        for (int64_t j = 0; j < p.n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p.k; k++)
                sum += tern_in(a, 0, x0 + k * xk) * tern_in(a, 1, o0 + k * ok + j * on);
            tern_out(a, to + j * n_step, sum);
        }
    }
}

tern_tensor *tern_matmul(tern_tensor *x, tern_tensor *other) { return tern_call_binary(TERN_OP_matmul, x, other); }
