/* Derived weight sets: a set like another but for some tensors; the rest is shared, not copied. */
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/weights.h"

/* The entry of base that a change replaces; -1 with the error recorded. */
static int64_t find_target(const struct tern_weights *base, const struct tern_weights_change *c)
{
    char name[TERN_PRINTABLE], expected[TERN_META_TEXT], found[TERN_META_TEXT];
    if (!c->name || !c->tensor || !c->tensor->buffer) {
        tern_fail(base->ctx, TERN_E_INVALID, "tern_weights_derive: a change without a name or without a tensor that has values");
        return -1;
    }
    tern_printable(c->name, strlen(c->name), name);
    int64_t lo = 0, hi = base->count;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (strcmp(base->entries[mid].name, c->name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == base->count || strcmp(base->entries[lo].name, c->name)) {
        tern_fail(base->ctx, TERN_E_NOT_FOUND, "tern_weights_derive: the set has no tensor \"%s\"", name);
        return -1;
    }
    const struct tern_meta *want = &base->entries[lo].tensor->meta, *is = &c->tensor->meta;
    if (want->dtype != is->dtype || !tern_meta_same_shape(want, is)) {
        tern_fail(base->ctx, want->dtype != is->dtype ? TERN_E_DTYPE : TERN_E_SHAPE,
                  "tern_weights_derive: tensor \"%s\": expected %s, found %s", name, tern_meta_text(want, expected),
                  tern_meta_text(is, found));
        return -1;
    }
    return lo;
}

/* changed[i]: what entry i becomes, borrowed; NULL: it stays. */
static enum tern_status find_targets(const struct tern_weights *base, const struct tern_weights_change *changes, int64_t n,
                                     tern_tensor **changed)
{
    char name[TERN_PRINTABLE];
    for (int64_t i = 0; i < n; i++) {
        int64_t at = find_target(base, &changes[i]);
        if (at < 0)
            return tern_error_status(base->ctx);
        if (changed[at])
            return tern_fail(base->ctx, TERN_E_INVALID, "tern_weights_derive: \"%s\" is changed twice",
                             tern_printable(changes[i].name, strlen(changes[i].name), name));
        changed[at] = changes[i].tensor;
    }
    return TERN_OK;
}

struct tern_weights *tern_weights_derive(struct tern_weights *base, const struct tern_weights_change *changes, int64_t n)
{
    if (!base || tern_failed(base->ctx))
        return NULL;
    if (n < 0 || (n && !changes)) {
        tern_fail(base->ctx, TERN_E_INVALID, "tern_weights_derive: expected at least 0 changes, found %lld%s", (long long)n,
                  n < 0 ? "" : " that are NULL");
        return NULL;
    }
    if (!n)
        return tern_weights_ref(base);
    tern_tensor **changed = tern_calloc(base->ctx, (size_t)base->count + 1, sizeof(*changed));
    struct tern_weights *w = NULL;
    if (changed && find_targets(base, changes, n, changed) == TERN_OK)
        w = tern_weights_like(base->ctx, base);
    for (int64_t i = 0; w && i < base->count; i++) /* in order of their names already */
        if (tern_weights_append(w, base->entries[i].name, tern_tensor_ref(changed[i] ? changed[i] : base->entries[i].tensor)))
            tern_weights_unref(&w);
    tern_free(base->ctx, changed);
    return w;
}
