/* Weight sets, safetensors, and sharded safetensors: what is read, what is written, what is refused. */
#include "weights_help.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/tensor.h"
#include "models/files/safetensors.h"

static void table_is_sorted_and_refuses_duplicates(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_create(f->ctx);
    static const char *const names[] = {"m", "a", "z", "b", "ab"}, *const sorted[] = {"a", "ab", "b", "m", "z"};
    for (int i = 0; i < 5; i++) {
        tern_tensor *t = tern_tensor_scalar(f->ctx, TERN_F32, i);
        assert_int_equal(tern_weights_add(w, names[i], t), TERN_OK);
        tern_tensor_unref(&t);
    }
    assert_int_equal(tern_weights_count(w), 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(tern_weights_name(w, i), sorted[i]);
    float x = 0;
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "b"), TERN_F32, &x, 4), TERN_OK);
    assert_true(x == 3);
    assert_null(tern_weights_get(w, "c"));
    assert_null(tern_weights_get(w, ""));
    assert_null(tern_weights_name(w, 5));
    assert_null(tern_weights_at(w, -1));
    assert_string_equal(tern_error(f->ctx), "");
    assert_int_equal(tern_weights_add(w, "m", tern_weights_get(w, "a")), TERN_E_INVALID);
    assert_non_null(strstr(tern_error(f->ctx), "\"m\" is in the set already"));
    struct tern_weights *again = tern_weights_ref(w);
    tern_weights_unref(&again);
    assert_null(again);
    assert_int_equal(tern_weights_count(w), 5);
    tern_weights_unref(&w);
}

static void set_keeps_its_context_alive(void **state)
{
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_weights *w = tern_weights_open(ctx, FORMATS "odd.safetensors");
    tern_context_destroy(&ctx);
    int64_t x[3];
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "i64"), TERN_I64, x, sizeof(x)), TERN_OK);
    assert_true(x[0] == INT64_C(1) << 62);
    tern_weights_unref(&w);
}

static void check(struct tern_weights *w, const char *name, enum tern_dtype dtype, const void *expected, size_t size)
{
    uint8_t found[64];
    tern_tensor *t = tern_weights_get(w, name);
    assert_non_null(t);
    assert_int_equal(tern_tensor_dtype(t), dtype);
    assert_int_equal(tern_tensor_read(t, dtype, found, size), TERN_OK);
    assert_memory_equal(found, expected, size);
}

/* The values are those of tools/goldens/formats.py. */
static void every_dtype_is_read(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_open(f->ctx, FORMATS "odd.safetensors");
    assert_int_equal(tern_weights_count(w), 18);
    check(w, "i64", TERN_I64, (int64_t[]){INT64_C(1) << 62, -1, 0}, 24);
    int64_t wide[2];
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "i32"), TERN_I64, wide, sizeof(wide)), TERN_OK);
    assert_true(wide[0] == INT32_MAX && wide[1] == INT32_MIN);
    check(w, "i16", TERN_I32, (int32_t[]){32767, -32768}, 8);
    check(w, "i8", TERN_I8, (int8_t[]){127, -128}, 2);
    check(w, "u8", TERN_U8, (uint8_t[]){0, 255}, 2);
    check(w, "bool", TERN_BOOL, (uint8_t[]){1, 0, 1}, 3);
    check(w, "scalar", TERN_F32, (float[]){2.5f}, 4);
    check(w, "special", TERN_F32, (uint32_t[]){0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 1, 0x7f7fffff}, 28);
    help_same_tensor(tern_weights_get(w, "f64"), tern_weights_get(w, "f32"), "f64"); /* f32 values, stored as f64 */
    assert_int_equal(tern_tensor_dtype(tern_weights_get(w, "f16")), TERN_F16);
    assert_int_equal(tern_tensor_dtype(tern_weights_get(w, "bf16")), TERN_BF16);
    assert_int_equal(tern_tensor_ndim(tern_weights_get(w, "scalar")), 0);
    assert_int_equal(tern_tensor_size(tern_weights_get(w, "empty"), 1), 4);
    assert_int_equal(tern_tensor_numel(tern_weights_get(w, "empty")), 0);
    assert_int_equal(tern_weights_metadata_count(w), 1);
    assert_string_equal(tern_weights_metadata(w, "note"), "caf\xc3\xa9 \xf0\x9f\x90\x88");
    assert_null(tern_weights_metadata(w, "other"));
    tern_weights_unref(&w);
}

/* Unsigned 16 and 32 bits, and a bool byte that is neither 0 nor 1. */
static void odd_integers_are_widened(void **state)
{
    struct fixture *f = *state;
    static const char header[] = "{\"u16\":{\"dtype\":\"U16\",\"shape\":[2],\"data_offsets\":[0,4]},\"u32\":{\"dtype\":\"U32\",\"shape\":["
                                 "1],\"data_offsets\":[4,8]},"
                                 "\"b\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[8,10]}}";
    struct bytes b = {.size = 0};
    put_u64(&b, strlen(header));
    put_text(&b, header);
    put_raw(&b, "\xff\xff\x01\x00\xfe\xff\xff\xff\x00\x40", 10);
    struct tern_weights *w = tern_weights_open(f->ctx, help_file(f, "w.safetensors", b.data, b.size));
    assert_non_null(w);
    check(w, "u16", TERN_I32, (int32_t[]){65535, 1}, 8);
    check(w, "u32", TERN_I64, (int64_t[]){4294967294}, 8);
    check(w, "b", TERN_BOOL, (uint8_t[]){0, 1}, 2);
    tern_weights_unref(&w);
}

/* The tensors lie in the mapping; dropping their pages loses nothing. */
static void aligned_tensors_are_mapped(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_open(f->ctx, FORMATS "mini/unet/diffusion_pytorch_model.safetensors");
    const struct tern_mapping *m = NULL;
    assert_int_equal(tern_weights_count(w), 208);
    for (int64_t i = 0; i < tern_weights_count(w); i++) {
        tern_tensor *t = tern_weights_at(w, i);
        m = t->buffer->user;
        const uint8_t *p = tern_tensor_host(t);
        assert_int_equal(m->size, 133984);
        assert_true(p > m->data && p + 2 * tern_tensor_numel(t) <= m->data + m->size);
        assert_true(t->constant);
        assert_non_null(t->advise);
        t->advise(t, false);
    }
    assert_int_equal(m->refs, 208);
    struct tern_weights *again = tern_weights_open(f->ctx, FORMATS "mini/unet/diffusion_pytorch_model.safetensors");
    help_same_weights(w, again);
    tern_weights_unref(&w);
    tern_weights_unref(&again);
}

/* A file above 4 GiB (sparse): offsets are 64-bit all the way. */
static void offsets_above_4_gib_are_read(void **state)
{
    struct fixture *f = *state;
    static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],\"data_offsets\":[0,5368709120]},"
                                 "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5368709120,5368709124]}}    ";
    struct bytes b = {.size = 0};
    put_u64(&b, strlen(header));
    put_text(&b, header);
    assert_int_equal(b.size % 4, 0);
    FILE *file = fopen(help_file(f, "w.safetensors", b.data, b.size), "r+b");
    assert_int_equal(fseeko(file, (off_t)b.size + 5368709120, SEEK_SET), 0);
    assert_int_equal(fwrite((float[]){-0.5f}, 1, 4, file), 4);
    assert_int_equal(fclose(file), 0);
    struct tern_weights *w = tern_weights_open(f->ctx, f->path);
    assert_non_null(w);
    check(w, "b", TERN_F32, (float[]){-0.5f}, 4);
    assert_true(tern_tensor_numel(tern_weights_get(w, "a")) == 5368709120);
    tern_weights_unref(&w);
}

/* A header of odd length, as old writers made it: the elements are copied to an aligned place. */
static void unaligned_tensors_are_copied(void **state)
{
    struct fixture *f = *state;
    static const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]} }";
    struct bytes b = {.size = 0};
    put_u64(&b, strlen(header));
    put_text(&b, header);
    assert_true(b.size % 4);
    put_raw(&b, (float[]){1.5f, -2.0f}, 8);
    struct tern_weights *w = tern_weights_open(f->ctx, help_file(f, "w.safetensors", b.data, b.size));
    assert_non_null(w);
    check(w, "x", TERN_F32, (float[]){1.5f, -2.0f}, 8);
    assert_int_equal((uintptr_t)tern_tensor_host(tern_weights_get(w, "x")) % 4, 0);
    tern_weights_unref(&w);
}

/* Weights opened inside a scope belong to their set, not to the scope. */
static void scopes_do_not_own_weights(void **state)
{
    struct fixture *f = *state;
    tern_scope_begin(f->ctx);
    f->idle = tern_memory_used(f->ctx); /* the list of scopes stays */
    struct tern_weights *w = tern_weights_open(f->ctx, FORMATS "odd.pt");
    tern_scope_end(f->ctx, NULL);
    float x[15];
    assert_int_equal(tern_tensor_read(tern_weights_get(w, "f32"), TERN_F32, x, sizeof(x)), TERN_OK);
    tern_weights_unref(&w);
}

#define T(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" offsets "]}"

static void bad_headers_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *header;
        size_t data;
        enum tern_status status;
        const char *text;
    } cases[] = {
        {"{\"a\":" T("F32", "2", "0,8") ",\"b\":" T("F32", "2", "4,12") "}", 12, TERN_E_FORMAT,
         "tensor \"b\" begins at byte 4 of the data and overlaps \"a\", which ends at 8"},
        {"{\"a\":" T("F32", "2", "0,8") ",\"b\":" T("F32", "2", "0,8") "}", 8, TERN_E_FORMAT, "overlaps"},
        {"{\"a\":" T("F32", "2", "0,8") ",\"b\":" T("F32", "2", "12,20") "}", 20, TERN_E_FORMAT,
         "tensor \"b\" begins at byte 12 of the data and leaves a gap after \"a\", which ends at 8"},
        {"{\"a\":" T("F32", "2", "8,16") "}", 16, TERN_E_FORMAT, "leaves a gap after \"the start\""},
        {"{\"a\":" T("F32", "2", "0,8") "}", 12, TERN_E_FORMAT, "tensors cover 8 bytes of data, the file holds 12"},
        {"{\"a\":" T("F32", "4", "0,16") "}", 12, TERN_E_FORMAT, "tensor \"a\" ends at byte 16 of the data, of which the file holds 12"},
        {"{\"a\":" T("F32", "2", "0,9223372036854775807") "}", 8, TERN_E_FORMAT, "ends at byte 9223372036854775807"},
        {"{\"a\":" T("F32", "2", "0,18446744073709551616") "}", 8, TERN_E_FORMAT, "not valid JSON"},
        {"{\"a\":" T("F32", "2", "8,0") "}", 8, TERN_E_FORMAT, "expected \"data_offsets\" of two integers"},
        {"{\"a\":" T("F32", "2", "-8,0") "}", 8, TERN_E_FORMAT, "expected \"data_offsets\" of two integers"},
        {"{\"a\":" T("F32", "2", "0") "}", 8, TERN_E_FORMAT, "expected \"data_offsets\" of two integers"},
        {"{\"a\":" T("F32", "2", "0,8.5") "}", 8, TERN_E_FORMAT, "expected \"data_offsets\" of two integers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, TERN_E_FORMAT, "expected \"data_offsets\" of two integers"},
        {"{\"a\":" T("F32", "3", "0,8") "}", 8, TERN_E_FORMAT, "tensor \"a\" of shape (3,) f32: expected 12 bytes of data, found 8"},
        {"{\"a\":" T("F32", "-2", "0,8") "}", 8, TERN_E_FORMAT, "integers that are not negative"},
        {"{\"a\":" T("F32", "\\\"2\\\"", "0,8") "}", 8, TERN_E_FORMAT, "not valid JSON"},
        {"{\"a\":" T("F32", "2.0", "0,8") "}", 8, TERN_E_FORMAT, "integers that are not negative"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, TERN_E_FORMAT, "a \"shape\" that is an array"},
        {"{\"a\":" T("F32", "4294967296,4294967296", "0,8") "}", 8, TERN_E_FORMAT, "more than fits in 64 bits"},
        {"{\"a\":" T("F32", "9223372036854775807,2,0", "0,0") "}", 0, TERN_E_FORMAT, "more than fits in 64 bits"},
        {"{\"a\":" T("F32", "1,1,1,1,1,1,1,1,2", "0,8") "}", 8, TERN_E_FORMAT, "tensor \"a\" has 9 dimensions, expected at most 8"},
        {"{\"a\":" T("F8_E4M3", "8", "0,8") "}", 8, TERN_E_UNSUPPORTED, "tensor \"a\" is F8_E4M3, which tern does not compute with"},
        {"{\"a\":" T("U64", "1", "0,8") "}", 8, TERN_E_UNSUPPORTED, "tensor \"a\" is U64"},
        {"{\"a\":" T("Q4_0", "1", "0,8") "}", 8, TERN_E_FORMAT, "tensor \"a\": unknown dtype \"Q4_0\""},
        {"{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, TERN_E_FORMAT, "expected a \"dtype\" that is a string"},
        {"{\"a\":" T("F32\\u0000", "2", "0,8") "}", 8, TERN_E_FORMAT, "expected a \"dtype\" that is a string without NUL"},
        {"{\"a\":[1]}", 8, TERN_E_FORMAT, "expected an object with dtype, shape and data_offsets"},
        {"{\"a\":" T("F32", "1", "0,4") ",\"a\":" T("F32", "1", "4,8") "}", 8, TERN_E_FORMAT, "duplicate object key"},
        {"{\"__metadata__\":{\"a\":1}}", 0, TERN_E_FORMAT, "\"__metadata__\": expected an object of strings"},
        {"{\"__metadata__\":[]}", 0, TERN_E_FORMAT, "\"__metadata__\": expected an object of strings"},
        {"{\"a\\u0000b\":" T("F32", "2", "0,8") "}", 8, TERN_E_FORMAT, "not valid JSON"},
        {"{\"\xff\":" T("F32", "2", "0,8") "}", 8, TERN_E_FORMAT, "not valid JSON"},
        {"{\"a\":" T("F32", "2", "0,8") "} x", 8, TERN_E_FORMAT, "not valid JSON"},
        {"{", 8, TERN_E_FORMAT, "not valid JSON"},
        {"[]      ", 0, TERN_E_FORMAT, "the header is not a JSON object"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        help_refused(f, help_safetensors(f, cases[i].header, cases[i].data), cases[i].status, cases[i].text);
}

/* As the format's own reader takes it; the C text of the value ends there. */
static void metadata_may_hold_a_nul(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w =
        help_open(f, help_safetensors(f, "{\"__metadata__\":{\"a\":\"x\\u0000y\",\"b\":\"z\"},\"t\":" T("F32", "1", "0,4") "}", 4));
    assert_int_equal(tern_weights_count(w), 1);
    assert_string_equal(tern_weights_metadata(w, "a"), "x");
    assert_string_equal(tern_weights_metadata(w, "b"), "z");
    tern_weights_unref(&w);
}

static void a_header_of_deep_brackets_does_not_crash(void **state)
{
    struct fixture *f = *state;
    char header[20001] = "{\"a\":";
    memset(header + 5, '[', sizeof(header) - 6);
    help_refused(f, help_safetensors(f, header, 0), TERN_E_FORMAT, "not valid JSON");
}

static void bad_lengths_are_refused(void **state)
{
    struct fixture *f = *state;
    struct bytes b = {.size = 0};
    help_refused(f, help_file(f, "w.safetensors", "", 0), TERN_E_FORMAT, "the file is empty");
    help_refused(f, help_file(f, "w.safetensors", "1234567", 7), TERN_E_FORMAT, "7 bytes are too few");
    put_u64(&b, 1000);
    put_text(&b, "{}");
    help_refused(f, help_file(f, "w.safetensors", b.data, b.size), TERN_E_FORMAT, "header of 1000 bytes in a file of 10");
    b.size = 0;
    put_u64(&b, 3); /* ends one byte behind the file */
    put_text(&b, "{}");
    help_refused(f, help_file(f, "w.safetensors", b.data, b.size), TERN_E_FORMAT, "header of 3 bytes in a file of 10");
    b.size = 0;
    put_u64(&b, UINT64_MAX);
    put_text(&b, "{}");
    help_refused(f, help_file(f, "w.safetensors", b.data, b.size), TERN_E_FORMAT, "header of 18446744073709551615 bytes in a file of 10");
    b.size = 0;
    put_u64(&b, 101 << 20);
    put_text(&b, "{}");
    assert_int_equal(truncate(help_file(f, "w.safetensors", b.data, b.size), 110 << 20), 0); /* a sparse file */
    help_refused(f, help_path(f, "w.safetensors"), TERN_E_FORMAT, "header of 105906176 bytes, expected at most 104857600");
    help_refused(f, help_path(f, "none.safetensors"), TERN_E_NOT_FOUND, "cannot be opened");
    help_folder(f, "folder");
    help_refused(f, help_path(f, "folder"), TERN_E_IO, "expected a file, found a folder");
}

static void mistaken_files_are_named(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *content, *text;
    } cases[] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4265380512\n", "git lfs pull"},
        {"<!DOCTYPE html><html>", "a web page, not a weight file"},
        {"GGUF\3\0\0\0", "GGUF"},
        {"{\"a\": 1}", "no index of weight files"},
        {"just some text that is no model", "not a weight file that tern knows"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        help_refused(f, help_file(f, "w.bin", cases[i].content, strlen(cases[i].content)), TERN_E_FORMAT, cases[i].text);
}

/* What looks like another file in places: the size of gzip's magic number, and a text where a tar archive says what it is. */
static void safetensors_may_hold_such_bytes(void **state)
{
    struct fixture *f = *state;
    for (int tar = 0; tar < 2; tar++) {
        const size_t header = tar ? 1000 : 0x8b1f, text = header - strlen("{\"__metadata__\": {\"a\": \"\"}}");
        char *metadata = calloc(text + 1, 1);
        memset(metadata, 'x', text);
        if (tar)
            memcpy(metadata + 257 - 8 - strlen("{\"__metadata__\": {\"a\": \""), "ustar", 5);
        char *whole = calloc(8 + header + 1, 1);
        for (int i = 0; i < 8; i++)
            whole[i] = (char)(header >> 8 * i);
        sprintf(whole + 8, "{\"__metadata__\": {\"a\": \"%s\"}}", metadata);
        struct tern_weights *w = tern_weights_open(f->ctx, help_file(f, "w.safetensors", whole, 8 + header));
        if (!w)
            fail_msg("%s", tern_error(f->ctx));
        tern_weights_unref(&w);
        free(whole);
        free(metadata);
    }
}

static void safetensors_is_refused_when_cut_anywhere(void **state)
{
    help_truncate_everywhere(*state, FORMATS "odd.safetensors", ".safetensors");
}

/* Header bytes decide most; those of the data may change freely. */
static void safetensors_survives_any_changed_byte(void **state)
{
    assert_true(help_mutate_everywhere(*state, FORMATS "odd.safetensors", ".safetensors") > 900);
}

/* Written again, the file of the reference implementation has the same bytes: order, header, padding, metadata. */
static void saving_gives_the_reference_bytes(void **state)
{
    struct fixture *f = *state;
    size_t a, b;
    struct tern_weights *w = tern_weights_open(f->ctx, FORMATS "mini/unet/diffusion_pytorch_model.safetensors");
    assert_int_equal(tern_weights_save(w, help_path(f, "out.safetensors")), TERN_OK);
    tern_weights_unref(&w);
    uint8_t *x = help_read(FORMATS "mini/unet/diffusion_pytorch_model.safetensors", &a),
            *y = help_read(help_path(f, "out.safetensors"), &b);
    assert_int_equal(a, b);
    assert_memory_equal(x, y, a);
    free(x);
    free(y);
}

static void saving_keeps_dtypes_and_aligns(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_open(f->ctx, FORMATS "odd.safetensors"), *again;
    assert_int_equal(tern_weights_save(w, help_path(f, "out.safetensors")), TERN_OK);
    again = tern_weights_open(f->ctx, help_path(f, "out.safetensors"));
    help_same_weights(w, again);
    assert_string_equal(tern_weights_metadata(again, "note"), tern_weights_metadata(w, "note"));
    for (int64_t i = 0; i < tern_weights_count(again); i++) {
        tern_tensor *t = tern_weights_at(again, i);
        if (tern_tensor_dtype(t) != TERN_BOOL)
            assert_non_null(t->advise); /* mapped, so aligned */
    }
    tern_weights_unref(&w);
    tern_weights_unref(&again);
}

static void saving_says_why_it_fails(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_create(f->ctx);
    assert_int_equal(tern_weights_save(w, help_path(f, "no/such/out.safetensors")), TERN_E_IO);
    assert_non_null(strstr(tern_error(f->ctx), "no/such/out.safetensors"));
    tern_error_clear(f->ctx);
    assert_int_equal(tern_weights_save(w, help_path(f, "empty.safetensors")), TERN_OK);
    struct tern_weights *again = tern_weights_open(f->ctx, help_path(f, "empty.safetensors"));
    assert_non_null(again);
    assert_int_equal(tern_weights_count(again), 0);
    tern_weights_unref(&again);
    tern_tensor *t = tern_tensor_scalar(f->ctx, TERN_F32, 1);
    tern_weights_add(w, "bad \xff", t);
    assert_int_equal(tern_weights_save(w, help_path(f, "out.safetensors")), TERN_E_INVALID);
    assert_non_null(strstr(tern_error(f->ctx), "not valid UTF-8"));
    assert_int_equal(access(help_path(f, "out.safetensors"), F_OK), -1);
    tern_tensor_unref(&t);
    tern_weights_unref(&w);
}

static void the_streaming_writer_checks_sizes(void **state)
{
    struct fixture *f = *state;
    const struct tern_safetensors_entry two[] = {{.name = "b", .dtype = TERN_F16, .ndim = 2, .shape = {2, 3}},
                                                 {.name = "a", .dtype = TERN_I32, .ndim = 1, .shape = {1}}};
    const struct tern_safetensors_entry twice[] = {two[0], two[0]}, reserved = {.name = "__metadata__", .dtype = TERN_F32};
    static const char *const metadata[] = {"format", "pt"};
    struct tern_safetensors_writer *w = tern_safetensors_writer_open(f->ctx, help_path(f, "s.safetensors"), two, 2, metadata, 1);
    uint16_t b[6] = {1, 2, 3, 4, 5, 6};
    assert_int_equal(tern_safetensors_writer_add(w, b, 10), TERN_E_INTERNAL);
    assert_non_null(strstr(tern_error(f->ctx), "tensor \"b\": expected 12 bytes, found 10"));
    tern_error_clear(f->ctx);
    assert_int_equal(tern_safetensors_writer_add(w, b, 12), TERN_OK);
    assert_int_equal(tern_safetensors_writer_commit(&w), TERN_E_INTERNAL);
    assert_non_null(strstr(tern_error(f->ctx), "tensor \"a\" was announced and not written"));
    tern_error_clear(f->ctx);
    assert_int_equal(access(help_path(f, "s.safetensors"), F_OK), -1);
    w = tern_safetensors_writer_open(f->ctx, help_path(f, "s.safetensors"), two, 2, metadata, 1);
    assert_int_equal(tern_safetensors_writer_add(w, b, 12), TERN_OK);
    assert_int_equal(tern_safetensors_writer_add(w, &(int32_t){-7}, 4), TERN_OK);
    assert_int_equal(tern_safetensors_writer_commit(&w), TERN_OK);
    struct tern_weights *again = tern_weights_open(f->ctx, help_path(f, "s.safetensors"));
    check(again, "a", TERN_I32, (int32_t[]){-7}, 4);
    check(again, "b", TERN_F16, b, 12);
    assert_string_equal(tern_weights_metadata(again, "format"), "pt");
    tern_weights_unref(&again);
    assert_null(tern_safetensors_writer_open(f->ctx, help_path(f, "s.safetensors"), twice, 2, NULL, 0));
    assert_null(tern_safetensors_writer_open(f->ctx, help_path(f, "s.safetensors"), &reserved, 1, NULL, 0));
    assert_non_null(strstr(tern_error(f->ctx), "occurs twice or is reserved"));
}

#define SHARDED FORMATS "mini-sharded/unet/diffusion_pytorch_model"

static void shards_make_the_whole(void **state)
{
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_open(f->ctx, SHARDED ".safetensors.index.json");
    struct tern_weights *whole = tern_weights_open(f->ctx, FORMATS "mini/unet/diffusion_pytorch_model.safetensors");
    help_same_weights(w, whole);
    tern_weights_unref(&w);
    tern_weights_unref(&whole);
}

static void bad_indexes_are_refused(void **state)
{
    struct fixture *f = *state;
    help_copy(f, FORMATS "mini/vae/diffusion_pytorch_model.safetensors", "vae.safetensors");
    help_file(f, "one.safetensors", "\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}             x",
              8 + 64 + 1);
    static const struct {
        const char *json;
        enum tern_status status;
        const char *text;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"gone.safetensors\"}}", TERN_E_NOT_FOUND,
         "the file gone.safetensors that it names is missing"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"one.safetensors\"}}", TERN_E_FORMAT, "tensor \"b\" should be in"},
        {"{\"weight_map\":{\"a\":\"one.safetensors\",\"conv\":\"vae.safetensors\"}}", TERN_E_FORMAT, "tensor \"conv\" should be in"},
        {"{\"weight_map\":{\"decoder.conv_in.bias\":\"vae.safetensors\"}}", TERN_E_FORMAT,
         "tensor \"decoder.conv_in.weight\" is not in the weight_map of"},
        {"{\"weight_map\":{\"a\":\"../one.safetensors\"}}", TERN_E_FORMAT, "tensor \"a\": expected the name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", TERN_E_FORMAT, "expected the name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"..\"}}", TERN_E_FORMAT, "expected the name of a file beside the index"},
        {"{\"weight_map\":{\"a\":7}}", TERN_E_FORMAT, "expected the name of a file beside the index"},
        {"{\"weight_map\":{\"a\":\"index.json\"}}", TERN_E_FORMAT, "not a weight file that tern knows"},
        {"{\"weight_map\":{}}", TERN_E_FORMAT, "\"weight_map\" is empty"},
        {"{\"weight_map\":[]}", TERN_E_FORMAT, "expected an object \"weight_map\""},
        {"{\"weight_map\":{\"a\":\"one.safetensors\"}", TERN_E_FORMAT, "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        help_refused(f, help_file(f, "index.json", cases[i].json, strlen(cases[i].json)), cases[i].status, cases[i].text);
    static const char good[] = "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"one.safetensors\"}}";
    struct tern_weights *w = tern_weights_open(f->ctx, help_file(f, "index.json", good, strlen(good)));
    assert_int_equal(tern_weights_count(w), 1);
    tern_weights_unref(&w);
    help_truncate_everywhere(f, help_path(f, "index.json"), ".json");
    help_mutate_everywhere(f, help_path(f, "index.json"), ".json");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(table_is_sorted_and_refuses_duplicates),
        TEST(set_keeps_its_context_alive),
        TEST(every_dtype_is_read),
        TEST(odd_integers_are_widened),
        TEST(aligned_tensors_are_mapped),
        TEST(offsets_above_4_gib_are_read),
        TEST(unaligned_tensors_are_copied),
        TEST(scopes_do_not_own_weights),
        TEST(bad_headers_are_refused),
        TEST(metadata_may_hold_a_nul),
        TEST(a_header_of_deep_brackets_does_not_crash),
        TEST(bad_lengths_are_refused),
        TEST(mistaken_files_are_named),
        TEST(safetensors_may_hold_such_bytes),
        TEST(safetensors_is_refused_when_cut_anywhere),
        TEST(safetensors_survives_any_changed_byte),
        TEST(saving_gives_the_reference_bytes),
        TEST(saving_keeps_dtypes_and_aligns),
        TEST(saving_says_why_it_fails),
        TEST(the_streaming_writer_checks_sizes),
        TEST(shards_make_the_whole),
        TEST(bad_indexes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
