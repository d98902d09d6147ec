/* What the model is: read from the configs of its components, which must fit together. */
#include <string.h>

#include "models/files/weights.h"
#include "models/modules/config.h"
#include "models/pipelines/pipeline.h"

/* How many numbers the UNet is told beside the pooled text; 0: it does not fit. */
static int count_numbers(const struct tern_unet_config *u, int64_t pooled)
{
    for (int n = TERN_XL_REFINER_NUMBERS; n <= TERN_XL_NUMBERS; n++)
        if (u->pooled == pooled + n * u->time_ids)
            return n;
    return 0;
}

enum tern_status tern_pipeline_read_index(struct tern_context *ctx, const char *text, bool refiner, struct tern_index *out)
{
    struct tern_config c;
    *out = (struct tern_index){.force_zeros = !refiner};
    if (!text)
        return TERN_OK;
    if (tern_config_open(&c, ctx, text, "model_index.json") == TERN_OK) {
        out->force_zeros = tern_config_bool(&c, "force_zeros_for_empty_prompt", true);
        out->scales_edited = tern_config_bool(&c, "is_cosxl_edit", false);
    }
    tern_config_close(&c);
    return tern_error_status(ctx);
}

/* SDXL: the states of both encoders side by side, and the pooled text of the second with sinusoids of some numbers. */
static enum tern_status read_xl(struct tern_pipeline *p)
{
    const char *path = tern_checkpoint_path(p->checkpoint);
    const struct tern_unet_config *u = &p->unet_config;
    if (!tern_pipeline_text_2(p))
        return tern_error_status(p->ctx);
    p->text_width[1] = p->text_2->hidden;
    p->text_layers = p->second_only ? p->text_2->layers : p->text_layers;
    int64_t width = (p->second_only ? 0 : p->text->hidden) + p->text_2->hidden;
    if (u->context[0] != width)
        return tern_fail(p->ctx, TERN_E_FORMAT, "%s: the UNet expects text states of width %lld, the text encoders give %lld", path,
                         (long long)u->context[0], (long long)width);
    p->numbers = p->text_2->text_projection.w ? count_numbers(u, p->text_2->projection) : 0;
    if (!p->numbers)
        return tern_fail(p->ctx, TERN_E_FORMAT,
                         "%s: the UNet expects a pooled text and five or six numbers, %lld wide together and each number %lld, the second "
                         "text encoder gives %lld%s",
                         path, (long long)u->pooled, (long long)u->time_ids, (long long)p->text_2->projection,
                         p->text_2->text_projection.w ? "" : " without a projection");
    struct tern_index said;
    if (tern_pipeline_read_index(p->ctx, tern_checkpoint_index(p->checkpoint), p->second_only, &said) == TERN_OK) {
        p->force_zeros = said.force_zeros;
        p->scales_edited = said.scales_edited;
    }
    return tern_error_status(p->ctx);
}

/* Channels of the UNet beside those of the latents are ones that are understood. Marigold's UNets have 8, too, for something else. */
static enum tern_status check_channels(const struct tern_pipeline *p)
{
    const char *path = tern_checkpoint_path(p->checkpoint), *name = tern_checkpoint_pipeline(p->checkpoint);
    const struct tern_unet_config *u = &p->unet_config;
    const int64_t z = p->vae_config.latent_channels;
    if (u->out_channels != z || (u->in_channels != z && !tern_pipeline_inpaints(p) && !tern_pipeline_edits(p)))
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED, "%s: a UNet from %lld to %lld channels does not fit a VAE with %lld latent channels",
                         path, (long long)u->in_channels, (long long)u->out_channels, (long long)z);
    if (tern_pipeline_edits(p) && !strstr(name, "Diffusion"))
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED,
                         "%s: a UNet of %lld channels in a \"%s\": expected a StableDiffusionInstructPix2PixPipeline or the like", path,
                         (long long)u->in_channels, name);
    return TERN_OK;
}

/* Whether diffusers' pipeline of this name does what tern does. */
static bool plain_class(const char *name)
{
    static const char *const names[] = {
        "DiffusionPipeline", /* an index without a class */
        "StableDiffusionPipeline",
        "StableDiffusionImg2ImgPipeline",
        "StableDiffusionInpaintPipeline",
        "StableDiffusionInpaintPipelineLegacy",
        "StableDiffusionInstructPix2PixPipeline",
        "StableDiffusionXLPipeline",
        "StableDiffusionXLImg2ImgPipeline",
        "StableDiffusionXLInpaintPipeline",
        "StableDiffusionXLInstructPix2PixPipeline",
        "LatentConsistencyModelPipeline",
        "LatentConsistencyModelImg2ImgPipeline",
        "AltDiffusionPipeline",
        "AltDiffusionImg2ImgPipeline",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (!strcmp(name, names[i]))
            return true;
    return false;
}

/* Says what of the model is left out. */
static void warn_of_more(const struct tern_pipeline *p)
{
    const char *path = tern_checkpoint_path(p->checkpoint), *name = tern_checkpoint_pipeline(p->checkpoint);
    char text[TERN_PRINTABLE];
    if (!plain_class(name))
        tern_message(p->ctx, TERN_LOG_WARN, "%s: a %s is painted as a StableDiffusion%sPipeline, without what it does besides", path,
                     tern_printable(name, strlen(name), text), p->xl ? "XL" : "");
    if (tern_checkpoint_has(p->checkpoint, "image_encoder"))
        tern_message(p->ctx, TERN_LOG_WARN, "%s: its image_encoder is not used: there are no IP-Adapters", path);
}

enum tern_status tern_pipeline_read_configs(struct tern_pipeline *p)
{
    struct tern_checkpoint *c = p->checkpoint;
    p->second_only = !p->shared && !tern_checkpoint_has(c, "text_encoder") && tern_checkpoint_has(c, "text_encoder_2");
    if ((!p->second_only && !tern_pipeline_text(p)) || !tern_pipeline_unet(p) || !tern_pipeline_vae(p) ||
        (p->preview_alone && !tern_pipeline_preview(p)))
        return tern_error_status(p->ctx);
    p->unet_config = p->unet->config;
    p->vae_config = p->vae->config;
    p->preview_config = p->preview ? p->preview->config : p->vae_config;
    const struct tern_unet_config *u = &p->unet_config;
    p->xl = u->pooled;
    if (p->second_only && !p->xl)
        return tern_fail(p->ctx, TERN_E_UNSUPPORTED,
                         "%s: a model with the second text encoder alone whose UNet is not that of Stable Diffusion XL",
                         tern_checkpoint_path(c));
    if (!p->second_only) {
        p->text_layers = p->text->layers;
        p->text_width[0] = p->text->hidden;
    }
    if (p->xl && read_xl(p))
        return tern_error_status(p->ctx);
    if (!p->xl && u->context[0] != p->text->hidden)
        return tern_fail(p->ctx, TERN_E_FORMAT, "%s: the UNet expects text states of width %lld, the text encoder gives %lld",
                         tern_checkpoint_path(c), (long long)u->context[0], (long long)p->text->hidden);
    if (u->doubtful_size && !p->xl && !tern_pipeline_edits(p))
        p->unet_config.sample_h = p->unet_config.sample_w = 64; /* as diffusers' pipelines of Stable Diffusion do */
    enum tern_status st = check_channels(p);
    if (!st)
        warn_of_more(p);
    return st;
}

int tern_pipeline_scale(const struct tern_pipeline *p) { return 1 << (p->vae_config.blocks - 1); }

double tern_pipeline_guidance(const struct tern_pipeline *p) { return !p ? 0 : p->shipped ? 4 : p->xl ? 5 : 7.5; }

static enum tern_dtype dtype_of(const struct tern_pipeline *p, const struct tern_vae_config *v, const char *component)
{
    return p->xl && p->params.dtype == TERN_F16 && !v->tiny ? TERN_F32 : tern_pipeline_dtype(p, component);
}

enum tern_dtype tern_pipeline_vae_dtype(const struct tern_pipeline *p) { return dtype_of(p, &p->vae_config, "vae"); }
enum tern_dtype tern_pipeline_preview_dtype(const struct tern_pipeline *p) { return dtype_of(p, &p->preview_config, "preview"); }

int64_t tern_pipeline_pooled_width(const struct tern_pipeline *p) { return p->unet_config.pooled - p->numbers * p->unet_config.time_ids; }
