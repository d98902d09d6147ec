/* The command tern and what prompts may say: syntax, emphasis, clip skip, textual inversions, tags of LoRAs. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

#define SMALL "-W", "48", "-H", "40", "--steps", "2", "--seed", "3", "-q"
#define LORAS TERN_TEST_DATA "/lora"
#define WORD TERN_TEST_DATA "/prompts/learned.bin"

static void test_prompts_are_read_as_asked(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a (cat:1.4)", "--save-latents", "plain", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a (cat:1.4)", "--prompt-syntax", "plain", "--save-latents", "again", "-o", "b.png"),
           0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a (cat:1.4)", "--prompt-syntax", "a1111", "--save-latents", "read", "-o", "c.png"), 0);
    EXPECT(s,
           RUN(s, "txt2img", MODEL, SMALL, "-p", "a (cat:1.4)", "--prompt-syntax", "a1111", "--emphasis", "no-norm", "--clip-skip", "2",
               "--save-latents", "other", "-o", "d.png"),
           0);
    assert_true(same_bytes("plain", "again"));
    assert_false(same_bytes("plain", "read"));
    assert_false(same_bytes("read", "other"));
    EXPECT(s, RUN(s, "info", "d.png"), 0);
    expect_text(s->out, "a (cat:1.4)\nSteps: 2,", "info");
    expect_text(s->out, "Clip skip: 2, RNG: CPU, Emphasis: No norm, Version", "info");
}

static void test_words_and_tags_name_files(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a <cat-toy>", "--save-latents", "text", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a <cat-toy>", "--embedding", WORD, "--save-latents", "own", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a toy", "--embedding", WORD ":toy", "--save-latents", "given", "-o", "a.png"), 0);
    assert_false(same_bytes("text", "own"));
    assert_true(same_bytes("own", "given"));
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "a cat", "--lora", LORAS "/a.safetensors:0.7", "--save-latents", "set", "-o", "a.png"),
           0);
    EXPECT(s,
           RUN(s, "txt2img", MODEL, SMALL, "-p", "a cat<lora:a:0.7>", "--prompt-syntax", "a1111", "--lora-dir", LORAS, "--save-latents",
               "tagged", "-o", "b.png"),
           0);
    assert_true(same_bytes("set", "tagged"));
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "a cat <lora:a:0.7>\nSteps: 2,", "info");
}

/* A second pass has the LoRAs of the first: the same tags in its prompt change nothing, others are told. */
static void test_tags_of_a_second_prompt(void **state)
{
    static const struct {
        const char *prompt, *message;
    } rows[] = {
        {"a dog", ""},
        {"a dog<lora:a:0.7>", ""},
        {"<lora:a:0.5>a dog", "warning: hires prompt: what is not followed of it: its LoRAs"},
        {"a dog<lora:a:0.7><lora:conv:1>", "warning: hires prompt: what is not followed of it: its LoRAs"},
    };
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        EXPECT(s,
               RUN(s, "txt2img", MODEL, SMALL, "-p", "a cat<lora:a:0.7>", "--prompt-syntax", "a1111", "--lora-dir", LORAS, "--hires", "1.2",
                   "--hires-prompt", rows[i].prompt, "--save-latents", i ? "again" : "first", "-o", "a.png"),
               0);
        expect_text(s->err, rows[i].message, rows[i].prompt);
        assert_true(*rows[i].message || !*s->err);
        assert_true(!i || same_bytes("first", "again"));
    }
    EXPECT(s,
           RUN(s, "txt2img", MODEL, SMALL, "-p", "a", "--prompt-syntax", "a1111", "--hires", "1.2", "--hires-prompt", "b<lora:a:1>", "-o",
               "a.png"),
           2);
    expect_text(s->err, "hires: prompt: \"<lora:a:1>\" is a tag and no text", "no folder");
}

static void test_wrong_options_of_prompts(void **state)
{
    static const struct {
        const char *option, *value, *more, *message;
        int code;
    } rows[] = {
        {"--prompt-syntax", "comfy", NULL, "option --prompt-syntax", 2},
        {"--emphasis", "loud", NULL, "option --emphasis", 2},
        {"--clip-skip", "0", NULL, "option --clip-skip", 2},
        {"--clip-skip", "4", NULL, "--clip-skip: expected 1..3", 2},
        {"--embedding", ":x", NULL, "option --embedding: expected FILE or FILE:NAME", 2},
        {"--embedding", WORD ":", NULL, "option --embedding: expected FILE or FILE:NAME", 2},
        {"--embedding", "absent.pt", NULL, "absent.pt", 1},
        {"--emphasis", "ignore", NULL, "works with --prompt-syntax a1111 only", 2},
        {"--lora-dir", LORAS, NULL, "works with --prompt-syntax a1111 only", 2},
        {"--lora-dir", LORAS, "--prompt-syntax=a1111", "has no file of that name", 1},
        {"--prompt-syntax", "a1111", NULL, "\"<lora:absent:1>\" is a tag and no text", 2},
    };
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "x <lora:absent:1>", rows[i].option, rows[i].value, rows[i].more), rows[i].code);
        expect_text(s->err, rows[i].message, rows[i].option);
        assert_int_equal(files("."), 0);
    }
}

/* A tag in a plain prompt is text, which is warned of: not with -q, not where the tag counts, nor of the text of a picture. */
static void test_tags_in_plain_prompts_are_told(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "-p", "x <lora:a:0.5>", "-o", "a.png"), 0);
    assert_string_equal(s->err, "");
#define LOUD "-W", "48", "-H", "40", "--steps", "1", "--seed", "3", "-o", "b.png"
    EXPECT(s, RUN(s, "txt2img", MODEL, LOUD, "-p", "x <lora:a:0.5>"), 0);
    expect_text(s->err, "warning: the prompt's \"<lora:\" is text like the rest; with --prompt-syntax a1111", "plain");
    EXPECT(s, RUN(s, "txt2img", MODEL, LOUD, "--from", "a.png", "-p", "y <lora:a:0.5>"), 0);
    expect_text(s->err, "\"<lora:\" is text", "plain by the picture");
    EXPECT(s, RUN(s, "txt2img", MODEL, LOUD, "--from", "a.png"), 0);
    assert_null(strstr(s->err, "is text"));
    EXPECT(s, RUN(s, "txt2img", MODEL, LOUD, "-p", "x <lora:a:0.5>", "--prompt-syntax", "a1111", "--lora-dir", LORAS), 0);
    assert_null(strstr(s->err, "is text"));
}

int cli_prompt_tests(void)
{
    const struct CMUnitTest tests[] = {TEST(test_prompts_are_read_as_asked), TEST(test_words_and_tags_name_files),
                                       TEST(test_tags_of_a_second_prompt), TEST(test_wrong_options_of_prompts),
                                       TEST(test_tags_in_plain_prompts_are_told)};
    return cmocka_run_group_tests_name("cli prompts", tests, cli_setup, cli_teardown);
}
