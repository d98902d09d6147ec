/* tern_pipeline_quantize: the checks, and the run from the plain latents to the recipe. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/files.h"
#include "graph/key.h"
#include "graph/plan.h"
#include "models/quantize/analysis.h"

#define STEPS 8
#define THRESHOLD 0.1

/* ---- before anything is computed */

static enum tern_status check_range(struct tern_context *ctx, const char *what, double x, double least, double most)
{
    if (isfinite(x) && x >= least && x <= most)
        return TERN_OK;
    return tern_fail(ctx, TERN_E_INVALID, "%s: expected a number in %g..%g, found %g", what, least, most, x);
}

static enum tern_status check_prompts(struct tern_context *ctx, const struct tern_quantize_params *q)
{
    if (!q->prompts || q->n_prompts < 1)
        return tern_fail(ctx, TERN_E_INVALID,
                         "prompts: calibration needs at least one, found none; what is usually painted with the model is best");
    if (q->n_prompts > TERN_CALIBRATION_PROMPTS)
        return tern_fail(ctx, TERN_E_INVALID, "prompts: expected at most %d, found %d", TERN_CALIBRATION_PROMPTS, q->n_prompts);
    for (int i = 0; i < q->n_prompts; i++)
        if (!q->prompts[i])
            return tern_fail(ctx, TERN_E_INVALID, "prompts: number %d is NULL", i + 1);
    return TERN_OK;
}

static enum tern_status check(const struct tern_pipeline *p, const struct tern_quantize_params *q)
{
    struct tern_context *ctx = p->ctx;
    if (check_prompts(ctx, q))
        return tern_error_status(ctx);
    if (q->bits != 8)
        return tern_fail(ctx, TERN_E_INVALID, "bits: expected 8, found %d", q->bits);
    if (p->quantize)
        return tern_fail(
            ctx, TERN_E_INVALID,
            "quantize: expected a model of floats without a recipe, found one with quantised layers; tern convert --dtype makes one");
    if (tern_pipeline_edits(p) && !q->init_image)
        return tern_fail(ctx, TERN_E_INVALID,
                         "%s edits a picture as the prompt says (instruct-pix2pix): calibration needs init_image; a recipe of its kin that "
                         "paints from texts fits it, too",
                         p->name);
    if (q->init_image && !tern_pipeline_edits(p))
        return tern_fail(ctx, TERN_E_INVALID, "init_image: %s is calibrated by texts alone; only instruct-pix2pix models are by a picture",
                         p->name);
    if (q->width < 16 || q->height < 16)
        return tern_fail(ctx, TERN_E_INVALID, "size: expected at least 16 x 16, found %d x %d", q->width, q->height);
    if (q->ssim != 0 && q->speedup != 0)
        return tern_fail(ctx, TERN_E_INVALID, "target: expected one of ssim and speedup, found %g and %g", q->ssim, q->speedup);
    if (check_range(ctx, "conv_mse_threshold", q->conv_mse_threshold, 0, 1e6) ||
        check_range(ctx, "linear_mse_threshold", q->linear_mse_threshold, 0, 1e6) ||
        check_range(ctx, "compute_density_threshold", q->compute_density_threshold, 0, 1e9) || check_range(ctx, "cfg", q->cfg, 0, 1000))
        return tern_error_status(ctx);
    if (!(q->ssim >= 0 && q->ssim < 1))
        return tern_fail(ctx, TERN_E_INVALID, "ssim: expected a number above 0 and below 1, or 0: no such target, found %g", q->ssim);
    if (!(q->smooth_quant >= 0 && q->smooth_quant < 1))
        return tern_fail(ctx, TERN_E_INVALID, "smooth_quant: expected a number above 0 and below 1, or 0: no factors, found %g",
                         q->smooth_quant);
    if (q->smooth_quant > 0 && q->sampler == TERN_SAMPLER_DPM_ADAPTIVE)
        return tern_fail(ctx, TERN_E_UNSUPPORTED,
                         "smooth_quant: expected a sampler whose noise levels are known before, found dpm_adaptive; another one would do");
    return q->speedup == 0 ? TERN_OK : check_range(ctx, "speedup", q->speedup, 1.0001, 100);
}

static void fill_defaults(struct tern_quantize_params *q, const struct tern_pipeline *p)
{
    const int scale = tern_pipeline_scale(p);
    q->width = q->width ? q->width : (int)p->unet_config.sample_w * scale;
    q->height = q->height ? q->height : (int)p->unet_config.sample_h * scale;
    q->steps = q->steps ? q->steps : STEPS;
    q->cfg = q->cfg != 0 ? q->cfg : tern_pipeline_guidance(p);
    q->bits = q->bits ? q->bits : 8;
    q->conv_mse_threshold = q->conv_mse_threshold != 0 ? q->conv_mse_threshold : THRESHOLD;
    q->linear_mse_threshold = q->linear_mse_threshold != 0 ? q->linear_mse_threshold : THRESHOLD;
    if (!q->quantize_conv && !q->quantize_linear && !q->quantize_attention)
        q->quantize_conv = q->quantize_linear = q->quantize_attention = true;
}

/* A side of the trials' size, when the longest side of the job has to be halved n times. */
static int halved(int side, int n, int scale)
{
    const int least = 2 * scale, half = side >> n, whole = half >= 64 ? half / 64 * 64 : half / scale * scale;
    return !n ? side : whole > least ? whole : least;
}

static json_t *options_json(const struct tern_quantize_run *run, int width, int height)
{
    const struct tern_quantize_params *q = &run->params;
    json_t *prompts = json_array();
    for (int i = 0; i < q->n_prompts; i++)
        tern_json_append(&prompts, tern_json_text(run->ctx, q->prompts[i]));
    return json_pack("{s:o, s:o, s:o, s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:s, s:s, s:i, s:b, s:b, s:b, s:b, s:f, s:f, s:f, s:f, s:f}",
                     "model", tern_json_text(run->ctx, run->p->name), "prompts", prompts, "negative_prompt",
                     q->negative_prompt ? tern_json_text(run->ctx, q->negative_prompt) : json_null(), "dtype",
                     tern_dtype_name(run->p->params.dtype), "width", q->width, "height", q->height, "trial_width", width, "trial_height",
                     height, "steps", q->steps, "cfg", q->cfg, "seed", "", "sampler", tern_sampler_name(q->sampler), "schedule",
                     tern_schedule_name(q->schedule), "bits", q->bits, "quantize_conv", q->quantize_conv, "quantize_linear",
                     q->quantize_linear, "quantize_attention", q->quantize_attention, "quantize_slower", q->quantize_slower,
                     "conv_mse_threshold", q->conv_mse_threshold, "linear_mse_threshold", q->linear_mse_threshold,
                     "compute_density_threshold", q->compute_density_threshold, "ssim", q->ssim, "speedup", q->speedup);
}

/* ---- the run */

/* The jobs inside tell nothing: what counts is how many of them there are. */
void tern_quantize_tell(struct tern_quantize_run *run, int done, int more)
{
    run->done += done;
    run->total += more;
    run->ctx->params.progress = run->progress;
    tern_report(run->ctx, "quantize", run->done, run->total, tern_now() - run->start);
    run->ctx->params.progress = NULL;
}

/* The latents that all trials are compared with. */
static enum tern_status paint_plain(struct tern_quantize_run *run)
{
    const int64_t n = run->small.values * run->params.n_prompts;
    double mean = 0, sum = 0;
    run->plain = tern_alloc(run->ctx, (size_t)n * sizeof(*run->plain));
    run->latents = tern_alloc(run->ctx, (size_t)n * sizeof(*run->latents));
    if (tern_failed(run->ctx) || tern_calibration_run(&run->small, NULL, run->plain, NULL))
        return tern_error_status(run->ctx);
    for (int64_t k = 0; k < n; k++)
        mean += run->plain[k] / (double)n;
    for (int64_t k = 0; k < n; k++)
        sum += (run->plain[k] - mean) * (run->plain[k] - mean);
    run->variance = sum / (double)n;
    tern_quantize_tell(run, 1, 0);
    return run->variance > 0 ? TERN_OK
                             : tern_fail(run->ctx, TERN_E_UNSUPPORTED,
                                         "%s: its latents are all the same or no numbers: nothing can be compared", run->p->name);
}

/* Before any long work. What runs took was from 4 % below to 8 % above the estimate (the demo model at 64 to 512 pixels, SD 1.5 at 128). */
static enum tern_status check_budget(struct tern_quantize_run *run)
{
    const size_t budget = tern_pipeline_budget(run->p);
    if (!budget)
        return TERN_OK;
    const bool outer = tern_budget_lift(run->ctx, true); /* its plans are gone again, and the message is to come from here */
    const size_t needed = tern_calibration_memory(&run->large);
    tern_plan_cache_drop(run->ctx);
    tern_budget_lift(run->ctx, outer);
    if (tern_failed(run->ctx) || needed <= budget + budget / 25)
        return tern_error_status(run->ctx);
    return tern_fail(run->ctx, TERN_E_BUDGET,
                     "quantize: takes about %.0f MiB, as all layers are in memory in floats and in int8; the budget is %.1f MiB; a smaller "
                     "size or another dtype would help",
                     (double)needed / (1 << 20), (double)budget / (1 << 20));
}

static enum tern_status open_run(struct tern_quantize_run *run)
{
    const struct tern_quantize_params *q = &run->params;
    int n = 0, scale = tern_pipeline_scale(run->p);
    while ((q->width > q->height ? q->width : q->height) >> n > TERN_TRIAL_SIDE)
        n++;
    const int width = halved(q->width, n, scale), height = halved(q->height, n, scale);
    run->recipe = tern_recipe_of_pipeline(run->p);
    json_t *options = run->recipe ? options_json(run, width, height) : NULL;
    if (q->smooth_quant > 0)
        tern_json_set(&options, "smooth_quant", json_real(q->smooth_quant));
    tern_json_set(&options, "seed", json_sprintf("%llu", (unsigned long long)q->seed)); /* of 64 bits, which JSON's are not */
    if (!options)
        return tern_fail(run->ctx, TERN_E_NO_MEMORY, "quantize: no memory for its options");
    run->recipe->options = options;
    char kernels[TERN_KEY_TEXT];
    json_t *measured = json_copy(options); /* another target needs no other measurements */
    json_object_del(measured, "ssim");
    json_object_del(measured, "speedup");
    tern_json_set(&measured, "device", json_string(run->ctx->device->name)); /* times are of these */
    tern_json_set(&measured, "threads", json_integer(tern_thread_count(run->ctx)));
    tern_json_set(&measured, "kernels", json_string(tern_key_text(tern_plan_fingerprint(run->ctx), kernels)));
    if (!q->state || tern_check_writable(run->ctx, q->state) == TERN_OK)
        tern_state_open(&run->state, run->ctx, q->state, q->restart, measured);
    json_decref(measured);
    if (tern_failed(run->ctx))
        return tern_error_status(run->ctx);
    tern_calibration_open(&run->large, run->p, q, q->width, q->height, NULL);
    if (!tern_failed(run->ctx))
        check_budget(run);
    if (!tern_failed(run->ctx))
        tern_calibration_open(&run->small, run->p, q, width, height, &run->large);
    run->before = tern_calloc(run->ctx, (size_t)q->n_prompts, sizeof(struct tern_image *));
    run->after = tern_calloc(run->ctx, (size_t)q->n_prompts, sizeof(struct tern_image *));
    return tern_error_status(run->ctx);
}

static enum tern_status find_recipe(struct tern_quantize_run *run)
{
    bool *able = NULL;
    const bool smooth = run->params.smooth_quant > 0;
    run->total = 6 + smooth; /* plain latents and pictures, times, factors, the pictures, a call and the latents of the recipe */
    if (open_run(run) || paint_plain(run) ||
        tern_state_model(&run->state, run->recipe, run->plain, run->small.values * run->params.n_prompts))
        return tern_error_status(run->ctx);
    if (smooth && tern_quantize_smooth(run))
        return tern_error_status(run->ctx);
    able = tern_calloc(run->ctx, (size_t)run->recipe->count + 1, sizeof(*able));
    if (able && tern_quantize_measure(run, able) == TERN_OK) {
        tern_quantize_tell(run, 1, 0);
        tern_quantize_group(run, able);
    }
    tern_free(run->ctx, able);
    if (!tern_failed(run->ctx) && !run->candidates) {
        const struct tern_recipe_layer *l = tern_quantize_densest(run);
        return tern_fail(run->ctx, TERN_E_UNSUPPORTED, "quantize: none of %d layers can be int8: the densest that is asked for, %s, %s",
                         run->recipe->count, l->name, l->decision);
    }
    if (tern_failed(run->ctx) || tern_quantize_search(run) || tern_quantize_choose(run))
        return tern_error_status(run->ctx);
    const struct tern_scope_stack scopes = tern_scopes_aside(run->ctx);
    run->p->trying = false; /* the plans of trials are gone, and a callback of the params may make pictures */
    run->ctx->params.progress = run->progress;
    struct tern_device *former = tern_device_go(run->ctx, run->ctx->own);
    for (int i = 0; run->params.on_picture && i < run->params.n_prompts; i++)
        run->params.on_picture(i, run->before[i], run->after[i], run->params.on_picture_user);
    tern_device_go(run->ctx, former);
    tern_scopes_back(run->ctx, &scopes, "on_picture");
    return tern_error_status(run->ctx);
}

static void close_run(struct tern_quantize_run *run)
{
    tern_calibration_close(&run->small);
    tern_calibration_close(&run->large);
    tern_state_close(&run->state, !tern_failed(run->ctx) && !run->params.keep_state);
    for (int i = 0; run->before && run->after && i < run->params.n_prompts; i++) {
        tern_image_destroy(&run->before[i]);
        tern_image_destroy(&run->after[i]);
    }
    void *all[] = {run->plain, run->latents, run->before, run->after, run->order, run->unit};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        tern_free(run->ctx, all[i]);
    if (tern_failed(run->ctx))
        tern_recipe_destroy(&run->recipe);
}

struct tern_recipe *tern_pipeline_quantize(struct tern_pipeline *p, const struct tern_quantize_params *params)
{
    if (!p)
        return NULL;
    struct tern_quantize_run run = {.ctx = p->ctx, .p = p, .start = tern_now(), .progress = p->ctx->params.progress};
    if (params)
        run.params = *params;
    fill_defaults(&run.params, p);
    if (tern_failed(p->ctx) || check(p, &run.params))
        return NULL;
    if (p->calls) {
        tern_fail(p->ctx, TERN_E_INVALID, "tern_pipeline_quantize: the pipeline is at work; measure between jobs");
        return NULL;
    }
    p->trying = true;
    p->calls++;
    p->ctx->params.progress = NULL;
    const struct tern_scope_stack left = tern_scopes_leave(p->ctx);
    struct tern_device *former = tern_pipeline_go(p, "unet"); /* inputs and times are of where it computes */
    find_recipe(&run);
    close_run(&run);
    tern_device_go(p->ctx, former);
    tern_scopes_return(p->ctx, &left);
    p->ctx->params.progress = run.progress;
    p->calls--;
    p->trying = false;
    return run.recipe;
}
