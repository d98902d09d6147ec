/* Models that edit a picture as the prompt says: instruct-pix2pix.                 [Brooks 2022]
 * Sampling starts from noise alone; the UNet is told the picture's latents behind those that it works on. */
#include "models/pipelines/pipeline.h"

bool tern_job_is_guided(const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    return q->cfg > 1 && !j->p->unet_config.guidance &&
           (!tern_pipeline_edits(j->p) || q->image_guidance_scale >= 1); /* as diffusers: both or none */
}

enum tern_status tern_job_check_edit(const struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    struct tern_context *ctx = j->p->ctx;
    const char *name = j->p->name;
    if (!tern_pipeline_edits(j->p))
        return q->image_guidance_scale == 0
                   ? TERN_OK
                   : tern_fail(ctx, TERN_E_INVALID,
                               "image_guidance_scale: %s is not told the picture that it starts from; instruct-pix2pix models are, whose "
                               "UNet has %lld channels and not %lld",
                               name, (long long)TERN_EDIT_CHANNELS(j->channels), (long long)j->p->unet_config.in_channels);
    if (!q->init_image)
        return tern_fail(ctx, TERN_E_INVALID, "%s edits a picture as the prompt says (instruct-pix2pix): it needs init_image", name);
    if (q->mask_image)
        return tern_fail(ctx, TERN_E_INVALID, "mask_image: %s edits whole pictures (instruct-pix2pix); inpainting needs another model",
                         name);
    if (q->strength != 1)
        return tern_fail(ctx, TERN_E_INVALID,
                         "strength: %s starts from noise alone and is told the picture (instruct-pix2pix): expected 1 or none, found %g; "
                         "image_guidance_scale says how near it stays",
                         name, q->strength);
    if (!(q->image_guidance_scale > 0 && q->image_guidance_scale <= TERN_MAX_GUIDANCE))
        return tern_fail(ctx, TERN_E_INVALID, "image_guidance_scale: expected a number above 0 and at most %d, found %g", TERN_MAX_GUIDANCE,
                         q->image_guidance_scale);
    return TERN_OK;
}

/* The mean of what the VAE encodes, as it is: no noise, and no scaling but for CosXL. */
static enum tern_status encode(struct tern_job *j)
{
    const double scale = j->p->scales_edited ? j->p->vae_config.scaling_factor : 1;
    float *pixels = tern_job_pixels(j, j->params.init_image);
    float *logvar = tern_alloc(j->p->ctx, (size_t)j->picture * sizeof(*logvar));
    j->image_latents = tern_alloc(j->p->ctx, (size_t)j->picture * sizeof(*j->image_latents));
    if (!tern_failed(j->p->ctx) && tern_job_encode_picture(j, pixels, j->image_latents, logvar) == TERN_OK)
        for (int64_t k = 0; k < j->picture; k++)
            j->image_latents[k] *= (float)scale;
    tern_free(j->p->ctx, logvar);
    tern_free(j->p->ctx, pixels);
    return tern_error_status(j->p->ctx);
}

enum tern_status tern_job_start_edit(struct tern_job *j) { return encode(j) ? tern_error_status(j->p->ctx) : tern_job_start_from_noise(j); }
