/* The command tern on bad input: outputs that cannot be written, pictures and models that are none or are damaged, limits. */
#include "cli.h"

#define NO_TOKENIZER TERN_TEST_DATA "/formats/mini"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tern/context.h>
#include <tern/image.h>

static void test_output_that_cannot_be_written(void **state)
{
    static const struct {
        const char *line, *word;
    } cases[] = {
        {"txt2img " MODEL " -p x -o absent/out.png", "absent/out.png"},
        {"txt2img " MODEL " -p x -o folder.png", "folder"},
        {"txt2img " MODEL " -p x -b 3 -o absent/out.png", "absent/out-1.png"},
        {"txt2img " MODEL " -p x -o /proc/out.png", "/proc/out.png"},
        {"txt2img " MODEL " -p x --save-latents absent/l.safetensors", "absent/l.safetensors"},
        {"exec " MODEL " unet --inputs in.safetensors --outputs absent/o.safetensors", "absent/o.safetensors"},
    };
    struct state *s = *state;
    assert_int_equal(mkdir("folder.png", 0700), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        EXPECT(s, cli_run_line(s, cases[i].line), 1);
        expect_text(s->err, cases[i].word, cases[i].line);
        assert_null(strstr(s->err, "seed ")); /* found before anything began */
        assert_int_equal(files("."), 1);
        assert_int_equal(files("folder.png"), 0);
    }
    char name[300];
    memset(name, 'n', sizeof(name));
    strcpy(name + sizeof(name) - 5, ".png");
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "-o", name), 1);
    expect_text(s->err, "too long", "a long name");
}

static void test_input_pictures_that_are_none(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "img2img", "absent.png", MODEL, "-p", "x"), 1);
    expect_text(s->err, "absent.png", "img2img");
    write_file("text.png", "no picture", 10);
    EXPECT(s, RUN(s, "img2img", "text.png", MODEL, "-p", "x"), 1);
    expect_text(s->err, "text.png", "img2img");
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--init-image", "text.png"), 1);
    EXPECT(s, RUN(s, "inpaint", TERN_TEST_DATA "/images/webp-lossless.webp", "text.png", MODEL, "-p", "x"), 1);
    expect_text(s->err, "text.png", "inpaint");
    EXPECT(s, RUN(s, "info", "text.png"), 1);
    assert_int_equal(files("."), 1);
}

static void test_sizes_that_do_not_follow_from_the_picture(void **state)
{
    struct state *s = *state;
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_image *big = tern_image_create(ctx, 2000, 1200, NULL), *thin = tern_image_create(ctx, 7, 64, NULL);
    assert_int_equal(tern_image_save(big, "big.png"), TERN_OK);
    assert_int_equal(tern_image_save(thin, "thin.png"), TERN_OK);
    tern_image_destroy(&big);
    tern_image_destroy(&thin);
    tern_context_destroy(&ctx);
    EXPECT(s, RUN(s, "img2img", "big.png", MODEL, "-p", "x"), 2);
    expect_text(s->err, "2000 x 1200", "big.png");
    expect_text(s->err, "-W", "big.png");
    EXPECT(s, RUN(s, "img2img", "thin.png", MODEL, "-p", "x"), 2);
    expect_text(s->err, "7 x 64", "thin.png");
    assert_int_equal(files("."), 2);
}

static void test_models_that_are_none(void **state)
{
    struct state *s = *state;
    assert_int_equal(mkdir("folder", 0700), 0);
    assert_int_equal(mkdir("listed", 0700), 0);
    write_file("empty.safetensors", "", 0);
    write_file("junk.safetensors", "\xff\xff\xff\xff\xff\xff\xff\x7fjunk", 12);
    write_file("text.ckpt", "hello, world, this is no checkpoint at all", 42);
    write_file("listed/model_index.json", "{\"_class_name\": 5}", 18);
    static const char *const models[] = {"absent",           "absent.safetensors", "folder", "listed", "empty.safetensors",
                                         "junk.safetensors", "text.ckpt"};
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        EXPECT(s, RUN(s, "txt2img", models[i], "-p", "x"), 1);
        expect_text(s->err, models[i], models[i]);
        EXPECT(s, RUN(s, "info", models[i]), 1);
        expect_text(s->err, models[i], models[i]);
        EXPECT(s, RUN(s, "tokenize", models[i], "text"), 1);
        expect_text(s->err, models[i], models[i]);
    }
    assert_int_equal(files("."), 5);
}

static void copy_model(const char *to)
{
    char command[512];
    snprintf(command, sizeof(command), "rm -rf %s && cp -r %s %s && chmod -R u+w %s", to, MODEL, to, to);
    assert_int_equal(system(command), 0);
}

/* What a model says of itself is no command to the terminal. */
static void test_what_info_quotes(void **state)
{
    struct state *s = *state;
    copy_model("m");
    json_t *index = json_load_file("m/model_index.json", 0, NULL);
    assert_int_equal(json_object_set_new(index, "_class_name", json_string("StableDiffusion\x1b]0;title\x07\xc2\x9b")), 0);
    assert_int_equal(json_dump_file(index, "m/model_index.json", 0), 0);
    json_decref(index);
    EXPECT(s, RUN(s, "info", "m"), 0);
    expect_text(s->out, "\nStableDiffusion ]0;title   , diffusers folder\n", "info");
    EXPECT(s, RUN(s, "info", "m", "--json"), 0);
    expect_text(s->out, "\\u001B]0;title\\u0007", "json");
}

static void test_models_with_damage(void **state)
{
    struct state *s = *state;
    copy_model("m");
    const char *weights = "m/unet/diffusion_pytorch_model.safetensors";
    size_t size = file_size(weights);
    assert_true(size > 1000);
    assert_int_equal(truncate(weights, (off_t)size - 1), 0);
    EXPECT(s, RUN(s, "txt2img", "m", "-p", "x"), 1);
    expect_text(s->err, weights, "truncated");
    unlink(weights);
    EXPECT(s, RUN(s, "txt2img", "m", "-p", "x"), 1);
    expect_text(s->err, "unet", "no weights");

    copy_model("m");
    write_file("m/unet/config.json", "{\"in_channels\": \"four\"}", 23);
    EXPECT(s, RUN(s, "txt2img", "m", "-p", "x"), 1);
    expect_text(s->err, "in_channels", "wrong type");
    write_file("m/unet/config.json", "{\"in_channels\": 4", 17);
    EXPECT(s, RUN(s, "txt2img", "m", "-p", "x"), 1);
    expect_text(s->err, "config.json", "no JSON");
    assert_int_equal(files("."), 1);
}

static void test_texts_and_limits_that_the_model_refuses(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "a\xff"), 2);
    expect_text(s->err, "UTF-8", "prompt");
    EXPECT(s, RUN(s, "tokenize", NO_TOKENIZER, "a"), 1); /* the model's defect, not the user's */
    EXPECT(s, RUN(s, "quantize", NO_TOKENIZER, "-p", "a", "-o", "r.json"), 1);
    EXPECT(s, RUN(s, "tokenize", MODEL, "a\xff"), 2);
    expect_text(s->err, "UTF-8", "tokenize");
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--sampler", "ddim", "--schedule", "karras"), 2);
    expect_text(s->err, "karras", "ddim");
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--budget", "1MiB"), 1);
    expect_text(s->err, "budget", "1 MiB");
    assert_null(strstr(s->err, "sample"));
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--init-latents", "absent.safetensors"), 1);
    expect_text(s->err, "absent.safetensors", "init-latents");
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", "x", "--init-latents", MODEL "/vae/diffusion_pytorch_model.safetensors"), 1);
    expect_text(s->err, "\"latents\"", "init-latents");
    assert_int_equal(files("."), 0);
}

int cli_input_tests(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_output_that_cannot_be_written),
        TEST(test_input_pictures_that_are_none),
        TEST(test_sizes_that_do_not_follow_from_the_picture),
        TEST(test_models_that_are_none),
        TEST(test_what_info_quotes),
        TEST(test_models_with_damage),
        TEST(test_texts_and_limits_that_the_model_refuses),
    };
    return cmocka_run_group_tests_name("cli input", tests, cli_setup, cli_teardown);
}
