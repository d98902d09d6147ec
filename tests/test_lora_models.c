/* LoRAs for SDXL and SD 2: both text encoders, kohya's names with LDM's block numbers, strengths by block; a LoRA of the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "support.h"

#define XL "../lora-models/sdxl.safetensors"
#define XL_KOHYA "../lora-models/sdxl-kohya.safetensors"
#define XL_BLOCKS "../lora-models/sdxl-blocks.safetensors"
#define SD2 "../lora-models/sd2.safetensors"
#define SD2_KOHYA "../lora-models/sd2-kohya.safetensors"

static const struct tern_lora_strength blocks[] = {
    {"text_encoder", 0.25}, {"text_encoder_2", 1.5}, {"down.1", 0.5}, {"mid", 2}, {"up.0.0", 0.1}, {"up.0.1", -1},
};

/* The cases of tools/goldens/lora_models.py. */
static const struct lora_case xl_cases[] =
    {
        {"sdxl-0.7", {{XL, 0.7}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-0.7", {{XL_KOHYA, 0.7}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-0.7", {{XL_KOHYA, 0.5}, {XL, 0.2}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-blocks", {{XL_BLOCKS, 1, blocks, 6}}, {"unet", "text_encoder", "text_encoder_2"}},
},
                              sd2_cases[] = {
                                  {"sd2-0.7", {{SD2, 0.7}}, {"unet", "text_encoder"}},
                                  {"sd2-0.7", {{SD2_KOHYA, 0.7}}, {"unet", "text_encoder"}},
};

static void check(const char *model, const struct lora_case *cases, size_t n)
{
    char folder[PATH_SIZE];
    lora_wide_model(model, folder);
    lora_check_cases(folder, "lora-models", cases, n);
    damage_remove(folder);
}

static void sdxl_is_as_in_diffusers(void **state) { check("sdxl", xl_cases, sizeof(xl_cases) / sizeof(*xl_cases)); }

static void sd2_is_as_in_diffusers(void **state) { check("sd2", sd2_cases, sizeof(sd2_cases) / sizeof(*sd2_cases)); }

/* The second text encoder's outputs change with its LoRA and come back; it leaves memory between pictures and has the LoRA again. */
static void the_second_text_encoder_comes_back(void **state)
{
    char path[PATH_SIZE];
    int64_t n = 0;
    char *text = NULL;
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = model_load(ctx, model_path("sdxl", path));
    const struct tern_txt2img_params q = {.prompt = "a cat", .steps = 1, .cfg = 2};
    const struct tern_lora_strength second[] = {{"unet", 0}, {"text_encoder", 0}};
    const struct lora_spec lora[] = {{XL, 1, second, 2}};
    float *latents[5];
    for (int i = 0; i < 5; i++) {
        if (i == 1)
            lora_set(ctx, p, lora, 1);
        if (i == 3)
            lora_set(ctx, p, NULL, 0);
        latents[i] = lora_latents(ctx, p, &q, &n, &text);
        free(text);
    }
    assert_true(support_nmse(latents[1], latents[0], n) > 1e-5);
    assert_memory_equal(latents[1], latents[2], (size_t)n * sizeof(float));
    assert_memory_equal(latents[0], latents[3], (size_t)n * sizeof(float));
    assert_memory_equal(latents[0], latents[4], (size_t)n * sizeof(float));
    for (int i = 0; i < 5; i++)
        free(latents[i]);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void hundred_changes_leave_nothing(void **state)
{
    static const struct lora_spec all[] = {{XL, 1}, {XL_KOHYA, 1}, {XL_BLOCKS, 1}}, two[] = {{SD2, 1}, {SD2_KOHYA, 1}};
    char path[PATH_SIZE];
    lora_leaves_nothing(model_path("sdxl", path), all, 3, 100);
    lora_leaves_nothing(model_path("sd2", path), two, 2, 100);
}

/* Each on a model of another architecture: both are named. */
static void another_architecture_is_refused(void **state)
{
    static const struct {
        const char *model, *file, *parts[2];
    } cases[] = {
        {"sd1", "lora-models/sdxl.safetensors", {"a LoRA for Stable Diffusion XL", "this model is Stable Diffusion 1"}},
        {"sd1", "lora-models/sdxl-kohya.safetensors", {"a LoRA for Stable Diffusion XL", "this model is Stable Diffusion 1"}},
        {"sd2", "lora-models/sdxl-kohya.safetensors", {"a LoRA for Stable Diffusion XL", "this model is Stable Diffusion 2"}},
        {"sdxl", "lora/a.safetensors", {"a LoRA for Stable Diffusion 1 or 2", "this model is Stable Diffusion XL"}},
        {"sdxl", "lora/a-ldm.safetensors", {"a LoRA for Stable Diffusion 1 or 2", "this model is Stable Diffusion XL"}},
        {"sdxl", "lora-models/sd2-kohya.safetensors", {"a LoRA for Stable Diffusion 1 or 2", "this model is Stable Diffusion XL"}},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[PATH_SIZE], file[2 * PATH_SIZE];
        struct tern_context *ctx = support_context();
        struct tern_pipeline *p = model_load(ctx, model_path(cases[i].model, path));
        snprintf(file, sizeof(file), "%s/%s", TERN_TEST_DATA, cases[i].file);
        assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){.path = file, .scale = 1}, 1), TERN_E_FORMAT);
        for (int k = 0; k < 2; k++)
            if (!strstr(tern_error(ctx), cases[i].parts[k]))
                fail_msg("%s on %s: expected \"%s\" in: %s", cases[i].file, cases[i].model, cases[i].parts[k], tern_error(ctx));
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* Blocks that only the other model has. */
static void blocks_are_checked(void **state)
{
    static const struct {
        const char *model, *block;
    } cases[] = {{"sd1", "text_encoder_2"}, {"sdxl", "down.2"}, {"sdxl", "text_encoder_3"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char path[PATH_SIZE];
        struct tern_context *ctx = support_context();
        struct tern_pipeline *p = model_load(ctx, model_path(cases[i].model, path));
        const struct tern_lora_strength block = {cases[i].block, 1};
        assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){"x", 1, &block, 1}, 1), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, cases[i].block);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sdxl_is_as_in_diffusers),
        cmocka_unit_test(sd2_is_as_in_diffusers),
        cmocka_unit_test(the_second_text_encoder_comes_back),
        cmocka_unit_test(hundred_changes_leave_nothing),
        cmocka_unit_test(another_architecture_is_refused),
        cmocka_unit_test(blocks_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
