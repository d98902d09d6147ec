/* What the tests of quantised models share. */
#include "quantize_help.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lora_help.h"
#include "model_help.h"

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

int quantize_count(const struct tern_plan *p, enum tern_op op)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && g->nodes[i].desc.op == op;
    return n;
}
