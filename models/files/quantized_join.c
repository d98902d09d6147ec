/* Reading quantised files: NAME.weight beside NAME.weight_scale, or NAME.weight_packed with NAME.weight_scale and NAME.weight_shape, become
 * the one weight that they are. Everything is checked before a tensor is made. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/context.h"
#include "graph/plan.h"
#include "models/files/quantized.h"

#define NAME_SIZE 512

struct joining {
    struct tern_weights *from;
    struct tern_weights *to;
    const char *path;
};

static enum tern_status fail(const struct joining *j, const char *name, const char *expected, const char *found)
{
    char text[TERN_PRINTABLE];
    return tern_fail(j->from->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": expected %s, found %s", j->path,
                     tern_printable(name, strlen(name), text), expected, found);
}

static enum tern_status fail_meta(const struct joining *j, const char *name, const char *expected, const tern_tensor *t)
{
    char found[TERN_META_TEXT];
    return fail(j, name, expected, t ? tern_meta_text(&t->meta, found) : "none");
}

/* Length of the weight's name if the name is that of a part with the ending; 0: it is not. */
static size_t base_of(const char *name, const char *ending)
{
    const size_t n = strlen(name), k = strlen(ending);
    return n > k && n - k < NAME_SIZE - 16 && !strcmp(name + n - k, ending) ? n - k : 0;
}

static tern_tensor *part_of(const struct joining *j, const char *weight, size_t n, const char *ending, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "%.*s%s", (int)n, weight, ending);
    return tern_weights_get(j->from, name);
}

static bool is_like(const tern_tensor *t, enum tern_dtype dtype, int64_t rows, int64_t columns)
{
    const struct tern_meta m = tern_meta_make(dtype, 2, (const int64_t[]){rows, columns});
    return t && t->meta.dtype == dtype && tern_meta_same_shape(&t->meta, &m) && tern_meta_is_contiguous(&t->meta) && tern_tensor_host(t);
}

/* The first scale that is none, or with which the largest number is infinite; -1: all are good. Those of 4 bits may be negative. */
static int64_t find_bad_scale(const struct tern_quantized_form *f, const tern_tensor *scales, float *value)
{
    const int64_t n = f->rows * f->groups;
    const void *at = tern_tensor_host(scales);
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = f->bits == 8 ? ((const uint32_t *)at)[i] : (uint32_t)((const uint16_t *)at)[i] << 16;
        memcpy(value, &bits, sizeof(*value));
        if (!isnormal(*value) || !isfinite(*value * (f->bits == 8 ? 128 : 8)) || (f->bits == 8 && *value < 0))
            return i;
    }
    return -1;
}

static enum tern_status check_scales(const struct joining *j, const struct tern_quantized_form *f, const char *name, tern_tensor *scales)
{
    char expected[128], found[64];
    float value = 0;
    if (!is_like(scales, f->bits == 8 ? TERN_F32 : TERN_BF16, f->rows, f->groups)) {
        snprintf(expected, sizeof(expected), "(%lld, %lld) %s, the scales of its weight", (long long)f->rows, (long long)f->groups,
                 f->bits == 8 ? "f32" : "bf16");
        return fail_meta(j, name, expected, scales);
    }
    const int64_t bad = find_bad_scale(f, scales, &value);
    tern_tensor_advise(scales, false);
    if (bad < 0)
        return TERN_OK;
    snprintf(found, sizeof(found), "%g as number %lld", (double)value, (long long)bad);
    return fail(j, name,
                f->bits == 8 ? "scales that are positive and normal numbers, also times 128"
                             : "scales that are normal numbers, also times 8",
                found);
}

/* One weight of its parts. */
static enum tern_status join(struct joining *j, const char *weight, size_t n, int bits, tern_tensor *numbers, int ndim,
                             const int64_t *shape)
{
    char name[NAME_SIZE];
    struct tern_quantized_form f;
    if (!tern_quantized_form(bits, ndim, shape, &f))
        return fail_meta(j, weight, "a matrix or filter", numbers);
    tern_tensor *scales = part_of(j, weight, n, "_scale", name);
    if (check_scales(j, &f, name, scales))
        return tern_error_status(j->from->ctx);
    snprintf(name, sizeof(name), "%.*s", (int)n, weight);
    return tern_weights_append(j->to, name, tern_quantized_tensor(numbers, scales, &f, 0, ndim, shape));
}

static enum tern_status join_8(struct joining *j, const char *weight, tern_tensor *t)
{
    const size_t n = strlen(weight);
    if (n >= NAME_SIZE - 16 || !tern_meta_is_contiguous(&t->meta) || !tern_tensor_host(t))
        return fail_meta(j, weight, "a contiguous weight of a shorter name", t);
    return join(j, weight, n, 8, t, t->meta.ndim, t->meta.shape);
}

static enum tern_status join_4(struct joining *j, const char *packed, size_t n, tern_tensor *t)
{
    char name[NAME_SIZE], expected[96];
    struct tern_quantized_form f;
    tern_tensor *size = part_of(j, packed, n, "_shape", name);
    const bool vector = size && size->meta.dtype == TERN_I64 && size->meta.ndim == 1 && tern_tensor_host(size);
    const int ndim = vector ? (int)size->meta.shape[0] : 0;
    if (!vector || !tern_quantized_form(4, ndim, tern_tensor_host(size), &f))
        return fail_meta(j, name, "(2) or (4) i64, the shape of its weight, without zeros", size);
    if (!is_like(t, TERN_I32, f.rows, f.words)) {
        snprintf(expected, sizeof(expected), "(%lld, %lld) i32, 8 values in each", (long long)f.rows, (long long)f.words);
        return fail_meta(j, packed, expected, t);
    }
    return join(j, packed, n, 4, t, ndim, tern_tensor_host(size));
}

/* Whether it is a scale or shape of a weight, which goes where that goes. CLIP has a "logit_scale" of its own. */
static bool is_part(const struct joining *j, const char *name)
{
    char weight[NAME_SIZE];
    const size_t n = base_of(name, "_scale"), k = n ? n : base_of(name, "_shape");
    const tern_tensor *bytes = k ? part_of(j, name, k, "", weight) : NULL;
    return k && ((bytes && bytes->meta.dtype == TERN_I8) || part_of(j, name, k, "_packed", weight));
}

static enum tern_status take(struct joining *j, const char *name, tern_tensor *t)
{
    const size_t packed = base_of(name, "_packed");
    if (packed)
        return join_4(j, name, packed, t);
    if (is_part(j, name))
        return TERN_OK;
    return t->meta.dtype == TERN_I8 ? join_8(j, name, t) : tern_weights_append(j->to, name, tern_tensor_ref(t));
}

#define MOST_WORDS ((size_t)1 << 20) /* bytes */

/* Words go into messages and infotexts. Factors of norms are not what a file has: its numbers stand for the weights without them. */
static enum tern_status check_words(struct tern_context *ctx, const char *field, const char *words)
{
    size_t n = 0;
    while (words && words[n] >= ' ' && words[n] <= '~' && words[n] != '^')
        n++;
    if (words && words[n] == '^')
        return tern_fail(ctx, TERN_E_UNSUPPORTED, "%s: expected words without factors of norms, found \"^\" at byte %zu", field, n);
    if (words && words[n])
        return tern_fail(ctx, TERN_E_FORMAT, "%s: expected printable ASCII, found byte %d at %zu", field, (unsigned char)words[n], n);
    if (n > MOST_WORDS)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: expected at most %zu bytes, found %zu", field, MOST_WORDS, n);
    return tern_quantize_check(ctx, field, words);
}

/* The version, and the words. */
static enum tern_status check_metadata(const struct tern_weights *w, const char *path)
{
    static const char *const keys[] = {TERN_QUANTIZED_UNET, TERN_QUANTIZED_TEXT};
    char text[TERN_PRINTABLE];
    const char *version = tern_weights_metadata(w, TERN_QUANTIZED_KEY);
    if (strcmp(version, TERN_QUANTIZED_VERSION) != 0)
        return tern_fail(w->ctx, TERN_E_UNSUPPORTED, "%s: metadata \"%s\": expected version %s, found \"%s\"; a newer tern may read it",
                         path, TERN_QUANTIZED_KEY, TERN_QUANTIZED_VERSION, tern_printable(version, strlen(version), text));
    if (!tern_weights_metadata(w, keys[0]) && !tern_weights_metadata(w, keys[1]))
        return tern_fail(w->ctx, TERN_E_FORMAT, "%s: metadata: expected \"%s\" or \"%s\" beside \"%s\", found neither", path, keys[0],
                         keys[1], TERN_QUANTIZED_KEY);
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) {
        char *field = tern_sprintf(w->ctx, "%s: metadata \"%s\"", path, keys[i]);
        if (field)
            check_words(w->ctx, field, tern_weights_metadata(w, keys[i]));
        tern_free(w->ctx, field);
    }
    return tern_error_status(w->ctx);
}

enum tern_status tern_quantized_join(struct tern_weights *w, const char *path)
{
    if (!tern_weights_metadata(w, TERN_QUANTIZED_KEY))
        return TERN_OK;
    struct joining j = {w, check_metadata(w, path) ? NULL : tern_weights_like(w->ctx, w), path};
    enum tern_status st = j.to ? TERN_OK : tern_error_status(w->ctx);
    for (int64_t i = 0; !st && i < w->count; i++)
        st = take(&j, w->entries[i].name, w->entries[i].tensor);
    if (!st)
        st = tern_weights_finish(j.to, path);
    if (!st) { /* what the other set has goes with it */
        struct tern_weights_entry *entries = w->entries;
        const int64_t count = w->count, capacity = w->capacity;
        w->entries = j.to->entries;
        w->count = j.to->count;
        w->capacity = j.to->capacity;
        j.to->entries = entries;
        j.to->count = count;
        j.to->capacity = capacity;
    }
    tern_weights_unref(&j.to);
    return st;
}
