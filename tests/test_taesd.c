/* TAESD in the VAE's place: diffusers' values and pictures, its forms of files, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "job_cases.h"
#include "lora_help.h"
#include "model_help.h"
#include "ops/dispatch.h"
#include "support.h"

#define DATA TERN_TEST_DATA "/taesd/"
#define FOLDER DATA "vae"
#define FILE_IN_FOLDER "diffusion_pytorch_model.safetensors"

static struct tern_pipeline *load(struct tern_context *ctx, const char *vae)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sd1", path), &(struct tern_pipeline_params){.vae = vae});
    if (!p)
        fail_msg("%s: %s", vae, tern_error(ctx));
    return p;
}

static void networks_agree(void **state)
{
    static const char *const names[] = {"vae_decoder.odd-5x3", "vae_decoder.batch2", "vae_encoder.no-multiple-37x21", "vae_encoder.batch2"};
    static const char *const levels[] = {NULL, MODEL_USUAL_LEVEL, "scalar", NULL};
    for (int i = 0; i < 4; i++) {
        struct tern_context *ctx = model_context(levels[i], 2);
        if (i == 3)
            assert_int_equal(tern_dispatch_force(ctx, "reference"), TERN_OK);
        struct tern_pipeline *p = load(ctx, i & 1 ? FOLDER "/" FILE_IN_FOLDER : FOLDER);
        for (int k = 0; k < 4; k++) {
            char path[PATH_SIZE], component[16];
            snprintf(path, sizeof(path), DATA "%s.safetensors", names[k]);
            snprintf(component, sizeof(component), "%.11s", names[k]);
            struct golden g = golden_open(ctx, path);
            double e = golden_error(p, component, &g, names[k]);
            if (!(e <= 1e-8))
                fail_msg("%s: NMSE %.3g", names[k], e);
            golden_close(&g);
        }
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
}

/* txt2img, img2img (the encoder draws no noise) and inpainting. */
static void pictures_agree(void **state)
{
    size_t i;
    json_t *rows = support_json("taesd/cases.json"), *row;
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_weights *latents = support_tensors(ctx, "taesd/latents"), *pictures = support_tensors(ctx, "taesd/pictures");
    struct tern_pipeline *p = load(ctx, FOLDER);
    struct job_worst w = {0};
    json_array_foreach(rows, i, row) {
        struct job_case c = job_case_read(ctx, row, "pipelines");
        job_check_case(ctx, p, &c, latents, pictures, &w);
        job_case_close(&c);
    }
    assert_int_equal(w.cases, 3);
    job_print_worst(&w);
    tern_pipeline_destroy(&p);
    tern_weights_unref(&latents);
    tern_weights_unref(&pictures);
    tern_context_destroy(&ctx);
    json_decref(rows);
}

/* ---- forms of files */

/* A half under the names of its author: the list of the decoder has one layer more at its begin. */
static void write_half(struct tern_context *ctx, const char *half, int shift, const char *folder, const char *file)
{
    char path[2 * PATH_SIZE], name[128];
    struct tern_weights *all = tern_weights_open(ctx, FOLDER "/" FILE_IN_FOLDER), *w = tern_weights_create(ctx);
    assert_non_null(all);
    for (int64_t i = 0; i < tern_weights_count(all); i++) {
        const char *old = tern_weights_name(all, i);
        if (strncmp(old, half, strlen(half)))
            continue;
        int place = atoi(old + strlen("encoder.layers."));
        const char *rest = strchr(old + strlen("encoder.layers."), '.');
        snprintf(name, sizeof(name), "%d%s", place + shift, rest);
        assert_int_equal(tern_weights_add(w, name, tern_weights_at(all, i)), TERN_OK);
    }
    assert_true(tern_weights_count(w) > 10);
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&all);
}

/* A picture by img2img or txt2img; NULL with the error recorded. */
static struct tern_images *paint(struct tern_context *ctx, struct tern_pipeline *p, bool from_picture)
{
    static uint8_t pixels[16 * 24 * 3];
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(7 * i + i / 64);
    struct tern_image *init = tern_image_create(ctx, 16, 24, pixels);
    struct tern_txt2img_params q = tern_txt2img_params(.prompt = "a cat", .steps = 2, .width = 16, .height = 24, .strength = 0.5);
    q.init_image = from_picture ? init : NULL;
    struct tern_images *images = tern_generate(p, &q);
    tern_image_destroy(&init);
    return images;
}

/* Both pictures of a VAE are those of the folder. */
static void check_form(struct tern_context *ctx, const char *vae, struct tern_images *const want[2])
{
    struct tern_pipeline *p = load(ctx, vae);
    for (int i = 0; i < 2; i++) {
        struct tern_images *got = paint(ctx, p, i);
        if (!got || !job_same(got, 0, want[i]))
            fail_msg("%s: %s", vae, got ? "another picture" : tern_error(ctx));
        tern_images_destroy(&got);
    }
    tern_pipeline_destroy(&p);
}

static void every_form_gives_the_same(void **state)
{
    char folder[PATH_SIZE], model[PATH_SIZE], path[2 * PATH_SIZE], other[2 * PATH_SIZE];
    size_t n;
    struct tern_context *ctx = support_context();
    struct tern_pipeline *p = load(ctx, FOLDER);
    struct tern_images *want[2] = {paint(ctx, p, false), paint(ctx, p, true)}, *none;
    assert_true(want[0] && want[1]);
    tern_pipeline_destroy(&p);
    check_form(ctx, FOLDER "/" FILE_IN_FOLDER, want);
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/taesd_decoder.safetensors", folder);
    snprintf(other, sizeof(other), "%s/taesd_encoder.safetensors", folder);
    write_half(ctx, "decoder", 1, folder, "taesd_decoder.safetensors");
    p = load(ctx, path); /* without an encoder */
    none = paint(ctx, p, false);
    assert_true(none && job_same(none, 0, want[0]));
    tern_images_destroy(&none);
    assert_null(paint(ctx, p, true));
    support_error(ctx, TERN_E_UNSUPPORTED, "no encoder");
    tern_pipeline_destroy(&p);
    write_half(ctx, "encoder", 0, folder, "taesd_encoder.safetensors");
    check_form(ctx, path, want);
    assert_null(tern_pipeline_load(ctx, model_path("sd1", model), &(struct tern_pipeline_params){.vae = other}));
    support_error(ctx, TERN_E_UNSUPPORTED, "TAESD's encoder alone");
    write_half(ctx, "decoder", 1, folder, "taesd_encoder.safetensors");
    assert_null(tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = path}));
    support_error(ctx, TERN_E_FORMAT, "expected TAESD's encoder");
    damage_remove(folder);
    damage_copy("sd1", folder); /* in the model's own folder */
    char *config = damage_read(FOLDER, "config.json", &n);
    damage_text(folder, "vae/config.json", config, n);
    free(config);
    config = damage_read(FOLDER, FILE_IN_FOLDER, &n);
    damage_text(folder, "vae/" FILE_IN_FOLDER, config, n);
    free(config);
    p = model_load(ctx, folder);
    none = paint(ctx, p, true);
    assert_true(none && job_same(none, 0, want[1]));
    tern_images_destroy(&none);
    tern_pipeline_destroy(&p);
    damage_remove(folder);
    tern_images_destroy(&want[0]);
    tern_images_destroy(&want[1]);
    tern_context_destroy(&ctx);
}

/* ---- what is refused */

static void refuse(struct tern_context *ctx, const char *vae, const char *part)
{
    char model[PATH_SIZE];
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sd1", model), &(struct tern_pipeline_params){.vae = vae});
    if (p || !strstr(tern_error(ctx), part))
        fail_msg("expected \"%s\", found: %s", part, p ? "a pipeline" : tern_error(ctx));
    tern_error_clear(ctx);
}

static void others_are_refused(void **state)
{
    static const struct {
        const char *key, *value, *part;
    } cases[] = {
        {"latent_channels", "16", "16 latent channels at 1/8"},
        {"decoder_block_out_channels", "[6, 6, 6]", "at 1/4"},
        {"decoder_block_out_channels", "[6, 6, 6, 7]", "all must have as many"},
        {"encoder_block_out_channels", "[6, 6, 6]", "one a stage of both"},
        {"num_decoder_blocks", "[2, 1, 2, 99]", "num_decoder_blocks"},
        {"num_decoder_blocks", "[2, 1, 2, 2]", "decoder.layers."},
        {"num_decoder_blocks", "\"x\"", "num_decoder_blocks"},
        {"num_encoder_blocks", "[1, 1, 1, 1]", "encoder.layers."},
        {"act_fn", "\"silu\"", "act_fn"},
        {"upsample_fn", "\"bilinear\"", "upsample_fn"},
        {"upsampling_scaling_factor", "3", "upsampling_scaling_factor"},
        {"scaling_factor", "0", "scaling_factor"},
        {"_class_name", "3", "_class_name"},
    };
    char folder[PATH_SIZE];
    size_t n, m;
    struct tern_context *ctx = support_context();
    char *config = damage_read(FOLDER, "config.json", &n), *data = damage_read(FOLDER, FILE_IN_FOLDER, &m);
    lora_temporary(folder);
    damage_text(folder, FILE_IN_FOLDER, data, m);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        damage_text(folder, "config.json", config, n);
        damage_json(folder, "config.json", cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        refuse(ctx, folder, cases[i].part);
    }
    free(config);
    free(data);
    damage_remove(folder);
    tern_context_destroy(&ctx);
}

static void damaged_files_are_refused(void **state)
{
    static const struct {
        const char *name;
        int64_t shape[4];
        const char *part;
    } cases[] = {
        {"decoder.layers.0.weight", {6, 16, 3, 3}, "16 latent channels"},
        {"decoder.layers.0.weight", {0, 4, 3, 3}, "decoder_block_out_channels"},
        {"decoder.layers.2.conv.0.weight", {6, 6, 1, 1}, "decoder.layers.2.conv.0.weight"},
        {"decoder.layers.90.weight", {6, 6, 3, 3}, "a VAE for another architecture"},
        {"encoder.layers.900000.weight", {6, 6, 3, 3}, "encoder.layers.900000.weight"},
    };
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    size_t n;
    struct tern_context *ctx = support_context();
    char *data = damage_read(FOLDER, FILE_IN_FOLDER, &n);
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/" FILE_IN_FOLDER, folder);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        damage_text(folder, FILE_IN_FOLDER, data, n);
        damage_tensor(ctx, folder, FILE_IN_FOLDER, cases[i].name, TERN_F16, 4, cases[i].shape);
        refuse(ctx, path, cases[i].part);
    }
    for (size_t cut = 0; cut < n; cut += cut < 16 ? 1 : 1999) {
        damage_text(folder, FILE_IN_FOLDER, data, cut);
        refuse(ctx, path, "");
    }
    struct tern_weights *w = tern_weights_create(ctx); /* more stages than there may be */
    tern_tensor *t = tern_full(ctx, TERN_F32, 4, (const int64_t[]){6, 6, 3, 3}, 0);
    for (int i = 0; i < 64; i++) {
        char name[64];
        snprintf(name, sizeof(name), "decoder.layers.%d.weight", i);
        assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    }
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    refuse(ctx, path, "or too many");
    tern_tensor_unref(&t);
    tern_weights_unref(&w);
    free(data);
    damage_remove(folder);
    tern_context_destroy(&ctx);
}

/* ---- memory */

/* Both halves count; offload takes them out. */
static void the_predicted_budget_is_enough(void **state)
{
    for (int offload = TERN_OFFLOAD_NONE; offload <= TERN_OFFLOAD_STREAM; offload++) {
        char model[PATH_SIZE];
        size_t need = 0;
        for (int k = 0; k < 3; k++) { /* the second time the plans are read from disk, and so the third */
            struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = k > 1 ? need : 0});
            struct tern_pipeline *p =
                tern_pipeline_load(ctx, model_path("sd1", model),
                                   &(struct tern_pipeline_params){.vae = FOLDER, .offload = (enum tern_offload)offload});
            static uint8_t grey[64 * 64 * 3];
            struct tern_image *init = tern_image_create(ctx, 64, 64, grey);
            struct tern_txt2img_params q =
                tern_txt2img_params(.prompt = "a cat", .steps = 2, .width = 256, .height = 256, .strength = 0.5, .init_image = init);
            if (k < 2) {
                assert_int_equal(tern_generate_check(p, &q, &need), TERN_OK);
            } else {
                struct tern_image *image = tern_txt2img(p, &q);
                if (!image)
                    fail_msg("%d within %zu bytes: %s", offload, need, tern_error(ctx));
                assert_true(tern_memory_peak(ctx) <= need);
                tern_image_destroy(&image);
            }
            tern_image_destroy(&init);
            tern_pipeline_destroy(&p);
            tern_context_destroy(&ctx);
        }
    }
}

/* Allocations of a load fail one by one, the first 500 and every seventh of the others: of a folder, of a decoder with the encoder beside
 * it. */
static void no_memory_is_a_status(void **state)
{
    char model[PATH_SIZE], folder[PATH_SIZE], path[2 * PATH_SIZE];
    struct support_allocator memory = {0};
    struct tern_context *ctx = support_context();
    lora_temporary(folder);
    write_half(ctx, "decoder", 1, folder, "decoder.safetensors");
    write_half(ctx, "encoder", 0, folder, "encoder.safetensors");
    snprintf(path, sizeof(path), "%s/decoder.safetensors", folder);
    tern_context_destroy(&ctx);
    ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    struct tern_pipeline *p = NULL;
    for (long at = 1; !p; at += at < 500 ? 1 : 7) {
        tern_memory_trim(ctx);
        memory.count = 0;
        memory.fail_at = at;
        p = tern_pipeline_load(ctx, model_path("sd1", model), &(struct tern_pipeline_params){.vae = path});
        memory.fail_at = 0;
        if (tern_error_status(ctx) != (p ? TERN_OK : TERN_E_NO_MEMORY))
            fail_msg("allocation %ld: %s", at, tern_error(ctx));
        tern_error_clear(ctx);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(memory.live, 0);
    damage_remove(folder);
}

/* ---- previews */

struct seen {
    int calls, steps, last;
    int width, height;
    uint8_t pixels[3 * 40 * 48];
};

static void see(int step, int steps, int index, const struct tern_image *picture, void *user)
{
    struct seen *s = user;
    assert_true(index == s->calls % 2);
    s->calls++;
    s->steps = steps;
    s->last = step;
    s->width = tern_image_width(picture);
    s->height = tern_image_height(picture);
    memcpy(s->pixels, tern_image_data(picture), (size_t)s->width * (size_t)s->height * 3);
}

static struct tern_txt2img_params preview_job(enum tern_sampler sampler, struct seen *s)
{
    return tern_txt2img_params(.prompt = "a cat", .steps = 5, .width = 48, .height = 40, .seed = 3, .count = 2, .sampler = sampler,
                               .on_preview = s ? see : NULL, .on_preview_user = s, .preview_every = 2);
}

/* At the last call what the model takes for the clean picture is the picture that these samplers end with. */
static void the_last_preview_is_the_picture(void **state)
{
    static const enum tern_sampler samplers[] = {TERN_SAMPLER_EULER, TERN_SAMPLER_DPMPP_2M, TERN_SAMPLER_LCM};
    struct tern_context *ctx = model_context(NULL, 2);
    char model[PATH_SIZE];
    for (int i = 0; i < 3; i++)
        for (int taesd = 0; taesd < 2; taesd++) {
            struct tern_pipeline *p =
                tern_pipeline_load(ctx, model_path("sd1", model),
                                   &(struct tern_pipeline_params){.vae = FOLDER, .preview_vae = taesd ? FOLDER : NULL});
            struct seen s = {0};
            struct tern_txt2img_params q = preview_job(samplers[i], &s);
            q.preview_every = 1;
            struct tern_images *shown = job_run(ctx, p, &q);
            q = preview_job(samplers[i], NULL);
            struct tern_images *plain = job_run(ctx, p, &q);
            assert_true(job_same(shown, 0, plain));
            assert_int_equal(s.calls, 10);
            assert_int_equal(s.last, 5);
            assert_int_equal(s.steps, 5);
            assert_int_equal(s.width, taesd ? 48 : 6);
            assert_int_equal(s.height, taesd ? 40 : 5);
            const uint8_t *want = tern_image_data(tern_images_at(plain, 1));
            for (int k = 0; taesd && k < 3 * 40 * 48; k++)
                if (abs(s.pixels[k] - want[k]) > 1)
                    fail_msg("sampler %d, value %d: %d, expected %d", (int)samplers[i], k, s.pixels[k], want[k]);
            int64_t n;
            float *z = job_latents(plain, &n);
            for (int k = 0; !taesd && k < 30; k++) { /* green by hand: ComfyUI's factors of SD 1.x */
                const float *x = z + n / 2 + k;
                float v = 0.2297f * x[0] + 0.4974f * x[30] + 0.1762f * x[60] - 0.2616f * x[90];
                v = 127.5f * (v + 1);
                v = v < 0 ? 0 : v > 255 ? 255 : v;
                if (v - s.pixels[3 * k + 1] > 1 || s.pixels[3 * k + 1] - v > 1)
                    fail_msg("sampler %d, pixel %d: %d, expected %g", (int)samplers[i], k, s.pixels[3 * k + 1], (double)v);
            }
            free(z);
            tern_images_destroy(&shown);
            tern_images_destroy(&plain);
            tern_pipeline_destroy(&p);
        }
    tern_context_destroy(&ctx);
}

static void previews_come_as_often_as_asked(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = load(ctx, FOLDER);
    struct seen s = {0};
    struct tern_txt2img_params q = preview_job(TERN_SAMPLER_DDIM, &s);
    struct tern_images *images = job_run(ctx, p, &q);
    assert_int_equal(s.calls, 4);
    assert_int_equal(s.last, 4);
    q.preview_every = -1;
    assert_null(tern_generate(p, &q));
    support_error(ctx, TERN_E_INVALID, "preview_every");
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void count(int step, int steps, int index, const struct tern_image *picture, void *user) { ++*(int *)user; }

/* The end is decoded by a TAESD, too, so that sampling with previews is what takes most. */
static void the_budget_of_previews_is_enough(void **state)
{
    for (int offload = TERN_OFFLOAD_NONE; offload <= TERN_OFFLOAD_STREAM; offload++) {
        size_t need = 0;
        for (int k = 0; k < 3; k++) {
            char model[PATH_SIZE];
            int calls = 0;
            struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .budget = k > 1 ? need : 0});
            struct tern_pipeline *p = tern_pipeline_load(
                ctx, model_path("sd1", model),
                &(struct tern_pipeline_params){.vae = FOLDER, .preview_vae = FOLDER, .offload = (enum tern_offload)offload});
            struct tern_txt2img_params q = preview_job(TERN_SAMPLER_EULER, NULL);
            q.on_preview = count;
            q.on_preview_user = &calls;
            q.width = q.height = 256;
            if (k < 2) {
                assert_int_equal(tern_generate_check(p, &q, &need), TERN_OK);
            } else {
                struct tern_images *images = job_run(ctx, p, &q);
                assert_int_equal(calls, 4);
                assert_true(tern_memory_peak(ctx) <= need);
                tern_images_destroy(&images);
            }
            tern_pipeline_destroy(&p);
            tern_context_destroy(&ctx);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_agree),
        cmocka_unit_test(pictures_agree),
        cmocka_unit_test(every_form_gives_the_same),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(the_predicted_budget_is_enough),
        cmocka_unit_test(no_memory_is_a_status),
        cmocka_unit_test(the_last_preview_is_the_picture),
        cmocka_unit_test(previews_come_as_often_as_asked),
        cmocka_unit_test(the_budget_of_previews_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
