/* What the tests of weight files share. */
#include "weights_help.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zip.h>

int help_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    const char *tmp = getenv("TMPDIR");
    snprintf(f->folder, sizeof(f->folder), "%s/tern-weights-XXXXXX", tmp && strlen(tmp) < 32 ? tmp : "/tmp");
    assert_non_null(mkdtemp(f->folder));
    f->ctx = tern_context_create(NULL);
    assert_non_null(f->ctx);
    tern_tensor *first = tern_tensor_scalar(f->ctx, TERN_F32, 0); /* what a context makes at its first op stays */
    tern_tensor_unref(&first);
    f->idle = tern_memory_used(f->ctx);
    *state = f;
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

int help_teardown(void **state)
{
    struct fixture *f = *state;
    size_t left = tern_memory_used(f->ctx) - f->idle;
    tern_context_destroy(&f->ctx);
    nftw(f->folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    free(f);
    assert_int_equal(left, 0);
    return 0;
}

const char *help_path(struct fixture *f, const char *name)
{
    snprintf(f->path, sizeof(f->path), "%s/%s", f->folder, name);
    return f->path;
}

void help_folder(struct fixture *f, const char *name) { assert_int_equal(mkdir(help_path(f, name), 0777), 0); }

const char *help_file(struct fixture *f, const char *name, const void *data, size_t size)
{
    unlink(help_path(f, name)); /* a new file is cheaper than one that is cut: no flush on close */
    FILE *file = fopen(f->path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return f->path;
}

uint8_t *help_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is missing", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *data = malloc(*size + 1);
    assert_int_equal(fread(data, 1, *size, file), *size);
    fclose(file);
    return data;
}

void help_write(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

void help_holds(const char *path, const char *text)
{
    size_t size;
    char *found = (char *)help_read(path, &size);
    found[size] = 0;
    assert_string_equal(found, text);
    free(found);
}

void help_copy(struct fixture *f, const char *from, const char *name)
{
    size_t size;
    uint8_t *data = help_read(from, &size);
    help_file(f, name, data, size);
    free(data);
}

struct tern_weights *help_open(struct fixture *f, const char *path)
{
    struct tern_weights *w = tern_weights_open(f->ctx, path);
    if (!w)
        fail_msg("%s", tern_error(f->ctx));
    return w;
}

void help_refused(struct fixture *f, const char *path, enum tern_status status, const char *text)
{
    struct tern_weights *w = tern_weights_open(f->ctx, path);
    if (w)
        fail_msg("%s: opened, expected \"%s\"", path, text);
    const char *slash = strrchr(path, '/');
    if (!strstr(tern_error(f->ctx), text))
        fail_msg("expected \"%s\", found \"%s\"", text, tern_error(f->ctx));
    if (!strstr(tern_error(f->ctx), slash ? slash + 1 : path))
        fail_msg("\"%s\" does not name the file %s", tern_error(f->ctx), path);
    assert_int_equal(tern_error_status(f->ctx), status);
    assert_int_equal(tern_memory_used(f->ctx), f->idle);
    tern_error_clear(f->ctx);
}

void help_truncate_everywhere(struct fixture *f, const char *path, const char *ending)
{
    size_t size;
    char name[64];
    uint8_t *data = help_read(path, &size);
    snprintf(name, sizeof(name), "cut%s", ending);
    for (size_t n = 0; n < size; n++) {
        struct tern_weights *w = tern_weights_open(f->ctx, help_file(f, name, data, n));
        if (w)
            fail_msg("%s: the first %zu of %zu bytes were read without an error", path, n, size);
        if (strlen(tern_error(f->ctx)) < 20)
            fail_msg("%s: %zu bytes: message \"%s\"", path, n, tern_error(f->ctx));
        assert_int_equal(tern_memory_used(f->ctx), f->idle);
        tern_error_clear(f->ctx);
    }
    free(data);
}

int help_mutate_everywhere(struct fixture *f, const char *path, const char *ending)
{
    static const uint8_t values[] = {0, 1, 0x7f, 0x80, 0xff, '.', '9', '(', 'R', 'h', '}'};
    size_t size;
    int refused = 0;
    char name[64];
    uint8_t *data = help_read(path, &size);
    snprintf(name, sizeof(name), "changed%s", ending);
    for (size_t i = 0; i < size; i++) {
        uint8_t old = data[i];
        data[i] = values[i % sizeof(values)] == old ? (uint8_t)(old + 1) : values[i % sizeof(values)];
        struct tern_weights *w = tern_weights_open(f->ctx, help_file(f, name, data, size));
        if (!w) {
            refused++;
            assert_true(strlen(tern_error(f->ctx)) > 20);
        }
        tern_weights_unref(&w);
        assert_int_equal(tern_memory_used(f->ctx), f->idle);
        tern_error_clear(f->ctx);
        data[i] = old;
    }
    free(data);
    return refused;
}

void help_same_tensor(const tern_tensor *a, const tern_tensor *b, const char *name)
{
    if (!a || !b)
        fail_msg("%s is missing", name);
    size_t size = (size_t)tern_tensor_numel(a) * tern_dtype_size(tern_tensor_dtype(a));
    if (tern_tensor_dtype(a) != tern_tensor_dtype(b) || tern_tensor_ndim(a) != tern_tensor_ndim(b) ||
        memcmp(tern_tensor_shape(a), tern_tensor_shape(b), (size_t)tern_tensor_ndim(a) * sizeof(int64_t)))
        fail_msg("%s: dtype or shape differ", name);
    uint8_t *x = malloc(size + 1), *y = malloc(size + 1);
    assert_int_equal(tern_tensor_read(a, tern_tensor_dtype(a), x, size), TERN_OK);
    assert_int_equal(tern_tensor_read(b, tern_tensor_dtype(a), y, size), TERN_OK);
    if (memcmp(x, y, size))
        fail_msg("%s: bytes differ", name);
    free(x);
    free(y);
}

void help_same_weights(const struct tern_weights *a, const struct tern_weights *b)
{
    assert_non_null(a);
    assert_non_null(b);
    for (int64_t i = 0; i < tern_weights_count(a); i++)
        help_same_tensor(tern_weights_at(a, i), tern_weights_get(b, tern_weights_name(a, i)), tern_weights_name(a, i));
    assert_int_equal(tern_weights_count(a), tern_weights_count(b));
}

void put_raw(struct bytes *b, const void *data, size_t size)
{
    assert_true(size <= sizeof(b->data) - b->size);
    memcpy(b->data + b->size, data, size);
    b->size += size;
}

void put_text(struct bytes *b, const char *text) { put_raw(b, text, strlen(text)); }

void put_u64(struct bytes *b, uint64_t x)
{
    for (int i = 0; i < 8; i++)
        put_raw(b, &(uint8_t){(uint8_t)(x >> 8 * i)}, 1);
}

const char *help_safetensors(struct fixture *f, const char *header, size_t data_size)
{
    struct bytes *b = calloc(1, sizeof(*b));
    put_u64(b, strlen(header));
    put_text(b, header);
    b->size += data_size;
    const char *path = help_file(f, "built.safetensors", b->data, b->size);
    free(b);
    return path;
}

void pickle_begin(struct bytes *b) { put_raw(b, "\x80\x02", 2); }

void pickle_global(struct bytes *b, const char *module, const char *name)
{
    put_text(b, "c");
    put_text(b, module);
    put_text(b, "\n");
    put_text(b, name);
    put_text(b, "\n");
}

void pickle_str(struct bytes *b, const char *text)
{
    uint8_t head[5] = {'X', (uint8_t)strlen(text), 0, 0, 0};
    put_raw(b, head, 5);
    put_text(b, text);
}

void pickle_int(struct bytes *b, int64_t x)
{
    const bool large = x != (int32_t)x; /* LONG1 */
    put_raw(b, large ? "\x8a\x08" : "J", large ? 2 : 1);
    for (int i = 0; i < (large ? 8 : 4); i++)
        put_raw(b, &(uint8_t){(uint8_t)((uint64_t)x >> 8 * i)}, 1);
}

void pickle_ints(struct bytes *b, int n, const int64_t *x)
{
    put_text(b, "(");
    for (int i = 0; i < n; i++)
        pickle_int(b, x[i]);
    put_text(b, "t");
}

void pickle_tensor(struct bytes *b, const char *key, int64_t numel, int64_t offset, int n, const int64_t *shape, const int64_t *stride)
{
    pickle_global(b, "torch._utils", "_rebuild_tensor_v2");
    put_text(b, "((");
    pickle_str(b, "storage");
    pickle_global(b, "torch", "FloatStorage");
    pickle_str(b, key);
    pickle_str(b, "cpu");
    pickle_int(b, numel);
    put_text(b, "tQ");
    pickle_int(b, offset);
    pickle_ints(b, n, shape);
    pickle_ints(b, n, stride);
    put_text(b, "\x89}tR");
}

void pickle_w(struct bytes *b, int64_t numel, int64_t offset, int n, const int64_t *shape, const int64_t *stride)
{
    b->size = 0;
    pickle_begin(b);
    put_text(b, "}");
    pickle_str(b, "w");
    pickle_tensor(b, "0", numel, offset, n, shape, stride);
    put_text(b, "s.");
}

const char *help_zip(struct fixture *f, const char *name, const struct member *members, int count)
{
    int error;
    unlink(help_path(f, name));
    zip_t *z = zip_open(help_path(f, name), ZIP_CREATE | ZIP_TRUNCATE, &error);
    assert_non_null(z);
    for (int i = 0; i < count; i++) {
        zip_source_t *s = zip_source_buffer(z, members[i].data, members[i].size, 0);
        zip_int64_t index = zip_file_add(z, members[i].name, s, 0);
        assert_true(index >= 0);
        zip_set_file_compression(z, (zip_uint64_t)index, members[i].deflate ? ZIP_CM_DEFLATE : ZIP_CM_STORE, 0);
    }
    assert_int_equal(zip_close(z), 0);
    return help_path(f, name);
}

const char *help_zip_of(struct fixture *f, const struct bytes *pickle, const void *data, size_t size, int deflate)
{
    const struct member members[] = {{"a/data.pkl", pickle->data, pickle->size, 0},
                                     {"a/byteorder", "little", 6, 0},
                                     {"a/data/0", data, size, deflate}};
    return help_zip(f, "w.pt", members, 3);
}
