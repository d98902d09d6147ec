/* Ops that only look at memory in another way: reshape, permute, expand, slice. tern_op_view says how; the references
 * copy, for the reshape of strided memory and for comparison. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* ---- shape rules ---- */

static enum tern_status check_count(struct tern_context *ctx, const struct tern_op_desc *d, int64_t n)
{
    if (n >= 0 && n <= TERN_MAX_DIMS)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_INVALID, "%s: %lld dimensions were given: expected 0..%d", tern_rule_op(d), (long long)n, TERN_MAX_DIMS);
}

/* Replaces a size of -1 by what is left of numel. */
static enum tern_status infer_size(struct tern_context *ctx, struct tern_reshape_attrs *p, const struct tern_meta *x)
{
    char text[TERN_META_TEXT];
    int64_t numel = tern_meta_numel(x), known = 1;
    int unknown = -1;
    for (int i = 0; i < p->shape_n; i++) {
        if (p->shape[i] < -1 || (p->shape[i] == -1 && unknown >= 0))
            return tern_fail(ctx, TERN_E_INVALID, "reshape: size %lld at %d: expected sizes of at least 0 and at most one -1",
                             (long long)p->shape[i], i);
        if (p->shape[i] == -1)
            unknown = i;
        else if (__builtin_mul_overflow(known, p->shape[i], &known))
            return tern_fail(ctx, TERN_E_SHAPE, "reshape: the sizes' product does not fit: expected the %lld elements of x",
                             (long long)numel);
    }
    if (unknown >= 0 && known > 0 && numel % known == 0)
        p->shape[unknown] = numel / known;
    else if (unknown >= 0 || known != numel) {
        struct tern_meta to = tern_meta_make(x->dtype, 0, NULL);
        to.ndim = (int)p->shape_n;
        for (int i = 0; i < to.ndim; i++)
            to.shape[i] = p->shape[i];
        char asked[TERN_META_TEXT];
        return tern_fail(ctx, TERN_E_SHAPE, "reshape: x %s has %lld elements: expected as many%s, found %s", tern_meta_text(x, text),
                         (long long)numel, unknown >= 0 ? " (a size of -1 must be their quotient)" : "", tern_meta_text(&to, asked));
    }
    return TERN_OK;
}

enum tern_status tern_shape_reshape(struct tern_context *ctx, struct tern_op_desc *d)
{
    enum tern_status st = check_count(ctx, d, d->attrs.reshape.shape_n);
    if (!st)
        st = infer_size(ctx, &d->attrs.reshape, &d->in[0]);
    return st ? st : tern_rule_out(ctx, d, d->in[0].dtype, (int)d->attrs.reshape.shape_n, d->attrs.reshape.shape);
}

enum tern_status tern_shape_permute(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_permute_attrs *p = &d->attrs.permute;
    const struct tern_meta *x = &d->in[0];
    int64_t shape[TERN_MAX_DIMS];
    unsigned seen = 0;
    if (p->dims_n != x->ndim)
        return tern_fail(ctx, TERN_E_INVALID, "permute: %lld dimensions were given: expected each of the %d of x", (long long)p->dims_n,
                         x->ndim);
    for (int i = 0; i < x->ndim; i++) {
        enum tern_status st = tern_rule_dim(ctx, d, &p->dims[i], x->ndim);
        if (st)
            return st;
        if (seen & 1u << p->dims[i])
            return tern_fail(ctx, TERN_E_INVALID, "permute: dimension %lld is there twice: expected each of the %d of x once",
                             (long long)p->dims[i], x->ndim);
        seen |= 1u << p->dims[i];
        shape[i] = x->shape[p->dims[i]];
    }
    return tern_rule_out(ctx, d, x->dtype, x->ndim, shape);
}

enum tern_status tern_shape_expand(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_expand_attrs *p = &d->attrs.expand;
    const struct tern_meta *x = &d->in[0];
    char text[TERN_META_TEXT];
    enum tern_status st = check_count(ctx, d, p->shape_n);
    if (st)
        return st;
    if (p->shape_n < x->ndim)
        return tern_fail(ctx, TERN_E_SHAPE, "expand: %lld sizes were given: expected at least the %d of x %s", (long long)p->shape_n,
                         x->ndim, tern_meta_text(x, text));
    for (int i = 0; i < p->shape_n; i++) {
        int j = i - (int)(p->shape_n - x->ndim);
        if (p->shape[i] == -1 && j >= 0)
            p->shape[i] = x->shape[j];
        if (p->shape[i] < 0)
            return tern_fail(ctx, TERN_E_INVALID, "expand: size %lld at %d: expected 0 or more, or -1 for a dimension of x",
                             (long long)p->shape[i], i);
        if (j >= 0 && x->shape[j] != 1 && x->shape[j] != p->shape[i])
            return tern_fail(ctx, TERN_E_SHAPE, "expand: size %lld at %d does not fit: expected %lld, as only sizes of 1 expand, x is %s",
                             (long long)p->shape[i], i, (long long)x->shape[j], tern_meta_text(x, text));
    }
    return tern_rule_out(ctx, d, x->dtype, (int)p->shape_n, p->shape);
}

static int64_t clamp_index(int64_t i, int64_t size)
{
    i += i < 0 ? size : 0;
    return i < 0 ? 0 : i > size ? size : i;
}

enum tern_status tern_shape_slice(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_slice_attrs *p = &d->attrs.slice;
    struct tern_meta out = d->in[0];
    if (!out.ndim)
        return tern_fail(ctx, TERN_E_SHAPE, "slice: x is a scalar: expected at least one dimension");
    enum tern_status st = tern_rule_dim(ctx, d, &p->dim, out.ndim);
    if (!st && p->step < 1)
        st = tern_fail(ctx, TERN_E_INVALID, "slice: step is %lld: expected 1 or more", (long long)p->step);
    if (st)
        return st;
    int64_t size = out.shape[p->dim];
    p->start = clamp_index(p->start, size);
    p->end = clamp_index(p->end, size);
    p->end = p->end < p->start ? p->start : p->end;
    int64_t length = p->end - p->start;
    out.shape[p->dim] = length / p->step + (length % p->step != 0);
    return tern_rule_out(ctx, d, out.dtype, out.ndim, out.shape);
}

/* ---- views ---- */

/* PyTorch's rule: x's dimensions, sizes of 1 left out, form runs of uniformly strided memory; a new shape is a view if
 * its dimensions, from the last on, fill one run after the other. */
static bool view_reshape(const struct tern_meta *x, struct tern_meta *view)
{
    struct run {
        int64_t size, stride;
    } runs[TERN_MAX_DIMS];
    int n = 0, r = 0;
    int64_t filled = 1;
    if (tern_meta_numel(x) == 0)
        return true; /* out's own, contiguous strides do */
    for (int i = x->ndim - 1; i >= 0; i--) {
        if (x->shape[i] == 1)
            continue;
        if (n && x->stride[i] == runs[n - 1].size * runs[n - 1].stride)
            runs[n - 1].size *= x->shape[i];
        else
            runs[n++] = (struct run){x->shape[i], x->stride[i]};
    }
    for (int i = view->ndim - 1; i >= 0; i--) {
        if (view->shape[i] == 1)
            continue; /* any stride does: it keeps its contiguous one */
        if (r == n || (runs[r].size / filled) % view->shape[i])
            return false;
        view->stride[i] = runs[r].stride * filled;
        filled *= view->shape[i];
        if (filled == runs[r].size) {
            filled = 1;
            r++;
        }
    }
    return true;
}

bool tern_op_view(const struct tern_op_desc *d, struct tern_meta *view, int64_t *offset)
{
    const struct tern_meta *x = &d->in[0];
    *view = d->out;
    *offset = 0;
    switch (d->op) {
    case TERN_OP_reshape:
        return view_reshape(x, view);
    case TERN_OP_permute:
        for (int i = 0; i < x->ndim; i++)
            view->stride[i] = x->stride[d->attrs.permute.dims[i]];
        return true;
    case TERN_OP_expand:
        tern_broadcast_strides(x, &d->out, view->stride);
        return true;
    case TERN_OP_slice:
        for (int i = 0; i < x->ndim; i++)
            view->stride[i] = x->stride[i];
        if (tern_meta_numel(view)) { /* an empty view must not begin behind the memory */
            *offset = d->attrs.slice.start * x->stride[d->attrs.slice.dim];
            view->stride[d->attrs.slice.dim] *= view->shape[d->attrs.slice.dim] > 1 ? d->attrs.slice.step : 1;
        }
        return true;
    default:
        return false;
    }
}

/* ---- references ---- */

static void copy(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    struct tern_meta view;
    int64_t offset, n = tern_meta_numel(&d->out);
    if (d->op == TERN_OP_reshape) { /* row-major order stays */
        view = d->in[0];
        offset = 0;
    } else {
        tern_op_view(d, &view, &offset);
    }
    for (int64_t p = 0; p < n; p++)
        tern_copy_element(tern_dtype_size(d->out.dtype), tern_arg_host(&a->out), tern_meta_offset(&d->out, p), tern_arg_host(&a->in[0]),
                          offset + tern_meta_offset(&view, p));
}

void tern_ref_reshape(const struct tern_kernel_args *a) { copy(a); }
void tern_ref_permute(const struct tern_kernel_args *a) { copy(a); }
void tern_ref_expand(const struct tern_kernel_args *a) { copy(a); }
void tern_ref_slice(const struct tern_kernel_args *a) { copy(a); }
