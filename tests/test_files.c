/* Files, the cache folder and configuration files: what is read, what is refused. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/cache.h"
#include "core/context.h"
#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "support.h"
#include "weights_help.h"

/* ---- reading */

static void files_are_mapped(void **state)
{
    struct fixture *f = *state;
    help_write(help_path(f, "a"), "0123456789");
    struct tern_mapping *m = tern_map_file(f->ctx, f->path), *again = tern_mapping_ref(m);
    assert_int_equal(m->size, 10);
    assert_string_equal(m->path, f->path);
    tern_mapping_unref(&m);
    assert_null(m);
    tern_mapping_advise(again, 0, 10, false);
    tern_mapping_advise(again, 5, SIZE_MAX - 100, false); /* outside: nothing happens */
    assert_memory_equal(again->data, "0123456789", 10);
    tern_mapping_unref(&again);
    tern_mapping_unref(&again);
    help_write(help_path(f, "empty"), "");
    m = tern_map_file(f->ctx, f->path);
    assert_non_null(m);
    assert_null(m->data);
    assert_int_equal(m->size, 0);
    tern_mapping_advise(m, 0, 100, false);
    tern_mapping_unref(&m);
}

static void large_mappings_survive_dropping(void **state)
{
    struct fixture *f = *state;
    size_t size = 5 * 4096 + 17;
    uint8_t *data = malloc(size);
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    struct tern_mapping *m = tern_map_file(f->ctx, help_file(f, "big", data, size));
    assert_memory_equal(m->data, data, size);
    tern_mapping_advise(m, 100, 4 * 4096, false);
    tern_mapping_advise(m, 0, size, false);
    assert_memory_equal(m->data, data, size);
    tern_mapping_unref(&m);
    free(data);
}

static void mappings_are_read_without_their_pages(void **state)
{
    struct fixture *f = *state;
    enum { SIZE = 300 * 4096 + 17 };
    uint8_t *data = malloc(SIZE), *copy = calloc(SIZE, 1), *elsewhere = calloc(16, 1);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    struct tern_mapping *first = tern_map_file(f->ctx, help_file(f, "small", data, 100));
    struct tern_mapping *m = tern_map_file(f->ctx, help_file(f, "big", data, SIZE));
    assert_true(tern_mapping_read(f->ctx, m->data, SIZE, copy));
    assert_memory_equal(copy, data, SIZE);
    assert_int_equal(support_resident(m->data), 0);
    assert_true(tern_mapping_read(f->ctx, m->data + 5000, 10, copy));
    assert_memory_equal(copy, data + 5000, 10);
    assert_true(tern_mapping_read(f->ctx, first->data + 90, 10, copy));
    assert_memory_equal(copy, data + 90, 10);
    assert_memory_equal(m->data, data, SIZE);
    assert_true(support_resident(m->data) >= SIZE / 1024);
    tern_mapping_advise(m, 1, SIZE - 2, false); /* the pages at both ends, too */
    assert_int_equal(support_resident(m->data), 0);
    assert_false(tern_mapping_read(f->ctx, m->data + 1, SIZE, copy));
    assert_false(tern_mapping_read(f->ctx, m->data + SIZE, 1, copy));
    assert_false(tern_mapping_read(f->ctx, elsewhere, 16, copy));
    const uint8_t *gone = first->data;
    tern_mapping_unref(&first);
    assert_false(tern_mapping_read(f->ctx, gone, 10, copy));
    tern_mapping_unref(&m);
    free(data);
    free(copy);
    free(elsewhere);
}

static void what_cannot_be_read_is_named(void **state)
{
    struct fixture *f = *state;
    help_folder(f, "sub");
    static const struct {
        const char *name;
        enum tern_status status;
        const char *message;
    } rows[] = {{"absent", TERN_E_NOT_FOUND, "absent: cannot be opened: No such file"},
                {"sub", TERN_E_IO, "sub: expected a file, found a folder"},
                {"sub/absent/x", TERN_E_NOT_FOUND, "sub/absent/x: cannot be opened"}};
    for (int i = 0; i < 3; i++) {
        assert_null(tern_map_file(f->ctx, help_path(f, rows[i].name)));
        support_error(f->ctx, rows[i].status, rows[i].message);
        assert_null(tern_read_file(f->ctx, f->path, 100, NULL));
        support_error(f->ctx, rows[i].status, rows[i].message);
    }
    assert_int_equal(mkfifo(help_path(f, "pipe"), 0600), 0);
    assert_null(tern_map_file(f->ctx, f->path)); /* at once: nobody writes into it */
    support_error(f->ctx, TERN_E_IO, "found something else");
    assert_null(tern_map_file(f->ctx, "/dev/null"));
    support_error(f->ctx, TERN_E_IO, "/dev/null: expected a file, found something else");
    assert_null(tern_map_file(f->ctx, ""));
    support_error(f->ctx, TERN_E_NOT_FOUND, "cannot be opened");
}

static void small_files_are_read_whole(void **state)
{
    struct fixture *f = *state;
    size_t size = 99;
    help_file(f, "text", "ab\0cd", 5);
    char *text = tern_read_file(f->ctx, f->path, 5, &size);
    assert_int_equal(size, 5);
    assert_memory_equal(text, "ab\0cd", 6); /* with a NUL behind it */
    tern_free(f->ctx, text);
    assert_null(tern_read_file(f->ctx, f->path, 4, &size));
    support_error(f->ctx, TERN_E_FORMAT, "text: expected at most 4 bytes, found 5");
    text = tern_read_file(f->ctx, help_file(f, "empty", "", 0), 0, &size);
    assert_string_equal(text, "");
    assert_int_equal(size, 0);
    tern_free(f->ctx, text);
}

static void paths_are_joined_and_told_apart(void **state)
{
    struct fixture *f = *state;
    char *path = tern_path_join(f->ctx, "a/b", "c");
    assert_string_equal(path, "a/b/c");
    tern_free(f->ctx, path);
    path = tern_path_join(f->ctx, "a/", "c");
    assert_string_equal(path, "a/c");
    tern_free(f->ctx, path);
    assert_int_equal(tern_path_kind(f->folder), TERN_PATH_FOLDER);
    assert_int_equal(tern_path_kind(help_file(f, "x", "", 0)), TERN_PATH_FILE);
    assert_int_equal(tern_path_kind(help_path(f, "y")), TERN_PATH_MISSING);
    assert_int_equal(tern_path_kind("/dev/null"), TERN_PATH_OTHER);
}

/* ---- the cache */

static void check_cache(const char *dir, const char *xdg, const char *home, const char *expected)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = dir});
    xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    home ? setenv("HOME", home, 1) : unsetenv("HOME");
    char *path = tern_cache_path(ctx, "tune", "a.json");
    if (expected)
        assert_string_equal(path, expected);
    else
        assert_null(path);
    assert_string_equal(tern_error(ctx), "");
    tern_free(ctx, path);
    tern_context_destroy(&ctx);
}

/* A process may go to another folder: the cache and what was measured stay where they were. */
static void caches_stay_where_they_were(void **state)
{
    struct fixture *f = *state;
    char before[512], expected[600];
    assert_true(getcwd(before, sizeof(before)) && !chdir(f->folder));
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = "kept", .tune.cache = "t.json"});
    assert_int_equal(chdir("/"), 0);
    char *path = tern_cache_path(ctx, "tune", "a.json");
    snprintf(expected, sizeof(expected), "%s/kept/tune/a.json", f->folder);
    assert_string_equal(path, expected);
    snprintf(expected, sizeof(expected), "%s/t.json", f->folder);
    assert_string_equal(ctx->params.tune.cache, expected);
    tern_free(ctx, path);
    tern_context_destroy(&ctx);
    assert_int_equal(chdir(before), 0);
}

static void the_cache_is_where_xdg_says(void **state)
{
    char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    xdg = xdg ? strdup(xdg) : NULL;
    home = home ? strdup(home) : NULL;
    check_cache("/c", "/x", "/h", "/c/tune/a.json");
    check_cache(NULL, "/x", "/h", "/x/tern/tune/a.json");
    check_cache(NULL, "relative", "/h", "/h/.cache/tern/tune/a.json"); /* the specification: to be ignored */
    check_cache(NULL, "", "/h", "/h/.cache/tern/tune/a.json");
    check_cache(NULL, NULL, "/h", "/h/.cache/tern/tune/a.json");
    check_cache(NULL, NULL, "", NULL);
    check_cache(NULL, NULL, NULL, NULL);
    xdg ? setenv("XDG_CACHE_HOME", xdg, 1) : unsetenv("XDG_CACHE_HOME");
    home ? setenv("HOME", home, 1) : unsetenv("HOME");
    free(xdg);
    free(home);
}

static void cache_folders_are_made(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(tern_cache_prepare(f->ctx, help_path(f, "a/b/c/entry")), TERN_OK);
    assert_int_equal(tern_cache_prepare(f->ctx, f->path), TERN_OK);
    assert_int_equal(tern_cache_prepare(f->ctx, ""), TERN_OK); /* has no folder */
    assert_int_equal(tern_path_kind(help_path(f, "a/b/c")), TERN_PATH_FOLDER);
    assert_int_equal(tern_path_kind(help_path(f, "a/b/c/entry")), TERN_PATH_MISSING);
    help_file(f, "a/file", "", 0);
    assert_int_equal(tern_cache_prepare(f->ctx, help_path(f, "a/file/below/entry")), TERN_E_IO);
    support_error(f->ctx, TERN_E_IO, "a/file/below: the cache folder cannot be made");
}

static void unfinished_files_of_the_cache_go(void **state)
{
    static const struct {
        const char *name;
        time_t age;
        bool goes;
    } rows[] = {
        {"a.plan.12-3", 90000, true},    {"a.plan.12-3", 80000, false}, {"a.plan", 90000, false},    {"a.plan.12-", 90000, false},
        {"a.plan.-3", 90000, false},     {"a.bin.12-3", 90000, false},  {"a.12-3", 90000, false},    {".plan.12-3", 90000, false},
        {"a.plan.12-3.x", 90000, false}, {"a.plan.x-3", 90000, false},  {"aplan.1-3", 90000, false}, {"b.a.plan.4000000-1", 1e7, true},
    };
    struct fixture *f = *state;
    struct tern_context *elsewhere = f->ctx, *ctx = tern_context_create(&(struct tern_context_params){.cache_dir = f->folder});
    assert_non_null(ctx);
    help_folder(f, "plans");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char path[200];
        snprintf(path, sizeof(path), "%s/plans/%s", f->folder, rows[i].name);
        help_write(path, "");
        const struct timespec then[2] = {{.tv_sec = time(NULL) - rows[i].age}, {.tv_sec = time(NULL) - rows[i].age}};
        assert_int_equal(utimensat(AT_FDCWD, path, then, 0), 0);
        assert_int_equal(tern_cache_prepare(elsewhere, help_path(f, "plans/new.plan")), TERN_OK); /* the user's folder */
        assert_int_equal(access(path, F_OK), 0);
        assert_int_equal(tern_cache_prepare(ctx, help_path(f, "plans/new.plan")), TERN_OK);
        if (access(path, F_OK) != (rows[i].goes ? -1 : 0))
            fail_msg("%s, %ld s", rows[i].name, (long)rows[i].age);
        unlink(path);
    }
    tern_context_destroy(&ctx);
}

/* ---- JSON */

static void bad_json_is_located(void **state)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"", "c.json: not valid JSON: line 1"},
        {"{\"a\": 1,\n \"b\": }", "c.json: not valid JSON: line 2, column"},
        {"{\"a\": 1, \"a\": 2}", "duplicate"},
        {"{\"a\": 1} x", "not valid JSON"},
        {"{\"a\": \"\xff\"}", "line 1, column 7: unable to decode byte 0xff"},
        {"{\"a\": 1e999}", "not valid JSON"},
        {"{\"a\": 99999999999999999999}", "not valid JSON"},
        {"[[[[", "not valid JSON"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_null(tern_json_parse(f->ctx, rows[i].text, strlen(rows[i].text), "c.json"));
        support_error(f->ctx, TERN_E_FORMAT, rows[i].message);
    }
    assert_null(tern_json_parse(f->ctx, "{\"a\0b\": 1}", 10, "c.json"));
    support_error(f->ctx, TERN_E_FORMAT, "c.json: not valid JSON");
    char deep[20000];
    memset(deep, '[', sizeof(deep));
    assert_null(tern_json_parse(f->ctx, deep, sizeof(deep), "c.json"));
    support_error(f->ctx, TERN_E_FORMAT, "not valid JSON");
    assert_null(tern_json_load(f->ctx, help_file(f, "bad.json", "{", 1)));
    support_error(f->ctx, TERN_E_FORMAT, "bad.json: not valid JSON: line 1");
    assert_null(tern_json_load(f->ctx, help_path(f, "absent.json")));
    support_error(f->ctx, TERN_E_NOT_FOUND, "absent.json");
    json_t *o = tern_json_load(f->ctx, help_file(f, "good.json", "{\"a\": [1]}", 10));
    assert_int_equal(json_integer_value(json_array_get(json_object_get(o, "a"), 0)), 1);
    json_decref(o);
}

/* Its values would take a hundred times its bytes. */
static void json_of_too_many_values_is_refused(void **state)
{
    enum { LISTS = 1 << 21, LIMIT = 1 << 22 };
    struct fixture *f = *state;
    char *text = malloc(3 * LISTS + 16);
    strcpy(text, "\n[\",,[[\"");
    size_t n = strlen(text);
    for (int i = 0; i < LISTS; i++, n += 3)
        memcpy(text + n, ",[]", 3);
    text[n++] = ']';
    assert_null(tern_json_parse(f->ctx, text, n, "c.json"));
    char message[80];
    snprintf(message, sizeof(message), "c.json: not valid JSON: line 2, column %d: more than %d values", 7 + 3 * (LISTS - 1) + 2, LIMIT);
    support_error(f->ctx, TERN_E_FORMAT, message);
    free(text);
}

static void json_values_have_types(void **state)
{
    struct fixture *f = *state;
    struct tern_context *ctx = f->ctx;
    json_t *o = json_loads(
        "{\"i\": 7, \"n\": 2.5, \"b\": true, \"s\": \"text\", \"null\": null, \"a\": [], \"o\": {}, \"big\": 9223372036854775807}", 0,
        NULL);
    int64_t i = -1;
    double n = -1;
    bool b = false;
    const char *s = "default";
    assert_int_equal(tern_json_int(ctx, o, "c", "absent", 0, 9, &i), TERN_OK);
    assert_int_equal(tern_json_int(ctx, o, "c", "null", 0, 9, &i), TERN_OK);
    assert_int_equal(tern_json_number(ctx, o, "c", "null", &n), TERN_OK);
    assert_int_equal(tern_json_bool(ctx, o, "c", "absent", &b), TERN_OK);
    assert_int_equal(tern_json_string(ctx, o, "c", "null", &s), TERN_OK);
    assert_true(i == -1 && n == -1 && !b && !strcmp(s, "default"));
    assert_int_equal(tern_json_int(ctx, o, "c", "i", 7, 7, &i), TERN_OK);
    assert_int_equal(tern_json_number(ctx, o, "c", "n", &n), TERN_OK);
    assert_int_equal(tern_json_bool(ctx, o, "c", "b", &b), TERN_OK);
    assert_int_equal(tern_json_string(ctx, o, "c", "s", &s), TERN_OK);
    assert_true(i == 7 && n == 2.5 && b && !strcmp(s, "text"));
    assert_int_equal(tern_json_number(ctx, o, "c", "i", &n), TERN_OK);
    assert_true(n == 7);
    assert_int_equal(tern_json_int(ctx, o, "c", "big", 0, INT64_MAX, &i), TERN_OK);
    assert_true(i == INT64_MAX);
    static const struct {
        char kind;
        const char *key, *message;
    } rows[] = {
        {'i', "n", "c: \"n\": expected an integer, found a number"},
        {'i', "s", "expected an integer, found a string"},
        {'i', "b", "expected an integer, found true"},
        {'n', "s", "expected a finite number, found a string"},
        {'b', "i", "expected true or false, found an integer"},
        {'s', "a", "expected a string, found an array"},
        {'s', "o", "c: \"o\": expected a string, found an object"},
        {'i', "big", "c: \"big\": expected 0..9, found 9223372036854775807"},
    };
    for (size_t k = 0; k < sizeof(rows) / sizeof(*rows); k++) {
        if (rows[k].kind == 'i')
            tern_json_int(ctx, o, "c", rows[k].key, 0, 9, &i);
        else if (rows[k].kind == 'n')
            tern_json_number(ctx, o, "c", rows[k].key, &n);
        else if (rows[k].kind == 'b')
            tern_json_bool(ctx, o, "c", rows[k].key, &b);
        else
            tern_json_string(ctx, o, "c", rows[k].key, &s);
        support_error(ctx, TERN_E_FORMAT, rows[k].message);
    }
    assert_true(i == INT64_MAX && n == 7 && b && !strcmp(s, "text")); /* untouched by what failed */
    json_decref(o);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, help_setup, help_teardown)

/* Python's hashlib of the bytes 0, 1 … 250, 0 … */
static void test_sha256(void **state)
{
    (void)state;
    static const struct {
        size_t size;
        const char *hash;
    } rows[] = {
        {0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59"},
        {56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562"},
        {63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488"},
        {64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108"},
        {65, "4bfd2c8b6f1eec7a2afeb48b934ee4b2694182027e6d0fc075074f2fabb31781"},
        {119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6"},
        {120, "f52b23db1fbb6ded89ef42a23ce0c8922c45f25c50b568a93bf1c075420bbb7c"},
        {1000, "4e4c294b331f7a2099a379bec34b9f9fc03dc46ab465d998f4d683da53487e6d"},
    };
    uint8_t data[1000];
    char hash[TERN_SHA256_TEXT];
    for (int i = 0; i < 1000; i++)
        data[i] = (uint8_t)(i % 251);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        tern_sha256(data, rows[i].size, hash);
        assert_string_equal(hash, rows[i].hash);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256),
        TEST(files_are_mapped),
        TEST(large_mappings_survive_dropping),
        TEST(mappings_are_read_without_their_pages),
        TEST(what_cannot_be_read_is_named),
        TEST(small_files_are_read_whole),
        TEST(paths_are_joined_and_told_apart),
        cmocka_unit_test_setup_teardown(caches_stay_where_they_were, help_setup, help_teardown),
        cmocka_unit_test(the_cache_is_where_xdg_says),
        TEST(cache_folders_are_made),
        TEST(unfinished_files_of_the_cache_go),
        TEST(bad_json_is_located),
        TEST(json_of_too_many_values_is_refused),
        TEST(json_values_have_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
