/* The command tern and what comes from elsewhere: pictures that are repeated by their text, models that are converted. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tern/tern.h>

#include "damage.h"
#include "model_help.h"
#include "xl_help.h"

#define LORAS TERN_TEST_DATA "/lora"
#define PAINT "txt2img", MODEL, "-W", "48", "-H", "40", "--steps", "3", "--seed", "5", "-q"
#define REPEAT(s, picture, out, ...) RUN(s, "txt2img", MODEL, "--from", picture, "-o", out, "--save-latents", "again", "-q", ##__VA_ARGS__)

/* A picture with that text. */
static void write_picture(const char *path, const char *text)
{
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_image *img = tern_image_create(ctx, 8, 8, NULL);
    assert_non_null(img);
    if (text)
        assert_int_equal(tern_image_set_text(img, "parameters", text), TERN_OK);
    assert_int_equal(tern_image_save(img, path), TERN_OK);
    tern_image_destroy(&img);
    tern_context_destroy(&ctx);
}

static void test_pictures_of_each_format_are_repeated(void **state)
{
    static const char *const names[] = {"a.png", "a.jpg", "a.webp"};
    struct state *s = *state;
    for (int i = 0; i < 3; i++) {
        EXPECT(s,
               RUN(s, PAINT, "-p", "ein K\xc3\xa4tzchen, \xe7\x8c\xab (x:1.2)", "-n", "b,\nSteps: 1", "--sampler", "DPM++ 2M Karras",
                   "--cfg", "3.25", "--save-latents", "first", "-o", names[i]),
               0);
        EXPECT(s, REPEAT(s, names[i], i ? (i == 1 ? "b.jpg" : "b.webp") : "b.png"), 0);
        assert_true(same_bytes("first", "again"));
        assert_true(same_bytes(names[i], i ? (i == 1 ? "b.jpg" : "b.webp") : "b.png"));
        assert_string_equal(s->err, "");
    }
}

static void test_syntax_and_loras_are_repeated(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, PAINT, "-p", "a (cat:1.4)", "--prompt-syntax", "a1111", "--save-latents", "first", "-o", "a.png"), 0);
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    assert_true(same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--prompt-syntax", "plain"), 0);
    assert_false(same_bytes("first", "again"));
    EXPECT(s, RUN(s, PAINT, "-p", "a <cat>", "--lora", LORAS "/a.safetensors:0.7", "--save-latents", "first", "-o", "a.png"), 0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--lora-dir", LORAS), 0);
    assert_true(same_bytes("first", "again"));
    assert_true(same_bytes("a.png", "b.png"));
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    expect_text(s->err, "a.png: what is not followed of it: LoRAs (--lora-dir finds them): <lora:a:0.7>", "no folder");
    assert_false(same_bytes("first", "again"));
    EXPECT(s,
           RUN(s, PAINT, "-p", "a cat<lora:a:0.7>", "--prompt-syntax", "a1111", "--lora-dir", LORAS, "--save-latents", "first", "-o",
               "a.png"),
           0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--lora-dir", LORAS), 0);
    assert_true(same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 2);
    expect_text(s->err, "\"<lora:a:0.7>\" is a tag and no text", "no folder");
    write_picture("a.png", "a <lora:a:0.7>\nSteps: 2, Seed: 1, Size: 24x16, Hires upscale: 1.5, Hires prompt: b <lora:a:0.7>");
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--lora-dir", LORAS), 0);
    assert_string_equal(s->err, "");
}

static void test_caches_are_repeated(void **state)
{
    struct state *s = *state;
    EXPECT(s,
           RUN(s, PAINT, "-p", "a cat", "--steps", "10", "--deepcache", "3", "--deepcache-branch", "1", "--deepcache-schedule", "quad",
               "--save-latents", "first", "-o", "a.png"),
           0);
    EXPECT(s, RUN(s, "info", "a.png"), 0);
    expect_text(s->out, "DeepCache interval: 3, DeepCache branch: 1, DeepCache center: 3, DeepCache pow: 1.4, Version", "info");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    assert_string_equal(s->err, "");
    assert_true(same_bytes("a.png", "b.png") && same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--deepcache-schedule", "quad:3:1.4"), 0);
    assert_true(same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--deepcache-schedule", "uniform"), 0);
    assert_false(same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--deepcache", "1"), 0);
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    assert_null(strstr(s->out, "DeepCache"));
}

static void test_a_chosen_cache_is_repeated(void **state)
{
    struct state *s = *state;
    char quality[32];
    snprintf(quality, sizeof(quality), "0.01%d", (int)getpid()); /* nothing is remembered of it */
    EXPECT(s,
           RUN(s, PAINT, "-p", "a cat", "--steps", "10", "--sampler", "ddim", "--deepcache", "auto", "--quality", quality, "--json",
               "--save-latents", "first", "-o", "a.png"),
           0);
    expect_text(s->out, "; by a trial in few steps", "json");
    EXPECT(s, RUN(s, "info", "a.png"), 0);
    expect_text(s->out, "DeepCache interval: 8, DeepCache branch: 0, DeepCache center: 0, DeepCache pow: 1.4, Version", "info");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    assert_true(same_bytes("a.png", "b.png") && same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--deepcache", "auto", "--quality", quality, "--json"), 0); /* remembered */
    expect_text(s->out, "{\"event\":\"choice\",\"what\":\"deepcache\",\"value\":\"8 quad:0:1.4\",\"why\":", "json");
    expect_text(s->out, "found before", "json");
    assert_true(same_bytes("a.png", "b.png"));
}

static void test_dtypes_are_repeated(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, PAINT, "-p", "a cat", "--dtype", "bf16", "--save-latents", "first", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "info", "a.png"), 0);
    expect_text(s->out, ", Dtype: bf16, Version", "info");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    assert_string_equal(s->err, "");
    assert_true(same_bytes("a.png", "b.png") && same_bytes("first", "again"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--dtype", "f32"), 0);
    assert_false(same_bytes("first", "again"));
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    assert_null(strstr(s->out, "Dtype"));
    EXPECT(s, RUN(s, PAINT, "-p", "a cat", "--dtype", "int8", "--save-latents", "first", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "info", "a.png"), 0);
    expect_text(s->out, ", Quantize: *, Version", "info");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    assert_true(same_bytes("a.png", "b.png") && same_bytes("first", "again"));
}

static void test_what_is_optimized_is_repeated(void **state)
{
    static const char *const goals[] = {"speed", "memory", "quality"};
    struct state *s = *state;
    for (int i = 0; i < 3; i++) {
        EXPECT(s, RUN(s, PAINT, "-p", "a cat", "--steps", "10", "--optimize", goals[i], "--json", "--save-latents", "first", "-o", "a.png"),
               0);
        expect_text(s->out, "{\"event\":\"choice\",\"what\":\"dtype\",\"value\":", "json");
        expect_text(s->out, "\"what\":\"tiling\"", "json");
        EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
        assert_true(same_bytes("a.png", "b.png") && same_bytes("first", "again"));
    }
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--optimize", "quality", "--dtype", "int8", "--deepcache", "3", "--json"), 0);
    expect_text(s->out, "\"value\":\"int8\",\"why\":\"as given\"", "json");
    expect_text(s->out, "\"value\":\"3\",\"why\":\"as given\"", "json");
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--optimize", "speed", "--budget", "6M"), 1);
    expect_text(s->err, "this picture needs at least", "a small budget");
}

static void test_options_count_instead(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, PAINT, "-p", "a cat", "--sampler", "euler_a", "--schedule", "karras", "--eta", "0.5", "-o", "a.png"), 0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--sampler", "euler", "-p", "a dog", "-W", "40", "--seed", "6", "--steps", "2"), 0);
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "a dog\nSteps: 2, Sampler: Euler, CFG scale: 7.5, Seed: 6, Size: 40x40, Model: sd1, RNG: CPU, Version", "info");
    EXPECT(s, RUN(s, "txt2img", "--from", "a.png", MODEL, "--steps", "1", "--json", "-o", "c.png"), 0); /* options first */
    expect_text(s->out, "\"steps\":1", "json");
}

static void test_a_picture_of_img2img(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, PAINT, "-p", "a cat", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "img2img", "a.png", MODEL, "--steps", "3", "--seed", "1", "-p", "b", "--strength", "0.7", "-o", "b.png", "-q"), 0);
    EXPECT(s, RUN(s, "img2img", "a.png", MODEL, "--from", "b.png", "-o", "c.png", "-q"), 0);
    assert_true(same_bytes("b.png", "c.png"));
    assert_string_equal(s->err, "");
    EXPECT(s, REPEAT(s, "b.png", "c.png"), 0);
    expect_text(s->err, "what is not followed of it: Denoising strength (it was made by img2img)", "txt2img");
}

/* Another sampler has a schedule of its own, also that of a second pass; one that is given counts wherever it stands. */
static void test_a_schedule_goes_with_its_sampler(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, PAINT, "-p", "a cat", "--sampler", "euler", "--hires", "2", "--hires-schedule", "karras", "-o", "a.png"), 0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--sampler", "ddim"), 0);
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "Sampler: DDIM", "ddim");
    assert_null(strstr(s->out, "Hires schedule"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--hires-sampler", "ddim"), 0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--hires-sampler", "DPM++ 2M Karras", "--hires-schedule", "exponential"), 0);
    EXPECT(s, REPEAT(s, "a.png", "c.png", "--hires-schedule", "exponential", "--hires-sampler", "DPM++ 2M Karras"), 0);
    assert_true(same_bytes("b.png", "c.png"));
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "Hires schedule type: Exponential", "exponential");
}

static void test_a_second_pass_is_repeated(void **state)
{
    struct state *s = *state;
    EXPECT(s,
           RUN(s, PAINT, "-p", "a cat", "--hires", "1.5", "--hires-upscaler", "latent-bicubic", "--hires-steps", "2", "--hires-strength",
               "0.55", "--hires-sampler", "Euler a Karras", "--hires-cfg", "3", "--hires-prompt", "a, dog", "--hires-negative", "b",
               "--lora", LORAS "/a.safetensors:0.123456789", "--save-latents", "first", "-o", "a.png"),
           0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--lora-dir", LORAS), 0);
    assert_true(same_bytes("first", "again"));
    assert_true(same_bytes("a.png", "b.png"));
    assert_string_equal(s->err, "");
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "picture, 72 x 56 pixels", "60 is no multiple of 8");
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--lora-dir", LORAS, "--hires", "0"), 0);
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    assert_null(strstr(s->out, "Hires"));
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--lora-dir", LORAS, "--hires-size", "64x0"), 0);
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "Hires resize: 64x0, Hires steps: 2", "another size");
    EXPECT(s, RUN(s, "img2img", "a.png", MODEL, "--from", "a.png", "-o", "c.png", "-q", "--steps", "2", "--lora-dir", LORAS), 0);
    expect_text(s->err, "what is not followed of it: Hires (it was made by txt2img)", "img2img");
}

/* Files that --from does not find by itself are told, unless the command line gives them. */
static void test_other_files_are_told(void **state)
{
#define WORD TERN_TEST_DATA "/prompts/learned.bin"
#define TINY TERN_TEST_DATA "/taesd/vae"
    struct state *s = *state;
    EXPECT(s,
           RUN(s, PAINT, "-p", "a <cat-toy>, toy", "--embedding", WORD, "--embedding", TERN_TEST_DATA "/prompts/a1111.pt:not named",
               "--embedding", TERN_TEST_DATA "/prompts/unnamed.pt:to,y", "--vae", TINY, "-n", "to,y", "-o", "a.png"),
           0);
    EXPECT(s, RUN(s, "info", "a.png"), 0);
    expect_text(s->out, "Model: sd1, VAE: vae, RNG: CPU, TI hashes: \"learned: 7f64a811896a, toy: ", "text");
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--embedding", WORD, "--embedding", TERN_TEST_DATA "/prompts/unnamed.pt:to,y", "--vae", TINY), 0);
    assert_true(same_bytes("a.png", "b.png"));
    expect_text(s->err, "not followed of it: TI hashes (--embedding gives the files): learned: 7f64a811896a, toy: ", "another name");
    EXPECT(s, RUN(s, PAINT, "-p", "a <cat-toy>", "--embedding", WORD, "--vae", TINY, "-o", "a.png"), 0);
    EXPECT(s, REPEAT(s, "a.png", "b.png", "--embedding", WORD, "--vae", TINY), 0);
    assert_true(same_bytes("a.png", "b.png"));
    assert_string_equal(s->err, "");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    expect_text(s->err, "not followed of it: VAE (--vae gives it): vae, TI hashes (--embedding gives the files): learned: 7f64a811896a\n",
                "nothing");
}

/* instruct-pix2pix: its own scale, on the command line, in the text, and from there. */
static void test_an_edited_picture(void **state)
{
    static const char image[] = TERN_TEST_DATA "/pipelines/init-48x40.png";
    struct state *s = *state;
    char model[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(NULL);
    xl_folder(ctx, "sd1-pix2pix", model);
    tern_context_destroy(&ctx);
#define EDIT(out, ...) RUN(s, "img2img", image, model, "-p", "b", "--steps", "2", "--seed", "1", "-q", "-o", out, ##__VA_ARGS__)
    EXPECT(s, EDIT("a.png"), 0);
    EXPECT(s, EDIT("b.png", "--image-cfg", "1.5"), 0);
    assert_true(same_bytes("a.png", "b.png"));
    EXPECT(s, EDIT("b.png", "--image-cfg", "1.25"), 0);
    assert_false(same_bytes("a.png", "b.png"));
    EXPECT(s, RUN(s, "img2img", image, model, "--from", "b.png", "-o", "c.png", "-q"), 0);
    assert_true(same_bytes("b.png", "c.png"));
    assert_string_equal(s->err, "");
    EXPECT(s, REPEAT(s, "b.png", "c.png"), 0);
    expect_text(s->err, "Denoising strength (it was made by img2img), Image CFG scale (a picture was edited)", "another model");
    EXPECT(s, EDIT("c.png", "--strength", "0.5"), 2);
    expect_text(s->err, "starts from noise alone", "--strength");
    EXPECT(s, RUN(s, "txt2img", model, "-p", "b", "-o", "c.png"), 2);
    expect_text(s->err, "it needs --init-image", "no picture");
    EXPECT(s, RUN(s, "img2img", image, MODEL, "-p", "b", "-o", "c.png", "--image-cfg", "1.5"), 2);
    expect_text(s->err, "--image-cfg: sd1 is not told the picture", "another model");
    EXPECT(s, RUN(s, "info", model), 0);
    expect_text(s->out, "for editing by instructions", "info");
#undef EDIT
    damage_remove(model);
}

/* What stands in a picture is no command to a terminal: U+001B begins one, and U+009B, and a line may look like one of tern's. */
static void test_control_characters_are_blanks(void **state)
{
    struct state *s = *state;
    write_picture("a.png", "a\x1b[2Jb\n\xc2\x9b"
                           "31mc\xc3\x9b\x7f\nSteps: 1, Seed: 1, Size: 32x32, Model: \x1b]0;title\x07");
    EXPECT(s, RUN(s, "info", "a.png"), 0);
    expect_text(s->out, "\na [2Jb\n  31mc\xc3\x9b \nSteps: 1, Seed: 1, Size: 32x32, Model:  ]0;title \n", "info");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    expect_text(s->err, "what is not followed of it: Model:  ]0;title \n", "message");
    write_picture("a.png", "a <lora:\x1b]0;x\x07:1>\nSteps: 1, Seed: 1, Size: 32x32");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 2);
    expect_text(s->err, "<lora: ]0;x :1>", "error");
}

static void test_what_is_not_followed_is_told(void **state)
{
    struct state *s = *state;
    write_picture("a.png", "a (cat:1.2)\nSteps: 2, Sampler: Restart, Seed: 1, Size: 48x40, Model hash: abc, Model: other, Emphasis: None, "
                           "Hires upscale: 2, Hires upscaler: ESRGAN, Hires rest: 2, Version: v1.9");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    expect_text(s->err,
                "warning: a.png: what is not followed of it: Model: other, Sampler: Restart, Emphasis: None, Hires upscaler: ESRGAN, Model "
                "hash: abc, Hires rest: 2\n",
                "message");
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "Size: 48x40, Model: sd1, RNG: NV, Denoising strength: 0.7, Hires upscale: 2, Hires upscaler: Latent, Version",
                "hires");
    EXPECT(s, RUN(s, "txt2img", MODEL, "--from", "a.png", "-o", "b.png", "--json"), 0);
    expect_text(s->out, "\"not_followed\"", "json");
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "RNG: NV, ", "A1111's noise is a GPU's");
    expect_text(s->out, "Prompt syntax: a1111", "syntax");
}

/* A text without a seed, or with one that is none, is painted with a random one, as without --seed. */
static void test_pictures_without_a_seed(void **state)
{
    static const struct {
        const char *field, *told;
    } rows[] = {{"RNG: CPU", "what is not followed of it: Seed (it has none)\n"},
                {"Seed: -1", "what is not followed of it: Seed: -1\n"},
                {"Seed: -5", "what is not followed of it: Seed: -5\n"},
                {"Seed: 7x", "what is not followed of it: Seed: 7x\n"},
                {"Seed: 99999999999999999999", "what is not followed of it: Seed: 99999999999999999999\n"}};
    struct state *s = *state;
    char text[128];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        snprintf(text, sizeof(text), "a\nSteps: 1, Sampler: Euler, %s, Size: 24x16", rows[i].field);
        write_picture("a.png", text);
        EXPECT(s, RUN(s, "txt2img", MODEL, "--from", "a.png", "-o", "b.png"), 0);
        expect_text(s->err, rows[i].told, rows[i].field);
        expect_text(s->err, "24 x 16, seed ", "the seed is shown");
        assert_null(strstr(s->err, "seed 0"));
        EXPECT(s, REPEAT(s, "a.png", "b.png", "--seed", "3"), 0);
        assert_null(strstr(s->err, "it has none"));
        EXPECT(s, RUN(s, "info", "b.png"), 0);
        expect_text(s->out, "Seed: 3, ", "--seed");
    }
}

/* Sides are multiples of 8; another one is rounded down, which is told, unless the command line gives it. */
static void test_sizes_that_are_rounded(void **state)
{
    struct state *s = *state;
    write_picture("a.png", "a\nSteps: 1, Sampler: Euler, Seed: 1, Size: 24x23");
    EXPECT(s, REPEAT(s, "a.png", "b.png"), 0);
    expect_text(s->err, "what is not followed of it: Size: 24x23 (no multiple of 8)\n", "a side");
    EXPECT(s, RUN(s, "info", "b.png"), 0);
    expect_text(s->out, "Size: 24x16, ", "rounded down");
    EXPECT(s, REPEAT(s, "a.png", "b.png", "-W", "16"), 0);
    expect_text(s->err, "Size: 24x23", "the other side is given");
    EXPECT(s, REPEAT(s, "a.png", "b.png", "-H", "24"), 0);
    assert_string_equal(s->err, "");
}

static void test_pictures_that_tell_nothing(void **state)
{
    struct state *s = *state;
    write_picture("none.png", NULL);
    write_picture("odd.png", "only a prompt");
    write_file("bad.png", "x", 1);
    EXPECT(s, REPEAT(s, "none.png", "b.png"), 1);
    expect_text(s->err, "none.png: the picture has no infotext", "none");
    EXPECT(s, REPEAT(s, "odd.png", "b.png"), 1);
    expect_text(s->err, "odd.png: infotext: expected a last line such as", "odd");
    EXPECT(s, REPEAT(s, "bad.png", "b.png"), 1);
    expect_text(s->err, "bad.png: no picture that can be read", "bad");
    EXPECT(s, REPEAT(s, "absent.png", "b.png"), 1);
    expect_text(s->err, "absent.png", "absent");
    EXPECT(s, RUN(s, "txt2img", MODEL, "--from", "none.png", "--steps", "x"), 2);
    assert_int_equal(files("."), 3);
}

static void test_convert(void **state)
{
    struct state *s = *state;
    const char *mini = TERN_TEST_DATA "/formats/mini";
    EXPECT(s, RUN(s, "convert", mini, "a.safetensors", "--dtype", "f32"), 0);
    expect_text(s->err, "a.safetensors: written, peak memory", "convert");
    EXPECT(s, RUN(s, "convert", "a.safetensors", "b.safetensors", "--single-file", "-q"), 0);
    assert_true(same_bytes("a.safetensors", "b.safetensors"));
    EXPECT(s, RUN(s, "convert", "a.safetensors", "folder", "--json"), 0);
    expect_text(s->out, "\"event\":\"done\"", "json");
    EXPECT(s, RUN(s, "info", "folder"), 0);
    EXPECT(s, RUN(s, "convert", "a.safetensors", "a.safetensors", "--single-file"), 2);
    expect_text(s->err, "expected another name", "same file");
    EXPECT(s, RUN(s, "convert", mini, "c", "--single-file", "--folder"), 2);
    expect_text(s->err, "found both", "forms");
    EXPECT(s, RUN(s, "convert", mini, "c", "--dtype", "int4"), 2);
    EXPECT(s, RUN(s, "convert", mini, "c", "--dtype", "int8", "--weights", "int8"), 2);
    expect_text(s->err, "--dtype int8, --weights and --recipe: expected one of them", "two ways");
    EXPECT(s, RUN(s, "convert", mini, "c", "--recipe", "none.json"), 1);
    expect_text(s->err, "none.json", "no recipe");
    EXPECT(s, RUN(s, "convert", mini), 2);
    EXPECT(s, RUN(s, "convert", "absent", "c"), 1);
    expect_text(s->err, "absent: no such file or folder", "no model");
    s->file_limit = 20000;
    EXPECT(s, RUN(s, "convert", mini, "c.safetensors"), 1);
    expect_text(s->err, "c.safetensors", "full disk");
    s->file_limit = 20000;
    EXPECT(s, RUN(s, "convert", "a.safetensors", "c"), 1);
    EXPECT(s, RUN(s, "convert", TERN_SOURCE_ROOT "/models/demo/zh", "c", "--single-file"), 1);
    expect_text(s->err, "text_encoder is a BertModel", "BERT");
    assert_int_equal(files("."), 3);
    EXPECT(s, RUN(s, "convert", "-q", "folder", "folder/unet", "--folder"), 2);
    assert_int_equal(system("rm -r folder"), 0);
}

/* "demo" is the model that ships with tern, as for all other commands. */
static void test_the_demo_model_is_converted(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "convert", "demo", "out", "--folder", "-q"), 0);
    EXPECT(s, RUN(s, "convert", TERN_SOURCE_ROOT "/models/demo", "same", "--folder", "-q"), 0);
    assert_true(same_bytes("out/unet/diffusion_pytorch_model.safetensors", "same/unet/diffusion_pytorch_model.safetensors"));
    assert_int_equal(system("rm -r out same"), 0);
}

/* Without a word of it where it is used; repeated by its infotext. */
static void test_quantised_models(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "convert", "-q", MODEL, "model", "--folder", "--weights", "int4"), 0);
    EXPECT(s, RUN(s, "info", "model"), 0);
    expect_text(s->out, "quantised: UNet as \"*:w4\"", "info");
    expect_text(s->out, "f16 int4", "info");
    EXPECT(s, RUN(s, "graph", "model", "unet"), 0);
    expect_text(s->out, "weight_only_conv2d", "graph");
    EXPECT(s, RUN(s, "txt2img", "model", "-p", "a cat", "-W", "64", "-H", "64", "--steps", "2", "-q", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "txt2img", "model", "--from", "a.png", "-q", "-o", "b.png"), 0);
    assert_true(same_bytes("a.png", "b.png"));
    EXPECT(s, RUN(s, "txt2img", "model", "-p", "a cat", "-W", "64", "-H", "64", "--steps", "2", "-q", "-o", "c.png", "--optimize", "speed"),
           0);
    EXPECT(s, RUN(s, "txt2img", "model", "-p", "a cat", "--dtype", "int8", "-o", "c.png"), 1);
    expect_text(s->err, "unet comes quantised as \"*:w4\", and \"*\" was asked for", "int8");
    EXPECT(s, RUN(s, "convert", "-q", MODEL, "eight", "--folder", "--dtype", "int8"), 0); /* the rest is computed as --dtype int8 does */
    EXPECT(s, RUN(s, "txt2img", "eight", "-p", "a cat", "-W", "64", "-H", "64", "--steps", "2", "-q", "--seed", "1", "--save-latents", "a"),
           0);
    EXPECT(s,
           RUN(s, "txt2img", MODEL, "-p", "a cat", "-W", "64", "-H", "64", "--steps", "2", "-q", "--seed", "1", "--save-latents", "b",
               "--dtype", "int8"),
           0);
    assert_true(same_bytes("a", "b"));
    assert_int_equal(system("rm -r model eight a b *.png"), 0);
}

int cli_from_tests(void)
{
    const struct CMUnitTest tests[] = {TEST(test_pictures_of_each_format_are_repeated),
                                       TEST(test_syntax_and_loras_are_repeated),
                                       TEST(test_caches_are_repeated),
                                       TEST(test_a_chosen_cache_is_repeated),
                                       TEST(test_dtypes_are_repeated),
                                       TEST(test_what_is_optimized_is_repeated),
                                       TEST(test_options_count_instead),
                                       TEST(test_a_picture_of_img2img),
                                       TEST(test_a_schedule_goes_with_its_sampler),
                                       TEST(test_a_second_pass_is_repeated),
                                       TEST(test_other_files_are_told),
                                       TEST(test_an_edited_picture),
                                       TEST(test_what_is_not_followed_is_told),
                                       TEST(test_control_characters_are_blanks),
                                       TEST(test_pictures_without_a_seed),
                                       TEST(test_sizes_that_are_rounded),
                                       TEST(test_pictures_that_tell_nothing),
                                       TEST(test_convert),
                                       TEST(test_the_demo_model_is_converted),
                                       TEST(test_quantised_models)};
    return cmocka_run_group_tests_name("cli from", tests, cli_setup, cli_teardown);
}
