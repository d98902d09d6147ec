/* The denoising loop. */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/pipeline.h"

enum { TIME = 1, CONTEXT, ADDED, INPUTS }; /* sample, time, context, added */

/* The UNet, host buffers of one step, and the tensors of all. */
struct step {
    struct tern_binding *binding;
    float *input;                   /* (rows, channels of the UNet, lh, lw) */
    float *output;                  /* (rows, 4, lh, lw) */
    float *noise;                   /* (count, 4, lh, lw) */
    struct tern_brownian *brownian; /* NULL: the sampler's noise is drawn anew at each step */
    tern_tensor *in[INPUTS], *out[1];
};

/* Scaled latents, again for each branch; a 9-channel UNet gets mask and masked picture behind them. */
static void fill_input(const struct tern_job *j, int call, struct step *s)
{
    int64_t n = j->params.count * j->picture, hw = j->lh * j->lw, channels = j->p->unet_config.in_channels, row = channels * hw;
    int rows = j->params.count * j->branches;
    bool nine = channels != j->channels;
    tern_scheduler_scale_input(j->scheduler, call, j->latents, s->output, n); /* output serves as scratch here */
    for (int r = 0; r < rows; r++) {
        int64_t picture = r % j->params.count * j->picture;
        memcpy(s->input + r * row, s->output + picture, (size_t)j->picture * sizeof(float));
        if (nine) {
            memcpy(s->input + r * row + j->picture, j->mask, (size_t)hw * sizeof(float));
            memcpy(s->input + r * row + j->picture + hw, j->masked_latents + picture, (size_t)j->picture * sizeof(float));
        }
    }
}

/* The tensors of all steps: the same memory each time, so that a device can replay its launches. */
static enum tern_status make_inputs(const struct tern_job *j, const struct tern_unet *unet, double t, struct step *s)
{
    struct tern_context *ctx = j->p->ctx;
    int64_t rows = j->params.count * j->branches;
    enum tern_dtype dtype = j->p->params.dtype;
    struct tern_unet_conditions c;
    tern_scope_begin(ctx);
    tern_unet_conditions(unet, &t, 1, j->pooled, j->time_ids, &c);
    tern_tensor *in[] = {tern_tensor_create(ctx, dtype, 4, (const int64_t[]){rows, j->p->unet_config.in_channels, j->lh, j->lw}, NULL),
                         c.time, tern_cast(j->context, dtype), c.added};
    for (int i = 0; i < INPUTS; i++)
        s->in[i] = tern_tensor_ref(in[i]);
    tern_scope_end(ctx, NULL);
    return tern_error_status(ctx);
}

/* Gives a tensor of all steps the values of another. */
static void renew(struct tern_context *ctx, tern_tensor *to, const tern_tensor *from)
{
    const size_t bytes = from ? (size_t)tern_tensor_numel(from) * sizeof(float) : 0;
    float *values = from ? tern_alloc(ctx, bytes) : NULL;
    if (values && tern_tensor_read(from, TERN_F32, values, bytes) == TERN_OK)
        tern_tensor_write(to, TERN_F32, values, bytes);
    tern_free(ctx, values);
}

/* Another text holds from this step on. */
static enum tern_status renew_texts(const struct tern_job *j, const struct tern_unet *unet, double t, struct step *s)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_unet_conditions c;
    renew(ctx, s->in[CONTEXT], j->context);
    tern_scope_begin(ctx);
    if (j->pooled && tern_unet_conditions(unet, &t, 1, j->pooled, j->time_ids, &c) == TERN_OK)
        renew(ctx, s->in[ADDED], c.added);
    tern_scope_end(ctx, NULL);
    return tern_error_status(ctx);
}

static enum tern_status predict(struct tern_job *j, int call, struct step *s)
{
    struct tern_context *ctx = j->p->ctx;
    int64_t rows = j->params.count * j->branches;
    const bool other = tern_job_follow_prompt(j, call);
    double t = tern_scheduler_timestep(j->scheduler, call);
    fill_input(j, call, s);
    const struct tern_unet *unet = tern_pipeline_unet(j->p); /* a callback's own job may have taken it out of memory */
    if (!unet || (s->in[0] ? tern_unet_set_time(unet, &t, 1, s->in[TIME]) : make_inputs(j, unet, t, s)))
        return tern_error_status(ctx);
    if (other && call > j->begin && renew_texts(j, unet, t, s))
        return tern_error_status(ctx);
    size_t channels = (size_t)j->p->unet_config.in_channels;
    if (tern_tensor_write(s->in[0], TERN_F32, s->input, (size_t)(rows * j->lh * j->lw) * channels * sizeof(float)) == TERN_OK &&
        tern_job_run_plan(j, "unet", s->binding, s->in, s->out) == TERN_OK)
        tern_tensor_read(s->out[0], TERN_F32, s->output, (size_t)(rows * j->picture) * sizeof(float));
    return tern_error_status(ctx);
}

/* negative + cfg * (positive - negative), into the first branch, with more than one positive the sum of all     [Ho 2022; Liu 2022] */
static void guide(const struct tern_job *j, float *output)
{
    int64_t n = j->params.count * j->picture;
    float cfg[TERN_MOST_BRANCHES];
    for (int b = 1; b < j->branches; b++)
        cfg[b] = (float)tern_job_guidance(j, b);
    for (int64_t k = 0; k < n; k++) {
        const float negative = output[k];
        for (int b = 1; b < j->branches; b++)
            output[k] = output[k] + cfg[b] * (output[b * n + k] - negative);
    }
}

/* Inpainting with a 4-channel UNet: what is kept is put back, with the noise of the next call. */
static void restore_kept(const struct tern_job *j, int call, float *scratch)
{
    int64_t n = j->params.count * j->picture, hw = j->lh * j->lw;
    const float *kept = j->image_latents;
    if (call + 1 < tern_job_calls(j)) {
        tern_scheduler_add_noise(j->scheduler, call + 1, j->image_latents, j->noise, scratch, n);
        kept = scratch;
    }
    for (int64_t k = 0; k < n; k++)
        j->latents[k] = (1 - j->mask[k % hw]) * kept[k] + j->mask[k % hw] * j->latents[k];
}

/* Noise that the sample gets before a call. */
static enum tern_status churn(struct tern_job *j, int call, struct step *s)
{
    if (!tern_scheduler_churns(j->scheduler, call))
        return TERN_OK;
    for (int i = 0; i < j->params.count; i++)
        tern_generator_randn(&j->generator[i], s->noise + i * j->picture, j->picture);
    return tern_scheduler_churn(j->scheduler, call, s->noise, j->latents, j->params.count * j->picture);
}

/* The noise of a step: each picture's from its own seed, so that it is the same alone and in any batch. */
static enum tern_status draw_noise(struct tern_job *j, int call, struct step *s)
{
    double from, to;
    bool brownian = tern_scheduler_noise_span(j->scheduler, call, &from, &to);
    for (int i = 0; i < j->params.count; i++) {
        float *noise = s->noise + i * j->picture;
        if (!brownian)
            tern_generator_randn(&j->generator[i], noise, j->picture);
        else if (tern_brownian_noise(s->brownian, j->params.seed + (uint64_t)i, from, to, noise))
            return tern_error_status(j->p->ctx);
    }
    return TERN_OK;
}

static enum tern_status advance(struct tern_job *j, int call, struct step *s)
{
    int64_t n = j->params.count * j->picture;
    bool blend = j->mask && j->p->unet_config.in_channels == j->channels;
    if (j->guided)
        guide(j, s->output);
    if (tern_scheduler_draws_noise(j->scheduler, call) && draw_noise(j, call, s))
        return tern_error_status(j->p->ctx);
    if (tern_scheduler_step(j->scheduler, call, s->output, s->noise, j->latents, n))
        return tern_error_status(j->p->ctx);
    if (blend)
        restore_kept(j, call, s->noise);
    return TERN_OK;
}

enum tern_status tern_job_sample(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    int64_t rows = j->params.count * j->branches;
    const struct tern_stage stage = tern_job_stage(j, "unet");
    double start = tern_now(), low, high;
    struct step s = {.binding = tern_pipeline_binding(j->p, &stage),
                     .input = tern_alloc(ctx, (size_t)(rows * j->p->unet_config.in_channels * j->lh * j->lw) * sizeof(float)),
                     .output = tern_alloc(ctx, (size_t)(rows * j->picture) * sizeof(float)),
                     .noise = tern_alloc(ctx, (size_t)(j->params.count * j->picture) * sizeof(float))};
    if (tern_scheduler_noise_range(j->scheduler, &low, &high))
        s.brownian = tern_brownian_create(ctx, j->params.generator, low, high, j->picture);
    if (!tern_failed(ctx))
        tern_report(ctx, "sample", 0, tern_job_expected_calls(j) - j->begin, 0);
    for (int i = j->begin; i < tern_job_calls(j) && !tern_failed(ctx); i++) {
        if (tern_check_cancel(ctx) || churn(j, i, &s) || predict(j, i, &s) || advance(j, i, &s))
            break;
        int total = tern_job_expected_calls(j) - j->begin;
        tern_report(ctx, "sample", i + 1 - j->begin, total, tern_now() - start);
        if (j->params.on_step)
            j->params.on_step(i + 1 - j->begin, total, j->latents, j->params.count * j->picture, j->params.on_step_user);
    }
    for (int i = 0; i < INPUTS; i++)
        tern_tensor_unref(&s.in[i]);
    tern_tensor_unref(&s.out[0]);
    tern_job_end_runs(&s.binding);
    tern_free(ctx, s.input);
    tern_free(ctx, s.output);
    tern_free(ctx, s.noise);
    tern_brownian_destroy(&s.brownian);
    return tern_error_status(ctx);
}
