/* Stable Diffusion XL in one file: names, what is recognised, the same bytes as from the folder, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/tensor.h"
#include "damage.h"
#include "model_help.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"
#include "models/files/weights.h"
#include "support.h"
#include "weights_help.h"
#include "xl_help.h"

static const struct tern_ldm_sizes base = {3, 2, 3, 4, 32, TERN_LDM_XL}, refiner = {4, 2, 6, 4, 32, TERN_LDM_REFINER};

/* Names of the published files. */
static void names_are_known(void **state)
{
    static const struct {
        const struct tern_ldm_sizes *sizes;
        const char *component, *diffusers, *ldm;
    } cases[] = {
        {&base, "unet", "add_embedding.linear_1.weight", "model.diffusion_model.label_emb.0.0.weight"},
        {&base, "unet", "add_embedding.linear_2.bias", "model.diffusion_model.label_emb.0.2.bias"},
        {&base, "unet", "down_blocks.1.attentions.0.transformer_blocks.1.attn2.to_k.weight",
         "model.diffusion_model.input_blocks.4.1.transformer_blocks.1.attn2.to_k.weight"},
        {&base, "unet", "down_blocks.2.attentions.1.transformer_blocks.9.ff.net.2.bias",
         "model.diffusion_model.input_blocks.8.1.transformer_blocks.9.ff.net.2.bias"},
        {&base, "unet", "down_blocks.1.downsamplers.0.conv.weight", "model.diffusion_model.input_blocks.6.0.op.weight"},
        {&base, "unet", "mid_block.attentions.0.proj_in.weight", "model.diffusion_model.middle_block.1.proj_in.weight"},
        {&base, "unet", "up_blocks.0.upsamplers.0.conv.weight", "model.diffusion_model.output_blocks.2.2.conv.weight"},
        {&base, "unet", "up_blocks.2.resnets.2.conv_shortcut.bias", "model.diffusion_model.output_blocks.8.0.skip_connection.bias"},
        {&refiner, "unet", "up_blocks.0.upsamplers.0.conv.weight", "model.diffusion_model.output_blocks.2.1.conv.weight"},
        {&base, "vae", "decoder.up_blocks.0.resnets.2.conv1.bias", "first_stage_model.decoder.up.3.block.2.conv1.bias"},
        {&base, "text_encoder", "text_model.encoder.layers.11.mlp.fc2.bias",
         "conditioner.embedders.0.transformer.text_model.encoder.layers.11.mlp.fc2.bias"},
        {&base, "text_encoder_2", "text_model.encoder.layers.31.layer_norm1.weight",
         "conditioner.embedders.1.model.transformer.resblocks.31.ln_1.weight"},
        {&base, "text_encoder_2", "text_model.embeddings.position_embedding.weight", "conditioner.embedders.1.model.positional_embedding"},
        {&base, "text_encoder_2", "text_projection.weight", "conditioner.embedders.1.model.text_projection"},
        {&refiner, "text_encoder_2", "text_projection.weight", "conditioner.embedders.0.model.text_projection"},
        {&refiner, "text_encoder_2", "text_model.encoder.layers.0.mlp.fc1.weight",
         "conditioner.embedders.0.model.transformer.resblocks.0.mlp.c_fc.weight"},
    };
    char name[TERN_LDM_NAME];
    const char *component;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_true(tern_ldm_name(cases[i].sizes, cases[i].component, cases[i].diffusers, name));
        assert_string_equal(name, cases[i].ldm);
        assert_true(tern_ldm_to_diffusers(cases[i].sizes, cases[i].ldm, &component, name));
        assert_string_equal(component, cases[i].component);
        assert_string_equal(name, cases[i].diffusers);
    }
    assert_false(tern_ldm_name(&refiner, "text_encoder", "text_model.final_layer_norm.bias", name));
    assert_false(tern_ldm_to_diffusers(&base, "conditioner.embedders.1.model.transformer.resblocks.32.ln_1.weight", &component, name));
    assert_false(tern_ldm_is_unused(&base, "conditioner.embedders.1.model.text_projection"));
    assert_true(tern_ldm_is_unused(&base, "conditioner.embedders.1.model.logit_scale"));
}

/* Every key of `expected`, as in the config.json that diffusers wrote; heads are not told by a file. */
static void check_config(const char *found, const json_t *expected, const char *what)
{
    const char *key;
    json_t *o = json_loads(found ? found : "", 0, NULL), *v;
    assert_non_null(o);
    json_object_foreach((json_t *)(uintptr_t)expected, key, v) {
        const json_t *mine = json_object_get(o, key);
        bool same = json_is_number(v) ? mine && json_number_value(v) == json_number_value(mine) : json_equal(v, mine);
        if (!same)
            fail_msg("%s: %s: found %s", what, key, found);
    }
    json_decref(o);
}

/* The keys of a folder's config.json that tell a network. */
static void check_component(const struct tern_checkpoint *folder, const struct tern_checkpoint *file, const char *component)
{
    static const char *const keys[] = {"block_out_channels",
                                       "down_block_types",
                                       "up_block_types",
                                       "layers_per_block",
                                       "cross_attention_dim",
                                       "in_channels",
                                       "out_channels",
                                       "norm_num_groups",
                                       "transformer_layers_per_block",
                                       "use_linear_projection",
                                       "addition_embed_type",
                                       "addition_time_embed_dim",
                                       "projection_class_embeddings_input_dim",
                                       "scaling_factor",
                                       "latent_channels",
                                       "hidden_size",
                                       "intermediate_size",
                                       "num_hidden_layers",
                                       "projection_dim",
                                       "hidden_act",
                                       "eos_token_id",
                                       "vocab_size",
                                       "max_position_embeddings"};
    json_t *a = json_loads(tern_checkpoint_config(folder, component), 0, NULL), *wanted = json_object();
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (json_object_get(a, keys[i]))
            json_object_set(wanted, keys[i], json_object_get(a, keys[i]));
    assert_true(json_object_size(wanted) >= 6);
    check_config(tern_checkpoint_config(file, component), wanted, component);
    assert_string_equal(tern_checkpoint_class(folder, component), tern_checkpoint_class(file, component));
    json_decref(wanted);
    json_decref(a);
}

static const char *const models[] = {"sdxl", "sdxl-inpaint", "sdxl-refiner"};
enum { MODELS = sizeof(models) / sizeof(*models) };

static void save_single(struct fixture *f, const char *model, const char *folder)
{
    struct tern_weights *w = xl_single(f->ctx, model, folder);
    assert_int_equal(tern_weights_save(w, help_path(f, "model.safetensors")), TERN_OK);
    tern_weights_unref(&w);
}

static void files_are_their_folder(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE];
    for (int i = 0; i < MODELS; i++) {
        xl_folder(f->ctx, models[i], folder);
        save_single(f, models[i], folder);
        struct tern_checkpoint *a = tern_checkpoint_open(f->ctx, folder),
                               *b = tern_checkpoint_open(f->ctx, help_path(f, "model.safetensors"));
        if (!b)
            fail_msg("%s", tern_error(f->ctx));
        assert_string_equal(tern_checkpoint_pipeline(a), tern_checkpoint_pipeline(b));
        assert_int_equal(tern_checkpoint_count(a), i == 2 ? 3 : 4);
        assert_int_equal(tern_checkpoint_count(b), tern_checkpoint_count(a));
        for (int k = 0; k < tern_checkpoint_count(a); k++) {
            const char *component = tern_checkpoint_component(a, k);
            struct tern_weights *x = tern_checkpoint_weights(a, component), *y = tern_checkpoint_weights(b, component);
            if (!y)
                fail_msg("%s", tern_error(f->ctx));
            help_same_weights(x, y);
            tern_weights_unref(&x);
            tern_weights_unref(&y);
            check_component(a, b, component);
        }
        json_t *scheduler = json_loads(tern_checkpoint_scheduler(a), 0, NULL);
        check_config(tern_checkpoint_scheduler(b), scheduler, models[i]);
        json_decref(scheduler);
        tern_checkpoint_close(&a);
        tern_checkpoint_close(&b);
        damage_remove(folder);
    }
}

/* What an older diffusers' script wrote: the projection under diffusers' name, as it is there. */
static void a_projection_of_diffusers_is_read(void **state)
{
    static const char projection[] = ".model.text_projection";
    struct fixture *f = *state;
    for (int i = 0; i < MODELS; i++) {
        char folder[PATH_SIZE], name[TERN_LDM_NAME];
        xl_folder(f->ctx, models[i], folder);
        struct tern_checkpoint *a = tern_checkpoint_open(f->ctx, folder);
        struct tern_weights *x = tern_checkpoint_weights(a, "text_encoder_2"), *w = xl_single(f->ctx, models[i], folder),
                            *other = tern_weights_create(f->ctx);
        for (int64_t k = 0; k < tern_weights_count(w); k++) {
            const char *old = tern_weights_name(w, k), *at = strstr(old, projection);
            snprintf(name, sizeof(name), "%s%s", old, at ? ".weight" : "");
            assert_int_equal(tern_weights_add(other, name, at ? tern_weights_get(x, "text_projection.weight") : tern_weights_at(w, k)),
                             TERN_OK);
        }
        assert_int_equal(tern_weights_save(other, help_path(f, "model.safetensors")), TERN_OK);
        struct tern_checkpoint *b = tern_checkpoint_open(f->ctx, help_path(f, "model.safetensors"));
        if (!b)
            fail_msg("%s", tern_error(f->ctx));
        struct tern_weights *y = tern_checkpoint_weights(b, "text_encoder_2");
        help_same_weights(x, y);
        check_component(a, b, "text_encoder_2");
        check_component(a, b, "unet");
        tern_weights_unref(&x);
        tern_weights_unref(&y);
        tern_weights_unref(&w);
        tern_weights_unref(&other);
        tern_checkpoint_close(&a);
        tern_checkpoint_close(&b);
        damage_remove(folder);
    }
}

struct run {
    struct tern_pipeline *folder, *file;
    struct tern_context *ctx;
    int cases;
};

static void same_values(void *arg, const char *path, const char *component, const char *name)
{
    struct run *r = arg;
    struct golden g = golden_open(r->ctx, path);
    struct tern_weights *a = model_exec(r->folder, component, g.inputs), *b = model_exec(r->file, component, g.inputs);
    help_same_weights(a, b);
    tern_weights_unref(&a);
    tern_weights_unref(&b);
    golden_close(&g);
    r->cases++;
}

/* A head has 64 channels in published models, which is what a file is taken to have: one in all of the small model. */
static void set_heads(const char *folder)
{
    damage_json(folder, "unet/config.json", "attention_head_dim", json_integer(1));
    damage_json(folder, "text_encoder/config.json", "num_attention_heads", json_integer(1));
    damage_json(folder, "text_encoder_2/config.json", "num_attention_heads", json_integer(1));
}

static void components_give_the_same_bytes(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE];
    struct run r = {.ctx = model_context(NULL, 1)};
    xl_folder(f->ctx, "sdxl", folder);
    set_heads(folder);
    save_single(f, "sdxl", folder);
    r.folder = model_load(r.ctx, folder);
    r.file = model_load(r.ctx, help_path(f, "model.safetensors"));
    golden_each("sdxl", same_values, &r);
    assert_int_equal(r.cases, 10);
    char *text = tern_pipeline_describe(r.file, false);
    assert_non_null(strstr(text, "StableDiffusionXLPipeline, single file"));
    assert_non_null(strstr(text, "CLIPTextModelWithProjection"));
    tern_free_text(r.ctx, text);
    tern_pipeline_destroy(&r.folder);
    tern_pipeline_destroy(&r.file);
    tern_context_destroy(&r.ctx);
    damage_remove(folder);
}

/* ---- full sizes */

static void add(struct fixture *f, struct tern_weights *w, const char *name, int ndim, int64_t a, int64_t b)
{
    static const char zeros[64];
    const int64_t shape[4] = {a, b, 1, 1};
    tern_tensor *t = tern_tensor_wrap(f->ctx, TERN_F16, ndim, shape, zeros, NULL, NULL); /* its elements are never read */
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    tern_tensor_unref(&t);
}

static void add_depth(struct fixture *f, struct tern_weights *w, const char *at, int depth)
{
    char name[160];
    for (int i = 0; i < depth; i++) {
        snprintf(name, sizeof(name), "model.diffusion_model.%s.1.transformer_blocks.%d.norm1.weight", at, i);
        add(f, w, name, 1, 1, 1);
    }
}

/* What tells the sizes of a published UNet. */
static struct tern_weights *unet_of(struct fixture *f, const int *channels, const int *depths, int levels, int mid, int context, int labels)
{
    char name[128], at[32];
    struct tern_weights *w = tern_weights_create(f->ctx);
    add(f, w, "model.diffusion_model.input_blocks.0.0.weight", 4, channels[0], 4);
    add(f, w, "model.diffusion_model.out.2.weight", 4, 4, channels[0]);
    add(f, w, "model.diffusion_model.label_emb.0.0.weight", 2, 4 * channels[0], labels);
    for (int i = 0; i < levels; i++)
        for (int j = 0; j < 3; j++) {
            snprintf(at, sizeof(at), "input_blocks.%d", 1 + 3 * i + j);
            snprintf(name, sizeof(name), "model.diffusion_model.%s.0.%s.weight", at, j < 2 ? "in_layers.2" : "op");
            if (j < 2 || i + 1 < levels)
                add(f, w, name, 4, channels[i], 1);
            if (j < 2)
                add_depth(f, w, at, depths[i]);
        }
    add_depth(f, w, "middle_block", mid);
    add(f, w, "model.diffusion_model.middle_block.1.transformer_blocks.0.attn2.to_k.weight", 2, channels[levels - 1], context);
    add(f, w, "model.diffusion_model.middle_block.1.proj_in.weight", 2, channels[levels - 1], channels[levels - 1]);
    return w;
}

static void add_big_clip(struct fixture *f, struct tern_weights *w, int embedder)
{
    static const struct {
        const char *name;
        int ndim;
        int64_t a, b;
    } rows[] = {{"ln_final.weight", 1, 1280, 1},
                {"token_embedding.weight", 2, 49408, 1280},
                {"positional_embedding", 2, 77, 1280},
                {"text_projection", 2, 1280, 1280},
                {"transformer.resblocks.0.mlp.c_fc.weight", 2, 5120, 1280}};
    char name[128];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        snprintf(name, sizeof(name), "conditioner.embedders.%d.model.%s", embedder, rows[i].name);
        add(f, w, name, rows[i].ndim, rows[i].a, rows[i].b);
    }
    for (int i = 0; i < 32; i++) {
        snprintf(name, sizeof(name), "conditioner.embedders.%d.model.transformer.resblocks.%d.ln_1.weight", embedder, i);
        add(f, w, name, 1, 1280, 1);
    }
}

static void check_text(const char *found, const char *expected)
{
    json_t *o = json_loads(expected, 0, NULL);
    assert_non_null(o);
    check_config(found, o, "");
    json_decref(o);
}

/* Against the published config.json of each. */
static void full_sizes_are_recognised(void **state)
{
    struct fixture *f = *state;
    struct tern_detected d;
    struct tern_weights *w = unet_of(f, (int[]){320, 640, 1280}, (int[]){0, 2, 10}, 3, 10, 2048, 2816);
    add_big_clip(f, w, 1);
    assert_int_equal(tern_detect_sd(f->ctx, w, "base", &d), TERN_OK);
    assert_string_equal(d.pipeline, "StableDiffusionXLPipeline");
    check_text(d.unet, "{\"block_out_channels\":[320,640,1280],\"transformer_layers_per_block\":[1,2,10],\"attention_head_dim\":[5,10,20],"
                       "\"cross_attention_dim\":2048,\"addition_embed_type\":\"text_time\",\"addition_time_embed_dim\":256,"
                       "\"projection_class_embeddings_input_dim\":2816,\"sample_size\":128,\"use_linear_projection\":true,"
                       "\"layers_per_block\":2,\"norm_num_groups\":32,"
                       "\"down_block_types\":[\"DownBlock2D\",\"CrossAttnDownBlock2D\",\"CrossAttnDownBlock2D\"],"
                       "\"up_block_types\":[\"CrossAttnUpBlock2D\",\"CrossAttnUpBlock2D\",\"UpBlock2D\"]}");
    check_text(d.text_encoder_2, "{\"hidden_act\":\"gelu\",\"hidden_size\":1280,\"intermediate_size\":5120,\"num_attention_heads\":20,"
                                 "\"num_hidden_layers\":32,\"projection_dim\":1280,\"vocab_size\":49408,\"max_position_embeddings\":77}");
    assert_memory_equal(&d.sizes, (&(struct tern_ldm_sizes){3, 2, 3, 0, 32, TERN_LDM_XL}), sizeof(d.sizes));
    tern_detected_free(f->ctx, &d);
    tern_weights_unref(&w);
    w = unet_of(f, (int[]){384, 768, 1536, 1536}, (int[]){0, 4, 4, 0}, 4, 4, 1280, 2560);
    add_big_clip(f, w, 0);
    assert_int_equal(tern_detect_sd(f->ctx, w, "refiner", &d), TERN_OK);
    assert_string_equal(d.pipeline, "StableDiffusionXLImg2ImgPipeline");
    check_text(d.unet, "{\"block_out_channels\":[384,768,1536,1536],\"transformer_layers_per_block\":[1,4,4,4],"
                       "\"attention_head_dim\":[6,12,24,24],\"cross_attention_dim\":1280,\"addition_time_embed_dim\":256,"
                       "\"projection_class_embeddings_input_dim\":2560}");
    assert_null(d.text_encoder);
    assert_non_null(d.text_encoder_2);
    assert_memory_equal(&d.sizes, (&(struct tern_ldm_sizes){4, 2, 6, 0, 32, TERN_LDM_REFINER}), sizeof(d.sizes));
    tern_detected_free(f->ctx, &d);
    tern_weights_unref(&w);
}

/* By marks that trainers leave, which count more, and by the header. */
static void what_is_predicted_is_recognised(void **state)
{
    static const char *const marks[] = {"v_pred", "ztsnr"};
    static const char *const in_header[] = {NULL, "epsilon", NULL, "v"};
    static const char *const expected[] = {
        "{\"prediction_type\":\"epsilon\",\"rescale_betas_zero_snr\":false,\"timestep_spacing\":\"leading\"}",
        "{\"prediction_type\":\"v_prediction\",\"rescale_betas_zero_snr\":false,\"timestep_spacing\":\"leading\"}",
        "{\"prediction_type\":\"v_prediction\",\"rescale_betas_zero_snr\":true,\"timestep_spacing\":\"trailing\"}",
        "{\"prediction_type\":\"v_prediction\",\"rescale_betas_zero_snr\":false,\"timestep_spacing\":\"leading\"}"};
    struct fixture *f = *state;
    for (int n = 0; n < 4; n++) {
        struct tern_detected d;
        struct tern_weights *w = unet_of(f, (int[]){320, 640, 1280}, (int[]){0, 2, 10}, 3, 10, 2048, 2816);
        add_big_clip(f, w, 1);
        for (int i = 0; i < n && n < 3; i++)
            add(f, w, marks[i], 1, 1, 1);
        if (in_header[n])
            assert_int_equal(tern_weights_add_metadata(w, TERN_LDM_PREDICTION, in_header[n]), TERN_OK);
        assert_int_equal(tern_detect_sd(f->ctx, w, "file", &d), TERN_OK);
        check_text(d.scheduler, expected[n]);
        tern_detected_free(f->ctx, &d);
        tern_weights_unref(&w);
    }
}

static void refused(struct fixture *f, struct tern_weights *w, enum tern_status status, const char *text)
{
    struct tern_detected d;
    assert_int_equal(tern_detect_sd(f->ctx, w, "file.safetensors", &d), status);
    if (!strstr(tern_error(f->ctx), text))
        fail_msg("expected \"%s\", found \"%s\"", text, tern_error(f->ctx));
    tern_error_clear(f->ctx);
    tern_weights_unref(&w);
}

static void odd_files_are_refused(void **state)
{
    static const char *const names[] = {"conditioner.embedders.1.model.text_projection", "conditioner.embedders.0.model.text_projection"};
    struct fixture *f = *state;
    struct tern_weights *w = unet_of(f, (int[]){320, 640, 1280}, (int[]){0, 2, 10}, 3, 10, 2048, 2816);
    refused(f, w, TERN_E_UNSUPPORTED, "the file lacks SDXL's text encoders");
    w = unet_of(f, (int[]){320, 640, 1280}, (int[]){0, 2, 10}, 3, 10, 2048, 2815);
    add_big_clip(f, w, 1);
    refused(f, w, TERN_E_FORMAT, "label_emb does not fit");
    w = unet_of(f, (int[]){320, 640, 1280}, (int[]){0, 2, 10}, 3, 10, 2048, 1280);
    add_big_clip(f, w, 0);
    refused(f, w, TERN_E_FORMAT, "label_emb does not fit");
    w = unet_of(f, (int[]){320, 640, 1280}, (int[]){0, 2, 10}, 3, 10, 2048, 2816);
    add_big_clip(f, w, 1);
    add(f, w, "edm_mean", 1, 4, 1);
    refused(f, w, TERN_E_UNSUPPORTED, "the noise levels of EDM");
    for (int i = 0; i < 2; i++) { /* a projection that is no matrix */
        w = tern_weights_create(f->ctx);
        add(f, w, names[i], 1, 4, 1);
        assert_null(tern_ldm_component(f->ctx, w, i ? &refiner : &base, "text_encoder_2", "file.safetensors"));
        if (!strstr(tern_error(f->ctx), "\"text_projection.weight\": expected a matrix, found (4,) f16"))
            fail_msg("found \"%s\"", tern_error(f->ctx));
        assert_int_equal(tern_error_status(f->ctx), TERN_E_FORMAT);
        tern_error_clear(f->ctx);
        tern_weights_unref(&w);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_are_known),
        TEST(files_are_their_folder),
        TEST(a_projection_of_diffusers_is_read),
        TEST(components_give_the_same_bytes),
        TEST(full_sizes_are_recognised),
        TEST(what_is_predicted_is_recognised),
        TEST(odd_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
