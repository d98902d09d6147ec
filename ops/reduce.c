/* sum, mean, amax over some dimensions, and argmax over one. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* The three attribute structs are one. */
_Static_assert(sizeof(struct tern_sum_attrs) == sizeof(struct tern_mean_attrs) &&
                   sizeof(struct tern_sum_attrs) == sizeof(struct tern_amax_attrs),
               "sum, mean and amax share their attributes");

/* Sorts the dimensions and counts them from the front; none given means all. */
static enum tern_status complete(struct tern_context *ctx, const struct tern_op_desc *d, struct tern_sum_attrs *p, unsigned *mask)
{
    int ndim = d->in[0].ndim;
    *mask = 0;
    if (p->dim_n < 0 || p->dim_n > TERN_MAX_DIMS)
        return tern_fail(ctx, TERN_E_INVALID, "%s: %lld dimensions were given: expected 0..%d", tern_rule_op(d), (long long)p->dim_n,
                         TERN_MAX_DIMS);
    for (int i = 0; i < p->dim_n; i++) {
        enum tern_status st = tern_rule_dim(ctx, d, &p->dim[i], ndim);
        if (st)
            return st;
        if (*mask & 1u << p->dim[i])
            return tern_fail(ctx, TERN_E_INVALID, "%s: dimension %lld is there twice: expected each once", tern_rule_op(d),
                             (long long)p->dim[i]);
        *mask |= 1u << p->dim[i];
    }
    if (!p->dim_n)
        *mask = (1u << ndim) - 1;
    if (!ndim)
        *mask = 0;
    p->dim_n = 0;
    for (int i = 0; i < TERN_MAX_DIMS; i++)
        p->dim[i] = 0;
    for (int i = 0; i < ndim; i++)
        if (*mask & 1u << i)
            p->dim[p->dim_n++] = i;
    p->keepdim = p->keepdim != 0;
    return TERN_OK;
}

static enum tern_status shape(struct tern_context *ctx, struct tern_op_desc *d, unsigned mask, bool keepdim, enum tern_dtype dtype)
{
    const struct tern_meta *x = &d->in[0];
    int64_t kept[TERN_MAX_DIMS];
    int n = 0;
    for (int i = 0; i < x->ndim; i++)
        if (!(mask & 1u << i))
            kept[n++] = x->shape[i];
        else if (keepdim)
            kept[n++] = 1;
    return tern_rule_out(ctx, d, dtype, n, kept);
}

/* A largest value needs a value. */
static enum tern_status refuse_empty(struct tern_context *ctx, const struct tern_op_desc *d, unsigned mask)
{
    char text[TERN_META_TEXT];
    for (int i = 0; i < d->in[0].ndim; i++)
        if (mask & 1u << i && d->in[0].shape[i] == 0)
            return tern_fail(ctx, TERN_E_SHAPE, "%s: dimension %d of x is empty: expected at least one element, found %s", tern_rule_op(d),
                             i, tern_meta_text(&d->in[0], text));
    return TERN_OK;
}

enum tern_status tern_shape_sum(struct tern_context *ctx, struct tern_op_desc *d)
{
    unsigned mask;
    enum tern_dtype dtype = d->in[0].dtype;
    enum tern_status st = complete(ctx, d, &d->attrs.sum, &mask);
    return st ? st : shape(ctx, d, mask, d->attrs.sum.keepdim, tern_dtype_is_float(dtype) ? dtype : TERN_I64);
}

enum tern_status tern_shape_mean(struct tern_context *ctx, struct tern_op_desc *d)
{
    unsigned mask;
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_FLOAT_ONLY);
    if (!st)
        st = complete(ctx, d, &d->attrs.sum, &mask);
    return st ? st : shape(ctx, d, mask, d->attrs.mean.keepdim, d->in[0].dtype);
}

enum tern_status tern_shape_amax(struct tern_context *ctx, struct tern_op_desc *d)
{
    unsigned mask;
    enum tern_status st = complete(ctx, d, &d->attrs.sum, &mask);
    if (!st)
        st = refuse_empty(ctx, d, mask);
    return st ? st : shape(ctx, d, mask, d->attrs.amax.keepdim, d->in[0].dtype);
}

enum tern_status tern_shape_argmax(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_argmax_attrs *p = &d->attrs.argmax;
    enum tern_status st = tern_rule_dtype(ctx, d, 0, TERN_NO_BOOL);
    if (!st)
        st = tern_rule_dim(ctx, d, &p->dim, d->in[0].ndim);
    if (st)
        return st;
    p->keepdim = p->keepdim != 0;
    unsigned mask = d->in[0].ndim ? 1u << p->dim : 0;
    st = refuse_empty(ctx, d, mask);
    return st ? st : shape(ctx, d, mask, p->keepdim, TERN_I64);
}

/* x's dimensions parted into those that are kept and those that are reduced. */
struct parts {
    int n_kept, n_reduced;
    int64_t kept[TERN_MAX_DIMS], kept_stride[TERN_MAX_DIMS], out_stride[TERN_MAX_DIMS];
    int64_t reduced[TERN_MAX_DIMS], reduced_stride[TERN_MAX_DIMS];
    int64_t outer, inner; /* numbers of elements */
};

static struct parts part(const struct tern_op_desc *d, const int64_t *dims, int64_t n, bool keepdim)
{
    const struct tern_meta *x = &d->in[0];
    struct parts p = {.outer = 1, .inner = 1};
    for (int i = 0; i < x->ndim; i++) {
        if (p.n_reduced < n && dims[p.n_reduced] == i) {
            p.reduced[p.n_reduced] = x->shape[i];
            p.reduced_stride[p.n_reduced++] = x->stride[i];
            p.inner *= x->shape[i];
        } else {
            p.kept[p.n_kept] = x->shape[i];
            p.out_stride[p.n_kept] = d->out.stride[keepdim ? i : p.n_kept];
            p.kept_stride[p.n_kept++] = x->stride[i];
            p.outer *= x->shape[i];
        }
    }
    return p;
}

enum kind { SUM, MEAN, AMAX };

static void reduce_float(const struct tern_kernel_args *a, const struct parts *p, int64_t from, int64_t to, enum kind kind)
{
    double value = kind == AMAX ? -INFINITY : 0;
    for (int64_t j = 0; j < p->inner; j++) {
        double x = tern_in(a, 0, from + tern_offset_of(j, p->n_reduced, p->reduced, p->reduced_stride));
        if (kind != AMAX)
            value += x;
        else if (x > value || x != x)
            value = x; /* nothing is greater than NaN, so it stays */
    }
    tern_out(a, to, kind == MEAN ? value / (double)p->inner : value);
}

static void reduce_integer(const struct tern_kernel_args *a, const struct parts *p, int64_t from, int64_t to, enum kind kind)
{
    enum tern_dtype dtype = a->desc->in[0].dtype;
    int64_t value = kind == AMAX ? INT64_MIN : 0;
    for (int64_t j = 0; j < p->inner; j++) {
        int64_t x = tern_load_i64(dtype, tern_arg_host(&a->in[0]), from + tern_offset_of(j, p->n_reduced, p->reduced, p->reduced_stride));
        if (kind != AMAX)
            value = (int64_t)((uint64_t)value + (uint64_t)x);
        else if (x > value)
            value = x;
    }
    tern_store_i64(a->desc->out.dtype, tern_arg_host(&a->out), to, value);
}

static void reduce(const struct tern_kernel_args *a, enum kind kind)
{
    const struct tern_sum_attrs *attrs = &a->desc->attrs.sum;
    struct parts p = part(a->desc, attrs->dim, attrs->dim_n, attrs->keepdim);
    for (int64_t i = 0; i < p.outer; i++) {
        int64_t from = tern_offset_of(i, p.n_kept, p.kept, p.kept_stride), to = tern_offset_of(i, p.n_kept, p.kept, p.out_stride);
        if (tern_dtype_is_float(a->desc->in[0].dtype))
            reduce_float(a, &p, from, to, kind);
        else
            reduce_integer(a, &p, from, to, kind);
    }
}

void tern_ref_sum(const struct tern_kernel_args *a) { reduce(a, SUM); }
void tern_ref_mean(const struct tern_kernel_args *a) { reduce(a, MEAN); }
void tern_ref_amax(const struct tern_kernel_args *a) { reduce(a, AMAX); }

void tern_ref_argmax(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_argmax_attrs *attrs = &d->attrs.argmax;
    const void *src = tern_arg_host(&a->in[0]);
    enum tern_dtype dtype = d->in[0].dtype;
    struct parts p = part(d, &attrs->dim, d->in[0].ndim ? 1 : 0, attrs->keepdim);
    for (int64_t i = 0; i < p.outer; i++) {
        int64_t from = tern_offset_of(i, p.n_kept, p.kept, p.kept_stride), best = 0, at_best = from;
        for (int64_t j = 1; j < p.inner; j++) {
            int64_t at = from + j * p.reduced_stride[0];
            double x = tern_load(dtype, src, at), y = tern_load(dtype, src, at_best);
            bool greater = tern_dtype_is_float(dtype) ? x > y || (x != x && y == y)
                                                      : tern_load_i64(dtype, src, at) > tern_load_i64(dtype, src, at_best);
            if (greater) {
                best = j;
                at_best = at;
            }
        }
        tern_store_i64(TERN_I64, tern_arg_host(&a->out), tern_offset_of(i, p.n_kept, p.kept, p.out_stride), best);
    }
}

static tern_tensor *call(enum tern_op op, tern_tensor *x, int n, const int *dim, bool keepdim)
{
    union tern_op_attrs attrs = {.sum = {.dim_n = n, .keepdim = keepdim}};
    if (!x || !tern_ndim_fits(x->ctx, tern_op_get(op).name, n, dim))
        return NULL;
    for (int i = 0; i < n; i++)
        attrs.sum.dim[i] = dim[i];
    return tern_call_unary(op, x, &attrs);
}

tern_tensor *tern_sum(tern_tensor *x, int n, const int *dim, bool keepdim) { return call(TERN_OP_sum, x, n, dim, keepdim); }
tern_tensor *tern_mean(tern_tensor *x, int n, const int *dim, bool keepdim) { return call(TERN_OP_mean, x, n, dim, keepdim); }
tern_tensor *tern_amax(tern_tensor *x, int n, const int *dim, bool keepdim) { return call(TERN_OP_amax, x, n, dim, keepdim); }

tern_tensor *tern_argmax(tern_tensor *x, int dim, bool keepdim)
{
    const union tern_op_attrs attrs = {.argmax = {.dim = dim, .keepdim = keepdim}};
    return tern_call_unary(TERN_OP_argmax, x, &attrs);
}
