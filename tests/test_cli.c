/* The command tern: wrong usage, help, errors for programs. The other two groups are in cli_input.c and cli_jobs.c. */
#include "cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_wrong_usage(void **state)
{
    /* a command line, what its message must hold; all end with 2, and none says anything on standard output */
    static const struct {
        const char *line, *words[3];
    } cases[] = {
        {"help paint", {"\"paint\"", "txt2img", "synth"}},
        {"paint", {"\"paint\"", "txt2img", "synth"}},
        {"graph " MODEL, {"COMPONENT", "--help"}},
        {"graph " MODEL " unet --batch 0", {"--batch", "1 to 128"}},
        {"graph " MODEL " controlnet", {"\"controlnet\"", "text_encoder, unet"}},
        {"graph " MODEL " unet -W 76", {"--width: expected a multiple of 8, found 76; 72 and 80 are near"}},
        {"graph " MODEL " unet -H 9", {"--height: expected a multiple of 8, found 9; 8 and 16 are near"}},
        {"quantize a -p x -W 25", {"--width: expected a multiple of 8, found 25; 24 and 32 are near"}},
        {"graph " MODEL " unet --without dce,fusion", {"\"fusion\"", "prepare,fuse"}},
        {"bench paint", {"ops, model or peers", "\"paint\""}},
        {"bench ops x", {"expected ops", "--help"}},
        {"bench model x y", {"model [MODEL]"}},
        {"bench ops --op conv3d", {"conv2d, linear", "\"conv3d\""}},
        {"bench ops --arch sd3", {"sd15, sdxl, vae", "\"sd3\""}},
        {"bench ops --size 512,100", {"multiples of 64", "\"100\""}},
        {"bench ops --size 512,", {"--size", "\"\""}},
        {"bench model --batch 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", {"at most 16"}},
        {"bench ops --dtype f32,f64", {"--dtype", "\"f64\""}},
        {"bench ops --runs 0", {"--runs", "1 to 101"}},
        {"bench ops --limit 0", {"--limit", "\"0\""}},
        {"bench ops --threads 1,2", {"one number"}},
        {"bench ops --plot a.svg", {"--plot", "bench ops"}},
        {"bench ops --list --dtype bf16", {"--dtype", "--list runs nothing"}},
        {"bench ops --dtype f32,int8 --op add", {"--op", "add has no form in int8"}},
        {"bench model --all-kernels", {"--all-kernels", "bench model"}},
        {"bench peers --threads 2", {"--threads", "behind '--'"}},
        {"bench peers --runs 3", {"--runs", "behind '--'"}},
        {"bench peers --device cuda", {"--device", "behind '--'"}},
        {"graph m unet --tune-time 5", {"--tune-time", "--tune fast or full"}},
        {"graph m unet --tune off --tune-memory 1GiB", {"--tune-memory", "--tune fast or full"}},
        {"graph m unet --tune full --tune-cache=", {"--tune-cache", "found none"}},
        {"quantize m -p x --seed -1", {"--seed", "from 0", "\"-1\""}},
        {"txt2img -p x --refiner m:0.6 --denoising-end 0.2", {"--denoising-end", "--refiner"}},
        {"conformance x", {"no argument"}},
        {"conformance --stage demo", {"\"demo\"", "ops, graphs, models, pictures"}},
        {"conformance --stage ops,", {"no stage \"\""}},
        {"conformance --stage graphs --op add", {"op \"add\"", "\"graphs\""}},
        {"conformance --op conv3d", {"\"conv3d\"", "conv2d", "rand"}},
        {"conformance --kernel conv2d_fast", {"\"conv2d_fast\"", "chosen, constant, reference", "conv2d_f32_igemm"}},
        {"conformance --op add --kernel mul_float", {"\"mul_float\" of add", "add_float"}},
        {"conformance --device warp", {"\"warp\"", "cpu"}},
        {"conformance --level sse2", {"scalar, avx2, avxvnni, avx512, avx512vnni, avx512bf16, amx, neon, neondot, neonbf16", "\"sse2\""}},
        {"conformance --level scalar --device null", {"--level", "null"}},
        {"conformance --json", {"--json", "value is missing"}},
        {"conformance --json a --junit a", {"two outputs", "a"}},
        {"quantize", {"MODEL", "0 arguments"}},
        {"quantize a b -p x", {"MODEL", "2 arguments"}},
        {"quantize " MODEL, {"--prompt", "missing", "--prompts"}},
        {"quantize demo", {"--prompt", "calibration needs texts"}},
        {"quantize a -p x --bits 4", {"--bits", "\"4\""}},
        {"quantize a -p x --ssim 1", {"--ssim", "below 1", "\"1\""}},
        {"quantize a -p x --speedup 1", {"--speedup", "at least 1.0001"}},
        {"quantize a -p x --speedup 2 --ssim 0.9", {"--ssim and --speedup", "both"}},
        {"quantize a -p x --conv-mse-threshold -1", {"--conv-mse-threshold", "\"-1\""}},
        {"quantize a -p x --linear-mse-threshold nan", {"--linear-mse-threshold", "\"nan\""}},
        {"quantize a -p x --compute-density-threshold many", {"--compute-density-threshold", "\"many\""}},
        {"quantize a -p x -W 8", {"--width", "16 to 8192"}},
        {"quantize a -p x -H 100", {"--height", "multiple of 8"}},
        {"quantize a -p x --dtype int8", {"--dtype", "int8"}},
        {"txt2img -p x --dtype int8 --recipe r.json", {"--recipe", "--dtype f32, bf16, f16 or auto"}},
        {"graph " MODEL " unet --recipe r.json --dtype int8", {"--recipe", "int8"}},
        {"convert a", {"MODEL OUT", "1 argument"}},
        {"txt2img", {"--prompt", "missing", "--help"}},
        {"txt2img -p", {"-p", "value is missing"}},
        {"txt2img -p x --steps", {"--steps", "value is missing"}},
        {"txt2img -p x --colour", {"--colour", "--help"}},
        {"txt2img -p x -x", {"-x", "--help"}},
        {"txt2img -p x -qx", {"-x"}},
        {"txt2img -Ω", {"unknown option -Ω;"}}, /* a character of two bytes, at the end and before others */
        {"txt2img -p é -qжx y", {"unknown option -ж;"}},
        {"txt2img -p x -😀 -q", {"unknown option -😀;"}},
        {"txt2img -p x -q\xce", {"unknown option -?;"}},
        {"txt2img -\x1b[1m", {"unknown option -?;"}},
        {"txt2img -p x --json=1", {"--json", "no value"}},
        {"txt2img -p x a b", {"[MODEL]", "2 arguments"}},
        {"txt2img -p x --steps 0", {"--steps", "1 to 1000", "\"0\""}},
        {"txt2img -p x --steps 10000000", {"--steps", "1 to 1000", "\"10000000\""}},
        {"txt2img -p x --steps 99999999999999999999", {"--steps", "1 to 1000"}},
        {"txt2img -p x --steps 20x", {"--steps", "\"20x\""}},
        {"txt2img -p x --steps _", {"--steps", "\"\""}},
        {"txt2img -p x --steps 2.5", {"--steps", "\"2.5\""}},
        {"txt2img -p x -W 513", {"--width", "multiple of 8", "512"}},
        {"txt2img -p x -H 4", {"--height", "8 to 8192"}},
        {"txt2img -p x -W 0", {"--width", "8 to 8192"}},
        {"txt2img -p x -W -64", {"--width", "8 to 8192"}},
        {"txt2img -p x -H 1000000000000", {"--height", "8 to 8192"}},
        {"txt2img -p x --strength 0.5", {"--strength", "--init-image"}},
        {"txt2img -p x --init-image a.png --strength 0", {"--strength", "above 0", "\"0\""}},
        {"txt2img -p x --init-image a.png --strength 1.01", {"--strength", "at most 1"}},
        {"txt2img -p x --init-image a.png --strength nan", {"--strength", "\"nan\""}},
        {"txt2img -p x --init-image a.png --strength half", {"--strength", "\"half\""}},
        {"txt2img -p x --sampler ddmi", {"\"ddmi\"", "ddim, pndm, euler, euler_a", "lcm"}},
        {"txt2img -p x --schedule steep", {"\"steep\"", "default, karras, exponential", "align_your_steps"}},
        {"txt2img -p x --cfg -1", {"--cfg", "\"-1\""}},
        {"txt2img -p x --cfg 7,5", {"--cfg", "\"7,5\""}},
        {"txt2img -p x --cfg inf", {"--cfg", "\"inf\""}},
        {"txt2img -p x --cfg 0x7", {"--cfg", "\"0x7\""}},
        {"txt2img -p x --cfg +0x7", {"--cfg", "\"+0x7\""}},
        {"txt2img -p x --seed 12a", {"--seed", "\"12a\"", "-1"}},
        {"txt2img -p x --seed -2", {"--seed", "\"-2\""}},
        {"txt2img -p x --seed 18446744073709551616", {"--seed", "18446744073709551615"}},
        {"txt2img -p x -b 0", {"--count", "1 to 64"}},
        {"txt2img -p x -b 65 nowhere", {"--count", "1 to 64", "\"65\""}}, /* before the model is looked for */
        {"txt2img -p x -o a.png --save-latents a.png nowhere", {"two outputs", "a.png"}},
        {"txt2img -p x -b 2 -o a.png --profile a-2.png nowhere", {"two outputs", "a-2.png"}},
        {"txt2img -p x --save-latents x --profile ./x nowhere", {"two outputs", "./x"}},
        {"txt2img -p x --save-latents .//x --profile x nowhere", {"two outputs", "x"}},
        {"quantize a -p x -o r.md --report r.md", {"two outputs", "r.md"}},
        {"quantize a -p x --report r.txt", {"--report", "ends in .md", "\"r.txt\""}},
        {"quantize a -p x --report .md", {"--report", "ends in .md", "\".md\""}},
        {"txt2img -p x --dtype f64", {"--dtype", "f32, bf16, f16, auto", "\"f64\""}},
        {"txt2img -p x --dtype int4", {"--dtype", "int8", "int4"}},
        {"txt2img -p x --device warp", {"--device", "\"warp\"", "cpu"}},
        {"txt2img -p x --device cpu:x", {"--device", "cpu:x"}},
        {"txt2img -p x --threads 0", {"--threads", "1 to 1024"}},
        {"txt2img -p x --budget 0", {"--budget", "\"0\"", "2GiB"}},
        {"txt2img -p x --budget 3Q", {"--budget", "\"3Q\""}},
        {"txt2img -p x --budget much", {"--budget", "\"much\""}},
        {"txt2img -p x --generator tpu", {"--generator", "cpu, cuda"}},
        {"txt2img -p x -o picture.bmp", {"--output", ".png", "picture.bmp"}},
        {"txt2img -p x -o .png", {"--output", "\".png\""}},
        {"txt2img -p x --lora :1", {"--lora", "FILE:SCALE", "\":1\""}},
        {"txt2img -p x --lora a:101", {"--lora", "at most 100", "\"101\""}},
        {"txt2img -p x --lora a:1:down=", {"--lora", "\"\""}},
        {"txt2img -p x --lora a:1:down=1,=2", {"--lora", "BLOCK=NUMBER", "\"=2\""}},
        {"txt2img -p x --lora a:down=1,", {"--lora", "BLOCK=NUMBER", "\"\""}},
        {"txt2img -p x --offload some", {"--offload", "sequential"}},
        {"txt2img -p x --offload unet=some", {"--offload", "stream", "\"some\""}},
        {"txt2img -p x --offload vae=none,clip=none", {"--offload", "text_encoder, text_encoder_2, unet, vae", "\"clip\""}},
        {"txt2img -p x --offload unet=none,", {"--offload", "\"\""}},
        {"txt2img -p x --on-cpu clip", {"--on-cpu", "text_encoder, text_encoder_2, unet, vae", "\"clip\""}},
        {"txt2img -p x --on-cpu vae,", {"--on-cpu", "\"\""}},
        {"quantize -p x --bits 4", {"--bits", "expected 8", "\"4\""}},
        {"txt2img -p x --deepcache 0", {"--deepcache", "1 to 1000", "\"0\""}},
        {"txt2img -p x --deepcache fast", {"--deepcache", "whole number", "\"fast\""}},
        {"txt2img -p x --deepcache auto --quality 2", {"--quality", "below 1", "\"2\""}},
        {"txt2img -p x --deepcache auto --quality 1", {"--quality", "below 1", "\"1\""}},
        {"txt2img -p x --deepcache auto --quality 0", {"--quality", "above 0", "\"0\""}},
        {"txt2img -p x --optimize fast", {"--optimize", "speed, memory, quality", "\"fast\""}},
        {"txt2img -p x --quality 0.9", {"--quality", "--deepcache auto only"}},
        {"txt2img -p x --deepcache auto --deepcache 3 --quality 0.9", {"--quality", "--deepcache auto only"}},
        {"txt2img -p x --deepcache auto --deepcache-branch 1", {"--deepcache-branch", "--deepcache N only"}},
        {"txt2img -p x --deepcache auto -W 8 -H 64", {"--quality", "11 x 11"}},
        {"txt2img -p x --deepcache 2.5", {"--deepcache", "whole number", "\"2.5\""}},
        {"txt2img -p x --deepcache 2 --deepcache-branch -1", {"--deepcache-branch", "\"-1\""}},
        {"txt2img -p x --deepcache-branch 1", {"--deepcache-branch", "--deepcache N only"}},
        {"txt2img -p x --deepcache 1 --deepcache-schedule quad", {"--deepcache-schedule", "at least 2"}},
        {"txt2img -p x --deepcache 2 --deepcache-schedule quad:1", {"quad:STEP:POWER", "\"quad:1\""}},
        {"txt2img -p x --deepcache 2 --deepcache-schedule quad:x:1.4", {"--deepcache-schedule", "\"x\""}},
        {"txt2img -p x --deepcache 2 --deepcache-schedule quad:1:1", {"--deepcache-schedule", "above 1"}},
        {"txt2img -p x --deepcache 2 --deepcache-schedule quads", {"uniform, quad", "\"quads\""}},
        {"txt2img -p x --deepcache 2 --deepcache-branch 12", {"--deepcache-branch", "0..8", "12"}},
        {"txt2img -p x --deepcache 2 --deepcache-schedule quad:30:1.4", {"centre of --deepcache-schedule", "0..20", "30"}},
        {"txt2img -p x --hires-size 0x0", {"--hires-size", "up to 8192 as WxH, not both 0", "\"0x0\""}},
        {"txt2img -p x --original-size 64", {"--original-size", "WxH", "\"64\""}},
        {"txt2img -p x --target-size 64x0", {"--target-size", "at least 1"}},
        {"txt2img -p x --crops-coords-top-left 8x8", {"--crops-coords-top-left", "Y,X"}},
        {"txt2img -p x --crops-coords-top-left 8,-8", {"--crops-coords-top-left", "\"8,-8\""}},
        {"txt2img -p x --negative-original-size 0x8", {"--negative-original-size", "at least 1"}},
        {"txt2img -p x --negative-target-size 8", {"--negative-target-size", "WxH"}},
        {"txt2img -p x --negative-crops-coords-top-left 8", {"--negative-crops-coords-top-left", "Y,X"}},
        {"txt2img -p x --aesthetic-score nan", {"--aesthetic-score", "\"nan\""}},
        {"txt2img -p x --denoising-end 1", {"--denoising-end", "below 1"}},
        {"txt2img -p x --denoising-start 0", {"--denoising-start", "above 0"}},
        {"txt2img -p x --refiner :0.5", {"--refiner", "\":0.5\""}},
        {"txt2img -p x --refiner a:1.5", {"--refiner", "\"1.5\""}},
        {"txt2img -p x --image-cfg 1.5", {"--image-cfg", "--init-image"}},
        {"img2img -p x a.png --image-cfg 0", {"--image-cfg", "above 0"}},
        {"txt2img -p x --eta 11", {"--eta", "10"}},
        {"txt2img -p x --s-churn -1", {"--s-churn", "1000"}},
        {"txt2img -p x --s-tmax nan", {"--s-tmax", "nan"}},
        {"txt2img -p x --ensd 3000000000", {"--ensd", "2147483647"}},
        {"img2img -p x", {"IMAGE [MODEL]", "0 arguments"}},
        {"img2img -p x " MODEL " a.png", {"IMAGE [MODEL], pictures first", "in place of IMAGE, which looks like the model"}},
        {"img2img -p x m.safetensors a.png", {"pictures first", "\"m.safetensors\""}},
        {"inpaint -p x demo a.png b.png", {"IMAGE MASK [MODEL], pictures first", "\"demo\" in place of IMAGE, which looks"}},
        {"inpaint -p x a.png " MODEL " b.png", {"pictures first", "in place of MASK"}},
        {"img2img -p x --init-image a.png b.png", {"--init-image"}},
        {"inpaint -p x a.png", {"IMAGE MASK [MODEL]", "1 argument;"}},
        {"info", {"FILE|DIR"}},
        {"exec " MODEL, {"MODEL COMPONENT"}},
        {"exec " MODEL " unet --inputs a", {"--outputs", "missing"}},
        {"exec " MODEL " unet --outputs a", {"--inputs", "missing"}},
        {"exec " MODEL " unet --inputs a --outputs b --lora c:1e", {"--lora", "\"1e\""}},
        {"tokenize " MODEL, {"MODEL TEXT"}},
        {"devices all", {"no argument"}},
        {"synth sd15", {"ARCH OUT"}},
        {"synth sd15 out --dtype bf16", {"--dtype", "f16, f32"}},
        {"synth sd15 out --seed -1", {"--seed"}},
        {"synth sd99 out", {"sd99", "sd15"}},
    };
    struct state *s = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int code = cli_run_line(s, cases[i].line);
        if (code != 2 || s->out[0])
            fail_msg("%s: exit code %d; standard output \"%s\", standard error \"%s\"", cases[i].line, code, s->out, s->err);
        for (int w = 0; w < 3 && cases[i].words[w]; w++)
            expect_text(s->err, cases[i].words[w], cases[i].line);
        assert_int_equal(strncmp(s->err, "tern", 4), 0);
    }
    EXPECT(s, cli_finish(s, cli_start(s, (const char *const[]){NULL})), 2);
    expect_text(s->err, "usage: tern COMMAND", "tern");
    assert_int_equal(files("."), 0);
}

static void test_help_and_version(void **state)
{
    static const char *const commands[] = {"txt2img",  "img2img", "inpaint", "info",     "exec",
                                           "tokenize", "devices", "synth",   "quantize", "conformance"};
    struct state *s = *state;
    EXPECT(s, RUN(s, "--version"), 0);
    assert_string_equal(s->out, "tern " TERN_VERSION "\n");
    EXPECT(s, RUN(s, "--help"), 0);
    char *all = strdup(s->out);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        expect_text(all, commands[i], "tern --help");
        EXPECT(s, RUN(s, commands[i], "--help"), 0);
        expect_text(s->out, "usage: tern ", commands[i]);
        expect_text(s->out, commands[i], commands[i]);
        assert_string_equal(s->err, "");
        char *page = strdup(s->out);
        EXPECT(s, RUN(s, "help", commands[i]), 0);
        assert_string_equal(s->out, page);
        free(page);
    }
    EXPECT(s, RUN(s, "help"), 0);
    assert_string_equal(s->out, all);
    free(all);
}

static void test_errors_are_events_too(void **state)
{
    struct state *s = *state;
    EXPECT(s, RUN(s, "txt2img", "-p", "x", "--steps", "0", "--json"), 2);
    json_t *event = json_loads(s->out, 0, NULL);
    assert_non_null(event);
    assert_string_equal(json_string_value(json_object_get(event, "event")), "error");
    assert_string_equal(json_string_value(json_object_get(event, "status")), "usage");
    expect_text(json_string_value(json_object_get(event, "message")), "--steps", "message");
    expect_text(s->err, "--steps", "standard error");
    json_decref(event);
    EXPECT(s, RUN(s, "txt2img", "-p", "x", "--steps", "0", "--js"), 2); /* a beginning of its name */
    expect_text(s->out, "{\"event\":\"error\"", "--js");
    EXPECT(s, RUN(s, "txt2img", "-p", "--json", "--steps", "0"), 2); /* it is the prompt */
    assert_string_equal(s->out, "");
    EXPECT(s, RUN(s, "txt2img", "-p", "x", "--steps", "0", "--", "--json"), 2); /* the model */
    assert_string_equal(s->out, "");
    EXPECT(s, RUN(s, "txt2img", "nowhere", "-p", "x", "--js"), 1); /* behind the arguments */
    expect_text(s->out, "{\"event\":\"error\"", "--js");
}

/* Messages cut what they quote by its bytes, and paths may be any bytes: the rest of the text is told all the same. */
static void test_errors_cut_within_a_character(void **state)
{
    struct state *s = *state;
    char prompt[200] = "<lora:a:";
    for (int i = 0; i < 30; i++)
        strcat(prompt, "\xe7\x8c\xab"); /* a cat */
    strcat(prompt, ">");
    EXPECT(s, RUN(s, "txt2img", MODEL, "-p", prompt, "--prompt-syntax", "a1111", "--lora-dir", ".", "--json"), 2);
    json_t *event = json_loads(s->out, 0, NULL);
    const char *message = json_string_value(json_object_get(event, "message"));
    assert_non_null(message);
    expect_text(message, "\xe7\x8c\xab\xe7\x8c\xab?>: expected a number", "a cut tag");
    json_decref(event);
    EXPECT(s, RUN(s, "info", "\xe7\x8c\xab\xe7\x8c", "--json"), 1);
    expect_text(s->out, "\xe7\x8c\xab??: ", "a path");
}

static void test_lost_output_is_an_error(void **state)
{
    struct state *s = *state;
    char command[512];
    if (access("/dev/full", W_OK))
        skip();
    snprintf(command, sizeof(command), "'%s' devices > /dev/full 2> .err", s->tool);
    int status = system(command);
    assert_int_equal(WEXITSTATUS(status), 1);
    slurp(".err", s->err, sizeof(s->err));
    expect_text(s->err, "standard output", "devices > /dev/full");
}

/* Events of a closed standard output do not go into a file that is written. */
static void test_closed_streams(void **state)
{
    struct state *s = *state;
    char command[1024];
    for (int i = 0; i < 2; i++) {
        snprintf(command, sizeof(command), "'%s' convert %s %s events --folder <&- >&- 2>&-", s->tool, i ? "--json" : "-v", MODEL);
        int status = system(command);
        assert_int_equal(WEXITSTATUS(status), i ? 1 : 0);
        assert_int_equal(access("events", F_OK), i ? -1 : 0);
        assert_int_equal(system("rm -rf events"), 0);
    }
    assert_int_equal(files("."), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_wrong_usage),           TEST(test_help_and_version),
        TEST(test_errors_are_events_too), TEST(test_lost_output_is_an_error),
        TEST(test_closed_streams),        TEST(test_errors_cut_within_a_character),
    };
    return cmocka_run_group_tests_name("cli usage", tests, cli_setup, cli_teardown) + cli_input_tests() + cli_job_tests() +
           cli_graph_tests() + cli_conformance_tests() + cli_bench_tests() + cli_prompt_tests() + cli_from_tests() + cli_quantize_tests() +
           cli_output_tests();
}
