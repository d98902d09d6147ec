/* int8 on a device that has its weights made int8 when they are bound: a whole UNet against the CPU's int8, its memory, weights that are
 * streamed, LoRAs, weaker devices. The argument is the device. Values of the ops themselves: the op table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>
#include <tern/quantize.h>

#include "core/context.h"
#include "damage.h"
#include "graph/plan.h"
#include "lora_help.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "quantize_help.h"
#include "support.h"

static const char *device;

/* Layers that multiply by int8, whose weight has been made int8 before. */
static int count_bytes(const struct tern_plan *p)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_op_desc *d = &g->nodes[i].desc;
        n += !g->nodes[i].dead && (d->op == TERN_OP_quantized_linear || d->op == TERN_OP_quantized_conv2d) && d->in[1].dtype == TERN_I8;
    }
    return n;
}

/* Every layer, as many launches but one for each layer's rows, one more for each large picture, and what the CPU computes. */
static void every_layer_of_a_unet(void **state)
{
    struct tern_context *ctx = quantize_device(device), *cpu = quantize_device("cpu");
    struct tern_pipeline *floats = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_NONE),
                         *bytes = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE);
    struct tern_pipeline *expected = quantize_load(cpu, "*", NULL, TERN_OFFLOAD_NONE),
                         *exact = quantize_load(cpu, NULL, NULL, TERN_OFFLOAD_NONE);
    const struct tern_plan *a = quantize_plan(ctx, floats), *b = quantize_plan(ctx, bytes);
    assert_int_equal(quantize_count(b, TERN_OP_linear) + quantize_count(b, TERN_OP_conv2d), 0);
    assert_int_equal(quantize_count(b, TERN_OP_quantized_linear), quantize_count(a, TERN_OP_linear));
    assert_int_equal(quantize_count(b, TERN_OP_quantized_conv2d), quantize_count(a, TERN_OP_conv2d));
    assert_int_equal(count_bytes(b), quantize_count(a, TERN_OP_linear) + quantize_count(a, TERN_OP_conv2d));
    assert_int_equal(tern_plan_facts(b).launches, tern_plan_facts(a).launches);
    int64_t n, m;
    float *wanted = quantize_latents(cpu, expected, &n), *found = quantize_latents(ctx, bytes, &m),
          *of_floats = quantize_latents(cpu, exact, &n);
    assert_int_equal(n, m);
    const double error = support_nmse(found, wanted, n), noise = support_nmse(found, of_floats, n);
    print_message("%d layers, NMSE of latents against the CPU's int8 %.2e, against f32 %.2e\n", count_bytes(b), error, noise);
    assert_true(error <= 2e-3 && noise > 1e-8 && noise <= 1e-2); /* a value that is rounded the other way changes those behind it */
    free(wanted);
    free(found);
    free(of_floats);
    tern_pipeline_destroy(&exact);
    tern_pipeline_destroy(&floats);
    tern_pipeline_destroy(&bytes);
    tern_pipeline_destroy(&expected);
    tern_context_destroy(&ctx);
    tern_context_destroy(&cpu);
}

/* A binding takes what was predicted, and no floats of quantised layers stay on the device. */
static void memory_falls(void **state)
{
    const size_t floats = quantize_bind(device, NULL), bytes = quantize_bind(device, "*");
    print_message("weights there: %zu bytes in f16 as they are stored, %zu in int8\n", floats, bytes);
    assert_true((double)bytes < 0.6 * (double)floats); /* vectors and scales are f32 */
}

static int bytes_of(const struct tern_node *n) { return n->desc.in[1].dtype == TERN_I8 ? n->in[1] : -1; }

/* A LoRA makes the layers anew that it names. */
static void loras_touch_few_layers(void **state)
{
    struct tern_context *ctx = quantize_device(device);
    quantize_loras(ctx, "*", bytes_of);
    tern_context_destroy(&ctx);
}

/* Weights that are made int8 at every step, and those with a LoRA and without it again: the same bits. */
static void streams_and_loras(void **state)
{
    struct tern_context *ctx = quantize_device(device);
    struct tern_pipeline *p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE),
                         *streamed = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_STREAM);
    int64_t n;
    float *first = quantize_latents(ctx, p, &n), *other = quantize_latents(ctx, streamed, &n);
    assert_true(support_nmse(other, first, n) <= 2e-3); /* linear layers of one input are not made one there: other tiles */
    const struct lora_spec lora = {.file = "a-kohya.safetensors", .scale = 1};
    lora_set(ctx, p, &lora, 1);
    float *changed = quantize_latents(ctx, p, &n);
    assert_true(support_nmse(changed, first, n) > 1e-6);
    lora_set(ctx, p, NULL, 0);
    float *again = quantize_latents(ctx, p, &n);
    assert_memory_equal(again, first, (size_t)n * sizeof(float));
    free(first);
    free(other);
    free(changed);
    free(again);
    tern_pipeline_destroy(&p);
    tern_pipeline_destroy(&streamed);
    tern_context_destroy(&ctx);
}

/* A model that comes in int8: what its weights stand for is made int8 again, to the bits of the source, and no floats stay. */
static void models_that_come_quantised(void **state)
{
    struct tern_context *ctx = quantize_device(device);
    quantize_converted(ctx, "*");
    tern_context_destroy(&ctx);
}

/* A weight of floats is a layer's own, or made of several that all stay as they are. */
static bool is_left(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    bool left = v->kind != TERN_VALUE_WEIGHT || strstr(v->name, ".to_v.weight");
    for (int k = 0; left && v->kind == TERN_VALUE_RESULT && k < g->nodes[v->node].desc.n_in; k++)
        left = is_left(g, g->nodes[v->node].in[k]);
    return left;
}

/* Layers that go together in floats are quantised together or not at all. */
static void layers_by_name(void **state)
{
    struct tern_context *ctx = quantize_device(device);
    struct tern_pipeline *all = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE),
                         *few = quantize_load(ctx, "* !*.to_v.weight", NULL, TERN_OFFLOAD_NONE);
    const struct tern_plan *a = quantize_plan(ctx, all), *b = quantize_plan(ctx, few);
    const int values = quantize_count(b, TERN_OP_linear);
    assert_true(values > 0 && values <= quantize_count(a, TERN_OP_quantized_linear));
    assert_int_equal(quantize_count(b, TERN_OP_conv2d), 0);
    const struct tern_graph *g = tern_plan_graph(b);
    for (int i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && g->nodes[i].desc.op == TERN_OP_linear)
            assert_true(is_left(g, g->nodes[i].in[1]));
    tern_pipeline_destroy(&all);
    tern_pipeline_destroy(&few);
    tern_context_destroy(&ctx);
}

/* Without a place for f16 weights are joined and multiplied by factors in f32, with casts around: all layers are quantised there, too. */
static void factors_without_halves(void **state)
{
    setenv("TERN_GPU_LIMITS", "storage16=no", 1);
    struct tern_context *ctx = quantize_device(device);
    struct tern_pipeline *floats = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_NONE);
    struct tern_pipeline *p = quantize_load(ctx,
                                            "* down_blocks.0.resnets.0.norm1.weight^abcdeABC"
                                            " down_blocks.0.attentions.0.transformer_blocks.0.norm1.weight^abcdeABC",
                                            NULL, TERN_OFFLOAD_NONE);
    const struct tern_plan *a = quantize_plan(ctx, floats), *b = quantize_plan(ctx, p);
    assert_int_equal(count_bytes(b), quantize_count(a, TERN_OP_linear) + quantize_count(a, TERN_OP_conv2d));
    tern_pipeline_destroy(&floats);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    unsetenv("TERN_GPU_LIMITS");
}

/* With little of everything layers are quantised; without a place for bytes they stay. */
static void weaker_devices(void **state)
{
    setenv("TERN_GPU_LIMITS", "group=64,shared=16K,subgroups=no,dot=no", 1);
    struct tern_context *ctx = quantize_device(device);
    struct tern_pipeline *p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE);
    assert_true(count_bytes(quantize_plan(ctx, p)) > 50);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    setenv("TERN_GPU_LIMITS", "storage8=no", 1);
    ctx = quantize_device(device);
    p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE);
    const struct tern_plan *plan = quantize_plan(ctx, p);
    assert_int_equal(count_bytes(plan), 0);
    assert_true(quantize_count(plan, TERN_OP_linear) + quantize_count(plan, TERN_OP_conv2d) > 50);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    unsetenv("TERN_GPU_LIMITS");
}

static int warnings;

static void count_warning(enum tern_log_level level, const char *text, void *user)
{
    warnings += level == TERN_LOG_WARN && strstr(text, "of the layers; they stay as they are") != NULL;
}

/* Also where plans of an earlier process lie on disk. */
static void layers_that_stay_are_told_in_each_process(void **state)
{
    char folder[PATH_SIZE];
    lora_temporary(folder);
    setenv("TERN_GPU_LIMITS", "storage8=no", 1);
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){
            .device = device, .threads = 2, .cache_dir = folder, .log_level = TERN_LOG_WARN, .log = count_warning});
        if (!ctx)
            skip();
        struct tern_pipeline *p = quantize_load(ctx, "*", NULL, TERN_OFFLOAD_NONE);
        warnings = 0;
        quantize_plan(ctx, p);
        assert_int_equal(warnings, 1);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    unsetenv("TERN_GPU_LIMITS");
    damage_remove(folder);
}

/* What a recipe says of a layer of the middle block's self-attention. */
static const struct tern_recipe_layer *part_of(const struct tern_recipe *r, const char *part)
{
    char name[128];
    snprintf(name, sizeof(name), "mid_block.attentions.0.transformer_blocks.0.attn1.%s.weight", part);
    for (int i = 0; i < tern_recipe_count(r); i++)
        if (!strcmp(tern_recipe_at(r, i)->name, name))
            return tern_recipe_at(r, i);
    fail_msg("no layer %s", name);
    return NULL;
}

/* Every layer has its own time there, though weights have been made int8 before and several are one: what they take together is shared by
 * their sizes. Most layers are too thin to be tried, which would take long. */
static void layers_are_measured(void **state)
{
    static const char *const prompt = "a red circle";
    struct tern_context *ctx = quantize_device(device);
    struct tern_pipeline *p = quantize_load(ctx, NULL, NULL, TERN_OFFLOAD_NONE);
    const struct tern_quantize_params q =
        tern_quantize_params(.prompts = &prompt, .n_prompts = 1, .width = 32, .height = 32, .steps = 1, .cfg = 1, .quantize_linear = true,
                             .quantize_conv = true, .quantize_slower = true, .conv_mse_threshold = 1e6, .linear_mse_threshold = 1e6,
                             .compute_density_threshold = 10);
    struct tern_recipe *r = tern_pipeline_quantize(p, &q);
    if (!r)
        fail_msg("%s", tern_error(ctx));
    double sum = 0;
    int bytes = 0, thin = 0;
    for (int i = 0; i < tern_recipe_count(r); i++) {
        const struct tern_recipe_layer *l = tern_recipe_at(r, i);
        sum += l->seconds;
        bytes += l->int8;
        thin += !strncmp(l->decision, "stays: density", 14);
        assert_true(l->seconds > 0 && l->density > 0);
    }
    print_message("%d layers in int8, %d too thin\n", bytes, thin);
    assert_true(bytes > 0 && bytes + thin == tern_recipe_count(r) - 1); /* all but attention, which was not asked for */
    assert_true(sum <= tern_recipe_facts(r).seconds);
    const struct tern_recipe_layer *query = part_of(r, "to_q"), *key = part_of(r, "to_k"), *value = part_of(r, "to_v");
    assert_true(query->seconds == key->seconds && key->seconds == value->seconds);
    assert_true(query->saved == key->saved && key->saved == value->saved);
    tern_recipe_destroy(&r);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

int main(int argc, char **argv)
{
    device = argc > 1 ? argv[1] : "opencl";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layer_of_a_unet),  cmocka_unit_test(memory_falls),
        cmocka_unit_test(streams_and_loras),      cmocka_unit_test(loras_touch_few_layers),
        cmocka_unit_test(layers_by_name),         cmocka_unit_test(weaker_devices),
        cmocka_unit_test(factors_without_halves), cmocka_unit_test(models_that_come_quantised),
        cmocka_unit_test(layers_are_measured),    cmocka_unit_test(layers_that_stay_are_told_in_each_process)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
