/* The command tern quantize, and recipes given to the others. */
#include "cli.h"

#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define JOB "-W", "48", "-H", "40", "--steps", "2", "--quantize-slower"
#define SMALL "-W", "48", "-H", "40", "--steps", "2", "--seed", "3", "-q", "-p", "a cat"

static void test_a_recipe_is_made_and_used(void **state)
{
    struct state *s = *state;
    write_file("prompts.txt",
               "\xef\xbb\xbf"
               "a cat\n\ntwo dogs\r\n",
               20);
    EXPECT(s,
           RUN(s, "quantize", MODEL, JOB, "--prompts", "prompts.txt", "-o", "r.json", "--report", "report (1).md", "--conv-mse-threshold",
               "1e6", "--linear-mse-threshold", "1e6", "--dtype", "f32"),
           0);
    expect_text(s->err, "r.json: 202 of 203 layers in int8, speedup ", "quantize");
    assert_int_equal(files("."), 7); /* prompts, recipe, report, two pictures for each prompt; no state */
    assert_true(has_text("report (1).md", "| layers in int8 | 202 of 203 |"));
    assert_true(has_text("report (1).md", "| ![](report%20%281%29-before-2.png) | ![](report%20%281%29-after-2.png) |"));
    assert_true(has_text("report (1).md", "| `conv_in.weight` | conv | "));
    assert_true(has_text("r.json", "\"a cat\""));
    assert_true(has_text("r.json", "\"two dogs\""));
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "--recipe", "r.json", "--dtype", "f32", "--save-latents", "recipe"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "--save-latents", "plain"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "--recipe", "r.json", "--save-latents", "auto"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "--dtype", "int8", "--save-latents", "int8"), 0);
    assert_false(same_bytes("recipe", "plain"));
    assert_true(same_bytes("auto", "int8"));
    EXPECT(s, RUN(s, "graph", MODEL, "unet", "--recipe", "r.json"), 0);
    expect_text(s->out, "= quantized_conv2d(", "graph");
    assert_null(strstr(s->out, "= conv2d("));
    EXPECT(s, RUN(s, "graph", MODEL, "vae_decoder", "--recipe", "r.json"), 0);
    assert_null(strstr(s->out, "= quantized_conv2d("));
}

/* A picture by a recipe with factors is repeated by its infotext, which has them. */
static void test_factors_of_norms(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "-q", "--smooth-quant", "0.7", "--report", "r.md"), 0);
    assert_true(has_text("recipe.json", "\"smooth_quant\": 0.7"));
    assert_true(has_text("r.md", "| norms with factors | "));
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "--recipe", "recipe.json", "-o", "a.png"), 0);
    EXPECT(s, RUN(s, "txt2img", MODEL, "--from", "a.png", "-q", "-o", "b.png"), 0);
    assert_true(same_bytes("a.png", "b.png"));
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "--smooth-quant", "1"), 2);
    expect_text(s->err, "option --smooth-quant: expected a number above 0 and below 1", "--smooth-quant");
}

/* What took hours is there all the same. */
static void test_a_picture_of_the_report_fails(void **state)
{
    struct state *s = *state;
    assert_int_equal(mkdir("r-after-1.png", 0777), 0);
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "-q", "--report", "r.md"), 1);
    expect_text(s->err, "r.md was not written: a picture beside it: r-after-1.png: ", "the reason");
    assert_true(has_text("recipe.json", "\"a\""));
    assert_int_equal(rmdir("r-after-1.png"), 0);
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "-q", "--report", "r.md"), 0);
    assert_int_equal(files("."), 4); /* no state is left */
}

static void test_recipes_in_exec(void **state)
{
    struct state *s = *state;
    const char *inputs = TERN_TEST_DATA "/components/sd1/unet.square.safetensors";
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "--linear-mse-threshold", "1e6", "--quantize-linear", "-q"), 0);
    EXPECT(s, RUN(s, "info", inputs), 0);
    EXPECT(s, RUN(s, "exec", TERN_TEST_DATA "/models/sd2", "unet", "--inputs", inputs, "--outputs", "o", "--recipe", "recipe.json"), 1);
    expect_text(s->err, "a recipe for Stable Diffusion 1 (203 layers), the model sd2 is Stable Diffusion 2", "another architecture");
    EXPECT(s, RUN(s, "txt2img", MODEL, SMALL, "--recipe", "absent.json"), 1);
    expect_text(s->err, "absent.json: cannot be opened", "no recipe");
}

static void test_prompts_that_are_none(void **state)
{
    struct state *s = *state;
    write_file("empty.txt", "\n\n", 2);
    EXPECT(s, RUN(s, "quantize", MODEL, "--prompts", "empty.txt"), 1);
    expect_text(s->err, "empty.txt: expected prompts, one a line, found none", "--prompts");
    EXPECT(s, RUN(s, "quantize", MODEL, "--prompts", "absent.txt"), 1);
    expect_text(s->err, "absent.txt: cannot be opened", "--prompts");
    EXPECT(s, RUN(s, "quantize", MODEL, "-p", "x", "-o", "nowhere/r.json"), 1);
    expect_text(s->err, "nowhere/r.json: cannot be written", "-o");
    assert_int_equal(files("."), 1);
}

static void test_a_target_out_of_reach(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "--speedup", "90", "--json"), 1);
    expect_text(s->err, "speedup: 90 cannot be reached: the best is ", "--speedup");
    expect_text(s->out, "\"stage\":\"quantize\"", "events");
    expect_text(s->out, "\"event\":\"error\"", "events");
    assert_int_equal(access("recipe.json", F_OK), -1);
    expect_text(s->err, "what was measured is kept in recipe.json.state; the same command goes on there, or one with another target\n",
                "the state");
    assert_int_equal(access("recipe.json.state", F_OK), 0);
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a", "--speedup", "90", "-q"), 1);
    assert_null(strstr(s->err, "is kept"));
    EXPECT(s, RUN(s, "quantize", "absent", JOB, "-p", "a"), 1);
    assert_null(strstr(s->err, "is kept"));
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a"), 0); /* another target: none */
    assert_int_equal(files("."), 1);
}

static void test_interrupted_and_resumed(void **state)
{
    struct state *s = *state;
    const char *const args[] = {"quantize", MODEL, "-W", "64", "-H", "64", "--steps", "20", "--quantize-slower", "-p", "a", NULL};
    pid_t pid = cli_start(s, args);
    for (int i = 0; i < 3000 && access("recipe.json.state", F_OK); i++)
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    assert_int_equal(kill(pid, SIGINT), 0);
    EXPECT(s, cli_finish(s, pid), 130);
    expect_text(s->err, "the same command goes on where it was, by recipe.json.state", "Ctrl-C");
    assert_int_equal(access("recipe.json", F_OK), -1);
    EXPECT(s, RUN(s, "quantize", MODEL, "-W", "64", "-H", "64", "--steps", "21", "-p", "a"), 2);
    expect_text(s->err, "the state of a run with other options", "other options");
    EXPECT(s, cli_finish(s, cli_start(s, args)), 0);
    assert_int_equal(files("."), 1);
}

/* A disk that is full in the end: what was measured is not lost. */
static void test_no_room_for_the_recipe(void **state)
{
    struct state *s = *state;
    s->file_limit = 40000; /* the recipe has some 60 KB, what was measured has 25 */
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a"), 1);
    expect_text(s->err, "recipe.json: could not be written: ", "quantize");
    assert_int_equal(files("."), 1);
    assert_int_equal(access("recipe.json.state", F_OK), 0);
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "b"), 2);
    expect_text(s->err, "the state of a run with other options", "what was measured");
    EXPECT(s, RUN(s, "quantize", MODEL, JOB, "-p", "a"), 0);
    assert_int_equal(files("."), 1);
    assert_int_equal(access("recipe.json", F_OK), 0);
}

int cli_quantize_tests(void)
{
    const struct CMUnitTest tests[] = {TEST(test_a_recipe_is_made_and_used), TEST(test_factors_of_norms),
                                       TEST(test_recipes_in_exec),           TEST(test_prompts_that_are_none),
                                       TEST(test_a_target_out_of_reach),     TEST(test_interrupted_and_resumed),
                                       TEST(test_no_room_for_the_recipe),    TEST(test_a_picture_of_the_report_fails)};
    return cmocka_run_group_tests_name("cli quantize", tests, cli_setup, cli_teardown);
}
