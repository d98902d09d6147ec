/* <lora:name:scale> in a prompt: which files and scales the tags mean, and that they count like LoRAs that are set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "job_cases.h"
#include "model_help.h"
#include "support.h"

#define FOLDER TERN_TEST_DATA "/lora"

static const struct {
    const char *prompt, *text, *file; /* file NULL: no tag */
    double scale, text_encoder, unet; /* the last two when they differ */
} tags[] = {
    {"a cat <lora:a:0.7>", "a cat ", "/a.safetensors", 0.7, 0, 0},
    {"<lora:a>a cat", "a cat", "/a.safetensors", 1, 0, 0},
    {"a <lora:a-old:-1.5e0> cat", "a  cat", "/a-old.bin", -1.5, 0, 0},
    {"<lora:conv:.5:0.25>", "", "/conv.safetensors", 1, 0.5, 0.25},
    {"<lora:conv:te=0.5:unet=2>", "", "/conv.safetensors", 1, 0.5, 2},
    {"<lora:conv:unet=2>", "", "/conv.safetensors", 1, 1, 2},
    {"<lora:conv:te=0.5>", "", "/conv.safetensors", 0.5, 0, 0}, /* the order of modules/extra_networks_lora.py: places, then names */
    {"<lora:conv:te=0.5:3>", "", "/conv.safetensors", 0.5, 0, 0},
    {"<lora:conv:te=0.5:3:4>", "", "/conv.safetensors", 1, 0.5, 4},
    {"<lora:conv:unet=2:0.5>", "", "/conv.safetensors", 1, 0.5, 2},
    {"<lora:conv:unet=2:0.5:1>", "", "/conv.safetensors", 1, 0.5, 2},
    {"<lora:conv:0.5:te=2>", "", "/conv.safetensors", 2, 0, 0},
    {"<lora:conv:0.5:1:te=2:te=3>", "", "/conv.safetensors", 1, 3, 1},
    {"<lora:conv:3:3>", "", "/conv.safetensors", 3, 0, 0},
    {"<lora:a: 0.7 >", "", "/a.safetensors", 0.7, 0, 0}, /* what Python's float() reads */
    {"<lora:conv: .5\t:\u00a00.25>", "", "/conv.safetensors", 1, 0.5, 0.25},
    {"<lora:conv:unet= 2>", "", "/conv.safetensors", 1, 1, 2},
    {"a < b, <>, <:>, <a>, <lora:>, <lora", "a < b, <>, <:>, <a>, <lora:>, <lora", NULL, 0, 0, 0},
    {"", "", NULL, 0, 0, 0},
};

static void tags_name_files(void **state)
{
    for (size_t i = 0; i < sizeof(tags) / sizeof(*tags); i++) {
        struct tern_prompt_loras l;
        if (tern_prompt_take_loras(*state, tags[i].prompt, FOLDER, &l))
            fail_msg("%s", tern_error(*state));
        assert_string_equal(l.prompt, tags[i].text);
        assert_int_equal(l.count, tags[i].file != NULL);
        if (l.count) {
            const struct tern_lora *a = &l.loras[0];
            assert_string_equal(a->path + strlen(FOLDER), tags[i].file);
            assert_true(a->scale == tags[i].scale);
            assert_int_equal(a->n_blocks, tags[i].text_encoder != tags[i].unet ? 2 : 0);
            if (a->n_blocks)
                assert_true(!strcmp(a->blocks[0].block, "text_encoders") && a->blocks[0].scale == tags[i].text_encoder &&
                            !strcmp(a->blocks[1].block, "unet") && a->blocks[1].scale == tags[i].unet);
        }
        tern_prompt_loras_free(*state, &l);
    }
}

static void odd_tags_are_refused(void **state)
{
    static const struct {
        const char *prompt;
        enum tern_status status;
        const char *part;
    } rows[] = {
        {"<lora:absent:1>", TERN_E_NOT_FOUND, "<lora:absent>: " FOLDER " has no file of that name"},
        {"<lora:../lora/a:1>", TERN_E_NOT_FOUND, "has no file of that name"},
        {"<lora:a:x>", TERN_E_INVALID, "<lora:...:x>: expected a number"},
        {"<lora:a:1-2>", TERN_E_INVALID, "expected a number"},
        {"<lora:a:nan>", TERN_E_INVALID, "expected a number"},
        {"<lora:a:1e999>", TERN_E_INVALID, "expected a number"},
        {"<lora:a:>", TERN_E_INVALID, "expected a number"},
        {"<lora:a: >", TERN_E_INVALID, "expected a number"},
        {"<lora:a:1 2>", TERN_E_INVALID, "expected a number"},
        {"<lora:a:1:1:dyn=4>", TERN_E_UNSUPPORTED, "<lora:...:dyn>: expected at most two scales"},
        {"<lora:a:1:1:1>", TERN_E_UNSUPPORTED, "expected at most two scales"},
        {"a <hypernet:x:1>", TERN_E_UNSUPPORTED, "<hypernet:...>: only tags of LoRAs are known"},
        {"\xff<lora:a:1>", TERN_E_INVALID, "prompt"},
    };
    struct tern_prompt_loras l;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(tern_prompt_take_loras(*state, rows[i].prompt, FOLDER, &l), rows[i].status);
        support_error(*state, rows[i].status, rows[i].part);
        assert_null(l.prompt);
    }
    char many[33 * 8 + 1] = "";
    for (int i = 0; i < 33; i++)
        strcat(many, "<lora:a>");
    assert_int_equal(tern_prompt_take_loras(*state, many, FOLDER, &l), TERN_E_INVALID);
    support_error(*state, TERN_E_INVALID, "more than 32 tags");
    char *open = malloc(60001);
    assert_non_null(open);
    for (int i = 0; i < 20000; i++)
        memcpy(open + 3 * i, "<a:", 4);
    assert_int_equal(tern_prompt_take_loras(*state, open, FOLDER, &l), TERN_OK); /* never closed: text */
    assert_string_equal(l.prompt, open);
    tern_prompt_loras_free(*state, &l);
    free(open);
}

/* A job has nothing to do with tags: what is left in a prompt is refused by name, not painted. */
static void tags_count_like_loras(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_prompt_loras l;
    struct tern_txt2img_params q = {
        .prompt = "a cat <lora:a:0.7>", .width = 48, .height = 40, .steps = 2, .seed = 3, .prompt_syntax = TERN_PROMPT_A1111};
    assert_null(tern_generate(p, &q));
    support_error(ctx, TERN_E_INVALID, "prompt: \"<lora:a:0.7>\" is a tag and no text");
    assert_int_equal(tern_prompt_take_loras(ctx, q.prompt, FOLDER, &l), TERN_OK);
    assert_int_equal(tern_pipeline_set_loras(p, l.loras, l.count), TERN_OK);
    q.prompt = l.prompt;
    struct tern_images *tagged = job_run(ctx, p, &q);
    assert_non_null(strstr(tern_image_text(tern_images_at(tagged, 0), "parameters"), "a cat  <lora:a:0.7>\nSteps"));
    assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = FOLDER "/a.safetensors", .scale = 0.7}, 1), TERN_OK);
    q.prompt = "a cat";
    struct tern_images *set = job_run(ctx, p, &q);
    assert_true(job_same(tagged, 0, set));
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
    q.negative_prompt = "<lora:a:1>";
    assert_null(tern_generate(p, &q));
    support_error(ctx, TERN_E_INVALID, "negative prompt: \"<lora:a:1>\" is a tag");
    q.prompt_syntax = TERN_PROMPT_PLAIN; /* text, as ever */
    struct tern_images *plain = job_run(ctx, p, &q);
    assert_false(job_same(plain, 0, set));
    tern_images_destroy(&plain);
    tern_images_destroy(&tagged);
    tern_images_destroy(&set);
    tern_prompt_loras_free(ctx, &l);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tags_name_files), cmocka_unit_test(odd_tags_are_refused),
                                       cmocka_unit_test(tags_count_like_loras)};
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
