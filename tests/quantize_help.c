/* What the tests of quantised models share. */
#include "quantize_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "damage.h"
#include "lora_help.h"
#include "model_help.h"
#include "support.h"

struct tern_pipeline *quantize_load(struct tern_context *ctx, const char *unet, const char *text_encoder, enum tern_offload offload)
{
    const struct tern_pipeline_params params = {.quantize = unet, .text_encoder_quantize = text_encoder, .offload = offload};
    char path[PATH_SIZE];
    struct tern_pipeline *p = tern_pipeline_load(ctx, model_path("sd1", path), &params);
    if (!p)
        fail_msg("%s", tern_error(ctx));
    return p;
}

float *quantize_latents(struct tern_context *ctx, struct tern_pipeline *p, int64_t *n)
{
    static const struct tern_txt2img_params job = {.prompt = "a red circle", .width = 64, .height = 64, .steps = 3, .seed = 5, .cfg = 1};
    char *text;
    float *values = lora_latents(ctx, p, &job, n, &text);
    free(text);
    return values;
}

struct tern_context *quantize_device(const char *name)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = name, .threads = 2});
    if (!ctx) {
        print_message("%s\n", tern_create_error());
        skip();
    }
    return ctx;
}

const struct tern_stage quantize_stage = {.component = "unet", .size = {1, 64, 64}};

const struct tern_plan *quantize_plan(struct tern_context *ctx, struct tern_pipeline *p)
{
    const struct tern_plan *plan = tern_pipeline_plan(p, &quantize_stage);
    if (!plan)
        fail_msg("%s", tern_error(ctx));
    return plan;
}

struct tern_binding *quantize_binding(struct tern_context *ctx, struct tern_pipeline *p)
{
    struct tern_binding *b = tern_pipeline_binding(p, &quantize_stage);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    return b;
}

size_t quantize_weights_there(const struct tern_context *ctx)
{
    size_t bytes = 0;
    for (const struct tern_gpu_buffer *w = ((const struct tern_gpu *)ctx->device)->memory.weights; w; w = w->next)
        bytes += w->base.size;
    return bytes;
}

size_t quantize_bind(const char *device, const char *words)
{
    struct tern_context *ctx = quantize_device(device);
    struct tern_pipeline *p = quantize_load(ctx, words, NULL, TERN_OFFLOAD_NONE);
    struct tern_binding *b = quantize_binding(ctx, p);
    const size_t there = quantize_weights_there(ctx);
    tern_binding_unref(&b);
    tern_pipeline_unbind(p, tern_pipeline_weights(p, "unet"));
    const size_t predicted = tern_pipeline_bind_bytes(p, &quantize_stage, NULL); /* of a second binding: kernels are compiled */
    const size_t before = tern_memory_used(ctx);
    b = quantize_binding(ctx, p);
    assert_true(tern_memory_used(ctx) - before <= predicted);
    tern_binding_unref(&b);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return there;
}

void quantize_converted(struct tern_context *ctx, const char *words)
{
    char folder[PATH_SIZE], out[PATH_SIZE];
    damage_copy("sd1", folder);
    assert_true(snprintf(out, sizeof(out), "%s/converted", folder) < PATH_SIZE);
    const struct tern_convert_params params = {.form = TERN_CONVERT_FOLDER, .quantize = words};
    if (tern_convert(ctx, folder, out, &params))
        fail_msg("%s", tern_error(ctx));
    int64_t n;
    struct tern_pipeline *p = quantize_load(ctx, words, NULL, TERN_OFFLOAD_NONE);
    float *wanted = quantize_latents(ctx, p, &n);
    const size_t there = quantize_weights_there(ctx);
    tern_pipeline_destroy(&p);
    p = model_load(ctx, out);
    float *found = quantize_latents(ctx, p, &n);
    assert_memory_equal(found, wanted, (size_t)n * sizeof(float));
    assert_int_equal(quantize_weights_there(ctx), there);
    free(wanted);
    free(found);
    tern_pipeline_destroy(&p);
    damage_remove(folder);
}

/* Kept weights that are the same tensor in two bindings of one plan, and those that are another: few. */
static void few_differ(const struct tern_binding *a, const struct tern_binding *b, int (*kept)(const struct tern_node *n))
{
    const struct tern_graph *g = tern_plan_graph(a->plan);
    int same = 0, other = 0;
    assert_ptr_equal(a->plan, b->plan);
    for (int i = 0; i < g->n_nodes; i++) {
        const int value = g->nodes[i].dead ? -1 : kept(&g->nodes[i]);
        if (value < 0)
            continue;
        assert_non_null(a->bound[value]);
        *(a->bound[value] == b->bound[value] ? &same : &other) += 1;
    }
    print_message("%d layers stay, %d are made anew\n", same, other);
    assert_true(other >= 1 && other <= 4 && same > 100);
}

void quantize_loras(struct tern_context *ctx, const char *words, int (*kept)(const struct tern_node *n))
{
    struct tern_pipeline *p = quantize_load(ctx, words, NULL, TERN_OFFLOAD_NONE);
    char folder[PATH_SIZE], path[PATH_SIZE + 32];
    int64_t n;
    lora_temporary(folder);
    snprintf(path, sizeof(path), "%s/one.safetensors", folder);
    lora_synthesise(ctx, p, path);
    float *first = quantize_latents(ctx, p, &n);
    struct tern_binding *plain = quantize_binding(ctx, p);
    const struct tern_lora lora = {.path = path, .scale = 1};
    assert_int_equal(tern_pipeline_set_loras(p, &lora, 1), TERN_OK);
    struct tern_binding *with = quantize_binding(ctx, p);
    few_differ(plain, with, kept);
    float *changed = quantize_latents(ctx, p, &n);
    assert_true(support_nmse(changed, first, n) > 1e-6);
    assert_int_equal(tern_pipeline_set_loras(p, NULL, 0), TERN_OK);
    struct tern_binding *again = quantize_binding(ctx, p);
    few_differ(with, again, kept);
    float *last = quantize_latents(ctx, p, &n);
    assert_memory_equal(last, first, (size_t)n * sizeof(float));
    free(first);
    free(changed);
    free(last);
    tern_binding_unref(&plain);
    tern_binding_unref(&with);
    tern_binding_unref(&again);
    tern_pipeline_destroy(&p);
    damage_remove(folder);
}

int quantize_count(const struct tern_plan *p, enum tern_op op)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && g->nodes[i].desc.op == op;
    return n;
}
