/* DeepCache by the quality that is asked for: the fastest interval whose pictures are still as like those of whole calls.
 *
 * With few pictures the measurement must be cheap: the first picture is made whole and with every second call in a fifth of the steps.
 * How the loss shrinks from there to the intervals of all steps is a table. With many pictures the first one is made whole, and then with
 * the intervals in question, until the fastest one is found that holds. Either way the intervals' whole calls are more frequent at the
 * beginning, where most is lost. */
#include "models/pipelines/cache_auto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

/* Where whole calls are most frequent, and how much more: docs/deepcache.md has what that brings. */
#define CENTER 0
#define POWER 1.4
/* From so many pictures on the first one is measured in full: what that takes comes back with the others. */
#define MANY 4
/* With fewer calls there is little to save, and nothing to measure in a fifth of them. */
#define LEAST_CALLS 8
/* Of the calls that are cheap to measure in. */
#define PART 5
#define LEAST_STEPS 4
/* The window of SSIM, and bytes of its sums for each pixel of a row. */
#define LEAST_SIDE 11
#define SSIM_ROW (11 * 5 * sizeof(double))
/* Bytes of a picture beside its pixels. */
#define TEXT 4096
/* Characters of a reason. */
#define WHY 160

/* The slowest first. share: what is lost, of what every second call in a fifth of the steps loses: of 10 pictures of the demo model
 * 9 lose less (docs/deepcache.md). */
static const struct {
    int interval;
    double share;
} candidates[] = {{2, 0.23}, {3, 0.66}, {4, 0.8}, {5, 1.15}, {8, 1.6}, {10, 2.3}};
#define CANDIDATES ((int)(sizeof(candidates) / sizeof(*candidates)))

/* A job whose interval is to be found. */
struct search {
    struct tern_pipeline *p;
    const struct tern_txt2img_params *params; /* the caller's */
    struct tern_job job;                      /* of them, with the slowest candidate: checked, and never run */
    int n;                                    /* candidates that can be tried */
    bool single_use;                          /* as the pipeline had it */
    size_t budget;                            /* likewise */
    size_t beside;                            /* the pictures that are compared, and what SSIM takes */
};

/* The caller's parameters with an interval; 1: whole calls alone. */
static struct tern_txt2img_params with(const struct tern_txt2img_params *params, int interval)
{
    struct tern_txt2img_params q = *params;
    q.cache_quality = 0;
    q.cache_interval = interval;
    q.cache_center = CENTER;
    q.cache_pow = interval > 1 ? POWER : 0;
    return q;
}

/* Rows first..first+count-1 of latents that the caller gives, a new reference; NULL when it gives none. */
static tern_tensor *rows_of(const struct search *s, int first, int count)
{
    const tern_tensor *all = s->params->init_latents;
    const struct tern_job *j = &s->job;
    if (!all || tern_failed(s->p->ctx))
        return NULL;
    float *values = tern_alloc(s->p->ctx, (size_t)(j->params.count * j->picture) * sizeof(float));
    tern_tensor *t = NULL;
    tern_scope_begin(s->p->ctx);
    if (values && tern_tensor_read(all, TERN_F32, values, (size_t)(j->params.count * j->picture) * sizeof(float)) == TERN_OK)
        t = tern_tensor_create(s->p->ctx, TERN_F32, 4, (const int64_t[]){count, j->channels, j->lh, j->lw}, values + first * j->picture);
    tern_free(s->p->ctx, values);
    tern_tensor_ref(t);
    tern_scope_end(s->p->ctx, NULL);
    return t;
}

/* The first picture, which nobody is told of while it is made. */
static struct tern_images *try(const struct search *s, int interval, int steps)
{
    struct tern_txt2img_params q = with(s->params, interval);
    q.init_latents = rows_of(s, 0, 1);
    q.count = 1;
    if (steps) {
        q.cache_pow = 0;
        q.steps = steps;
        q.hires.hr_second_pass_steps = (q.hires.hr_second_pass_steps + PART - 1) / PART;
    }
    q.on_step = NULL;
    q.on_preview = NULL;
    q.on_kernel = NULL;
    struct tern_images *out = tern_failed(s->p->ctx) ? NULL : tern_generate(s->p, &q);
    tern_tensor_unref(&q.init_latents);
    if (s->p->unet) /* another interval is another plan, whose memory is counted without this one's */
        tern_pipeline_unbind(s->p, s->p->unet->weights);
    return out;
}

static double likeness(const struct search *s, const struct tern_images *a, const struct tern_images *b)
{
    double ssim = 0;
    if (a && b && !tern_failed(s->p->ctx))
        tern_image_ssim(tern_images_at(a, 0), tern_images_at(b, 0), &ssim);
    return ssim;
}

/* In a fifth of the steps. */
static enum tern_status estimate(const struct search *s, struct tern_cache_choice *choice)
{
    const int steps = s->job.params.steps / PART > LEAST_STEPS ? s->job.params.steps / PART : LEAST_STEPS;
    struct tern_images *whole = try(s, 1, steps), *cut = whole ? try(s, 2, steps) : NULL;
    const double lost = 1 - likeness(s, whole, cut);
    *choice = (struct tern_cache_choice){1, 1};
    for (int i = 0; i < s->n && lost * candidates[i].share <= 1 - s->params->cache_quality; i++)
        *choice = (struct tern_cache_choice){candidates[i].interval, 1 - lost * candidates[i].share};
    tern_images_destroy(&whole);
    tern_images_destroy(&cut);
    return tern_error_status(s->p->ctx);
}

/* The fastest candidate that holds by bisection, as less is lost with a smaller interval. *first: the first picture, made with it. */
static enum tern_status measure(const struct search *s, struct tern_cache_choice *choice, struct tern_images **first)
{
    struct tern_images *whole = try(s, 1, 0), *best = NULL;
    int low = -1, high = s->n;
    *choice = (struct tern_cache_choice){1, 1};
    while (high - low > 1 && !tern_failed(s->p->ctx)) {
        const int middle = (low + high) / 2;
        struct tern_images *trial = try(s, candidates[middle].interval, 0);
        const double ssim = likeness(s, whole, trial);
        const bool holds = ssim >= s->params->cache_quality;
        if (holds) {
            *choice = (struct tern_cache_choice){candidates[middle].interval, ssim};
            tern_images_destroy(&best);
            best = trial;
        } else
            tern_images_destroy(&trial);
        *(holds ? &low : &high) = middle;
    }
    *first = best ? best : whole;
    if (best)
        tern_images_destroy(&whole);
    if (tern_failed(s->p->ctx))
        tern_images_destroy(first);
    return tern_error_status(s->p->ctx);
}

/* Previews count on behind the first picture. */
static void show_next(int step, int steps, int index, const struct tern_image *picture, void *user)
{
    const struct tern_txt2img_params *q = user;
    q->on_preview(step, steps, index + 1, picture, q->on_preview_user);
}

/* The first picture (taken) and the others, made with the interval. */
static struct tern_images *rest(const struct search *s, int interval, struct tern_images *first)
{
    struct tern_txt2img_params q = with(s->params, interval), own = *s->params;
    q.init_latents = rows_of(s, 1, s->job.params.count - 1);
    q.count = s->job.params.count - 1;
    q.seed = s->params->seed + 1;
    q.on_preview = own.on_preview ? show_next : NULL;
    q.on_preview_user = &own;
    struct tern_images *others = tern_failed(s->p->ctx) ? NULL : tern_generate(s->p, &q);
    tern_tensor_unref(&q.init_latents);
    return tern_images_join(&first, &others);
}

static void tell(const struct search *s, const struct tern_cache_choice *choice, const char *why)
{
    char value[64], text[256];
    const struct tern_choice c = {"deepcache", value, text};
    if (!s->params->on_choice)
        return;
    snprintf(value, sizeof(value), choice->interval > 1 ? "%d quad:%d:%g" : "%d", choice->interval, CENTER, POWER);
    snprintf(text, sizeof(text), "SSIM %.3f, asked %g; %s", choice->ssim, s->params->cache_quality, why);
    s->params->on_choice(&c, s->params->on_choice_user);
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

/* The candidates that leave a call to cut short, and whose whole calls can be laid out. */
static enum tern_status count_candidates(struct search *s)
{
    const int calls = tern_job_expected_calls(&s->job) - s->job.begin;
    while (calls >= LEAST_CALLS && s->n < CANDIDATES && candidates[s->n].interval < calls) {
        const struct tern_txt2img_params q = with(s->params, candidates[s->n].interval);
        struct tern_job j;
        const enum tern_status st = tern_job_prepare(&j, s->p, &q);
        tern_job_destroy(&j);
        if (st != TERN_OK && st != TERN_E_INVALID)
            return st;
        tern_error_clear(s->p->ctx);
        if (st)
            break;
        s->n++;
    }
    return TERN_OK;
}

/* The peaks of all jobs that may be run: the first picture, those behind it or all, with whole calls alone and with some cut short. */
static enum tern_status predict_all(const struct search *s, size_t *peak)
{
    const int count = s->job.params.count, counts[] = {1, count, count < MANY ? count : count - 1};
    for (int i = 0; i < 3; i++)
        for (int cut = 0; cut <= (s->n > 0); cut++) {
            struct tern_txt2img_params q = with(s->params, cut ? candidates[0].interval : 1);
            size_t one = 0;
            q.count = counts[i];
            q.init_latents = NULL;
            if (tern_generate_check(s->p, &q, peak ? &one : NULL))
                return tern_error_status(s->p->ctx);
            if (peak)
                *peak = one > *peak ? one : *peak;
        }
    return TERN_OK;
}

/* Once more when all plans are there, whose memory counts; beside them are the pictures that are compared. */
static enum tern_status predict(const struct search *s, size_t *peak)
{
    if (predict_all(s, peak) || predict_all(s, peak))
        return tern_error_status(s->p->ctx);
    if (peak)
        *peak += s->beside;
    return TERN_OK;
}

/* What of the budget is left for a job; 0: there is none. */
static size_t budget_beside(const struct search *s)
{
    const size_t budget = tern_pipeline_budget(s->p);
    return !budget ? 0 : budget > s->beside ? budget - s->beside : 1;
}

/* Checks all that may be run. To be closed, also after an error. */
static enum tern_status open(struct search *s, struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak)
{
    if (peak)
        *peak = 0;
    const struct tern_txt2img_params whole = with(params, 1);
    *s = (struct search){.p = p, .params = params, .job = {.p = p}, .single_use = p->params.single_use, .budget = p->params.budget};
    p->params.single_use = false; /* the UNet of one picture is that of the next */
    if (tern_job_prepare(&s->job, p, &whole) || check(params, p->ctx))
        return tern_error_status(p->ctx);
    const struct tern_txt2img_params *size = &tern_job_last(&s->job)->params;
    if (size->width < LEAST_SIDE || size->height < LEAST_SIDE)
        return tern_fail(p->ctx, TERN_E_INVALID, "cache_quality: SSIM is of pictures of %d x %d pixels or more, found %d x %d", LEAST_SIDE,
                         LEAST_SIDE, size->width, size->height);
    s->job.params.cache_quality = params->cache_quality;
    if (count_candidates(s))
        return tern_error_status(p->ctx);
    s->beside = s->n ? 3 * (3 * (size_t)size->width * (size_t)size->height + TEXT) + SSIM_ROW * (size_t)size->width : 0;
    p->params.budget = budget_beside(s);
    return predict(s, peak) ? tern_error_status(p->ctx) : TERN_OK;
}

static void close(struct search *s)
{
    s->p->params.single_use = s->single_use;
    s->p->params.budget = s->budget;
    tern_job_destroy(&s->job);
}

enum tern_status tern_cache_check(struct tern_pipeline *p, const struct tern_txt2img_params *params, size_t *peak)
{
    struct search s;
    const enum tern_status st = open(&s, p, params, peak);
    close(&s);
    return st;
}

/* All pictures with one interval. */
static struct tern_images *all(const struct search *s, const struct tern_cache_choice *choice)
{
    const struct tern_txt2img_params q = with(s->params, choice->interval);
    return tern_generate(s->p, &q);
}

/* Finds the interval and remembers it. `why` gets a reason. */
static enum tern_status find(const struct search *s, struct tern_cache_choice *choice, struct tern_images **first, char why[WHY])
{
    const int count = s->job.params.count;
    if (count < MANY ? estimate(s, choice) : measure(s, choice, first))
        return tern_error_status(s->p->ctx);
    tern_cache_remember(&s->job, choice);
    if (count < MANY)
        snprintf(why, WHY, "by a trial in a fifth of the steps: to measure it in full costs more than %d of %d pictures save", count, MANY);
    else
        snprintf(why, WHY, "measured on the first of %d pictures", count);
    return TERN_OK;
}

/* Chooses, and makes the pictures. */
static struct tern_images *run(const struct search *s)
{
    struct tern_cache_choice choice = {1, 1};
    struct tern_images *first = NULL;
    char why[WHY];
    if (!s->n)
        snprintf(why, WHY, "too few calls of the UNet to cut any short");
    else if (tern_cache_recall(&s->job, &choice))
        snprintf(why, WHY, "found before for this kind of job");
    else if (tern_failed(s->p->ctx) || find(s, &choice, &first, why))
        return NULL;
    tell(s, &choice, why);
    return first ? rest(s, choice.interval, first) : all(s, &choice);
}

struct tern_images *tern_cache_generate(struct tern_pipeline *p, const struct tern_txt2img_params *params)
{
    const bool outer = p->busy; /* a callback may come here */
    struct search s;
    p->busy = true;
    struct tern_images *out = open(&s, p, params, NULL) == TERN_OK ? run(&s) : NULL;
    close(&s);
    p->busy = outer;
    return out;
}
