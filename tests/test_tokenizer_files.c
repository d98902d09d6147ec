/* Tokenizer folders: every set of files that is read, and damaged ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/tokenizer.h>

#include "models/tokenizers/tokenizer.h"
#include "support.h"
#include "tokenizer_help.h"

static void copy_sd1(void)
{
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json"};
    empty_folder();
    for (int i = 0; i < 4; i++)
        copy_data(SD1, names[i]);
}

/* The padded ids of the golden prompts of one model. */
static void check_prompts(const struct tern_tokenizer *t, const char *model)
{
    json_t *prompts = support_json("pipelines/prompts.json"), *p;
    size_t i;
    int checked = 0;
    json_array_foreach(prompts, i, p) {
        const json_t *ids = json_object_get(p, "ids");
        if (strcmp(json_string_value(json_object_get(p, "model")), model))
            continue;
        int64_t out[64] = {0};
        assert_int_equal(tern_tokenizer_max_length(t), json_array_size(ids));
        assert_true(json_array_size(ids) <= 64);
        assert_int_equal(tern_tokenize_padded(t, json_string_value(json_object_get(p, "text")), out), TERN_OK);
        for (size_t k = 0; k < json_array_size(ids); k++)
            assert_int_equal(out[k], json_integer_value(json_array_get(ids, k)));
        checked++;
    }
    assert_true(checked >= 3);
    json_decref(prompts);
}

static void test_model_folders(void **state)
{
    (void)state;
    static const char *const models[] = {"sd1", "sd1-heads"};
    struct tern_context *ctx = support_context();
    for (int i = 0; i < 2; i++) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/models/%s/tokenizer", TERN_TEST_DATA, models[i]);
        struct tern_tokenizer *t = tern_tokenizer_load(ctx, path);
        if (!t)
            fail_msg("%s", tern_error(ctx));
        check_prompts(t, models[i]);
        tern_tokenizer_destroy(&t);
    }
    tern_context_destroy(&ctx);
}

/* vocab.json and merges.txt of sd1 as tokenizer.json: merges as "a b" or as ["a", "b"]. */
static json_t *whole_clip(bool pairs)
{
    json_t *vocab = support_json(SD1 "vocab.json"), *merges = json_array();
    size_t size;
    char *text = read_data(SD1, "merges.txt", &size), *next = strchr(text, '\n') + 1;
    for (char *line = next; *line; line = next) {
        char *end = strchr(line, '\n'), *blank = strchr(line, ' ');
        json_array_append_new(merges, pairs ? json_pack("[s%s%]", line, (size_t)(blank - line), blank + 1, (size_t)(end - blank - 1))
                                            : json_stringn(line, (size_t)(end - line)));
        next = end + 1;
    }
    free(text);
    return json_pack("{s:s, s:[], s:{s:s, s:s, s:o, s:o}}", "version", "1.0", "added_tokens", "model", "type", "BPE", "end_of_word_suffix",
                     "</w>", "vocab", vocab, "merges", merges);
}

static void write_json(const char *name, json_t *o)
{
    char path[1024];
    path_of(name, path);
    assert_int_equal(json_dump_file(o, path, 0), 0);
    json_decref(o);
}

static void test_tokenizer_json(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    for (int pairs = 0; pairs < 2; pairs++) {
        empty_folder();
        copy_data(SD1, "tokenizer_config.json");
        copy_data(SD1, "special_tokens_map.json");
        write_json("tokenizer.json", whole_clip(pairs));
        struct tern_tokenizer *t = tern_tokenizer_load(ctx, folder);
        if (!t)
            fail_msg("%s", tern_error(ctx));
        check_prompts(t, "sd1");
        tern_tokenizer_destroy(&t);
    }
    tern_context_destroy(&ctx);
}

/* One file of the sd1 folder (bert: of an otherwise empty folder) replaced by something wrong. */
static const struct damage {
    const char *file, *text;
    enum tern_status status;
    const char *message;
} damages[] = {
    {"vocab.json", "", TERN_E_FORMAT, "vocab.json: not valid JSON"},
    {"vocab.json", "[]", TERN_E_FORMAT, "vocab.json: expected an object"},
    {"vocab.json", "{}", TERN_E_FORMAT, "vocab.json: expected an object of pieces and ids, found none"},
    {"vocab.json", "{\"a\": 0, \"b\": \"1\"}", TERN_E_FORMAT, "\"b\": expected an id from 0 to 1"},
    {"vocab.json", "{\"a\": 0, \"b\": 1.5}", TERN_E_FORMAT, "not an integer"},
    {"vocab.json", "{\"a\": 0, \"b\": -1}", TERN_E_FORMAT, "found -1"},
    {"vocab.json", "{\"a\": 0, \"b\": 2}", TERN_E_FORMAT, "\"b\": expected an id from 0 to 1, found 2"},
    {"vocab.json", "{\"a\": 0, \"b\": 99999999999}", TERN_E_FORMAT, "found 99999999999"},
    {"vocab.json", "{\"a\": 0, \"b\": 0}", TERN_E_FORMAT, "id 0 belongs to two pieces"},
    {"vocab.json", "{\"a\": 0, \"a\": 1}", TERN_E_FORMAT, "duplicate"},
    {"vocab.json", "{\"\xff\": 0}", TERN_E_FORMAT, "vocab.json: not valid JSON"},
    {"merges.txt", "t h\nth\n", TERN_E_FORMAT, "merges.txt: merge 2: expected two pieces"},
    {"merges.txt", "#version: 0.2\n\n", TERN_E_FORMAT, "merge 1: expected two pieces"},
    {"merges.txt", "t h e\n", TERN_E_FORMAT, "found \"t h e\""},
    {"merges.txt", "foo h\n", TERN_E_FORMAT, "merge 1, \"foo\" and \"h\": the first is not in the vocabulary"},
    {"merges.txt", "t foo\n", TERN_E_FORMAT, "the second is not"},
    {"merges.txt", "t q\n", TERN_E_FORMAT, "the two together is not"},
    {"tokenizer_config.json", "{", TERN_E_FORMAT, "tokenizer_config.json: not valid JSON: line 1"},
    {"tokenizer_config.json", "3", TERN_E_FORMAT, "tokenizer_config.json: "},
    {"tokenizer_config.json", "{\"model_max_length\": \"77\"}", TERN_E_FORMAT, "\"model_max_length\": expected a finite number"},
    {"tokenizer_config.json", "{\"model_max_length\": 1}", TERN_E_FORMAT, "at least 2, found 1"},
    {"tokenizer_config.json", "{\"model_max_length\": -5}", TERN_E_FORMAT, "found -5"},
    {"tokenizer_config.json", "{\"model_max_length\": 77.5}", TERN_E_FORMAT, "found 77.5"},
    {"tokenizer_config.json", "{\"pad_token\": 3}", TERN_E_FORMAT, "\"pad_token\": expected a string or an object"},
    {"tokenizer_config.json", "{\"mask_token\": {\"content\": 3}}", TERN_E_FORMAT, "\"content\": expected a string"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": []}", TERN_E_FORMAT, "\"added_tokens_decoder\": expected an object"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"x\": {}}}", TERN_E_FORMAT, "\"x\": expected an id"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"a\"}}}", TERN_E_FORMAT, "found -1"},
    {"tokenizer_config.json", "{\"added_tokens_decoder\": {\"1\": {\"content\": \"a\", \"special\": 1}}}", TERN_E_FORMAT, "\"special\""},
    {"special_tokens_map.json", "{\"bos_token\": \"\"}", TERN_E_FORMAT, "\"bos_token\": expected a text"},
    {"special_tokens_map.json", "{\"eos_token\": []}", TERN_E_FORMAT, "\"eos_token\": expected a string or an object"},
    {"special_tokens_map.json", "{\"additional_special_tokens\": [1]}", TERN_E_FORMAT, "\"additional_special_tokens\": expected a string"},
    {"added_tokens.json", "{\"x\": \"664\"}", TERN_E_FORMAT, "\"x\": expected an id"},
    {"added_tokens.json", "{\"x\": 99999999}", TERN_E_FORMAT, "found 99999999"},
    {"tokenizer.json", "{}", TERN_E_FORMAT, "\"model\": expected an object"},
    {"tokenizer.json", "{\"model\": {\"type\": 1}}", TERN_E_FORMAT, "\"type\": expected a string"},
    {"tokenizer.json", "{\"model\": {\"type\": \"Unigram\"}}", TERN_E_UNSUPPORTED, "type \"Unigram\""},
    {"tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"end_of_word_suffix\": \"\"}}", TERN_E_UNSUPPORTED, "expected \"</w>"},
    {"tokenizer.json", "{\"model\": {\"type\": \"WordPiece\", \"vocab\": []}}", TERN_E_FORMAT, "expected an object of pieces"},
    {"tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", TERN_E_FORMAT, "\"merges\": expected an array"},
    {"tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", TERN_E_FORMAT,
     "merge 1: expected"},
};

static void test_damaged(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    size_t used = tern_memory_used(ctx);
    for (size_t i = 0; i < sizeof(damages) / sizeof(*damages); i++) {
        copy_sd1();
        write_text(damages[i].file, damages[i].text);
        assert_null(tern_tokenizer_load(ctx, folder));
        support_error(ctx, damages[i].status, damages[i].message);
        assert_int_equal(tern_memory_used(ctx), used);
    }
    tern_context_destroy(&ctx);
}

static void test_missing(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    char path[1024];
    empty_folder();
    assert_null(tern_tokenizer_load(ctx, folder));
    support_error(ctx, TERN_E_NOT_FOUND, "expected vocab.json and merges.txt (CLIP), vocab.txt (BERT) or tokenizer.json");
    path_of("no-such-folder", path);
    assert_null(tern_tokenizer_load(ctx, path));
    support_error(ctx, TERN_E_NOT_FOUND, "no-such-folder: expected a tokenizer folder, found nothing");
    write_text("file", "");
    path_of("file", path);
    assert_null(tern_tokenizer_load(ctx, path));
    support_error(ctx, TERN_E_NOT_FOUND, "file: expected a tokenizer folder, found a file");
    copy_sd1();
    path_of("merges.txt", path);
    unlink(path);
    assert_null(tern_tokenizer_load(ctx, folder));
    support_error(ctx, TERN_E_NOT_FOUND, "merges.txt");
    empty_folder();
    write_text("vocab.txt", "");
    assert_null(tern_tokenizer_load(ctx, folder));
    support_error(ctx, TERN_E_FORMAT, "vocab.txt: expected one piece a line");
    write_text("vocab.txt", "a\nb\xff\n");
    assert_null(tern_tokenizer_load(ctx, folder));
    support_error(ctx, TERN_E_INVALID, "vocab.txt: not valid UTF-8 at byte 3");
    tern_context_destroy(&ctx);
}

/* A vocabulary without an unknown token loads, and says so when it needs one. */
static void test_no_unknown_token(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    int32_t *ids;
    int64_t count;
    empty_folder();
    write_text("vocab.txt", "[CLS]\n[SEP]\n[PAD]\na\n");
    struct tern_tokenizer *t = tern_tokenizer_load(ctx, folder);
    assert_non_null(t);
    assert_int_equal(tern_tokenize(t, "a", &ids, &count), TERN_OK);
    assert_int_equal(count, 3);
    tern_tokenizer_free_ids(t, ids);
    assert_int_equal(tern_tokenize(t, "b", &ids, &count), TERN_E_FORMAT);
    support_error(ctx, TERN_E_FORMAT, "no unknown token");
    tern_tokenizer_destroy(&t);
    empty_folder();
    write_text("vocab.json", "{\"a\": 0, \"a</w>\": 1}");
    write_text("merges.txt", "");
    t = tern_tokenizer_load(ctx, folder);
    assert_non_null(t);
    assert_int_equal(tern_tokenizer_vocab_size(t), 4);
    assert_int_equal(tern_tokenize(t, "ab", &ids, &count), TERN_E_FORMAT);
    support_error(ctx, TERN_E_FORMAT, "no piece for byte 0x62 at the end of a word");
    tern_tokenizer_destroy(&t);
    tern_context_destroy(&ctx);
}

/* Each file cut off at many places: an error with a message, or a tokenizer that works; never both, nothing lost. */
static void test_truncated(void **state)
{
    (void)state;
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json", "tokenizer.json"};
    struct tern_context *ctx = support_context();
    size_t used = tern_memory_used(ctx);
    for (int i = 0; i < 5; i++) {
        bool whole = i == 4;
        copy_sd1();
        size_t size;
        char *data = NULL;
        if (whole) {
            json_t *o = whole_clip(false);
            data = json_dumps(o, 0);
            size = strlen(data);
            json_decref(o);
        } else {
            data = read_data(SD1, names[i], &size);
        }
        size_t step = size / 97 + 1, loaded = 0;
        for (size_t n = 0; n < size - 1; n += n < 40 || n + 40 > size ? 1 : step) {
            write_bytes(names[i], data, n);
            struct tern_tokenizer *t = tern_tokenizer_load(ctx, folder);
            assert_int_equal(t == NULL, *tern_error(ctx) != 0);
            int32_t *ids = NULL;
            int64_t count;
            loaded += t != NULL;
            if (t)
                assert_int_equal(tern_tokenize(t, "a red cat", &ids, &count), TERN_OK);
            tern_tokenizer_free_ids(t, ids);
            tern_tokenizer_destroy(&t);
            tern_error_clear(ctx);
            assert_int_equal(tern_memory_used(ctx), used);
        }
        /* merges.txt is a list of lines, and whole ones may be missing; JSON is complete or not */
        assert_int_equal(loaded > 0, !strcmp(names[i], "merges.txt"));
        free(data);
    }
    tern_context_destroy(&ctx);
}

/* "!" pads and is special, the characters that were added are not: as words both are read, the one as text, the others as tokens. */
static void test_words(void **state)
{
    static const char text[] = "\xe5\xb0\x8f!\xe6\xa1\xa5";
    static const int32_t as_tokens[] = {664, 0, 665};
    int32_t *tokens, *words;
    int64_t n_tokens, n_words;
    struct tern_context *ctx = support_context();
    copy_sd1();
    write_text("special_tokens_map.json", "{\"bos_token\": \"<|startoftext|>\", \"eos_token\": \"<|endoftext|>\", \"pad_token\": \"!\", "
                                          "\"unk_token\": \"<|endoftext|>\"}");
    write_text("tokenizer_config.json", "{\"tokenizer_class\": \"CLIPTokenizer\", \"pad_token\": \"!\", \"model_max_length\": 32}");
    write_text("added_tokens.json", "{\"\xe5\xb0\x8f\": 664, \"\xe6\xa1\xa5\": 665}");
    struct tern_tokenizer *t = tern_tokenizer_load(ctx, folder);
    if (!t)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_tokenize_text(t, text, strlen(text), &tokens, &n_tokens), TERN_OK);
    assert_int_equal(tern_tokenize_words(t, text, strlen(text), &words, &n_words), TERN_OK);
    assert_int_equal(n_tokens, 5);
    assert_int_equal(n_words, 5);
    assert_memory_equal(tokens + 1, as_tokens, sizeof(as_tokens));
    assert_true(words[1] == 664 && words[3] == 665);
    assert_true(words[2] != 0 && words[2] < 664); /* "!" is a word, whose token is another */
    tern_tokenizer_free_ids(t, tokens);
    tern_tokenizer_free_ids(t, words);
    tern_tokenizer_destroy(&t);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_folders), cmocka_unit_test(test_tokenizer_json),   cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_missing),       cmocka_unit_test(test_no_unknown_token), cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
