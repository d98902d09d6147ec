/* One model in every container: the same bytes come out of every component, and the same architecture is recognised. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "damage.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

#define FORMATS TERN_TEST_DATA "/formats/"

/* All hold the same f16 values. The first is what the others are compared with. */
static const struct {
    const char *path, *layout;
} containers[] = {
    {FORMATS "mini", "diffusers folder"},         {FORMATS "mini/", "diffusers folder"},     {FORMATS "mini-bin", "diffusers folder"},
    {FORMATS "mini-sharded", "diffusers folder"}, {FORMATS "mini-fp16", "diffusers folder"}, {FORMATS "mini.safetensors", "single file"},
    {FORMATS "mini.ckpt", "single file"},
};
enum { CONTAINERS = sizeof(containers) / sizeof(*containers) };

static void same_bytes(const struct tern_weights *a, const struct tern_weights *b, const char *what)
{
    assert_int_equal(tern_weights_count(a), tern_weights_count(b));
    for (int64_t i = 0; i < tern_weights_count(a); i++) {
        int64_t n, m;
        assert_string_equal(tern_weights_name(a, i), tern_weights_name(b, i));
        float *x = support_f32(a, tern_weights_name(a, i), &n), *y = support_f32(b, tern_weights_name(b, i), &m);
        if (n != m || memcmp(x, y, (size_t)n * sizeof(*x)))
            fail_msg("%s: output %s differs", what, tern_weights_name(a, i));
        free(x);
        free(y);
    }
}

struct run {
    struct tern_context *ctx;
    struct tern_pipeline *p[CONTAINERS];
    int cases;
};

static void check_case(void *arg, const char *path, const char *component, const char *name)
{
    struct run *r = arg;
    struct golden g = golden_open(r->ctx, path);
    struct tern_weights *first = model_exec(r->p[0], component, g.inputs);
    for (int i = 0; i < CONTAINERS; i++) {
        double e = golden_error(r->p[i], component, &g, containers[i].path);
        if (!(e <= 1e-8))
            fail_msg("%s: %s: NMSE %.3g", containers[i].path, name, e);
        struct tern_weights *out = model_exec(r->p[i], component, g.inputs);
        same_bytes(first, out, containers[i].path);
        tern_weights_unref(&out);
    }
    tern_weights_unref(&first);
    golden_close(&g);
    r->cases++;
}

static void containers_give_the_same_bytes(void **state)
{
    struct run r = {.ctx = model_context(NULL, 1)};
    for (int i = 0; i < CONTAINERS; i++)
        r.p[i] = model_load(r.ctx, containers[i].path);
    golden_each("sd1-mini", check_case, &r);
    assert_int_equal(r.cases, 4);
    for (int i = 0; i < CONTAINERS; i++)
        tern_pipeline_destroy(&r.p[i]);
    tern_context_destroy(&r.ctx);
}

/* ---- what is recognised */

static json_t *describe(struct tern_context *ctx, const char *path)
{
    json_error_t e;
    struct tern_pipeline *p = model_load(ctx, path);
    char *text = tern_pipeline_describe(p, true);
    if (!text)
        fail_msg("%s: %s", path, tern_error(ctx));
    json_t *o = json_loads(text, 0, &e);
    if (!o)
        fail_msg("%s: line %d: %s", path, e.line, e.text);
    tern_free_text(ctx, text);
    tern_pipeline_destroy(&p);
    return o;
}

static const json_t *component(const json_t *o, const char *name)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(o, "components"), i, row)
        if (!strcmp(json_string_value(json_object_get(row, "name")), name))
            return row;
    fail_msg("component %s is not described", name);
    return NULL;
}

/* A key of config.json in the folder that diffusers wrote, and in what was recognised. */
static void check_key(const json_t *found, const char *name, const char *key, const char *where)
{
    char file[128];
    snprintf(file, sizeof(file), "formats/mini/%s/config.json", name);
    json_t *config = support_json(file);
    const json_t *a = json_object_get(config, key), *b = json_object_get(json_object_get(found, "config"), key);
    if (!a || !b || !(json_is_number(a) ? json_number_value(a) == json_number_value(b) : json_equal(a, b)))
        fail_msg("%s: %s: \"%s\" is not that of the model's config.json", where, name, key);
    json_decref(config);
}

static void check_description(const json_t *o, const char *path, const char *layout)
{
    static const struct {
        const char *name, *class_name, *keys[12];
    } rows[] = {
        {"text_encoder",
         "CLIPTextModel",
         {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings", "vocab_size",
          "hidden_act", "eos_token_id", "layer_norm_eps"}},
        {"unet",
         "UNet2DConditionModel",
         {"block_out_channels", "down_block_types", "up_block_types", "layers_per_block", "cross_attention_dim", "in_channels",
          "out_channels", "attention_head_dim", "norm_num_groups", "norm_eps"}},
        {"vae", "AutoencoderKL", {"block_out_channels", "layers_per_block", "latent_channels", "norm_num_groups", "scaling_factor"}},
    };
    assert_string_equal(json_string_value(json_object_get(o, "path")), path);
    assert_string_equal(json_string_value(json_object_get(o, "layout")), layout);
    assert_string_equal(json_string_value(json_object_get(o, "pipeline")), "StableDiffusionPipeline");
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "scheduler"), "_class_name")), "PNDMScheduler");
    assert_int_equal(json_array_size(json_object_get(o, "components")), 3);
    for (int i = 0; i < 3; i++) {
        const json_t *c = component(o, rows[i].name), *dtypes = json_object_get(c, "dtypes");
        assert_string_equal(json_string_value(json_object_get(c, "class")), rows[i].class_name);
        assert_int_equal(json_object_size(dtypes), 1);
        assert_int_equal(json_integer_value(json_object_get(dtypes, "f16")), json_integer_value(json_object_get(c, "tensors")));
        assert_int_equal(json_integer_value(json_object_get(c, "bytes")), 2 * json_integer_value(json_object_get(c, "parameters")));
        for (int k = 0; rows[i].keys[k]; k++)
            check_key(c, rows[i].name, rows[i].keys[k], path);
    }
}

static void containers_are_recognised(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    json_t *first = describe(ctx, containers[0].path);
    for (int i = 0; i < CONTAINERS; i++) {
        json_t *o = describe(ctx, containers[i].path);
        check_description(o, containers[i].path, containers[i].layout);
        for (int k = 0; k < 3; k++) {
            static const char *const names[] = {"text_encoder", "unet", "vae"};
            assert_int_equal(json_integer_value(json_object_get(component(o, names[k]), "parameters")),
                             json_integer_value(json_object_get(component(first, names[k]), "parameters")));
        }
        json_decref(o);
    }
    json_decref(first);
    tern_context_destroy(&ctx);
}

/* The text for people names the same facts. */
static void descriptions_can_be_read(void **state)
{
    static const char *const parts[] = {"StableDiffusionPipeline",
                                        "single file",
                                        "text_encoder",
                                        "CLIPTextModel",
                                        "unet",
                                        "UNet2DConditionModel",
                                        "vae",
                                        "AutoencoderKL",
                                        "f16",
                                        "no tokenizer",
                                        "1/4"};
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, FORMATS "mini.ckpt");
    char *text = tern_pipeline_describe(p, false);
    assert_non_null(text);
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
        if (!strstr(text, parts[i]))
            fail_msg("\"%s\" is not in: %s", parts[i], text);
    tern_free_text(ctx, text);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void inpainting_is_recognised(void **state)
{
    char path[PATH_SIZE];
    struct tern_context *ctx = model_context(NULL, 1);
    json_t *o = describe(ctx, model_path("sd1-inpaint", path));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(component(o, "unet"), "config"), "in_channels")), 9);
    json_decref(o);
    struct tern_pipeline *p = model_load(ctx, path);
    char *text = tern_pipeline_describe(p, false);
    assert_non_null(strstr(text, "for inpainting"));
    tern_free_text(ctx, text);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Of a safety checker that nobody needs some fetch the configuration alone. What stands behind it is described, too. */
static void a_component_without_weights_is_described(void **state)
{
    static const char index[] = "{\"weight_map\": {\"a\": \"gone.safetensors\"}}";
    char folder[PATH_SIZE], path[PATH_SIZE + 32];
    (void)state;
    struct tern_context *ctx = model_context(NULL, 1);
    damage_copy("sd1", folder);
    damage_json(folder, "model_index.json", "safety_checker", json_pack("[s,s]", "stable_diffusion", "StableDiffusionSafetyChecker"));
    snprintf(path, sizeof(path), "%s/safety_checker", folder);
    assert_int_equal(mkdir(path, 0777), 0);
    damage_text(folder, "safety_checker/config.json", "{}", 2);
    json_t *o = describe(ctx, folder);
    assert_int_equal(json_integer_value(json_object_get(component(o, "safety_checker"), "tensors")), 0);
    assert_true(json_integer_value(json_object_get(component(o, "vae"), "tensors")) > 0);
    json_decref(o);
    struct tern_pipeline *p = model_load(ctx, folder);
    char *text = tern_pipeline_describe(p, false);
    assert_int_equal(tern_error_status(ctx), TERN_OK);
    assert_non_null(strstr(text, "StableDiffusionSafetyChecker no weights"));
    assert_non_null(strstr(text, "AutoencoderKL"));
    tern_free_text(ctx, text);
    /* no description is no half of one */
    damage_text(folder, "safety_checker/model.safetensors", "x", 1);
    assert_null(tern_pipeline_describe(p, false));
    support_error(ctx, TERN_E_FORMAT, "safety_checker/model.safetensors");
    /* nor are weights of which a part is missing none */
    damage_delete(folder, "safety_checker/model.safetensors");
    damage_text(folder, "safety_checker/model.safetensors.index.json", index, sizeof(index) - 1);
    assert_null(tern_pipeline_describe(p, false));
    support_error(ctx, TERN_E_NOT_FOUND, "the file gone.safetensors that it names is missing");
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- torch.save's format before zip: a VAE in f32, put in the place of the f16 one */

static const char vae_prefix[] = "first_stage_model.";

static void add_all(struct tern_weights *to, const struct tern_weights *from, const char *prefix, bool without_vae)
{
    char name[256];
    for (int64_t i = 0; i < tern_weights_count(from); i++) {
        snprintf(name, sizeof(name), "%s%s", prefix, tern_weights_name(from, i));
        if (!without_vae || strncmp(name, vae_prefix, sizeof(vae_prefix) - 1))
            assert_int_equal(tern_weights_add(to, name, tern_weights_at(from, i)), TERN_OK);
    }
}

/* Both pipelines: the folder "mini", and a file of those weights, which is made at path, a pattern of mkstemps. */
static void load_beside_mini(struct run *r, struct tern_weights *w, char *path)
{
    int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    r->p[0] = model_load(r->ctx, FORMATS "mini");
    r->p[1] = model_load(r->ctx, path);
}

static void check_vae_case(void *arg, const char *path, const char *component_name, const char *name)
{
    struct run *r = arg;
    if (strncmp(component_name, "vae", 3))
        return;
    struct golden g = golden_open(r->ctx, path);
    struct tern_weights *a = model_exec(r->p[0], component_name, g.inputs), *b = model_exec(r->p[1], component_name, g.inputs);
    assert_true(golden_error(r->p[1], component_name, &g, name) <= 1e-8);
    same_bytes(a, b, name); /* every f16 is an f32, and both are computed in f32 */
    tern_weights_unref(&a);
    tern_weights_unref(&b);
    golden_close(&g);
    r->cases++;
}

static void legacy_files_give_the_same_values(void **state)
{
    char path[] = "/tmp/tern-formats-XXXXXX.safetensors";
    struct run r = {.ctx = model_context(NULL, 1)};
    struct tern_weights *model = tern_weights_open(r.ctx, FORMATS "mini.safetensors"),
                        *vae = tern_weights_open(r.ctx, FORMATS "mini-vae.pt");
    struct tern_weights *joined = tern_weights_create(r.ctx);
    assert_non_null(model);
    assert_non_null(vae);
    assert_int_equal(tern_tensor_dtype(tern_weights_get(vae, "decoder.conv_in.weight")), TERN_F32);
    add_all(joined, model, "", true);
    add_all(joined, vae, vae_prefix, false);
    load_beside_mini(&r, joined, path);
    golden_each("sd1-mini", check_vae_case, &r);
    assert_int_equal(r.cases, 2);
    for (int i = 0; i < 2; i++)
        tern_pipeline_destroy(&r.p[i]);
    tern_weights_unref(&model);
    tern_weights_unref(&vae);
    tern_weights_unref(&joined);
    remove(path);
    tern_context_destroy(&r.ctx);
}

/* What programs save along with a model: the rest of a CLIP, and of a VAE's training. diffusers leaves it, too. */
static void what_is_saved_along_is_left(void **state)
{
    static const char *const names[] = {"cond_stage_model.transformer.text_projection.weight", "cond_stage_model.transformer.logit_scale",
                                        "first_stage_model.loss.logvar", "first_stage_model.model_ema.decay"};
    char path[] = "/tmp/tern-formats-XXXXXX.safetensors";
    struct run r = {.ctx = model_context(NULL, 1)};
    struct tern_weights *model = tern_weights_open(r.ctx, FORMATS "mini.safetensors"), *joined = tern_weights_create(r.ctx);
    tern_tensor *one = tern_full(r.ctx, TERN_F32, 1, (const int64_t[]){1}, 1);
    add_all(joined, model, "", false);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        assert_int_equal(tern_weights_add(joined, names[i], one), TERN_OK);
    load_beside_mini(&r, joined, path);
    static const char *const components[] = {"text_encoder", "vae_decoder"};
    for (int i = 0; i < 2; i++) {
        const struct tern_weights *w = tern_pipeline_weights(r.p[1], components[i]);
        if (!w)
            fail_msg("%s", tern_error(r.ctx));
        same_bytes(tern_pipeline_weights(r.p[0], components[i]), w, components[i]);
    }
    for (int i = 0; i < 2; i++)
        tern_pipeline_destroy(&r.p[i]);
    tern_tensor_unref(&one);
    tern_weights_unref(&model);
    tern_weights_unref(&joined);
    remove(path);
    tern_context_destroy(&r.ctx);
}

/* ---- Stable Diffusion 2 in one file: its text encoder has OpenCLIP's names */

/* The networks of a folder under LDM names. */
static void add_networks(struct tern_context *ctx, struct tern_weights *to, const char *folder)
{
    static const struct tern_ldm_sizes sizes = {2, 1, 2, 4, 2, TERN_LDM_SD2};
    static const char *const names[] = {"unet", "vae"};
    char ldm[TERN_LDM_NAME];
    struct tern_checkpoint *cp = tern_checkpoint_open(ctx, folder);
    assert_non_null(cp);
    for (int k = 0; k < 2; k++) {
        struct tern_weights *w = tern_checkpoint_weights(cp, names[k]);
        for (int64_t i = 0; i < tern_weights_count(w); i++) {
            assert_true(tern_ldm_name(&sizes, names[k], tern_weights_name(w, i), ldm));
            assert_int_equal(tern_weights_add(to, ldm, tern_weights_at(w, i)), TERN_OK);
        }
        tern_weights_unref(&w);
    }
    tern_checkpoint_close(&cp);
}

/* All but the UNet, whose heads a file does not tell: the small one has others than 64 channels a head. */
static void check_sd2_case(void *arg, const char *path, const char *component_name, const char *name)
{
    struct run *r = arg;
    if (!strcmp(component_name, "unet"))
        return;
    struct golden g = golden_open(r->ctx, path);
    struct tern_weights *a = model_exec(r->p[0], component_name, g.inputs), *b = model_exec(r->p[1], component_name, g.inputs);
    double e = golden_error(r->p[1], component_name, &g, name);
    if (!(e <= 1e-8))
        fail_msg("%s: NMSE %.3g", name, e);
    same_bytes(a, b, name);
    tern_weights_unref(&a);
    tern_weights_unref(&b);
    golden_close(&g);
    r->cases++;
}

static void sd2_files_give_the_same_values(void **state)
{
    char path[] = "/tmp/tern-formats-XXXXXX.safetensors", folder[PATH_SIZE];
    struct run r = {.ctx = model_context(NULL, 1)};
    struct tern_weights *text = tern_weights_open(r.ctx, FORMATS "sd2-text.safetensors"), *joined = tern_weights_create(r.ctx);
    assert_non_null(text);
    add_all(joined, text, "", false);
    add_networks(r.ctx, joined, model_path("sd2", folder));
    int fd = mkstemps(path, 12);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(tern_weights_save(joined, path), TERN_OK);
    r.p[0] = model_load(r.ctx, folder);
    r.p[1] = model_load(r.ctx, path);
    golden_each("sd2", check_sd2_case, &r);
    assert_int_equal(r.cases, 6);
    for (int i = 0; i < 2; i++)
        tern_pipeline_destroy(&r.p[i]);
    tern_weights_unref(&text);
    tern_weights_unref(&joined);
    remove(path);
    tern_context_destroy(&r.ctx);
}

/* What kernels prepare of a weight goes with its component, though the file stays open. */
static void nothing_stays_of_components_that_left(void **state)
{
    static const char *const names[] = {"text_encoder", "unet", "vae_decoder"};
    static const char *const cases[] = {"text_encoder.full", "unet.square", "vae_decoder.square"};
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = model_load(ctx, FORMATS "mini.safetensors");
    size_t used[2] = {0};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++) {
            char path[PATH_SIZE];
            snprintf(path, sizeof(path), "%s/components/sd1-mini/%s.safetensors", TERN_TEST_DATA, cases[i]);
            struct golden g = golden_open(ctx, path);
            struct tern_weights *out = round ? model_exec(p, names[i], g.inputs) : NULL;
            tern_weights_unref(&out);
            golden_close(&g);
        }
        tern_pipeline_drop_text(p);
        tern_pipeline_drop_unet(p);
        tern_pipeline_drop_vae(p);
        tern_memory_trim(ctx);
        used[round] = tern_memory_used(ctx);
    }
    assert_true(used[1] <= used[0] + 16384); /* tables of kernels that were chosen, and the like */
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* ---- what is refused */

static void foreign_pickles_are_refused(void **state)
{
    static const char *const paths[] = {FORMATS "foreign-global.ckpt", FORMATS "foreign-global-legacy.pt"};
    struct tern_context *ctx = model_context(NULL, 1);
    for (int i = 0; i < 2; i++) {
        assert_null(tern_pipeline_load(ctx, paths[i], NULL));
        assert_non_null(strstr(tern_error(ctx), paths[i]));
        support_error(ctx, TERN_E_FORMAT, "posix.system");
    }
    tern_context_destroy(&ctx);
}

static void other_files_are_no_models(void **state)
{
    static const struct {
        const char *path, *message;
    } rows[] = {
        {FORMATS "odd.safetensors", "not a Stable Diffusion checkpoint"},
        {FORMATS "odd.pt", "not a Stable Diffusion checkpoint"},
        {FORMATS "mini-vae.pt", "a VAE alone"},
        {FORMATS "mini/unet/diffusion_pytorch_model.safetensors", "the UNet of a diffusers folder"},
        {FORMATS "mini/unet", "one component of a model"},
        {FORMATS "odd.json", "odd.json"},
        {FORMATS, "to load the single file in it"},
        {TERN_TEST_DATA "/demo", "latents.safetensors"},
        {TERN_TEST_DATA, "a folder that is no model"},
        {FORMATS "absent", "no such file or folder"},
    };
    struct tern_context *ctx = model_context(NULL, 1);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        assert_null(tern_pipeline_load(ctx, rows[i].path, NULL));
        if (!strstr(tern_error(ctx), rows[i].message))
            fail_msg("%s: expected \"%s\", found \"%s\"", rows[i].path, rows[i].message, tern_error(ctx));
        tern_error_clear(ctx);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers_give_the_same_bytes),
        cmocka_unit_test(containers_are_recognised),
        cmocka_unit_test(descriptions_can_be_read),
        cmocka_unit_test(inpainting_is_recognised),
        cmocka_unit_test(a_component_without_weights_is_described),
        cmocka_unit_test(legacy_files_give_the_same_values),
        cmocka_unit_test(what_is_saved_along_is_left),
        cmocka_unit_test(foreign_pickles_are_refused),
        cmocka_unit_test(nothing_stays_of_components_that_left),
        cmocka_unit_test(sd2_files_give_the_same_values),
        cmocka_unit_test(other_files_are_no_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
