/* Fields of the sampler: its name, its noise levels and its options. */
#include <string.h>

#include "models/pipelines/infotext_known.h"
#include "models/schedulers/scheduler.h"

bool tern_infotext_has_schedules(enum tern_sampler s)
{
    const struct tern_sampler_fns *fns = tern_sampler_fns(s);
    return fns && fns->has_schedules; /* the model's own may have none */
}

bool tern_infotext_sampler(const char *v, enum tern_sampler *sampler, enum tern_schedule *schedule)
{
    enum tern_schedule named = TERN_SCHEDULE_DEFAULT;
    const enum tern_sampler s = tern_sampler_parse(v, &named);
    if (s == TERN_SAMPLER_COUNT)
        return false;
    *sampler = s;
    if (named == TERN_SCHEDULE_DEFAULT)
        return true;
    *schedule = tern_infotext_has_schedules(s) ? named : *schedule;
    return tern_infotext_has_schedules(s);
}

bool tern_infotext_schedule(const char *v, enum tern_sampler sampler, enum tern_schedule *out)
{
    const enum tern_schedule s = tern_schedule_parse(v);
    if (s == TERN_SCHEDULE_DEFAULT)
        return true;
    const bool ok = s < TERN_SCHEDULE_COUNT && tern_infotext_has_schedules(sampler);
    *out = ok ? s : *out;
    return ok;
}

enum tern_schedule tern_infotext_usual_schedule(const struct tern_infotext_reading *r, enum tern_sampler sampler)
{
    return !r->ours && tern_infotext_has_schedules(sampler) && sampler != TERN_SAMPLER_UNIPC ? TERN_SCHEDULE_NORMAL : TERN_SCHEDULE_DEFAULT;
}

static bool take_sampler(struct tern_infotext_reading *r, const char *v)
{
    const bool ok = tern_infotext_sampler(v, &r->params.sampler, &r->params.schedule);
    const struct tern_sampler_fns *fns = tern_sampler_fns(r->params.sampler);
    r->takes = fns ? fns->takes : 0;
    return ok;
}

static bool take_schedule(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_schedule(v, r->params.sampler, &r->params.schedule);
}

/* A factor of which 0 is said as -1, because 0 is the default. */
static bool take_factor(const struct tern_infotext_reading *r, unsigned takers, const char *v, double *out)
{
    bool ok = r->takes & takers && tern_infotext_number(v, 0, 10, out);
    if (ok && *out == 0)
        *out = -1;
    return ok;
}

static bool take_ensd(struct tern_infotext_reading *r, const char *v)
{
    return tern_infotext_whole(v, INT32_MIN, INT32_MAX, &r->params.ensd);
}

static bool take_eta(struct tern_infotext_reading *r, const char *v)
{
    return r->params.sampler != TERN_SAMPLER_DDIM && take_factor(r, TERN_TAKES_ETA, v, &r->params.sampler_options.eta);
}

static bool take_eta_ddim(struct tern_infotext_reading *r, const char *v)
{
    return r->params.sampler == TERN_SAMPLER_DDIM && take_factor(r, TERN_TAKES_ETA, v, &r->params.sampler_options.eta);
}

static bool take_noise(struct tern_infotext_reading *r, const char *v)
{
    return take_factor(r, TERN_TAKES_NOISE | TERN_TAKES_CHURN, v, &r->params.sampler_options.s_noise);
}

static bool take_churn(struct tern_infotext_reading *r, const char *v)
{
    return r->takes & TERN_TAKES_CHURN && tern_infotext_number(v, 0, 1000, &r->params.sampler_options.s_churn);
}

static bool take_tmin(struct tern_infotext_reading *r, const char *v)
{
    return r->takes & TERN_TAKES_CHURN && tern_infotext_number(v, 0, 1e6, &r->params.sampler_options.s_tmin);
}

static bool take_tmax(struct tern_infotext_reading *r, const char *v)
{
    return r->takes & TERN_TAKES_CHURN && tern_infotext_number(v, 0, 1e6, &r->params.sampler_options.s_tmax);
}

static bool take_discard(struct tern_infotext_reading *r, const char *v)
{
    return r->params.sampler_options.discard_penultimate_sigma = !strcmp(v, "True") && tern_infotext_has_schedules(r->params.sampler);
}

static bool take_levels(struct tern_infotext_reading *r, const char *v)
{
    return r->params.sampler_options.k_diffusion_levels = !strcmp(v, "True") && tern_infotext_has_schedules(r->params.sampler);
}

const struct tern_infotext_known tern_infotext_sampling[] = {
    {"Sampler", take_sampler},
    {"Schedule type", take_schedule},
    {"ENSD", take_ensd},
    {"Eta", take_eta},
    {"Eta DDIM", take_eta_ddim},
    {"Sigma churn", take_churn},
    {"Sigma tmin", take_tmin},
    {"Sigma tmax", take_tmax},
    {"Sigma noise", take_noise},
    {"Discard penultimate sigma", take_discard},
    {"K-diffusion levels", take_levels},
    {NULL, NULL},
};
