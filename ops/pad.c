/* pad: a value around a tensor; negative amounts crop. */
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

/* Pairs come from the last dimension on: the amount before and behind dimension i of ndim, or 0. */
static int64_t amount(const struct tern_pad_attrs *p, int ndim, int i, int behind)
{
    int64_t at = 2 * (int64_t)(ndim - 1 - i) + behind;
    return at < p->pad_n ? p->pad[at] : 0;
}

enum tern_status tern_shape_pad(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_pad_attrs *p = &d->attrs.pad;
    struct tern_meta out = d->in[0];
    if (p->pad_n < 0 || p->pad_n % 2 || p->pad_n > 2 * out.ndim)
        return tern_fail(ctx, TERN_E_INVALID,
                         "pad: %lld amounts were given: expected pairs, at most one for each of the %d dimensions of x",
                         (long long)p->pad_n, out.ndim);
    for (int i = 0; i < out.ndim; i++) {
        int64_t before = amount(p, out.ndim, i, 0), behind = amount(p, out.ndim, i, 1), size = out.shape[i];
        if (before < INT32_MIN || behind < INT32_MIN || before > INT32_MAX || behind > INT32_MAX)
            return tern_fail(ctx, TERN_E_INVALID, "pad: %lld and %lld in dim %d: expected amounts below 2^31", (long long)before,
                             (long long)behind, i);
        /* both crops take from x itself, as in PyTorch */
        if (size + (before < 0 ? before : 0) + (behind < 0 ? behind : 0) < 0)
            return tern_fail(ctx, TERN_E_SHAPE, "pad: %lld and %lld in dim %d crop more than is there: expected at most %lld",
                             (long long)before, (long long)behind, i, (long long)size);
        out.shape[i] = size + before + behind;
    }
    enum tern_status st = tern_rule_value(ctx, d, out.dtype, "value", &p->value);
    return st ? st : tern_rule_out(ctx, d, out.dtype, out.ndim, out.shape);
}

void tern_ref_pad(const struct tern_kernel_args *a)
{
    const struct tern_meta *x = &a->desc->in[0], *out = &a->desc->out;
    const struct tern_pad_attrs *p = &a->desc->attrs.pad;
    int64_t n = tern_meta_numel(out);
    for (int64_t at = 0; at < n; at++) {
        int64_t rest = at, from = 0, to = 0;
        bool inside = true;
        for (int i = out->ndim - 1; i >= 0; i--) {
            int64_t o = rest % out->shape[i], s = o - amount(p, out->ndim, i, 0);
            rest /= out->shape[i];
            inside = inside && s >= 0 && s < x->shape[i];
            from += s * x->stride[i];
            to += o * out->stride[i];
        }
        if (inside)
            tern_copy_element(tern_dtype_size(x->dtype), tern_arg_host(&a->out), to, tern_arg_host(&a->in[0]), from);
        else
            tern_out(a, to, p->value);
    }
}

tern_tensor *tern_pad(tern_tensor *x, int n, const int64_t *pad, double value)
{
    union tern_op_attrs attrs = {.pad = {.pad_n = n, .value = value}};
    if (!x)
        return NULL;
    if (n < 0 || n > 2 * TERN_MAX_DIMS) {
        tern_fail(x->ctx, TERN_E_INVALID, "pad: %d amounts were given: expected 0..%d", n, 2 * TERN_MAX_DIMS);
        return NULL;
    }
    if (n && !pad) {
        tern_fail(x->ctx, TERN_E_INVALID, "pad: expected %d amounts, found NULL", n);
        return NULL;
    }
    for (int i = 0; i < n; i++)
        attrs.pad.pad[i] = pad[i];
    return tern_call_unary(TERN_OP_pad, x, &attrs);
}
