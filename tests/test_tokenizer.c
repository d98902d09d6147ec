/* The tokenizers against the ids of Hugging Face's fast ones (tests/data/tokenizers, see its README), code point by code
 * point and text by text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "models/tokenizers/tokenizer.h"
#include "models/tokenizers/unicode.h"
#include "support.h"

#define COUNT 10000
#define SAME 0xffffffffu /* in place of a count: the ids of the base */

/* An unpacked .z file, read from front to back. */
struct golden {
    uint8_t *data;
    size_t size, at;
};

static struct golden open_golden(const char *name)
{
    struct golden g = {.data = malloc(16u << 20)};
    char path[1024];
    snprintf(path, sizeof(path), "%s/tokenizers/%s.z", TERN_TEST_DATA, name);
    FILE *f = fopen(path, "rb");
    uint8_t *packed = malloc(1u << 20);
    if (!f || !packed || !g.data)
        fail_msg("%s: cannot be read", path);
    size_t n = fread(packed, 1, 1u << 20, f);
    uLongf size = 16u << 20;
    assert_int_equal(uncompress(g.data, &size, packed, n), Z_OK);
    fclose(f);
    free(packed);
    g.size = size;
    return g;
}

static uint32_t get_u32(struct golden *g)
{
    assert_true(g->size - g->at >= 4);
    const uint8_t *p = g->data + g->at;
    g->at += 4;
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static const uint8_t *get_bytes(struct golden *g, size_t n)
{
    assert_true(g->size - g->at >= n);
    g->at += n;
    return g->data + g->at - n;
}

/* The next text's ids; `base` moves along where ids are left out. */
static const uint8_t *get_ids(struct golden *ids, struct golden *base, uint32_t *count)
{
    *count = get_u32(ids);
    uint32_t n = base ? get_u32(base) : 0;
    const uint8_t *shared = base ? get_bytes(base, 2 * (size_t)n) : NULL;
    if (*count != SAME)
        return get_bytes(ids, 2 * (size_t)*count);
    *count = n;
    return shared;
}

static void check_golden(const struct tern_tokenizer *t, const char *name, const char *base_name)
{
    struct golden texts = open_golden("texts"), ids = open_golden(name), base = {0};
    if (base_name) {
        base = open_golden(base_name);
        get_u32(&base);
    }
    assert_int_equal(get_u32(&texts), COUNT);
    assert_int_equal(get_u32(&ids), COUNT);
    int wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        uint32_t size = get_u32(&texts), expected_count;
        const char *text = (const char *)get_bytes(&texts, size);
        const uint8_t *expected = get_ids(&ids, base_name ? &base : NULL, &expected_count);
        int32_t *found;
        int64_t count;
        assert_int_equal(tern_tokenize_text(t, text, size, &found, &count), TERN_OK);
        bool same = count == expected_count;
        for (int64_t k = 0; same && k < count; k++)
            same = found[k] == (expected[2 * k] | expected[2 * k + 1] << 8);
        if (!same && wrong++ < 5)
            print_error("%s: text %d (%u bytes, \"%.60s\"): expected %u ids, found %d\n", name, i, size, text, expected_count, (int)count);
        tern_tokenizer_free_ids(t, found);
    }
    free(texts.data);
    free(ids.data);
    free(base.data);
    assert_int_equal(wrong, 0);
}

static struct tern_tokenizer *load_data(struct tern_context *ctx, const char *name)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", TERN_TEST_DATA, name);
    struct tern_tokenizer *t = tern_tokenizer_load(ctx, path);
    if (!t)
        fail_msg("%s", tern_error(ctx));
    return t;
}

static void test_clip(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_tokenizer *t = tern_tokenizer_clip(ctx, 49407);
    assert_non_null(t);
    assert_int_equal(tern_tokenizer_vocab_size(t), 49408);
    assert_int_equal(tern_tokenizer_max_length(t), 77);
    assert_int_equal(tern_tokenizer_begin_id(t), 49406);
    assert_int_equal(tern_tokenizer_end_id(t), 49407);
    assert_int_equal(tern_tokenizer_pad_id(t), 49407);
    check_golden(t, "clip.ids", NULL);
    tern_tokenizer_destroy(&t);
    assert_null(t);
    tern_context_destroy(&ctx);
}

static void test_clip_pad_exclamation(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_tokenizer *t = tern_tokenizer_clip(ctx, 0);
    assert_non_null(t);
    assert_int_equal(tern_tokenizer_pad_id(t), 0);
    check_golden(t, "clip-pad-exclamation.ids", "clip.ids");
    tern_tokenizer_destroy(&t);
    tern_context_destroy(&ctx);
}

static void test_bert(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    static const char *const names[] = {"bert-zh", "bert-wide"};
    for (int i = 0; i < 2; i++) {
        char folder[64], ids[64];
        snprintf(folder, sizeof(folder), "tokenizers/%s", names[i]);
        snprintf(ids, sizeof(ids), "%s.ids", names[i]);
        struct tern_tokenizer *t = load_data(ctx, folder);
        assert_int_equal(tern_tokenizer_max_length(t), 512);
        assert_int_equal(tern_tokenizer_begin_id(t), 2);
        assert_int_equal(tern_tokenizer_end_id(t), 3);
        assert_int_equal(tern_tokenizer_pad_id(t), 0);
        check_golden(t, ids, NULL);
        tern_tokenizer_destroy(&t);
    }
    tern_context_destroy(&ctx);
}

/* Every code point is in a class exactly when the golden's ranges have it. */
static void check_class(const json_t *golden, const char *key, enum tern_cp_class c)
{
    const json_t *ranges = json_object_get(golden, key);
    size_t row = 0;
    assert_true(json_array_size(ranges) > 0);
    for (int32_t cp = 1; cp < 0x110000; cp++) {
        const json_t *r = json_array_get(ranges, row);
        if (r && cp > json_integer_value(json_array_get(r, 1)))
            r = json_array_get(ranges, ++row);
        bool expected = r && cp >= json_integer_value(json_array_get(r, 0));
        if ((cp < 0xd800 || cp > 0xdfff) && tern_cp_is(c, cp) != expected)
            fail_msg("%s: U+%04X: expected %d", key, (unsigned)cp, expected);
    }
}

static void check_lower(const json_t *rows, struct tern_context *ctx)
{
    struct tern_ints found = {.ctx = ctx};
    size_t row = 0;
    for (int32_t cp = 1; cp < 0x110000; cp++) {
        const json_t *r = json_array_get(rows, row);
        bool changes = r && json_integer_value(json_array_get(r, 0)) == cp;
        found.count = 0;
        assert_true(tern_cp_lower(cp, &found));
        size_t n = changes ? json_array_size(r) - 1 : 1;
        assert_int_equal(found.count, n);
        for (size_t i = 0; i < n; i++)
            if (found.at[i] != (changes ? json_integer_value(json_array_get(r, i + 1)) : cp))
                fail_msg("lower case of U+%04X: found U+%04X", (unsigned)cp, (unsigned)found.at[i]);
        row += changes;
    }
    assert_int_equal(row, json_array_size(rows));
    tern_ints_free(&found);
}

static void test_classes(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    json_t *golden = support_json("tokenizers/unicode.json");
    check_class(golden, "clip.letter", TERN_CP_LETTER);
    check_class(golden, "clip.number", TERN_CP_NUMBER);
    check_class(golden, "clip.space", TERN_CP_SPACE);
    check_class(golden, "bert.removed", TERN_CP_DROPPED);
    check_class(golden, "bert.accent", TERN_CP_MARK);
    check_class(golden, "bert.punctuation", TERN_CP_PUNCTUATION);
    check_lower(json_object_get(golden, "lower"), ctx);
    json_decref(golden);
    tern_context_destroy(&ctx);
}

static void expect_ids(const struct tern_tokenizer *t, const char *text, const int32_t *expected, int64_t n)
{
    int32_t *ids;
    int64_t count;
    assert_int_equal(tern_tokenize(t, text, &ids, &count), TERN_OK);
    assert_int_equal(count, n);
    assert_memory_equal(ids, expected, (size_t)n * sizeof(*ids));
    tern_tokenizer_free_ids(t, ids);
}
#define EXPECT(t, text, ...) expect_ids(t, text, (int32_t[]){__VA_ARGS__}, sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* Ids that the literature prints for the released model, and the markers in a text. */
static void test_known_ids(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    struct tern_tokenizer *sd1 = tern_tokenizer_clip(ctx, 49407), *sd2 = tern_tokenizer_clip(ctx, 0);
    assert_true(sd1 && sd2);
    EXPECT(sd1, "", 49406, 49407);
    EXPECT(sd1, "a photo of a cat", 49406, 320, 1125, 539, 320, 2368, 49407);
    EXPECT(sd1, "!", 49406, 256, 49407);
    EXPECT(sd2, "!", 49406, 0, 49407);
    EXPECT(sd1, "<|StartOfText|><|endoftext|>", 49406, 49406, 49407, 49407);
    EXPECT(sd2, "<|ENDOFTEXT|>", 49406, 49407, 49407);
    tern_tokenizer_destroy(&sd1);
    tern_tokenizer_destroy(&sd2);
    tern_context_destroy(&ctx);
}

static void test_padded(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    for (int pad = 0; pad <= 49407; pad += 49407) {
        struct tern_tokenizer *t = tern_tokenizer_clip(ctx, pad);
        char text[512] = "";
        int64_t out[78];
        out[77] = -1;
        /* 75 times "a" fill the 77 places exactly, 76 are too many */
        for (int n = 0; n < 200; n++) {
            assert_int_equal(tern_tokenize_padded(t, text, out), TERN_OK);
            int words = n < 75 ? n : 75;
            for (int i = 0; i < 77; i++)
                assert_int_equal(out[i], i == 0 ? 49406 : i <= words ? 320 : i == words + 1 ? 49407 : pad);
            assert_int_equal(out[77], -1);
            strcat(text, "a ");
        }
        tern_tokenizer_destroy(&t);
    }
    tern_context_destroy(&ctx);
}

static void test_invalid_utf8(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int offset;
    } cases[] = {
        {"\x80", 0},                     /* continuation first */
        {"ab\xc0\x80", 2},               /* overlong NUL */
        {"\xc1\xbf", 0},                 /* overlong */
        {"a\xe0\x9f\xbf", 1},            /* overlong, three bytes */
        {"\xf0\x8f\xbf\xbf", 0},         /* overlong, four bytes */
        {"caf\xc3\xa9 \xed\xa0\x80", 6}, /* surrogate */
        {"\xed\xbf\xbf", 0},             /* surrogate */
        {"\xf4\x90\x80\x80", 0},         /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"abc\xff", 3},
        {"a\xc3", 1}, /* cut off */
        {"a\xe4\xb8", 1},
        {"a\xf0\x9f\x90", 1},
        {"\xe4\xb8"
         "a",
         0},
    };
    struct tern_context *ctx = support_context();
    struct tern_tokenizer *t = tern_tokenizer_clip(ctx, 49407);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char part[32];
        int32_t *ids = (int32_t *)1;
        int64_t count = 7, padded[77];
        snprintf(part, sizeof(part), "at byte %d ", cases[i].offset);
        assert_int_equal(tern_tokenize(t, cases[i].text, &ids, &count), TERN_E_INVALID);
        assert_null(ids);
        assert_int_equal(count, 0);
        support_error(ctx, TERN_E_INVALID, part);
        assert_int_equal(tern_tokenize_padded(t, cases[i].text, padded), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, part);
    }
    /* a size that cuts a character in two, whatever lies behind */
    for (size_t size = 2; size < 5; size++) {
        int32_t *ids;
        int64_t count;
        assert_int_equal(tern_tokenize_text(t, "a\xf0\x9f\x90\x88", size, &ids, &count), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "at byte 1 ");
    }
    tern_tokenizer_destroy(&t);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clip),         cmocka_unit_test(test_clip_pad_exclamation),
        cmocka_unit_test(test_bert),         cmocka_unit_test(test_classes),
        cmocka_unit_test(test_known_ids),    cmocka_unit_test(test_padded),
        cmocka_unit_test(test_invalid_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
