/* Weights in few bits: words with suffixes, and a whole model of such layers. Values of the ops themselves: test_ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "quantize_help.h"
#include "support.h"

/* Layers of the op with weights of so many bits; 0: of any. */
static int count(const struct tern_plan *p, enum tern_op op, int64_t bits)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_op_desc *d = &g->nodes[i].desc;
        const bool conv = op == TERN_OP_weight_only_conv2d;
        n += !g->nodes[i].dead && d->op == op &&
             (!bits || bits == (conv ? d->attrs.weight_only_conv2d.bits : d->attrs.weight_only_linear.bits));
    }
    return n;
}

static void suffixes_choose_formats(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_AUTO);
    struct tern_graph *g = tern_pipeline_graph(p, "unet", &(struct tern_graph_size){2, 64, 64});
    static const struct {
        const char *words;
        bool bytes, eight, four, plain; /* which kinds there are */
    } rows[] = {
        {"*:w8", false, true, false, false},
        {"*:w4", false, false, true, false},
        {"*:w8a8", true, false, false, false},
        {"*:w4 *conv_in*:w8 *to_out*", true, true, true, false},
        {"*:w4 !conv_in.weight !*proj*", false, false, true, true},
        {"*to_out*:w8", false, true, false, true},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.quantize = rows[i].words});
        if (!plan)
            fail_msg("%s", tern_error(ctx));
        const int plain = count(plan, TERN_OP_linear, 0) + count(plan, TERN_OP_linear_geglu, 0) + count(plan, TERN_OP_conv2d, 0);
        assert_int_equal(count(plan, TERN_OP_quantized_linear, 0) > 0, rows[i].bytes);
        assert_int_equal(count(plan, TERN_OP_weight_only_linear, 8) + count(plan, TERN_OP_weight_only_conv2d, 8) > 0, rows[i].eight);
        assert_int_equal(count(plan, TERN_OP_weight_only_linear, 4) > 0, rows[i].four);
        assert_int_equal(plain > 0, rows[i].plain);
        tern_plan_unref(&plan);
    }
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Of one set of weights: each way to keep them has a form of its own. */
static void forms_are_not_mixed(void **state)
{
    static const char *const words[] = {NULL, "*:w8", "*:w4"};
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *p = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_AUTO);
    struct tern_graph *g = tern_pipeline_graph(p, "unet", &(struct tern_graph_size){2, 64, 64});
    struct tern_binding *bindings[3];
    for (int i = 0; i < 3; i++) {
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.quantize = words[i]});
        assert_true(tern_plan_bind_bytes(plan, tern_pipeline_weights(p, "unet")) > 100000);
        bindings[i] = tern_plan_bind(plan, tern_pipeline_weights(p, "unet"));
        assert_non_null(bindings[i]);
        assert_true(tern_plan_bind_bytes(plan, tern_pipeline_weights(p, "unet")) < 100000);
        tern_plan_unref(&plan);
    }
    for (int i = 0; i < 3; i++)
        tern_binding_unref(&bindings[i]);
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

static void wrong_words(void **state)
{
    static const struct {
        const char *words, *message;
    } rows[] = {
        {"* conv_in.weight:w2", "word \"conv_in.weight:w2\": behind the colon expected w8a8 (int8), w8 or w4 (weights only)"},
        {"*:", "word \"*:\": behind the colon expected"},
        {"*:w4:w8", "word \"*:w4:w8\": behind the colon expected"},
        {"*:w4 !a:w4", "word \"!a:w4\" says how a layer is kept, but ! leaves it as it is: expected \"!a\""},
        {":w5", "word \":w5\": behind the colon expected"}, /* also where no word names a layer */
        {"!mid*:w8", "word \"!mid*:w8\" says how a layer is kept, but ! leaves it as it is: expected \"!mid*\""},
        {"^abc", "word \"^...\": factors are those of a norm"},
    };
    char path[PATH_SIZE], message[256];
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int k = 0; k < 3; k++) {
            struct tern_context *ctx = model_context(NULL, 1);
            struct tern_pipeline *p = k < 2 ? NULL : quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_AUTO);
            struct tern_graph *g = p ? tern_pipeline_graph(p, "text_encoder", NULL) : NULL;
            const char *const words[2] = {k == 0 ? rows[i].words : NULL, k == 1 ? rows[i].words : NULL};
            if (k < 2)
                assert_null(tern_pipeline_load(ctx, model_path("sd1", path),
                                               &(struct tern_pipeline_params){.quantize = words[0], .text_encoder_quantize = words[1]}));
            else
                assert_null(tern_plan_compile(g, &(struct tern_plan_params){.quantize = rows[i].words}));
            snprintf(message, sizeof(message), "%s: %s",
                     k == 0   ? "quantize"
                     : k == 1 ? "text_encoder_quantize"
                              : "plan: quantize",
                     rows[i].message);
            if (strncmp(tern_error(ctx), message, strlen(message)) != 0)
                fail_msg("%s\nexpected %s", tern_error(ctx), message);
            tern_graph_destroy(&g);
            tern_pipeline_destroy(&p);
            tern_context_destroy(&ctx);
        }
}

/* Every layer, and what is kept of them. */
static void every_layer_of_a_unet(void **state)
{
    static const struct {
        const char *words;
        int64_t bits;
        double least, most; /* error of the latents */
    } rows[] = {{"*:w8", 8, 1e-9, 1e-2}, {"*:w4", 4, 1e-7, 0.3}};
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *plain = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_AUTO);
    const struct tern_stage stage = {.component = "unet", .size = {2, 64, 64}};
    const struct tern_plan *floats = tern_pipeline_plan(plain, &stage);
    const size_t floats_bytes = tern_plan_bind_bytes(floats, tern_pipeline_weights(plain, "unet"));
    int64_t n;
    float *expected = quantize_latents(ctx, plain, &n);
    for (size_t i = 0; i < 2; i++) {
        struct tern_pipeline *p = quantize_load(ctx, rows[i].words, NULL, TERN_OFFLOAD_AUTO);
        struct tern_plan *kept = tern_pipeline_plan(p, &stage);
        assert_int_equal(count(kept, TERN_OP_weight_only_linear, rows[i].bits), count(floats, TERN_OP_linear, 0));
        assert_int_equal(count(kept, TERN_OP_weight_only_linear_geglu, rows[i].bits), count(floats, TERN_OP_linear_geglu, 0));
        assert_int_equal(count(kept, TERN_OP_weight_only_conv2d, rows[i].bits), count(floats, TERN_OP_conv2d, 0));
        const size_t bytes = tern_plan_bind_bytes(kept, tern_pipeline_weights(p, "unet"));
        float *found = quantize_latents(ctx, p, &n);
        const double error = support_nmse(found, expected, n);
        print_message("latents of %s: NMSE %.2e; %zu KiB bound, %zu KiB of floats\n", rows[i].words, error, bytes >> 10,
                      floats_bytes >> 10);
        assert_true(error > rows[i].least && error <= rows[i].most);
        assert_true(bytes < floats_bytes);
        const size_t used = tern_memory_used(ctx);
        struct tern_binding *second = tern_plan_bind(kept, tern_pipeline_weights(p, "unet")); /* shares what the first has */
        assert_non_null(second);
        assert_true(tern_memory_used(ctx) - used < bytes / 4);
        tern_binding_unref(&second);
        free(found);
        tern_pipeline_destroy(&p);
    }
    free(expected);
    tern_pipeline_destroy(&plain);
    tern_context_destroy(&ctx);
}

/* Weights that are kept anew at every step, and those with a LoRA and without it again. */
static void streams_and_loras(void **state)
{
    static const char *const words[] = {"*:w8", "*:w4"};
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = model_context(NULL, 2);
        struct tern_pipeline *p = quantize_load(ctx, words[i], words[i], TERN_OFFLOAD_NONE),
                             *streamed = quantize_load(ctx, words[i], words[i], TERN_OFFLOAD_STREAM);
        const struct lora_spec lora = {.file = "a-kohya.safetensors", .scale = 1};
        int64_t n;
        float *first = quantize_latents(ctx, p, &n), *other = quantize_latents(ctx, streamed, &n), *with[2];
        assert_memory_equal(other, first, (size_t)n * sizeof(float));
        for (int k = 0; k < 2; k++) {
            lora_set(ctx, p, &lora, 1);
            with[k] = quantize_latents(ctx, p, &n);
            lora_set(ctx, p, NULL, 0);
            float *again = quantize_latents(ctx, p, &n);
            assert_memory_equal(again, first, (size_t)n * sizeof(float));
            free(again);
        }
        assert_true(support_nmse(with[0], first, n) > 1e-6);
        assert_memory_equal(with[1], with[0], (size_t)n * sizeof(float));
        free(with[0]);
        free(with[1]);
        free(first);
        free(other);
        tern_pipeline_destroy(&p);
        tern_pipeline_destroy(&streamed);
        tern_context_destroy(&ctx);
    }
}

/* A text encoder alone, as a stage's plan and by tern_pipeline_exec; the UNet's words are not for it. */
static void text_encoders(void **state)
{
    static const char *const cases[] = {"text_encoder.full", "text_encoder.mask"};
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *plain = quantize_load(ctx, "*:w4", NULL, TERN_OFFLOAD_AUTO),
                         *p = quantize_load(ctx, NULL, "*:w8", TERN_OFFLOAD_AUTO);
    const struct tern_stage stage = {.component = "text_encoder"};
    assert_int_equal(count(tern_pipeline_plan(plain, &stage), TERN_OP_weight_only_linear, 0), 0);
    assert_int_equal(count(tern_pipeline_plan(p, &stage), TERN_OP_weight_only_linear, 8),
                     count(tern_pipeline_plan(plain, &stage), TERN_OP_linear, 0));
    assert_true(count(tern_pipeline_plan(p, &stage), TERN_OP_weight_only_linear, 8) > 4);
    for (int i = 0; i < 2; i++) {
        char path[PATH_SIZE + 64];
        snprintf(path, sizeof(path), "%s/components/sd1/%s.safetensors", TERN_TEST_DATA, cases[i]);
        struct golden g = golden_open(ctx, path);
        struct tern_weights *expected = model_exec(plain, "text_encoder", g.inputs), *found = model_exec(p, "text_encoder", g.inputs);
        assert_int_equal(tern_weights_count(found), tern_weights_count(expected));
        static const char *const names[] = {"last_hidden_state", "pooler_output"};
        for (int k = 0; k < 2; k++) {
            int64_t n;
            float *a = support_f32(expected, names[k], &n), *b = support_f32(found, names[k], &n);
            const double error = support_nmse(b, a, n);
            print_message("%s of w8: NMSE %.2e\n", names[k], error);
            assert_true(error > 1e-9 && error <= 1e-3);
            free(a);
            free(b);
        }
        tern_weights_unref(&expected);
        tern_weights_unref(&found);
        golden_close(&g);
    }
    tern_pipeline_destroy(&plain);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suffixes_choose_formats), cmocka_unit_test(wrong_words),       cmocka_unit_test(forms_are_not_mixed),
        cmocka_unit_test(every_layer_of_a_unet),   cmocka_unit_test(streams_and_loras), cmocka_unit_test(text_encoders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
