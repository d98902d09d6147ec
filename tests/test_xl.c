/* Stable Diffusion XL beyond txt2img: inpainting, the refiner, sizes and scores, two stages, distilled models; against diffusers. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/context.h"
#include "damage.h"
#include "job_cases.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "ops/dispatch.h"
#include "support.h"
#include "xl_help.h"

struct model {
    char folder[PATH_SIZE];
    struct tern_pipeline *p;
};

static struct model open_model(struct tern_context *ctx, const char *name)
{
    struct model m;
    xl_folder(ctx, name, m.folder);
    m.p = model_load(ctx, m.folder);
    return m;
}

static void close_model(struct model *m)
{
    tern_pipeline_destroy(&m->p);
    damage_remove(m->folder);
}

/* ---- networks */

static double component_error(const char *model, const char *name, bool reference)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 2);
    if (reference)
        assert_int_equal(tern_dispatch_force(ctx, "reference"), TERN_OK);
    struct model m = open_model(ctx, model);
    snprintf(path, sizeof(path), XL_DATA "%s/components/%s.safetensors", model, name);
    struct golden g = golden_open(ctx, path);
    double e = golden_error(m.p, "unet", &g, name);
    golden_close(&g);
    close_model(&m);
    tern_context_destroy(&ctx);
    return e;
}

static void networks_agree(void **state)
{
    static const char *const models[] = {"sdxl-inpaint", "sdxl-refiner"}, *const names[] = {"unet.square", "unet.odd-13x9"};
    for (int i = 0; i < 8; i++) {
        double e = component_error(models[i & 1], names[i >> 1 & 1], i >> 2);
        if (!(e <= 1e-8))
            fail_msg("%s %s: NMSE %g", models[i & 1], names[i >> 1 & 1], e);
    }
}

/* ---- pictures */

static void model_agrees(void **state)
{
    static const struct {
        const char *name;
        int cases;
    } models[] = {{"sdxl", 8}, {"sdxl-inpaint", 3}, {"sdxl-refiner", 8}, {"sdxl-turbo", 3}, {"sdxl-lightning", 1}};
    size_t i;
    json_t *rows = support_json("xl/cases.json"), *row;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_weights *latents = support_tensors(ctx, "xl/latents"), *pictures = support_tensors(ctx, "xl/pictures");
    struct job_worst w = {0};
    for (int m = 0; m < 5; m++) {
        struct model x = open_model(ctx, models[m].name);
        w.cases = 0;
        json_array_foreach(rows, i, row) {
            struct job_case c = job_case_read(ctx, row, "pipelines");
            const char *first = json_string_value(json_object_get(row, "latents"));
            c.params.cfg = c.params.cfg > 0 ? c.params.cfg : 1; /* to the library 0 is the default; all up to 1 is no guidance */
            if (first)
                c.params.init_latents = tern_weights_get(latents, first);
            if (!strcmp(c.model, models[m].name))
                job_check_case(ctx, x.p, &c, latents, pictures, &w);
            job_case_close(&c);
        }
        assert_int_equal(w.cases, models[m].cases);
        close_model(&x);
    }
    job_print_worst(&w);
    tern_weights_unref(&latents);
    tern_weights_unref(&pictures);
    tern_context_destroy(&ctx);
    json_decref(rows);
}

/* What negative rows are told: each of diffusers' pipelines has its own way. */
static void negative_sizes_agree(void **state)
{
    static const char *const models[] = {"sdxl", "sdxl-refiner"};
    size_t i;
    json_t *rows = support_json("xl-negative/cases.json"), *row;
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_weights *latents = support_tensors(ctx, "xl-negative/latents");
    struct job_worst w = {0};
    for (int m = 0; m < 2; m++) {
        struct model x = open_model(ctx, models[m]);
        json_array_foreach(rows, i, row) {
            struct job_case c = job_case_read(ctx, row, "pipelines");
            if (!strcmp(c.model, models[m]))
                job_check_case(ctx, x.p, &c, latents, NULL, &w);
            job_case_close(&c);
        }
        close_model(&x);
    }
    assert_int_equal(w.cases, 6);
    job_print_worst(&w);
    tern_weights_unref(&latents);
    tern_context_destroy(&ctx);
    json_decref(rows);
}

/* ---- what is refused, and what is told */

static void refused(struct tern_context *ctx, struct tern_pipeline *p, struct tern_txt2img_params q, const char *text)
{
    q.width = q.height = 40;
    assert_null(tern_generate(p, &q));
    support_error(ctx, TERN_E_INVALID, text);
}

static void what_a_model_is_not_told_is_refused(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    char path[PATH_SIZE];
    struct model base = open_model(ctx, "sdxl"), refiner = open_model(ctx, "sdxl-refiner");
    struct tern_pipeline *sd1 = model_load(ctx, model_path("sd1", path));
    refused(ctx, base.p, tern_txt2img_params(.aesthetic_score = 6), "aesthetic_score: tern-model");
    refused(ctx, refiner.p, tern_txt2img_params(.target_size = {64, 64}), "target_size: tern-model");
    refused(ctx, sd1, tern_txt2img_params(.original_size = {64, 64}), "original_size: sd1 is not told that");
    refused(ctx, sd1, tern_txt2img_params(.crops_coords_top_left = {0, 8}), "crops_coords_top_left: sd1 is not told that");
    refused(ctx, base.p, tern_txt2img_params(.original_size = {-1, 64}), "original_size: expected 0..65536, found -1, 64");
    refused(ctx, base.p, tern_txt2img_params(.target_size = {64, 65537}), "target_size: expected 0..65536");
    refused(ctx, refiner.p, tern_txt2img_params(.negative_aesthetic_score = 0.0 / 0.0), "aesthetic_score: expected a number");
    close_model(&base);
    close_model(&refiner);
    tern_pipeline_destroy(&sd1);
    tern_context_destroy(&ctx);
}

static void negative_sizes_that_would_not_count_are_refused(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    char path[PATH_SIZE];
    struct model base = open_model(ctx, "sdxl"), refiner = open_model(ctx, "sdxl-refiner");
    struct tern_pipeline *sd1 = model_load(ctx, model_path("sd1", path));
    struct tern_image *picture = tern_image_create(ctx, 40, 40, NULL);
    tern_tensor *latents = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 4, 5, 5}, NULL);
    struct tern_txt2img_params crop = {.negative_crops_coords_top_left = {8, 8}};
    refused(ctx, sd1, tern_txt2img_params(.negative_original_size = {8, 8}), "negative_original_size: sd1 is not told that");
    refused(ctx, sd1, crop, "negative_crops_coords_top_left: sd1 is not told that");
    refused(ctx, refiner.p, tern_txt2img_params(.negative_target_size = {8, 8}), "negative_target_size: tern-model");
    refused(ctx, base.p, tern_txt2img_params(.negative_original_size = {8, 8}), "negative_original_size: txt2img expects");
    refused(ctx, base.p, tern_txt2img_params(.negative_target_size = {8, 8}), "negative_target_size: txt2img expects");
    refused(ctx, base.p, crop, "negative_crops_coords_top_left: txt2img expects");
    refused(ctx, base.p, tern_txt2img_params(.negative_target_size = {8, 70000}), "negative_target_size: expected 0..65536");
    refused(ctx, base.p, tern_txt2img_params(.negative_original_size = {-1, 8}), "negative_original_size: expected 0..65536");
    crop.init_image = picture;
    refused(ctx, base.p, crop, "negative_crops_coords_top_left: counts in txt2img and in refiners");
    crop.init_image = NULL;
    crop.init_latents = latents;
    crop.denoising_start = 0.5;
    refused(ctx, base.p, crop, "negative_crops_coords_top_left: counts in txt2img and in refiners");
    tern_tensor_unref(&latents);
    tern_image_destroy(&picture);
    close_model(&base);
    close_model(&refiner);
    tern_pipeline_destroy(&sd1);
    tern_context_destroy(&ctx);
}

static void stages_that_leave_nothing_are_refused(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct model m = open_model(ctx, "sdxl-refiner");
    tern_tensor *latents = tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 4, 5, 5}, NULL);
    refused(ctx, m.p, tern_txt2img_params(.denoising_start = 0.5), "denoising_start: expected the latents of the first model");
    refused(ctx, m.p, tern_txt2img_params(.denoising_start = 1, .init_latents = latents), "above 0 and below 1, found 1 and 0");
    refused(ctx, m.p, tern_txt2img_params(.denoising_end = -0.5), "above 0 and below 1");
    refused(ctx, m.p, tern_txt2img_params(.denoising_end = 0.0 / 0.0), "above 0 and below 1");
    refused(ctx, m.p, tern_txt2img_params(.denoising_start = 0.5, .denoising_end = 0.5, .init_latents = latents), "leaves nothing to do");
    refused(ctx, m.p, tern_txt2img_params(.denoising_end = 0.001, .steps = 2), "leave no step to do");
    refused(ctx, m.p, tern_txt2img_params(.denoising_end = 0.5, .sampler = TERN_SAMPLER_DPM_ADAPTIVE), "dpm_adaptive lays its steps");
    tern_tensor_unref(&latents);
    close_model(&m);
    tern_context_destroy(&ctx);
}

/* Bytes of a job's peak: as predicted, or less, but not by far. */
static void check_prediction(const char *model, enum tern_offload offload, bool keep)
{
    struct tern_context *ctx = model_context(NULL, 2);
    struct model m;
    size_t predicted = 0;
    xl_folder(ctx, model, m.folder);
    m.p = tern_pipeline_load(ctx, m.folder, &(struct tern_pipeline_params){.offload = offload, .keep_text_encoder = keep});
    struct tern_image *picture = tern_image_create(ctx, 96, 72, NULL);
    struct tern_txt2img_params q = {.prompt = "x", .width = 96, .height = 72, .steps = 3, .seed = 1, .strength = 1, .init_image = picture};
    q.mask_image = strcmp(model, "sdxl-refiner") ? picture : NULL;
    tern_memory_trim(ctx);
    tern_memory_reset_peak(ctx);
    assert_int_equal(tern_generate_check(m.p, &q, &predicted), TERN_OK);
    struct tern_images *images = job_run(ctx, m.p, &q);
    double ratio = (double)predicted / (double)tern_memory_peak(ctx);
    if (!(ratio >= 1 && ratio <= 1.6))
        fail_msg("%s: predicted %zu bytes, measured %zu", model, predicted, tern_memory_peak(ctx));
    tern_images_destroy(&images);
    tern_image_destroy(&picture);
    close_model(&m);
    tern_context_destroy(&ctx);
}

static void predictions_hold(void **state)
{
    static const char *const models[] = {"sdxl", "sdxl-inpaint", "sdxl-refiner"};
    for (int i = 0; i < 12; i++)
        check_prediction(models[i % 3], i / 3 & 1 ? TERN_OFFLOAD_SEQUENTIAL : TERN_OFFLOAD_NONE, i / 6);
}

/* A prompt without brackets is the same text in both syntaxes; a refiner has no first text encoder. */
static void a_refiner_reads_both_syntaxes(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct model m = open_model(ctx, "sdxl-refiner");
    struct tern_image *picture = tern_image_create(ctx, 40, 40, NULL);
    struct tern_txt2img_params q = {.prompt = "a red boat", .negative_prompt = "text", .steps = 3, .seed = 1, .init_image = picture};
    struct tern_images *plain = job_run(ctx, m.p, &q);
    q.prompt_syntax = TERN_PROMPT_A1111;
    struct tern_images *same = job_run(ctx, m.p, &q);
    q.prompt = "a (red:1.5) boat";
    struct tern_images *other = job_run(ctx, m.p, &q);
    assert_true(job_same(plain, 0, same));
    assert_false(job_same(plain, 0, other));
    tern_images_destroy(&plain);
    tern_images_destroy(&same);
    tern_images_destroy(&other);
    tern_image_destroy(&picture);
    close_model(&m);
    tern_context_destroy(&ctx);
}

/* The refiner has one tokenizer, which is number 0, and one text encoder, which is its second. */
static void a_refiner_is_described(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct model m = open_model(ctx, "sdxl-refiner");
    assert_int_equal(tern_tokenizer_max_length(tern_pipeline_tokenizer(m.p, 0)), 18);
    assert_null(tern_pipeline_tokenizer(m.p, 1));
    support_error(ctx, TERN_E_NOT_FOUND, "the model has only number 0");
    assert_null(tern_pipeline_graph(m.p, "text_encoder", NULL));
    support_error(ctx, TERN_E_NOT_FOUND, "has no component \"text_encoder\"");
    char *text = tern_pipeline_describe(m.p, false);
    assert_non_null(strstr(text, "StableDiffusionXLImg2ImgPipeline"));
    assert_non_null(strstr(text, "text_encoder_2"));
    tern_free_text(ctx, text);
    close_model(&m);
    tern_context_destroy(&ctx);
}

/* Align Your Steps has other levels for SDXL, which a job takes by its model. */
static void levels_are_those_of_the_model(void **state)
{
    static const struct {
        const char *model;
        double second;
    } rows[] = {{"sd1", 6.475}, {"sdxl", 6.315}};
    char path[PATH_SIZE];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_context *ctx = model_context(NULL, 1);
        struct tern_pipeline *p = model_load(ctx, model_path(rows[i].model, path));
        struct tern_job j = {0};
        const struct tern_txt2img_params q = {
            .prompt = "", .width = 40, .height = 40, .steps = 11, .sampler = TERN_SAMPLER_EULER, .schedule = TERN_SCHEDULE_ALIGN_YOUR_STEPS};
        assert_int_equal(tern_job_prepare(&j, p, &q), TERN_OK);
        assert_true(fabs(tern_scheduler_sigma(j.scheduler, 1) - rows[i].second) < 1e-5);
        tern_job_destroy(&j);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* A negative prompt that is not given is zeros by default and by true, but "" by false and by null, as in diffusers' encode_prompt. */
static void zeros_are_not_for_null(void **state)
{
    static const char key[] = "force_zeros_for_empty_prompt";
    json_t *values[] = {NULL, json_true(), json_false(), json_null()};
    struct tern_images *images[4];
    char folder[PATH_SIZE];
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    damage_copy("sdxl", folder);
    for (int i = 0; i < 4; i++) {
        struct tern_txt2img_params q = {.prompt = "a boat", .width = 24, .height = 16, .steps = 1, .cfg = 5, .count = 1};
        damage_json(folder, "model_index.json", key, values[i]);
        struct tern_pipeline *p = model_load(ctx, folder);
        images[i] = job_run(ctx, p, &q);
        tern_pipeline_destroy(&p);
    }
    assert_true(job_same(images[0], 0, images[1]));
    assert_true(job_same(images[2], 0, images[3]));
    assert_false(job_same(images[0], 0, images[2]));
    for (int i = 0; i < 4; i++)
        tern_images_destroy(&images[i]);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_agree),
        cmocka_unit_test(model_agrees),
        cmocka_unit_test(negative_sizes_agree),
        cmocka_unit_test(what_a_model_is_not_told_is_refused),
        cmocka_unit_test(negative_sizes_that_would_not_count_are_refused),
        cmocka_unit_test(stages_that_leave_nothing_are_refused),
        cmocka_unit_test(predictions_hold),
        cmocka_unit_test(zeros_are_not_for_null),
        cmocka_unit_test(a_refiner_is_described),
        cmocka_unit_test(levels_are_those_of_the_model),
        cmocka_unit_test(a_refiner_reads_both_syntaxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
