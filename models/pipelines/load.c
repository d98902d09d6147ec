/* Opening a checkpoint as a pipeline, and the pipeline's end. */
#include <string.h>
#include <tern/quantize.h>

#include "graph/plan.h"
#include "models/files/manifest.h"
#include "models/pipelines/pipeline.h"

struct tern_checkpoint *tern_pipeline_holder(const struct tern_pipeline *p, const char *component)
{
    if (p->vae_alone && !strcmp(component, "vae"))
        return p->vae_alone;
    if (!strcmp(component, "preview"))
        return p->preview_alone;
    return p->shared && !tern_checkpoint_has(p->checkpoint, component) ? p->shared : p->checkpoint;
}

/* The model whose scheduler counts. */
static const struct tern_checkpoint *scheduler_holder(const struct tern_pipeline *p)
{
    return tern_checkpoint_scheduler(p->checkpoint) || !p->shared ? p->checkpoint : p->shared;
}

const char *tern_pipeline_scheduler(const struct tern_pipeline *p) { return tern_checkpoint_scheduler(scheduler_holder(p)); }
const char *tern_pipeline_scheduler_class(const struct tern_pipeline *p) { return tern_checkpoint_scheduler_class(scheduler_holder(p)); }

/* Characters of the ending of a weight file; names of folders may have dots, too. */
static size_t ending(const char *name, size_t n)
{
    static const char *const known[] = {".safetensors", ".ckpt", ".pt", ".pth", ".bin"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
        const size_t size = strlen(known[i]);
        if (n > size && !strncmp(name + n - size, known[i], size))
            return size;
    }
    return 0;
}

char *tern_model_name(struct tern_context *ctx, const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t start = n;
    while (start > 0 && path[start - 1] != '/')
        start--;
    return tern_strndup(ctx, path + start, n - start - ending(path + start, n - start));
}

/* The Chinese demo is a text encoder and a tokenizer; the rest is the English one's. */
static void open_shared(struct tern_pipeline *p)
{
    char *path = tern_demo_path(p->ctx, "demo");
    if (path)
        p->shared = tern_checkpoint_open(p->ctx, path);
    tern_free(p->ctx, path);
}

/* Whether the files of the model that ships with tern are those that shipped; the Chinese side lies in its folder "zh". */
static enum tern_status check_shipped(struct tern_context *ctx, const char *path, bool zh)
{
    char *folder = tern_strndup(ctx, path, strlen(path) - (zh ? strlen("/zh") : 0));
    enum tern_status st = folder ? tern_manifest_check(ctx, folder) : tern_error_status(ctx);
    tern_free(ctx, folder);
    return st;
}

static enum tern_status check_params(struct tern_context *ctx, const struct tern_pipeline_params *params)
{
    enum tern_dtype dtype = params->dtype;
    const struct tern_offload_components *c = &params->offload_components;
    const enum tern_offload ways[] = {params->offload, c->text_encoder, c->text_encoder_2, c->unet, c->vae};
    for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++)
        if ((unsigned)ways[i] > TERN_OFFLOAD_STREAM)
            return tern_fail(ctx, TERN_E_INVALID, "offload: %d is no such value", (int)ways[i]);
    if (tern_quantize_named(params->quantize) && params->recipe)
        return tern_fail(ctx, TERN_E_INVALID, "quantize and recipe: expected one of them, found \"%.80s\" and %s", params->quantize,
                         params->recipe);
    if (!tern_dtype_is_float(dtype))
        return tern_fail(ctx, TERN_E_INVALID, "dtype: expected f32, bf16 or f16, found %s", tern_dtype_name(dtype));
    enum tern_status st = tern_quantize_check(ctx, "quantize", params->quantize);
    return st ? st : tern_quantize_check(ctx, "text_encoder_quantize", params->text_encoder_quantize);
}

/* The layers that the recipe names, which must be one for this model. One that names none leaves floats as they are. */
static void follow(struct tern_pipeline *p, const struct tern_recipe *recipe)
{
    char *words = recipe && !tern_failed(p->ctx) && tern_recipe_check(recipe, p) == TERN_OK ? tern_recipe_words(recipe) : NULL;
    if (words && (*words || p->quantize))
        tern_pipeline_follow_recipe(p, words);
    else if (words)
        tern_message(p->ctx, TERN_LOG_WARN, "the recipe %s names no layer that is int8: all compute in floats", p->params.recipe);
    tern_free(p->ctx, words);
}

struct tern_pipeline *tern_pipeline_load(struct tern_context *ctx, const char *model, const struct tern_pipeline_params *params)
{
    struct tern_pipeline *p = tern_failed(ctx) ? NULL : tern_calloc(ctx, 1, sizeof(*p));
    if (!p)
        return NULL;
    tern_context_ref(ctx);
    p->ctx = ctx;
    p->hoist_least = TERN_HOIST_LEAST;
    p->hoist_inputs = TERN_GRAPH_MAX_IO;
    if (params)
        p->params = *params;
    struct tern_recipe *recipe = NULL;
    p->shipped = !model || !strcmp(model, "demo") || !strcmp(model, "demo-zh");
    bool zh = model && !strcmp(model, "demo-zh"), shipped = p->shipped;
    char *path = shipped ? tern_demo_path(ctx, model ? model : "demo") : tern_strdup(ctx, model);
    if (path && check_params(ctx, &p->params) == TERN_OK && tern_pipeline_read_places(p) == TERN_OK &&
        (!shipped || check_shipped(ctx, path, zh) == TERN_OK)) {
        p->params.quantize = tern_quantize_named(p->params.quantize); /* behind the check of what they say */
        p->params.text_encoder_quantize = tern_quantize_named(p->params.text_encoder_quantize);
        p->quantize = p->params.quantize ? tern_strdup(ctx, p->params.quantize) : NULL;
        p->text_encoder_quantize = p->params.text_encoder_quantize ? tern_strdup(ctx, p->params.text_encoder_quantize) : NULL;
        p->name = shipped ? tern_strdup(ctx, model ? model : "demo") : tern_model_name(ctx, path);
        recipe = p->params.recipe ? tern_recipe_open(ctx, p->params.recipe) : NULL;
        p->checkpoint = tern_failed(ctx) ? NULL : tern_checkpoint_open(ctx, path);
        if (p->checkpoint && zh)
            open_shared(p);
        if (p->checkpoint && p->params.vae)
            p->vae_alone = tern_checkpoint_open_vae(ctx, p->params.vae, tern_pipeline_holder(p, "vae"));
        if (p->checkpoint && p->params.preview_vae && !tern_failed(ctx))
            p->preview_alone = tern_checkpoint_open_vae(ctx, p->params.preview_vae, tern_pipeline_holder(p, "vae"));
        if (p->checkpoint && !tern_failed(ctx) && tern_pipeline_read_configs(p) == TERN_OK)
            tern_pipeline_load_tokenizers(p);
        follow(p, recipe);
    }
    tern_recipe_destroy(&recipe);
    tern_free(ctx, path);
    if (tern_failed(ctx))
        tern_pipeline_destroy(&p);
    return p;
}

void tern_pipeline_destroy(struct tern_pipeline **pipeline)
{
    struct tern_pipeline *p = pipeline ? *pipeline : NULL;
    if (!p)
        return;
    if (p->calls) {
        tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_destroy: the pipeline is at work; destroy it when the call has returned");
        return;
    }
    *pipeline = NULL;
    struct tern_context *ctx = p->ctx;
    tern_pipeline_drop_plans(p);
    tern_pipeline_drop_text(p);
    tern_pipeline_drop_text_2(p);
    tern_pipeline_drop_unet(p);
    tern_pipeline_drop_vae(p);
    tern_pipeline_drop_preview(p);
    tern_pipeline_drop_loras(p);
    tern_pipeline_drop_embeddings(p);
    tern_tokenizer_destroy(&p->tokenizer);
    tern_tokenizer_destroy(&p->tokenizer_2);
    tern_checkpoint_close(&p->checkpoint);
    tern_checkpoint_close(&p->shared);
    tern_checkpoint_close(&p->vae_alone);
    tern_checkpoint_close(&p->preview_alone);
    tern_free(ctx, p->name);
    tern_free(ctx, p->quantize);
    tern_free(ctx, p->text_encoder_quantize);
    tern_free(ctx, p);
    tern_pages_trim(&ctx->pages, 0);
    tern_context_unref(ctx);
}
