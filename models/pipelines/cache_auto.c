/* DeepCache by the quality that is asked for: the fastest interval whose pictures are still as like those of whole calls. */
#include "models/pipelines/cache_auto.h"

#include <stdio.h>

#include "core/number.h"
#include "graph/plan.h"
#include "models/images/image.h"

/* From so many pictures on the first one is measured in full: what that takes comes back with the others. */
#define MANY 4
/* The window of SSIM, and bytes of its sums for each pixel of a row. */
#define SSIM_ROW (TERN_SSIM_SIDE * 5 * sizeof(double))
/* Bytes of a picture beside its pixels. */
#define TEXT 4096
#define MOST_TIMES 4 /* that what all jobs need is looked for */
/* Characters of a reason. */
#define WHY 160

static void tell(const struct tern_cache_search *s, const struct tern_cache_choice *choice, const char *why)
{
    const struct tern_txt2img_params q = tern_cache_params(s->params, choice->interval);
    char value[64], text[256], number[TERN_NUMBER_TEXT];
    snprintf(value, sizeof(value), choice->interval > 1 ? "%d quad:%d:%s" : "%d", choice->interval, q.cache_center,
             tern_number_text(q.cache_pow, number));
    snprintf(text, sizeof(text), "SSIM %.3f, asked %g; %s", choice->ssim, s->params->cache_quality, why);
    tern_choice_tell(s->p->ctx, s->params->on_choice, s->params->on_choice_user, "deepcache", value, text);
}

static enum tern_status check(const struct tern_txt2img_params *q, struct tern_context *ctx)
{
    const double quality = q->cache_quality;
    if (!(quality > 0 && quality < 1))
        return tern_fail(ctx, TERN_E_INVALID, "cache_quality: expected an SSIM above 0 and below 1, or 0: no quality is asked, found %g",
                         quality);
    if (q->cache_interval > 1 || q->cache_branch_id || q->cache_center || q->cache_pow != 0)
        return tern_fail(
            ctx, TERN_E_INVALID,
            "cache_quality: chooses cache_interval, cache_branch_id, cache_center and cache_pow: expected 0, found %d, %d, %d and %g",
            q->cache_interval, q->cache_branch_id, q->cache_center, q->cache_pow);
    if (q->denoising_start > 0 || q->denoising_end > 0)
        return tern_fail(ctx, TERN_E_INVALID,
                         "cache_quality: a picture by two models is not measured; cache_interval says how many calls are whole");
    return TERN_OK;
}

/* The peaks of all jobs that may be run: the first picture, those behind it or all, with whole calls alone and with some cut short. */
static enum tern_status predict_all(const struct tern_cache_search *s, size_t *peak)
{
    const int count = s->job.params.count, counts[] = {1, count, count < MANY ? count : count - 1};
    for (int i = 0; i < 3; i++)
        for (int cut = 0; cut <= (s->n > 0); cut++) {
            struct tern_txt2img_params q = tern_cache_params(s->params, cut ? TERN_CACHE_LEAST : 1);
            size_t one = 0;
            q.count = counts[i];
            q.init_latents = NULL;
            if (tern_pipeline_check(s->p, &q, peak ? &one : NULL))
                return tern_error_status(s->p->ctx);
            if (peak)
                *peak = one > *peak ? one : *peak;
        }
    return TERN_OK;
}

/* Once more when all plans are there, whose memory counts. Those of a job that does not keep to the budget are gone by the next one: so
 * what all need is found with budgets that are larger and larger. */
static enum tern_status predict_together(const struct tern_cache_search *s, size_t *most)
{
    struct tern_context *ctx = s->p->ctx;
    bool outer = false;
    for (int i = 0; i < MOST_TIMES; i++) {
        *most = 0;
        if (predict_all(s, most) || predict_all(s, most))
            break;
        if (s->p->tried || !tern_pipeline_budget(s->p) || *most <= tern_pipeline_budget(s->p))
            break;
        if (!s->p->supposed)
            outer = tern_budget_lift(ctx, true); /* plans within what is supposed may be more than there is */
        s->p->supposed = *most;
    }
    if (s->p->supposed) {
        *most = s->p->supposed > *most ? s->p->supposed : *most; /* it is enough; with less the ways may be others */
        s->p->supposed = 0;
        tern_pipeline_drop_plans(s->p);
        tern_plan_cache_drop(ctx);
        tern_budget_lift(ctx, outer);
    }
    return tern_error_status(ctx);
}

/* budget: of all jobs and of the pictures beside them that are compared; 0: there is none. */
static void limit(const struct tern_cache_search *s, size_t budget)
{
    s->p->params.budget = !budget ? 0 : budget > s->beside ? budget - s->beside : 1;
}

static enum tern_status predict(const struct tern_cache_search *s, size_t budget, size_t *peak)
{
    size_t most;
    const size_t reached = s->p->reached;
    limit(s, budget);
    s->p->reached = 0; /* within the budget, but there were no pictures beside it */
    const enum tern_status st = predict_together(s, &most);
    s->p->reached = reached;
    if (st)
        return st;
    most = most + s->beside > reached ? most + s->beside : reached;
    if (peak)
        *peak = most;
    if (!peak && budget && most > budget)
        return tern_pipeline_over_budget(s->p, most, budget);
    return peak || !s->p->ctx->own->caps.memory ? TERN_OK : predict_all(s, NULL); /* by which the device's room refuses */
}

/* Checks the parameters, and how much there is to try. To be closed, also after an error. */
static enum tern_status begin(struct tern_cache_search *s, struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    const struct tern_txt2img_params whole = tern_cache_params(params, 1);
    *s = (struct tern_cache_search){
        .p = p, .params = params, .job = {.p = p}, .single_use = p->params.single_use, .budget = p->params.budget};
    p->params.single_use = false; /* the UNet of one picture is that of the next */
    if (tern_job_prepare(&s->job, p, &whole) || check(params, p->ctx))
        return tern_error_status(p->ctx);
    const struct tern_txt2img_params *size = &tern_job_last(&s->job)->params;
    if (size->width < TERN_SSIM_SIDE || size->height < TERN_SSIM_SIDE)
        return tern_fail(p->ctx, TERN_E_INVALID, "cache_quality: SSIM is of pictures of %d x %d pixels or more, found %d x %d",
                         TERN_SSIM_SIDE, TERN_SSIM_SIDE, size->width, size->height);
    s->job.params.cache_quality = params->cache_quality;
    if (tern_cache_count_candidates(s))
        return tern_error_status(p->ctx);
    s->beside = s->n ? 3 * (3 * (size_t)size->width * (size_t)size->height + TEXT) + SSIM_ROW * (size_t)size->width : 0;
    return TERN_OK;
}

/* The same, and all that may be run. */
static enum tern_status open(struct tern_cache_search *s, struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak)
{
    if (peak)
        *peak = 0;
    return begin(s, p, params) ? tern_error_status(p->ctx) : predict(s, tern_pipeline_budget(p), peak);
}

static void close(struct tern_cache_search *s)
{
    s->p->params.single_use = s->single_use;
    s->p->params.budget = s->budget;
    tern_job_destroy(&s->job);
}

enum tern_status tern_cache_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak)
{
    struct tern_cache_search s;
    const enum tern_status st = open(&s, p, params, peak);
    close(&s);
    return st;
}

enum tern_status tern_cache_choose(struct tern_pipeline *p, const struct tern_txt2img_params *params, struct tern_job *j, size_t *bytes)
{
    struct tern_cache_search s;
    *j = (struct tern_job){.p = p};
    enum tern_status st = begin(&s, p, params);
    limit(&s, tern_pipeline_budget(p));
    const struct tern_txt2img_params q = tern_cache_params(params, s.n ? TERN_CACHE_LEAST : 1);
    st = st ? st : tern_job_prepare(j, p, &q);
    st = st ? st : tern_job_choose_offload(j, bytes);
    close(&s);
    return st;
}

/* All pictures with one interval. */
static struct tern_images *all(const struct tern_cache_search *s, const struct tern_cache_choice *choice)
{
    const struct tern_txt2img_params q = tern_cache_params(s->params, choice->interval);
    return tern_pipeline_paint(s->p, &q);
}

/* Finds the interval and remembers it. `why` gets a reason. */
static enum tern_status find(const struct tern_cache_search *s, struct tern_cache_choice *choice, struct tern_images **first, char why[WHY])
{
    const int count = s->job.params.count;
    if (count < MANY ? tern_cache_estimate(s, choice) : tern_cache_measure(s, choice, first))
        return tern_error_status(s->p->ctx);
    tern_cache_remember(&s->job, choice);
    if (count < MANY)
        snprintf(why, WHY, "by a trial in few steps: to measure it in full costs more than %d of %d pictures save", count, MANY);
    else
        snprintf(why, WHY, "measured on the first of %d pictures", count);
    return TERN_OK;
}

/* Chooses, and makes the pictures. */
static struct tern_images *run(const struct tern_cache_search *s)
{
    struct tern_cache_choice choice = {1, 1};
    struct tern_images *first = NULL;
    char why[WHY];
    if (!s->n)
        snprintf(why, WHY, "too few calls of the UNet to cut any short");
    else if (tern_cache_recall(s, &choice))
        snprintf(why, WHY, "found before for this kind of job");
    else if (tern_failed(s->p->ctx) || find(s, &choice, &first, why))
        return NULL;
    tell(s, &choice, why);
    return first ? tern_cache_rest(s, choice.interval, first) : all(s, &choice);
}

struct tern_images *tern_cache_generate(struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    struct tern_cache_search s;
    struct tern_images *out = open(&s, p, params, NULL) == TERN_OK ? run(&s) : NULL;
    close(&s);
    return out;
}
