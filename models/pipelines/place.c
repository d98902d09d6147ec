/* Components that compute on the CPU beside the device of the context. */
#include <string.h>

#include "models/pipelines/pipeline.h"

/* The modules of a component's name; 0: there is none of that name. Previews come between the UNet's steps. */
static unsigned modules_of(const char *name, size_t length)
{
    static const struct {
        const char *name;
        unsigned modules;
    } all[] = {{"text_encoder", TERN_MODULE_TEXT},
               {"text_encoder_2", TERN_MODULE_TEXT_2},
               {"unet", TERN_MODULE_UNET | TERN_MODULE_PREVIEW},
               {"vae", TERN_MODULE_VAE}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (strlen(all[i].name) == length && !memcmp(all[i].name, name, length))
            return all[i].modules;
    return 0;
}

enum tern_status tern_pipeline_read_places(struct tern_pipeline *p)
{
    for (const char *at = p->params.on_cpu; at;) {
        const size_t n = strcspn(at, ",");
        const unsigned modules = modules_of(at, n);
        if (!modules)
            return tern_fail(p->ctx, TERN_E_INVALID,
                             "on_cpu: expected text_encoder, text_encoder_2, unet and vae, separated by commas, found \"%.*s\"",
                             n > 40 ? 40 : (int)n, at);
        p->on_cpu |= modules;
        at = at[n] ? at + n + 1 : NULL;
    }
    return TERN_OK;
}

struct tern_device *tern_pipeline_device(const struct tern_pipeline *p, const char *component)
{
    return p->on_cpu & tern_module_of(component) ? p->ctx->host : p->ctx->own;
}

struct tern_device *tern_pipeline_go(const struct tern_pipeline *p, const char *component)
{
    return tern_device_go(p->ctx, tern_pipeline_device(p, component));
}

enum tern_dtype tern_pipeline_dtype(const struct tern_pipeline *p, const char *component)
{
    const bool placed = tern_pipeline_device(p, component) != p->ctx->own;
    return placed && p->params.dtype == TERN_F16 ? TERN_F32 : p->params.dtype;
}
