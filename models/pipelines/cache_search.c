/* The search for an interval of DeepCache: pictures that are made with some, and how like they are to those of whole calls.
 *
 * With few pictures the measurement must be cheap: the first picture is made whole and with every second call in a fifth of the steps (in
 * img2img, and with a second pass, with the first call alone). How the loss shrinks from there to the intervals of all steps is a table.
 * With many pictures the first one is made whole, and then with the intervals in question, until the fastest one is found that holds.
 * Either way the intervals' whole calls are more frequent at the beginning, where most is lost. */
#include "models/pipelines/cache_auto.h"

/* Where whole calls are most frequent, and how much more: docs/deepcache.md has what that brings. */
#define CENTER 0
#define POWER 1.4
/* With fewer calls there is little to save, and nothing to measure in a fifth of them. */
#define LEAST_CALLS 8
/* Of the steps, for calls that are cheap to measure in; with fewer steps or calls there would be too few to cut short. */
#define PART 5
#define LEAST_STEPS 4
#define LEAST_TRIAL_CALLS 4
/* An interval that is longer than a trial. */
#define FIRST_ALONE 1000
/* The slowest first. share: what is lost, of what every second call in a fifth of the steps loses: of 10 pictures of the demo model
 * 9 lose less (docs/deepcache.md). */
static const struct {
    int interval;
    double share;
} candidates[] = {{TERN_CACHE_LEAST, 0.23}, {3, 0.66}, {4, 0.8}, {5, 1.15}, {8, 1.6}, {10, 2.3}};
#define CANDIDATES ((int)(sizeof(candidates) / sizeof(*candidates)))

struct tern_txt2img_params tern_cache_params(const struct tern_txt2img_params *params, int interval)
{
    struct tern_txt2img_params q = *params;
    q.cache_quality = 0;
    q.on_choice = NULL; /* the search tells what is chosen */
    q.cache_interval = interval;
    q.cache_center = CENTER;
    q.cache_pow = interval > 1 ? POWER : 0;
    return q;
}

/* Rows first..first+count-1 of latents that the caller gives, a new reference; NULL when it gives none. */
static tern_tensor *rows_of(const struct tern_cache_search *s, int first, int count)
{
    const struct tern_job *j = &s->job;
    if (!j->params.init_latents || tern_failed(s->p->ctx))
        return NULL;
    float *values = tern_alloc(s->p->ctx, (size_t)(j->params.count * j->picture) * sizeof(float));
    tern_tensor *t = NULL;
    tern_scope_begin(s->p->ctx);
    if (values && tern_job_read_latents(j, values) == TERN_OK)
        t = tern_tensor_create(s->p->ctx, TERN_F32, 4, (const int64_t[]){count, j->channels, j->lh, j->lw}, values + first * j->picture);
    tern_free(s->p->ctx, values);
    tern_tensor_ref(t);
    tern_scope_end(s->p->ctx, NULL);
    return t;
}

/* The first picture, which nobody is told of while it is made. */
static struct tern_images *try(const struct tern_cache_search *s, struct tern_txt2img_params q)
{
    q.init_latents = rows_of(s, 0, 1);
    q.count = 1;
    q.on_step = NULL;
    q.on_preview = NULL;
    q.on_kernel = NULL;
    struct tern_images *out = tern_failed(s->p->ctx) ? NULL : tern_pipeline_paint(s->p, &q);
    tern_tensor_unref(&q.init_latents);
    if (s->p->unet) /* another interval is another plan, whose memory is counted without this one's */
        tern_pipeline_unbind(s->p, s->p->unet->weights);
    return out;
}

static struct tern_images *try_interval(const struct tern_cache_search *s, int interval)
{
    return try(s, tern_cache_params(s->params, interval));
}

/* Calls of a job's first pass before it is run; 0: they cannot be laid out. */
static enum tern_status count_calls(const struct tern_cache_search *s, const struct tern_txt2img_params *q, int *calls)
{
    struct tern_job j;
    const enum tern_status st = tern_job_prepare(&j, s->p, q);
    *calls = st == TERN_OK ? tern_job_expected_calls(&j) - j.begin : 0;
    tern_job_destroy(&j);
    if (st == TERN_E_INVALID)
        tern_error_clear_own(s->p->ctx);
    return st == TERN_E_INVALID ? TERN_OK : st;
}

static double likeness(const struct tern_cache_search *s, const struct tern_images *a, const struct tern_images *b)
{
    double ssim = 0;
    if (a && b && !tern_failed(s->p->ctx))
        tern_image_ssim(tern_images_at(a, 0), tern_images_at(b, 0), &ssim);
    return ssim;
}

static int part_of(int steps)
{
    const int part = steps / PART > LEAST_STEPS ? steps / PART : LEAST_STEPS;
    return part < steps ? part : steps;
}

/* Every second call is whole. Where a pass begins behind the first steps, its first call alone is: less changes from call to call there, so
 * every second of a few calls loses less than the table expects, and of heun none would be shallow. Such a trial has as many more steps as
 * leave it some calls. */
static enum tern_status plan_trial(const struct tern_cache_search *s, struct tern_txt2img_params *q)
{
    const struct tern_txt2img_params *job = &s->job.params;
    int calls;
    *q = tern_cache_params(s->params, (job->init_image && job->strength < 1) || s->job.hires ? FIRST_ALONE : TERN_CACHE_LEAST);
    q->cache_pow = 0;
    q->init_latents = NULL; /* of all pictures */
    q->count = 1;
    q->steps = part_of(job->steps);
    q->hires.hr_second_pass_steps = part_of(q->hires.hr_second_pass_steps);
    while (count_calls(s, q, &calls) == TERN_OK && calls < LEAST_TRIAL_CALLS && q->steps < job->steps)
        q->steps++;
    return tern_error_status(s->p->ctx);
}

enum tern_status tern_cache_estimate(const struct tern_cache_search *s, struct tern_cache_choice *choice)
{
    struct tern_txt2img_params q, all;
    if (plan_trial(s, &q))
        return tern_error_status(s->p->ctx);
    all = q;
    all.cache_interval = 1;
    struct tern_images *whole = try(s, all), *cut = whole ? try(s, q) : NULL;
    const double lost = 1 - likeness(s, whole, cut);
    *choice = (struct tern_cache_choice){1, 1};
    for (int i = 0; i < s->n && lost * candidates[i].share <= 1 - s->params->cache_quality; i++)
        *choice = (struct tern_cache_choice){candidates[i].interval, 1 - lost * candidates[i].share};
    tern_images_destroy(&whole);
    tern_images_destroy(&cut);
    return tern_error_status(s->p->ctx);
}

enum tern_status tern_cache_measure(const struct tern_cache_search *s, struct tern_cache_choice *choice, struct tern_images **first)
{
    struct tern_images *whole = try_interval(s, 1), *best = NULL;
    int low = -1, high = s->n;
    *choice = (struct tern_cache_choice){1, 1};
    while (high - low > 1 && !tern_failed(s->p->ctx)) {
        const int middle = (low + high) / 2;
        struct tern_images *trial = try_interval(s, candidates[middle].interval);
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

struct tern_images *tern_cache_rest(const struct tern_cache_search *s, int interval, struct tern_images *first)
{
    struct tern_txt2img_params q = tern_cache_params(s->params, interval), own = *s->params;
    q.init_latents = rows_of(s, 1, s->job.params.count - 1);
    q.count = s->job.params.count - 1;
    q.seed = s->params->seed + 1;
    q.on_preview = own.on_preview ? show_next : NULL;
    q.on_preview_user = &own;
    struct tern_images *others = tern_failed(s->p->ctx) ? NULL : tern_pipeline_paint(s->p, &q);
    tern_tensor_unref(&q.init_latents);
    return tern_images_join(&first, &others);
}

/* The SSIM of a choice is an estimate, one less what is lost: rounding may leave it just below what was asked for. */
bool tern_cache_is_choice(const struct tern_cache_search *s, const struct tern_cache_choice *choice)
{
    bool candidate = false;
    for (int i = 0; i < s->n; i++)
        candidate = candidate || candidates[i].interval == choice->interval;
    return choice->interval == 1 || (candidate && choice->ssim >= s->params->cache_quality - 1e-6);
}

enum tern_status tern_cache_count_candidates(struct tern_cache_search *s)
{
    const int calls = tern_job_expected_calls(&s->job) - s->job.begin;
    while (calls >= LEAST_CALLS && s->n < CANDIDATES && candidates[s->n].interval < calls) {
        const struct tern_txt2img_params q = tern_cache_params(s->params, candidates[s->n].interval);
        int laid_out;
        if (count_calls(s, &q, &laid_out))
            return tern_error_status(s->p->ctx);
        if (!laid_out)
            break;
        s->n++;
    }
    return TERN_OK;
}
