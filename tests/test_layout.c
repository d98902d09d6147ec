/* Checkpoints: every layout of one model gives the same components; names, recognised sizes, and messages for what is none. */
#include "weights_help.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern/pipeline.h>

#include "core/tensor.h"
#include "models/files/layout.h"
#include "models/files/ldm.h"
#include "models/files/weights.h"

static const char *const component_names[] = {"text_encoder", "unet", "vae"};

static struct tern_checkpoint *open_ok(struct fixture *f, const char *path)
{
    struct tern_checkpoint *cp = tern_checkpoint_open(f->ctx, path);
    if (!cp)
        fail_msg("%s", tern_error(f->ctx));
    return cp;
}

static void refused(struct fixture *f, const char *path, enum tern_status status, const char *text)
{
    struct tern_checkpoint *cp = tern_checkpoint_open(f->ctx, path);
    assert_null(cp);
    if (!strstr(tern_error(f->ctx), text) || !strstr(tern_error(f->ctx), path))
        fail_msg("expected \"%s\", found \"%s\"", text, tern_error(f->ctx));
    assert_int_equal(tern_error_status(f->ctx), status);
    assert_int_equal(tern_memory_used(f->ctx), f->idle);
    tern_error_clear(f->ctx);
}

/* Folder, sharded, fp16 variant, .bin, .safetensors and .ckpt: identical names, shapes and bytes. */
static void all_layouts_are_one_model(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {"mini-sharded", "mini-fp16", "mini-bin", "mini.safetensors", "mini.ckpt"};
    struct tern_checkpoint *reference = open_ok(f, FORMATS "mini");
    for (int i = 0; i < 5; i++) {
        char path[512];
        snprintf(path, sizeof(path), "%s%s", FORMATS, paths[i]);
        struct tern_checkpoint *cp = open_ok(f, path);
        assert_int_equal(tern_checkpoint_layout(cp), i < 3 ? TERN_LAYOUT_FOLDER : TERN_LAYOUT_SINGLE_FILE);
        assert_string_equal(tern_checkpoint_pipeline(cp), "StableDiffusionPipeline");
        assert_int_equal(tern_checkpoint_count(cp), 3);
        for (int k = 0; k < 3; k++) {
            struct tern_weights *a = tern_checkpoint_weights(reference, component_names[k]),
                                *b = tern_checkpoint_weights(cp, component_names[k]);
            if (!b)
                fail_msg("%s", tern_error(f->ctx));
            help_same_weights(a, b);
            tern_weights_unref(&a);
            tern_weights_unref(&b);
        }
        tern_checkpoint_close(&cp);
    }
    tern_checkpoint_close(&reference);
}

static void names_are_those_of_the_hub(void **state)
{
    struct fixture *f = *state;
    struct tern_checkpoint *cp = open_ok(f, FORMATS "mini-bin");
    struct tern_weights *text = tern_checkpoint_weights(cp, "text_encoder"), *vae = tern_checkpoint_weights(cp, "vae");
    assert_int_equal(tern_weights_count(text), 20);
    assert_non_null(tern_weights_get(text, "text_model.embeddings.token_embedding.weight"));
    assert_non_null(tern_weights_get(text, "text_model.final_layer_norm.bias"));
    tern_tensor *q = tern_weights_get(vae, "decoder.mid_block.attentions.0.to_q.weight");
    assert_int_equal(tern_tensor_ndim(q), 2);
    assert_int_equal(tern_tensor_size(q, 1), 8);
    tern_weights_unref(&text);
    tern_weights_unref(&vae);
    tern_checkpoint_close(&cp);
    cp = open_ok(f, TERN_TEST_DATA "/models/sd1"); /* has position_ids and the old VAE names */
    text = tern_checkpoint_weights(cp, "text_encoder");
    vae = tern_checkpoint_weights(cp, "vae");
    assert_null(tern_weights_get(text, "text_model.embeddings.position_ids"));
    assert_int_equal(tern_weights_count(text), 52);
    assert_non_null(tern_weights_get(vae, "encoder.mid_block.attentions.0.to_out.0.bias"));
    assert_null(tern_weights_get(vae, "encoder.mid_block.attentions.0.proj_attn.bias"));
    tern_weights_unref(&text);
    tern_weights_unref(&vae);
    tern_checkpoint_close(&cp);
}

/* A BERT's names have neither prefix. */
static void bert_names_stay(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"embeddings.word_embeddings.weight", "bert.embeddings.position_embeddings.weight",
                                        "embeddings.position_ids", "encoder.layer.0.output.dense.weight"};
    struct tern_weights *w = tern_weights_create(f->ctx);
    for (int i = 0; i < 4; i++) {
        tern_tensor *t = tern_tensor_create(f->ctx, TERN_F32, 1, (int64_t[]){1}, NULL);
        tern_weights_add(w, names[i], t);
        tern_tensor_unref(&t);
    }
    struct tern_weights *n = tern_weights_normalise(f->ctx, w, "text_encoder");
    assert_int_equal(tern_weights_count(n), 3);
    assert_string_equal(tern_weights_name(n, 0), "embeddings.position_embeddings.weight");
    assert_string_equal(tern_weights_name(n, 1), "embeddings.word_embeddings.weight");
    assert_string_equal(tern_weights_name(n, 2), "encoder.layer.0.output.dense.weight");
    tern_weights_unref(&w);
    tern_weights_unref(&n);
}

static const struct tern_ldm_sizes sd15 = {.unet_levels = 4, .unet_layers = 2, .unet_up_attention = 0xe, .vae_levels = 4};

/* Names of Stable Diffusion 1.5's files. */
static void ldm_names_are_known(void **state)
{
    static const char *const cases[][3] = {
        {"unet", "time_embedding.linear_1.weight", "model.diffusion_model.time_embed.0.weight"},
        {"unet", "time_embedding.linear_2.bias", "model.diffusion_model.time_embed.2.bias"},
        {"unet", "conv_in.weight", "model.diffusion_model.input_blocks.0.0.weight"},
        {"unet", "conv_norm_out.weight", "model.diffusion_model.out.0.weight"},
        {"unet", "conv_out.bias", "model.diffusion_model.out.2.bias"},
        {"unet", "down_blocks.0.resnets.0.norm1.weight", "model.diffusion_model.input_blocks.1.0.in_layers.0.weight"},
        {"unet", "down_blocks.1.attentions.1.proj_out.bias", "model.diffusion_model.input_blocks.5.1.proj_out.bias"},
        {"unet", "down_blocks.2.downsamplers.0.conv.weight", "model.diffusion_model.input_blocks.9.0.op.weight"},
        {"unet", "down_blocks.3.resnets.1.conv2.weight", "model.diffusion_model.input_blocks.11.0.out_layers.3.weight"},
        {"unet", "mid_block.resnets.1.time_emb_proj.weight", "model.diffusion_model.middle_block.2.emb_layers.1.weight"},
        {"unet", "mid_block.attentions.0.transformer_blocks.0.ff.net.0.proj.weight",
         "model.diffusion_model.middle_block.1.transformer_blocks.0.ff.net.0.proj.weight"},
        {"unet", "up_blocks.0.upsamplers.0.conv.weight", "model.diffusion_model.output_blocks.2.1.conv.weight"},
        {"unet", "up_blocks.1.upsamplers.0.conv.bias", "model.diffusion_model.output_blocks.5.2.conv.bias"},
        {"unet", "up_blocks.1.attentions.0.transformer_blocks.0.attn2.to_k.weight",
         "model.diffusion_model.output_blocks.3.1.transformer_blocks.0.attn2.to_k.weight"},
        {"unet", "up_blocks.3.resnets.2.conv_shortcut.weight", "model.diffusion_model.output_blocks.11.0.skip_connection.weight"},
        {"vae", "encoder.down_blocks.1.resnets.0.conv_shortcut.weight", "first_stage_model.encoder.down.1.block.0.nin_shortcut.weight"},
        {"vae", "encoder.down_blocks.0.downsamplers.0.conv.bias", "first_stage_model.encoder.down.0.downsample.conv.bias"},
        {"vae", "encoder.mid_block.resnets.1.norm2.weight", "first_stage_model.encoder.mid.block_2.norm2.weight"},
        {"vae", "encoder.mid_block.attentions.0.group_norm.weight", "first_stage_model.encoder.mid.attn_1.norm.weight"},
        {"vae", "decoder.mid_block.attentions.0.to_out.0.weight", "first_stage_model.decoder.mid.attn_1.proj_out.weight"},
        {"vae", "decoder.up_blocks.0.resnets.2.conv1.bias", "first_stage_model.decoder.up.3.block.2.conv1.bias"},
        {"vae", "decoder.up_blocks.2.upsamplers.0.conv.weight", "first_stage_model.decoder.up.1.upsample.conv.weight"},
        {"vae", "decoder.conv_norm_out.bias", "first_stage_model.decoder.norm_out.bias"},
        {"vae", "post_quant_conv.weight", "first_stage_model.post_quant_conv.weight"},
        {"text_encoder", "text_model.encoder.layers.11.mlp.fc2.bias",
         "cond_stage_model.transformer.text_model.encoder.layers.11.mlp.fc2.bias"},
    };
    char name[TERN_LDM_NAME];
    const char *component;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_true(tern_ldm_name(&sd15, cases[i][0], cases[i][1], name));
        assert_string_equal(name, cases[i][2]);
        assert_true(tern_ldm_to_diffusers(&sd15, cases[i][2], &component, name));
        assert_string_equal(component, cases[i][0]);
        assert_string_equal(name, cases[i][1]);
    }
    assert_true(tern_ldm_to_diffusers(&sd15, "cond_stage_model.transformer.final_layer_norm.bias", &component, name));
    assert_string_equal(name, "text_model.final_layer_norm.bias");
}

static void foreign_names_do_not_translate(void **state)
{
    static const char *const ldm[] = {
        "model_ema.decay",
        "betas",
        "cond_stage_model.transformer.text_model.embeddings.position_ids",
        "model.diffusion_model.input_blocks.13.0.in_layers.0.weight",
        "model.diffusion_model.input_blocks.12.0.op.weight",
        "model.diffusion_model.input_blocks.1.0.in_layers.1.weight",
        "model.diffusion_model.output_blocks.11.2.conv.weight",
        "first_stage_model.decoder.up.4.block.0.conv1.bias",
        "model.diffusion_model.input_blocks..0.op.weight",
        "model.diffusion_model.",
        "model.diffusion_model.input_blocks.99999999999.0.in_layers.0.weight",
    };
    char name[TERN_LDM_NAME], huge[400] = "conv_in.";
    const char *component;
    for (size_t i = 0; i < sizeof(ldm) / sizeof(*ldm); i++)
        if (tern_ldm_to_diffusers(&sd15, ldm[i], &component, name))
            fail_msg("%s became %s", ldm[i], name);
    assert_false(tern_ldm_name(&sd15, "unet", "down_blocks.0.resnets.2.norm1.weight", name));
    assert_false(tern_ldm_name(&sd15, "unet", "down_blocks.4.resnets.0.norm1.weight", name));
    assert_false(tern_ldm_name(&sd15, "unet", "down_blocks.0.resnets.0.norm3.weight", name));
    assert_false(tern_ldm_name(&sd15, "controlnet", "conv_in.weight", name));
    memset(huge + 8, 'x', sizeof(huge) - 9);
    assert_false(tern_ldm_name(&sd15, "unet", huge, name));
}

/* Every tensor of the small models goes to an LDM name of its own and back. */
static void names_go_there_and_back(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *path;
        struct tern_ldm_sizes sizes;
    } models[] = {{"sd1", {3, 2, 6, 4}}, {"sd1-heads", {3, 1, 3, 3}}, {"sd1-inpaint", {2, 1, 2, 4}}};
    for (int m = 0; m < 3; m++) {
        char path[512], ldm[TERN_LDM_NAME], back[TERN_LDM_NAME];
        snprintf(path, sizeof(path), "%s/models/%s", TERN_TEST_DATA, models[m].path);
        struct tern_checkpoint *cp = open_ok(f, path);
        struct tern_weights *all = tern_weights_create(f->ctx), *networks = tern_weights_create(f->ctx);
        int64_t count = 0;
        for (int k = 0; k < 3; k++) {
            struct tern_weights *w = tern_checkpoint_weights(cp, component_names[k]);
            for (int64_t i = 0; i < tern_weights_count(w); i++, count++) {
                const char *component;
                assert_true(tern_ldm_name(&models[m].sizes, component_names[k], tern_weights_name(w, i), ldm));
                assert_int_equal(tern_weights_add(all, ldm, tern_weights_at(w, i)), TERN_OK);
                if (k) /* the small text encoders have other heads than CLIP's */
                    assert_int_equal(tern_weights_add(networks, ldm, tern_weights_at(w, i)), TERN_OK);
                assert_true(tern_ldm_to_diffusers(&models[m].sizes, ldm, &component, back));
                assert_string_equal(back, tern_weights_name(w, i));
                assert_string_equal(component, component_names[k]);
            }
            tern_weights_unref(&w);
        }
        assert_int_equal(tern_weights_count(all), count);
        struct tern_detected d; /* and the sizes are recognised from them */
        assert_int_equal(tern_detect_sd(f->ctx, networks, path, &d), TERN_OK);
        assert_memory_equal(&d.sizes, &models[m].sizes, sizeof(d.sizes));
        assert_string_equal(d.pipeline, m == 2 ? "StableDiffusionInpaintPipeline" : "StableDiffusionPipeline");
        tern_detected_free(f->ctx, &d);
        tern_weights_unref(&all);
        tern_weights_unref(&networks);
        tern_checkpoint_close(&cp);
    }
}

static json_t *parse(const char *text)
{
    json_t *o = json_loads(text ? text : "", 0, NULL);
    assert_non_null(o);
    return o;
}

/* What is recognised agrees with the folder's own configuration, in every key that matters to a network's shape. */
static void single_files_tell_their_configuration(void **state)
{
    struct fixture *f = *state;
    static const char *const keys[3][14] = {
        {"hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "max_position_embeddings", "num_attention_heads",
         "num_hidden_layers", "projection_dim", "vocab_size", "eos_token_id", "bos_token_id", "pad_token_id", "architectures"},
        {"act_fn", "attention_head_dim", "block_out_channels", "cross_attention_dim", "down_block_types", "flip_sin_to_cos", "freq_shift",
         "in_channels", "layers_per_block", "norm_eps", "norm_num_groups", "out_channels", "up_block_types", "use_linear_projection"},
        {"act_fn", "block_out_channels", "down_block_types", "in_channels", "latent_channels", "layers_per_block", "norm_num_groups",
         "out_channels", "scaling_factor", "up_block_types", "mid_block_add_attention", "use_quant_conv", "use_post_quant_conv"},
    };
    struct tern_checkpoint *folder = open_ok(f, FORMATS "mini"), *file = open_ok(f, FORMATS "mini.ckpt");
    for (int k = 0; k < 3; k++) {
        json_t *a = parse(tern_checkpoint_config(folder, component_names[k])), *b = parse(tern_checkpoint_config(file, component_names[k]));
        for (int i = 0; i < 14 && keys[k][i]; i++)
            if (!json_equal(json_object_get(a, keys[k][i]), json_object_get(b, keys[k][i])))
                fail_msg("%s: %s differs", component_names[k], keys[k][i]);
        json_decref(a);
        json_decref(b);
        assert_string_equal(tern_checkpoint_class(folder, component_names[k]), tern_checkpoint_class(file, component_names[k]));
    }
    json_t *a = parse(tern_checkpoint_scheduler(folder)), *b = parse(tern_checkpoint_scheduler(file));
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    assert_non_null(strstr(tern_checkpoint_config_where(folder, "unet"), "mini/unet/config.json"));
    assert_string_equal(tern_checkpoint_config_where(file, "unet"), FORMATS "mini.ckpt");
    assert_null(tern_checkpoint_index(file));
    assert_null(tern_checkpoint_tokenizer(file, 0));
    assert_null(tern_checkpoint_config(file, "text_encoder_2"));
    tern_checkpoint_close(&folder);
    tern_checkpoint_close(&file);
}

static void add_shape(struct fixture *f, struct tern_weights *w, const char *name, int ndim, int64_t a, int64_t b)
{
    static const char zeros[64];
    const int64_t shape[4] = {a, b, 1, 1};
    tern_tensor *t = tern_tensor_wrap(f->ctx, TERN_F16, ndim, shape, zeros, NULL, NULL); /* its elements are never read */
    assert_int_equal(tern_weights_add(w, name, t), TERN_OK);
    tern_tensor_unref(&t);
}

/* The tensors of the UNet of Stable Diffusion 1 (or 2: linear projections, 1024 context values) that tell its sizes. */
static struct tern_weights *unet_like_sd(struct fixture *f, bool sd2, int in_channels)
{
    static const int channels[] = {320, 320, 0, 640, 640, 0, 1280, 1280, 0, 1280, 1280}; /* 0: downsampling */
    struct tern_weights *w = tern_weights_create(f->ctx);
    char name[128];
    add_shape(f, w, "model.diffusion_model.input_blocks.0.0.weight", 4, 320, in_channels);
    add_shape(f, w, "model.diffusion_model.out.2.weight", 4, 4, 320);
    for (int b = 1; b < 12; b++) {
        snprintf(name, sizeof(name), "model.diffusion_model.input_blocks.%d.0.%s.weight", b, channels[b - 1] ? "in_layers.2" : "op");
        add_shape(f, w, name, 4, channels[b - 1], 1);
        snprintf(name, sizeof(name), "model.diffusion_model.input_blocks.%d.1.transformer_blocks.0.norm1.weight", b);
        if (channels[b - 1] && b < 9)
            add_shape(f, w, name, 1, channels[b - 1], 1);
    }
    add_shape(f, w, "model.diffusion_model.middle_block.1.transformer_blocks.0.norm1.weight", 1, 1280, 1);
    add_shape(f, w, "model.diffusion_model.middle_block.1.transformer_blocks.0.attn2.to_k.weight", 2, 1280, sd2 ? 1024 : 768);
    add_shape(f, w, "model.diffusion_model.middle_block.1.proj_in.weight", sd2 ? 2 : 4, 1280, 1280);
    return w;
}

static void check_config(const char *text, const char *expected)
{
    json_t *found = parse(text), *want = parse(expected), *v;
    const char *key;
    json_object_foreach(want, key, v)
        if (!json_equal(v, json_object_get(found, key)))
            fail_msg("%s: found %s", key, text);
    json_decref(found);
    json_decref(want);
}

/* The UNet and the VAE of a folder under LDM names, and the text encoder of a file. */
static struct tern_weights *join_sd2(struct fixture *f, struct tern_checkpoint *cp)
{
    static const struct tern_ldm_sizes sizes = {2, 1, 2, 4, 2, TERN_LDM_SD2};
    struct tern_weights *joined = tern_weights_create(f->ctx), *text = tern_weights_open(f->ctx, FORMATS "sd2-text.safetensors");
    char ldm[TERN_LDM_NAME];
    for (int64_t i = 0; i < tern_weights_count(text); i++)
        assert_int_equal(tern_weights_add(joined, tern_weights_name(text, i), tern_weights_at(text, i)), TERN_OK);
    for (int k = 1; k < 3; k++) {
        struct tern_weights *w = tern_checkpoint_weights(cp, component_names[k]);
        for (int64_t i = 0; i < tern_weights_count(w); i++) {
            assert_true(tern_ldm_name(&sizes, component_names[k], tern_weights_name(w, i), ldm));
            assert_int_equal(tern_weights_add(joined, ldm, tern_weights_at(w, i)), TERN_OK);
        }
        tern_weights_unref(&w);
    }
    tern_weights_unref(&text);
    return joined;
}

/* OpenCLIP's names, one matrix for q, k and v, a last layer that is not used: the bytes of the folder. */
static void sd2_files_are_their_folder(void **state)
{
    struct fixture *f = *state;
    struct tern_checkpoint *folder = open_ok(f, TERN_TEST_DATA "/models/sd2");
    struct tern_weights *joined = join_sd2(f, folder);
    add_shape(f, joined, "cond_stage_model.model.text_projection.weight", 2, 4, 4); /* diffusers' name; not used */
    assert_int_equal(tern_weights_save(joined, help_path(f, "sd2.safetensors")), TERN_OK);
    struct tern_checkpoint *file = open_ok(f, help_path(f, "sd2.safetensors"));
    assert_int_equal(tern_checkpoint_count(file), 3);
    for (int k = 0; k < 3; k++) {
        struct tern_weights *a = tern_checkpoint_weights(folder, component_names[k]),
                            *b = tern_checkpoint_weights(file, component_names[k]);
        if (!b)
            fail_msg("%s", tern_error(f->ctx));
        help_same_weights(a, b);
        tern_weights_unref(&a);
        tern_weights_unref(&b);
    }
    check_config(tern_checkpoint_config(file, "text_encoder"),
                 "{\"hidden_act\":\"gelu\",\"hidden_size\":32,\"intermediate_size\":64,\"num_hidden_layers\":2,\"num_attention_heads\":1,"
                 "\"max_position_embeddings\":20,\"vocab_size\":554,\"eos_token_id\":2}");
    json_t *a = parse(tern_checkpoint_scheduler(folder)), *b = parse(tern_checkpoint_scheduler(file));
    assert_true(json_equal(a, b));
    json_decref(a);
    json_decref(b);
    tern_weights_unref(&joined);
    tern_checkpoint_close(&file);
    tern_checkpoint_close(&folder);
}

/* The tensors of SD 2's text encoder that tell its sizes. */
static void add_open_clip(struct fixture *f, struct tern_weights *w, int layers)
{
    char name[128];
    add_shape(f, w, "cond_stage_model.model.ln_final.weight", 1, 1024, 1);
    add_shape(f, w, "cond_stage_model.model.token_embedding.weight", 2, 49408, 1024);
    add_shape(f, w, "cond_stage_model.model.positional_embedding", 2, 77, 1024);
    add_shape(f, w, "cond_stage_model.model.transformer.resblocks.0.mlp.c_fc.weight", 2, 4096, 1024);
    for (int i = 0; i < layers; i++) {
        snprintf(name, sizeof(name), "cond_stage_model.model.transformer.resblocks.%d.ln_1.weight", i);
        add_shape(f, w, name, 1, 1024, 1);
    }
}

static void refused_qkv(struct fixture *f, struct tern_weights *w, int ndim, int64_t rows)
{
    static const struct tern_ldm_sizes sizes = {.open_clip_layers = 1, .family = TERN_LDM_SD2};
    add_shape(f, w, "cond_stage_model.model.transformer.resblocks.0.attn.in_proj_weight", ndim, rows, 1);
    assert_null(tern_ldm_component(f->ctx, w, &sizes, "text_encoder", "file.safetensors"));
    assert_non_null(strstr(tern_error(f->ctx), "self_attn.qkv_proj.weight\": expected rows of q, k and v"));
    assert_int_equal(tern_error_status(f->ctx), TERN_E_FORMAT);
    tern_error_clear(f->ctx);
    tern_weights_unref(&w);
}

static void odd_open_clip_is_refused(void **state)
{
    struct fixture *f = *state;
    refused_qkv(f, tern_weights_create(f->ctx), 2, 4);
    refused_qkv(f, tern_weights_create(f->ctx), 3, 3);
    refused_qkv(f, tern_weights_create(f->ctx), 0, 3);
    struct tern_weights *w = unet_like_sd(f, true, 4); /* one layer, which would be left out */
    struct tern_detected d;
    add_open_clip(f, w, 1);
    assert_int_equal(tern_detect_sd(f->ctx, w, "file.safetensors", &d), TERN_E_FORMAT);
    assert_non_null(strstr(tern_error(f->ctx), "no CLIP with heads of 64 channels"));
    tern_error_clear(f->ctx);
    tern_weights_unref(&w);
}

/* Against the published config.json of each. */
static void full_sizes_are_recognised(void **state)
{
    struct fixture *f = *state;
    struct tern_detected d;
    struct tern_weights *w = unet_like_sd(f, false, 4);
    assert_int_equal(tern_detect_sd(f->ctx, w, "sd15", &d), TERN_OK);
    check_config(d.unet,
                 "{\"block_out_channels\":[320,640,1280,1280],\"layers_per_block\":2,\"cross_attention_dim\":768,\"attention_head_dim\":8,"
                 "\"norm_num_groups\":32,\"in_channels\":4,\"out_channels\":4,\"use_linear_projection\":false,\"sample_size\":64,"
                 "\"down_block_types\":[\"CrossAttnDownBlock2D\",\"CrossAttnDownBlock2D\",\"CrossAttnDownBlock2D\",\"DownBlock2D\"],"
                 "\"up_block_types\":[\"UpBlock2D\",\"CrossAttnUpBlock2D\",\"CrossAttnUpBlock2D\",\"CrossAttnUpBlock2D\"]}");
    assert_memory_equal(&d.sizes, (&(struct tern_ldm_sizes){4, 2, 0xe, 0}), sizeof(d.sizes));
    assert_null(d.vae);
    assert_null(d.text_encoder);
    tern_detected_free(f->ctx, &d);
    tern_weights_unref(&w);
    w = unet_like_sd(f, true, 4);
    add_open_clip(f, w, 24);
    assert_int_equal(tern_detect_sd(f->ctx, w, "sd21", &d), TERN_OK);
    check_config(d.unet, "{\"attention_head_dim\":[5,10,20,20],\"cross_attention_dim\":1024,\"sample_size\":96}");
    check_config(d.text_encoder, "{\"hidden_act\":\"gelu\",\"hidden_size\":1024,\"intermediate_size\":4096,\"num_attention_heads\":16,"
                                 "\"num_hidden_layers\":23,\"projection_dim\":512,\"vocab_size\":49408,\"max_position_embeddings\":77}");
    check_config(d.scheduler, "{\"_class_name\":\"DDIMScheduler\",\"prediction_type\":\"v_prediction\",\"steps_offset\":1}");
    assert_int_equal(d.sizes.open_clip_layers, 23);
    tern_detected_free(f->ctx, &d);
    tern_weights_unref(&w);
    w = unet_like_sd(f, true, 4); /* as diffusers' script for such files writes it: without the layer that nobody uses */
    add_open_clip(f, w, 23);
    assert_int_equal(tern_detect_sd(f->ctx, w, "sd21", &d), TERN_OK);
    check_config(d.text_encoder, "{\"hidden_size\":1024,\"num_hidden_layers\":23}");
    assert_int_equal(d.sizes.open_clip_layers, 23);
    tern_detected_free(f->ctx, &d);
    tern_weights_unref(&w);
    w = unet_like_sd(f, true, 9);
    assert_int_equal(tern_detect_sd(f->ctx, w, "sd2-inpaint", &d), TERN_OK);
    check_config(d.unet,
                 "{\"cross_attention_dim\":1024,\"attention_head_dim\":[5,10,20,20],\"use_linear_projection\":true,\"in_channels\":9}");
    assert_string_equal(d.pipeline, "StableDiffusionInpaintPipeline");
    check_config(d.scheduler, "{\"prediction_type\":\"epsilon\"}");
    tern_detected_free(f->ctx, &d);
    tern_weights_unref(&w);
}

#define LAST_BIAS "model.diffusion_model.output_blocks.11.1.transformer_blocks.0.norm1.bias"

/* 320 elements around 1, as many above as below: that far from it is their deviation; 0: the file has no such tensor. */
static void add_last_bias(struct fixture *f, struct tern_weights *w, float deviation)
{
    float x[320];
    for (int i = 0; i < 320; i++)
        x[i] = 1 + (i % 2 ? deviation : -deviation);
    tern_tensor *t = deviation ? tern_tensor_create(f->ctx, TERN_F32, 1, (int64_t[]){320}, x) : NULL;
    if (t)
        assert_int_equal(tern_weights_add(w, LAST_BIAS, t), TERN_OK);
    tern_tensor_unref(&t);
}

static char told[512];

static void listen(enum tern_log_level level, const char *message, void *user)
{
    snprintf(told, sizeof(told), "%d %s", (int)level, message);
}

/* By the header, by a mark, and of SD 2 by the weights; `deviation` is that of ComfyUI's rule, whose bound is 0.09. */
static void what_is_predicted_is_recognised(void **state)
{
    static const char epsilon[] = "{\"prediction_type\":\"epsilon\"}", v[] = "{\"prediction_type\":\"v_prediction\"}";
    static const char at_512[] = "{\"sample_size\":64}", at_768[] = "{\"sample_size\":96,\"upcast_attention\":true}";
    static const struct {
        int sd, channels;
        const char *key, *value;
        float deviation;
        const char *scheduler, *unet, *log;
    } cases[] = {
        {1, 4, NULL, NULL, 0.2f, "{\"_class_name\":\"PNDMScheduler\"}", at_512, ""},
        {1, 4, "modelspec.prediction_type", "v", 0, v, at_512, ""},
        {1, 4, "modelspec.predict_key", "v", 0, v, at_512, ""},
        {1, 4, NULL, "v_pred", 0, v, at_512, ""},
        {2, 4, NULL, NULL, 0, v, at_768, "1 file: it does not say what it predicts: v is taken"},
        {2, 4, NULL, NULL, 0.0901f, v, at_768, "1 file: it does not say what it predicts: v is taken, as \"" LAST_BIAS "\""},
        {2, 4, NULL, NULL, 0.0899f, epsilon, at_512, "1 file: it does not say what it predicts: the noise is taken"},
        {2, 4, "modelspec.prediction_type", "epsilon", 0.2f, epsilon, at_512, ""},
        {2, 4, "modelspec.prediction_type", "v", 0.01f, v, at_768, ""},
        {2, 4, "modelspec.architecture", "stable-diffusion-v2-512", 0.2f, epsilon, at_512, ""},
        {2, 4, "modelspec.architecture", "stable-diffusion-v2-768-v", 0.01f, v, at_768, ""},
        {2, 4, NULL, "v_pred", 0.01f, v, at_768, ""},
        {2, 9, NULL, NULL, 0.2f, epsilon, at_512, ""},
        {2, 9, "modelspec.prediction_type", "v", 0, v, at_512, ""},
    };
    struct fixture g = *(struct fixture *)*state, *f = &g;
    g.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log = listen, .log_level = TERN_LOG_INFO});
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tern_weights *w = unet_like_sd(f, cases[i].sd == 2, cases[i].channels);
        struct tern_detected d;
        add_last_bias(f, w, cases[i].deviation);
        if (cases[i].key)
            assert_int_equal(tern_weights_add_metadata(w, cases[i].key, cases[i].value), TERN_OK);
        else if (cases[i].value)
            add_shape(f, w, cases[i].value, 1, 0, 1);
        *told = 0;
        assert_int_equal(tern_detect_sd(g.ctx, w, "file", &d), TERN_OK);
        check_config(d.scheduler, cases[i].scheduler);
        assert_true(i || !strstr(d.scheduler, "prediction_type")); /* as the published one */
        check_config(d.unet, cases[i].unet);
        assert_true(cases[i].unet == at_768 || !strstr(d.unet, "upcast_attention"));
        if (*cases[i].log ? strncmp(told, cases[i].log, strlen(cases[i].log)) : *told)
            fail_msg("case %zu: said \"%s\"", i, told);
        tern_detected_free(g.ctx, &d);
        tern_weights_unref(&w);
    }
    tern_context_destroy(&g.ctx);
}

static void other_single_files_are_named(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *tensor, *text;
    } cases[] = {
        {"lora_unet_down_blocks_0.lora_up.weight", "a LoRA, which goes on top of a checkpoint"},
        {"down_blocks.0.resnets.0.norm1.weight", "the UNet of a diffusers folder"},
        {"first_stage_model.encoder.conv_in.weight", "a VAE alone"},
        {"model.diffusion_model.joint_blocks.0.x", "a Stable Diffusion 3 model"},
        {"something.else", "found 1 tensors such as \"something.else\""},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct tern_weights *w = tern_weights_create(f->ctx);
        struct tern_detected d;
        add_shape(f, w, cases[i].tensor, 1, 1, 1);
        assert_int_equal(tern_detect_sd(f->ctx, w, "file.safetensors", &d), TERN_E_UNSUPPORTED);
        if (!strstr(tern_error(f->ctx), cases[i].text))
            fail_msg("found \"%s\"", tern_error(f->ctx));
        tern_error_clear(f->ctx);
        tern_weights_unref(&w);
    }
    struct tern_weights *w = tern_weights_create(f->ctx);
    struct tern_detected d;
    add_shape(f, w, "model.diffusion_model.input_blocks.0.0.weight", 4, 320, 4);
    assert_int_equal(tern_detect_sd(f->ctx, w, "file.safetensors", &d), TERN_E_FORMAT);
    tern_error_clear(f->ctx);
    tern_weights_unref(&w);
    refused(f, FORMATS "mini/unet/diffusion_pytorch_model.safetensors", TERN_E_UNSUPPORTED, "the UNet of a diffusers folder");
}

static void folders_that_are_no_model_are_explained(void **state)
{
    struct fixture *f = *state;
    refused(f, help_path(f, "none"), TERN_E_NOT_FOUND, "no such file or folder");
    help_folder(f, "empty");
    refused(f, help_path(f, "empty"), TERN_E_NOT_FOUND, "a folder that is no model: expected model_index.json and the folders unet, vae");
    refused(f, FORMATS "mini/unet", TERN_E_NOT_FOUND, "one component of a model, not the whole");
    help_folder(f, "files");
    help_file(f, "files/v1-5.safetensors", "x", 1);
    refused(f, help_path(f, "files"), TERN_E_NOT_FOUND, "files/v1-5.safetensors");
    help_file(f, "files/model_index.json", "{\"unet\": [\"diffusers\", \"UNet2DConditionModel\"]}", 47);
    refused(f, help_path(f, "files"), TERN_E_NOT_FOUND, "none of the components that it lists is there");
    help_file(f, "files/model_index.json", "{\"_class_name\": 5}", 18);
    refused(f, help_path(f, "files"), TERN_E_FORMAT, "\"_class_name\": expected a string, found an integer");
    help_file(f, "files/model_index.json", "[1]", 3);
    refused(f, help_path(f, "files"), TERN_E_FORMAT, "expected a JSON object");
    help_file(f, "files/model_index.json", "{\"_class_name\"", 14);
    refused(f, help_path(f, "files"), TERN_E_FORMAT, "not valid JSON");
    help_file(f, "files/model_index.json", "{\"../unet\": [\"a\", \"b\"]}", 23);
    refused(f, help_path(f, "files"), TERN_E_FORMAT, "a component's name is no plain word");
    static const char more[] =
        "{\"_class_name\": \"StableDiffusionControlNetPipeline\", \"controlnet\": [\"diffusers\", \"ControlNetModel\"]}";
    help_file(f, "files/model_index.json", more, sizeof(more) - 1);
    refused(f, help_path(f, "files"), TERN_E_UNSUPPORTED,
            "the component \"controlnet\" (ControlNetModel), which a StableDiffusionControlNetPipeline needs, is not available");
    static const char less[] = "{\"controlnet\": [null, null]}";
    help_file(f, "files/model_index.json", less, sizeof(less) - 1);
    refused(f, help_path(f, "files"), TERN_E_NOT_FOUND, "none of the components that it lists is there");
}

/* The full weights before the variant, safetensors before torch.save; a missing file lists what was tried. */
static void weight_files_are_preferred_in_order(void **state)
{
    struct fixture *f = *state;
    static const char *const order[] = {"pytorch_model.fp16.bin", "model.fp16.safetensors", "pytorch_model.bin", "model.safetensors"};
    help_folder(f, "m");
    help_folder(f, "m/unet");
    help_folder(f, "m/text_encoder");
    help_folder(f, "m/tokenizer");
    help_file(
        f, "m/model_index.json",
        "{\"text_encoder\": [\"transformers\", \"CLIPTextModel\"], \"unet\": [\"diffusers\", \"U\"], \"safety_checker\": [null, null]}",
        111);
    help_file(f, "m/text_encoder/config.json", "{}", 2);
    help_file(f, "m/unet/config.json", "{}", 2);
    struct tern_checkpoint *cp = open_ok(f, help_path(f, "m"));
    assert_int_equal(tern_checkpoint_count(cp), 2);
    assert_true(tern_checkpoint_has(cp, "unet"));
    assert_false(tern_checkpoint_has(cp, "safety_checker"));
    assert_non_null(strstr(tern_checkpoint_tokenizer(cp, 0), "m/tokenizer"));
    assert_null(tern_checkpoint_tokenizer(cp, 1));
    assert_null(tern_checkpoint_scheduler(cp));
    assert_null(tern_checkpoint_weights(cp, "unet"));
    assert_non_null(strstr(tern_error(f->ctx), "m/unet: no weight file: expected diffusion_pytorch_model or model"));
    tern_error_clear(f->ctx);
    assert_null(tern_checkpoint_weights(cp, "vae"));
    assert_non_null(strstr(tern_error(f->ctx), "it has no vae"));
    tern_error_clear(f->ctx);
    for (int i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof(name), "m/text_encoder/%s", order[i]);
        help_file(f, name, "x", 1);
        char *path = tern_checkpoint_weights_path(cp, "text_encoder");
        assert_non_null(strstr(path, order[i]));
        tern_free_text(f->ctx, path);
    }
    tern_checkpoint_close(&cp);
}

static void files_are_described(void **state)
{
    struct fixture *f = *state;
    char *text = tern_weights_describe(f->ctx, FORMATS "odd.pt", false),
         *json = tern_weights_describe(f->ctx, FORMATS "mini.safetensors", true);
    assert_non_null(strstr(text, "format: torch zip\ntensors: 18\nparameters: 241\n"));
    assert_non_null(strstr(text, "  bf16: 1 tensors, 30 bytes\n"));
    assert_non_null(strstr(text, "  empty (0, 4) f32\n"));
    assert_non_null(strstr(text, "  view.* 4 tensors, 144 parameters\n"));
    json_t *o = parse(json);
    assert_int_equal(json_integer_value(json_object_get(o, "tensor_count")), 377);
    assert_int_equal(json_integer_value(json_object_get(o, "parameters")), 114376);
    assert_int_equal(json_array_size(json_object_get(o, "tensors")), 377);
    assert_string_equal(json_string_value(json_object_get(json_object_get(o, "metadata"), "format")), "pt");
    json_t *i64 = json_object_get(json_object_get(o, "dtypes"), "i64");
    assert_int_equal(json_integer_value(json_object_get(i64, "bytes")), 616);
    json_t *first = json_array_get(json_object_get(o, "tensors"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")),
                        "cond_stage_model.transformer.text_model.embeddings.position_embedding.weight");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(first, "shape"), 0)), 77);
    json_decref(o);
    tern_free_text(f->ctx, text);
    tern_free_text(f->ctx, json);
    text = tern_weights_describe(f->ctx, FORMATS "odd.safetensors", false);
    assert_non_null(strstr(text, "metadata:\n  note: caf\xc3\xa9 \xf0\x9f\x90\x88\n"));
    tern_free_text(f->ctx, text);
    char path[sizeof(FORMATS) + 1400] = FORMATS; /* a long one */
    for (int i = 0; i < 600; i++)
        strcat(path, "./");
    strcat(path, "odd.pt");
    text = tern_weights_describe(f->ctx, path, false);
    assert_non_null(strstr(text, "./odd.pt\nformat: torch zip\ntensors: 18\n"));
    tern_free_text(f->ctx, text);
    assert_null(tern_weights_describe(f->ctx, FORMATS "foreign-global.ckpt", false));
    assert_non_null(strstr(tern_error(f->ctx), "posix.system"));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(all_layouts_are_one_model),
        TEST(names_are_those_of_the_hub),
        TEST(bert_names_stay),
        TEST(ldm_names_are_known),
        TEST(foreign_names_do_not_translate),
        TEST(names_go_there_and_back),
        TEST(single_files_tell_their_configuration),
        TEST(sd2_files_are_their_folder),
        TEST(odd_open_clip_is_refused),
        TEST(full_sizes_are_recognised),
        TEST(what_is_predicted_is_recognised),
        TEST(other_single_files_are_named),
        TEST(folders_that_are_no_model_are_explained),
        TEST(weight_files_are_preferred_in_order),
        TEST(files_are_described),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
