/* A VAE by itself: in every form of file the same pictures as the model with that VAE in its folder; others are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"
#include "models/files/weights.h"
#include "support.h"

#define FILE_IN_FOLDER "vae/diffusion_pytorch_model.safetensors"
#define FORMATS TERN_TEST_DATA "/formats/"

static struct tern_pipeline *load(struct tern_context *ctx, const char *model, const char *vae)
{
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = vae});
    if (!p)
        fail_msg("%s with %s: %s", model, vae ? vae : "its own VAE", tern_error(ctx));
    return p;
}

/* Another VAE in the folder's place: all weights times a factor, but those whose name holds `without`. */
static void other_vae(struct tern_context *ctx, const char *folder, const char *without, const char *out)
{
    char path[2 * PATH_SIZE];
    snprintf(path, sizeof(path), "%s/" FILE_IN_FOLDER, folder);
    struct tern_weights *old = tern_weights_open(ctx, path), *w = tern_weights_create(ctx);
    assert_non_null(old);
    for (int64_t i = 0; i < tern_weights_count(old); i++) {
        if (without && strstr(tern_weights_name(old, i), without))
            continue;
        tern_tensor *t = tern_mul_scalar(tern_weights_at(old, i), 0.9375);
        assert_int_equal(tern_weights_add(w, tern_weights_name(old, i), t), TERN_OK);
        tern_tensor_unref(&t);
    }
    assert_int_equal(tern_weights_save(w, out), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&old);
}

/* The VAE of a folder by LDM's names. */
static void as_ldm(struct tern_context *ctx, const char *folder, const char *prefix, const char *out)
{
    static const char full[] = "first_stage_model.";
    char path[2 * PATH_SIZE], name[TERN_LDM_NAME], renamed[2 * TERN_LDM_NAME];
    const struct tern_ldm_sizes sizes = {.vae_levels = 4};
    snprintf(path, sizeof(path), "%s/" FILE_IN_FOLDER, folder);
    struct tern_weights *old = tern_weights_open(ctx, path), *diffusers, *w = tern_weights_create(ctx);
    assert_non_null(old);
    diffusers = tern_weights_normalise(ctx, old, "vae");
    for (int64_t i = 0; i < tern_weights_count(diffusers); i++) {
        assert_true(tern_ldm_name(&sizes, "vae", tern_weights_name(diffusers, i), name));
        snprintf(renamed, sizeof(renamed), "%s%s", prefix, name + strlen(full));
        assert_int_equal(tern_weights_add(w, renamed, tern_weights_at(diffusers, i)), TERN_OK);
    }
    tern_tensor *one = tern_full(ctx, TERN_F32, 0, NULL, 1);
    snprintf(renamed, sizeof(renamed), "%sloss.logvar", prefix); /* left by training */
    assert_int_equal(tern_weights_add(w, renamed, one), TERN_OK);
    assert_int_equal(tern_weights_add(w, "model_ema.decay", one), TERN_OK);
    tern_tensor_unref(&one);
    assert_int_equal(tern_weights_save(w, out), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&diffusers);
    tern_weights_unref(&old);
}

/* A picture of the folder's model by img2img, so that both halves of the VAE count; free(). */
static uint8_t *paint(struct tern_context *ctx, const char *model, const char *vae, size_t *n)
{
    struct tern_pipeline *p = load(ctx, model, vae);
    uint8_t pixels[64 * 64 * 3];
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(7 * i + i / 64);
    struct tern_image *init = tern_image_create(ctx, 64, 64, pixels);
    assert_non_null(init);
    struct tern_image *image = tern_txt2img(
        p, &(struct tern_txt2img_params){.prompt = "a cat", .steps = 2, .width = 64, .height = 64, .init_image = init, .strength = 0.5});
    if (!image)
        fail_msg("%s", tern_error(ctx));
    *n = (size_t)tern_image_width(image) * (size_t)tern_image_height(image) * 3;
    uint8_t *copy = malloc(*n);
    memcpy(copy, tern_image_data(image), *n);
    tern_image_destroy(&image);
    tern_image_destroy(&init);
    tern_pipeline_destroy(&p);
    return copy;
}

static void pictures_are_those_of_the_folder(void **state)
{
    char model[PATH_SIZE], other[PATH_SIZE], folder[PATH_SIZE], vae[5][2 * PATH_SIZE];
    size_t n, m;
    struct tern_context *ctx = support_context();
    damage_copy("sd1", other);
    lora_temporary(folder);
    snprintf(vae[0], sizeof(*vae), "%s/vae", other);
    snprintf(vae[1], sizeof(*vae), "%s/" FILE_IN_FOLDER, other);
    snprintf(vae[2], sizeof(*vae), "%s/prefixed.safetensors", folder);
    snprintf(vae[3], sizeof(*vae), "%s/ldm.safetensors", folder);
    snprintf(vae[4], sizeof(*vae), "%s/vae/", other);
    other_vae(ctx, other, NULL, vae[1]);
    as_ldm(ctx, other, "first_stage_model.", vae[2]);
    as_ldm(ctx, other, "", vae[3]);
    uint8_t *want = paint(ctx, other, NULL, &n), *plain = paint(ctx, model_path("sd1", model), NULL, &m);
    assert_int_equal(n, m);
    assert_true(memcmp(want, plain, n));
    for (int i = 0; i < 5; i++) {
        uint8_t *got = paint(ctx, model, vae[i], &m);
        if (n != m || memcmp(got, want, n))
            fail_msg("%s: another picture", vae[i]);
        free(got);
    }
    free(want);
    free(plain);
    damage_remove(folder);
    damage_remove(other);
    tern_context_destroy(&ctx);
}

/* Groups, scaling factor and the like: with a file of its own sizes a model is as it was; one of other widths has the model's scaling. */
static void what_files_do_not_tell_is_the_models(void **state)
{
    char model[PATH_SIZE], scaled[PATH_SIZE], small[PATH_SIZE], vae[2 * PATH_SIZE];
    size_t n, m;
    struct tern_context *ctx = support_context();
    model_path("sd1-heads", model);
    snprintf(vae, sizeof(vae), "%s/" FILE_IN_FOLDER, model);
    uint8_t *want = paint(ctx, model, NULL, &n), *got = paint(ctx, model, vae, &m);
    assert_int_equal(n, m);
    assert_memory_equal(want, got, n);
    free(want);
    free(got);
    damage_copy("sd1", scaled);
    damage_copy("sd2", small);
    damage_json(scaled, "vae/config.json", "scaling_factor", json_real(0.5));
    damage_json(small, "vae/config.json", "scaling_factor", json_real(0.5));
    snprintf(vae, sizeof(vae), "%s/vae", small);
    want = paint(ctx, scaled, vae, &n);
    snprintf(vae, sizeof(vae), "%s/" FILE_IN_FOLDER, small);
    got = paint(ctx, scaled, vae, &m);
    assert_int_equal(n, m);
    assert_memory_equal(want, got, n);
    free(want);
    free(got);
    damage_remove(scaled);
    damage_remove(small);
    tern_context_destroy(&ctx);
}

/* A file without the convolutions around the latents is a VAE without them, with a model that has them, too. */
static void layers_are_those_of_the_file(void **state)
{
    char model[PATH_SIZE], other[PATH_SIZE], vae[2 * PATH_SIZE];
    size_t n, m;
    struct tern_context *ctx = support_context();
    damage_copy("sd1", other);
    snprintf(vae, sizeof(vae), "%s/" FILE_IN_FOLDER, other);
    other_vae(ctx, other, "quant_conv", vae);
    damage_json(other, "vae/config.json", "use_quant_conv", json_false());
    damage_json(other, "vae/config.json", "use_post_quant_conv", json_false());
    uint8_t *want = paint(ctx, other, NULL, &n), *got = paint(ctx, model_path("sd1", model), vae, &m);
    assert_int_equal(n, m);
    assert_memory_equal(want, got, n);
    free(want);
    free(got);
    damage_remove(other);
    tern_context_destroy(&ctx);
}

/* A model without a VAE, as single files have it, and diffusers' values: the VAE alone brings its sizes. */
static void models_without_one_get_it(void **state)
{
    static const char *const vaes[] = {FORMATS "mini-vae.pt", FORMATS "mini.ckpt", FORMATS "mini/vae",
                                       FORMATS "mini-bin/vae/diffusion_pytorch_model.bin"};
    static const char *const cases[] = {"vae_decoder", "vae_encoder"};
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    struct tern_context *ctx = support_context();
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/bare.safetensors", folder);
    struct tern_weights *old = tern_weights_open(ctx, FORMATS "mini.safetensors"), *w = tern_weights_create(ctx);
    for (int64_t i = 0; i < tern_weights_count(old); i++)
        if (strncmp(tern_weights_name(old, i), "first_stage_model.", strlen("first_stage_model.")))
            assert_int_equal(tern_weights_add(w, tern_weights_name(old, i), tern_weights_at(old, i)), TERN_OK);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_weights_unref(&old);
    assert_null(tern_pipeline_load(ctx, path, NULL));
    support_error(ctx, TERN_E_NOT_FOUND, "no component \"vae\"");
    for (int i = 0; i < 4; i++) {
        struct tern_pipeline *p = load(ctx, path, vaes[i]);
        for (int k = 0; k < 2; k++) {
            char golden[PATH_SIZE];
            snprintf(golden, sizeof(golden), "%s/components/sd1-mini/%s.square.safetensors", TERN_TEST_DATA, cases[k]);
            struct golden g = golden_open(ctx, golden);
            double e = golden_error(p, cases[k], &g, vaes[i]);
            if (!(e <= 1e-8))
                fail_msg("%s: %s: NMSE %.3g", vaes[i], cases[k], e);
            golden_close(&g);
        }
        tern_pipeline_destroy(&p);
    }
    damage_remove(folder);
    tern_context_destroy(&ctx);
}

static void others_are_refused(void **state)
{
    static const struct {
        const char *vae;
        enum tern_status status;
        const char *parts[2];
    } cases[] = {
        {"models/sd1-heads/vae",
         TERN_E_FORMAT,
         {"4 latent channels at 1/4, scaling factor 0.31", "the model's own 4 latent channels at 1/8"}},
        {"models/sd1-heads/" FILE_IN_FOLDER, TERN_E_FORMAT, {"4 latent channels at 1/4", "at 1/8 (as of Stable Diffusion 1 or 2)"}},
        {"models/sdxl/vae", TERN_E_FORMAT, {"(as of Stable Diffusion XL)", "(as of Stable Diffusion 1 or 2)"}},
        {"models/sd1/unet", TERN_E_FORMAT, {"unet"}},
        {"models/sd1/unet/diffusion_pytorch_model.safetensors", TERN_E_UNSUPPORTED, {"not a VAE, but a UNet"}},
        {"models/sd1/text_encoder/model.safetensors", TERN_E_UNSUPPORTED, {"not a VAE, but a text encoder"}},
        {"lora/a-kohya.safetensors", TERN_E_UNSUPPORTED, {"a LoRA (--lora)"}},
        {"random/cpu.safetensors", TERN_E_FORMAT, {"not a VAE: expected tensors such as"}},
        {"models/sd1/scheduler", TERN_E_NOT_FOUND, {"expected a folder with config.json"}},
        {"nowhere.safetensors", TERN_E_NOT_FOUND, {"no such file or folder"}},
        {"README.md", TERN_E_FORMAT, {"README.md"}},
    };
    char model[PATH_SIZE], path[2 * PATH_SIZE];
    struct tern_context *ctx = support_context();
    size_t used = tern_memory_used(ctx);
    model_path("sd1", model);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        snprintf(path, sizeof(path), "%s/%s", TERN_TEST_DATA, cases[i].vae);
        assert_null(tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = path}));
        for (int k = 0; k < 2 && cases[i].parts[k]; k++)
            if (tern_error_status(ctx) != cases[i].status || !strstr(tern_error(ctx), cases[i].parts[k]))
                fail_msg("%s: expected %s and \"%s\" in: %s", path, tern_status_name(cases[i].status), cases[i].parts[k], tern_error(ctx));
        tern_error_clear(ctx);
        tern_memory_trim(ctx);
        assert_int_equal(tern_memory_used(ctx), used);
    }
    tern_context_destroy(&ctx);
}

/* Configurations and files that are wrong: a message, no crash. */
static void damaged_ones_are_refused(void **state)
{
    static const char *const configs[] = {"",
                                          "[]",
                                          "{",
                                          "{\"block_out_channels\": 3}",
                                          "{\"latent_channels\": 16, \"block_out_channels\": [8, 8, 8, 8]}",
                                          "{\"scaling_factor\": \"x\"}",
                                          "{\"latent_channels\": 4.5}"};
    char model[PATH_SIZE], folder[PATH_SIZE], vae[2 * PATH_SIZE];
    size_t n;
    struct tern_context *ctx = support_context();
    model_path("sd1", model);
    damage_copy("sd1", folder);
    snprintf(vae, sizeof(vae), "%s/vae", folder);
    for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
        damage_text(folder, "vae/config.json", configs[i], strlen(configs[i]));
        assert_null(tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = vae}));
        assert_non_null(strstr(tern_error(ctx), "vae"));
        if (i == 4)
            assert_non_null(
                strstr(tern_error(ctx), "16 latent channels at 1/8, scaling factor 0.18215 (as of Stable Diffusion 3 or Flux)"));
        tern_error_clear(ctx);
    }
    char *data = damage_read(folder, FILE_IN_FOLDER, &n);
    snprintf(vae, sizeof(vae), "%s/" FILE_IN_FOLDER, folder);
    for (size_t cut = 0; cut < n; cut += cut < 16 ? 1 : 1999) {
        damage_text(folder, FILE_IN_FOLDER, data, cut);
        assert_null(tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = vae}));
        tern_error_clear(ctx);
    }
    damage_text(folder, FILE_IN_FOLDER, data, n);
    free(data);
    damage_tensor(ctx, folder, FILE_IN_FOLDER, "decoder.conv_in.weight", TERN_F16, -1, NULL);
    assert_null(tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = vae}));
    tern_error_clear(ctx);
    damage_tensor(ctx, folder, FILE_IN_FOLDER, "decoder.conv_in.weight", TERN_F16, 4, (const int64_t[]){16, 16, 3, 3});
    assert_null(tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = vae}));
    support_error(ctx, TERN_E_FORMAT, "16 latent channels at 1/8 (as of Stable Diffusion 3 or Flux)");
    damage_remove(folder);
    tern_context_destroy(&ctx);
}

/* Allocations of a load fail one by one: each of the first 500, then, tensor after tensor, every seventh. */
static void no_memory_is_a_status(void **state)
{
    char model[PATH_SIZE], vae[2 * PATH_SIZE];
    struct support_allocator memory = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&memory)});
    model_path("sd1", model);
    snprintf(vae, sizeof(vae), "%s/" FILE_IN_FOLDER, model);
    struct tern_pipeline *p = NULL;
    for (long at = 1; !p; at += at < 500 ? 1 : 7) {
        tern_memory_trim(ctx);
        memory.count = 0;
        memory.fail_at = at;
        p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.vae = vae});
        memory.fail_at = 0;
        assert_int_equal(tern_error_status(ctx), p ? TERN_OK : TERN_E_NO_MEMORY);
        tern_error_clear(ctx);
    }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(memory.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_are_those_of_the_folder),
        cmocka_unit_test(what_files_do_not_tell_is_the_models),
        cmocka_unit_test(layers_are_those_of_the_file),
        cmocka_unit_test(models_without_one_get_it),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(damaged_ones_are_refused),
        cmocka_unit_test(no_memory_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
