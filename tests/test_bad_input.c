/* Damaged models and wrong parameters: each is refused with a message that says what, where, expected and found; nothing
 * leaks, and the context works on. */
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "damage.h"
#include "model_help.h"
#include "models/modules/text_encoder.h"
#include "models/modules/unet.h"
#include "models/modules/vae.h"
#include "support.h"

#define UNET "unet/diffusion_pytorch_model.safetensors"
#define TEXT "text_encoder/model.safetensors"
#define VAE "vae/diffusion_pytorch_model.safetensors"

/* A context, and a copy of sd1 to damage. */
struct fixture {
    struct tern_context *ctx;
    size_t idle;
    char folder[PATH_SIZE];
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    f->ctx = model_context(NULL, 1);
    damage_copy("sd1", f->folder);
    struct tern_pipeline *p = model_load(f->ctx, f->folder); /* now all that a context makes once is there */
    tern_pipeline_destroy(&p);
    tern_memory_trim(f->ctx);
    f->idle = tern_memory_used(f->ctx);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    damage_remove(f->folder);
    tern_context_destroy(&f->ctx);
    free(f);
    return 0;
}

/* Loading the copy must fail with that status, and the message must hold every one of the parts (up to a NULL). */
static void refused(struct fixture *f, enum tern_status status, const char *const *parts)
{
    struct tern_pipeline *p = tern_pipeline_load(f->ctx, f->folder, NULL);
    if (p)
        fail_msg("loaded, expected \"%s\"", parts[0]);
    for (int i = 0; parts[i]; i++)
        if (!strstr(tern_error(f->ctx), parts[i]))
            fail_msg("expected \"%s\", found \"%s\"", parts[i], tern_error(f->ctx));
    if (tern_error_status(f->ctx) != status)
        fail_msg("expected %s, found %s: %s", tern_status_name(status), tern_status_name(tern_error_status(f->ctx)), tern_error(f->ctx));
    tern_memory_trim(f->ctx);
    assert_int_equal(tern_memory_used(f->ctx), f->idle);
    tern_error_clear(f->ctx);
}
#define REFUSED(f, status, ...) refused(f, status, (const char *const[]){__VA_ARGS__, NULL})

/* ---- weights */

static void wrong_shapes_are_named(void **state)
{
    struct fixture *f = *state;
    damage_tensor(f->ctx, f->folder, UNET, "conv_in.weight", TERN_F16, 4, (const int64_t[]){8, 5, 3, 3});
    REFUSED(f, TERN_E_SHAPE, "unet", "\"conv_in.weight\"", "expected (8, 4, 3, 3) f16", "found (8, 5, 3, 3) f16");
    damage_tensor(f->ctx, f->folder, UNET, "conv_in.weight", TERN_F32, 3, (const int64_t[]){8, 4, 9});
    REFUSED(f, TERN_E_SHAPE, "\"conv_in.weight\"", "expected (8, 4, 3, 3) f32", "found (8, 4, 9) f32");
    damage_tensor(f->ctx, f->folder, UNET, "conv_in.weight", TERN_I32, 4, (const int64_t[]){8, 4, 3, 3});
    REFUSED(f, TERN_E_SHAPE, "\"conv_in.weight\"", "expected (8, 4, 3, 3) f32", "found (8, 4, 3, 3) i32");
}

static void wrong_vectors_are_named(void **state)
{
    struct fixture *f = *state;
    damage_tensor(f->ctx, f->folder, VAE, "decoder.conv_norm_out.bias", TERN_F16, 1, (const int64_t[]){9});
    REFUSED(f, TERN_E_SHAPE, "vae", "\"decoder.conv_norm_out.bias\"", "expected (8,) f16", "found (9,) f16");
    damage_tensor(f->ctx, f->folder, VAE, "decoder.conv_norm_out.bias", TERN_F16, 1, (const int64_t[]){0});
    REFUSED(f, TERN_E_SHAPE, "found (0,) f16");
    damage_tensor(f->ctx, f->folder, VAE, "decoder.conv_norm_out.bias", TERN_F16, 0, NULL);
    REFUSED(f, TERN_E_SHAPE, "found () f16");
}

static void missing_tensors_are_named(void **state)
{
    static const char *const rows[][3] = {
        {UNET, "mid_block.resnets.0.conv1.weight", "unet"},
        {TEXT, "text_model.encoder.layers.2.mlp.fc2.bias", "text_encoder"},
        {VAE, "encoder.down_blocks.0.resnets.0.norm1.weight", "vae"},
    };
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        size_t size;
        char quoted[96], *whole = damage_read(f->folder, rows[i][0], &size);
        snprintf(quoted, sizeof(quoted), "\"%s\" is missing", rows[i][1]);
        damage_tensor(f->ctx, f->folder, rows[i][0], rows[i][1], TERN_F16, -1, NULL);
        REFUSED(f, TERN_E_FORMAT, rows[i][2], quoted);
        damage_text(f->folder, rows[i][0], whole, size);
        free(whole);
    }
}

static void tensors_left_over_are_named(void **state)
{
    struct fixture *f = *state;
    damage_tensor(f->ctx, f->folder, UNET, "mid_block.attentions.1.norm.weight", TERN_F16, 1, (const int64_t[]){24});
    REFUSED(f, TERN_E_FORMAT, "unet: 1 tensor ", "\"mid_block.attentions.1.norm.weight\"");
    damage_tensor(f->ctx, f->folder, UNET, "zz.weight", TERN_F16, 1, (const int64_t[]){24});
    REFUSED(f, TERN_E_FORMAT, "unet: 2 tensors ", "\"mid_block.attentions.1.norm.weight\"");
}

static void cut_weights_are_refused(void **state)
{
    struct fixture *f = *state;
    size_t size;
    char *whole = damage_read(f->folder, VAE, &size);
    for (size_t n = 0; n < size; n += n < 64 ? 7 : size / 23) {
        damage_text(f->folder, VAE, whole, n);
        REFUSED(f, TERN_E_FORMAT, "vae/diffusion_pytorch_model.safetensors");
    }
    damage_delete(f->folder, VAE);
    REFUSED(f, TERN_E_NOT_FOUND, "/vae: no weight file", "diffusion_pytorch_model");
    free(whole);
}

/* ---- configuration */

static void wrong_types_are_named(void **state)
{
    static const struct {
        const char *file, *key, *value, *message;
    } rows[] = {
        {"unet/config.json", "in_channels", "\"four\"", "expected an integer, found a string"},
        {"unet/config.json", "in_channels", "4.5", "expected an integer, found a number"},
        {"unet/config.json", "in_channels", "0", "expected 1..1024, found 0"},
        {"unet/config.json", "norm_eps", "[]", "expected a finite number, found an array"},
        {"unet/config.json", "flip_sin_to_cos", "1", "expected true or false, found an integer"},
        {"unet/config.json", "act_fn", "{}", "expected a string, found an object"},
        {"unet/config.json", "block_out_channels", "8", "expected a list of 1..8 integers"},
        {"unet/config.json", "block_out_channels", "[8, null, 24]", "\"block_out_channels\"[1]: expected an integer"},
        {"unet/config.json", "down_block_types", "[\"DownBlock2D\"]", "expected 3 entries, one a block, found 1"},
        {"unet/config.json", "attention_head_dim", "[4, 4]", "expected 3 entries, one a block, found 2"},
        {"vae/config.json", "latent_channels", "-4", "expected 1..256, found -4"},
        {"vae/config.json", "up_block_types", "[1, 2, 3, 4]", "expected a list of 1..8 strings"},
        {"text_encoder/config.json", "num_hidden_layers", "1000000", "expected 1..64, found 1000000"},
        {"text_encoder/config.json", "hidden_size", "true", "expected an integer, found true"},
        {"text_encoder/config.json", "vocab_size", "9223372036854775807", "found 9223372036854775807"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t size;
        char key[64], *whole = damage_read(f->folder, rows[i].file, &size);
        snprintf(key, sizeof(key), "\"%s\"", rows[i].key);
        damage_json(f->folder, rows[i].file, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        REFUSED(f, TERN_E_FORMAT, rows[i].file, key, rows[i].message);
        damage_text(f->folder, rows[i].file, whole, size);
        free(whole);
    }
}

static void unknown_architectures_are_named(void **state)
{
    static const struct {
        const char *file, *key, *value, *message;
    } rows[] = {
        {"unet/config.json", "down_block_types", "[\"CrossAttnDownBlock2D\", \"AttnDownBlock2D\", \"DownBlock2D\"]", "AttnDownBlock2D"},
        {"unet/config.json", "mid_block_type", "\"UNetMidBlock2DSimpleCrossAttn\"", "UNetMidBlock2DSimpleCrossAttn"},
        {"unet/config.json", "class_embed_type", "\"timestep\"", "timestep"},
        {"unet/config.json", "act_fn", "\"gelu\"", "only silu"},
        {"unet/config.json", "conv_in_kernel", "5", "conv_in_kernel"},
        {"vae/config.json", "down_block_types",
         "[\"DownEncoderBlock2D\", \"DownEncoderBlock2D\", \"AttnDownEncoderBlock2D\", \"DownEncoderBlock2D\"]", "AttnDownEncoderBlock2D"},
        {"text_encoder/config.json", "hidden_act", "\"mish\"", "mish"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t size;
        char *whole = damage_read(f->folder, rows[i].file, &size);
        damage_json(f->folder, rows[i].file, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        REFUSED(f, TERN_E_UNSUPPORTED, rows[i].file, rows[i].key, rows[i].message);
        damage_text(f->folder, rows[i].file, whole, size);
        free(whole);
    }
}

/* Sizes that are numbers but do not go together, or not with the weights. */
static void misfits_are_named(void **state)
{
    static const struct {
        const char *file, *key, *value;
        enum tern_status status;
        const char *message;
    } rows[] = {
        {"unet/config.json", "norm_num_groups", "3", TERN_E_FORMAT, "block_out_channels[0] 8 is no multiple of norm_num_groups 3"},
        {"unet/config.json", "attention_head_dim", "5", TERN_E_FORMAT, "block_out_channels[0] 8 is no multiple of its 5 heads"},
        {"vae/config.json", "norm_num_groups", "5", TERN_E_FORMAT, "is no multiple of norm_num_groups 5"},
        {"vae/config.json", "scaling_factor", "0", TERN_E_FORMAT, "\"scaling_factor\" is 0"},
        {"unet/config.json", "num_attention_heads", "4", TERN_E_UNSUPPORTED, "\"num_attention_heads\" is 4"},
        {"text_encoder/config.json", "num_attention_heads", "7", TERN_E_FORMAT, "hidden_size 40 is no multiple of num_attention_heads 7"},
        {"unet/config.json", "cross_attention_dim", "48", TERN_E_SHAPE, "expected (8, 48) f16, found (8, 40) f16"},
        {"unet/config.json", "layers_per_block", "1", TERN_E_SHAPE, "up_blocks"},
        {"vae/config.json", "layers_per_block", "3", TERN_E_FORMAT, "is missing"},
        {"text_encoder/config.json", "num_hidden_layers", "2", TERN_E_FORMAT, "16 tensors have no place"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t size;
        char *whole = damage_read(f->folder, rows[i].file, &size);
        damage_json(f->folder, rows[i].file, rows[i].key, json_loads(rows[i].value, JSON_DECODE_ANY, NULL));
        REFUSED(f, rows[i].status, rows[i].message);
        damage_text(f->folder, rows[i].file, whole, size);
        free(whole);
    }
}

static void cut_configurations_are_refused(void **state)
{
    static const char *const files[] = {"unet/config.json", "vae/config.json", "text_encoder/config.json", "model_index.json"};
    struct fixture *f = *state;
    for (int i = 0; i < 4; i++) {
        size_t size;
        char *whole = damage_read(f->folder, files[i], &size);
        size_t end = (size_t)(strrchr(whole, '}') - whole);
        for (size_t n = 0; n <= end; n += n + 37 <= end || n == end ? 37 : end - n) {
            damage_text(f->folder, files[i], whole, n);
            REFUSED(f, TERN_E_FORMAT, files[i], "not valid JSON");
        }
        damage_text(f->folder, files[i], "[1]", 3);
        REFUSED(f, TERN_E_FORMAT, files[i], "expected a JSON object");
        damage_text(f->folder, files[i], "{\"_class_name\": \"\xff\xfe\"}", 21);
        REFUSED(f, TERN_E_FORMAT, files[i], "not valid JSON");
        damage_text(f->folder, files[i], whole, size);
        free(whole);
    }
}

/* Whatever a flag's default is: diffusers asks whether it is true, and None is not. */
static void flags_of_null_are_false(void **state)
{
    struct fixture *f = *state;
    struct tern_unet_config unet;
    struct tern_vae_config vae;
    for (int null = 0; null < 2; null++) {
        const char *const text = null ? "{\"flip_sin_to_cos\": null, \"mid_block_add_attention\": null, \"use_quant_conv\": null, "
                                        "\"use_post_quant_conv\": null}"
                                      : "{}";
        assert_int_equal(tern_unet_read_config(f->ctx, text, "unet", &unet), TERN_OK);
        assert_int_equal(tern_vae_read_config(f->ctx, text, "vae", &vae), TERN_OK);
        assert_int_equal(unet.flip_sin_to_cos, !null);
        assert_true(vae.mid_attention == !null && vae.quant_conv == !null && vae.post_quant_conv == !null);
    }
}

/* A BERT that sees no token behind its own is another network with the same tensors. */
static void a_decoder_is_no_text_encoder(void **state)
{
    static const char where[] = "text_encoder/config.json", model[] = TERN_SOURCE_ROOT "/models/demo/zh/";
    struct fixture *f = *state;
    struct tern_weights *w = tern_weights_open(f->ctx, TERN_SOURCE_ROOT "/models/demo/zh/text_encoder/model.safetensors");
    assert_non_null(w);
    for (int decoder = 0; decoder < 2; decoder++) {
        size_t size;
        char *text = damage_read(model, where, &size);
        json_t *o = json_loads(text, 0, NULL);
        json_object_set_new(o, "is_decoder", json_boolean(decoder));
        char *config = json_dumps(o, 0);
        struct tern_text_encoder *m = tern_text_encoder_create(f->ctx, "BertModel", config, where, TERN_F32, w);
        if (decoder) {
            assert_null(m);
            support_error(f->ctx, TERN_E_UNSUPPORTED, "text_encoder/config.json: \"is_decoder\" is true");
        }
        assert_int_equal(m != NULL, !decoder);
        tern_text_encoder_destroy(&m);
        free(config);
        json_decref(o);
        free(text);
    }
    tern_weights_unref(&w);
}

/* Every key with every kind of value: it loads and paints, or says why not. */
static void any_value_of_any_key_is_survived(void **state)
{
    static const char *const files[] = {"unet/config.json", "vae/config.json", "text_encoder/config.json",
                                        "scheduler/scheduler_config.json"};
    static const char *const values[] = {"null",  "true", "-1", "0",           "2", "1e308", "4611686018427387904",
                                         "\"x\"", "[]",   "{}", "[2, 2, 2, 2]"};
    struct fixture *f = *state;
    int loaded = 0, refusals = 0;
    for (int i = 0; i < 4; i++) {
        size_t size;
        const char *key;
        json_t *value;
        char *whole = damage_read(f->folder, files[i], &size);
        json_t *o = json_loads(whole, 0, NULL);
        json_object_foreach(o, key, value)
            for (size_t k = 0; k < sizeof(values) / sizeof(*values); k++) {
                damage_json(f->folder, files[i], key, json_loads(values[k], JSON_DECODE_ANY, NULL));
                struct tern_pipeline *p = tern_pipeline_load(f->ctx, f->folder, NULL);
                struct tern_image *image =
                    p ? tern_txt2img(p, &tern_txt2img_params(.width = 16, .height = 16, .steps = 1, .seed = 1)) : NULL;
                loaded += image != NULL;
                refusals += image == NULL;
                if (!image && strlen(tern_error(f->ctx)) < 20)
                    fail_msg("%s: \"%s\": %s: message \"%s\"", files[i], key, values[k], tern_error(f->ctx));
                tern_image_destroy(&image);
                tern_pipeline_destroy(&p);
                tern_error_clear(f->ctx);
                damage_text(f->folder, files[i], whole, size);
            }
        json_decref(o);
        free(whole);
    }
    print_message("%d values paint, %d are refused\n", loaded, refusals);
    assert_true(loaded > 100 && refusals > 200);
}

/* ---- folders */

static void folders_that_are_no_models_are_refused(void **state)
{
    struct fixture *f = *state;
    size_t size;
    char *index = damage_read(f->folder, "model_index.json", &size);
    damage_delete(f->folder, "model_index.json");
    REFUSED(f, TERN_E_NOT_FOUND, f->folder, "no model", "model_index.json");
    damage_text(f->folder, "model_index.json", "{}", 2);
    REFUSED(f, TERN_E_NOT_FOUND, "none of the components");
    damage_text(f->folder, "model_index.json", "{\"../unet\": [\"diffusers\", \"UNet2DConditionModel\"]}", 50);
    REFUSED(f, TERN_E_FORMAT, "model_index.json", "plain word");
    damage_text(f->folder, "model_index.json", index, size);
    damage_delete(f->folder, "vae");
    REFUSED(f, TERN_E_NOT_FOUND, f->folder, "\"vae\"");
    free(index);
}

static void missing_configurations_are_named(void **state)
{
    static const char *const parts[] = {"unet", "text_encoder"};
    struct fixture *f = *state;
    for (int i = 0; i < 2; i++) {
        char file[64], quoted[64];
        size_t size;
        snprintf(file, sizeof(file), "%s/config.json", parts[i]);
        snprintf(quoted, sizeof(quoted), "\"%s\"", parts[i]);
        char *whole = damage_read(f->folder, file, &size);
        damage_delete(f->folder, file);
        REFUSED(f, TERN_E_NOT_FOUND, f->folder, quoted);
        damage_text(f->folder, file, whole, size);
        free(whole);
    }
}

static void tokenizers_that_do_not_fit_are_refused(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE], folder[2 * PATH_SIZE];
    struct tern_pipeline_params params = {.tokenizer_dir = folder};
    snprintf(folder, sizeof(folder), "%s/tokenizer", f->folder); /* 664 ids for texts of 32; sd1-heads has 604 and 24 */
    assert_null(tern_pipeline_load(f->ctx, model_path("sd1-heads", path), &params));
    assert_non_null(strstr(tern_error(f->ctx), folder));
    support_error(f->ctx, TERN_E_FORMAT, "664 ids for texts of 32 does not fit a text encoder of 604 ids for texts of 24");
    snprintf(folder, sizeof(folder), "%s/unet", f->folder);
    assert_null(tern_pipeline_load(f->ctx, f->folder, &params));
    assert_non_null(strstr(tern_error(f->ctx), folder));
    assert_int_not_equal(tern_error_status(f->ctx), TERN_OK);
    tern_error_clear(f->ctx);
    damage_delete(f->folder, "tokenizer/merges.txt");
    REFUSED(f, TERN_E_NOT_FOUND, "tokenizer", "merges.txt");
}

/* The mini model has no tokenizer: its components run, prompts are refused. */
static void a_model_without_tokenizer_reads_no_prompts(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE];
    struct tern_pipeline *p = model_load(f->ctx, model_path("sd1-mini", path));
    assert_null(tern_generate(p, NULL));
    support_error(f->ctx, TERN_E_NOT_FOUND, "has no tokenizer");
    assert_null(tern_pipeline_tokenizer(p, 0));
    support_error(f->ctx, TERN_E_NOT_FOUND, "has no tokenizer");
    tern_pipeline_destroy(&p);
}

static void parts_that_do_not_fit_are_refused(void **state)
{
    struct fixture *f = *state;
    char other[PATH_SIZE];
    size_t size;
    damage_copy("sd1-heads", other); /* its text states are 36 wide, sd1's UNet reads 40 */
    char *config = damage_read(other, "text_encoder/config.json", &size);
    damage_text(f->folder, "text_encoder/config.json", config, size);
    free(config);
    char *weights = damage_read(other, TEXT, &size);
    damage_text(f->folder, TEXT, weights, size);
    free(weights);
    REFUSED(f, TERN_E_FORMAT, "width 40", "gives 36");
    damage_remove(other);
}

/* SDXL's second text encoder and its tokenizer; the refiner has no first. */
static void second_encoders_are_checked(void **state)
{
    static const char *const config = "text_encoder_2/config.json", *const index = "model_index.json";
    struct fixture *f = *state;
    damage_remove(f->folder);
    damage_copy("sdxl", f->folder);
    /* transformers' CLIPTextModel leaves it aside */
    damage_tensor(f->ctx, f->folder, "text_encoder/model.safetensors", "text_projection.weight", TERN_F16, 2, (const int64_t[]){3, 7});
    struct tern_pipeline *p = tern_pipeline_load(f->ctx, f->folder, NULL);
    if (!p)
        fail_msg("%s", tern_error(f->ctx));
    tern_pipeline_destroy(&p);
    damage_tensor(f->ctx, f->folder, "text_encoder_2/model.safetensors", "text_projection.weight", TERN_F16, 2, (const int64_t[]){21, 24});
    REFUSED(f, TERN_E_SHAPE, "text_projection.weight", "expected (20, 24)");
    damage_json(f->folder, config, "projection_dim", json_integer(21));
    REFUSED(f, TERN_E_FORMAT, "a pooled text and five or six numbers, 68 wide together and each number 8", "gives 21");
    damage_tensor(f->ctx, f->folder, "text_encoder_2/model.safetensors", "text_projection.weight", TERN_F16, -1, NULL);
    damage_json(f->folder, config, "projection_dim", json_integer(20));
    REFUSED(f, TERN_E_FORMAT, "text_projection.weight", "is missing");
    damage_json(f->folder, index, "text_encoder_2", json_pack("[s,s]", "transformers", "CLIPTextModel"));
    REFUSED(f, TERN_E_FORMAT, "68 wide together", "gives 20 without a projection");
    damage_json(f->folder, "unet/config.json", "addition_time_embed_dim", json_integer(9));
    REFUSED(f, TERN_E_FORMAT, "68 wide together and each number 9");
    damage_delete(f->folder, config);
    REFUSED(f, TERN_E_NOT_FOUND, "no component \"text_encoder_2\"");
    damage_remove(f->folder);
    damage_copy("sdxl", f->folder);
    damage_json(f->folder, index, "force_zeros_for_empty_prompt", json_integer(3));
    REFUSED(f, TERN_E_FORMAT, index, "force_zeros_for_empty_prompt");
    damage_json(f->folder, index, "force_zeros_for_empty_prompt", NULL);
    damage_json(f->folder, "tokenizer_2/tokenizer_config.json", "model_max_length", json_integer(17));
    REFUSED(f, TERN_E_FORMAT, "a second tokenizer of 544 ids for texts of 17", "a first tokenizer for texts of 18");
    damage_delete(f->folder, "text_encoder/config.json");
    REFUSED(f, TERN_E_FORMAT, "text states of width 40, the text encoders give 24");
}

/* A refiner has the second alone; no other model does. */
static void second_encoders_alone_are_checked(void **state)
{
    struct fixture *f = *state;
    char path[PATH_SIZE];
    damage_delete(f->folder, "text_encoder");
    snprintf(path, sizeof(path), "%.200s/text_encoder_2", f->folder);
    assert_int_equal(mkdir(path, 0777), 0);
    damage_text(f->folder, "text_encoder_2/config.json", "{}", 2);
    damage_json(f->folder, "model_index.json", "text_encoder_2", json_pack("[s,s]", "transformers", "CLIPTextModelWithProjection"));
    REFUSED(f, TERN_E_UNSUPPORTED, "the second text encoder alone whose UNet is not that of Stable Diffusion XL");
}

static void wrong_dtypes_are_refused(void **state)
{
    struct fixture *f = *state;
    assert_null(tern_pipeline_load(f->ctx, f->folder, &(struct tern_pipeline_params){.dtype = TERN_I64}));
    support_error(f->ctx, TERN_E_INVALID, "expected f32, bf16 or f16, found i64");
    assert_null(tern_pipeline_load(f->ctx, f->folder, &(struct tern_pipeline_params){.dtype = (enum tern_dtype)99}));
    support_error(f->ctx, TERN_E_INVALID, "dtype");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(wrong_shapes_are_named),
        TEST(wrong_vectors_are_named),
        TEST(missing_tensors_are_named),
        TEST(tensors_left_over_are_named),
        TEST(cut_weights_are_refused),
        TEST(wrong_types_are_named),
        TEST(unknown_architectures_are_named),
        TEST(misfits_are_named),
        TEST(cut_configurations_are_refused),
        TEST(any_value_of_any_key_is_survived),
        TEST(folders_that_are_no_models_are_refused),
        TEST(missing_configurations_are_named),
        TEST(tokenizers_that_do_not_fit_are_refused),
        TEST(a_model_without_tokenizer_reads_no_prompts),
        TEST(parts_that_do_not_fit_are_refused),
        TEST(second_encoders_are_checked),
        TEST(second_encoders_alone_are_checked),
        TEST(wrong_dtypes_are_refused),
        TEST(flags_of_null_are_false),
        TEST(a_decoder_is_no_text_encoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
