/* The table of what was measured: sorted by key, with the devices that it was measured on. */
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "ops/tuner.h"

void tern_tuning_clear(struct tern_context *ctx, struct tern_tuning *t)
{
    tern_free(ctx, t->devices);
    tern_free(ctx, t->tuned);
    *t = (struct tern_tuning){0};
}

int tern_tuning_device(struct tern_context *ctx, struct tern_tuning *t, struct tern_key key, const char *text)
{
    for (int i = 0; i < t->n_devices; i++)
        if (tern_key_equal(t->devices[i].key, key))
            return i;
    if (t->n_devices == TERN_TUNE_DEVICES) {
        tern_fail(ctx, TERN_E_UNSUPPORTED, "tuning: a file holds at most %d devices", TERN_TUNE_DEVICES);
        return -1;
    }
    if (!tern_grow(ctx, (void **)&t->devices, t->n_devices, &t->device_capacity, sizeof(*t->devices)))
        return -1;
    struct tern_tuner_device *d = &t->devices[t->n_devices];
    *d = (struct tern_tuner_device){.key = key};
    for (size_t i = 0; i + 1 < sizeof(d->text) && text[i]; i++) /* one line of plain characters */
        d->text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    return t->n_devices++;
}

static int compare(struct tern_key a, struct tern_key b)
{
    for (int i = 0; i < 2; i++)
        if (a.word[i] != b.word[i])
            return a.word[i] < b.word[i] ? -1 : 1;
    return 0;
}

/* The first place whose key is not below. */
static int place_of(const struct tern_tuning *t, struct tern_key key)
{
    int low = 0, high = t->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (compare(t->tuned[middle].key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct tern_tuned *tern_tuning_find(const struct tern_tuning *t, struct tern_key key)
{
    int at = place_of(t, key);
    return at < t->n && tern_key_equal(t->tuned[at].key, key) ? &t->tuned[at] : NULL;
}

enum tern_status tern_tuning_set(struct tern_context *ctx, struct tern_tuning *t, const struct tern_tuned *entry)
{
    int at = place_of(t, entry->key);
    if (at == t->n || !tern_key_equal(t->tuned[at].key, entry->key)) {
        if (t->n == TERN_TUNE_MOST)
            return tern_fail(ctx, TERN_E_UNSUPPORTED, "tuning: a file holds at most %d results; begin a new one", TERN_TUNE_MOST);
        if (!tern_grow(ctx, (void **)&t->tuned, t->n, &t->capacity, sizeof(*t->tuned)))
            return tern_error_status(ctx);
        memmove(&t->tuned[at + 1], &t->tuned[at], (size_t)(t->n - at) * sizeof(*t->tuned));
        t->n++;
    }
    t->tuned[at] = *entry;
    return TERN_OK;
}

enum tern_status tern_tuning_merge(struct tern_context *ctx, struct tern_tuning *t, const struct tern_tuning *from)
{
    for (int i = 0; i < from->n; i++) {
        struct tern_tuned e = from->tuned[i];
        if (tern_tuning_find(t, e.key))
            continue;
        const struct tern_tuner_device *d = &from->devices[e.device];
        int device = tern_tuning_device(ctx, t, d->key, d->text);
        e.device = (uint16_t)device;
        if (device < 0 || tern_tuning_set(ctx, t, &e))
            return tern_error_status(ctx);
    }
    return TERN_OK;
}
