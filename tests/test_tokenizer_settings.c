/* The settings of a tokenizer folder: special and added tokens and their flags, BERT's switches. The ids are those of
 * transformers 5.23 (CLIPTokenizer, BertTokenizerFast) for the same files. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <tern/tokenizer.h>

#include "support.h"
#include "tokenizer_help.h"

/* Settings and what follows from them. NULL: no such file. */
static const struct settings {
    const char *base, *name, *config, *special, *added, *text;
    int32_t ids[32]; /* up to -1 */
    int32_t pad;
} rows[] = {
    {SD1,
     "no settings",
     "{}",
     NULL,
     NULL,
     "A<|StartOfText|> <|startoftext|><|ENDOFTEXT|> !",
     {662, 320, 27, 347, 530, 545, 83, 78,  69, 579, 87, 339, 91,  285, 662,
      27,  347, 68, 77,  67,  78,  69, 579, 87, 339, 91, 285, 256, 663, -1},
     663},
    {SD1,
     "pad token that the vocabulary lacks",
     "{\"pad_token\": \"<pad>\"}",
     NULL,
     NULL,
     "a <pad>b <PAD>",
     {662, 320, 664, 321, 283, 79, 589, 285, 663, -1},
     664},
    {SD1,
     "pad token !",
     "{\"model_max_length\": 1000000000000000019884624838656}",
     "{\"pad_token\": \"!\"}",
     NULL,
     "a! <|ENDOFTEXT|>!",
     {662, 320, 0, 27, 347, 68, 77, 67, 78, 69, 579, 87, 339, 91, 285, 0, 663, -1},
     0},
    {SD1,
     "end token in any case",
     "{}",
     "{\"eos_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true}, \"unk_token\": {\"content\": \"<|endoftext|>\", "
     "\"normalized\": true}, \"pad_token\": \"!\"}",
     NULL,
     "a <|ENDOFTEXT|> b",
     {662, 320, 663, 321, 663, -1},
     0},
    {SD1,
     "the plain pad token counts last",
     "{}",
     "{\"eos_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true}}",
     NULL,
     "a <|ENDOFTEXT|> b",
     {662, 320, 27, 347, 68, 77, 67, 78, 69, 579, 87, 339, 91, 285, 321, 663, -1},
     663},
    {SD1, "added tokens", "{}", NULL, "{\"red cat\": 664, \"Q\": 665}", "a RED CAT qQ red  cat", {662, 320, 664, 48, 48, 664, 663, -1}, 663},
    {SD1,
     "added token that is special",
     "{\"bar_token\": \"the\", \"additional_special_tokens\": [\"Cat\"]}",
     NULL,
     "{\"Cat\": 664, \"red\": 516}",
     "Red cat Cat red",
     {662, 664, 554, 665, 664, 663, -1},
     663},
    {SD1,
     "flags of added tokens",
     "{\"added_tokens_decoder\": {\"664\": {\"content\": \"cat\", \"lstrip\": true, \"rstrip\": true, \"normalized\": false, \"special\": "
     "false}, \"665\": {\"content\": \"red\", \"single_word\": true, \"normalized\": true}, \"663\": {\"content\": \"<|endoftext|>\", "
     "\"normalized\": false, \"special\": true}}}",
     "{\"pad_token\": \"!\"}",
     "{\"house\": 666}",
     "a  cat  RED redred red-cat  cat house!",
     {662, 320, 664, 665, 516, 67, 516, 323, 665, 268, 664, 664, 525, 580, 256, 663, -1},
     663},
    {SD1,
     "lists of additional tokens",
     "{\"extra_special_tokens\": [], \"additional_special_tokens\": [\"red\"]}",
     "{\"additional_special_tokens\": [\"cat\"]}",
     NULL,
     "red cat",
     {662, 664, 554, 663, -1},
     663},
    {SD1, "list of the map", "{}", "{\"additional_special_tokens\": [\"cat\", \"red\"]}", NULL, "red cat", {662, 665, 664, 663, -1}, 663},
    {SD1,
     "dictionary of extra tokens",
     "{\"extra_special_tokens\": {\"image_token\": \"cat\"}}",
     NULL,
     NULL,
     "a cat.",
     {662, 320, 664, 269, 663, -1},
     663},
    {SD1,
     "white space around a token",
     "{\"added_tokens_decoder\": {\"664\": {\"content\": \" \", \"normalized\": true, \"special\": false}, \"665\": {\"content\": \"cat\", "
     "\"lstrip\": true, \"rstrip\": true, \"normalized\": false, \"special\": false}}}",
     NULL,
     NULL,
     "a b  cat  b a",
     {662, 320, 664, 321, 665, 321, 664, 320, 663, -1},
     663},
    {SD1,
     "object of the config beside added tokens",
     "{\"pad_token\": {\"__type\": \"AddedToken\", \"content\": \"<pad>\", \"normalized\": false}}",
     NULL,
     "{\"<pad>\": 664}",
     "<PAD><pad>",
     {662, 664, 664, 663, -1},
     664},
    {SD1,
     "both lists in the config",
     "{\"extra_special_tokens\": [\"red\"], \"additional_special_tokens\": [\"cat\"]}",
     NULL,
     NULL,
     "red cat",
     {662, 664, 554, 663, -1},
     663},
    {BERT,
     "defaults",
     "{}",
     NULL,
     NULL,
     "CAF\xc3\x89 \xe4\xb8\x80\xe4\xb8\x87house[MASK][mask] \xe1\xba\x9e",
     {2, 46, 1949, 1954, 1953, 3800, 3801, 1855, 4, 38, 56, 1949, 1967, 1959, 40, 135, 3, -1},
     0},
    {BERT,
     "case kept",
     "{\"do_lower_case\": false}",
     NULL,
     NULL,
     "a red CAF\xc3\x89 caf\xc3\xa9 \xc3\x89",
     {2, 44, 1886, 1, 46, 1949, 1954, 2050, 113, 3, -1},
     0},
    {BERT,
     "accents kept",
     "{\"strip_accents\": false}",
     NULL,
     NULL,
     "CAF\xc3\x89 \xc3\xa9"
     "e\xcc\x81",
     {2, 46, 1949, 1954, 2050, 1, 3, -1},
     0},
    {BERT,
     "accents off, case kept",
     "{\"do_lower_case\": false, \"strip_accents\": true}",
     NULL,
     NULL,
     "\xc3\x89\xc3\xa9 a E",
     {2, 1, 44, 1, 3, -1},
     0},
    {BERT,
     "Chinese characters not apart",
     "{\"tokenize_chinese_chars\": false}",
     NULL,
     NULL,
     "\xe4\xb8\x80\xe4\xb8\x87 \xe4\xb8\x80"
     "a",
     {2, 1, 3800, 1949, 3, -1},
     0},
    {BERT,
     "normalized mask token",
     "{\"mask_token\": {\"__type\": \"AddedToken\", \"content\": \"[MASK]\", \"lstrip\": true, \"normalized\": true}}",
     NULL,
     NULL,
     "red [mask] [Mask]",
     {2, 1886, 4, 4, 3, -1},
     0},
    {BERT,
     "a name is special, whatever its object says, and with that not normalized",
     "{\"sep_token\": {\"__type\": \"AddedToken\", \"content\": \"[SEP]\", \"special\": false}}",
     NULL,
     NULL,
     "red [sep] [SEP]",
     {2, 1886, 38, 62, 1953, 1964, 40, 3, 3, -1},
     0},
    {SD1,
     "an object of the list without flags is not special, and with that normalized",
     "{\"additional_special_tokens\": [{\"__type\": \"AddedToken\", \"content\": \"cat\"}]}",
     NULL,
     NULL,
     "a CAT cat",
     {662, 320, 664, 664, 663, -1},
     663},
    {SD1,
     "objects of the map are special before they are compared: the pad token is not the end token again, and counts last",
     "{}",
     "{\"eos_token\": {\"content\": \"<|endoftext|>\", \"special\": false}, \"unk_token\": {\"content\": \"<|endoftext|>\", "
     "\"normalized\": false}, \"pad_token\": {\"content\": \"<|endoftext|>\", \"normalized\": true}}",
     NULL,
     "a <|ENDOFTEXT|> b",
     {662, 320, 663, 321, 663, -1},
     663},
    {SD1,
     "added token that the list has as an object",
     "{\"additional_special_tokens\": [{\"__type\": \"AddedToken\", \"content\": \"cat\", \"special\": false}]}",
     NULL,
     "{\"cat\": 664}",
     "a CAT cat",
     {662, 320, 664, 664, 663, -1},
     663},
};

static void test_settings(void **state)
{
    (void)state;
    struct tern_context *ctx = support_context();
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct settings *v = &rows[i];
        bool clip = !strcmp(v->base, SD1);
        empty_folder();
        copy_data(v->base, clip ? "vocab.json" : "vocab.txt");
        if (clip)
            copy_data(v->base, "merges.txt");
        write_text("tokenizer_config.json", v->config);
        if (v->special)
            write_text("special_tokens_map.json", v->special);
        if (v->added)
            write_text("added_tokens.json", v->added);
        struct tern_tokenizer *t = tern_tokenizer_load(ctx, folder);
        if (!t)
            fail_msg("%s: %s", v->name, tern_error(ctx));
        int32_t *ids;
        int64_t count, expected = 0;
        while (v->ids[expected] >= 0)
            expected++;
        assert_int_equal(tern_tokenize(t, v->text, &ids, &count), TERN_OK);
        if (count != expected || memcmp(ids, v->ids, (size_t)count * sizeof(*ids)))
            fail_msg("%s: other ids, %d instead of %d", v->name, (int)count, (int)expected);
        assert_int_equal(tern_tokenizer_pad_id(t), v->pad);
        assert_int_equal(tern_tokenizer_max_length(t), clip ? 77 : 512);
        tern_tokenizer_free_ids(t, ids);
        tern_tokenizer_destroy(&t);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_settings)};
    return cmocka_run_group_tests(tests, folder_setup, folder_teardown);
}
