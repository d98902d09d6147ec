/* sdpa: softmax(query key^T scale + mask) value, query (..., L, E), key (..., S, E), value (..., S, Ev) -> (..., L, Ev)
 * [Vaswani 2017]. A row of which nothing takes part is zeros, as in PyTorch. */
#include <math.h>
#include <tern/ops.h>

#include "core/tensor.h"
#include "ops/reference.h"
#include "ops/rules.h"

enum { QUERY, KEY, VALUE, MASK };

static enum tern_status check_mask(struct tern_context *ctx, const struct tern_op_desc *d)
{
    const struct tern_meta *q = &d->in[QUERY], *mask = &d->in[MASK];
    struct tern_meta scores = *q, both;
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    if (d->attrs.sdpa.is_causal)
        return tern_fail(ctx, TERN_E_INVALID, "sdpa: is_causal and attn_mask: expected one of them");
    if (mask->dtype != TERN_BOOL && mask->dtype != q->dtype)
        return tern_fail(ctx, TERN_E_DTYPE, "sdpa: attn_mask is %s: expected bool or query's %s", tern_dtype_name(mask->dtype),
                         tern_dtype_name(q->dtype));
    scores.shape[q->ndim - 1] = d->in[KEY].shape[q->ndim - 2];
    if (!tern_broadcast_shape(&scores, mask, &both) || !(both.ndim == scores.ndim) ||
        memcmp(both.shape, scores.shape, sizeof(*both.shape) * (size_t)both.ndim))
        return tern_fail(ctx, TERN_E_SHAPE, "sdpa: attn_mask does not fit: expected a shape that broadcasts to (..., L, S) %s, found %s",
                         tern_meta_text(&scores, a), tern_meta_text(mask, b));
    return TERN_OK;
}

enum tern_status tern_shape_sdpa(struct tern_context *ctx, struct tern_op_desc *d)
{
    struct tern_sdpa_attrs *p = &d->attrs.sdpa;
    const struct tern_meta *q = &d->in[QUERY], *k = &d->in[KEY], *v = &d->in[VALUE];
    char a[TERN_META_TEXT], b[TERN_META_TEXT], c[TERN_META_TEXT];
    enum tern_status st = tern_rule_dtype(ctx, d, QUERY, TERN_FLOAT_ONLY);
    for (int i = KEY; i <= VALUE && !st; i++)
        st = tern_rule_same_dtype(ctx, d, QUERY, i);
    if (st)
        return st;
    bool fits = q->ndim >= 2 && k->ndim == q->ndim && v->ndim == q->ndim;
    for (int i = 0; i < q->ndim - 2 && fits; i++)
        fits = k->shape[i] == q->shape[i] && v->shape[i] == q->shape[i];
    if (!fits || k->shape[q->ndim - 1] != q->shape[q->ndim - 1] || v->shape[q->ndim - 2] != k->shape[q->ndim - 2])
        return tern_fail(ctx, TERN_E_SHAPE,
                         "sdpa: the shapes do not fit together: expected query (..., L, E), key (..., S, E), value (..., S, "
                         "Ev) with equal leading sizes (tern_expand), found %s, %s, %s",
                         tern_meta_text(q, a), tern_meta_text(k, b), tern_meta_text(v, c));
    if (!isfinite(p->scale))
        return tern_fail(ctx, TERN_E_INVALID, "sdpa: scale is %g: expected a finite number, 0 for 1 / sqrt(E)", p->scale);
    p->is_causal = p->is_causal != 0;
    p->int8 = p->int8 != 0;
    int64_t e = q->shape[q->ndim - 1], shape[TERN_MAX_DIMS];
    if (p->scale == 0)
        p->scale = e ? 1 / sqrt((double)e) : 1;
    if (d->present[MASK])
        st = check_mask(ctx, d);
    for (int i = 0; i < q->ndim; i++)
        shape[i] = i == q->ndim - 1 ? v->shape[i] : q->shape[i];
    return st ? st : tern_rule_out(ctx, d, q->dtype, q->ndim, shape);
}

/* One row of scores: where query, key and mask of it begin, in elements. */
struct row {
    const struct tern_kernel_args *a;
    int64_t query, key, mask, mask_step;
    int64_t i; /* of L */
};

static double score(const struct row *r, int64_t j)
{
    const struct tern_op_desc *d = r->a->desc;
    const struct tern_meta *q = &d->in[QUERY], *k = &d->in[KEY];
    int last = q->ndim - 1;
    if (d->attrs.sdpa.is_causal && j > r->i)
        return -INFINITY;
    double dot = 0, bias = 0;
    if (d->present[MASK]) {
        bias = tern_in(r->a, MASK, r->mask + j * r->mask_step);
        if (d->in[MASK].dtype == TERN_BOOL) {
            if (bias == 0)
                return -INFINITY;
            bias = 0;
        }
    }
    const struct tern_row query = {QUERY, r->query, q->stride[last], 0, q->shape[last]};
    tern_dots(1, &dot, &query, (struct tern_row){KEY, r->key + j * k->stride[last - 1], k->stride[last], 0, q->shape[last]}, tern_in_row,
              r->a);
    return dot * d->attrs.sdpa.scale + bias;
}

/* The row's output in parts that fit a small array, so that nothing is allocated. */
static void attend(const struct row *r, int64_t value, int64_t to)
{
    enum { PART = 256 };
    const struct tern_op_desc *d = r->a->desc;
    const struct tern_meta *v = &d->in[VALUE], *out = &d->out;
    int last = v->ndim - 1;
    int64_t s = v->shape[last - 1], ev = v->shape[last];
    double max = -INFINITY, total = 0, part[PART], values[PART];
    bool nan = false;
    for (int64_t j = 0; j < s; j++) {
        double x = score(r, j);
        nan = nan || x != x;
        max = x > max ? x : max;
    }
    max = nan ? NAN : max;
    bool none = max == -INFINITY;
    for (int64_t first = 0; first < ev; first += PART) {
        int64_t n = ev - first < PART ? ev - first : PART;
        memset(part, 0, sizeof(part));
        total = 0;
        for (int64_t j = 0; j < s && !none; j++) {
            double p = exp(score(r, j) - max);
            total += p;
            tern_in_row(r->a, &(struct tern_row){VALUE, value + j * v->stride[last - 1] + first * v->stride[last], v->stride[last], 0, n},
                        values);
            for (int64_t e = 0; e < n; e++)
                part[e] += p * values[e];
        }
        for (int64_t e = 0; e < n; e++)
            tern_out(r->a, to + (first + e) * out->stride[last], none ? 0 : part[e] / total);
    }
}

void tern_ref_sdpa(const struct tern_kernel_args *a)
{
    const struct tern_op_desc *d = a->desc;
    const struct tern_meta *q = &d->in[QUERY], *k = &d->in[KEY], *v = &d->in[VALUE], *out = &d->out;
    int last = q->ndim - 1;
    struct tern_meta scores = *q;
    int64_t mask[TERN_MAX_DIMS] = {0}, rows = tern_meta_numel(out) ? 1 : 0, l = q->shape[last - 1];
    scores.shape[last] = k->shape[last - 1];
    if (d->present[MASK])
        tern_broadcast_strides(&d->in[MASK], &scores, mask);
    for (int i = 0; i < last; i++)
        rows *= q->shape[i];
    for (int64_t n = 0; n < rows; n++) {
        int64_t batch = n / l, i = n % l;
        struct row r = {.a = a, .i = i, .mask_step = mask[last]};
        r.query = tern_offset_of(n, last, q->shape, q->stride);
        r.key = tern_offset_of(batch, last - 1, q->shape, k->stride);
        r.mask = tern_offset_of(n, last, q->shape, mask);
        attend(&r, tern_offset_of(batch, last - 1, q->shape, v->stride), tern_offset_of(n, last, q->shape, out->stride));
    }
}

tern_tensor *tern_sdpa_p(tern_tensor *query, tern_tensor *key, tern_tensor *value, const struct tern_sdpa_params *params)
{
    static const struct tern_sdpa_params defaults;
    params = params ? params : &defaults;
    const union tern_op_attrs attrs = {.sdpa = {.is_causal = params->is_causal, .scale = params->scale, .int8 = params->int8}};
    tern_tensor *const in[] = {query, key, value, params->attn_mask};
    return query && key && value ? tern_op_call(query->ctx, TERN_OP_sdpa, in, 4, &attrs) : NULL;
}
