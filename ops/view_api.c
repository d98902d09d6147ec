/* Public functions that give views. Those without an op of their own are reshapes and permutations. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/rules.h"

tern_tensor *tern_reshape(tern_tensor *x, int ndim, const int64_t *shape)
{
    union tern_op_attrs attrs = {.reshape = {.shape_n = ndim}};
    if (!x || !tern_ndim_fits(x->ctx, "reshape", ndim, shape))
        return NULL;
    for (int i = 0; i < ndim; i++)
        attrs.reshape.shape[i] = shape[i];
    return tern_call_unary(TERN_OP_reshape, x, &attrs);
}

tern_tensor *tern_permute(tern_tensor *x, int ndim, const int *dims)
{
    union tern_op_attrs attrs = {.permute = {.dims_n = ndim}};
    if (!x || !tern_ndim_fits(x->ctx, "permute", ndim, dims))
        return NULL;
    for (int i = 0; i < ndim; i++)
        attrs.permute.dims[i] = dims[i];
    return tern_call_unary(TERN_OP_permute, x, &attrs);
}

tern_tensor *tern_expand(tern_tensor *x, int ndim, const int64_t *shape)
{
    union tern_op_attrs attrs = {.expand = {.shape_n = ndim}};
    if (!x || !tern_ndim_fits(x->ctx, "expand", ndim, shape))
        return NULL;
    for (int i = 0; i < ndim; i++)
        attrs.expand.shape[i] = shape[i];
    return tern_call_unary(TERN_OP_expand, x, &attrs);
}

tern_tensor *tern_slice(tern_tensor *x, int dim, int64_t start, int64_t end, int64_t step)
{
    const union tern_op_attrs attrs = {.slice = {.dim = dim, .start = start, .end = end, .step = step}};
    return tern_call_unary(TERN_OP_slice, x, &attrs);
}

/* dim counted from the front, among n dimensions (a scalar has one for this); -1 with the error recorded */
static int wrap(const tern_tensor *x, const char *op, int dim, int n)
{
    int d = tern_wrap_dim(dim, n ? n : 1);
    if (d < 0)
        tern_fail(x->ctx, TERN_E_INVALID, "%s: dim %d is out of range: expected %d..%d", op, dim, -(n ? n : 1), n ? n - 1 : 0);
    return d;
}

tern_tensor *tern_transpose(tern_tensor *x, int dim0, int dim1)
{
    int n = x ? x->meta.ndim : 0, dims[TERN_MAX_DIMS];
    int a = x ? wrap(x, "transpose", dim0, n) : -1, b = a >= 0 ? wrap(x, "transpose", dim1, n) : -1;
    if (b < 0)
        return NULL;
    for (int i = 0; i < n; i++)
        dims[i] = i == a ? b : i == b ? a : i;
    return tern_permute(x, n, dims);
}

tern_tensor *tern_unsqueeze(tern_tensor *x, int dim)
{
    int n = x ? x->meta.ndim : 0, at = x ? wrap(x, "unsqueeze", dim, n + 1) : -1;
    int64_t shape[TERN_MAX_DIMS + 1];
    if (at < 0)
        return NULL;
    for (int i = 0; i <= n; i++)
        shape[i] = i == at ? 1 : x->meta.shape[i - (i > at)];
    return tern_reshape(x, n + 1, shape);
}

tern_tensor *tern_squeeze(tern_tensor *x, int dim)
{
    int n = x ? x->meta.ndim : 0, at = x ? wrap(x, "squeeze", dim, n) : -1, k = 0;
    int64_t shape[TERN_MAX_DIMS];
    if (at < 0)
        return NULL;
    for (int i = 0; i < n; i++)
        if (i != at || x->meta.shape[i] != 1)
            shape[k++] = x->meta.shape[i];
    return tern_reshape(x, k, shape);
}

tern_tensor *tern_flatten(tern_tensor *x, int start_dim, int end_dim)
{
    int n = x ? x->meta.ndim : 0, a = x ? wrap(x, "flatten", start_dim, n) : -1, b = a >= 0 ? wrap(x, "flatten", end_dim, n) : -1, k = 0;
    int64_t shape[TERN_MAX_DIMS] = {1};
    if (b < 0)
        return NULL;
    if (a > b) {
        tern_fail(x->ctx, TERN_E_INVALID, "flatten: start_dim %d is behind end_dim %d", start_dim, end_dim);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        if (i > a && i <= b)
            shape[k - 1] *= x->meta.shape[i];
        else
            shape[k++] = x->meta.shape[i];
    }
    return tern_reshape(x, n ? k : 1, shape);
}

tern_tensor *tern_as_nc11(tern_tensor *x)
{
    char text[TERN_META_TEXT];
    if (!x)
        return NULL;
    if (x->meta.ndim != 2) {
        tern_fail(x->ctx, TERN_E_SHAPE, "as_nc11: x has %d dimensions: expected (N, C), found %s", x->meta.ndim,
                  tern_meta_text(&x->meta, text));
        return NULL;
    }
    return tern_reshape(x, 4, (const int64_t[]){x->meta.shape[0], x->meta.shape[1], 1, 1});
}
