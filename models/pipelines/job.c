/* A job's parameters: defaults and checks, before anything is computed. */
#include <math.h>
#include <string.h>

#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

/* Up to 1 all guidance is none, but in a model that is told the scale. */
double tern_pipeline_cfg(const struct tern_pipeline *p, double cfg) { return cfg > 0 && cfg < 1 && !p->unet_config.guidance ? 1 : cfg; }

static void fill_defaults(struct tern_txt2img_params *q, const struct tern_pipeline *p)
{
    int scale = tern_pipeline_scale(p);
    q->prompt = q->prompt ? q->prompt : "";
    q->negative_prompt = q->negative_prompt ? q->negative_prompt : "";
    q->width = q->width ? q->width : (int)p->unet_config.sample_w * scale;
    q->height = q->height ? q->height : (int)p->unet_config.sample_h * scale;
    q->steps = q->steps ? q->steps : 20;
    q->cfg = tern_pipeline_cfg(p, q->cfg != 0 ? q->cfg : tern_pipeline_guidance(p));
    q->count = q->count ? q->count : 1;
    q->clip_skip = q->clip_skip ? q->clip_skip : 1;
    q->strength = q->strength != 0 ? q->strength : q->mask_image || tern_pipeline_edits(p) ? 1 : 0.8;
    if (tern_pipeline_edits(p) && q->image_guidance_scale == 0)
        q->image_guidance_scale = 1.5;
}

static enum tern_status check_params(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_txt2img_params *q = &j->params;
    int scale = tern_pipeline_scale(j->p);
    if (q->width < scale || q->height < scale || q->width > TERN_MAX_SIDE || q->height > TERN_MAX_SIDE || q->width % scale ||
        q->height % scale)
        return tern_fail(ctx, TERN_E_INVALID, "size: expected multiples of %d in %d..%d, found %d x %d", scale, scale, TERN_MAX_SIDE,
                         q->width, q->height);
    if (q->steps < 1 || q->steps > TERN_MAX_STEPS)
        return tern_fail(ctx, TERN_E_INVALID, "steps: expected 1..%d, found %d", TERN_MAX_STEPS, q->steps);
    if (!isfinite(q->cfg) || q->cfg < 0 || q->cfg > TERN_MAX_GUIDANCE)
        return tern_fail(ctx, TERN_E_INVALID, "cfg: expected a number in 0..%d, found %g", TERN_MAX_GUIDANCE, q->cfg);
    if (q->count < 1 || q->count > TERN_MAX_PICTURES)
        return tern_fail(ctx, TERN_E_INVALID, "count: expected 1..%d, found %d", TERN_MAX_PICTURES, q->count);
    if (!(q->strength > 0 && q->strength <= 1))
        return tern_fail(ctx, TERN_E_INVALID, "strength: expected a number above 0 and at most 1, found %g", q->strength);
    if (q->ensd < INT32_MIN || q->ensd > INT32_MAX)
        return tern_fail(ctx, TERN_E_INVALID, "ensd: expected %d..%d, found %lld", INT32_MIN, INT32_MAX, (long long)q->ensd);
    if ((unsigned)q->sampler >= TERN_SAMPLER_COUNT || (unsigned)q->schedule >= TERN_SCHEDULE_COUNT)
        return tern_fail(ctx, TERN_E_INVALID, "sampler or schedule: %d and %d are no such values", (int)q->sampler, (int)q->schedule);
    if (q->generator != TERN_GENERATOR_CPU && q->generator != TERN_GENERATOR_CUDA)
        return tern_fail(ctx, TERN_E_INVALID, "generator: %d is no such value", (int)q->generator);
    if ((unsigned)q->prompt_syntax > TERN_PROMPT_A1111 || (unsigned)q->emphasis > TERN_EMPHASIS_IGNORE)
        return tern_fail(ctx, TERN_E_INVALID, "prompt_syntax or emphasis: %d and %d are no such values", (int)q->prompt_syntax,
                         (int)q->emphasis);
    if (q->clip_skip < 1 || q->clip_skip > j->p->text_layers)
        return tern_fail(ctx, TERN_E_INVALID, "clip_skip: expected 1..%d, the layers of the text encoder, found %d", j->p->text_layers,
                         q->clip_skip);
    if (q->mask_image && !q->init_image)
        return tern_fail(ctx, TERN_E_INVALID, "mask_image: inpainting needs init_image too");
    if (tern_pipeline_inpaints(j->p) && !q->mask_image)
        return tern_fail(ctx, TERN_E_INVALID, "%s is an inpainting model: it needs init_image and mask_image", j->p->name);
    return tern_job_check_edit(j) || tern_job_check_micro(j->p, q) || tern_job_check_stages(j->p, q) || tern_job_check_cache(j)
               ? tern_error_status(ctx)
               : TERN_OK;
}

static enum tern_status check_latents(struct tern_job *j)
{
    const tern_tensor *t = j->params.init_latents;
    char text[TERN_META_TEXT];
    if (!t)
        return TERN_OK;
    struct tern_meta want = tern_meta_make(TERN_F32, 4, (const int64_t[]){j->params.count, j->channels, j->lh, j->lw});
    if (!tern_meta_same_shape(&t->meta, &want) || t->meta.dtype != TERN_F32)
        return tern_fail(j->p->ctx, TERN_E_SHAPE, "latents: expected (%d, %lld, %lld, %lld) f32, found %s", j->params.count,
                         (long long)j->channels, (long long)j->lh, (long long)j->lw, tern_meta_text(&t->meta, text));
    if (!t->buffer)
        return tern_fail(j->p->ctx, TERN_E_INVALID, "latents: expected values, found a tensor of a graph that is or was recorded");
    return TERN_OK;
}

/* The sampler of the job, or else that of the class in model_index.json, which is the one that diffusers loads; DEFAULT leaves it to the
 * configuration. */
static enum tern_sampler choose_sampler(const struct tern_job *j, const char *index_class)
{
    const struct tern_txt2img_params *q = &j->params;
    if (q->sampler != TERN_SAMPLER_DEFAULT || q->schedule_config || !index_class)
        return q->sampler;
    const struct tern_sampler_fns *fns = tern_sampler_of_class(j->p->ctx, "model_index.json: \"scheduler\"", index_class);
    return fns ? fns->sampler : TERN_SAMPLER_DEFAULT;
}

/* Whether diffusers' pipeline for the job corrects what old scheduler files say. Those of Stable Diffusion 1 and 2 do; those of SDXL, of
 * instruct-pix2pix and of latent consistency models, which have none of their own for inpainting, take the file as it is. */
static bool corrects_files(const struct tern_job *j)
{
    const bool consistency = strstr(tern_checkpoint_pipeline(j->p->checkpoint), "LatentConsistencyModel") && !j->params.mask_image;
    return !j->p->xl && !tern_pipeline_edits(j->p) && !consistency;
}

static enum tern_status make_scheduler(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_txt2img_params *q = &j->params;
    const char *given = q->schedule_config, *index_class = tern_pipeline_scheduler_class(j->p);
    const enum tern_sampler sampler = choose_sampler(j, index_class);
    struct tern_sampler_options options = q->sampler_options;
    options.sdxl = options.sdxl || j->p->xl;
    if (!given && !corrects_files(j))
        given = tern_pipeline_scheduler(j->p);
    char *config = tern_failed(ctx) ? NULL
                   : given          ? tern_strdup(ctx, given)
                                    : tern_scheduler_correct(ctx, tern_pipeline_scheduler(j->p), index_class, sampler, q->mask_image);
    if (config)
        j->scheduler = tern_scheduler_create(ctx, config, sampler, q->schedule);
    tern_free(ctx, config);
    if (!j->scheduler || tern_scheduler_set_options(j->scheduler, &options) || tern_scheduler_set_steps(j->scheduler, q->steps) ||
        tern_scheduler_set_batch(j->scheduler, q->count))
        return tern_error_status(ctx);
    return TERN_OK;
}

enum tern_status tern_job_prepare_pass(struct tern_job *j, struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    struct tern_context *ctx = p->ctx;
    j->p = p;
    j->start = tern_now();
    if (params)
        j->params = *params;
    j->zero_negative = p->force_zeros && !j->params.negative_prompt;
    fill_defaults(&j->params, p);
    j->channels = p->vae_config.latent_channels;
    if (tern_failed(ctx) || !tern_pipeline_tokenizer(p, 0) || check_params(j))
        return tern_error_status(ctx);
    j->lh = j->params.height / tern_pipeline_scale(p);
    j->lw = j->params.width / tern_pipeline_scale(p);
    j->picture = j->channels * j->lh * j->lw;
    j->guided = tern_job_is_guided(j);
    j->zero_negative = j->zero_negative && j->guided;
    if (check_latents(j) || tern_job_check_preview(j))
        return tern_error_status(ctx);
    if (make_scheduler(j) || tern_job_choose_calls(j) || tern_job_plan_cache(j))
        return tern_error_status(ctx);
    return tern_job_read_prompts(j);
}

enum tern_status tern_job_prepare(struct tern_job *j, struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    memset(j, 0, sizeof(*j));
    if (tern_job_prepare_pass(j, p, params) || !params)
        return tern_error_status(p->ctx);
    return tern_job_prepare_hires(j, params);
}

void tern_job_destroy(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    void *all[] = {j->generator, j->latents, j->noise, j->image_latents, j->masked_latents, j->mask, j->whole, j->upscaling, j->hires};
    if (j->hires)
        tern_job_destroy(j->hires);
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_free(ctx, all[i]);
    tern_job_free_conditions(j);
    tern_tensor_unref(&j->context);
    tern_tensor_unref(&j->pooled);
    tern_tensor_unref(&j->time_ids);
    tern_scheduler_destroy(&j->scheduler);
    memset(j, 0, sizeof(*j));
}
