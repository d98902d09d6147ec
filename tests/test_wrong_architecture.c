/* LoRAs of every kind, embeddings and VAEs on models of other architectures: each is refused, with the names of both. */
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
#include "xl_help.h"

/* ---- the models, which are tiny, and their architectures */

enum { ON_SD1, ON_SD2, ON_SDXL, ON_REFINER, ON_BERT, MODELS };

static const struct {
    const char *name, *is, *vae; /* what messages call it, and its VAE */
} models[MODELS] = {
    {"sd1", "Stable Diffusion 1", "(as of Stable Diffusion 1 or 2)"},
    {"sd2", "Stable Diffusion 2", "(as of Stable Diffusion 1 or 2)"},
    {"sdxl", "Stable Diffusion XL", "(as of Stable Diffusion XL)"},
    {"sdxl-refiner", "Stable Diffusion XL's refiner", "(as of Stable Diffusion XL)"},
    {"demo-zh", "Stable Diffusion 1", "the model's own 4 latent channels at 1/8"}, /* BERT as text encoder, as in Taiyi */
};

static struct tern_context *ctx;
static char told[2048]; /* warnings since it was emptied */
static char refiner[PATH_SIZE], folder[PATH_SIZE], file[2 * PATH_SIZE];

static const char *path_of(int model, char out[PATH_SIZE])
{
    if (model == ON_REFINER)
        return refiner;
    return model == ON_BERT ? models[model].name : model_path(models[model].name, out);
}

static void listen(enum tern_log_level level, const char *message, void *user)
{
    if (level == TERN_LOG_WARN)
        snprintf(told, sizeof(told), "%s", message);
}

static void expect_text(const char *text, const char *part, const char *what)
{
    if (!strstr(text, part))
        fail_msg("%s: expected \"%s\" in: %s", what, part, text);
}

static void add(struct tern_weights *w, const char *stem, const char *name, int ndim, const int64_t *shape)
{
    char full[256];
    snprintf(full, sizeof(full), "%s%s", stem, name);
    tern_tensor *t = tern_full(ctx, TERN_F16, ndim, shape, strcmp(name, ".on_input") ? 0.5 : 0);
    assert_int_equal(tern_weights_add(w, full, t), TERN_OK);
    tern_tensor_unref(&t);
}
#define ADD(w, stem, name, ...) add(w, stem, name, sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (const int64_t[]){__VA_ARGS__})

static void save(struct tern_weights *w)
{
    assert_int_equal(tern_weights_save(w, file), TERN_OK);
    tern_weights_unref(&w);
}

/* ---- LoRAs of published sizes */

enum { LORA, DORA, LOHA, LOKR, LOKR_FACTORS, WHOLE, IA3, OFT, BOFT, KINDS };
static const char *const kinds[KINDS] = {"LoRA", "DoRA", "LoHa", "LoKr", "LoKr with factors", "whole difference", "IA3", "OFT", "BOFT"};

static void add_module(struct tern_weights *w, int kind, const char *stem, int64_t out, int64_t in)
{
    switch (kind) {
    case DORA:
        ADD(w, stem, ".dora_scale", out, 1); /* fall through */
    case LORA:
        ADD(w, stem, ".lora_down.weight", 2, in);
        ADD(w, stem, ".lora_up.weight", out, 2);
        break;
    case LOHA:
        ADD(w, stem, ".hada_w1_a", out, 2);
        ADD(w, stem, ".hada_w1_b", 2, in);
        ADD(w, stem, ".hada_w2_a", out, 2);
        ADD(w, stem, ".hada_w2_b", 2, in);
        break;
    case LOKR:
        ADD(w, stem, ".lokr_w1", 4, 4);
        ADD(w, stem, ".lokr_w2", out / 4, in / 4);
        break;
    case LOKR_FACTORS:
        ADD(w, stem, ".lokr_w1_a", 4, 2);
        ADD(w, stem, ".lokr_w1_b", 2, 4);
        ADD(w, stem, ".lokr_w2_a", out / 4, 2);
        ADD(w, stem, ".lokr_w2_b", 2, in / 4);
        break;
    case WHOLE:
        ADD(w, stem, ".diff", out, in);
        break;
    case IA3:
        ADD(w, stem, ".weight", out);
        ADD(w, stem, ".on_input", 1);
        break;
    case OFT:
        ADD(w, stem, ".oft_blocks", out / 4, 4, 4);
        break;
    default:
        ADD(w, stem, ".oft_blocks", 2, out / 4, 4, 4);
    }
}

#define TO_K "_transformer_blocks_0_attn2_to_k"
#define TE "text_model_encoder_layers_0_self_attn_q_proj"

/* The architectures that files are made for, each with modules that it shares with others and some of its own. */
static const struct {
    const char *name;
    int model; /* whose files they are; -1: of none */
    struct {
        const char *stem;
        int64_t out, in;
    } module[4];
} made[] = {
    {"Stable Diffusion 1",
     ON_SD1,
     {{"lora_unet_mid_block_attentions_0" TO_K, 1280, 768},
      {"lora_unet_down_blocks_0_attentions_0" TO_K, 320, 768},
      {"lora_te_" TE, 768, 768}}},
    {"Stable Diffusion 2",
     ON_SD2,
     {{"lora_unet_mid_block_attentions_0" TO_K, 1280, 1024},
      {"lora_unet_down_blocks_0_attentions_0" TO_K, 320, 1024},
      {"lora_te_" TE, 1024, 1024}}},
    {"Stable Diffusion XL",
     ON_SDXL,
     {{"lora_unet_middle_block_1" TO_K, 1280, 2048},
      {"lora_unet_input_blocks_7_1_transformer_blocks_4_attn2_to_k", 1280, 2048},
      {"lora_te1_" TE, 768, 768},
      {"lora_te2_" TE, 1280, 1280}}},
    {"Stable Diffusion XL's refiner",
     ON_REFINER,
     {{"lora_unet_middle_block_1" TO_K, 1536, 1280}, {"lora_unet_input_blocks_4_1" TO_K, 768, 1280}, {"lora_te_" TE, 1280, 1280}}},
    /* what both have, and no more */
    {"Stable Diffusion XL",
     ON_SDXL,
     {{"lora_unet_middle_block_1" TO_K, 1280, 2048}, {"lora_te1_" TE, 768, 768}, {"lora_te2_" TE, 1280, 1280}}},
    {"Stable Diffusion XL's refiner", ON_REFINER, {{"lora_unet_middle_block_1" TO_K, 1536, 1280}, {"lora_te_" TE, 1280, 1280}}},
    {"Stable Diffusion 3", -1, {{"lora_unet_joint_blocks_0_x_block_attn_proj", 1536, 1536}, {"lora_te1_" TE, 768, 768}}},
    {"Flux", -1, {{"lora_unet_double_blocks_0_img_attn_proj", 3072, 3072}, {"lora_te1_" TE, 768, 768}}},
};
#define ARCHITECTURES (sizeof(made) / sizeof(*made))

/* Kinds that change outputs alone have no width of the text, and BERT has no place for CLIP's names: what remains of such a file has names
 * that SD 1 has, too, and only its shapes do not fit. */
static bool is_untold(int model, size_t a, int kind)
{
    return model == ON_BERT && (made[a].model == ON_SD2 || made[a].model == ON_REFINER) && kind >= IA3;
}

static void loras_are_refused(void **state)
{
    char path[PATH_SIZE], what[256], own[128], other[128];
    for (size_t a = 0; a < ARCHITECTURES; a++)
        for (int kind = 0; kind < KINDS; kind++) {
            struct tern_weights *w = tern_weights_create(ctx);
            for (int k = 0; k < 4 && made[a].module[k].stem; k++)
                add_module(w, kind, made[a].module[k].stem, made[a].module[k].out, made[a].module[k].in);
            save(w);
            for (int m = 0; m < MODELS; m++) {
                if (made[a].model == m || (made[a].model == ON_SD1 && m == ON_BERT))
                    continue;
                struct tern_pipeline *p = model_load(ctx, path_of(m, path));
                enum tern_status st = tern_pipeline_set_loras(p, &(struct tern_lora){.path = file, .scale = 1}, 1);
                snprintf(what, sizeof(what), "%s for %s on %s", kinds[kind], made[a].name, models[m].name);
                snprintf(other, sizeof(other), "a LoRA for %s, but", made[a].name);
                snprintf(own, sizeof(own), is_untold(m, a, kind) ? "for this model (%s)" : "this model is %s", models[m].is);
                if (st != (is_untold(m, a, kind) ? TERN_E_SHAPE : TERN_E_FORMAT))
                    fail_msg("%s: found %s: %s", what, tern_status_name(st), tern_error(ctx));
                expect_text(tern_error(ctx), is_untold(m, a, kind) ? file : other, what);
                expect_text(tern_error(ctx), own, what);
                tern_pipeline_destroy(&p);
                tern_error_clear(ctx);
            }
        }
}

/* ---- LoRAs that fit: whole, and in part */

/* A file for two matrices of the model, by the names that are given for them. */
static void make_own(struct tern_pipeline *p, int kind, const char *const places[][3], int n)
{
    struct tern_weights *w = tern_weights_create(ctx);
    for (int i = 0; i < n; i++) {
        char name[128];
        snprintf(name, sizeof(name), "%s.weight", places[i][1]);
        const tern_tensor *t = places[i][0] ? tern_weights_get(tern_pipeline_weights(p, places[i][0]), name) : NULL;
        assert_true(t || !places[i][0]);
        add_module(w, kind, places[i][2], t ? tern_tensor_size(t, 0) : 768, t ? tern_tensor_size(t, 1) : 768);
    }
    save(w);
}

#define UNET_PLACE "unet", "mid_block.attentions.0.transformer_blocks.0.attn2.to_k"

static void a_refiners_text_encoder_has_two_names(void **state)
{
    static const char *const stems[] = {"lora_te_", "lora_te2_", "text_encoder_2.", "text_encoders.clip_g.transformer."};
    struct tern_pipeline *p = model_load(ctx, refiner);
    for (size_t i = 0; i < sizeof(stems) / sizeof(*stems); i++)
        for (int kind = 0; kind < KINDS; kind++) {
            char stem[256];
            snprintf(stem, sizeof(stem), "%s" TE, stems[i]);
            const char *const places[][3] = {{UNET_PLACE, "lora_unet_middle_block_1" TO_K},
                                             {"text_encoder_2", "text_model.encoder.layers.0.self_attn.q_proj", stem}};
            make_own(p, kind, places, 2);
            *told = 0;
            if (tern_pipeline_set_loras(p, &(struct tern_lora){.path = file, .scale = 1}, 1) || *told)
                fail_msg("%s %s: %s%s", kinds[kind], stem, tern_error(ctx), told);
        }
    static const char *const words[] = {"text_encoder_2", "text_encoders", "text_encoder"};
    for (int i = 0; i < 3; i++) {
        const struct tern_lora_strength block = {words[i], 0.5};
        assert_int_equal(tern_pipeline_set_loras(p, &(struct tern_lora){file, 1, &block, 1}, 1), i == 2 ? TERN_E_INVALID : TERN_OK);
    }
    support_error(ctx, TERN_E_INVALID, "expected text_encoder_2, text_encoders, unet");
    tern_pipeline_destroy(&p);
}

static void what_fits_in_part_is_told(void **state)
{
    static const int count[KINDS] = {2, 3, 4, 2, 4, 1, 2, 1, 1};
    static const char *const places[][3] = {{UNET_PLACE, "lora_unet_mid_block_attentions_0" TO_K}, {NULL, NULL, "lora_te_" TE}};
    struct tern_pipeline *p = model_load(ctx, models[ON_BERT].name);
    for (int kind = 0; kind < KINDS; kind++) {
        char part[64];
        make_own(p, kind, places, 2);
        *told = 0;
        if (tern_pipeline_set_loras(p, &(struct tern_lora){.path = file, .scale = 1}, 1))
            fail_msg("%s: %s", kinds[kind], tern_error(ctx));
        snprintf(part, sizeof(part), "%d of its %d tensors have no place", count[kind], 2 * count[kind]);
        expect_text(told, part, kinds[kind]);
        expect_text(told, "\"lora_te_" TE ".", kinds[kind]);
    }
    tern_pipeline_destroy(&p);
}

/* ---- embeddings of published widths */

static void embeddings_are_refused(void **state)
{
    static const struct {
        int model;
        int64_t width[2];
        const char *name, *path; /* path: a file that is there */
    } embeddings[] = {
        {ON_SD1, {768}, "(Stable Diffusion 1)", NULL},
        {ON_SD2, {1024}, "(Stable Diffusion 2)", NULL},
        {ON_SDXL, {768, 1280}, "(Stable Diffusion XL or its refiner)", NULL},
        {ON_SD1, {40}, "(another architecture)", TERN_TEST_DATA "/prompts/a1111.pt"}, /* of a tiny model */
        {ON_SDXL, {16, 24}, "(Stable Diffusion XL or its refiner)", TERN_TEST_DATA "/prompts/xl-style.safetensors"},
    };
    char path[PATH_SIZE], own[128];
    for (size_t i = 0; i < sizeof(embeddings) / sizeof(*embeddings); i++)
        for (int m = 0; m < MODELS; m++) {
            const int64_t *width = embeddings[i].width;
            const bool pair = width[1], fits = embeddings[i].model == m || (pair && embeddings[i].path && m == ON_REFINER);
            struct tern_weights *w = tern_weights_create(ctx);
            ADD(w, "", pair ? "clip_l" : "emb_params", 2, width[0]);
            if (pair)
                ADD(w, "", "clip_g", 2, width[1]);
            save(w);
            struct tern_pipeline *p = model_load(ctx, path_of(m, path));
            const struct tern_prompt_embedding list = {embeddings[i].path ? embeddings[i].path : file, "word"};
            enum tern_status st = tern_pipeline_set_embeddings(p, &list, 1);
            assert_int_equal(st, fits && embeddings[i].path ? TERN_OK : TERN_E_SHAPE); /* published widths fit no tiny model */
            snprintf(own, sizeof(own), "(%s) need", models[m].is);
            if (st) {
                expect_text(tern_error(ctx), embeddings[i].name, models[m].name);
                expect_text(tern_error(ctx), own, models[m].name);
            }
            tern_pipeline_destroy(&p);
            tern_error_clear(ctx);
        }
}

/* ---- VAEs */

#define VAE_FILE "diffusion_pytorch_model.safetensors"

/* A copy of a VAE's folder for 16 latent channels. */
static void copy_vae(const char *from, const char *channels, const char *name, int64_t out, int64_t kernel)
{
    size_t n;
    char *text = damage_read(from, "config.json", &n);
    damage_text(folder, "vae/config.json", text, n);
    free(text);
    damage_json(folder, "vae/config.json", channels, json_integer(16));
    text = damage_read(from, VAE_FILE, &n);
    damage_text(folder, "vae/" VAE_FILE, text, n);
    free(text);
    damage_tensor(ctx, folder, "vae/" VAE_FILE, name, TERN_F16, 4, (const int64_t[]){out, 16, kernel, kernel});
}

static void check_vae(const char *vae, const char *is, unsigned fits)
{
    char path[PATH_SIZE];
    for (int m = 0; m < MODELS; m++) {
        struct tern_pipeline *p = tern_pipeline_load(ctx, path_of(m, path), &(struct tern_pipeline_params){.vae = vae});
        if (!p != !(fits >> m & 1))
            fail_msg("%s on %s: %s", vae, models[m].name, p ? "it is taken" : tern_error(ctx));
        if (!p) {
            expect_text(tern_error(ctx), "a VAE for another architecture", vae);
            expect_text(tern_error(ctx), is, vae);
            expect_text(tern_error(ctx), models[m].vae, vae);
        }
        tern_pipeline_destroy(&p);
        tern_error_clear(ctx);
    }
}

static void vaes_are_refused(void **state)
{
    char vae[2 * PATH_SIZE];
    snprintf(vae, sizeof(vae), "%s/vae", folder);
    check_vae(TERN_TEST_DATA "/models/sd1/vae", "(as of Stable Diffusion 1 or 2)", 1u << ON_SD1 | 1u << ON_SD2);
    check_vae(TERN_TEST_DATA "/models/sdxl/vae", "(as of Stable Diffusion XL)", 1u << ON_SDXL | 1u << ON_REFINER);
    check_vae(TERN_TEST_DATA "/taesd/vae", "", (1u << MODELS) - 1);
    copy_vae(TERN_TEST_DATA "/models/sd1/vae", "latent_channels", "decoder.conv_in.weight", 16, 3);
    check_vae(vae, "16 latent channels at 1/8, scaling factor 0.18215 (as of Stable Diffusion 3 or Flux)", 0);
    snprintf(vae, sizeof(vae), "%s/vae/" VAE_FILE, folder);
    check_vae(vae, "16 latent channels at 1/8 (as of Stable Diffusion 3 or Flux)", 0);
    copy_vae(TERN_TEST_DATA "/taesd/vae", "latent_channels", "decoder.layers.0.weight", 6, 3); /* TAESD3 */
    check_vae(vae, "16 latent channels at 1/8 (as of Stable Diffusion 3 or Flux)", 0);
    snprintf(vae, sizeof(vae), "%s/vae", folder);
    check_vae(vae, "16 latent channels at 1/8 (as of Stable Diffusion 3 or Flux)", 0);
}

static int setup(void **state)
{
    setenv("TERN_DATA_DIR", TERN_SOURCE_ROOT "/models", 1);
    ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log = listen});
    assert_non_null(ctx);
    xl_folder(ctx, "sdxl-refiner", refiner);
    damage_copy("sd1", folder);
    snprintf(file, sizeof(file), "%s/file.safetensors", folder);
    return 0;
}

static int teardown(void **state)
{
    damage_remove(refiner);
    damage_remove(folder);
    tern_context_destroy(&ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loras_are_refused),         cmocka_unit_test(a_refiners_text_encoder_has_two_names),
        cmocka_unit_test(what_fits_in_part_is_told), cmocka_unit_test(embeddings_are_refused),
        cmocka_unit_test(vaes_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
