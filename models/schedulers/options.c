/* Options of the samplers (eta, churn, s_noise): which has which, their ranges, and the churn of Karras 2022, algorithm 2, as
 * k-diffusion has it: before a step, noise raises the sample from the schedule's level to one that is up to sqrt(2) times as high. */
#include <math.h>
#include <stdio.h>

#include "models/schedulers/scheduler.h"

struct option {
    const char *name;
    unsigned taken; /* by samplers that have one of these */
    double value, most;
};

static void list_takers(unsigned taken, char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < TERN_SAMPLER_COUNT && used < size; i++) {
        const struct tern_sampler_fns *fns = tern_sampler_fns((enum tern_sampler)i);
        if (fns && fns->takes & taken)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "", fns->name);
    }
}

static enum tern_status check(const struct tern_scheduler *s, const struct option *o)
{
    char list[256];
    if (!(o->value <= o->most))
        return tern_fail(s->ctx, TERN_E_INVALID, "%s: expected a number up to %g, found %g", o->name, o->most, o->value);
    if (o->value == 0 || s->fns->takes & o->taken)
        return TERN_OK;
    list_takers(o->taken, list, sizeof(list));
    return tern_fail(s->ctx, TERN_E_INVALID, "%s: sampler %s does not have it; these do: %s", o->name, s->fns->name, list);
}

/* 0: the default; negative: 0 */
static double or_default(double value, double other) { return value == 0 ? other : fmax(value, 0); }

/* An option of samplers with schedules. */
static enum tern_status check_levels(const struct tern_scheduler *s, const char *name, bool given)
{
    char list[256];
    if (!given || s->fns->has_schedules)
        return TERN_OK;
    tern_sampler_list(list, sizeof(list), true);
    return tern_fail(s->ctx, TERN_E_INVALID, "%s: sampler %s does not have it; these do: %s", name, s->fns->name, list);
}

enum tern_status tern_scheduler_set_options(struct tern_scheduler *s, const struct tern_sampler_options *options)
{
    if (!s)
        return TERN_E_INVALID;
    struct tern_sampler_options q = options ? *options : (struct tern_sampler_options){0};
    const struct option all[] = {
        {"eta", TERN_TAKES_ETA, q.eta, s->fns->most_eta > 0 ? s->fns->most_eta : 10},
        {"s_churn", TERN_TAKES_CHURN, q.s_churn, 1000},
        {"s_tmin", TERN_TAKES_CHURN, q.s_tmin, INFINITY},
        {"s_tmax", TERN_TAKES_CHURN, q.s_tmax, INFINITY},
        {"s_noise", TERN_TAKES_NOISE | TERN_TAKES_CHURN, q.s_noise, 10},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (check(s, &all[i]))
            return TERN_E_INVALID;
    if (check_levels(s, "discard_penultimate_sigma", q.discard_penultimate_sigma) ||
        check_levels(s, "k_diffusion_levels", q.k_diffusion_levels))
        return TERN_E_INVALID;
    s->options = (struct tern_sampler_options){.eta = or_default(q.eta, s->fns->eta),
                                               .s_churn = fmax(q.s_churn, 0),
                                               .s_tmin = fmax(q.s_tmin, 0),
                                               .s_tmax = or_default(q.s_tmax, INFINITY),
                                               .s_noise = or_default(q.s_noise, 1),
                                               .sdxl = q.sdxl,
                                               .discard_penultimate_sigma = q.discard_penultimate_sigma,
                                               .k_diffusion_levels = q.k_diffusion_levels};
    s->steps = s->calls = s->sigma_count = 0;
    return TERN_OK;
}

static bool begins_step(const struct tern_scheduler *s, int i) { return i % s->fns->calls_per_step == 0; }

bool tern_scheduler_churns(const struct tern_scheduler *s, int i)
{
    return s && s->options.s_churn > 0 && i >= s->begin && i < s->calls && begins_step(s, i);
}

/* The level of a call that begins a step, after churn. */
static float raised(const struct tern_scheduler *s, int i)
{
    const struct tern_sampler_options *o = &s->options;
    float sigma = s->sigmas[i];
    int per_step = s->fns->calls_per_step, steps = (s->calls - s->begin + per_step - 1) / per_step;
    if (!tern_scheduler_churns(s, i) || (double)sigma < o->s_tmin || (double)sigma > o->s_tmax)
        return sigma;
    return sigma * (float)(fmin(o->s_churn / steps, sqrt(2) - 1) + 1);
}

float tern_call_sigma(const struct tern_scheduler *s, int i)
{
    if (s->options.s_churn == 0 || i >= s->calls || i < s->begin)
        return s->sigmas[i];
    if (begins_step(s, i))
        return raised(s, i);
    return s->fns->middle ? s->fns->middle(s, raised(s, i - 1), s->sigmas[i + 1]) : s->sigmas[i];
}

enum tern_status tern_scheduler_churn(struct tern_scheduler *s, int i, const float *noise, float *sample, int64_t n)
{
    if (!s)
        return TERN_E_INVALID;
    if (!tern_scheduler_churns(s, i) || i != s->begin + s->done || s->churned == i + 1 || !noise || !sample || n < 1)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: churn of call %d of %s: it has none, is not the next, or noise is missing", i,
                         s->fns->name);
    float sigma = s->sigmas[i], to = raised(s, i);
    if (to > sigma)
        tern_add_noise(s, sample, noise, sqrtf(to * to - sigma * sigma), n);
    s->churned = i + 1;
    return TERN_OK;
}

bool tern_scheduler_draws_fresh(const struct tern_scheduler *s)
{
    bool in_steps = s->fns->draws_noise && !s->fns->noise_span && (!(s->fns->takes & TERN_TAKES_ETA) || s->options.eta > 0);
    return in_steps || s->options.s_churn > 0;
}

int tern_scheduler_draws_before(const struct tern_scheduler *s)
{
    int n = 0;
    for (int i = 0; i < s->begin; i++) {
        n += s->options.s_churn > 0 && begins_step(s, i);
        n += !s->fns->noise_span && tern_scheduler_draws_noise(s, i);
    }
    return n;
}
