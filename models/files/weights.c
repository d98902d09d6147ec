/* Weight sets: reference-counted tables of named tensors, sorted by name. */
#include "models/files/weights.h"

#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"

struct tern_weights *tern_weights_create(struct tern_context *ctx)
{
    struct tern_weights *w = ctx ? tern_calloc(ctx, 1, sizeof(*w)) : NULL;
    if (!w)
        return NULL;
    tern_context_ref(ctx);
    w->refs = 1;
    w->ctx = ctx;
    w->format = "memory";
    return w;
}

struct tern_weights *tern_weights_ref(struct tern_weights *w)
{
    if (w)
        __atomic_add_fetch(&w->refs, 1, __ATOMIC_RELAXED);
    return w;
}

void tern_weights_unref(struct tern_weights **weights)
{
    if (!weights || !*weights)
        return;
    struct tern_weights *w = *weights;
    *weights = NULL;
    if (__atomic_sub_fetch(&w->refs, 1, __ATOMIC_ACQ_REL))
        return;
    struct tern_context *ctx = w->ctx;
    for (int64_t i = 0; i < w->count; i++) {
        tern_free(ctx, w->entries[i].name);
        tern_tensor_unref(&w->entries[i].tensor);
    }
    for (int64_t i = 0; i < 2 * w->metadata_count; i++)
        tern_free(ctx, w->metadata[i]);
    tern_free(ctx, w->entries);
    tern_free(ctx, w->metadata);
    tern_free(ctx, w);
    tern_context_unref(ctx);
}

/* Room for one more element of `size` bytes: the array, perhaps moved; NULL (error recorded) without memory. */
static void *grow(struct tern_context *ctx, void *array, int64_t count, int64_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    int64_t n = *capacity ? 2 * *capacity : 64;
    void *p = tern_realloc(ctx, array, (size_t)n * size);
    if (p)
        *capacity = n;
    return p;
}

/* Puts an entry at index i, takes over the tensor's reference. */
static enum tern_status insert(struct tern_weights *w, int64_t i, const char *name, tern_tensor *t)
{
    char *copy = tern_strdup(w->ctx, name);
    struct tern_weights_entry *entries = copy ? grow(w->ctx, w->entries, w->count, &w->capacity, sizeof(*entries)) : NULL;
    if (!entries) {
        tern_free(w->ctx, copy);
        tern_tensor_unref(&t);
        return tern_error_status(w->ctx);
    }
    w->entries = entries;
    memmove(w->entries + i + 1, w->entries + i, (size_t)(w->count - i) * sizeof(*w->entries));
    w->entries[i] = (struct tern_weights_entry){copy, t};
    w->count++;
    return TERN_OK;
}

enum tern_status tern_weights_append(struct tern_weights *w, const char *name, tern_tensor *t)
{
    if (!t)
        return tern_failed(w->ctx) ? tern_error_status(w->ctx) : tern_fail(w->ctx, TERN_E_INTERNAL, "weights: \"%s\" has no tensor", name);
    return insert(w, w->count, name, t);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct tern_weights_entry *)a)->name, ((const struct tern_weights_entry *)b)->name);
}

enum tern_status tern_weights_finish(struct tern_weights *w, const char *where)
{
    char text[TERN_PRINTABLE];
    if (w->count)
        qsort(w->entries, (size_t)w->count, sizeof(*w->entries), compare_names);
    for (int64_t i = 1; i < w->count; i++)
        if (!strcmp(w->entries[i - 1].name, w->entries[i].name))
            return tern_fail(w->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" occurs twice", where,
                             tern_printable(w->entries[i].name, strlen(w->entries[i].name), text));
    return TERN_OK;
}

/* First entry whose name is not below `name`. */
static int64_t lower_bound(const struct tern_weights *w, const char *name)
{
    int64_t lo = 0, hi = w->count;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (strcmp(w->entries[mid].name, name) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

enum tern_status tern_weights_add(struct tern_weights *w, const char *name, tern_tensor *t)
{
    if (!w || !name)
        return tern_fail(w ? w->ctx : NULL, TERN_E_INVALID, "tern_weights_add: expected a name, found NULL");
    if (!t)
        return tern_fail(w->ctx, TERN_E_INVALID, "tern_weights_add: \"%s\": expected a tensor, found NULL", name);
    if (!t->buffer)
        return tern_fail(w->ctx, TERN_E_INVALID,
                         "tern_weights_add: \"%s\": expected values, found a tensor of a graph that is or was recorded", name);
    int64_t i = lower_bound(w, name);
    if (i < w->count && !strcmp(w->entries[i].name, name))
        return tern_fail(w->ctx, TERN_E_INVALID, "tern_weights_add: \"%s\" is in the set already", name);
    return insert(w, i, name, tern_tensor_ref(t));
}

int64_t tern_weights_count(const struct tern_weights *w) { return w ? w->count : 0; }

const char *tern_weights_name(const struct tern_weights *w, int64_t i) { return w && i >= 0 && i < w->count ? w->entries[i].name : NULL; }

tern_tensor *tern_weights_at(const struct tern_weights *w, int64_t i) { return w && i >= 0 && i < w->count ? w->entries[i].tensor : NULL; }

tern_tensor *tern_weights_get(const struct tern_weights *w, const char *name)
{
    if (!w || !name)
        return NULL;
    int64_t i = lower_bound(w, name);
    return i < w->count && !strcmp(w->entries[i].name, name) ? w->entries[i].tensor : NULL;
}

enum tern_status tern_weights_add_metadata(struct tern_weights *w, const char *key, const char *value)
{
    char *k = tern_strdup(w->ctx, key), *v = k ? tern_strdup(w->ctx, value) : NULL;
    char **pairs = v ? grow(w->ctx, w->metadata, w->metadata_count, &w->metadata_capacity, 2 * sizeof(*pairs)) : NULL;
    if (!pairs) {
        tern_free(w->ctx, k);
        tern_free(w->ctx, v);
        return tern_error_status(w->ctx);
    }
    w->metadata = pairs;
    w->metadata[2 * w->metadata_count] = k;
    w->metadata[2 * w->metadata_count + 1] = v;
    w->metadata_count++;
    return TERN_OK;
}

const char *tern_weights_metadata(const struct tern_weights *w, const char *key)
{
    for (int64_t i = 0; w && key && i < w->metadata_count; i++)
        if (!strcmp(w->metadata[2 * i], key))
            return w->metadata[2 * i + 1];
    return NULL;
}

int64_t tern_weights_metadata_count(const struct tern_weights *w) { return w ? w->metadata_count : 0; }

void tern_weights_metadata_at(const struct tern_weights *w, int64_t i, const char **key, const char **value)
{
    bool there = w && i >= 0 && i < w->metadata_count;
    if (key)
        *key = there ? w->metadata[2 * i] : NULL;
    if (value)
        *value = there ? w->metadata[2 * i + 1] : NULL;
}

const char *tern_printable(const char *s, size_t n, char out[TERN_PRINTABLE])
{
    size_t shown = n < TERN_PRINTABLE ? n : TERN_PRINTABLE - 4;
    for (size_t i = 0; i < shown; i++)
        out[i] = s[i] >= 0x20 && s[i] < 0x7f ? s[i] : '?';
    memcpy(out + shown, shown < n ? "..." : "", shown < n ? 4 : 1);
    return out;
}
