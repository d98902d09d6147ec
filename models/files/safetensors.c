/* Reading safetensors: every number of the header is checked before a tensor is made of it. */
#include "models/files/safetensors.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "models/files/weights.h"

/* The format's own limit for the header. */
#define HEADER_LIMIT ((uint64_t)100 << 20)

/* A tensor as the header describes it. */
struct entry {
    const char *name;
    struct tern_meta meta;
    enum tern_file_dtype file_dtype;
    uint64_t begin, end; /* bytes into the data */
};

struct reader {
    struct tern_context *ctx;
    struct tern_weights *w;
    struct tern_mapping *m;
    const uint8_t *data;
    uint64_t data_size;
    struct entry *entries;
    size_t count;
    struct tern_copy_limit copies;
};

struct file_dtype {
    const char *name;
    enum tern_dtype dtype;
    enum tern_file_dtype file_dtype;
    size_t size; /* bytes in the file */
};

static const struct file_dtype dtypes[] = {
    {"F32", TERN_F32, TERN_FILE_NATIVE, 4}, {"F16", TERN_F16, TERN_FILE_NATIVE, 2}, {"BF16", TERN_BF16, TERN_FILE_NATIVE, 2},
    {"F64", TERN_F32, TERN_FILE_F64, 8},    {"I8", TERN_I8, TERN_FILE_NATIVE, 1},   {"U8", TERN_U8, TERN_FILE_NATIVE, 1},
    {"I32", TERN_I32, TERN_FILE_NATIVE, 4}, {"I64", TERN_I64, TERN_FILE_NATIVE, 8}, {"BOOL", TERN_BOOL, TERN_FILE_BOOL, 1},
    {"I16", TERN_I32, TERN_FILE_I16, 2},    {"U16", TERN_I32, TERN_FILE_U16, 2},    {"U32", TERN_I64, TERN_FILE_U32, 4},
};
/* Written by others, without a counterpart here. */
static const char *const foreign_dtypes[] = {"U64", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F6_E2M3", "F6_E3M2", "F4", "C64"};

static enum tern_status fail(struct reader *r, const char *name, const char *problem)
{
    char text[TERN_PRINTABLE];
    return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": %s", r->m->path, tern_printable(name, strlen(name), text), problem);
}

static enum tern_status read_dtype(struct reader *r, struct entry *e, const json_t *o, size_t *size)
{
    char name[TERN_PRINTABLE], text[TERN_PRINTABLE];
    const json_t *v = json_object_get(o, "dtype");
    const char *s = json_string_value(v);
    if (!s || strlen(s) != json_string_length(v))
        return fail(r, e->name, "expected a \"dtype\" that is a string without NUL");
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++)
        if (!strcmp(s, dtypes[i].name)) {
            e->meta.dtype = dtypes[i].dtype;
            e->file_dtype = dtypes[i].file_dtype;
            *size = dtypes[i].size;
            return TERN_OK;
        }
    tern_printable(e->name, strlen(e->name), name);
    for (size_t i = 0; i < sizeof(foreign_dtypes) / sizeof(*foreign_dtypes); i++)
        if (!strcmp(s, foreign_dtypes[i]))
            return tern_fail(r->ctx, TERN_E_UNSUPPORTED,
                             "%s: tensor \"%s\" is %s, which tern does not compute with; a file in F32, F16 or BF16 would help", r->m->path,
                             name, s);
    return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": unknown dtype \"%s\"", r->m->path, name,
                     tern_printable(s, strlen(s), text));
}

static enum tern_status read_shape(struct reader *r, struct entry *e, const json_t *o)
{
    const json_t *v = json_object_get(o, "shape");
    int64_t shape[TERN_MAX_DIMS], numel;
    if (!json_is_array(v))
        return fail(r, e->name, "expected a \"shape\" that is an array");
    size_t n = json_array_size(v);
    if (n > TERN_MAX_DIMS) {
        char text[TERN_PRINTABLE];
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" has %zu dimensions, expected at most %d", r->m->path,
                         tern_printable(e->name, strlen(e->name), text), n, TERN_MAX_DIMS);
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return fail(r, e->name, "expected a \"shape\" of integers that are not negative");
        shape[i] = json_integer_value(d);
    }
    if (!tern_shape_valid((int)n, shape, &numel))
        return fail(r, e->name, "the sizes of \"shape\" multiply to more than fits in 64 bits");
    e->meta = tern_meta_make(e->meta.dtype, (int)n, shape);
    return TERN_OK;
}

static enum tern_status read_offsets(struct reader *r, struct entry *e, const json_t *o, size_t element)
{
    char text[TERN_PRINTABLE];
    const json_t *v = json_object_get(o, "data_offsets"), *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(a) || !json_is_integer(b) || json_integer_value(a) < 0 ||
        json_integer_value(b) < json_integer_value(a))
        return fail(r, e->name, "expected \"data_offsets\" of two integers, the first not negative, the second not smaller");
    e->begin = (uint64_t)json_integer_value(a);
    e->end = (uint64_t)json_integer_value(b);
    tern_printable(e->name, strlen(e->name), text);
    if (e->end > r->data_size)
        return tern_fail(r->ctx, TERN_E_FORMAT,
                         "%s: tensor \"%s\" ends at byte %llu of the data, of which the file holds %llu; it is truncated or damaged",
                         r->m->path, text, (unsigned long long)e->end, (unsigned long long)r->data_size);
    size_t expected = 0;
    if (!tern_mul_size((size_t)tern_meta_numel(&e->meta), element, &expected) || expected != e->end - e->begin) {
        char meta[TERN_META_TEXT];
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" of shape %s: expected %zu bytes of data, found %llu", r->m->path, text,
                         tern_meta_text(&e->meta, meta), expected, (unsigned long long)(e->end - e->begin));
    }
    return TERN_OK;
}

static enum tern_status read_entry(struct reader *r, const char *name, const json_t *o)
{
    struct entry *e = r->entries + r->count;
    size_t element = 0;
    e->name = name;
    if (!json_is_object(o))
        return fail(r, name, "expected an object with dtype, shape and data_offsets");
    enum tern_status st = read_dtype(r, e, o, &element);
    if (!st)
        st = read_shape(r, e, o);
    if (!st)
        st = read_offsets(r, e, o, element);
    r->count += !st;
    return st;
}

/* A value ends at its first NUL, if it has one: values are C texts. */
static enum tern_status read_metadata(struct reader *r, json_t *o)
{
    const char *key;
    json_t *v;
    if (!json_is_object(o))
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"__metadata__\": expected an object of strings", r->m->path);
    json_object_foreach(o, key, v) {
        if (!json_is_string(v))
            return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"__metadata__\": expected an object of strings", r->m->path);
        enum tern_status st = tern_weights_add_metadata(r->w, key, json_string_value(v));
        if (st)
            return st;
    }
    return TERN_OK;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* The tensors must cover the data without gap or overlap, as the format demands. */
static enum tern_status check_coverage(struct reader *r)
{
    uint64_t at = 0;
    if (r->count)
        qsort(r->entries, r->count, sizeof(*r->entries), compare_offsets);
    for (size_t i = 0; i < r->count; i++) {
        const struct entry *e = r->entries + i;
        if (e->begin != at) {
            char text[TERN_PRINTABLE], before[TERN_PRINTABLE];
            const char *other = i ? r->entries[i - 1].name : "the start";
            return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" begins at byte %llu of the data and %s \"%s\", which ends at %llu",
                             r->m->path, tern_printable(e->name, strlen(e->name), text), (unsigned long long)e->begin,
                             e->begin < at ? "overlaps" : "leaves a gap after", tern_printable(other, strlen(other), before),
                             (unsigned long long)at);
        }
        at = e->end;
    }
    if (at != r->data_size)
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensors cover %llu bytes of data, the file holds %llu", r->m->path,
                         (unsigned long long)at, (unsigned long long)r->data_size);
    return TERN_OK;
}

static enum tern_status read_header(struct reader *r, json_t *header)
{
    const char *key;
    json_t *v;
    r->entries = tern_calloc(r->ctx, json_object_size(header), sizeof(*r->entries));
    if (!r->entries)
        return tern_error_status(r->ctx);
    json_object_foreach(header, key, v) {
        enum tern_status st = strcmp(key, "__metadata__") ? read_entry(r, key, v) : read_metadata(r, v);
        if (st)
            return st;
    }
    return check_coverage(r);
}

static enum tern_status make_tensors(struct reader *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct entry *e = r->entries + i;
        const uint8_t *data = r->data + e->begin;
        enum tern_status st = TERN_OK;
        if (tern_mapped_needs_copy(data, e->file_dtype, &e->meta))
            st = tern_copy_limit_take(r->ctx, &r->copies, (size_t)tern_meta_numel(&e->meta) * tern_dtype_size(e->meta.dtype), r->m->path,
                                      e->name);
        if (!st)
            st = tern_weights_append(r->w, e->name, tern_mapped_tensor(r->m, data, e->file_dtype, &e->meta));
        if (st)
            return st;
    }
    return tern_weights_finish(r->w, r->m->path);
}

enum tern_status tern_safetensors_read(struct tern_weights *w, struct tern_mapping *m)
{
    struct reader r = {.ctx = w->ctx, .w = w, .m = m, .copies = tern_copy_limit_for(m->size)};
    uint64_t n = 0;
    if (m->size < 8)
        return tern_fail(r.ctx, TERN_E_FORMAT, "%s: %zu bytes are too few for a safetensors file; it is empty or truncated", m->path,
                         m->size);
    for (int i = 7; i >= 0; i--)
        n = n << 8 | m->data[i];
    if (n > m->size - 8)
        return tern_fail(r.ctx, TERN_E_FORMAT, "%s: header of %llu bytes in a file of %zu; it is truncated or no safetensors file", m->path,
                         (unsigned long long)n, m->size);
    if (n > HEADER_LIMIT)
        return tern_fail(r.ctx, TERN_E_FORMAT, "%s: header of %llu bytes, expected at most %llu", m->path, (unsigned long long)n,
                         (unsigned long long)HEADER_LIMIT);
    json_error_t e;
    json_t *header = tern_json_read((const char *)m->data + 8, (size_t)n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
    if (!header && tern_errno_status(TERN_E_FORMAT) == TERN_E_NO_MEMORY)
        return tern_fail(r.ctx, TERN_E_NO_MEMORY, "%s: no memory to read the header", m->path);
    if (!header)
        return tern_fail(r.ctx, TERN_E_FORMAT, "%s: the header is not valid JSON: byte %d: %s", m->path, e.position, e.text);
    enum tern_status st = TERN_OK;
    if (!json_is_object(header))
        st = tern_fail(r.ctx, TERN_E_FORMAT, "%s: the header is not a JSON object", m->path);
    r.data = m->data + 8 + n;
    r.data_size = m->size - 8 - n;
    if (!st)
        st = read_header(&r, header);
    if (!st)
        st = make_tensors(&r);
    tern_free(r.ctx, r.entries);
    json_decref(header);
    w->format = "safetensors";
    return st;
}
