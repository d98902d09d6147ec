/* Conversions that would lose something: refused before anything is written, or warned of. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "weights_help.h"

#include "convert_help.h"
#include "damage.h"
#include "model_help.h"
#include "support.h"
#include "xl_help.h"

static void refused(struct tern_context *ctx, const char *model, const char *out, const struct tern_convert_params *params,
                    enum tern_status status, const char *part)
{
    assert_int_equal(tern_convert(ctx, model, out, params), status);
    support_error(ctx, status, part);
}

/* The refiner as published: one number for all levels, of which not all have attention. */
static void levels_without_attention_have_no_depth(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_refiner(f->ctx, folder);
    damage_json(folder, "unet/config.json", "transformer_layers_per_block", json_integer(2));
    convert_beside(f->folder, "out", out);
    convert_well(f->ctx, folder, out, NULL);
    convert_same_model(f->ctx, folder, out);
    damage_remove(folder);
}

/* The last level of SD 2 has attention in the mid block alone, which has as many heads. */
static void heads_of_the_mid_block_are_no_readers_guess(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_model("sd2", folder);
    convert_beside(f->folder, "out", out);
    damage_json(folder, "unet/config.json", "attention_head_dim", json_pack("[i, i]", 1, 2));
    refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, "heads, groups or other settings");
    xl_drop_mid_block(f->ctx, folder);
    convert_well(f->ctx, folder, out, NULL);
    damage_remove(folder);
}

static void norms_of_text_encoders_are_no_readers_guess(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_model("sdxl", folder);
    convert_beside(f->folder, "out", out);
    for (int i = 2; i < 4; i++) {
        char config[64];
        snprintf(config, sizeof(config), "%s/config.json", convert_components[i]);
        damage_json(folder, config, "layer_norm_eps", json_real(1e-6));
        refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, "activation or layer_norm_eps");
        damage_json(folder, config, "layer_norm_eps", i == 2 ? NULL : json_real(1e-5));
    }
    convert_well(f->ctx, folder, out, NULL);
    damage_remove(folder);
}

/* What a reader takes for granted of an index that it does not have. */
static void what_the_index_alone_says_stays_a_folder(void **state)
{
    const struct {
        const char *key;
        json_t *value;
    } rows[] = {{"is_cosxl_edit", json_true()},
                {"force_zeros_for_empty_prompt", json_false()},
                {"force_zeros_for_empty_prompt", json_null()}};
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_model("sdxl", folder);
    convert_beside(f->folder, "out", out);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        damage_json(folder, "model_index.json", rows[i].key, rows[i].value);
        refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, rows[i].key);
        damage_json(folder, "model_index.json", rows[i].key, NULL);
    }
    convert_well(f->ctx, folder, out, NULL);
    damage_remove(folder);
}

/* The index's class counts above the file's. */
static void schedulers_of_others_stay_folders(void **state)
{
    static const char *const files[] = {"model_index.json", "scheduler/scheduler_config.json"};
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_model("sdxl", folder);
    convert_beside(f->folder, "out", out);
    damage_json(folder, files[1], "prediction_type", json_string("v_prediction"));
    damage_json(folder, files[0], "scheduler", json_pack("[s,s]", "diffusers", "EDMEulerScheduler"));
    refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, "the noise levels of its scheduler, EDMEulerScheduler, are not");
    damage_json(folder, files[1], "_class_name", json_string("EDMEulerScheduler"));
    damage_json(folder, files[0], "scheduler", NULL);
    refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, "the noise levels of its scheduler, EDMEulerScheduler, are not");
    damage_json(folder, files[1], "_class_name", json_string("FlowMatchEulerDiscreteScheduler"));
    damage_json(folder, files[1], "beta_start", NULL);
    refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, "scheduler, FlowMatchEulerDiscreteScheduler, are not");
    damage_json(folder, files[1], "beta_start", json_real(0.00085));
    damage_json(folder, files[1], "_class_name", json_string("DEISMultistepScheduler")); /* jobs take --sampler for it */
    convert_well(f->ctx, folder, out, NULL);
    damage_remove(folder);
}

#define TOLD 4096

/* All warnings. */
static void collect(enum tern_log_level level, const char *message, void *user)
{
    char *told = user;
    const size_t n = strlen(told);
    if (level == TERN_LOG_WARN)
        snprintf(told + n, TOLD - n, "%s\n", message);
}

/* A model that was trained with noise of its own, or for pictures of another size, is painted with the published models' from a file. */
static void what_a_file_does_not_tell_is_warned_of(void **state)
{
    static const char scheduler[] = "scheduler/scheduler_config.json";
    const struct {
        const char *model, *file, *key;
        json_t *value;
        const char *told; /* NULL: nothing */
    } rows[] = {{"sd2", "unet/config.json", "sample_size", json_integer(64), NULL},
                {"sd2", "unet/config.json", "sample_size", json_integer(48), "own size is 48 x 48"},
                {"sd2", scheduler, "rescale_betas_zero_snr", json_true(), "\"rescale_betas_zero_snr\" of its own"},
                {"sd2", scheduler, "beta_start", json_real(0.001), "\"beta_start\" of its own"},
                {"sd2", scheduler, "beta_end", json_real(0.02), "\"beta_end\" of its own"},
                {"sd2", scheduler, "beta_schedule", json_string("linear"), "\"beta_schedule\" of its own"},
                {"sd2", scheduler, "trained_betas", json_pack("[f, f]", 0.001, 0.02), "\"trained_betas\" of its own"},
                {"sdxl", scheduler, "rescale_betas_zero_snr", json_true(), "\"rescale_betas_zero_snr\" of its own"},
                {"sdxl", scheduler, "prediction_type", json_string("v_prediction"), NULL}};
    struct fixture *f = *state;
    char told[TOLD], folder[PATH_SIZE], out[PATH_SIZE];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log = collect, .user = told});
    convert_beside(f->folder, "out", out);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        convert_copy_model(rows[i].model, folder);
        damage_json(folder, scheduler, "prediction_type", json_string("epsilon"));
        damage_json(folder, scheduler, "rescale_betas_zero_snr", json_boolean(!rows[i].told && !strcmp(rows[i].model, "sdxl")));
        damage_json(folder, "unet/config.json", "sample_size", json_integer(strcmp(rows[i].model, "sdxl") ? 64 : 128));
        damage_json(folder, rows[i].file, rows[i].key, rows[i].value);
        *told = 0;
        convert_well(ctx, folder, out, NULL);
        const char *end = strchr(told, '\n');
        if (rows[i].told ? !strstr(told, rows[i].told) || !end || end[1] : *told)
            fail_msg("%s: %s: %s", rows[i].model, rows[i].key, told);
        damage_remove(folder);
    }
    tern_context_destroy(&ctx);
}

static void what_cannot_be_is_refused(void **state)
{
    static const struct tern_convert_params single = {.form = TERN_CONVERT_SINGLE_FILE}, folder = {.form = TERN_CONVERT_FOLDER},
                                            bad_form = {.form = 7}, bad_dtype = {.change_dtype = true, .dtype = TERN_I64};
    struct fixture *f = *state;
    char out[PATH_SIZE], here[PATH_SIZE];
    snprintf(here, sizeof(here), "%s", f->folder);
    snprintf(out, sizeof(out), "%s/out", f->folder);
    refused(f->ctx, TERN_SOURCE_ROOT "/models/demo/zh", out, &single, TERN_E_UNSUPPORTED, "text_encoder is a BertModel");
    refused(f->ctx, TERN_TEST_DATA "/models/sd1-heads", out, &single, TERN_E_UNSUPPORTED, "there is no single file of it");
    refused(f->ctx, TERN_TEST_DATA "/models/sd1", out, &single, TERN_E_UNSUPPORTED, "heads, groups or other settings");
    refused(f->ctx, TERN_SOURCE_ROOT "/models/demo", out, NULL, TERN_E_UNSUPPORTED, "models/demo: there is no single file of it");
    refused(f->ctx, FORMATS "mini.safetensors", FORMATS "mini.safetensors", &single, TERN_E_INVALID, "expected another name");
    refused(f->ctx, FORMATS "mini", FORMATS "mini", &folder, TERN_E_INVALID, "expected another name");
    refused(f->ctx, FORMATS "mini.safetensors", FORMATS "mini-bin", NULL, TERN_E_INVALID, "one that is not empty");
    refused(f->ctx, FORMATS "mini.safetensors", FORMATS "odd.json", NULL, TERN_E_INVALID, "found a file");
    refused(f->ctx, FORMATS "mini", here, NULL, TERN_E_IO, here);
    refused(f->ctx, FORMATS "odd.safetensors", out, NULL, TERN_E_UNSUPPORTED, "not a Stable Diffusion checkpoint");
    refused(f->ctx, "absent", out, NULL, TERN_E_NOT_FOUND, "absent");
    refused(f->ctx, here, out, NULL, TERN_E_NOT_FOUND, "no model");
    refused(f->ctx, FORMATS "mini", "", NULL, TERN_E_INVALID, "empty");
    refused(f->ctx, NULL, out, NULL, TERN_E_INVALID, "NULL");
    refused(f->ctx, FORMATS "mini", out, &bad_form, TERN_E_INVALID, "form");
    refused(f->ctx, FORMATS "mini", out, &bad_dtype, TERN_E_INVALID, "dtype");
    assert_int_equal(convert_entries(f->folder), 2);
}

/* The weights of a component would be gone, under whatever name; another file in the model's folder is none of it. */
static void a_component_is_not_written_over(void **state)
{
    struct fixture *f = *state;
    char model[PATH_SIZE - 64], unet[PATH_SIZE], link[PATH_SIZE], other[PATH_SIZE];
    snprintf(model, sizeof(model), "%s/model", f->folder);
    snprintf(unet, sizeof(unet), "%s/unet/diffusion_pytorch_model.safetensors", model);
    snprintf(link, sizeof(link), "%s/link", f->folder);
    snprintf(other, sizeof(other), "%s/other.safetensors", model);
    convert_well(f->ctx, FORMATS "mini.safetensors", model, NULL);
    assert_int_equal(symlink(unet, link), 0);
    refused(f->ctx, model, unet, NULL, TERN_E_INVALID, "expected another name");
    refused(f->ctx, model, link, NULL, TERN_E_INVALID, "expected another name");
    static const char *const parts[] = {"unet/config.json", "model_index.json", "scheduler/scheduler_config.json"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        snprintf(unet, sizeof(unet), "%s/%s", model, parts[i]);
        refused(f->ctx, model, unet, NULL, TERN_E_INVALID, "expected another name");
    }
    for (int i = 0; i < 2; i++) /* the second over the first */
        convert_well(f->ctx, model, other, NULL);
}

static void a_model_without_weights_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_model("sd2", folder);
    damage_delete(folder, "vae/diffusion_pytorch_model.safetensors");
    snprintf(out, sizeof(out), "%s/out", f->folder);
    refused(f->ctx, folder, out, &(struct tern_convert_params){.form = TERN_CONVERT_FOLDER}, TERN_E_NOT_FOUND, "no weight file");
    refused(f->ctx, folder, out, NULL, TERN_E_NOT_FOUND, "no weight file");
    assert_int_equal(convert_entries(f->folder), 2);
    damage_remove(folder);
}

/* The weight by which a UNet is told the guidance scale: diffusers' reader of single files knows no name for it. */
static void a_consistency_model_stays_a_folder(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    xl_folder(f->ctx, "sd1-lcm", folder);
    snprintf(out, sizeof(out), "%s/out", f->folder);
    refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED,
            "unet: the tensor \"time_embedding.cond_proj.weight\" has no name in single files");
    assert_int_equal(convert_entries(f->folder), 2);
    damage_remove(folder);
}

/* Attention on the way up with more blocks than on the way down: a single file is read with as many. */
static void a_way_up_of_its_own_stays_a_folder(void **state)
{
    struct fixture *f = *state;
    char folder[PATH_SIZE], out[PATH_SIZE];
    convert_copy_model("sd2", folder);
    damage_json(folder, "unet/config.json", "reverse_transformer_layers_per_block", json_pack("[i, i]", 2, 2));
    snprintf(out, sizeof(out), "%s/out", f->folder);
    refused(f->ctx, folder, out, NULL, TERN_E_UNSUPPORTED, "there is no single file of it");
    damage_remove(folder);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, help_setup, help_teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(levels_without_attention_have_no_depth),
        TEST(heads_of_the_mid_block_are_no_readers_guess),
        TEST(norms_of_text_encoders_are_no_readers_guess),
        TEST(what_the_index_alone_says_stays_a_folder),
        TEST(schedulers_of_others_stay_folders),
        TEST(what_a_file_does_not_tell_is_warned_of),
        TEST(what_cannot_be_is_refused),
        TEST(a_component_is_not_written_over),
        TEST(a_model_without_weights_leaves_nothing),
        TEST(a_consistency_model_stays_a_folder),
        TEST(a_way_up_of_its_own_stays_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
