/* instruct-pix2pix of Stable Diffusion 1.x and XL: pictures as diffusers edits them, what tells the models, and what they refuse. */
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
#include "support.h"
#include "xl_help.h"

#define UNET "unet/diffusion_pytorch_model.safetensors"

struct model {
    char folder[PATH_SIZE];
    struct tern_context *ctx;
    struct tern_pipeline *p;
    struct tern_image *picture; /* 48 x 40 */
};

static struct model open_model(const char *name)
{
    static uint8_t rgb[3 * 48 * 40];
    struct model m = {.ctx = model_context(NULL, 1)};
    xl_folder(m.ctx, name, m.folder);
    m.p = model_load(m.ctx, m.folder);
    for (size_t i = 0; i < sizeof(rgb); i++)
        rgb[i] = (uint8_t)(i * 7 % 251);
    m.picture = tern_image_create(m.ctx, 48, 40, rgb);
    return m;
}

static void close_model(struct model *m)
{
    tern_image_destroy(&m->picture);
    tern_pipeline_destroy(&m->p);
    tern_context_destroy(&m->ctx);
    damage_remove(m->folder);
}

static struct tern_txt2img_params job(const struct model *m)
{
    return tern_txt2img_params(.prompt = "a red boat", .negative_prompt = "text", .width = 48, .height = 40, .steps = 3, .seed = 1,
                               .init_image = m->picture);
}

/* ---- against diffusers */

/* The model with what the case changes in its scheduler's file. */
static struct model open_case(const char *name, const json_t *row)
{
    const char *key;
    struct model m = open_model(name);
    json_t *value, *changes = json_object_get(row, "scheduler");
    if (!changes)
        return m;
    json_object_foreach(changes, key, value)
        damage_json(m.folder, "scheduler/scheduler_config.json", key, json_incref(value));
    tern_pipeline_destroy(&m.p);
    m.p = model_load(m.ctx, m.folder);
    return m;
}

static void pictures_agree(void **state)
{
    size_t i;
    json_t *rows = support_json("pix2pix/cases.json"), *row;
    struct job_worst w = {0};
    json_array_foreach(rows, i, row) {
        struct model m = open_case(json_string_value(json_object_get(row, "model")), row);
        struct tern_weights *latents = support_tensors(m.ctx, "pix2pix/latents"), *pictures = support_tensors(m.ctx, "pix2pix/pictures");
        struct job_case c = job_case_read(m.ctx, row, "pipelines");
        job_check_case(m.ctx, m.p, &c, latents, json_is_true(json_object_get(row, "pictures")) ? pictures : NULL, &w);
        job_case_close(&c);
        tern_weights_unref(&latents);
        tern_weights_unref(&pictures);
        close_model(&m);
    }
    assert_int_equal(w.cases, 14);
    job_print_worst(&w);
    json_decref(rows);
}

/* ---- rows of the UNet */

static double difference(const struct tern_images *a, const struct tern_images *b)
{
    int64_t n, k;
    float *x = job_latents(a, &n), *y = job_latents(b, &k);
    assert_int_equal(n, k);
    double e = support_nmse(x, y, n);
    free(x);
    free(y);
    return e;
}

static void pictures_of_a_batch_are_those_alone(void **state)
{
    struct model m = open_model("sd1-pix2pix");
    struct tern_txt2img_params q = job(&m);
    q.count = 3;
    struct tern_images *all = job_run(m.ctx, m.p, &q);
    q.count = 1;
    for (int i = 0; i < 3; i++) {
        q.seed = 1 + (uint64_t)i;
        struct tern_images *one = job_run(m.ctx, m.p, &q);
        assert_true(job_same(all, i, one));
        tern_images_destroy(&one);
    }
    tern_images_destroy(&all);
    close_model(&m);
}

/* Both syntaxes go their own ways to the text of the third row; half a prompt and half of it again is that prompt. */
static void both_syntaxes_agree(void **state)
{
    static const char *const models[] = {"sd1-pix2pix", "sdxl-pix2pix"};
    for (int i = 0; i < 2; i++) {
        struct model m = open_model(models[i]);
        struct tern_txt2img_params q = job(&m);
        struct tern_images *plain = job_run(m.ctx, m.p, &q);
        q.prompt_syntax = TERN_PROMPT_A1111;
        struct tern_images *same = job_run(m.ctx, m.p, &q);
        assert_true(job_same(plain, 0, same));
        q.prompt = "a red boat :0.5 AND a red boat :0.5";
        struct tern_images *halves = job_run(m.ctx, m.p, &q);
        assert_true(difference(halves, plain) < 1e-9);
        q.image_guidance_scale = 1.6;
        struct tern_images *other = job_run(m.ctx, m.p, &q);
        assert_true(difference(other, plain) > 1e-6);
        tern_images_destroy(&plain);
        tern_images_destroy(&same);
        tern_images_destroy(&halves);
        tern_images_destroy(&other);
        close_model(&m);
    }
}

/* Bytes of a job's peak: as predicted, or less, but not by far. */
static void predictions_hold(void **state)
{
    static const char *const models[] = {"sd1-pix2pix", "sdxl-pix2pix"};
    for (int i = 0; i < 8; i++) {
        struct model m = open_model(models[i & 1]);
        tern_pipeline_destroy(&m.p);
        m.p = tern_pipeline_load(m.ctx, m.folder,
                                 &(struct tern_pipeline_params){.offload = i & 2 ? TERN_OFFLOAD_SEQUENTIAL : TERN_OFFLOAD_NONE});
        struct tern_txt2img_params q = job(&m);
        size_t predicted = 0;
        q.width = q.height = 96;
        q.count = i & 4 ? 3 : 1;
        tern_memory_trim(m.ctx);
        tern_memory_reset_peak(m.ctx);
        assert_int_equal(tern_generate_check(m.p, &q, &predicted), TERN_OK);
        struct tern_images *images = job_run(m.ctx, m.p, &q);
        double ratio = (double)predicted / (double)tern_memory_peak(m.ctx);
        if (!(ratio >= 1 && ratio <= 1.6))
            fail_msg("%s: predicted %zu bytes, measured %zu", models[i & 1], predicted, tern_memory_peak(m.ctx));
        tern_images_destroy(&images);
        close_model(&m);
    }
}

/* ---- what is refused */

static void refused(const struct model *m, struct tern_pipeline *p, const struct tern_txt2img_params *q, const char *text)
{
    assert_null(tern_generate(p, q));
    support_error(m->ctx, TERN_E_INVALID, text);
}

static void what_does_not_go_together_is_refused(void **state)
{
    static const double wrong[] = {-1, 1001, 0.0 / 0.0, 1 / 0.0};
    char path[PATH_SIZE];
    struct model m = open_model("sd1-pix2pix");
    struct tern_txt2img_params q = job(&m);
    q.init_image = NULL;
    refused(&m, m.p, &q, "edits a picture as the prompt says (instruct-pix2pix): it needs init_image");
    q = job(&m);
    q.mask_image = m.picture;
    refused(&m, m.p, &q, "mask_image: tern-model");
    q = job(&m);
    q.strength = 0.5;
    refused(&m, m.p, &q, "expected 1 or none, found 0.5; image_guidance_scale says how near it stays");
    q = job(&m);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        q.image_guidance_scale = wrong[i];
        refused(&m, m.p, &q, "image_guidance_scale: expected a number above 0 and at most 1000");
    }
    q = job(&m);
    q.image_guidance_scale = 0.5;
    q.prompt_syntax = TERN_PROMPT_A1111;
    assert_int_equal(tern_generate_check(m.p, &q, NULL), TERN_OK);
    q.prompt = "a red boat :1.2";
    refused(&m, m.p, &q, "prompt: AND and a weight behind a text are guidance, and image_guidance_scale 0.5 is none; expected at least 1");
    q.prompt = "a red boat AND a tree";
    refused(&m, m.p, &q, "prompt: AND and a weight");
    q = job(&m);
    q.count = 64;
    refused(&m, m.p, &q, "3 rows each for 64 pictures at once, because of image guidance; expected at most 128 rows in all");
    struct tern_pipeline *others[] = {model_load(m.ctx, model_path("sd1", path)), model_load(m.ctx, model_path("sd1-inpaint", path))};
    q = job(&m);
    q.mask_image = m.picture;
    q.image_guidance_scale = 1.5;
    refused(&m, others[0], &q, "image_guidance_scale: sd1 is not told the picture that it starts from; instruct-pix2pix models are, whose");
    refused(&m, others[1], &q, "UNet has 8 channels and not 9");
    q = job(&m);
    q.strength = 1;
    struct tern_images *images = job_run(m.ctx, m.p, &q);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&others[0]);
    tern_pipeline_destroy(&others[1]);
    close_model(&m);
}

/* ---- files */

static void check_description(struct tern_context *ctx, const char *path, const char *class_name)
{
    struct tern_pipeline *p = model_load(ctx, path);
    char *text = tern_pipeline_describe(p, false);
    if (!strstr(text, class_name) || !strstr(text, "for editing by instructions (instruct-pix2pix)"))
        fail_msg("%s", text);
    tern_free_text(ctx, text);
    tern_pipeline_destroy(&p);
}

/* The tensors of the first convolution tell a single file, its class a folder. */
static void single_files_and_folders_are_recognised(void **state)
{
    static const char name[] = "StableDiffusionInstructPix2PixPipeline";
    char folder[PATH_SIZE], file[PATH_SIZE + 16], back[PATH_SIZE + 16];
    struct tern_context *ctx = model_context(NULL, 1);
    damage_copy("sd1-mini", folder);
    damage_tensor(ctx, folder, UNET, "conv_in.weight", TERN_F16, 4, (const int64_t[]){8, 8, 3, 3});
    damage_json(folder, "unet/config.json", "in_channels", json_integer(8));
    damage_json(folder, "model_index.json", "_class_name", json_string(name));
    check_description(ctx, folder, name);
    snprintf(file, sizeof(file), "%s/one.safetensors", folder);
    snprintf(back, sizeof(back), "%s/back", folder);
    assert_int_equal(tern_convert(ctx, folder, file, NULL), TERN_OK);
    check_description(ctx, file, name);
    assert_int_equal(tern_convert(ctx, file, back, NULL), TERN_OK);
    check_description(ctx, back, name);
    damage_json(folder, "model_index.json", "_class_name", json_string("MarigoldDepthPipeline"));
    assert_null(tern_pipeline_load(ctx, folder, NULL));
    support_error(ctx, TERN_E_UNSUPPORTED, "a UNet of 8 channels in a \"MarigoldDepthPipeline\": expected a StableDiffusionInstruct");
    damage_remove(folder);
    tern_context_destroy(&ctx);

    struct model xl = open_model("sdxl-pix2pix");
    snprintf(file, sizeof(file), "%s/one.safetensors", xl.folder);
    damage_json(xl.folder, "unet/config.json", "attention_head_dim", json_integer(1)); /* what a reader takes such widths to have */
    damage_json(xl.folder, "text_encoder/config.json", "num_attention_heads", json_integer(1));
    damage_json(xl.folder, "text_encoder_2/config.json", "num_attention_heads", json_integer(1));
    if (tern_convert(xl.ctx, xl.folder, file, NULL))
        fail_msg("%s", tern_error(xl.ctx));
    check_description(xl.ctx, file, "StableDiffusionXLInstructPix2PixPipeline");
    close_model(&xl);
}

/* A picture's text repeats it. */
static void the_infotext_has_the_scale(void **state)
{
    struct model m = open_model("sd1-pix2pix");
    struct tern_infotext t;
    struct tern_txt2img_params q = job(&m);
    q.image_guidance_scale = 1.25;
    struct tern_images *images = job_run(m.ctx, m.p, &q);
    const char *text = tern_image_text(tern_images_at(images, 0), "parameters");
    assert_non_null(strstr(text, ", CFG scale: 7.5, Image CFG scale: 1.25, Seed: 1, "));
    assert_int_equal(tern_infotext_read(m.ctx, text, &t), TERN_OK);
    assert_string_equal(t.ignored, "");
    t.params.init_image = m.picture;
    struct tern_images *again = job_run(m.ctx, m.p, &t.params);
    assert_true(job_same(images, 0, again));
    tern_infotext_free(m.ctx, &t);
    tern_images_destroy(&again);
    tern_images_destroy(&images);
    close_model(&m);
}

/* Another program's below 1 is no way to say that there is no guidance. */
static void a_scale_below_1_is_ours_alone(void **state)
{
    static const char fields[] = "x\nSteps: 4, Sampler: Euler, CFG scale: 7, Image CFG scale: %s, Seed: 1%s";
    static const struct {
        const char *value, *rest, *ignored;
        double scale;
    } rows[] = {
        {"0.5", ", Version: tern 1", "", 0.5},
        {"0.5", "", "Image CFG scale: 0.5", 0},
        {"1", "", "", 1},
        {"nan", "", "Image CFG scale: nan", 0},
        {"0", ", Version: tern 1", "Image CFG scale: 0", 0},
    };
    struct tern_context *ctx = model_context(NULL, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[256];
        struct tern_infotext t;
        snprintf(text, sizeof(text), fields, rows[i].value, rows[i].rest);
        assert_int_equal(tern_infotext_read(ctx, text, &t), TERN_OK);
        assert_true(t.params.image_guidance_scale == rows[i].scale);
        assert_string_equal(t.ignored, rows[i].ignored);
        tern_infotext_free(ctx, &t);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_agree),
        cmocka_unit_test(pictures_of_a_batch_are_those_alone),
        cmocka_unit_test(both_syntaxes_agree),
        cmocka_unit_test(predictions_hold),
        cmocka_unit_test(what_does_not_go_together_is_refused),
        cmocka_unit_test(single_files_and_folders_are_recognised),
        cmocka_unit_test(the_infotext_has_the_scale),
        cmocka_unit_test(a_scale_below_1_is_ours_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
