/* What SDXL is told beside the text, and which part of the steps a job does.        [Podell 2023, 2.2 and 2.5] */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

#define MAX_SIZE 65536
#define MAX_SCORE 1000

static bool given(const int *pair) { return pair[0] || pair[1]; }

/* A model must have the condition that is given. */
static enum tern_status check_known(const struct tern_pipeline *p, const struct tern_txt2img_params *q)
{
    static const char refiners[] = "refiners of Stable Diffusion XL", all[] = "models of Stable Diffusion XL",
                      others[] = "models of Stable Diffusion XL other than its refiner";
    const bool refiner = p->numbers == TERN_XL_REFINER_NUMBERS, other = p->numbers == TERN_XL_NUMBERS;
    const struct {
        const char *name, *who;
        bool given, told;
    } rows[] = {
        {"aesthetic_score", refiners, q->aesthetic_score != 0 || q->negative_aesthetic_score != 0, refiner},
        {"target_size", others, given(q->target_size), other},
        {"negative_target_size", others, given(q->negative_target_size), other},
        {"original_size", all, given(q->original_size), p->xl},
        {"negative_original_size", all, given(q->negative_original_size), p->xl},
        {"crops_coords_top_left", all, given(q->crops_coords_top_left), p->xl},
        {"negative_crops_coords_top_left", all, given(q->negative_crops_coords_top_left), p->xl},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].given && !rows[i].told)
            return tern_fail(p->ctx, TERN_E_INVALID, "%s: %s is not told that; %s are", rows[i].name, p->name, rows[i].who);
    return TERN_OK;
}

/* A picture, or latents of another model: what diffusers has other pipelines for. */
static bool starts_from_something(const struct tern_txt2img_params *q) { return q->init_image || q->denoising_start > 0; }

/* diffusers' pipelines take what negative rows are told each in its own way; what one would leave unused is refused. */
static enum tern_status check_negative(const struct tern_pipeline *p, const struct tern_txt2img_params *q)
{
    const bool sizes = given(q->negative_original_size) && given(q->negative_target_size), crop = given(q->negative_crops_coords_top_left);
    if (p->numbers != TERN_XL_NUMBERS)
        return TERN_OK;
    if (starts_from_something(q))
        return crop ? tern_fail(p->ctx, TERN_E_INVALID,
                                "negative_crops_coords_top_left: counts in txt2img and in refiners, as in diffusers; else the negative "
                                "rows, too, have crops_coords_top_left")
                    : TERN_OK;
    if (!sizes && (crop || given(q->negative_original_size) || given(q->negative_target_size)))
        return tern_fail(p->ctx, TERN_E_INVALID,
                         "%s: txt2img expects negative_original_size and negative_target_size together, as in diffusers",
                         crop                               ? "negative_crops_coords_top_left"
                         : given(q->negative_original_size) ? "negative_original_size"
                                                            : "negative_target_size");
    return TERN_OK;
}

enum tern_status tern_job_check_micro(const struct tern_pipeline *p, const struct tern_txt2img_params *q)
{
    const struct {
        const char *name;
        const int *pair;
    } pairs[] = {
        {"original_size", q->original_size},
        {"crops_coords_top_left", q->crops_coords_top_left},
        {"target_size", q->target_size},
        {"negative_original_size", q->negative_original_size},
        {"negative_crops_coords_top_left", q->negative_crops_coords_top_left},
        {"negative_target_size", q->negative_target_size},
    };
    const double scores[] = {q->aesthetic_score, q->negative_aesthetic_score};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++)
        for (int k = 0; k < 2; k++)
            if (pairs[i].pair[k] < 0 || pairs[i].pair[k] > MAX_SIZE)
                return tern_fail(p->ctx, TERN_E_INVALID, "%s: expected 0..%d, found %d, %d", pairs[i].name, MAX_SIZE, pairs[i].pair[0],
                                 pairs[i].pair[1]);
    for (int i = 0; i < 2; i++)
        if (!(fabs(scores[i]) <= MAX_SCORE))
            return tern_fail(p->ctx, TERN_E_INVALID, "aesthetic_score: expected a number in -%d..%d, found %g", MAX_SCORE, MAX_SCORE,
                             scores[i]);
    return check_known(p, q) || check_negative(p, q) ? tern_error_status(p->ctx) : TERN_OK;
}

enum tern_status tern_job_check_stages(const struct tern_pipeline *p, const struct tern_txt2img_params *q)
{
    const double start = q->denoising_start, end = q->denoising_end;
    if (!(start >= 0 && start < 1) || !(end >= 0 && end < 1))
        return tern_fail(p->ctx, TERN_E_INVALID, "denoising_start and denoising_end: expected numbers above 0 and below 1, found %g and %g",
                         start, end);
    if (start > 0 && end > 0 && start >= end)
        return tern_fail(p->ctx, TERN_E_INVALID, "denoising_start %g leaves nothing to do until denoising_end %g", start, end);
    if (start > 0 && q->init_image && !q->mask_image) /* with a mask it is what is kept */
        return tern_fail(
            p->ctx, TERN_E_INVALID,
            "denoising_start: expected the latents of the first model in init_latents, and no init_image without a mask_image");
    return TERN_OK;
}

enum tern_status tern_job_check_begun(const struct tern_job *j)
{
    if (j->params.denoising_start > 0 && !j->params.init_latents)
        return tern_fail(j->p->ctx, TERN_E_INVALID,
                         "denoising_start: expected the latents of the first model in init_latents, and found none");
    return TERN_OK;
}

static int least(int a, int b) { return a < b ? a : b; }

int tern_job_calls(const struct tern_job *j) { return least(tern_scheduler_calls(j->scheduler), j->until); }

int tern_job_expected_calls(const struct tern_job *j) { return least(tern_scheduler_expected_calls(j->scheduler), j->until); }

enum tern_status tern_job_choose_calls(struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    const enum tern_sampler sampler = tern_scheduler_sampler(j->scheduler);
    if ((q->denoising_start > 0 || q->denoising_end > 0) && (sampler == TERN_SAMPLER_DPM_FAST || sampler == TERN_SAMPLER_DPM_ADAPTIVE))
        return tern_fail(j->p->ctx, TERN_E_INVALID,
                         "denoising_start and denoising_end: %s lays its steps over the whole range; another sampler can do a part",
                         tern_sampler_name(sampler));
    if (q->init_image && !tern_pipeline_edits(j->p))
        j->begin = tern_scheduler_begin_at(j->scheduler, q->strength);
    if (j->first)
        j->begin = tern_scheduler_skip(j->scheduler, j->skipped);
    j->counted = j->begin;
    if (q->denoising_start > 0)
        j->begin = tern_scheduler_begin_behind(j->scheduler, q->denoising_start);
    j->until = q->denoising_end > 0 ? tern_scheduler_calls_until(j->scheduler, q->denoising_end) : INT_MAX;
    if (tern_failed(j->p->ctx))
        return tern_error_status(j->p->ctx);
    if (j->begin >= 0 && j->begin < tern_job_calls(j))
        return TERN_OK;
    if (q->denoising_start > 0 || q->denoising_end > 0)
        return tern_fail(j->p->ctx, TERN_E_INVALID,
                         "denoising_start %g and denoising_end %g of %d steps leave no step to do; more would help", q->denoising_start,
                         q->denoising_end, q->steps);
    return tern_fail(j->p->ctx, TERN_E_INVALID, "strength %g of %d steps leaves no step to do; raise either", q->strength, q->steps);
}

/* The first of three that is given. */
static float first_of(int a, int b, int c) { return (float)(a ? a : b ? b : c); }

/* One row: original size, crop, and target size or score. As in diffusers, negative rows have a crop of their own in refiners and
 * beside sizes of their own in txt2img. */
static void fill_row(const struct tern_job *j, bool negative, float *row)
{
    static const int none[2];
    const struct tern_txt2img_params *q = &j->params;
    const int own[] = {q->height, q->width};
    const int *original = negative ? q->negative_original_size : none, *target = negative ? q->negative_target_size : none;
    const bool scored = j->p->numbers == TERN_XL_REFINER_NUMBERS;
    const bool own_crop = negative && (scored || (given(original) && !starts_from_something(q)));
    for (int k = 0; k < 2; k++) {
        row[k] = first_of(original[k], q->original_size[k], own[k]);
        row[2 + k] = (float)(own_crop ? q->negative_crops_coords_top_left : q->crops_coords_top_left)[k];
        if (!scored)
            row[4 + k] = first_of(target[k], q->target_size[k], own[k]);
    }
    if (scored)
        row[4] = negative ? (float)(q->negative_aesthetic_score != 0 ? q->negative_aesthetic_score : 2.5)
                          : (float)(q->aesthetic_score != 0 ? q->aesthetic_score : 6);
}

tern_tensor *tern_job_time_ids(const struct tern_job *j)
{
    const int64_t n = j->p->numbers, count = j->params.count, rows = count * j->branches;
    float *all = tern_calloc(j->p->ctx, (size_t)(rows * n), sizeof(*all));
    for (int64_t i = 0; all && i < rows; i++)
        fill_row(j, tern_job_is_negative(j, (int)(i / count)), all + n * i);
    tern_tensor *t = all ? tern_tensor_create(j->p->ctx, TERN_F32, 2, (const int64_t[]){rows, n}, all) : NULL;
    tern_free(j->p->ctx, all);
    return t;
}
