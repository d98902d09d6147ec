/* Copies of models, damaged on purpose. */
#include "damage.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "model_help.h"

static char copy_from[PATH_SIZE], copy_to[PATH_SIZE]; /* nftw hands nothing on */

static void copy_file(const char *from, const char *to)
{
    char block[1 << 16];
    size_t n;
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    assert_non_null(in);
    assert_non_null(out);
    while ((n = fread(block, 1, sizeof(block), in)))
        assert_int_equal(fwrite(block, 1, n, out), n);
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static int copy_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    char to[2 * PATH_SIZE];
    snprintf(to, sizeof(to), "%s%s", copy_to, path + strlen(copy_from));
    if (type == FTW_D)
        return mkdir(to, 0777) && ftw->level;
    copy_file(path, to);
    return 0;
}

void damage_copy(const char *model, char *folder)
{
    snprintf(folder, PATH_SIZE, "/tmp/tern-model-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(copy_to, sizeof(copy_to), "%s", folder);
    model_path(model, copy_from);
    assert_int_equal(nftw(copy_from, copy_entry, 8, FTW_PHYS), 0);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

void damage_remove(const char *folder) { nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

static const char *join(const char *folder, const char *file)
{
    static char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    return path;
}

void damage_text(const char *folder, const char *file, const void *text, size_t size)
{
    FILE *out = fopen(join(folder, file), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
}

char *damage_read(const char *folder, const char *file, size_t *size)
{
    FILE *in = fopen(join(folder, file), "rb");
    assert_non_null(in);
    fseek(in, 0, SEEK_END);
    *size = (size_t)ftell(in);
    rewind(in);
    char *text = malloc(*size + 1);
    assert_int_equal(fread(text, 1, *size, in), *size);
    text[*size] = 0;
    fclose(in);
    return text;
}

void damage_delete(const char *folder, const char *file)
{
    if (remove(join(folder, file)))
        damage_remove(join(folder, file));
}

void damage_json(const char *folder, const char *file, const char *key, json_t *value)
{
    json_t *o = json_load_file(join(folder, file), 0, NULL);
    assert_non_null(o);
    if (value)
        json_object_set_new(o, key, value);
    else
        json_object_del(o, key);
    assert_int_equal(json_dump_file(o, join(folder, file), 0), 0);
    json_decref(o);
}

void damage_tensor(struct tern_context *ctx, const char *folder, const char *file, const char *name, enum tern_dtype dtype, int ndim,
                   const int64_t *shape)
{
    struct tern_weights *old = tern_weights_open(ctx, join(folder, file)), *w = tern_weights_create(ctx);
    assert_non_null(old);
    for (int64_t i = 0; i < tern_weights_count(old); i++)
        if (strcmp(tern_weights_name(old, i), name))
            assert_int_equal(tern_weights_add(w, tern_weights_name(old, i), tern_weights_at(old, i)), TERN_OK);
    if (ndim >= 0) {
        tern_tensor *t = tern_tensor_create(ctx, dtype, ndim, shape, NULL);
        assert_non_null(t);
        assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
        tern_tensor_unref(&t);
    }
    assert_int_equal(tern_weights_save(w, join(folder, file)), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&old);
}
