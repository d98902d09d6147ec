/* linear, and linear_geglu, whose result is values and gates: values times gelu of the gates [Shazeer 2020]. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/pieces.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* x (..., K), weight (N, K), bias (N); the result has N / parts columns. */
enum tern_status tern_rule_linear(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype_class weight, int bias, int64_t parts)
{
    const struct tern_meta *x = &d->in[0], *w = &d->in[1];
    const char *op = tern_rule_op(d);
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    int64_t shape[TERN_MAX_DIMS];
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = tern_rule_dtype(ctx, d, 1, weight);
    if (!st)
        st = tern_rule_ndim(ctx, d, 1, 2, "(N, K)");
    if (st)
        return st;
    if (!x->ndim || x->shape[x->ndim - 1] != w->shape[1])
        return tern_fail(ctx, TERN_E_SHAPE, "%s: weight has %lld columns: expected x (..., %lld), found x %s and weight %s", op,
                         (long long)w->shape[1], (long long)w->shape[1], tern_meta_text(x, a), tern_meta_text(w, b));
    if (w->shape[0] % parts)
        return tern_fail(ctx, TERN_E_SHAPE, "%s: weight has %lld rows: expected as many for values as for gates, found %s", op,
                         (long long)w->shape[0], tern_meta_text(w, b));
    st = tern_rule_vector(ctx, d, bias, w->shape[0]);
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == x->ndim - 1 ? w->shape[0] / parts : x->shape[i];
    return st ? st : tern_rule_out(ctx, d, x->dtype, x->ndim, shape);
}

/* The row of x that begins at `from` times row j of the weight, and the bias. */
static double product(const struct tern_kernel_args *a, int64_t from, int64_t j)
{
    const struct tern_op_desc *d = a->desc;
    double bias = d->present[2] ? tern_in(a, 2, j * d->in[2].stride[0]) : 0;
    return tern_dot_linear(a, bias, from, j, tern_in_row, a);
}

static void run(const struct tern_kernel_args *a, bool gated)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *x = &d->in[0];
    const int last = x->ndim - 1;
    int64_t rows = 1, n = d->out.shape[last];
    for (int i = 0; i < last; i++)
        rows *= x->shape[i];
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = tern_offset_of(r, last, x->shape, x->stride), to = tern_offset_of(r, last, x->shape, d->out.stride);
        for (int64_t j = 0; j < n; j++) {
            double gate = gated ? product(a, from, n + j) : 0, factor = gated ? 0.5 * gate * (1 + erf(gate * sqrt(0.5))) : 1;
            tern_out(a, to + j * d->out.stride[last], product(a, from, j) * factor);
        }
    }
}

enum tern_status tern_shape_linear(struct tern_context *ctx, struct tern_op_desc *d)
{
    return tern_rule_linear(ctx, d, TERN_FLOAT_ONLY, 2, 1);
}

enum tern_status tern_shape_linear_geglu(struct tern_context *ctx, struct tern_op_desc *d)
{
    return tern_rule_linear(ctx, d, TERN_FLOAT_ONLY, 2, 2);
}

void tern_ref_linear(const struct tern_kernel_args *a) { run(a, false); }

void tern_ref_linear_geglu(const struct tern_kernel_args *a) { run(a, true); }

static tern_tensor *call(enum tern_op op, tern_tensor *x, tern_tensor *weight, tern_tensor *bias)
{
    static const union tern_op_attrs none;
    tern_tensor *const in[] = {x, weight, bias};
    return x && weight ? tern_op_call(x->ctx, op, in, 3, &none) : NULL;
}

tern_tensor *tern_linear(tern_tensor *x, tern_tensor *weight, tern_tensor *bias) { return call(TERN_OP_linear, x, weight, bias); }

tern_tensor *tern_linear_geglu(tern_tensor *x, tern_tensor *weight, tern_tensor *bias)
{
    return call(TERN_OP_linear_geglu, x, weight, bias);
}

tern_tensor *tern_linear_geglu_pieces(tern_tensor *const *in, int n_in)
{
    tern_tensor *h = tern_linear(in[0], in[1], n_in > 2 ? in[2] : NULL);
    if (!h)
        return NULL;
    const int last = h->meta.ndim - 1;
    const int64_t n = h->meta.shape[last] / 2;
    return tern_mul(tern_slice(h, last, 0, n, 1), tern_gelu(tern_slice(h, last, n, 2 * n, 1), TERN_GELU_NONE));
}
