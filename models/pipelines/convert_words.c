/* Which layers of a converted checkpoint are quantised: said by the caller, by a recipe, or by the model that comes so. */
#include <string.h>

#include "core/context.h"
#include "models/files/quantized.h"
#include "models/pipelines/convert.h"
#include "models/pipelines/pipeline.h"

/* Whether the component's file says that it is quantised. */
static bool comes_quantized(struct tern_checkpoint *cp, const char *component)
{
    struct tern_weights *w = tern_checkpoint_has(cp, component) ? tern_checkpoint_weights(cp, component) : NULL;
    const bool is = w && tern_weights_metadata(w, TERN_QUANTIZED_KEY);
    tern_weights_unref(&w);
    return is;
}

/* What a file cannot say, or would be refused for when it is read. */
static enum tern_status check(struct tern_pipeline *p)
{
    const struct tern_weights *w = p->quantize ? tern_pipeline_weights(p, "unet") : NULL;
    if (p->quantize && strchr(p->quantize, '^'))
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED,
                         "convert: the recipe has factors of norms, which a checkpoint does not hold: expected one without \"smooth\", or "
                         "the checkpoint as it is beside the recipe");
    return w ? tern_pipeline_check_words(p->ctx, TERN_E_INVALID, "convert: quantize", w, p->quantize) : tern_error_status(p->ctx);
}

enum tern_status tern_convert_choose_words(struct tern_context *ctx, const char *model, struct tern_checkpoint *cp,
                                           struct tern_convert_params *params, struct tern_convert_words *own)
{
    static const char *const components[] = {"unet", "text_encoder", "text_encoder_2"};
    const struct tern_pipeline_params load = {.quantize = params->quantize,
                                              .text_encoder_quantize = params->text_encoder_quantize,
                                              .recipe = params->recipe};
    bool needed = load.quantize || load.text_encoder_quantize || load.recipe;
    for (size_t i = 0; i < sizeof(components) / sizeof(*components) && !needed && !params->change_dtype; i++)
        needed = comes_quantized(cp, components[i]);
    if (!needed || tern_failed(ctx))
        return tern_error_status(ctx);
    char *path = tern_sprintf(ctx, "%s%s", *model == '/' ? "" : "./", model); /* not the demo model */
    struct tern_pipeline *p = path ? tern_pipeline_load(ctx, path, &load) : NULL;
    if (p && check(p) == TERN_OK) {
        own->unet = p->quantize ? tern_strdup(ctx, p->quantize) : NULL;
        own->text = p->text_encoder_quantize ? tern_strdup(ctx, p->text_encoder_quantize) : NULL;
        params->quantize = own->unet;
        params->text_encoder_quantize = own->text;
    }
    tern_pipeline_destroy(&p);
    tern_free(ctx, path);
    return tern_error_status(ctx);
}
