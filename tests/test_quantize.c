/* int8: the pass that quantises layers by name, and a whole UNet of such layers. Values of the ops themselves: test_ops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "damage.h"
#include "graph/plan.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "quantize_help.h"
#include "support.h"

/* Attention that may compute in int8. */
static int count_attention(const struct tern_plan *p)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && g->nodes[i].desc.op == TERN_OP_sdpa && g->nodes[i].desc.attrs.sdpa.int8;
    return n;
}

/* ---- layers by name */

static struct tern_weights *layers(struct tern_context *ctx)
{
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[4];
    } of[] = {
        {"in.weight", 4, {16, 8, 3, 3}}, {"in.bias", 1, {16}}, {"a.weight", 2, {20, 16}}, {"b.weight", 2, {24, 20}}, {"b.bias", 1, {24}}};
    struct tern_weights *w = tern_weights_create(ctx);
    tern_scope_begin(ctx);
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++) {
        tern_tensor *t = support_noise(ctx, 40 + i, of[i].ndim, of[i].shape, 1, TERN_F32);
        tern_tensor_make_constant(t); /* as those of a file */
        assert_int_equal(tern_weights_add(w, of[i].name, t), TERN_OK);
    }
    tern_scope_end(ctx, NULL);
    return w;
}

/* (2, 8, 5, 6), owned by the caller */
static tern_tensor *picture(struct tern_context *ctx)
{
    tern_scope_begin(ctx);
    return tern_scope_end(ctx, support_noise(ctx, 7, 4, (const int64_t[]){2, 8, 5, 6}, 1, TERN_F32));
}

struct use {
    const struct tern_weights *w;
    bool in, a, b; /* which are of int8, where the calls say so and no pass does */
};

/* (2, 8, 5, 6) -> conv2d, linear over its channels, linear_geglu */
static enum tern_status forward(void *user, tern_tensor *const *x, tern_tensor **out)
{
    const struct use *u = user;
    tern_tensor *(*of)(const struct tern_weights *, const char *) = tern_weights_get;
    tern_tensor *w = of(u->w, "in.weight"), *bias = of(u->w, "in.bias"), *h = tern_contiguous(x[0], TERN_CHANNELS_LAST);
    h = u->in ? tern_quantized_conv2d(h, w, NULL, bias, .padding = 1) : tern_conv2d(h, w, bias, .padding = 1);
    h = tern_contiguous(tern_permute(h, 4, (const int[]){0, 2, 3, 1}), TERN_CONTIGUOUS);
    h = u->a ? tern_quantized_linear(h, of(u->w, "a.weight"), NULL, NULL) : tern_linear(h, of(u->w, "a.weight"), NULL);
    w = of(u->w, "b.weight");
    bias = of(u->w, "b.bias");
    out[0] = u->b ? tern_quantized_linear_geglu(h, w, NULL, bias) : tern_linear_geglu(h, w, bias);
    return tern_error_status(tern_tensor_context(x[0]));
}

#define MANY "*i*g*h************************************************"

static void layers_are_quantised_by_name(void **state)
{
    static const struct {
        const char *words;
        bool in, a, b;
    } rows[] = {
        {NULL, false, false, false},
        {"", false, false, false},
        {"*", true, true, true},
        {"a.weight", false, true, false},
        {"* !b.weight", true, true, false},
        {"!a.weight *", true, true, true},
        {"*.weight !*n.w*", false, true, true},
        {"a b in", false, false, false},
        {"  *t   !i* in.weigh* ", true, true, true},
        {"in.weight* ! !", true, false, false},
        {"*.*ht a*e*w*", true, true, true},
        {"*i*gh**t !*.*e*h*t i*n.*e*", true, false, false},
        {MANY MANY MANY "x a.weight", false, true, false}, /* not in a time that grows with each star */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct tern_context *ctx = support_context();
        struct use plain = {.w = layers(ctx)}, said = {plain.w, rows[i].in, rows[i].a, rows[i].b};
        tern_tensor *x = picture(ctx), *out = NULL, *expected = NULL;
        const struct tern_graph_input input = {"x", TERN_F32, 4, {2, 8, 5, 6}};
        struct tern_graph *g = tern_graph_trace(ctx, forward, &plain, (struct tern_weights *)plain.w, &input, 1, 1);
        struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.quantize = rows[i].words});
        if (!p)
            fail_msg("%s", tern_error(ctx));
        assert_int_equal(quantize_count(p, TERN_OP_quantized_conv2d), rows[i].in);
        assert_int_equal(quantize_count(p, TERN_OP_quantized_linear), rows[i].a);
        assert_int_equal(quantize_count(p, TERN_OP_quantized_linear_geglu), rows[i].b);
        struct tern_binding *b = tern_plan_bind(p, plain.w);
        assert_int_equal(tern_plan_run(b, &x, &out), TERN_OK);
        tern_scope_begin(ctx);
        assert_int_equal(forward(&said, &x, &expected), TERN_OK);
        int64_t n, m;
        float *found = support_values(out, &n), *wanted = support_values(expected, &m);
        tern_scope_end(ctx, NULL);
        assert_int_equal(n, m);
        assert_memory_equal(found, wanted, (size_t)n * sizeof(float));
        free(found);
        free(wanted);
        tern_tensor_unref(&out);
        tern_tensor_unref(&x);
        tern_binding_unref(&b);
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_weights_unref((struct tern_weights **)&plain.w);
        tern_context_destroy(&ctx);
    }
}

/* The plan comes back from its file. */
static void plans_are_saved(void **state)
{
    char folder[PATH_SIZE], path[PATH_SIZE + 16];
    struct tern_context *ctx = support_context();
    struct use plain = {.w = layers(ctx)};
    const struct tern_graph_input input = {"x", TERN_F32, 4, {2, 8, 5, 6}};
    struct tern_graph *g = tern_graph_trace(ctx, forward, &plain, (struct tern_weights *)plain.w, &input, 1, 1);
    struct tern_plan *plans[2] = {tern_plan_compile(g, &(struct tern_plan_params){.quantize = "*"})};
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/plan", folder);
    assert_int_equal(tern_plan_save(plans[0], path), TERN_OK);
    plans[1] = tern_plan_load(ctx, path);
    if (!plans[1])
        fail_msg("%s", tern_error(ctx));
    tern_tensor *x = picture(ctx);
    float *found[2];
    int64_t n = 0;
    for (int i = 0; i < 2; i++) {
        tern_tensor *out = NULL;
        struct tern_binding *b = tern_plan_bind(plans[i], plain.w);
        assert_int_equal(tern_plan_run(b, &x, &out), TERN_OK);
        found[i] = support_values(out, &n);
        tern_tensor_unref(&out);
        tern_binding_unref(&b);
        tern_plan_unref(&plans[i]);
    }
    assert_memory_equal(found[1], found[0], (size_t)n * sizeof(float));
    free(found[0]);
    free(found[1]);
    tern_tensor_unref(&x);
    tern_graph_destroy(&g);
    tern_weights_unref((struct tern_weights **)&plain.w);
    tern_context_destroy(&ctx);
    damage_remove(folder);
}

/* ---- a device without such kernels */

static int warnings;

static void listen(enum tern_log_level level, const char *message, void *user)
{
    warnings += level == TERN_LOG_WARN && strstr(message, "has no int8 kernel for 3 of the layers") != NULL;
}

static void layers_without_a_kernel_stay(void **state)
{
    static const struct tern_kernel *few[512];
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .log_level = TERN_LOG_WARN, .log = listen});
    const struct tern_kernel *const *all = ctx->device->kernels;
    int n = 0;
    for (int i = 0; all[i] && n < 511; i++)
        if (strncmp(all[i]->name, "quantized", 9) != 0)
            few[n++] = all[i];
    ctx->device->kernels = few;
    struct use plain = {.w = layers(ctx)};
    const struct tern_graph_input input = {"x", TERN_F32, 4, {2, 8, 5, 6}};
    struct tern_graph *g = tern_graph_trace(ctx, forward, &plain, (struct tern_weights *)plain.w, &input, 1, 1);
    struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.quantize = "*"});
    assert_non_null(p);
    assert_int_equal(quantize_count(p, TERN_OP_conv2d) + quantize_count(p, TERN_OP_linear) + quantize_count(p, TERN_OP_linear_geglu), 3);
    assert_int_equal(warnings, 1);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_weights_unref((struct tern_weights **)&plain.w);
    ctx->device->kernels = all;
    tern_context_destroy(&ctx);
}

/* ---- a UNet */

static void every_layer_of_a_unet(void **state)
{
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *plain = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_AUTO), *p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_AUTO);
    const struct tern_stage stage = {.component = "unet", .size = {2, 64, 64}};
    const struct tern_plan *of_floats = tern_pipeline_plan(plain, &stage), *of_bytes = tern_pipeline_plan(p, &stage);
    assert_true(quantize_count(of_floats, TERN_OP_linear) > 40 && quantize_count(of_floats, TERN_OP_conv2d) > 20);
    assert_int_equal(quantize_count(of_bytes, TERN_OP_quantized_linear), quantize_count(of_floats, TERN_OP_linear));
    assert_int_equal(quantize_count(of_bytes, TERN_OP_quantized_linear_geglu), quantize_count(of_floats, TERN_OP_linear_geglu));
    assert_int_equal(quantize_count(of_bytes, TERN_OP_quantized_conv2d), quantize_count(of_floats, TERN_OP_conv2d));
    assert_true(quantize_count(of_floats, TERN_OP_sdpa) > 8 && count_attention(of_floats) == 0);
    assert_int_equal(count_attention(of_bytes), quantize_count(of_floats, TERN_OP_sdpa));
    struct tern_pipeline *layers_only = quantize_load(ctx, "* !sdpa", NULL, TERN_OFFLOAD_AUTO);
    assert_int_equal(count_attention(tern_pipeline_plan(layers_only, &stage)), 0);
    tern_pipeline_destroy(&layers_only);
    int64_t n;
    float *expected = quantize_latents(ctx, plain, &n), *found = quantize_latents(ctx, p, &n);
    const double error = support_nmse(found, expected, n);
    print_message("latents of int8 against f32: NMSE %.2e\n", error);
    assert_true(error > 1e-8 && error <= 1e-2);
    free(expected);
    free(found);
    tern_pipeline_destroy(&plain);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* Weights that are quantised anew at every step, and those with a LoRA and without it again. */
static void streams_and_loras(void **state)
{
    struct tern_context *ctx = model_context(NULL, 2);
    struct tern_pipeline *p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE),
                         *streamed = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_STREAM);
    int64_t n;
    float *first = quantize_latents(ctx, p, &n), *other = quantize_latents(ctx, streamed, &n), *with[2] = {NULL};
    assert_memory_equal(other, first, (size_t)n * sizeof(float));
    for (int i = 0; i < 50; i++) { /* 100 switches */
        const int which = i % 3 == 1;
        const struct lora_spec lora = {.file = "a-kohya.safetensors", .scale = which ? 0.5f : 1};
        lora_set(ctx, p, &lora, 1);
        float *changed = quantize_latents(ctx, p, &n);
        if (i < 2)
            assert_true(support_nmse(changed, first, n) > 1e-6);
        else
            assert_memory_equal(changed, with[which], (size_t)n * sizeof(float));
        free(with[which]);
        with[which] = changed;
        lora_set(ctx, p, NULL, 0);
        float *again = quantize_latents(ctx, p, &n);
        assert_memory_equal(again, first, (size_t)n * sizeof(float));
        free(again);
    }
    assert_memory_not_equal(with[0], with[1], (size_t)n * sizeof(float));
    free(with[0]);
    free(with[1]);
    free(first);
    free(other);
    tern_pipeline_destroy(&p);
    tern_pipeline_destroy(&streamed);
    tern_context_destroy(&ctx);
}

/* tern_pipeline_exec computes what the plan does. */
static void one_call_of_a_unet(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    struct tern_pipeline *plain = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_AUTO), *p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_AUTO);
    char path[PATH_SIZE + 64];
    snprintf(path, sizeof(path), "%s/components/sd1/unet.square.safetensors", TERN_TEST_DATA);
    struct golden g = golden_open(ctx, path);
    struct tern_weights *expected = model_exec(plain, "unet", g.inputs), *found = model_exec(p, "unet", g.inputs);
    int64_t n;
    float *a = support_f32(expected, "sample", &n), *b = support_f32(found, "sample", &n);
    const double error = support_nmse(b, a, n);
    print_message("a call of int8 against f32: NMSE %.2e\n", error);
    assert_true(error > 1e-8 && error <= 1e-2);
    free(a);
    free(b);
    tern_weights_unref(&expected);
    tern_weights_unref(&found);
    golden_close(&g);
    tern_pipeline_destroy(&plain);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_quantised_by_name), cmocka_unit_test(plans_are_saved),   cmocka_unit_test(layers_without_a_kernel_stay),
        cmocka_unit_test(every_layer_of_a_unet),        cmocka_unit_test(streams_and_loras), cmocka_unit_test(one_call_of_a_unet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
