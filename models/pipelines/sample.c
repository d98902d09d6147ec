/* The denoising loop. */
#include <string.h>
#include <tern/ops.h>

#include "models/pipelines/predict.h"

/* Of all steps. */
struct step {
    struct tern_predictor predictor;
    float *noise;                   /* (count, 4, lh, lw) */
    struct tern_brownian *brownian; /* NULL: the sampler's noise is drawn anew at each step */
};

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
    bool blend = j->mask && !tern_pipeline_inpaints(j->p);
    if (tern_job_preview(j, call, s->predictor.output))
        return tern_error_status(j->p->ctx);
    if (tern_scheduler_draws_noise(j->scheduler, call) && draw_noise(j, call, s))
        return tern_error_status(j->p->ctx);
    if (tern_scheduler_step(j->scheduler, call, s->predictor.output, s->noise, j->latents, n))
        return tern_error_status(j->p->ctx);
    if (blend)
        restore_kept(j, call, s->noise);
    return TERN_OK;
}

enum tern_status tern_job_sample(struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    const char *stage = j->first ? "hires" : "sample";
    double start = tern_now(), low, high;
    struct step s = {.noise = tern_alloc(ctx, (size_t)(j->params.count * j->picture) * sizeof(float))};
    tern_predictor_open(j, &s.predictor);
    if (tern_job_noise_range(j, &low, &high))
        s.brownian = tern_brownian_create(ctx, j->params.generator, low, high, j->picture);
    if (!tern_failed(ctx))
        tern_report(ctx, stage, 0, tern_job_expected_calls(j) - j->begin, 0);
    for (int i = j->begin; i < tern_job_calls(j) && !tern_failed(ctx); i++) {
        if (tern_check_cancel(ctx) || churn(j, i, &s) || tern_job_predict(j, i, &s.predictor) || advance(j, i, &s))
            break;
        const int total = tern_job_expected_calls(j) - j->begin;
        tern_report(ctx, stage, i + 1 - j->begin, total, tern_now() - start);
        const struct tern_scope_stack scopes = tern_scopes_aside(ctx);
        if (j->params.on_step)
            j->params.on_step(i + 1 - j->begin, total, j->latents, j->params.count * j->picture, j->params.on_step_user);
        tern_scopes_back(ctx, &scopes, "on_step");
    }
    tern_predictor_close(j, &s.predictor);
    tern_free(ctx, s.noise);
    tern_brownian_destroy(&s.brownian);
    return tern_error_status(ctx);
}
