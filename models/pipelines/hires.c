/* The second pass of a job, as AUTOMATIC1111's hires fix makes it (modules/processing.py): the latents of the first pass in another size,
 * cut to what was asked for, and the last of so many steps that the denoising strength is reached. */
#include <math.h>
#include <string.h>

#include "models/pipelines/pipeline.h"
#include "models/pipelines/upscale.h"
#include "models/schedulers/scheduler.h"

#define STRENGTH 0.7

/* Sides in pixels, and those of the latents; of these, `cut` are taken off, half of them above and left. */
struct tern_upscaling {
    const struct tern_upscaler *upscaler;
    int64_t width, height, columns, rows, cut_x, cut_y;
};

static enum tern_status check(const struct tern_job *j, const struct tern_hires *h)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_txt2img_params *q = &j->params;
    char list[256];
    if (q->init_image || q->denoising_start > 0 || q->denoising_end > 0)
        return tern_fail(ctx, TERN_E_INVALID, "hires: a second pass follows a picture from text by one model; found %s",
                         q->init_image ? "init_image" : "denoising_start or denoising_end");
    if (!(h->hr_scale >= 0) || !isfinite(h->hr_scale))
        return tern_fail(ctx, TERN_E_INVALID, "hr_scale: expected a number above 0, found %g", h->hr_scale);
    if (h->hr_resize_x < 0 || h->hr_resize_y < 0 || h->hr_resize_x > TERN_MAX_SIDE || h->hr_resize_y > TERN_MAX_SIDE)
        return tern_fail(ctx, TERN_E_INVALID, "hr_resize_x, hr_resize_y: expected 0..%d, found %d and %d", TERN_MAX_SIDE, h->hr_resize_x,
                         h->hr_resize_y);
    if (h->hr_second_pass_steps < 0 || h->hr_second_pass_steps > TERN_MAX_STEPS)
        return tern_fail(ctx, TERN_E_INVALID, "hr_second_pass_steps: expected 1..%d, found %d", TERN_MAX_STEPS, h->hr_second_pass_steps);
    if (!(h->denoising_strength >= 0 && h->denoising_strength <= 1))
        return tern_fail(ctx, TERN_E_INVALID, "denoising_strength: expected a number above 0 and at most 1, found %g",
                         h->denoising_strength);
    if ((unsigned)h->hr_sampler >= TERN_SAMPLER_COUNT || (unsigned)h->hr_schedule >= TERN_SCHEDULE_COUNT)
        return tern_fail(ctx, TERN_E_INVALID, "hr_sampler or hr_schedule: %d and %d are no such values", (int)h->hr_sampler,
                         (int)h->hr_schedule);
    if (tern_upscaler_find(h->hr_upscaler))
        return TERN_OK;
    tern_upscaler_list(list, sizeof(list));
    return tern_fail(ctx, TERN_E_INVALID, "hr_upscaler: there is no upscaler of latents \"%.80s\"; there are %s", h->hr_upscaler, list);
}

/* A size that is filled: the side that would be too short decides. Both in pixels. */
static void fill_size(const struct tern_hires *h, int64_t w, int64_t h0, struct tern_upscaling *u)
{
    const int64_t x = h->hr_resize_x, y = h->hr_resize_y;
    const bool by_width = !y || (x && w * y < x * h0);
    u->width = by_width ? x : y * w / h0;
    u->height = by_width ? x * h0 / w : y;
}

static enum tern_status choose_size(const struct tern_job *j, const struct tern_hires *h, struct tern_upscaling *u)
{
    const int64_t scale = tern_pipeline_scale(j->p), w = j->params.width, h0 = j->params.height;
    const double most = fmax((double)w, (double)h0) * h->hr_scale;
    if (h->hr_resize_x || h->hr_resize_y)
        fill_size(h, w, h0, u);
    else if (most <= TERN_MAX_SIDE)
        *u = (struct tern_upscaling){.width = (int64_t)((double)w * h->hr_scale), .height = (int64_t)((double)h0 * h->hr_scale)};
    if (h->hr_resize_x && h->hr_resize_y) {
        u->cut_x = (u->width - h->hr_resize_x) / scale;
        u->cut_y = (u->height - h->hr_resize_y) / scale;
    }
    u->columns = u->width / scale;
    u->rows = u->height / scale;
    if (u->columns <= u->cut_x || u->rows <= u->cut_y || u->width > TERN_MAX_SIDE || u->height > TERN_MAX_SIDE)
        return tern_fail(j->p->ctx, TERN_E_INVALID,
                         "hires: hr_scale %g, hr_resize %d x %d of a picture of %d x %d: expected latents of %d..%d pixels on each side",
                         h->hr_scale, h->hr_resize_x, h->hr_resize_y, j->params.width, j->params.height, (int)scale, TERN_MAX_SIDE);
    return TERN_OK;
}

/* What the sampler's eta scales: ddim's and tcd's are others than the noise of a step. */
static int kind_of_eta(enum tern_sampler sampler) { return sampler == TERN_SAMPLER_DDIM ? 1 : sampler == TERN_SAMPLER_TCD ? 2 : 0; }

/* The options of the first pass that the sampler has, too. */
static void keep_options(struct tern_txt2img_params *q, enum tern_sampler sampler)
{
    struct tern_sampler_options *o = &q->sampler_options;
    const unsigned takes = tern_sampler_fns(sampler)->takes;
    if (!(takes & TERN_TAKES_ETA) || kind_of_eta(sampler) != kind_of_eta(q->sampler))
        o->eta = 0;
    if (!(takes & TERN_TAKES_CHURN))
        o->s_churn = o->s_tmin = o->s_tmax = 0;
    if (!(takes & (TERN_TAKES_CHURN | TERN_TAKES_NOISE)))
        o->s_noise = 0;
    const bool has_schedules = tern_sampler_fns(sampler)->has_schedules;
    o->discard_penultimate_sigma = o->discard_penultimate_sigma && has_schedules;
    o->k_diffusion_levels = o->k_diffusion_levels && has_schedules;
}

/* Another sampler has the first one's schedule, if it has any. */
static void choose_sampler(const struct tern_job *j, const struct tern_hires *h, struct tern_txt2img_params *q)
{
    if (h->hr_sampler) {
        q->sampler = tern_scheduler_sampler(j->scheduler);
        keep_options(q, h->hr_sampler);
        q->sampler = h->hr_sampler;
        if (!tern_sampler_fns(h->hr_sampler)->has_schedules)
            q->schedule = TERN_SCHEDULE_DEFAULT;
    }
    if (h->hr_schedule)
        q->schedule = h->hr_schedule;
    if (h->hr_discard_penultimate_sigma)
        q->sampler_options.discard_penultimate_sigma = h->hr_discard_penultimate_sigma > 0;
    if (h->hr_k_diffusion_levels)
        q->sampler_options.k_diffusion_levels = h->hr_k_diffusion_levels > 0;
}

static bool given(const char *text) { return text && *text; }

/* Of the second pass, from the caller's. SDXL is told the size before the cut. */
static void second_params(const struct tern_job *j, const struct tern_hires *h, const struct tern_upscaling *u,
                          struct tern_txt2img_params *q)
{
    const int scale = tern_pipeline_scale(j->p), size[] = {(int)u->height, (int)u->width};
    q->width = (int)(u->columns - u->cut_x) * scale;
    q->height = (int)(u->rows - u->cut_y) * scale;
    q->prompt = given(h->hr_prompt) ? h->hr_prompt : q->prompt;
    q->negative_prompt = given(h->hr_negative_prompt) ? h->hr_negative_prompt : q->negative_prompt;
    q->cfg = tern_pipeline_cfg(j->p, h->hr_cfg != 0 ? h->hr_cfg : q->cfg);
    q->init_latents = NULL;
    q->hires = (struct tern_hires){0};
    choose_sampler(j, h, q);
    for (int k = 0; k < 2 && j->p->xl; k++) {
        q->original_size[k] = q->original_size[k] ? q->original_size[k] : size[k];
        if (j->p->numbers == TERN_XL_NUMBERS)
            q->target_size[k] = q->target_size[k] ? q->target_size[k] : size[k];
    }
}

/* As A1111's setup_img2img_steps: so many steps are done, the last ones of all that the strength asks for. */
static enum tern_status choose_steps(const struct tern_job *j, const struct tern_hires *h, struct tern_txt2img_params *q, int *skipped)
{
    const int steps = h->hr_second_pass_steps ? h->hr_second_pass_steps : j->params.steps;
    const double all = steps / fmin(h->denoising_strength, 0.999);
    if (!(all < TERN_MAX_STEPS + 1))
        return tern_fail(j->p->ctx, TERN_E_INVALID,
                         "hires: the last %d steps at denoising_strength %g are those of %.0f; expected at most %d; fewer steps or more "
                         "strength would help",
                         steps, h->denoising_strength, fmin(floor(all), 1e9), TERN_MAX_STEPS);
    q->steps = (int)all;
    *skipped = q->steps - steps;
    return TERN_OK;
}

enum tern_status tern_job_prepare_hires(struct tern_job *j, const struct tern_txt2img_params *params)
{
    struct tern_context *ctx = j->p->ctx;
    struct tern_hires *h = &j->params.hires;
    struct tern_upscaling u = {0};
    struct tern_txt2img_params q = *params;
    int skipped = 0;
    if (h->hr_scale == 0 && !h->hr_resize_x && !h->hr_resize_y)
        return TERN_OK;
    if (check(j, h) || choose_size(j, h, &u))
        return tern_error_status(ctx);
    u.upscaler = tern_upscaler_find(h->hr_upscaler);
    h->denoising_strength = h->denoising_strength > 0 ? h->denoising_strength : STRENGTH;
    h->hr_upscaler = u.upscaler->name;
    second_params(j, h, &u, &q);
    if (choose_steps(j, h, &q, &skipped))
        return tern_error_status(ctx);
    j->hires = tern_calloc(ctx, 1, sizeof(*j->hires));
    if (!j->hires)
        return tern_error_status(ctx);
    *j->hires = (struct tern_job){.p = j->p, .first = j, .skipped = skipped, .upscaling = tern_alloc(ctx, sizeof(u))};
    if (j->hires->upscaling)
        *j->hires->upscaling = u;
    if (!tern_failed(ctx) && tern_job_prepare_pass(j->hires, j->p, &q))
        tern_fail_prefix(ctx, "hires");
    return tern_error_status(ctx);
}

/* (rows, columns) without what is cut off. */
static void crop(const struct tern_upscaling *u, int64_t planes, const float *from, float *to)
{
    const int64_t columns = u->columns - u->cut_x, rows = u->rows - u->cut_y;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t y = 0; y < rows; y++, to += columns)
            memcpy(to, from + (p * u->rows + y + u->cut_y / 2) * u->columns + u->cut_x / 2, (size_t)columns * sizeof(*to));
}

static size_t resized_bytes(const struct tern_job *j)
{
    return (size_t)(j->params.count * j->channels * j->upscaling->rows * j->upscaling->columns) * sizeof(float);
}

enum tern_status tern_job_upscale(struct tern_job *j)
{
    const struct tern_upscaling *u = j->upscaling;
    const struct tern_planes size = {j->params.count * j->channels, j->first->lh, j->first->lw};
    float *all = tern_alloc(j->p->ctx, resized_bytes(j));
    if (all && tern_upscale(j->p->ctx, u->upscaler, &size, j->first->latents, u->rows, u->columns, all) == TERN_OK)
        crop(u, size.count, all, j->latents);
    tern_free(j->p->ctx, all);
    return tern_error_status(j->p->ctx);
}

size_t tern_job_upscale_bytes(const struct tern_job *j)
{
    const struct tern_planes size = {0, j->first->lh, j->first->lw};
    return resized_bytes(j) + tern_upscale_bytes(j->upscaling->upscaler, &size, j->upscaling->rows, j->upscaling->columns);
}

bool tern_job_noise_range(const struct tern_job *j, double *low, double *high)
{
    if (!tern_scheduler_noise_range(j->scheduler, low, high))
        return false;
    for (int i = 0; (j->first || j->params.denoising_start > 0) && i < j->begin; i++) {
        *low = fmin(*low, tern_scheduler_sigma(j->scheduler, i));
        *high = fmax(*high, tern_scheduler_sigma(j->scheduler, i));
    }
    return true;
}
