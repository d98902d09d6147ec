/* Sharded weights: an index.json that says in which file each tensor lies. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/context.h"
#include "core/json.h"
#include "models/files/weights.h"

#define INDEX_LIMIT ((size_t)64 << 20)

/* A pair of the weight map; both borrowed from the JSON. */
struct row {
    const char *tensor, *shard;
};

struct index_reader {
    struct tern_context *ctx;
    struct tern_weights *w;
    struct tern_mapping *m;
    struct row *rows; /* by shard, then by tensor */
    size_t count;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int c = strcmp(x->shard, y->shard);
    return c ? c : strcmp(x->tensor, y->tensor);
}

/* The rows of "weight_map", sorted. Shards must lie in the folder of the index. */
static enum tern_status read_map(struct index_reader *r, const json_t *root)
{
    char text[TERN_PRINTABLE];
    const char *key;
    json_t *v, *map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        return tern_fail(r->ctx, TERN_E_FORMAT,
                         "%s: expected an object \"weight_map\" as in a *.safetensors.index.json; this is no index of weight files",
                         r->m->path);
    r->rows = tern_calloc(r->ctx, json_object_size(map), sizeof(*r->rows));
    if (!r->rows)
        return tern_error_status(r->ctx);
    json_object_foreach(map, key, v) {
        const char *file = json_string_value(v);
        if (!file || !*file || strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, ".."))
            return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\": expected the name of a file beside the index", r->m->path,
                             tern_printable(key, strlen(key), text));
        r->rows[r->count++] = (struct row){key, file};
    }
    if (!r->count)
        return tern_fail(r->ctx, TERN_E_FORMAT, "%s: \"weight_map\" is empty", r->m->path);
    qsort(r->rows, r->count, sizeof(*r->rows), compare_rows);
    return TERN_OK;
}

/* The shard's tensors against the rows that name it: both must hold the same names. */
static enum tern_status take_tensors(struct index_reader *r, const struct tern_weights *shard, const char *path, const struct row *rows,
                                     size_t n)
{
    char text[TERN_PRINTABLE];
    for (size_t i = 0, k = 0; i < n || k < (size_t)shard->count;) {
        int c = i == n ? 1 : k == (size_t)shard->count ? -1 : strcmp(rows[i].tensor, shard->entries[k].name);
        if (c < 0)
            return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" should be in %s, which does not hold it", r->m->path,
                             tern_printable(rows[i].tensor, strlen(rows[i].tensor), text), path);
        if (c > 0)
            return tern_fail(r->ctx, TERN_E_FORMAT, "%s: tensor \"%s\" is not in the weight_map of %s", path,
                             tern_printable(shard->entries[k].name, strlen(shard->entries[k].name), text), r->m->path);
        enum tern_status st = tern_weights_append(r->w, rows[i].tensor, tern_tensor_ref(shard->entries[k].tensor));
        if (st)
            return st;
        i++;
        k++;
    }
    return TERN_OK;
}

static enum tern_status read_shard(struct index_reader *r, const struct row *rows, size_t n)
{
    char text[TERN_PRINTABLE];
    const char *slash = strrchr(r->m->path, '/');
    int folder = slash ? (int)(slash - r->m->path) + 1 : 0;
    char *path = tern_sprintf(r->ctx, "%.*s%s", folder, r->m->path, rows->shard);
    enum tern_status st = path ? TERN_OK : tern_error_status(r->ctx);
    if (path && tern_path_kind(path) == TERN_PATH_MISSING)
        st = tern_fail(r->ctx, TERN_E_NOT_FOUND, "%s: the file %s that it names is missing", r->m->path,
                       tern_printable(rows->shard, strlen(rows->shard), text));
    struct tern_mapping *m = st ? NULL : tern_map_file(r->ctx, path);
    struct tern_weights *shard = m ? tern_weights_create(r->ctx) : NULL;
    if (!shard && !st)
        st = tern_error_status(r->ctx);
    if (!st)
        st = tern_weights_read(shard, m, false);
    if (!st)
        st = take_tensors(r, shard, path, rows, n);
    tern_weights_unref(&shard);
    tern_mapping_unref(&m);
    tern_free(r->ctx, path);
    return st;
}

enum tern_status tern_sharded_read(struct tern_weights *w, struct tern_mapping *m)
{
    struct index_reader r = {.ctx = w->ctx, .w = w, .m = m};
    if (m->size > INDEX_LIMIT)
        return tern_fail(r.ctx, TERN_E_FORMAT, "%s: %zu bytes, expected an index of at most %zu", m->path, m->size, INDEX_LIMIT);
    json_t *root = tern_json_parse(r.ctx, (const char *)m->data, m->size, m->path);
    enum tern_status st = root ? read_map(&r, root) : TERN_E_FORMAT;
    for (size_t i = 0; !st && i < r.count;) {
        size_t n = 1;
        while (i + n < r.count && !strcmp(r.rows[i + n].shard, r.rows[i].shard))
            n++;
        st = read_shard(&r, r.rows + i, n);
        i += n;
    }
    if (!st)
        st = tern_weights_finish(w, m->path);
    tern_free(r.ctx, r.rows);
    json_decref(root);
    w->format = "sharded";
    return st;
}
