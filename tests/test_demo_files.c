/* The model that ships with tern is refused when one of its files, or the list of them, is not as it shipped. The cases
 * work in a folder of links to the files, in which one is replaced by a changed copy. */
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
#include "models/files/manifest.h"
#include "support.h"

#define DEMO TERN_SOURCE_ROOT "/models/demo"
#define UNET "unet/diffusion_pytorch_model.safetensors"
#define VAE "vae/diffusion_pytorch_model.safetensors"

struct place {
    char root[32], demo[64];
};

static const char *file_of(const struct place *p, const char *name)
{
    static char path[PATH_SIZE];
    snprintf(path, sizeof(path), "%s/%s", p->demo, name);
    return path;
}

static struct place *building; /* for link_one, which nftw calls */

static int link_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    const char *copy = file_of(building, path + strlen(DEMO) + (strlen(path) > strlen(DEMO)));
    return type == FTW_D ? mkdir(copy, 0777) : symlink(path, copy);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) { return remove(path); }

static int setup(void **state)
{
    static struct place p;
    snprintf(p.root, sizeof(p.root), "/tmp/tern-demo-XXXXXX");
    assert_non_null(mkdtemp(p.root));
    snprintf(p.demo, sizeof(p.demo), "%s/demo", p.root);
    building = &p;
    assert_int_equal(nftw(DEMO, link_one, 8, FTW_PHYS), 0);
    setenv("TERN_DATA_DIR", p.root, 1);
    *state = &p;
    return 0;
}

static int teardown(void **state)
{
    const struct place *p = *state;
    unsetenv("TERN_DATA_DIR");
    return nftw(p->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static uint8_t *read_all(const char *path, size_t *size)
{
    struct stat st;
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &st), 0);
    *size = (size_t)st.st_size;
    uint8_t *data = malloc(*size + 1); /* room for one more byte */
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, f), *size);
    fclose(f);
    return data;
}

/* Puts a file in place of the link. */
static void put(const struct place *p, const char *name, const void *data, size_t size)
{
    assert_int_equal(remove(file_of(p, name)), 0);
    FILE *f = fopen(file_of(p, name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
}

static void put_link_back(const struct place *p, const char *name)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof(path), DEMO "/%s", name);
    remove(file_of(p, name));
    assert_int_equal(symlink(path, file_of(p, name)), 0);
}

/* Both sides of the model are refused; the message names the file, says the two words, and what helps. */
static void expect_refused(const struct place *p, const char *name, enum tern_status status, const char *word, const char *other)
{
    struct tern_context *ctx = model_context(NULL, 1);
    for (int zh = 0; zh < 2; zh++) {
        const char *words[] = {file_of(p, name), word, other, "install tern again"};
        assert_null(tern_pipeline_load(ctx, zh ? "demo-zh" : "demo", NULL));
        for (int i = 0; i < 4; i++)
            if (!strstr(tern_error(ctx), words[i]))
                fail_msg("%s: \"%s\" is not in: %s", name, words[i], tern_error(ctx));
        support_error(ctx, status, "");
    }
    tern_context_destroy(&ctx);
}

static void expect_opened(void)
{
    struct tern_context *ctx = model_context(NULL, 1);
    for (int zh = 0; zh < 2; zh++) {
        struct tern_pipeline *p = model_load(ctx, zh ? "demo-zh" : "demo");
        tern_pipeline_destroy(&p);
    }
    tern_context_destroy(&ctx);
}

/* CRC-32 bit by bit [ISO 3309]. */
static uint32_t crc32_of(const uint8_t *data, size_t size)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void one_flipped_bit_is_found(void **state)
{
    static const char *const names[] = {
        UNET, VAE, "text_encoder/model.safetensors", "zh/text_encoder/model.safetensors", "tokenizer/vocab.json", "unet/config.json"};
    const struct place *p = *state;
    expect_opened();
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        size_t size;
        char before[32], after[32];
        uint8_t *data = read_all(file_of(p, names[i]), &size);
        snprintf(before, sizeof(before), "expected CRC-32 %08x", (unsigned)crc32_of(data, size));
        data[size * (i + 1) / 7] ^= 0x10;
        snprintf(after, sizeof(after), "found %08x", (unsigned)crc32_of(data, size));
        put(p, names[i], data, size);
        expect_refused(p, names[i], TERN_E_FORMAT, before, after);
        put_link_back(p, names[i]);
        free(data);
    }
    expect_opened();
}

static void another_length_is_found(void **state)
{
    const struct place *p = *state;
    for (int more = -1; more <= 1; more += 2) {
        size_t size;
        char before[48], after[32];
        uint8_t *data = read_all(file_of(p, VAE), &size);
        data[size] = 0;
        snprintf(before, sizeof(before), "expected %zu bytes", size);
        snprintf(after, sizeof(after), "found %zu", more < 0 ? size - 1 : size + 1);
        put(p, VAE, data, more < 0 ? size - 1 : size + 1);
        expect_refused(p, VAE, TERN_E_FORMAT, before, after);
        put_link_back(p, VAE);
        free(data);
    }
    put(p, UNET, "", 0);
    expect_refused(p, UNET, TERN_E_FORMAT, "found 0", "not the file");
}

static void a_missing_file_is_found(void **state)
{
    static const char *const names[] = {UNET, "zh/tokenizer/vocab.txt", "scheduler/scheduler_config.json"};
    const struct place *p = *state;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        assert_int_equal(remove(file_of(p, names[i])), 0);
        expect_refused(p, names[i], TERN_E_NOT_FOUND, "missing", "expected a file of");
        put_link_back(p, names[i]);
    }
    assert_int_equal(remove(file_of(p, "manifest.json")), 0);
    expect_refused(p, "manifest.json", TERN_E_NOT_FOUND, "cannot be checked", "No such file");
}

static void a_damaged_manifest_is_refused(void **state)
{
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"", "not valid JSON"},
        {"{\"files\": {\"model_index.json\": {\"size\": 556, ", "not valid JSON"},
        {"[]", "model_index.json"},
        {"{}", "model_index.json"},
        {"{\"files\": []}", "model_index.json"},
        {"{\"files\": {\"unet/config.json\": {\"size\": 1, \"crc32\": \"00000000\"}}}", "model_index.json"},
        {"{\"files\": {\"model_index.json\": 7}}", "rows of the form"},
        {"{\"files\": {\"model_index.json\": {\"size\": \"556\", \"crc32\": \"00000000\"}}}", "eight hexadecimal"},
        {"{\"files\": {\"model_index.json\": {\"size\": -1, \"crc32\": \"00000000\"}}}", "eight hexadecimal"},
        {"{\"files\": {\"model_index.json\": {\"size\": 556}}}", "eight hexadecimal"},
        {"{\"files\": {\"model_index.json\": {\"size\": 556, \"crc32\": \"0000000g\"}}}", "eight hexadecimal"},
        {"{\"files\": {\"model_index.json\": {\"size\": 556, \"crc32\": \"000000000\"}}}", "eight hexadecimal"},
        {"{\"files\": {\"../model_index.json\": {}, \"model_index.json\": {}}}", "rows of the form"},
        {"{\"files\": {\"/etc/hostname\": {}, \"model_index.json\": {}}}", "rows of the form"},
        {"{\"files\": {\"unet//config.json\": {}, \"model_index.json\": {}}}", "rows of the form"},
        {"{\"files\": {\"unet/\": {}, \"model_index.json\": {}}}", "rows of the form"},
        {"{\"files\": {\"\": {}, \"model_index.json\": {}}}", "rows of the form"},
        {"{\"files\": {\"a\\nb\": {}, \"model_index.json\": {}}}", "rows of the form"},
    };
    const struct place *p = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        put(p, "manifest.json", rows[i].text, strlen(rows[i].text));
        expect_refused(p, "manifest.json", TERN_E_FORMAT, rows[i].word, "");
    }
}

static int found_files;

static int count_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    found_files += type == FTW_F;
    return 0;
}

static void every_file_is_listed(void **state)
{
    json_t *root = json_load_file(DEMO "/manifest.json", 0, NULL);
    found_files = 0;
    assert_int_equal(nftw(DEMO, count_one, 8, FTW_PHYS), 0);
    assert_int_equal(json_object_size(json_object_get(root, "files")), found_files - 1); /* all but the manifest */
    json_decref(root);
}

/* Each allocation of a check fails once: a status, nothing left. */
static void allocations_may_fail(void **state)
{
    long fail_at = 1;
    for (bool done = false; !done; fail_at++) {
        struct support_allocator a = {.fail_at = 0};
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&a)});
        assert_non_null(ctx);
        a.fail_at = a.count + fail_at;
        enum tern_status st = tern_manifest_check(ctx, DEMO);
        done = st == TERN_OK;
        if (!done)
            support_error(ctx, TERN_E_NO_MEMORY, "");
        tern_context_destroy(&ctx);
        assert_int_equal(a.live, 0);
    }
    assert_true(fail_at > 17);
}

int main(void)
{
#define WITH_FOLDER(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_FOLDER(one_flipped_bit_is_found),      WITH_FOLDER(another_length_is_found),   WITH_FOLDER(a_missing_file_is_found),
        WITH_FOLDER(a_damaged_manifest_is_refused), cmocka_unit_test(every_file_is_listed), cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
