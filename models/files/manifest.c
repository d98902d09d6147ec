/* Checking a folder against its manifest: a wrong or damaged file of the model that ships with tern is found before
 * anything is computed from it. */
#include "models/files/manifest.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/context.h"
#include "core/files.h"
#include "core/json.h"
#include "core/memory.h"

#define HELP                                                                                                                     \
    "restore the folder as it ships (git checkout in the source tree, or install tern again); a model of your own is opened by " \
    "its path"

/* What the manifest says of one file. */
struct entry {
    const char *name; /* relative, borrowed */
    int64_t size;
    uint32_t crc;
};

/* A relative path that stays in the folder: plain names joined by single slashes. */
static bool is_inside(const char *name)
{
    for (const char *p = name;; p++) {
        size_t n = strspn(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
        if (!n || *p == '.' || (p[n] && p[n] != '/'))
            return false;
        p += n;
        if (!*p)
            return true;
    }
}

static enum tern_status read_entry(struct tern_context *ctx, const char *where, const char *name, const json_t *row, struct entry *e)
{
    char *end = NULL;
    *e = (struct entry){name, -1, 0};
    if (!is_inside(name) || !json_is_object(row))
        return tern_fail(ctx, TERN_E_FORMAT, "%s: damaged: expected rows of the form \"folder/name\": {\"size\": …, \"crc32\": …}; " HELP,
                         where);
    const json_t *size = json_object_get(row, "size");
    const char *text = json_string_value(json_object_get(row, "crc32"));
    if (json_is_integer(size))
        e->size = json_integer_value(size);
    if (text && strlen(text) == 8 && strspn(text, "0123456789abcdef") == 8)
        e->crc = (uint32_t)strtoul(text, &end, 16);
    if (e->size < 0 || !end)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: damaged: %s: expected \"size\" and \"crc32\" of eight hexadecimal digits; " HELP, where,
                         name);
    return TERN_OK;
}

static enum tern_status check_mapped(struct tern_context *ctx, const struct tern_mapping *m, const struct entry *e)
{
    if (m->size != (uint64_t)e->size)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: not the file that ships with tern: expected %lld bytes, found %zu; " HELP, m->path,
                         (long long)e->size, m->size);
    uint32_t crc = (uint32_t)crc32_z(0, m->data, m->size); /* of no data: 0, as for NULL */
    if (crc != e->crc)
        return tern_fail(ctx, TERN_E_FORMAT, "%s: damaged, or not the file that ships with tern: expected CRC-32 %08x, found %08x; " HELP,
                         m->path, (unsigned)e->crc, (unsigned)crc);
    return TERN_OK;
}

static enum tern_status check_file(struct tern_context *ctx, const char *folder, const struct entry *e)
{
    char *path = tern_path_join(ctx, folder, e->name);
    if (!path)
        return tern_error_status(ctx);
    enum tern_status st = TERN_OK;
    if (tern_path_kind(path) == TERN_PATH_MISSING) {
        st = tern_fail(ctx, TERN_E_NOT_FOUND, "%s: missing: expected a file of %lld bytes; " HELP, path, (long long)e->size);
    } else {
        struct tern_mapping *m = tern_map_file(ctx, path);
        st = m ? check_mapped(ctx, m, e) : tern_error_status(ctx);
        tern_mapping_unref(&m);
    }
    tern_free(ctx, path);
    return st;
}

enum tern_status tern_manifest_check(struct tern_context *ctx, const char *folder)
{
    const char *name;
    json_t *row;
    char *path = tern_path_join(ctx, folder, "manifest.json");
    if (!path)
        return tern_error_status(ctx);
    json_t *root = tern_json_load(ctx, path), *files = json_object_get(root, "files");
    if (!root)
        tern_fail_prefix(ctx, "the files of the model that ships with tern cannot be checked; " HELP);
    else if (!json_object_get(files, "model_index.json"))
        tern_fail(ctx, TERN_E_FORMAT, "%s: damaged: expected \"files\" with a row for model_index.json; " HELP, path);
    json_object_foreach(files, name, row) {
        struct entry e;
        if (tern_failed(ctx) || read_entry(ctx, path, name, row, &e) || check_file(ctx, folder, &e))
            break;
    }
    json_decref(root);
    tern_free(ctx, path);
    return tern_error_status(ctx);
}
