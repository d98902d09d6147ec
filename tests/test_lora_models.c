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
#include "models/pipelines/pipeline.h"
#include "support.h"

#define XL "../lora-models/sdxl.safetensors"
#define XL_KOHYA "../lora-models/sdxl-kohya.safetensors"
#define XL_BLOCKS "../lora-models/sdxl-blocks.safetensors"
#define SD2 "../lora-models/sd2.safetensors"
#define SD2_KOHYA "../lora-models/sd2-kohya.safetensors"

static const struct tern_lora_strength blocks[] = {
    {"text_encoder", 0.25}, {"text_encoder_2", 1.5}, {"down.1", 0.5}, {"mid", 2}, {"up.0.0", 0.1}, {"up.0.1", -1},
};
static const struct tern_lora_strength encoders[] = {{"text_encoders", 0.7}, {"unet", 0.7}};
/* `blocks`: one encoder counts more than all. */
static const struct tern_lora_strength blocks_of_all[] = {
    {"text_encoder", 0.25}, {"text_encoders", 1.5}, {"down.1", 0.5}, {"mid", 2}, {"up.0.0", 0.1}, {"up.0.1", -1},
};

/* The cases of tools/goldens/lora_models.py. */
static const struct lora_case xl_cases[] =
    {
        {"sdxl-0.7", {{XL, 0.7}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-0.7", {{XL_KOHYA, 0.7}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-0.7", {{XL_KOHYA, 0.5}, {XL, 0.2}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-0.7", {{XL, 1, encoders, 2}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-blocks", {{XL_BLOCKS, 1, blocks, 6}}, {"unet", "text_encoder", "text_encoder_2"}},
        {"sdxl-blocks", {{XL_BLOCKS, 1, blocks_of_all, 6}}, {"unet", "text_encoder", "text_encoder_2"}},
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

/* A file with the beginnings of its tensors' names exchanged (NULL: left out), kohya's endings in the place of PEFT's, and no header. */
static void rename_tensors(struct tern_context *ctx, const char *from, const char *to, const char *const names[][2], size_t n)
{
    struct tern_weights *old = tern_weights_open(ctx, from), *w = tern_weights_create(ctx);
    assert_non_null(old);
    for (int64_t i = 0; i < tern_weights_count(old); i++) {
        char name[256] = "";
        const char *is = tern_weights_name(old, i), *end = strstr(is, ".lora_");
        size_t k = 0;
        while (k < n && strncmp(is, names[k][0], strlen(names[k][0])))
            k++;
        assert_true(k < n && end);
        if (!names[k][1])
            continue;
        is += strlen(names[k][0]);
        snprintf(name, sizeof(name), "%s%.*s.lora_%s.weight", names[k][1], (int)(end - is), is, end[6] == 'A' ? "down" : "up");
        assert_int_equal(tern_weights_add(w, name, tern_weights_at(old, i)), TERN_OK);
    }
    assert_int_equal(tern_weights_save(w, to), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&old);
}

/* The names that ComfyUI, LyCORIS and PEFT give by themselves, PEFT for one model alone: what the file does is the same. alpha is 3, the
 * rank 2. */
static void other_names_are_known(void **state)
{
    static const struct {
        const char *model, *names[3][2], *components[3], *golden;
    } cases[] = {
        {"sdxl",
         {{"text_encoder.", "text_encoders.clip_l.transformer."},
          {"text_encoder_2.", "text_encoders.clip_g.transformer."},
          {"unet.", "lycoris_"}},
         {"unet", "text_encoder", "text_encoder_2"},
         "sdxl-0.7"},
        {"sdxl", {{"text_encoder.", NULL}, {"text_encoder_2.", "base_model.model."}, {"unet.", NULL}}, {"text_encoder_2"}, "sdxl-0.7"},
        {"sdxl", {{"text_encoder.", "base_model.model."}, {"text_encoder_2.", NULL}, {"unet.", NULL}}, {"text_encoder"}, "sdxl-0.7"},
        {"sd2",
         {{"text_encoder.", "text_encoders.clip_h.transformer."}, {"unet.", "diffusion_model."}, {"?", ""}},
         {"unet", "text_encoder"},
         "sd2-0.7"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char model[PATH_SIZE], folder[PATH_SIZE], from[PATH_SIZE], file[2 * PATH_SIZE];
        struct tern_context *ctx = support_context();
        lora_wide_model(cases[i].model, model);
        lora_temporary(folder);
        snprintf(from, sizeof(from), "%s/lora-models/%s.safetensors", TERN_TEST_DATA, cases[i].model);
        snprintf(file, sizeof(file), "%s/renamed.safetensors", folder);
        rename_tensors(ctx, from, file, cases[i].names, 3);
        struct tern_pipeline *p = model_load(ctx, model);
        if (tern_pipeline_set_loras(p, &(struct tern_lora){.path = file, .scale = 0.7 * 3 / 2}, 1))
            fail_msg("%s: %s", cases[i].model, tern_error(ctx));
        for (int k = 0; k < 3 && cases[i].components[k]; k++)
            assert_true(lora_error(ctx, p, "lora-models", cases[i].components[k], cases[i].golden) <= LORA_LIMIT);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
        damage_remove(folder);
        damage_remove(model);
    }
}

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

/* What the UNet takes when it comes again is known with the LoRAs that it was given while it was there, and without those that it lost. */
static void predictions_follow_loras(void **state)
{
    char path[PATH_SIZE];
    int64_t n = 0;
    char *text = NULL;
    struct tern_context *ctx = support_context();
    const struct tern_pipeline_params params = {.offload = TERN_OFFLOAD_SEQUENTIAL};
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sdxl", path), &params);
    const struct tern_txt2img_params q = {.prompt = "a cat", .steps = 1, .cfg = 2};
    const struct lora_spec lora[] = {{XL, 1}};
    const size_t plain = p->unet_part.module;
    for (int i = 0; i < 2; i++) {
        lora_set(ctx, p, i ? NULL : lora, !i);
        const size_t told = p->unet_part.module;
        assert_true(i ? told < 2 * plain : told >= plain + tern_part_derived_bytes(&p->unet_part) + 4096);
        free(lora_latents(ctx, p, &q, &n, &text)); /* it leaves */
        free(text);
        free(lora_latents(ctx, p, &q, &n, &text)); /* and was made anew */
        free(text);
        assert_in_range(p->unet_part.module, told / 2, told);
        assert_non_null(tern_pipeline_unet(p)); /* for what is set next */
    }
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
        cmocka_unit_test(sdxl_is_as_in_diffusers),         cmocka_unit_test(sd2_is_as_in_diffusers),
        cmocka_unit_test(other_names_are_known),           cmocka_unit_test(the_second_text_encoder_comes_back),
        cmocka_unit_test(predictions_follow_loras),        cmocka_unit_test(hundred_changes_leave_nothing),
        cmocka_unit_test(another_architecture_is_refused), cmocka_unit_test(blocks_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
