/* Infotexts: how they are split, against a reader in Python; what their fields mean; that a picture's own text repeats it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/infotext.h"
#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"
#include "support.h"
#include "xl_help.h"

#define FROM_A1111 "a (cat:1.2)\nNegative prompt: b\nSteps: 20, Sampler: "
#define FROM_TERN "a\nSteps: 3, Sampler: Euler, CFG scale: 7, Seed: 1, Size: 64x48, Model: m, RNG: CPU, Version: tern 0.1.0"

static const char *text_of(const json_t *row, const char *key) { return json_string_value(json_object_get(row, key)); }

static void check_split(struct tern_context *ctx, const json_t *row)
{
    struct tern_infotext_fields f;
    const char *text = text_of(row, "text"), *negative = text_of(row, "negative");
    const json_t *fields = json_object_get(row, "fields");
    assert_int_equal(tern_infotext_split(ctx, text, &f), TERN_OK);
    if (strcmp(f.prompt, text_of(row, "prompt")) || !f.negative != !negative || (negative && strcmp(f.negative, negative)))
        fail_msg("%s: prompts \"%s\", \"%s\"", text, f.prompt, f.negative ? f.negative : "none");
    if ((size_t)f.count != json_array_size(fields))
        fail_msg("%s: %d fields, expected %zu", text, f.count, json_array_size(fields));
    for (int i = 0; i < f.count; i++) {
        const json_t *pair = json_array_get(fields, (size_t)i);
        if (strcmp(f.field[i].name, json_string_value(json_array_get(pair, 0))) ||
            strcmp(f.field[i].value, json_string_value(json_array_get(pair, 1))))
            fail_msg("%s: \"%s\" is \"%s\"", text, f.field[i].name, f.field[i].value);
    }
    tern_infotext_fields_free(ctx, &f);
}

static void texts_are_split_as_the_reference_splits_them(void **state)
{
    json_t *all = support_json("infotext/cases.json");
    assert_true(json_array_size(all) >= 200);
    for (size_t i = 0; i < json_array_size(all); i++)
        check_split(*state, json_array_get(all, i));
    json_decref(all);
}

static struct tern_infotext read_text(struct tern_context *ctx, const char *text)
{
    struct tern_infotext t;
    if (tern_infotext_read(ctx, text, &t))
        fail_msg("%s: %s", text, tern_error(ctx));
    return t;
}

static void fields_become_parameters(void **state)
{
    struct tern_infotext t = read_text(
        *state, FROM_A1111
        "Euler a, Schedule type: Karras, CFG scale: 6.5, Seed: 18446744073709551615, Size: 512x768, Model hash: abc, "
        "Model: \"my, model\", Clip skip: 2, RNG: CPU, ENSD: -31337, Eta: 0, Sigma noise: 1.003, Emphasis: No norm, "
        "Pad conds: True, Denoising strength: 0.45, Hires sampler: DPM++ 2M, Hires schedule type: Automatic, Hires prompt: \"x, y\", "
        "Hires upscale: 2, Hires steps: 12, Hires upscaler: Latent (bicubic antialiased), Version: v1.9.4");
    const struct tern_txt2img_params *p = &t.params;
    assert_true(t.has_seed);
    assert_string_equal(p->prompt, "a (cat:1.2)");
    assert_string_equal(p->negative_prompt, "b");
    assert_int_equal(p->prompt_syntax, TERN_PROMPT_A1111);
    assert_int_equal(p->sampler, TERN_SAMPLER_EULER_A);
    assert_int_equal(p->schedule, TERN_SCHEDULE_KARRAS);
    assert_int_equal(p->steps, 20);
    assert_true(p->cfg == 6.5 && p->seed == UINT64_MAX && p->width == 512 && p->height == 768 && p->clip_skip == 2);
    assert_int_equal(p->generator, TERN_GENERATOR_CPU);
    assert_int_equal(p->emphasis, TERN_EMPHASIS_NO_NORM);
    assert_true(p->ensd == -31337 && p->sampler_options.eta == -1 && p->sampler_options.s_noise == 1.003);
    assert_string_equal(t.model, "my, model");
    assert_string_equal(t.loras, "");
    assert_string_equal(t.ignored, "Model hash: abc");
    assert_true(p->hires.hr_scale == 2 && p->hires.denoising_strength == 0.45 && p->strength == 0);
    assert_string_equal(p->hires.hr_upscaler, "Latent (bicubic antialiased)");
    assert_string_equal(p->hires.hr_prompt, "x, y");
    assert_true(p->hires.hr_second_pass_steps == 12 && p->hires.hr_sampler == TERN_SAMPLER_DPMPP_2M && !p->hires.hr_negative_prompt);
    assert_int_equal(p->hires.hr_schedule, TERN_SCHEDULE_NORMAL);
    tern_infotext_free(*state, &t);
    assert_null(t.params.prompt);
}

/* The sampler's name may have a schedule; A1111's own default steps through the noise levels evenly. */
static void schedules_follow_the_program(void **state)
{
    static const struct {
        const char *text;
        enum tern_sampler sampler;
        enum tern_schedule schedule;
    } rows[] = {
        {FROM_A1111 "DPM++ 2M Karras, Seed: 1", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_KARRAS},
        {FROM_A1111 "DPM++ 2M SDE Exponential, Seed: 1", TERN_SAMPLER_DPMPP_2M_SDE, TERN_SCHEDULE_EXPONENTIAL},
        {FROM_A1111 "DPM++ 2M, Schedule type: SGM Uniform, Seed: 1", TERN_SAMPLER_DPMPP_2M, TERN_SCHEDULE_SGM_UNIFORM},
        {FROM_A1111 "Euler, Schedule type: Automatic, Seed: 1", TERN_SAMPLER_EULER, TERN_SCHEDULE_NORMAL},
        {FROM_A1111 "Euler, Seed: 1", TERN_SAMPLER_EULER, TERN_SCHEDULE_NORMAL},
        {FROM_A1111 "DDIM, Seed: 1", TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT},
        {FROM_A1111 "UniPC, Seed: 1", TERN_SAMPLER_UNIPC, TERN_SCHEDULE_DEFAULT},
        {FROM_A1111 "DPM adaptive, Seed: 1", TERN_SAMPLER_DPM_ADAPTIVE, TERN_SCHEDULE_DEFAULT},
        {FROM_TERN, TERN_SAMPLER_EULER, TERN_SCHEDULE_DEFAULT},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_infotext t = read_text(*state, rows[i].text);
        if (t.params.sampler != rows[i].sampler || t.params.schedule != rows[i].schedule)
            fail_msg("%s: %s, %s", rows[i].text, tern_sampler_name(t.params.sampler), tern_schedule_name(t.params.schedule));
        tern_infotext_free(*state, &t);
    }
}

/* Which samplers have schedules is docs/models.md's; A1111 says one of DDIM and of LCM, too, and tells of unknown samplers. */
static void schedules_that_a_sampler_lacks_are_listed(void **state)
{
    static const struct {
        const char *fields, *ignored;
        enum tern_sampler sampler;
    } rows[] = {
        {"LCM, Schedule type: SGM Uniform", "Schedule type: SGM Uniform", TERN_SAMPLER_LCM},
        {"DDIM, Schedule type: Karras", "Schedule type: Karras", TERN_SAMPLER_DDIM},
        {"DDIM, Schedule type: Automatic", "", TERN_SAMPLER_DDIM},
        {"PLMS Karras, Seed: 1", "Sampler: PLMS Karras", TERN_SAMPLER_PNDM},
        {"Restart, Schedule type: Karras", "Sampler: Restart, Schedule type: Karras", TERN_SAMPLER_DEFAULT},
    };
    static const struct {
        const char *fields, *ignored;
        enum tern_sampler sampler;
        enum tern_schedule schedule;
    } second[] = {
        {"Euler, Hires sampler: LCM, Hires schedule type: Karras", "Hires schedule type: Karras", TERN_SAMPLER_LCM, TERN_SCHEDULE_DEFAULT},
        {"Euler, Hires sampler: LCM, Hires schedule type: Automatic", "", TERN_SAMPLER_LCM, TERN_SCHEDULE_DEFAULT},
        {"Euler, Hires sampler: DDIM Karras", "Hires sampler: DDIM Karras", TERN_SAMPLER_DDIM, TERN_SCHEDULE_DEFAULT},
        {"LCM, Hires schedule type: Karras", "Hires schedule type: Karras", TERN_SAMPLER_DEFAULT, TERN_SCHEDULE_DEFAULT},
        {"LCM, Hires sampler: Euler, Hires schedule type: Karras", "", TERN_SAMPLER_EULER, TERN_SCHEDULE_KARRAS},
        {"Euler, Hires schedule type: Karras", "", TERN_SAMPLER_DEFAULT, TERN_SCHEDULE_KARRAS},
    };
    char text[256];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        snprintf(text, sizeof(text), FROM_A1111 "%s, Size: 64x64", rows[i].fields);
        struct tern_infotext t = read_text(*state, text);
        assert_string_equal(t.ignored, rows[i].ignored);
        assert_int_equal(t.params.sampler, rows[i].sampler);
        assert_int_equal(t.params.schedule, TERN_SCHEDULE_DEFAULT);
        tern_infotext_free(*state, &t);
    }
    for (size_t i = 0; i < sizeof(second) / sizeof(*second); i++) {
        snprintf(text, sizeof(text), FROM_A1111 "%s, Hires upscale: 2", second[i].fields);
        struct tern_infotext t = read_text(*state, text);
        assert_string_equal(t.ignored, second[i].ignored);
        assert_int_equal(t.params.hires.hr_sampler, second[i].sampler);
        assert_int_equal(t.params.hires.hr_schedule, second[i].schedule);
        tern_infotext_free(*state, &t);
    }
}

static void syntax_and_noise_follow_the_program(void **state)
{
    static const struct {
        const char *text;
        enum tern_prompt_syntax syntax;
        enum tern_generator_kind generator;
        const char *prompt, *loras;
    } rows[] = {
        {FROM_A1111 "Euler, Seed: 1", TERN_PROMPT_A1111, TERN_GENERATOR_CUDA, "a (cat:1.2)", ""},
        {FROM_A1111 "Euler, RNG: NV", TERN_PROMPT_A1111, TERN_GENERATOR_CUDA, "a (cat:1.2)", ""},
        {FROM_A1111 "Euler, Prompt syntax: plain, LoRA tags: 1", TERN_PROMPT_A1111, TERN_GENERATOR_CUDA, "a (cat:1.2)", ""},
        {FROM_A1111 "Euler, Seed: 1, Version: v1.9.4", TERN_PROMPT_A1111, TERN_GENERATOR_CUDA, "a (cat:1.2)", ""},
        {FROM_A1111 "Euler, Seed: 1, Version: ComfyUI", TERN_PROMPT_A1111, TERN_GENERATOR_CPU, "a (cat:1.2)", ""},
        {FROM_A1111 "Euler, Seed: 1, Version: ComfyUi v0.3.1", TERN_PROMPT_A1111, TERN_GENERATOR_CPU, "a (cat:1.2)", ""},
        {FROM_A1111 "Euler, RNG: NV, Version: ComfyUI", TERN_PROMPT_A1111, TERN_GENERATOR_CUDA, "a (cat:1.2)", ""},
        {FROM_TERN, TERN_PROMPT_PLAIN, TERN_GENERATOR_CPU, "a", ""},
        {FROM_TERN ", Prompt syntax: a1111", TERN_PROMPT_A1111, TERN_GENERATOR_CPU, "a", ""},
        {"x <lora:a:1> <lora:b:1> <lora:c:0.5>\n" FROM_TERN, TERN_PROMPT_PLAIN, TERN_GENERATOR_CPU,
         "x <lora:a:1> <lora:b:1> <lora:c:0.5>\na", ""},
        {"<lora:a:1> <lora:b:1> <lora:c:0.5>\nSteps: 3, Seed: 1, Version: tern 0.1.0, LoRA tags: 2", TERN_PROMPT_PLAIN, TERN_GENERATOR_CPU,
         "<lora:a:1>", "<lora:b:1> <lora:c:0.5>"},
        {"<lora:a:1>\nSteps: 3, Seed: 1, Version: tern 0.1.0, LoRA tags: 9", TERN_PROMPT_PLAIN, TERN_GENERATOR_CPU, "", "<lora:a:1>"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_infotext t = read_text(*state, rows[i].text);
        if (t.params.prompt_syntax != rows[i].syntax || t.params.generator != rows[i].generator)
            fail_msg("%s: syntax %d, generator %d", rows[i].text, (int)t.params.prompt_syntax, (int)t.params.generator);
        assert_string_equal(t.params.prompt, rows[i].prompt);
        assert_string_equal(t.loras, rows[i].loras);
        tern_infotext_free(*state, &t);
    }
}

/* A1111 discards a noise level of some samplers unasked, of others when its text says so. */
static void levels_are_discarded_as_by_the_program(void **state)
{
    static const struct {
        const char *text;
        bool discards;
    } rows[] = {
        {FROM_A1111 "DPM2 Karras, Seed: 1", true},
        {FROM_A1111 "DPM2 a, Seed: 1", true},
        {FROM_A1111 "DPM++ 3M SDE, Seed: 1", true},
        {FROM_A1111 "Euler, Seed: 1", false},
        {FROM_A1111 "Euler, Discard penultimate sigma: True", true},
        {"a\nSteps: 3, Sampler: DPM2, Seed: 1, Version: tern 0.1.0", false},
        {"a\nSteps: 3, Sampler: DPM2, Discard penultimate sigma: True, Version: tern 0.1.0", true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_infotext t = read_text(*state, rows[i].text);
        if (t.params.sampler_options.discard_penultimate_sigma != rows[i].discards)
            fail_msg("%s", rows[i].text);
        tern_infotext_free(*state, &t);
    }
}

/* Values that cannot be followed are listed, and the default stays. */
static void odd_values_are_listed(void **state)
{
    static const char *const odd[] = {"Steps: 0",
                                      "Steps: 20 x",
                                      "Steps: 99999999999999999999",
                                      "Sampler: Restart",
                                      "Schedule type: Polyexponential",
                                      "CFG scale: nan",
                                      "CFG scale: 1e999",
                                      "CFG scale: -1",
                                      "Seed: -1",
                                      "Seed: 18446744073709551616",
                                      "Size: 512",
                                      "Size: 0x8",
                                      "Size: 99999x8",
                                      "Size: 8x8x8",
                                      "Clip skip: 0",
                                      "RNG: TPU",
                                      "ENSD: 1e5",
                                      "Emphasis: None",
                                      "Denoising strength: 0",
                                      "Denoising strength: 1.5",
                                      "Sigma churn: inf",
                                      "Eta: 11",
                                      "Eta DDIM: 1",
                                      "LoRA tags: 1",
                                      "SDXL original size: 0x0",
                                      "SDXL target size: 65537x1",
                                      "SDXL crop top: -1",
                                      "SDXL crop left: 1.5",
                                      "SDXL aesthetic score: inf",
                                      "SDXL negative aesthetic score: x",
                                      "Refiner switch at: 0.5",
                                      "Denoising end: 0.5",
                                      "Denoising start: 0.5",
                                      "Discard penultimate sigma: False",
                                      "K-diffusion levels: no",
                                      "Hires upscale: 0",
                                      "Hires resize: 0x0",
                                      "Hires resize: 9000x8",
                                      "Hires steps: 5",
                                      "Hires upscaler: Latent",
                                      "Hires sampler: Euler",
                                      "Hires schedule type: Karras",
                                      "Hires CFG Scale: 7",
                                      "Hires discard penultimate sigma: True",
                                      "Hires K-diffusion levels: True",
                                      "Hires prompt: x",
                                      "Hires negative prompt: x",
                                      "Prompt syntax: a1111",
                                      "Pad conds: perhaps"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        char text[256];
        snprintf(text, sizeof(text), "x\nA1: 1, B2: 2, Sampler: Euler, %s", odd[i]);
        struct tern_infotext t = read_text(*state, text);
        if (!strstr(t.ignored, odd[i]))
            fail_msg("%s: not followed: %s", odd[i], t.ignored);
        const struct tern_txt2img_params *p = &t.params;
        assert_true(!p->hires.hr_scale && !p->hires.hr_resize_x && !p->hires.hr_second_pass_steps && !p->hires.hr_sampler);
        assert_true(!p->hires.hr_prompt && !p->hires.hr_negative_prompt);
        assert_true(!t.has_seed && !p->steps && !p->cfg && !p->seed && !p->width && !p->height && !p->clip_skip && !p->ensd &&
                    !p->strength);
        tern_infotext_free(*state, &t);
    }
}

/* Endings are those of weight files: folders have dots, too. */
static void models_have_names(void **state)
{
    static const char *const names[][2] = {{"/m/sd-v1.4", "sd-v1.4"}, {"sd-v1.5/", "sd-v1.5"}, {"a/b.safetensors", "b"},
                                           {"b.fp16.ckpt", "b.fp16"}, {"/m/.ckpt", ".ckpt"},   {"plain", "plain"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *name = tern_model_name(*state, names[i][0]);
        assert_string_equal(name, names[i][1]);
        tern_free(*state, name);
    }
}

static void bad_texts_are_refused(void **state)
{
    struct tern_infotext t;
    assert_int_equal(tern_infotext_read(*state, "just a prompt", &t), TERN_E_FORMAT);
    support_error(*state, TERN_E_FORMAT, "expected a last line");
    assert_int_equal(tern_infotext_read(*state, "", &t), TERN_E_FORMAT);
    support_error(*state, TERN_E_FORMAT, "found none");
    assert_int_equal(tern_infotext_read(*state, NULL, &t), TERN_E_INVALID);
    support_error(*state, TERN_E_INVALID, "NULL");
    assert_int_equal(tern_infotext_read(*state, "a \xff", &t), TERN_E_INVALID);
    support_error(*state, TERN_E_INVALID, "infotext: not valid UTF-8 at byte 2");
    assert_int_equal(tern_infotext_read(*state, "\xf0", &t), TERN_E_INVALID);
    support_error(*state, TERN_E_INVALID, "not valid UTF-8 at byte 0");
}

/* A million fields, in a list of bounded length. */
static void a_long_text_is_read(void **state)
{
    enum { FIELDS = 1 << 18, FIELD = 8 };
    char *text = malloc(FIELDS * FIELD + 1);
    assert_non_null(text);
    for (int i = 0; i < FIELDS; i++)
        memcpy(text + i * FIELD, "ab: \x1b[m,", FIELD);
    text[FIELDS * FIELD] = 0;
    struct tern_infotext t = read_text(*state, text);
    assert_true(strlen(t.ignored) < 8192);
    assert_null(strchr(t.ignored, '\x1b'));
    tern_infotext_free(*state, &t);
    free(text);
}

static void allocations_may_fail(void **state)
{
    (void)state;
    for (long n = 1, done = 0; !done; n++) {
        struct support_allocator a = {0};
        struct tern_allocator allocator = support_failing(&a);
        struct tern_context *ctx =
            tern_context_create(&(struct tern_context_params){.device = "cpu", .threads = 1, .allocator = allocator});
        assert_non_null(ctx);
        struct tern_infotext t;
        a.fail_at = a.count + n;
        enum tern_status st = tern_infotext_read(
            ctx,
            FROM_A1111
            "Euler, Model: \"a, b\", Hash: 1, Hires resize: 8x0, Hires prompt: c, Hires negative prompt: d, Refiner: e, VAE: f\n",
            &t);
        a.fail_at = 0;
        done = st == TERN_OK;
        if (done)
            tern_infotext_free(ctx, &t);
        else
            assert_int_equal(st, TERN_E_NO_MEMORY);
        tern_context_destroy(&ctx);
        assert_int_equal(a.live, 0);
    }
}

/* Paints, reads the picture's own text, paints by that alone. */
static void repeat(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    struct tern_images *first = job_run(ctx, p, params);
    const char *text = tern_image_text(tern_images_at(first, 0), "parameters");
    struct tern_infotext t = read_text(ctx, text);
    assert_string_equal(t.ignored, "");
    assert_int_equal(t.params.sampler_options.k_diffusion_levels, params->sampler_options.k_diffusion_levels);
    struct tern_images *second = job_run(ctx, p, &t.params);
    assert_string_equal(tern_image_text(tern_images_at(second, 0), "parameters"), text);
    if (!job_same(first, 0, second))
        fail_msg("another picture: %s", text);
    tern_images_destroy(&first);
    tern_images_destroy(&second);
    tern_infotext_free(ctx, &t);
}

static void pictures_are_repeated(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = {.prompt = "a (cat:1.4), Steps: 3", .width = 48, .height = 40, .steps = 3, .seed = 7, .cfg = 6.1234567};
    for (int s = TERN_SAMPLER_DEFAULT; s < TERN_SAMPLER_COUNT; s++) {
        q.sampler = (enum tern_sampler)s;
        repeat(ctx, p, &q);
    }
    q.negative_prompt = "a dog\nand [a cat]";
    q.prompt_syntax = TERN_PROMPT_A1111;
    q.emphasis = TERN_EMPHASIS_NO_NORM;
    q.clip_skip = 2;
    q.generator = TERN_GENERATOR_CUDA;
    q.sampler = TERN_SAMPLER_EULER_A;
    q.sampler_options = (struct tern_sampler_options){.eta = 1.0 / 3, .s_noise = 1.0000001};
    q.ensd = 31337;
    for (int s = TERN_SCHEDULE_DEFAULT; s < TERN_SCHEDULE_COUNT; s++) {
        q.schedule = (enum tern_schedule)s;
        repeat(ctx, p, &q);
    }
    q.sampler = TERN_SAMPLER_HEUN;
    q.sampler_options = (struct tern_sampler_options){.s_churn = 0.3, .s_tmin = 0.1, .s_tmax = 10};
    repeat(ctx, p, &q);
    q.sampler_options = (struct tern_sampler_options){.discard_penultimate_sigma = true};
    repeat(ctx, p, &q);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Both passes by one text. What is said of the second alone stands there, what is as in the first does not. */
static void second_passes_are_repeated(void **state)
{
    (void)state;
    static const struct tern_hires rows[] = {
        {.hr_scale = 1.5},
        {.hr_scale = 4.0 / 3, .hr_upscaler = "latent-nearest-exact", .hr_second_pass_steps = 2, .denoising_strength = 0.123456789},
        {.hr_resize_x = 80, .hr_resize_y = 56, .hr_prompt = "a \"dog\", Steps: 3\n(b)", .hr_cfg = 1.0 / 3 + 1},
        {.hr_resize_y = 64, .hr_negative_prompt = "x", .hr_sampler = TERN_SAMPLER_DPMPP_2M, .hr_schedule = TERN_SCHEDULE_BETA},
        {.hr_scale = 1.2, .hr_sampler = TERN_SAMPLER_DDIM, .denoising_strength = 1},
    };
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    struct tern_txt2img_params q = {
        .prompt = "a (cat:1.4)", .width = 48, .height = 40, .steps = 3, .seed = 7, .schedule = TERN_SCHEDULE_KARRAS};
    q.sampler = TERN_SAMPLER_EULER_A;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        q.hires = rows[i / 2];
        q.prompt_syntax = i % 2 ? TERN_PROMPT_A1111 : TERN_PROMPT_PLAIN;
        repeat(ctx, p, &q);
    }
    q.hires = rows[1];
    struct tern_images *images = job_run(ctx, p, &q);
    const char *text = tern_image_text(tern_images_at(images, 0), "parameters"),
               *part =
                   "Size: 48x40, Model: sd1, RNG: CPU, Denoising strength: 0.123456789, Hires upscale: 1.3333333333333333, Hires steps: 2, "
                   "Hires upscaler: Latent (nearest-exact), Version: tern";
    if (!strstr(text, part) || strstr(text, "Hires sampler") || strstr(text, "Hires prompt"))
        fail_msg("\"%s\": expected \"%s\"", text, part);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* The second pass goes by its own sampler, as A1111's get_sigmas does: when the text says it of all, or when the sampler always does. */
static void second_passes_go_by_their_sampler(void **state)
{
    static const struct {
        const char *fields;
        enum tern_schedule schedule, second;
        bool discards, second_discards;
    } rows[] = {
        {"DPM2, Hires sampler: Euler", TERN_SCHEDULE_NORMAL, TERN_SCHEDULE_NORMAL, true, false},
        {"Euler, Hires sampler: DPM2 a", TERN_SCHEDULE_NORMAL, TERN_SCHEDULE_NORMAL, false, true},
        {"DPM2 Karras, Hires sampler: DPM++ 3M SDE", TERN_SCHEDULE_KARRAS, TERN_SCHEDULE_KARRAS, true, true},
        {"DPM2 Karras, Seed: 1", TERN_SCHEDULE_KARRAS, TERN_SCHEDULE_KARRAS, true, true},
        {"DPM2, Discard penultimate sigma: True, Hires sampler: Heun", TERN_SCHEDULE_NORMAL, TERN_SCHEDULE_NORMAL, true, true},
        {"DPM2, Hires sampler: DDIM", TERN_SCHEDULE_NORMAL, TERN_SCHEDULE_DEFAULT, true, false},
        {"DDIM, Hires sampler: DPM2", TERN_SCHEDULE_DEFAULT, TERN_SCHEDULE_NORMAL, false, true},
    };
    char path[PATH_SIZE], text[256];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_job j;
        snprintf(text, sizeof(text), "a\nSteps: 4, Size: 24x16, Hires upscale: 1.5, Sampler: %s", rows[i].fields);
        struct tern_infotext t = read_text(ctx, text);
        assert_string_equal(t.ignored, "");
        if (tern_job_prepare(&j, p, &t.params))
            fail_msg("%s: %s", text, tern_error(ctx));
        const struct tern_scheduler *a = j.scheduler, *b = j.hires->scheduler;
        assert_int_equal(a->options.k_diffusion_levels, a->fns->has_schedules);
        assert_int_equal(b->options.k_diffusion_levels, b->fns->has_schedules);
        if (a->schedule != rows[i].schedule || b->schedule != rows[i].second || a->options.discard_penultimate_sigma != rows[i].discards ||
            b->options.discard_penultimate_sigma != rows[i].second_discards)
            fail_msg("%s: %d %d, %d %d", text, (int)a->schedule, (int)b->schedule, a->options.discard_penultimate_sigma,
                     b->options.discard_penultimate_sigma);
        tern_job_destroy(&j);
        repeat(ctx, p, &t.params); /* by tern's text, which says all that */
        tern_infotext_free(ctx, &t);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Options that the first pass does not have, or that are its defaults, count in the second. */
static void options_of_second_passes_are_repeated(void **state)
{
    (void)state;
    static const struct {
        enum tern_sampler sampler, hr_sampler;
        double eta;
        int64_t ensd;
    } rows[] = {
        {TERN_SAMPLER_EULER, TERN_SAMPLER_EULER_A, 0, 31337},
        {TERN_SAMPLER_TCD, TERN_SAMPLER_EULER_A, 0.3, 0},
        {TERN_SAMPLER_EULER_A, TERN_SAMPLER_TCD, 1, 0},
        {TERN_SAMPLER_TCD, TERN_SAMPLER_EULER_A, 0, 0}, /* each has its own */
    };
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", path));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_txt2img_params q = {.prompt = "a cat", .width = 24, .height = 16, .steps = 2, .seed = 7, .sampler = rows[i].sampler};
        q.hires = (struct tern_hires){.hr_scale = 1.5, .hr_sampler = rows[i].hr_sampler};
        q.sampler_options.eta = rows[i].eta;
        q.ensd = rows[i].ensd;
        repeat(ctx, p, &q);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* What SDXL was told, and a part of the steps. */
static void conditions_of_sdxl_are_repeated(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sdxl", path));
    struct tern_txt2img_params q = {.prompt = "a cat", .width = 64, .height = 64, .steps = 4, .seed = 7, .original_size = {512, 384}};
    q.target_size[0] = q.target_size[1] = 65536;
    q.crops_coords_top_left[1] = 33;
    q.denoising_end = 1.0 / 3;
    repeat(ctx, p, &q);
    struct tern_images *images = job_run(ctx, p, &q);
    const char *text = tern_image_text(tern_images_at(images, 0), "parameters"),
               *part = "RNG: CPU, SDXL original size: 384x512, SDXL target size: 65536x65536, SDXL crop left: 33, Denoising end: "
                       "0.3333333333333333, Version";
    if (!strstr(text, part))
        fail_msg("\"%s\": expected \"%s\"", text, part);
    tern_images_destroy(&images);
    q = (struct tern_txt2img_params){.prompt = "a cat", .width = 24, .height = 16, .steps = 2, .original_size = {0, 640}};
    q.hires.hr_scale = 1.5; /* the other side is that of each pass */
    repeat(ctx, p, &q);
    tern_pipeline_destroy(&p);
    xl_folder(ctx, "sdxl-refiner", path);
    p = model_load(ctx, path);
    q = (struct tern_txt2img_params){.prompt = "a cat", .width = 64, .height = 64, .steps = 2, .aesthetic_score = -1.5};
    q.negative_aesthetic_score = 1e-7;
    q.crops_coords_top_left[0] = 1;
    repeat(ctx, p, &q);
    tern_pipeline_destroy(&p);
    damage_remove(path);
    tern_context_destroy(&ctx);
}

/* A refiner's scores are its own; a VAE and textual inversions are told by name. */
static void other_models_are_told(void **state)
{
    struct tern_infotext t =
        read_text(*state,
                  FROM_A1111 "Euler, Model: base, VAE hash: 1, VAE: a.pt, Refiner: r [0123456789], Refiner switch at: "
                             "0.7, SDXL aesthetic score: 7, SDXL negative aesthetic score: 0, TI hashes: \"a: 12, b: 34\", Version: v1");
    assert_string_equal(t.params.refiner.name, "r [0123456789]");
    assert_true(t.params.denoising_end == 0.7 && t.params.refiner.aesthetic_score == 7 && t.params.aesthetic_score == 0);
    assert_true(t.params.refiner.negative_aesthetic_score == TERN_SCORE_ZERO);
    assert_string_equal(t.vae, "a.pt");
    assert_string_equal(t.embeddings, "a: 12, b: 34");
    assert_string_equal(t.ignored, "VAE hash: 1");
    tern_infotext_free(*state, &t);
    assert_null(t.params.refiner.name);
}

/* SDXL: an empty negative prompt is a text, none is zeros. */
static void an_empty_negative_prompt_is_kept(void **state)
{
    (void)state;
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, model_path("sdxl", path));
    struct tern_txt2img_params q = {.prompt = "a cat", .width = 64, .height = 64, .steps = 2, .seed = 7};
    repeat(ctx, p, &q);
    q.negative_prompt = "";
    repeat(ctx, p, &q);
    q.cfg = 1; /* it counts in the second pass alone */
    q.hires = (struct tern_hires){.hr_scale = 1.5, .hr_cfg = 7};
    repeat(ctx, p, &q);
    q.cfg = 5;
    q.negative_prompt = NULL;
    q.hires.hr_negative_prompt = "a dog"; /* a text there makes none here */
    repeat(ctx, p, &q);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_split_as_the_reference_splits_them),
        cmocka_unit_test(fields_become_parameters),
        cmocka_unit_test(schedules_follow_the_program),
        cmocka_unit_test(schedules_that_a_sampler_lacks_are_listed),
        cmocka_unit_test(syntax_and_noise_follow_the_program),
        cmocka_unit_test(levels_are_discarded_as_by_the_program),
        cmocka_unit_test(odd_values_are_listed),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(a_long_text_is_read),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(pictures_are_repeated),
        cmocka_unit_test(second_passes_are_repeated),
        cmocka_unit_test(second_passes_go_by_their_sampler),
        cmocka_unit_test(options_of_second_passes_are_repeated),
        cmocka_unit_test(conditions_of_sdxl_are_repeated),
        cmocka_unit_test(models_have_names),
        cmocka_unit_test(other_models_are_told),
        cmocka_unit_test(an_empty_negative_prompt_is_kept),
    };
    return cmocka_run_group_tests(tests, support_setup, support_teardown);
}
