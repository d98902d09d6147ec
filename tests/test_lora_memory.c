/* Every allocation may fail while a LoRA of each kind is set: a status, the model as it was, and nothing stays. What LoRAs make of a text
 * encoder that comes and goes is predicted. */
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

#define TO_K "lora_unet_mid_block_attentions_0_transformer_blocks_0_attn2_to_k" /* (24, 40) */
#define CONV "lora_unet_mid_block_resnets_0_conv1"                              /* (24, 24, 3, 3) */
#define FC "lora_te_text_model_encoder_layers_1_mlp_fc1"                        /* (96, 40) */

struct tensor {
    const char *name;
    int64_t shape[4];
};

/* One or two modules of each kind, on a UNet's matrix, a convolution or a text encoder's matrix of sd1. */
static const struct {
    const char *kind;
    struct tensor tensor[7];
} files[] = {
    {"LoRA", {{TO_K ".lora_down.weight", {2, 40}}, {TO_K ".lora_up.weight", {24, 2}}, {TO_K ".alpha", {1}}}},
    {"LoCon with a core",
     {{CONV ".lora_down.weight", {3, 24, 1, 1}}, {CONV ".lora_mid.weight", {2, 3, 3, 3}}, {CONV ".lora_up.weight", {24, 2, 1, 1}}}},
    {"DoRA", {{FC ".lora_down.weight", {2, 40}}, {FC ".lora_up.weight", {96, 2}}, {FC ".dora_scale", {96, 1}}}},
    {"LoHa", {{FC ".hada_w1_a", {96, 2}}, {FC ".hada_w1_b", {2, 40}}, {FC ".hada_w2_a", {96, 2}}, {FC ".hada_w2_b", {2, 40}}}},
    {"LoHa with cores",
     {{CONV ".hada_w1_a", {2, 24}},
      {CONV ".hada_w1_b", {2, 24}},
      {CONV ".hada_t1", {2, 2, 3, 3}},
      {CONV ".hada_w2_a", {2, 24}},
      {CONV ".hada_w2_b", {2, 24}},
      {CONV ".hada_t2", {2, 2, 3, 3}}}},
    {"LoKr", {{FC ".lokr_w1", {4, 4}}, {FC ".lokr_w2_a", {24, 2}}, {FC ".lokr_w2_b", {2, 10}}}},
    {"GLoRA",
     {{CONV ".a1.weight", {24, 2, 1, 1}},
      {CONV ".a2.weight", {2, 24, 1, 1}},
      {CONV ".b1.weight", {24, 2, 1, 1}},
      {CONV ".b2.weight", {2, 24, 1, 1}},
      {CONV ".bm.weight", {2, 2, 3, 3}}}},
    {"whole differences", {{FC ".diff", {96, 40}}, {FC ".diff_b", {96}}}},
    {"IA3", {{FC ".weight", {40}}, {FC ".on_input", {1}}}},
    {"OFT", {{FC ".oft_diag", {24, 4, 4}}, {TO_K ".oft_blocks", {6, 4, 4}}, {TO_K ".rescale", {24, 1}}, {TO_K ".alpha", {1}}}},
    {"BOFT", {{FC ".oft_blocks", {3, 24, 4, 4}}, {FC ".rescale", {96, 1}}}},
};

static void write_file(const char *path, const struct tensor *tensors)
{
    struct tern_context *ctx = support_context();
    struct tern_weights *w = tern_weights_create(ctx);
    for (int i = 0; i < 7 && tensors[i].name; i++) {
        int ndim = 0;
        int64_t n = 1;
        while (ndim < 4 && tensors[i].shape[ndim])
            n *= tensors[i].shape[ndim++];
        float *values = malloc((size_t)n * sizeof(*values));
        for (int64_t k = 0; k < n; k++)
            values[k] = 0.1f * (float)(k * k % 11 + 1); /* no symmetric blocks */
        tern_tensor *t = tern_tensor_create(ctx, TERN_F32, ndim, tensors[i].shape, values);
        assert_int_equal(tern_weights_add(w, tensors[i].name, t), TERN_OK);
        tern_tensor_unref(&t);
        free(values);
    }
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

static void every_failed_allocation_is_reported(void **state)
{
    char model[PATH_SIZE], folder[PATH_SIZE], path[2 * PATH_SIZE];
    struct support_allocator a = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&a)});
    struct tern_pipeline *p = model_load(ctx, model_path("sd1", model));
    struct lora_print *plain = lora_print(ctx, p);
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
    const struct tern_lora lora = {.path = path, .scale = 0.7};
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        write_file(path, files[i].tensor);
        assert_int_equal(tern_pipeline_set_loras(p, &lora, 1), TERN_OK); /* each op has its kernel now */
        struct lora_print *with = lora_print(ctx, p);
        assert_false(lora_print_same(plain, with));
        lora_print_free(&with);
        assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
        tern_memory_trim(ctx);
        const size_t used = tern_memory_used(ctx);
        enum tern_status st = TERN_E_NO_MEMORY;
        long failures = 0;
        for (; st; failures += st != TERN_OK) {
            a.fail_at = a.count + failures + 1;
            st = tern_pipeline_set_loras(p, &lora, 1);
            a.fail_at = 0;
            if (st && st != TERN_E_NO_MEMORY)
                fail_msg("%s, allocation %ld: %s", files[i].kind, failures, tern_error(ctx));
            tern_error_clear(ctx);
            if (!st)
                assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
            tern_memory_trim(ctx);
            assert_int_equal(tern_memory_used(ctx), used);
        }
        print_message("%s: %ld allocations failed in turn\n", files[i].kind, failures);
        assert_true(failures > 50);
    }
    struct lora_print *after = lora_print(ctx, p);
    assert_true(lora_print_same(plain, after));
    lora_print_free(&after);
    lora_print_free(&plain);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    assert_int_equal(a.live, 0);
    damage_remove(folder);
}

/* A LoRA for every matrix of the layers of the demo model's text encoder: 1.8 MB of f16, a good part of what a small picture takes. */
static void write_text_lora(struct tern_context *ctx, struct tern_pipeline *p, const char *path)
{
    static const char ending[] = ".weight";
    const struct tern_weights *text = tern_pipeline_weights(p, "text_encoder");
    struct tern_weights *w = tern_weights_create(ctx);
    for (int64_t i = 0; i < tern_weights_count(text); i++) {
        const tern_tensor *t = tern_weights_at(text, i);
        const char *of = tern_weights_name(text, i);
        if (tern_tensor_ndim(t) != 2 || !strstr(of, ".layers."))
            continue;
        for (int up = 0; up < 2; up++) {
            char name[256];
            const int64_t shape[] = {up ? tern_tensor_size(t, 0) : 1, up ? 1 : tern_tensor_size(t, 1)};
            tern_tensor *zeros = tern_tensor_create(ctx, TERN_F32, 2, shape, NULL);
            snprintf(name, sizeof(name), "text_encoder.%.*s.lora_%c%s", (int)(strlen(of) - strlen(ending)), of, "AB"[up], ending);
            assert_int_equal(tern_weights_add(w, name, zeros), TERN_OK);
            tern_tensor_unref(&zeros);
        }
    }
    assert_int_equal(tern_weights_save(w, path), TERN_OK);
    tern_weights_unref(&w);
}

static void check_prediction(struct tern_context *ctx, struct tern_pipeline *p, const struct tern_txt2img_params *q, const char *what)
{
    size_t predicted = 0;
    assert_int_equal(tern_generate_check(p, q, &predicted), TERN_OK);
    tern_memory_trim(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_images *images = tern_generate(p, q);
    if (!images)
        fail_msg("%s: %s", what, tern_error(ctx));
    const double ratio = (double)tern_memory_peak(ctx) / (double)predicted;
    print_message("%s: predicted %zu, the peak was %.4f of that\n", what, predicted, ratio);
    assert_true(ratio <= 1 && ratio > 0.97);
    tern_images_destroy(&images);
}

/* Two passes, for each of which the text encoder comes in, and LoRAs that are set while it is out of memory. */
static void text_encoders_that_leave_are_predicted(void **state)
{
    static const struct tern_txt2img_params two = {.prompt = "x", .width = 64, .height = 64, .steps = 1, .hires = {.hr_scale = 1.5}},
                                            one = {.prompt = "x", .width = 64, .height = 64, .steps = 1};
    char folder[PATH_SIZE], path[2 * PATH_SIZE];
    (void)state;
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *p = model_load(ctx, "demo");
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
    const struct tern_lora lora = {.path = path, .scale = 1};
    write_text_lora(ctx, p, path);
    assert_int_equal(tern_pipeline_set_loras(p, &lora, 1), TERN_OK);
    check_prediction(ctx, p, &two, "two passes");
    check_prediction(ctx, p, &two, "two passes, without the text encoder");
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
    check_prediction(ctx, p, &one, "none set meanwhile");
    assert_int_equal(tern_pipeline_set_loras(p, &lora, 1), TERN_OK);
    check_prediction(ctx, p, &one, "set meanwhile");
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_failed_allocation_is_reported),
                                       cmocka_unit_test(text_encoders_that_leave_are_predicted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
