/* Writing safetensors, tensor by tensor or a whole set, through a temporary name. */
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/safetensors.h"
#include "models/files/weights.h"

struct tern_safetensors_writer {
    struct tern_context *ctx;
    struct tern_writer *out;
    size_t *sizes; /* bytes of each tensor */
    char **names;
    int64_t count, next;
};

static const char *const dtype_names[TERN_DTYPE_COUNT] = {"F32", "F16", "BF16", "I8", "U8", "I32", "I64", "BOOL"};

static void writer_free(struct tern_safetensors_writer *w)
{
    for (int64_t i = 0; w->names && i < w->count; i++)
        tern_free(w->ctx, w->names[i]);
    tern_free(w->ctx, w->names);
    tern_free(w->ctx, w->sizes);
    tern_free(w->ctx, w);
}

static enum tern_status no_memory(const struct tern_safetensors_writer *w)
{
    return tern_fail(w->ctx, TERN_E_NO_MEMORY, "%s: no memory for the header", w->out->path);
}

/* Why jansson did not take a text. */
static enum tern_status not_utf8(const struct tern_safetensors_writer *w, const char *what, const char *name)
{
    if (tern_errno_status(TERN_E_INVALID) == TERN_E_NO_MEMORY)
        return no_memory(w);
    return tern_fail(w->ctx, TERN_E_INVALID, "%s: %s \"%s\": it is not valid UTF-8", w->out->path, what, name);
}

/* The header's object of one tensor that lies at *offset, which moves behind it. NULL with the error recorded. */
static json_t *describe(struct tern_safetensors_writer *w, int64_t i, const struct tern_safetensors_entry *e, uint64_t *offset)
{
    int64_t numel;
    uint64_t end;
    if ((unsigned)e->dtype >= TERN_DTYPE_COUNT || !tern_shape_valid(e->ndim, e->shape, &numel) ||
        !tern_mul_size((size_t)numel, tern_dtype_size(e->dtype), &w->sizes[i]) || __builtin_add_overflow(*offset, w->sizes[i], &end) ||
        end > INT64_MAX) {
        tern_fail(w->ctx, TERN_E_INVALID, "%s: tensor \"%s\" has no valid dtype or shape", w->out->path, e->name);
        return NULL;
    }
    json_t *shape = json_array();
    for (int d = 0; d < e->ndim; d++)
        json_array_append_new(shape, json_integer(e->shape[d]));
    json_t *o = json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype_names[e->dtype], "shape", shape, "data_offsets", (json_int_t)*offset,
                          (json_int_t)end);
    if (!o || json_array_size(shape) != (size_t)e->ndim) {
        no_memory(w);
        json_decref(o);
        return NULL;
    }
    *offset = end;
    return o;
}

static enum tern_status add_metadata(struct tern_safetensors_writer *w, json_t *header, const char *const *pairs, int64_t n)
{
    errno = 0;
    json_t *o = json_object();
    for (int64_t i = 0; i < n; i++)
        if (json_object_set_new(o, pairs[2 * i], json_string(pairs[2 * i + 1]))) {
            json_decref(o);
            return not_utf8(w, "metadata", pairs[2 * i]);
        }
    return json_object_set_new(header, "__metadata__", o) ? no_memory(w) : TERN_OK;
}

static int count_bytes(const char *text, size_t size, void *n)
{
    (void)text;
    *(size_t *)n += size;
    return 0;
}

static int write_bytes(const char *text, size_t size, void *file) { return fwrite(text, 1, size, file) == size ? 0 : -1; }

/* Length, text, and blanks up to a multiple of 8 bytes. */
static enum tern_status write_header(struct tern_safetensors_writer *w, const json_t *header)
{
    uint8_t length[8];
    size_t n = 0;
    errno = 0;
    if (json_dump_callback(header, count_bytes, &n, JSON_COMPACT))
        return no_memory(w);
    size_t padded = (n + 7) / 8 * 8;
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    if (write_bytes((const char *)length, 8, w->out->file) || json_dump_callback(header, write_bytes, w->out->file, JSON_COMPACT) ||
        write_bytes("       ", padded - n, w->out->file))
        return tern_fail(w->ctx, tern_errno_status(TERN_E_IO), "%s: could not be written: %s", w->out->path, strerror(errno));
    return TERN_OK;
}

static enum tern_status begin(struct tern_safetensors_writer *w, const struct tern_safetensors_entry *entries, const char *const *metadata,
                              int64_t metadata_count)
{
    uint64_t offset = 0;
    json_t *header = json_object();
    enum tern_status st = !header ? no_memory(w) : metadata_count ? add_metadata(w, header, metadata, metadata_count) : TERN_OK;
    for (int64_t i = 0; !st && i < w->count; i++) {
        errno = 0;
        json_t *o = describe(w, i, &entries[i], &offset);
        if (!o) {
            st = tern_error_status(w->ctx);
        } else if (json_object_get(header, entries[i].name) || !strcmp(entries[i].name, "__metadata__")) {
            st =
                tern_fail(w->ctx, TERN_E_INVALID, "%s: tensor \"%s\": the name occurs twice or is reserved", w->out->path, entries[i].name);
            json_decref(o);
        } else if (json_object_set_new(header, entries[i].name, o)) {
            st = not_utf8(w, "the name of tensor", entries[i].name);
        } else if (!(w->names[i] = tern_strdup(w->ctx, entries[i].name))) {
            st = TERN_E_NO_MEMORY;
        }
    }
    if (!st)
        st = write_header(w, header);
    json_decref(header);
    return st;
}

struct tern_safetensors_writer *tern_safetensors_writer_open(struct tern_context *ctx, const char *path,
                                                             const struct tern_safetensors_entry *entries, int64_t count,
                                                             const char *const *metadata, int64_t metadata_count)
{
    struct tern_safetensors_writer *w = tern_calloc(ctx, 1, sizeof(*w));
    if (!w)
        return NULL;
    w->ctx = ctx;
    w->count = count;
    w->sizes = tern_calloc(ctx, (size_t)count, sizeof(*w->sizes));
    w->names = tern_calloc(ctx, (size_t)count, sizeof(*w->names));
    w->out = w->sizes && w->names ? tern_writer_open(ctx, path) : NULL;
    if (!w->out || begin(w, entries, metadata, metadata_count))
        tern_safetensors_writer_discard(&w);
    return w;
}

enum tern_status tern_safetensors_writer_add(struct tern_safetensors_writer *w, const void *data, size_t size)
{
    if (w->next == w->count)
        return tern_fail(w->ctx, TERN_E_INTERNAL, "%s: more than the %lld tensors that were announced", w->out->path, (long long)w->count);
    if (size != w->sizes[w->next])
        return tern_fail(w->ctx, TERN_E_INTERNAL, "%s: tensor \"%s\": expected %zu bytes, found %zu", w->out->path, w->names[w->next],
                         w->sizes[w->next], size);
    w->next++;
    if (size && fwrite(data, 1, size, w->out->file) != size)
        return tern_fail(w->ctx, TERN_E_IO, "%s: could not be written: %s", w->out->path, strerror(errno));
    return TERN_OK;
}

enum tern_status tern_safetensors_writer_commit(struct tern_safetensors_writer **writer)
{
    struct tern_safetensors_writer *w = *writer;
    enum tern_status st;
    if (w->next < w->count) {
        st = tern_fail(w->ctx, TERN_E_INTERNAL, "%s: tensor \"%s\" was announced and not written", w->out->path, w->names[w->next]);
        tern_safetensors_writer_discard(writer);
        return st;
    }
    *writer = NULL;
    st = tern_writer_commit(&w->out);
    writer_free(w);
    return st;
}

void tern_safetensors_writer_discard(struct tern_safetensors_writer **writer)
{
    struct tern_safetensors_writer *w = *writer;
    *writer = NULL;
    if (!w)
        return;
    tern_writer_discard(&w->out);
    writer_free(w);
}

/* Large elements first, so that each tensor is aligned to its own; then by name, as the reference implementation has it. */
static int compare_entries(const void *a, const void *b)
{
    const tern_tensor *x = ((const struct tern_weights_entry *)a)->tensor, *y = ((const struct tern_weights_entry *)b)->tensor;
    size_t sx = tern_dtype_size(x->meta.dtype), sy = tern_dtype_size(y->meta.dtype);
    if (sx != sy)
        return sx > sy ? -1 : 1;
    return strcmp(((const struct tern_weights_entry *)a)->name, ((const struct tern_weights_entry *)b)->name);
}

enum tern_status tern_safetensors_writer_add_tensor(struct tern_safetensors_writer *out, const tern_tensor *t)
{
    size_t size = (size_t)tern_meta_numel(&t->meta) * tern_dtype_size(t->meta.dtype);
    const void *host = tern_tensor_host(t);
    if (host && tern_meta_is_contiguous(&t->meta))
        return tern_safetensors_writer_add(out, host, size);
    void *copy = tern_alloc(t->ctx, size);
    enum tern_status st = copy ? tern_tensor_read(t, t->meta.dtype, copy, size) : tern_error_status(t->ctx);
    if (!st)
        st = tern_safetensors_writer_add(out, copy, size);
    tern_free(t->ctx, copy);
    return st;
}

enum tern_status tern_weights_save(const struct tern_weights *w, const char *path)
{
    if (!w || !path)
        return tern_fail(w ? w->ctx : NULL, TERN_E_INVALID, "tern_weights_save: expected a path, found NULL");
    struct tern_context *ctx = w->ctx;
    struct tern_weights_entry *sorted = tern_calloc(ctx, (size_t)w->count, sizeof(*sorted));
    struct tern_safetensors_entry *entries = tern_calloc(ctx, (size_t)w->count, sizeof(*entries));
    struct tern_safetensors_writer *out = NULL;
    enum tern_status st = TERN_E_NO_MEMORY;
    if (sorted && entries) {
        for (int64_t i = 0; i < w->count; i++)
            sorted[i] = w->entries[i];
        if (w->count)
            qsort(sorted, (size_t)w->count, sizeof(*sorted), compare_entries);
        for (int64_t i = 0; i < w->count; i++) {
            const struct tern_meta *m = &sorted[i].tensor->meta;
            entries[i] = (struct tern_safetensors_entry){.name = sorted[i].name, .dtype = m->dtype, .ndim = m->ndim};
            memcpy(entries[i].shape, m->shape, sizeof(m->shape));
        }
        out = tern_safetensors_writer_open(ctx, path, entries, w->count, (const char *const *)w->metadata, w->metadata_count);
        st = out ? TERN_OK : tern_error_status(ctx);
        for (int64_t i = 0; !st && i < w->count; i++)
            st = tern_safetensors_writer_add_tensor(out, sorted[i].tensor);
        if (!st)
            st = tern_safetensors_writer_commit(&out);
        else
            tern_safetensors_writer_discard(&out);
    }
    tern_free(ctx, sorted);
    tern_free(ctx, entries);
    return st;
}
