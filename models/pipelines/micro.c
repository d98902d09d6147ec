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
    const bool scores = q->aesthetic_score != 0 || q->negative_aesthetic_score != 0;
    const char *what = scores && p->numbers != TERN_XL_REFINER_NUMBERS          ? "aesthetic_score"
                       : given(q->target_size) && p->numbers != TERN_XL_NUMBERS ? "target_size"
                       : !p->xl && given(q->original_size)                      ? "original_size"
                       : !p->xl && given(q->crops_coords_top_left)              ? "crops_coords_top_left"
                                                                                : NULL;
    return what ? tern_fail(p->ctx, TERN_E_INVALID, "%s: %s is not told that; %s are", what, p->name,
                            !strcmp(what, "aesthetic_score") ? "refiners of Stable Diffusion XL"
                            : !strcmp(what, "target_size")   ? "models of Stable Diffusion XL other than its refiner"
                                                             : "models of Stable Diffusion XL")
                : TERN_OK;
}

enum tern_status tern_job_check_micro(const struct tern_pipeline *p, const struct tern_txt2img_params *q)
{
    const int *const pairs[] = {q->original_size, q->crops_coords_top_left, q->target_size};
    static const char *const names[] = {"original_size", "crops_coords_top_left", "target_size"};
    const double scores[] = {q->aesthetic_score, q->negative_aesthetic_score};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 2; k++)
            if (pairs[i][k] < 0 || pairs[i][k] > MAX_SIZE)
                return tern_fail(p->ctx, TERN_E_INVALID, "%s: expected 0..%d, found %d, %d", names[i], MAX_SIZE, pairs[i][0], pairs[i][1]);
    for (int i = 0; i < 2; i++)
        if (!(fabs(scores[i]) <= MAX_SCORE))
            return tern_fail(p->ctx, TERN_E_INVALID, "aesthetic_score: expected a number in -%d..%d, found %g", MAX_SCORE, MAX_SCORE,
                             scores[i]);
    return check_known(p, q);
}

enum tern_status tern_job_check_stages(const struct tern_pipeline *p, const struct tern_txt2img_params *q)
{
    const double start = q->denoising_start, end = q->denoising_end;
    if (!(start >= 0 && start < 1) || !(end >= 0 && end < 1))
        return tern_fail(p->ctx, TERN_E_INVALID, "denoising_start and denoising_end: expected numbers above 0 and below 1, found %g and %g",
                         start, end);
    if (start > 0 && end > 0 && start >= end)
        return tern_fail(p->ctx, TERN_E_INVALID, "denoising_start %g leaves nothing to do until denoising_end %g", start, end);
    if (start > 0 && (!q->init_latents || q->init_image))
        return tern_fail(p->ctx, TERN_E_INVALID, "denoising_start: expected the latents of the first model in init_latents, and %s",
                         q->init_image ? "no init_image" : "found none");
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
    if (q->init_image)
        j->begin = tern_scheduler_begin_at(j->scheduler, q->strength);
    if (j->first)
        j->begin = tern_scheduler_skip(j->scheduler, j->skipped);
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

/* One row: original size, crop, and target size or score. As in diffusers, a refiner's negative rows have no crop. */
static void fill_row(const struct tern_job *j, bool negative, float *row)
{
    const struct tern_txt2img_params *q = &j->params;
    const int own[] = {q->height, q->width};
    const bool scored = j->p->numbers == TERN_XL_REFINER_NUMBERS;
    for (int k = 0; k < 2; k++) {
        row[k] = (float)(q->original_size[k] ? q->original_size[k] : own[k]);
        row[2 + k] = scored && negative ? 0 : (float)q->crops_coords_top_left[k];
        if (!scored)
            row[4 + k] = (float)(q->target_size[k] ? q->target_size[k] : own[k]);
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
        fill_row(j, j->guided && i < count, all + n * i);
    tern_tensor *t = all ? tern_tensor_create(j->p->ctx, TERN_F32, 2, (const int64_t[]){rows, n}, all) : NULL;
    tern_free(j->p->ctx, all);
    return t;
}
