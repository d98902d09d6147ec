/* What a weight file holds, as text for people and as JSON for programs. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/pipeline.h>

#include "core/context.h"
#include "core/json.h"
#include "core/status.h"
#include "core/tensor.h"
#include "models/files/quantized.h"
#include "models/files/weights.h"

/* Lines of the text's list of groups. */
#define GROUP_LINES 40
/* Bytes of a metadata value that the text shows. */
#define VALUE_SIZE 400
/* Names are grouped by this many of their parts. */
#define GROUP_PARTS 3

struct totals {
    int64_t count[TERN_STORED_KINDS], bytes[TERN_STORED_KINDS], parameters;
};

static struct totals add_up(const struct tern_weights *w)
{
    struct totals t = {0};
    for (int64_t i = 0; i < w->count; i++) {
        const tern_tensor *x = w->entries[i].tensor;
        const int kind = tern_stored_kind(x);
        t.count[kind]++;
        t.bytes[kind] += tern_stored_bytes(x);
        t.parameters += tern_meta_numel(&x->meta);
    }
    return t;
}

static json_t *describe_tensor(const struct tern_weights_entry *e)
{
    const struct tern_meta *m = &e->tensor->meta;
    json_t *shape = json_array();
    for (int i = 0; i < m->ndim; i++)
        json_array_append_new(shape, json_integer(m->shape[i]));
    return json_pack("{s:s,s:s,s:o}", "name", e->name, "dtype", tern_stored_name(tern_stored_kind(e->tensor)), "shape", shape);
}

/* What is not UTF-8 is left out; NULL without memory. */
static json_t *describe_json(const struct tern_weights *w, const char *path)
{
    struct totals t = add_up(w);
    errno = 0;
    json_t *dtypes = json_object(), *metadata = json_object(), *tensors = json_array();
    for (int d = 0; d < TERN_STORED_KINDS; d++)
        if (t.count[d])
            json_object_set_new(dtypes, tern_stored_name(d),
                                json_pack("{s:I,s:I}", "tensors", (json_int_t)t.count[d], "bytes", (json_int_t)t.bytes[d]));
    for (int64_t i = 0; i < w->metadata_count; i++)
        json_object_set_new(metadata, w->metadata[2 * i], json_string(w->metadata[2 * i + 1]));
    for (int64_t i = 0; i < w->count; i++)
        json_array_append_new(tensors, describe_tensor(&w->entries[i]));
    json_t *o = json_object();
    json_object_set_new(o, "file", json_string(path));
    json_object_set_new(o, "format", json_string(w->format));
    json_object_set_new(o, "tensor_count", json_integer(w->count));
    json_object_set_new(o, "parameters", json_integer(t.parameters));
    json_object_set_new(o, "dtypes", dtypes);
    json_object_set_new(o, "metadata", metadata);
    json_object_set_new(o, "tensors", tensors);
    if (errno != ENOMEM)
        return o;
    json_decref(o);
    return NULL;
}

/* Text that grows; data NULL once memory ran out (the error is recorded). */
struct text {
    struct tern_context *ctx;
    char *data;
    size_t size, capacity;
};

static void put(struct text *t, const char *fmt, ...) TERN_PRINTF(2, 3);
static void put(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    const int k = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    const size_t n = k < 0 ? 0 : (size_t)k;
    if (!t->data)
        return;
    if (t->size + n + 1 > t->capacity) {
        char *p = tern_realloc(t->ctx, t->data, 2 * (t->size + n + 1));
        if (!p) {
            tern_free(t->ctx, t->data);
            t->data = NULL;
            return;
        }
        t->data = p;
        t->capacity = 2 * (t->size + n + 1);
    }
    va_start(ap, fmt);
    vsnprintf(t->data + t->size, n + 1, fmt, ap);
    va_end(ap);
    t->size += n;
}

/* One line of UTF-8: control characters become blanks, and it is cut between characters. */
static void put_line(struct text *t, const char *s)
{
    char line[VALUE_SIZE + 1];
    size_t n = strlen(s), shown = n < VALUE_SIZE ? n : VALUE_SIZE;
    while (shown < n && shown && ((unsigned char)s[shown] & 0xc0) == 0x80)
        shown--;
    for (size_t i = 0; i < shown; i++)
        line[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? ' ' : s[i];
    line[shown] = 0;
    put(t, "%s%s", line, shown < n ? "..." : "");
}

static void put_bytes(struct text *t, int64_t n)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)n;
    int u = 0;
    for (; x >= 1024 && u < 4; u++)
        x /= 1024;
    put(t, u ? "%.1f %s" : "%.0f %s", x, units[u]);
}

/* Length of the first GROUP_PARTS parts of a name, but never its last part. */
static size_t group_length(const char *name)
{
    size_t n = 0, last = 0;
    for (int part = 0; part < GROUP_PARTS; part++) {
        const char *dot = strchr(name + n, '.');
        if (!dot)
            break;
        n = (size_t)(dot - name) + 1;
        last = n - 1;
    }
    return last ? last : strlen(name);
}

/* Tensors whose names begin alike stand next to each other, so one line counts each such run. A lone one is shown with its shape. */
static void put_groups(struct text *t, const struct tern_weights *w)
{
    int lines = 0;
    for (int64_t i = 0; i < w->count;) {
        char name[TERN_PRINTABLE], meta[TERN_META_TEXT];
        const char *first = w->entries[i].name;
        size_t n = group_length(first);
        int64_t k = i, parameters = 0;
        for (; k < w->count && !strncmp(w->entries[k].name, first, n) && (w->entries[k].name[n] == '.' || !w->entries[k].name[n]); k++)
            parameters += tern_meta_numel(&w->entries[k].tensor->meta);
        if (lines++ == GROUP_LINES) {
            put(t, "  and %lld more tensors\n", (long long)(w->count - i));
            return;
        }
        if (k == i + 1)
            put(t, "  %s %s\n", tern_printable(first, strlen(first), name), tern_meta_text(&w->entries[i].tensor->meta, meta));
        else
            put(t, "  %s.* %lld tensors, %lld parameters\n", tern_printable(first, n, name), (long long)(k - i), (long long)parameters);
        i = k;
    }
}

static char *describe_text(const struct tern_weights *w, const char *path)
{
    struct totals sums = add_up(w);
    struct text t = {w->ctx, tern_strdup(w->ctx, ""), 0, 1};
    put(&t, "file: %s\nformat: %s\n", path, w->format);
    put(&t, "tensors: %lld\nparameters: %lld\n", (long long)w->count, (long long)sums.parameters);
    for (int d = 0; d < TERN_STORED_KINDS; d++)
        if (sums.count[d]) {
            put(&t, "  %s: %lld tensors, ", tern_stored_name(d), (long long)sums.count[d]);
            put_bytes(&t, sums.bytes[d]);
            put(&t, "\n");
        }
    if (w->metadata_count)
        put(&t, "metadata:\n");
    for (int64_t i = 0; i < w->metadata_count; i++) {
        put(&t, "  ");
        put_line(&t, w->metadata[2 * i]);
        put(&t, ": ");
        put_line(&t, w->metadata[2 * i + 1]);
        put(&t, "\n");
    }
    put(&t, "names:\n");
    put_groups(&t, w);
    return t.data;
}

char *tern_weights_describe(struct tern_context *ctx, const char *path, bool json)
{
    struct tern_weights *w = tern_weights_open(ctx, path);
    char *text = NULL;
    if (w && json) {
        json_t *o = describe_json(w, path);
        char *dumped = o ? tern_json_dumps(o, JSON_INDENT(1)) : NULL;
        text = dumped ? tern_strdup(ctx, dumped) : NULL;
        if (!dumped)
            tern_fail(ctx, TERN_E_NO_MEMORY, "%s: its description does not fit in memory", path);
        free(dumped);
        json_decref(o);
    } else if (w) {
        text = describe_text(w, path);
    }
    tern_weights_unref(&w);
    return text;
}
