/* Shapes and strides. */
#include "core/shape.h"

#include <stdio.h>
#include <string.h>

/* The stride outside n elements of stride s. A shape that no memory holds has some stride too; its size is refused later. */
static int64_t stride_outside(int64_t s, int64_t n)
{
    int64_t out;
    return n <= 0 ? s : __builtin_mul_overflow(s, n, &out) ? INT64_MAX : out;
}

void tern_meta_contiguous(struct tern_meta *m)
{
    int64_t s = 1;
    for (int i = m->ndim - 1; i >= 0; i--) {
        m->stride[i] = s;
        s = stride_outside(s, m->shape[i]);
    }
}

struct tern_meta tern_meta_make(enum tern_dtype dtype, int ndim, const int64_t *shape)
{
    struct tern_meta m = {.dtype = dtype, .ndim = ndim};
    for (int i = 0; i < ndim; i++)
        m.shape[i] = shape[i];
    tern_meta_contiguous(&m);
    return m;
}

void tern_meta_channels_last(struct tern_meta *m)
{
    static const int order[] = {1, 3, 2, 0}; /* C fastest, then W, H, N */
    int64_t s = 1;
    for (int i = 0; i < 4; i++) {
        m->stride[order[i]] = s;
        s = stride_outside(s, m->shape[order[i]]);
    }
}

static bool follows(const struct tern_meta *m, const int *order)
{
    int64_t s = 1;
    for (int i = m->ndim - 1; i >= 0; i--) {
        int d = order ? order[i] : i;
        if (m->shape[d] == 0)
            return true;
        if (m->shape[d] != 1 && m->stride[d] != s)
            return false;
        s = stride_outside(s, m->shape[d]);
    }
    return true;
}

bool tern_meta_is_contiguous(const struct tern_meta *m) { return tern_meta_numel(m) == 0 || follows(m, NULL); }

bool tern_meta_is_channels_last(const struct tern_meta *m)
{
    static const int order[] = {0, 2, 3, 1};
    return m->ndim == 4 && (tern_meta_numel(m) == 0 || follows(m, order));
}

bool tern_meta_is_dense(const struct tern_meta *m)
{
    if (tern_meta_numel(m) == 0)
        return true;
    for (int i = 0; i < m->ndim; i++)
        if (m->shape[i] > 1 && m->stride[i] <= 0)
            return false;
    return tern_meta_span(m) == tern_meta_numel(m);
}

bool tern_meta_same_shape(const struct tern_meta *a, const struct tern_meta *b)
{
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape));
}

int64_t tern_meta_numel(const struct tern_meta *m)
{
    int64_t n = 1;
    for (int i = 0; i < m->ndim; i++)
        n *= m->shape[i];
    return n;
}

int64_t tern_meta_span(const struct tern_meta *m)
{
    int64_t last = 0;
    for (int i = 0; i < m->ndim; i++) {
        if (m->shape[i] == 0)
            return 0;
        last += (m->shape[i] - 1) * m->stride[i];
    }
    return last + 1;
}

size_t tern_meta_bytes(const struct tern_meta *m) { return (size_t)tern_meta_span(m) * tern_dtype_size(m->dtype); }

bool tern_shape_valid(int ndim, const int64_t *shape, int64_t *numel)
{
    int64_t n = 1;
    bool empty = false;
    if (ndim < 0 || ndim > TERN_MAX_DIMS || (ndim && !shape))
        return false;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0)
            return false;
        empty = empty || shape[i] == 0;
        /* zero sizes must not hide an overflow of the others: strides are made from them */
        if (shape[i] && __builtin_mul_overflow(n, shape[i], &n))
            return false;
    }
    if (n > INT64_MAX / 16)
        return false;
    if (numel)
        *numel = empty ? 0 : n;
    return true;
}

bool tern_broadcast_shape(const struct tern_meta *a, const struct tern_meta *b, struct tern_meta *out)
{
    int n = a->ndim > b->ndim ? a->ndim : b->ndim;
    int64_t shape[TERN_MAX_DIMS];
    for (int i = 0; i < n; i++) {
        int ia = i - (n - a->ndim), ib = i - (n - b->ndim);
        int64_t sa = ia >= 0 ? a->shape[ia] : 1, sb = ib >= 0 ? b->shape[ib] : 1;
        if (sa != sb && sa != 1 && sb != 1)
            return false;
        shape[i] = sa == 1 ? sb : sa;
    }
    out->ndim = n;
    memcpy(out->shape, shape, sizeof(shape[0]) * (size_t)n);
    return tern_shape_valid(n, out->shape, NULL);
}

void tern_broadcast_strides(const struct tern_meta *m, const struct tern_meta *to, int64_t *stride)
{
    for (int i = 0; i < to->ndim; i++) {
        int j = i - (to->ndim - m->ndim);
        stride[i] = j < 0 || m->shape[j] == 1 ? 0 : m->stride[j];
    }
}

int tern_wrap_dim(int dim, int ndim)
{
    int d = dim < 0 ? dim + ndim : dim;
    return d >= 0 && d < ndim ? d : -1;
}

const char *tern_meta_text(const struct tern_meta *m, char out[TERN_META_TEXT])
{
    int n = snprintf(out, TERN_META_TEXT, "(");
    for (int i = 0; i < m->ndim && n < TERN_META_TEXT - 32; i++)
        n += snprintf(out + n, (size_t)(TERN_META_TEXT - n), "%s%lld", i ? ", " : "", (long long)m->shape[i]);
    snprintf(out + n, (size_t)(TERN_META_TEXT - n), "%s) %s", m->ndim == 1 ? "," : "", tern_dtype_name(m->dtype));
    return out;
}
