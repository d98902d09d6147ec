/* Products of models on a GPU with matrix units meet the texts that are made for these, whatever dtype the checkpoint has: whole plans of
 * the demo model, on CUDA's stand-in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/gpu/gpu.h"
#include "core/context.h"
#include "cuda_help.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

static bool is_product(enum tern_op op)
{
    return op == TERN_OP_conv2d || op == TERN_OP_linear || op == TERN_OP_linear_geglu || op == TERN_OP_matmul || op == TERN_OP_sdpa ||
           op == TERN_OP_quantized_conv2d || op == TERN_OP_quantized_linear || op == TERN_OP_quantized_linear_geglu;
}

/* What they cannot serve: floats of 32 bits (the time embedding, the last convolution), channels that are no multiple of 8 (latents,
 * pictures), and heads that are none (the demo model's first ones have 20 values). */
static bool may_be_plain(const struct tern_op_desc *d)
{
    if (d->in[0].dtype == TERN_F32 && d->op != TERN_OP_quantized_conv2d && d->op != TERN_OP_quantized_linear)
        return true;
    if (d->op == TERN_OP_sdpa)
        return d->in[0].shape[3] % 8 != 0;
    return (d->op == TERN_OP_conv2d || d->op == TERN_OP_quantized_conv2d) && d->in[0].shape[1] % 8 != 0;
}

struct met {
    int products, matrix, plain;
};

static struct met look(struct tern_context *ctx, enum tern_dtype dtype, const char *quantize, const struct tern_stage *stage)
{
    char path[PATH_SIZE];
    struct tern_pipeline *p =
        tern_pipeline_load(ctx, model_path("demo", path), &(struct tern_pipeline_params){.dtype = dtype, .quantize = quantize});
    struct tern_plan *plan = p ? tern_pipeline_plan(p, stage) : NULL;
    if (!plan)
        fail_msg("%s", tern_error(ctx));
    struct tern_launches *all = calloc(1, sizeof(*all));
    struct met m = {0};
    for (int i = 0; i < plan->n_steps; i++) {
        const struct tern_op_desc *d = plan->steps[i].desc;
        if (plan->graph->nodes[plan->steps[i].node].prepare || !is_product(d->op))
            continue;
        char text[2][TERN_META_TEXT];
        assert_true(tern_launches_make(d, &((const struct tern_gpu *)ctx->device)->limits, all));
        const bool matrix = strstr(all->launch[0].text, "_matrix") || strstr(all->launch[all->n - 1].text, "_matrix");
        if (!matrix && !may_be_plain(d))
            fail_msg("%s, %s: %s of %s by %s goes by %s", stage->component, tern_dtype_name(dtype), tern_op_get(d->op).name,
                     tern_meta_text(&d->in[0], text[0]), tern_meta_text(&d->in[1], text[1]), all->launch[0].text);
        m.products++;
        m.matrix += matrix;
        m.plain += !matrix;
    }
    print_message("%s, %s%s: %d products, %d by matrix units\n", stage->component, tern_dtype_name(dtype), quantize ? ", int8" : "",
                  m.products, m.matrix);
    free(all);
    tern_pipeline_destroy(&p);
    return m;
}

static void products_meet_matrix_units(void **state)
{
    static const struct tern_stage stages[] = {{.component = "unet", .size = {2, 256, 256}},
                                               {.component = "vae_decoder", .size = {1, 256, 256}},
                                               {.component = "vae_encoder", .size = {1, 256, 256}},
                                               {.component = "text_encoder", .size = {.batch = 1}}};
    struct tern_context *ctx = cuda_open();
    for (size_t i = 0; i < sizeof(stages) / sizeof(*stages); i++) {
        assert_true(look(ctx, TERN_F16, NULL, &stages[i]).matrix >= 10);
        assert_true(look(ctx, TERN_BF16, NULL, &stages[i]).matrix >= 10); /* of another dtype than the checkpoint's */
    }
    assert_true(look(ctx, TERN_F16, "*", &stages[0]).matrix >= 100);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_setup_teardown(products_meet_matrix_units, cuda_setup, cuda_teardown)};
    return cmocka_run_group_tests(tests, cuda_group_setup, cuda_group_teardown);
}
