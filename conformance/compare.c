/* What was found against what PyTorch gave: the limits of the table, the first element that is off, the share of the limit. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "conformance/suite.h"
#include "ops/reference.h"

struct limit {
    bool bits;
    double absolute, relative, scaled;
};

static struct limit limit_of(const struct tern_table *t, const json_t *row, enum tern_dtype dtype)
{
    const json_t *v = json_object_get(json_object_get(t->limits, tern_json_word(row, "limit")), tern_dtype_name(dtype));
    return (struct limit){!v, tern_json_real(json_array_get(v, 0)), tern_json_real(json_array_get(v, 1)),
                          tern_json_real(json_array_get(v, 2))};
}

/* Largest finite magnitude. */
static double largest(enum tern_dtype dtype, const void *p, int64_t n)
{
    double m = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = fabs(tern_load(dtype, p, i));
        m = isfinite(v) && v > m ? v : m;
    }
    return m;
}

/* "(1, 0, 2)" of a row-major position */
static const char *coordinates(const struct tern_meta *m, int64_t position, char out[TERN_META_TEXT])
{
    int64_t at[TERN_MAX_DIMS];
    size_t n = 0;
    for (int d = m->ndim - 1; d >= 0; d--) {
        at[d] = position % m->shape[d];
        position /= m->shape[d];
    }
    n += (size_t)snprintf(out, TERN_META_TEXT, "(");
    for (int d = 0; d < m->ndim && n < TERN_META_TEXT; d++)
        n += (size_t)snprintf(out + n, TERN_META_TEXT - n, "%s%lld", d ? ", " : "", (long long)at[d]);
    if (n < TERN_META_TEXT)
        snprintf(out + n, TERN_META_TEXT - n, ")");
    return out;
}

/* The error of one element as a share of what is allowed; 0 for the same bits and for NaN where NaN is expected. */
static double share(const struct limit *l, double scale, const struct tern_meta *m, const void *expected, const void *found, int64_t i)
{
    size_t element = tern_dtype_size(m->dtype);
    double e = tern_load(m->dtype, expected, i), f = tern_load(m->dtype, found, i);
    bool same = !memcmp((const char *)expected + (size_t)i * element, (const char *)found + (size_t)i * element, element);
    if (same || (e != e && f != f))
        return 0;
    double off = fabs(f - e), allowed = l->absolute + l->relative * fabs(e) + l->scaled * scale;
    if (l->bits || !isfinite(e) || !isfinite(f))
        return INFINITY;
    return off == 0 ? 0 : off / allowed;
}

bool tern_case_compare(const struct tern_table *t, const json_t *row, const struct tern_meta *m, const void *found, struct tern_verdict *v)
{
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    struct tern_meta want;
    const json_t *out = json_object_get(row, "out");
    if (!tern_spec_meta(out, &want))
        return tern_verdict_fail(v, "the table's expected values are not there");
    const void *expected = tern_spec_stored(t, out);
    if (want.dtype != m->dtype || !tern_meta_same_shape(&want, m))
        return tern_verdict_fail(v, "expected %s, found %s", tern_meta_text(&want, a), tern_meta_text(m, b));
    struct limit l = limit_of(t, row, m->dtype);
    int64_t n = tern_meta_numel(m), first = -1, wrong = 0;
    double scale = l.scaled > 0 ? largest(m->dtype, expected, n) : 0;
    for (int64_t i = 0; i < n; i++) {
        double s = share(&l, scale, m, expected, found, i);
        if (!(s <= 1)) {
            first = wrong++ ? first : i;
        }
        v->error = s > v->error || s != s ? s : v->error;
    }
    if (!wrong)
        return true;
    double e = tern_load(m->dtype, expected, first), f = tern_load(m->dtype, found, first);
    double allowed = l.bits || !isfinite(e) ? 0 : l.absolute + l.relative * fabs(e) + l.scaled * scale;
    return tern_verdict_fail(v, "%lld of %lld elements of %s are wrong; the first at %s: expected %.9g, found %.9g, allowed %.3g off",
                             (long long)wrong, (long long)n, tern_meta_text(m, a), coordinates(m, first, b), e, f != f ? (double)NAN : f,
                             allowed);
}
