/* The public scheduler: checks arguments, keeps the run's state, and calls the sampler's functions. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

#define WHERE TERN_SCHEDULER_CONFIG

/* The sampler that was asked for, or the one that the config names. NULL with the error recorded. */
static const struct tern_sampler_fns *choose(struct tern_context *ctx, const json_t *config, enum tern_sampler sampler)
{
    char list[256];
    tern_sampler_list(list, sizeof(list), false);
    if (sampler != TERN_SAMPLER_DEFAULT) {
        const struct tern_sampler_fns *fns = tern_sampler_fns(sampler);
        if (!fns)
            tern_fail(ctx, TERN_E_INVALID, "scheduler: no sampler has the number %d; there are %s", (int)sampler, list);
        return fns;
    }
    const char *name = NULL;
    if (tern_json_string(ctx, config, WHERE, "_class_name", &name))
        return NULL;
    if (!name) {
        tern_fail(ctx, TERN_E_FORMAT, WHERE ": no \"_class_name\"; choose a sampler: %s", list);
        return NULL;
    }
    return tern_sampler_of_class(ctx, WHERE ": \"_class_name\"", name);
}

/* The schedule that was asked for, or the one that the config names. */
static enum tern_status apply_schedule(struct tern_scheduler *s, enum tern_schedule schedule)
{
    char list[256];
    const struct tern_scheduler_config *c = &s->config;
    if ((unsigned)schedule >= TERN_SCHEDULE_COUNT) {
        tern_schedule_list(list, sizeof(list));
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: no schedule has the number %d; there are %s", (int)schedule, list);
    }
    if (schedule != TERN_SCHEDULE_DEFAULT && !s->fns->has_schedules) {
        tern_sampler_list(list, sizeof(list), true);
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: sampler %s has no %s schedule; these have it: %s", s->fns->name,
                         tern_schedule_name(schedule), list);
    }
    if (schedule == TERN_SCHEDULE_DEFAULT && c->use_karras_sigmas + c->use_exponential_sigmas + c->use_beta_sigmas > 1)
        return tern_fail(s->ctx, TERN_E_FORMAT,
                         WHERE ": only one of \"use_karras_sigmas\", \"use_exponential_sigmas\", \"use_beta_sigmas\" can be true");
    s->schedule = schedule != TERN_SCHEDULE_DEFAULT ? schedule
                  : c->use_karras_sigmas            ? TERN_SCHEDULE_KARRAS
                  : c->use_exponential_sigmas       ? TERN_SCHEDULE_EXPONENTIAL
                  : c->use_beta_sigmas              ? TERN_SCHEDULE_BETA
                                                    : TERN_SCHEDULE_DEFAULT;
    return TERN_OK;
}

struct tern_scheduler *tern_scheduler_create(struct tern_context *ctx, const char *config_json, enum tern_sampler sampler,
                                             enum tern_schedule schedule)
{
    if (!ctx)
        return NULL;
    json_t *config = tern_scheduler_parse(ctx, config_json);
    if (!config)
        return NULL;
    const struct tern_sampler_fns *fns = choose(ctx, config, sampler);
    struct tern_scheduler *s = fns ? tern_calloc(ctx, 1, sizeof(*s)) : NULL;
    if (s) {
        tern_context_ref(ctx);
        s->ctx = ctx;
        s->fns = fns;
        s->batch = 1;
        if (tern_scheduler_read_config(s, config, WHERE) || apply_schedule(s, schedule) || tern_scheduler_make_table(s) ||
            tern_scheduler_set_options(s, NULL))
            tern_scheduler_destroy(&s);
    }
    json_decref(config);
    return s;
}

void tern_scheduler_destroy(struct tern_scheduler **scheduler)
{
    if (!scheduler || !*scheduler)
        return;
    struct tern_scheduler *s = *scheduler;
    struct tern_context *ctx = s->ctx;
    tern_free(ctx, s->trained_betas);
    tern_free(ctx, s->alphas_cumprod);
    tern_free(ctx, s->train_sigmas);
    tern_free(ctx, s->timesteps);
    tern_free(ctx, s->sigmas);
    tern_free(ctx, s->row_memory);
    tern_free(ctx, s);
    tern_context_unref(ctx);
    *scheduler = NULL;
}

enum tern_sampler tern_scheduler_sampler(const struct tern_scheduler *s) { return s ? s->fns->sampler : TERN_SAMPLER_DEFAULT; }

/* A new run begins at call `begin`. */
static void restart(struct tern_scheduler *s, int begin)
{
    s->begin = begin;
    s->anew = false;
    s->done = s->stored = s->order = s->churned = 0;
    s->n = 0;
    tern_free(s->ctx, s->row_memory);
    s->row_memory = NULL;
}

/* The last level before the end goes, and the step to it. */
static enum tern_status discard_penultimate(struct tern_scheduler *s)
{
    const float end = s->sigmas[s->calls];
    if (s->calls <= s->fns->calls_per_step) /* some schedules have fewer timesteps than were asked for */
        return tern_fail(s->ctx, TERN_E_INVALID,
                         "scheduler: discard_penultimate_sigma leaves none of the schedule's timesteps; expected "
                         "two or more");
    s->calls -= s->fns->calls_per_step;
    s->sigmas[s->calls] = end;
    s->sigma_count = s->calls + 1;
    return TERN_OK;
}

enum tern_status tern_scheduler_set_steps(struct tern_scheduler *s, int steps)
{
    if (!s)
        return TERN_E_INVALID;
    restart(s, 0);
    s->steps = s->calls = s->sigma_count = 0;
    const int more = s->options.discard_penultimate_sigma;
    if (steps < 1 || steps > s->config.num_train_timesteps - more)
        return tern_fail(s->ctx, TERN_E_INVALID, "steps: expected 1..%lld (the model's training timesteps%s), found %d",
                         (long long)s->config.num_train_timesteps - more, more ? " but the one that is discarded" : "", steps);
    size_t room = TERN_SCHEDULER_ROOM(steps + more) + (size_t)s->fns->most_calls;
    tern_free(s->ctx, s->timesteps);
    tern_free(s->ctx, s->sigmas);
    s->timesteps = tern_calloc(s->ctx, room, sizeof(double));
    s->sigmas = tern_calloc(s->ctx, room, sizeof(float));
    enum tern_status status = TERN_E_NO_MEMORY;
    if (s->timesteps && s->sigmas) {
        s->steps = steps + more;
        status = s->fns->set_steps(s);
        s->steps = steps;
    }
    if (!status && more)
        status = discard_penultimate(s);
    if (status)
        s->steps = s->calls = s->sigma_count = 0;
    return status;
}

enum tern_status tern_scheduler_set_batch(struct tern_scheduler *s, int pictures)
{
    if (!s)
        return TERN_E_INVALID;
    if (pictures < 1)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: a batch of %d pictures; expected at least 1", pictures);
    s->batch = pictures;
    return TERN_OK;
}

int tern_scheduler_calls(const struct tern_scheduler *s) { return s ? s->calls : 0; }

int tern_scheduler_expected_calls(const struct tern_scheduler *s)
{
    return s && s->fns->expected && s->calls ? s->fns->expected(s) : tern_scheduler_calls(s);
}

double tern_scheduler_timestep(const struct tern_scheduler *s, int i)
{
    if (!s || i < 0 || i >= s->calls)
        return 0;
    float sigma = s->sigma_count ? tern_call_sigma(s, i) : 0;
    return s->sigma_count && sigma != s->sigmas[i] ? (double)(float)tern_timestep_of(s, (double)sigma) : s->timesteps[i];
}

int tern_scheduler_sigma_count(const struct tern_scheduler *s) { return s ? s->sigma_count : 0; }

double tern_scheduler_sigma(const struct tern_scheduler *s, int i) { return s && i >= 0 && i < s->sigma_count ? (double)s->sigmas[i] : 0; }

double tern_scheduler_init_noise_sigma(const struct tern_scheduler *s)
{
    if (!s || s->fns->noise != TERN_NOISE_GROWING || !s->sigma_count)
        return 1;
    float max = s->sigmas[0];
    for (int i = 1; i < s->sigma_count; i++)
        max = fmaxf(max, s->sigmas[i]);
    return (double)(s->config.timestep_spacing == TERN_SPACING_LEADING ? sqrtf(max * max + 1) : max);
}

static int skip(struct tern_scheduler *s, int steps)
{
    int begin = steps * s->fns->calls_per_step;
    if (s->fns->skip_steps) {
        restart(s, 0);
        return s->fns->skip_steps(s, steps) ? -1 : 0;
    }
    restart(s, begin < s->calls ? begin : s->calls);
    return s->begin;
}

int tern_scheduler_begin_at(struct tern_scheduler *s, double strength)
{
    if (!s)
        return -1;
    if (!s->steps || !(strength >= 0 && strength <= 1)) {
        tern_fail(s->ctx, TERN_E_INVALID, s->steps ? "strength: expected 0..1, found %g" : "scheduler: no steps are set (strength %g)",
                  strength);
        return -1;
    }
    /* StableDiffusionImg2ImgPipeline.get_timesteps: counted in steps, whatever the number of calls. */
    return skip(s, s->steps - (int)(s->steps * strength));
}

int tern_scheduler_skip(struct tern_scheduler *s, int steps)
{
    const int begin = skip(s, steps);
    s->anew = true;
    return begin;
}

int tern_scheduler_calls_until(const struct tern_scheduler *s, double part)
{
    int n = 0;
    if (!s || !(part >= 0 && part <= 1))
        return 0;
    const double train = (double)s->config.num_train_timesteps, last = rint(train - part * train);
    for (int i = 0; i < s->calls; i++)
        n += s->timesteps[i] >= last;
    return n;
}

int tern_scheduler_begin_behind(struct tern_scheduler *s, double part)
{
    if (!s)
        return -1;
    if (s->fns->skip_steps) {
        tern_fail(s->ctx, TERN_E_UNSUPPORTED, "denoising_start: %s chooses its steps itself", s->fns->name);
        return -1;
    }
    if (!s->steps || !(part >= 0 && part <= 1)) {
        tern_fail(s->ctx, TERN_E_INVALID, s->steps ? "denoising_start: expected 0..1, found %g" : "scheduler: no steps are set (part %g)",
                  part);
        return -1;
    }
    int left = s->calls - tern_scheduler_calls_until(s, part);
    /* a step of two calls is not cut in the middle; only the last one has one call */
    if (s->fns->calls_per_step == 2 && left % 2 == 0 && left < s->calls)
        left++;
    restart(s, s->calls - left);
    return s->begin;
}

void tern_scheduler_scale_input(const struct tern_scheduler *s, int i, const float *x, float *out, int64_t n)
{
    if (!s || !x || !out || n <= 0)
        return;
    if (s->fns->noise != TERN_NOISE_GROWING || i < 0 || i >= s->sigma_count) {
        if (out != x)
            memmove(out, x, (size_t)n * sizeof(float));
        return;
    }
    float sigma = tern_call_sigma(s, i), divisor = sqrtf(sigma * sigma + 1);
    for (int64_t j = 0; j < n; j++)
        out[j] = x[j] / divisor;
}

void tern_scheduler_add_noise(const struct tern_scheduler *s, int i, const float *x, const float *noise, float *out, int64_t n)
{
    if (!s || !x || !noise || !out || n <= 0)
        return;
    float keep = 1, add = 0; /* at and after the end of the schedule: clean */
    if (i >= 0 && i < s->calls) {
        if (s->fns->noise == TERN_NOISE_TABLE) {
            float a = s->alphas_cumprod[(int64_t)s->timesteps[i]];
            keep = sqrtf(a);
            add = sqrtf(1 - a);
        } else if (s->fns->noise == TERN_NOISE_UNIT) {
            struct tern_unit_noise u = tern_unit_noise(s->sigmas[i]);
            keep = u.alpha;
            add = u.sigma;
        } else {
            add = s->sigmas[i + (s->fns->lower_noise && i % 2)];
        }
    }
    for (int64_t j = 0; j < n; j++)
        out[j] = keep * x[j] + add * noise[j];
}

bool tern_scheduler_draws_noise(const struct tern_scheduler *s, int i)
{
    return s && i >= 0 && i < s->calls && s->fns->draws_noise && s->fns->draws_noise(s, i);
}

/* Whether there is a sampler, and places for two levels. */
static bool two_places(const struct tern_scheduler *s, const double *a, const double *b)
{
    if (s && a && b)
        return true;
    tern_fail(s ? s->ctx : NULL, TERN_E_INVALID, "scheduler: expected places for two noise levels, found NULL");
    return false;
}

bool tern_scheduler_noise_span(const struct tern_scheduler *s, int i, double *from, double *to)
{
    if (!two_places(s, from, to) || !tern_scheduler_draws_noise(s, i) || !s->fns->noise_span)
        return false;
    struct tern_noise_span span = s->fns->noise_span(s, i);
    *from = (double)span.from;
    *to = (double)span.to;
    return true;
}

bool tern_scheduler_noise_range(const struct tern_scheduler *s, double *low, double *high)
{
    if (!two_places(s, low, high) || !s->fns->noise_span || s->begin >= s->calls)
        return false;
    float min = INFINITY, max = 0;
    for (int i = s->begin; i < s->sigma_count; i++) {
        min = s->sigmas[i] > 0 ? fminf(min, s->sigmas[i]) : min;
        max = fmaxf(max, s->sigmas[i]);
    }
    *low = (double)fminf(min, max);
    *high = (double)max;
    return true;
}

/* Memory of the first step of a run, which fixes n. */
static enum tern_status make_rows(struct tern_scheduler *s, int64_t n)
{
    size_t size;
    if (!tern_mul_size((size_t)n, (size_t)s->fns->rows, &size))
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: a sample of %lld values", (long long)n);
    s->row_memory = tern_calloc(s->ctx, size, sizeof(float));
    if (!s->row_memory)
        return tern_error_status(s->ctx);
    for (int k = 0; k < s->fns->rows; k++)
        s->rows[k] = s->row_memory + (size_t)k * (size_t)n;
    s->n = n;
    return TERN_OK;
}

enum tern_status tern_scheduler_step(struct tern_scheduler *s, int i, const float *model_output, const float *noise, float *sample,
                                     int64_t n)
{
    if (!s)
        return TERN_E_INVALID;
    if (!model_output || !sample || n < 1 || n % s->batch)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: step without a sample or model output, or %lld values for %d pictures",
                         (long long)n, s->batch);
    if (i != s->begin + s->done || i >= s->calls)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: step %d of %d calls out of order, expected %d", i, s->calls,
                         s->begin + s->done);
    if (s->n && s->n != n)
        return tern_fail(s->ctx, TERN_E_SHAPE, "scheduler: step %d has %lld values, the steps before had %lld", i, (long long)n,
                         (long long)s->n);
    bool draws = tern_scheduler_draws_noise(s, i);
    if (!noise && draws)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: step %d of %s needs noise", i, s->fns->name);
    if (tern_scheduler_churns(s, i) && s->churned != i + 1)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: step %d of %s with s_churn needs tern_scheduler_churn before it", i,
                         s->fns->name);
    enum tern_status status = s->n ? TERN_OK : make_rows(s, n);
    if (status)
        return status;
    s->fns->step(s, i, model_output, draws ? noise : NULL, sample, n);
    s->done++;
    return s->fns->extend ? s->fns->extend(s, i) : TERN_OK;
}
