/* The zip form of torch.save: archives that lie about what is in them, and those above 4 GiB. */
#include "weights_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/tensor.h"

/* Deflated members: fine when honest, refused when they declare or hold more than their tensors need. */
static void zip_bombs_are_refused(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    size_t size = 40 << 20;
    float *zeros = calloc(1, size), honest[6] = {1, 2, 3, 4, 5, 6}, x[6];
    pickle_w(&b, 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
    struct tern_weights *w = help_open(f, help_zip_of(f, &b, honest, sizeof(honest), 1));
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "w"), TERN_F32, x, sizeof(x)), TERN_OK);
    assert_memory_equal(x, honest, sizeof(x));
    tern_weights_unref(&w);

    /* 40 MB from 40 KB: more than the pickle says, more than the tensor needs */
    help_refused(f, help_zip_of(f, &b, zeros, size, 1), TERN_E_FORMAT, "storage \"0\": expected 24 bytes, found 41943040");
    pickle_w(&b, (int64_t)(size / 4), 0, 1, (int64_t[]){6}, (int64_t[]){1});
    help_refused(f, help_zip_of(f, &b, zeros, size, 1), TERN_E_FORMAT,
                 "declares 41943040 bytes where its tensors (\"w\") need 24; it is refused as a zip bomb");

    /* the pickle itself */
    char *nops = malloc(65 << 20);
    memset(nops, 'N', 65 << 20);
    const struct member pickle = {"a/data.pkl", nops, 65 << 20, 1};
    help_refused(f, help_zip(f, "w.pt", &pickle, 1), TERN_E_FORMAT,
                 "zip member \"a/data.pkl\" declares more bytes than it can need; it is refused as a zip bomb");
    free(nops);
    free(zeros);
}

/* { "a": all 10 M floats of storage "0", "b": the first `count` of storage KEY, which has as many }. */
static void pickle_pair(struct bytes *b, const char *key, int64_t count)
{
    const int64_t n[] = {10 << 20}, one[] = {1};
    b->size = 0;
    pickle_begin(b);
    put_text(b, "}(");
    pickle_str(b, "a");
    pickle_tensor(b, "0", n[0], 0, 1, n, one);
    pickle_str(b, "b");
    pickle_tensor(b, key, n[0], 0, 1, &count, one);
    put_text(b, "u.");
}

/* Small files may not make a large memory even when each tensor says that it is that large. */
static void total_of_unpacked_bytes_is_limited(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    const size_t size = 40 << 20;
    void *zeros = calloc(1, size);
    pickle_pair(&b, "0", 5); /* one storage, unpacked once, shared by both; the first needs all of it */
    const struct member list[] = {{"a/data.pkl", b.data, b.size, 0}, {"a/data/0", zeros, size, 1}, {"a/data/1", zeros, size, 1}};
    struct tern_weights *w = help_open(f, help_zip(f, "w.pt", list, 2));
    assert_int_equal(tern_weights_count(w), 2);
    assert_ptr_equal(tern_tensor_host(tern_weights_get(w, "a")), tern_tensor_host(tern_weights_get(w, "b")));
    tern_weights_unref(&w);
    pickle_pair(&b, "1", 10 << 20); /* 80 MB from 80 KB */
    help_refused(f, help_zip(f, "w.pt", list, 3), TERN_E_FORMAT, "together with others more than the");
    free(zeros);
}

/* A member whose data is longer than the directory says: only libzip's stream can tell. */
static void lying_sizes_are_refused(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    uint8_t zeros[4096] = {0};
    size_t size;
    pickle_w(&b, 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
    uint8_t *zip = help_read(help_zip_of(f, &b, zeros, sizeof(zeros), 1), &size);
    int changed = 0;
    for (size_t i = 0; i + 4 <= size; i++) /* in the local header and in the directory */
        if (!memcmp(zip + i, "\x00\x10\x00\x00", 4)) {
            memcpy(zip + i, "\x18\x00\x00\x00", 4);
            changed++;
        }
    assert_int_equal(changed, 2);
    help_refused(f, help_file(f, "w.pt", zip, size), TERN_E_FORMAT, "zip member \"a/data/0\"");
    free(zip);
}

/* A zip record of little-endian fields: "2" and "4" and "8" in `widths` are their bytes. */
static void put_fields(struct bytes *b, const char *widths, const uint64_t *values)
{
    for (; *widths; widths++, values++)
        for (int i = 0; i < *widths - '0'; i++)
            put_raw(b, &(uint8_t){(uint8_t)(*values >> 8 * i)}, 1);
}

/* An archive above 4 GiB (a sparse file): place and sizes stand in the 64-bit fields. */
static void archives_above_4_gib_are_read(void **state)
{
    struct fixture *f = *state;
    const uint64_t far = UINT64_C(5) << 30, none = 0xffffffff;
    struct bytes pickle, b = {.size = 0};
    pickle_w(&pickle, 2, 0, 1, (int64_t[]){2}, (int64_t[]){1});
    put_fields(&b, "42222244422", (uint64_t[]){0x04034b50, 45, 0, 0, 0, 0, 0, pickle.size, pickle.size, 10, 0});
    put_text(&b, "a/data.pkl");
    put_raw(&b, pickle.data, pickle.size);
    FILE *file = fopen(help_file(f, "w.pt", b.data, b.size), "r+b");
    b.size = 0;
    put_fields(&b, "42222244422", (uint64_t[]){0x04034b50, 45, 0, 0, 0, 0, 0, 8, 8, 8, 0});
    put_text(&b, "a/data/0");
    put_raw(&b, (float[]){1.5f, -2.5f}, 8);
    uint64_t begin = b.size;
    put_fields(&b, "42222224442222244", (uint64_t[]){0x02014b50, 45, 45, 0, 0, 0, 0, 0, pickle.size, pickle.size, 10, 0, 0, 0, 0, 0, 0});
    put_text(&b, "a/data.pkl");
    put_fields(&b, "42222224442222244", (uint64_t[]){0x02014b50, 45, 45, 0, 0, 0, 0, 0, none, 8, 8, 24, 0, 0, 0, 0, none});
    put_text(&b, "a/data/0");
    put_fields(&b, "22", (uint64_t[]){0x4246, 0});       /* another extra field before the one that counts */
    put_fields(&b, "2288", (uint64_t[]){1, 16, 8, far}); /* packed size, place of the local header */
    uint64_t end = b.size;
    put_fields(&b, "4822448888", (uint64_t[]){0x06064b50, 44, 45, 45, 0, 0, 2, 2, end - begin, far + begin});
    put_fields(&b, "4484", (uint64_t[]){0x07064b50, 0, far + end, 1});
    put_fields(&b, "42222442", (uint64_t[]){0x06054b50, 0, 0, 0xffff, 0xffff, none, none, 0});
    assert_int_equal(fseeko(file, (off_t)far, SEEK_SET), 0);
    assert_int_equal(fwrite(b.data, 1, b.size, file), b.size);
    assert_int_equal(fclose(file), 0);
    struct tern_weights *w = help_open(f, help_path(f, "w.pt"));
    float x[2];
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "w"), TERN_F32, x, 8), TERN_OK);
    assert_true(x[0] == 1.5f && x[1] == -2.5f);
    tern_weights_unref(&w);
}

static void archives_that_are_no_models_are_refused(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    const float data[6] = {0};
    pickle_w(&b, 6, 0, 1, (int64_t[]){6}, (int64_t[]){1});
    const struct member pickle = {"a/data.pkl", b.data, b.size, 0}, storage = {"a/data/0", data, 24, 0}, other = {"b.txt", "x", 1, 0};
    const struct member big[] = {pickle, storage, {"a/byteorder", "big", 3, 0}};
    help_refused(f, help_zip(f, "w.pt", big, 3), TERN_E_UNSUPPORTED, "its byte order is not \"little\"");
    const struct member shouting[] = {pickle, storage, {"a/byteorder", "LITTLE", 6, 0}};
    help_refused(f, help_zip(f, "w.pt", shouting, 3), TERN_E_UNSUPPORTED, "its byte order is not \"little\"");
    help_refused(f, help_zip(f, "w.pt", &other, 1), TERN_E_FORMAT, "a zip archive without data.pkl");
    help_refused(f, help_zip(f, "w.pt", &pickle, 1), TERN_E_FORMAT, "tensor \"w\": its storage \"0\" is missing in the file");
    help_refused(f, help_file(f, "w.pt", "PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22), TERN_E_FORMAT,
                 "a zip archive without data.pkl");
    help_refused(f, help_file(f, "w.pt", "PK\3\4 and nothing behind", 23), TERN_E_FORMAT,
                 "directory at the end of the zip archive is missing");
}

/* A directory that promises more than there is. */
static void lying_directories_are_refused(void **state)
{
    struct fixture *f = *state;
    struct bytes b;
    size_t size;
    const float data[5] = {0};
    pickle_w(&b, 1 << 20, 0, 1, (int64_t[]){1}, (int64_t[]){1});
    uint8_t *zip = help_read(help_zip_of(f, &b, data, sizeof(data), 0), &size), *at = zip;
    for (int i = 0; i < 3; i++) /* the third record is the storage's */
        at = (uint8_t *)memmem(at, (size_t)(zip + size - at), "PK\1\2", 4) + 4;
    memcpy(at + 16, "\0\0\x40\0\0\0\x40", 8); /* 4 MiB, packed and unpacked */
    help_refused(f, help_file(f, "w.pt", zip, size), TERN_E_FORMAT,
                 "zip member \"a/data/0\" does not lie in the file where the directory says");
    memcpy(zip + size - 12, "\xf0\xff", 2); /* 65520 members */
    help_refused(f, help_file(f, "w.pt", zip, size), TERN_E_FORMAT, "cannot hold 65520 members");
    free(zip);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(zip_bombs_are_refused),         TEST(total_of_unpacked_bytes_is_limited),      TEST(lying_sizes_are_refused),
        TEST(archives_above_4_gib_are_read), TEST(archives_that_are_no_models_are_refused), TEST(lying_directories_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
