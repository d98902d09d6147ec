/* What a job is computed in and how it lives in memory, chosen by what is predicted: the same job is checked with each dtype in question,
 * which makes its plans and tells the peak and the way in which it keeps to the budget. */
#include <stdio.h>
#include <string.h>

#include "graph/plan.h"
#include "models/images/image.h"
#include "models/pipelines/cache_auto.h"

/* The SSIM that DeepCache is to hold for speed. */
#define QUALITY 0.95
/* int8 changes the pictures a little: it has to save so much of a step's time. */
#define WORTH 0.95
#define TEXT 256
#define MOST_TIMES 4 /* that the least is looked for */

/* A way to compute, and what is predicted of it. */
struct trial {
    enum tern_dtype dtype;
    const char *quantize;
    size_t peak;
    bool fits, streams, tiles;
    enum tern_offload offload;
    double seconds; /* of a whole call of the UNet at best; 0: not known */
};
#define MOST_TRIALS 3

struct choosing {
    struct tern_context *ctx;
    const char *model;
    struct tern_pipeline_params *pipeline;
    struct tern_txt2img_params *job;
    const struct tern_optimize_params *params;
    size_t budget;  /* 0: none */
    bool quantized; /* the model comes so: int8 is no choice */
    bool exact;     /* predictions are to be what a job's own check says */
    bool fixed;     /* nor with weights of few bits or a recipe, which stay as they are given */
};

static const char *name_of(const struct choosing *c, const struct trial *t)
{
    return c->fixed || !t->quantize ? tern_dtype_name(t->dtype) : strcmp(t->quantize, "*") ? t->quantize : "int8";
}

static struct tern_pipeline *open(const struct choosing *c, const struct tern_pipeline_params *q)
{
    const struct tern_scope_stack scopes = tern_scopes_aside(c->ctx);
    struct tern_pipeline *p = c->params->open ? c->params->open(q, c->params->open_user) : tern_pipeline_load(c->ctx, c->model, q);
    tern_scopes_back(c->ctx, &scopes, "tern_pipeline_optimize: open");
    if (!p && !tern_failed(c->ctx))
        tern_fail(c->ctx, TERN_E_INVALID, "tern_pipeline_optimize: open gave no pipeline, and recorded no error");
    return p;
}

static size_t smaller(size_t a, size_t b) { return a && (!b || a < b) ? a : b; }

/* The job as it was checked: another one would take plans of its own. */
static enum tern_status prepare(const struct choosing *c, struct tern_pipeline *p, struct tern_job *j, size_t *bytes)
{
    if (c->job->cache_quality != 0)
        return tern_cache_choose(p, c->job, j, bytes);
    const enum tern_status st = tern_job_prepare(j, p, c->job);
    return st ? st : tern_job_choose_offload(j, bytes);
}

/* How the job would live, and what a call takes. */
static enum tern_status look(const struct choosing *c, struct tern_pipeline *p, struct trial *t)
{
    struct tern_job j;
    struct tern_device_peak peak;
    size_t bytes = 0;
    enum tern_status st = prepare(c, p, &j, &bytes);
    t->streams = j.resident;
    t->tiles = j.arena;
    t->offload = tern_job_offload(&j);
    const struct tern_stage stage = tern_job_stage(&j, "unet");
    const bool fits = !st && (!j.budget || bytes <= j.budget); /* else its plans have gone */
    const struct tern_plan *plan = fits ? tern_pipeline_plan(p, &stage) : NULL;
    st = tern_device_measure(tern_pipeline_device(p, "unet"), &peak);
    t->seconds = plan && !st ? tern_plan_least_seconds(plan, &peak) * (j.params.count / tern_job_group(&j)) : 0;
    tern_job_destroy(&j);
    return tern_error_status(c->ctx);
}

/* Predicts with a budget; 0: none. */
static enum tern_status try(const struct choosing *c, size_t budget, struct trial *t)
{
    struct tern_pipeline_params q = *c->pipeline;
    q.dtype = t->dtype;
    q.quantize = t->quantize;
    q.budget = budget;
    q.single_use = q.single_use && c->job->cache_quality == 0; /* which makes more than one job of it */
    struct tern_pipeline *p = open(c, &q);
    if (p)
        p->tried = !c->exact;
    if (p && tern_generate_check(p, c->job, &t->peak) == TERN_OK && (!budget || t->peak <= budget || budget == 1)) {
        p->calls++; /* `open` may have told others of it */
        look(c, p, t);
        p->calls--;
    }
    t->fits = !budget || t->peak <= budget;
    tern_pipeline_destroy(&p);
    tern_plan_cache_drop(c->ctx); /* plans of what is not taken would count as memory that is in use */
    return tern_error_status(c->ctx);
}

/* Those that the goal leaves, the first that comes to mind first. */
static int list_trials(const struct choosing *c, enum tern_goal goal, struct trial *list)
{
    const enum tern_dtype fast = tern_context_fast_dtype(c->ctx);
    int n = 0;
    if (c->params->keep_dtype) {
        list[0] = (struct trial){.dtype = c->pipeline->dtype, .quantize = c->pipeline->quantize};
        return 1;
    }
    if (goal == TERN_GOAL_QUALITY)
        list[n++] = (struct trial){.dtype = TERN_F32};
    if (goal != TERN_GOAL_QUALITY || fast != TERN_F32)
        list[n++] = (struct trial){.dtype = fast};
    if (!c->quantized && !c->fixed)
        list[n++] = (struct trial){.dtype = fast, .quantize = "*"};
    if (goal == TERN_GOAL_MEMORY && fast != TERN_F32)
        list[n++] = (struct trial){.dtype = TERN_F32};
    for (int i = 0; i < n && c->fixed; i++)
        list[i].quantize = c->pipeline->quantize;
    return n;
}

static void tell(const struct choosing *c, const char *what, const char *value, const char *why)
{
    tern_choice_tell(c->ctx, c->params->on_choice, c->params->on_choice_user, what, value, why);
}

/* What is told of the best: what the others took when they were tried counts, too. */
static size_t most_of(const struct choosing *c, const struct trial *best)
{
    const size_t reached = tern_memory_peak(c->ctx);
    return reached > best->peak && (!c->budget || reached <= c->budget) ? reached : best->peak;
}

static double mib(size_t bytes) { return (double)bytes / (1 << 20); }

/* Whether the goal would rather have b. */
static bool is_better(enum tern_goal goal, const struct trial *a, const struct trial *b)
{
    if (goal == TERN_GOAL_MEMORY)
        return b->peak < a->peak;
    if (a->fits != b->fits || goal == TERN_GOAL_QUALITY) /* the list is in order of quality */
        return b->fits && !a->fits;
    if (a->streams != b->streams)
        return a->streams;
    return b->seconds > 0 && b->seconds < WORTH * a->seconds;
}

/* What counts of one of them. */
static int describe(const struct choosing *c, const struct trial *t, char *out, size_t size)
{
    if (!t->fits)
        return snprintf(out, size, "needs %.0f MiB, more than the budget", mib(t->peak));
    if (c->params->goal != TERN_GOAL_SPEED || t->seconds <= 0)
        return snprintf(out, size, "at most %.0f MiB%s", mib(t->peak), t->streams ? ", streamed" : "");
    return snprintf(out, size, "%.3g s a call of the UNet at best%s", t->seconds, t->streams ? ", streamed" : "");
}

/* Behind what the text has already. */
static int add(const struct choosing *c, const struct trial *t, char text[TEXT], int used)
{
    used += snprintf(text + used, (size_t)(TEXT - used), "; %s ", name_of(c, t));
    return used < TEXT ? used + describe(c, t, text + used, (size_t)(TEXT - used)) : used;
}

/* Why of all that were tried this one: it, and then the others. */
static void explain_dtype(const struct choosing *c, const struct trial *list, int n, const struct trial *best)
{
    char text[TEXT];
    int used = c->params->keep_dtype ? snprintf(text, TEXT, "as given") : describe(c, best, text, TEXT);
    for (int i = 0; i < n && used < TEXT; i++)
        if (&list[i] != best)
            used = add(c, &list[i], text, used);
    tell(c, "dtype", name_of(c, best), text);
}

static void explain(const struct choosing *c, const struct trial *list, int n, const struct trial *best)
{
    char text[TEXT], value[32];
    explain_dtype(c, list, n, best);
    const struct tern_txt2img_params *q = c->job;
    snprintf(value, sizeof(value), q->cache_quality != 0 ? "auto" : "%d", q->cache_interval > 1 ? q->cache_interval : 1);
    if (c->params->keep_cache)
        snprintf(text, sizeof(text), "as given");
    else if (q->cache_quality != 0)
        snprintf(text, sizeof(text), "quality %g", q->cache_quality);
    else
        snprintf(text, sizeof(text),
                 q->denoising_start > 0 || q->denoising_end > 0 ? "a picture by two models is not measured"
                 : c->params->goal == TERN_GOAL_SPEED           ? "the budget has no room for what it keeps"
                 : c->params->goal == TERN_GOAL_MEMORY          ? "what it keeps takes memory"
                                                                : "every call is whole");
    tell(c, "deepcache", value, text);
    if (c->budget)
        snprintf(text, sizeof(text), "%sat most %.0f MiB of %.0f", c->params->keep_offload ? "as given, " : "", mib(most_of(c, best)),
                 mib(c->budget));
    else
        snprintf(text, sizeof(text), "%sat most %.0f MiB, no budget", c->params->keep_offload ? "as given, " : "", mib(most_of(c, best)));
    tell(c, "offload", tern_offload_name(best->offload), text);
    tell(c, "tiling", best->tiles ? "vae" : "none",
         best->tiles ? "the VAE works in bands of rows" : "the VAE has room for the whole picture");
}

/* What the goal makes of the job itself. */
static void set_cache(struct choosing *c)
{
    struct tern_txt2img_params *q = c->job;
    if (c->params->keep_cache)
        return;
    q->cache_interval = q->cache_branch_id = q->cache_center = 0;
    q->cache_pow = 0;
    const bool small = (q->width && q->width < TERN_SSIM_SIDE) || (q->height && q->height < TERN_SSIM_SIDE); /* not to be measured */
    q->cache_quality = c->params->goal == TERN_GOAL_SPEED && q->denoising_start == 0 && q->denoising_end == 0 && !small ? QUALITY : 0;
}

/* A budget that a job keeps to which was tried with the least of all: what is predicted beside other plans may be a little more. False:
 * there is none, or none that is within the caller's; then it does not fit, or an error is recorded. */
static bool find_least(struct choosing *c, struct trial *best)
{
    size_t budget = best->peak;
    c->exact = true;
    for (int i = 0; i < MOST_TIMES && (!c->budget || budget <= c->budget); i++, budget = best->peak) {
        if (try(c, budget, best))
            return false;
        if (best->fits) {
            c->pipeline->budget = budget;
            return true;
        }
    }
    best->fits = false;
    return false;
}

/* Opens what was chosen and says so. What can live with the least may have room for more in that: then it does not live as it was tried.
 * NULL without an error: it does not fit after all. */
static struct tern_pipeline *take(struct choosing *c, struct trial *list, int n, struct trial *best)
{
    const struct tern_pipeline_params before = *c->pipeline;
    struct tern_pipeline_params *q = c->pipeline;
    q->dtype = best->dtype;
    q->quantize = best->quantize;
    if (c->params->goal == TERN_GOAL_MEMORY && !find_least(c, best)) {
        *q = before;
        return NULL;
    }
    explain(c, list, n, best);
    return open(c, q);
}

/* What needs the least of all, after everything that the goal would rather have failed: f32 may be it where weights are small. */
static struct tern_pipeline *take_least(struct choosing *c)
{
    struct trial list[MOST_TRIALS], *least = list;
    const int n = list_trials(c, TERN_GOAL_MEMORY, list);
    if (!c->params->keep_cache) {
        c->job->cache_quality = 0;
        c->job->cache_interval = 0;
    }
    for (int i = 0; i < n; i++) {
        if (try(c, 1, &list[i]))
            return NULL;
        list[i].fits = list[i].peak <= c->budget;
        least = list[i].peak < least->peak ? &list[i] : least;
    }
    struct tern_pipeline *p = least->fits && !try(c, c->budget, least) ? take(c, list, n, least) : NULL;
    if (p || tern_failed(c->ctx))
        return p;
    tern_fail(c->ctx, TERN_E_BUDGET,
              "memory budget: this picture needs at least %.1f MiB (%zu bytes), with dtype %s and offload %s; the budget is %.1f MiB; a "
              "smaller size or count%s would help",
              mib(least->peak), least->peak, name_of(c, least), tern_offload_name(least->offload), mib(c->budget),
              c->params->keep_dtype || c->params->keep_offload ? ", or dtype and offload left open," : "");
    return NULL;
}

/* Predicts those of the list, of *n, and finds the best; in order of quality the first that fits, and the others are not tried. */
static enum tern_status try_all(const struct choosing *c, struct trial *list, int *n, int *best)
{
    const enum tern_goal goal = c->params->goal;
    *best = 0;
    for (int i = 0; i < *n; i++) {
        if (try(c, goal == TERN_GOAL_MEMORY ? 1 : c->budget, &list[i]))
            return tern_error_status(c->ctx);
        if (goal == TERN_GOAL_MEMORY)
            list[i].fits = !c->budget || list[i].peak <= c->budget;
        *best = i && is_better(goal, &list[*best], &list[i]) ? i : *best;
        if (goal == TERN_GOAL_QUALITY && list[i].fits)
            *n = i + 1;
    }
    return TERN_OK;
}

/* Whether the files of the UNet say that it is quantised. Words of layers in int8 are none of these: a picture that is made again has them.
 */
static enum tern_status find_quantized(struct choosing *c)
{
    struct tern_pipeline_params plain = *c->pipeline;
    c->fixed = plain.recipe || (plain.quantize && strstr(plain.quantize, ":w"));
    plain.quantize = NULL;
    struct tern_pipeline *p = c->params->keep_dtype || c->fixed ? NULL : open(c, &plain);
    c->quantized = p && p->quantize;
    tern_pipeline_destroy(&p);
    return tern_error_status(c->ctx);
}

static struct tern_pipeline *choose(struct choosing *c)
{
    struct trial list[MOST_TRIALS];
    if (find_quantized(c))
        return NULL;
    int n = list_trials(c, c->params->goal, list), best = -1;
    set_cache(c);
    if (try_all(c, list, &n, &best))
        return NULL;
    if (!list[best].fits && !c->params->keep_cache && c->job->cache_quality != 0) {
        c->job->cache_quality = 0; /* it takes memory */
        if (try_all(c, list, &n, &best))
            return NULL;
    }
    while (list[best].fits) {
        struct tern_pipeline *p = take(c, list, n, &list[best]);
        if (p || tern_failed(c->ctx))
            return p;
        for (int i = 0; i < n; i++)
            best = list[i].fits && (!list[best].fits || list[i].peak < list[best].peak) ? i : best;
    }
    return take_least(c);
}

struct tern_pipeline *tern_pipeline_optimize(struct tern_context *ctx, const char *model, struct tern_pipeline_params *pipeline,
                                             struct tern_txt2img_params *job, const struct tern_optimize_params *params)
{
    if (!ctx || tern_failed(ctx))
        return NULL;
    if (!pipeline || !job || !params || (unsigned)params->goal > TERN_GOAL_QUALITY) {
        tern_fail(ctx, TERN_E_INVALID,
                  "tern_pipeline_optimize: expected params of pipeline and job, and speed, memory or quality as the goal");
        return NULL;
    }
    struct tern_pipeline_params own_pipeline = *pipeline; /* the caller's stay as they are where nothing is chosen */
    struct tern_txt2img_params own_job = *job;
    if (!params->keep_offload) {
        own_pipeline.offload = TERN_OFFLOAD_AUTO;
        own_pipeline.offload_components = (struct tern_offload_components){TERN_OFFLOAD_AUTO};
    }
    struct choosing c = {ctx, model, &own_pipeline, &own_job, params, smaller(ctx->params.budget, pipeline->budget)};
    const size_t former = tern_memory_peak(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_pipeline *p = choose(&c);
    const size_t reached = tern_memory_peak(ctx);
    tern_memory_raise_peak(ctx, former);
    if (p) {
        p->reached = !c.budget || reached <= c.budget ? reached : 0;
        *pipeline = own_pipeline;
        *job = own_job;
    }
    return p;
}
