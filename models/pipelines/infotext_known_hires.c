/* Fields of a second pass at another size. */
#include <string.h>

#include "models/pipelines/infotext_known.h"
#include "models/pipelines/pipeline.h"
#include "models/pipelines/upscale.h"

static bool take_hr_scale(struct tern_infotext_reading *r, const char *v)
{
    return r->hires = tern_infotext_number(v, 1e-3, TERN_MAX_SIDE, &r->params.hires.hr_scale);
}

static bool take_hr_resize(struct tern_infotext_reading *r, const char *v)
{
    struct tern_hires *h = &r->params.hires;
    if (!tern_infotext_pair(v, 0, TERN_MAX_SIDE, &h->hr_resize_x, &h->hr_resize_y) || (!h->hr_resize_x && !h->hr_resize_y))
        return false;
    return r->hires = true;
}

static bool take_hr_steps(struct tern_infotext_reading *r, const char *v)
{
    return r->hires && tern_infotext_int(v, 1, TERN_MAX_STEPS, &r->params.hires.hr_second_pass_steps);
}

static bool take_hr_upscaler(struct tern_infotext_reading *r, const char *v)
{
    const struct tern_upscaler *u = tern_upscaler_find(v);
    if (r->hires && u)
        r->params.hires.hr_upscaler = u->name;
    return r->hires && u;
}

static bool take_hr_sampler(struct tern_infotext_reading *r, const char *v)
{
    return r->hires && tern_infotext_sampler(v, &r->params.hires.hr_sampler, &r->params.hires.hr_schedule);
}

static enum tern_sampler sampler_of(const struct tern_infotext_reading *r)
{
    return r->params.hires.hr_sampler ? r->params.hires.hr_sampler : r->params.sampler;
}

/* Automatic is not that of the first pass. */
static bool take_hr_schedule(struct tern_infotext_reading *r, const char *v)
{
    struct tern_hires *h = &r->params.hires;
    if (!r->hires || !tern_infotext_schedule(v, sampler_of(r), &h->hr_schedule))
        return false;
    if (tern_schedule_parse(v) == TERN_SCHEDULE_DEFAULT)
        h->hr_schedule = tern_infotext_usual_schedule(r, sampler_of(r));
    return true;
}

/* tern's own: A1111's follow from the sampler. */
static bool take_hr_choice(const struct tern_infotext_reading *r, const char *v, int *choice)
{
    const bool yes = !strcmp(v, "True"), ok = r->hires && tern_infotext_has_schedules(sampler_of(r)) && (yes || !strcmp(v, "False"));
    if (ok)
        *choice = yes ? 1 : -1;
    return ok;
}

static bool take_hr_discard(struct tern_infotext_reading *r, const char *v)
{
    return take_hr_choice(r, v, &r->params.hires.hr_discard_penultimate_sigma);
}

static bool take_hr_levels(struct tern_infotext_reading *r, const char *v)
{
    return take_hr_choice(r, v, &r->params.hires.hr_k_diffusion_levels);
}

static bool take_hr_cfg(struct tern_infotext_reading *r, const char *v)
{
    const bool ok = r->hires && tern_infotext_number(v, 0, TERN_MAX_GUIDANCE, &r->params.hires.hr_cfg);
    r->params.hires.hr_cfg = ok && r->params.hires.hr_cfg == 0 ? TERN_CFG_ZERO : r->params.hires.hr_cfg;
    return ok;
}

/* The fields' own texts, of which the result gets copies. */
static bool take_hr_prompt(struct tern_infotext_reading *r, const char *v)
{
    if (r->hires)
        r->params.hires.hr_prompt = v;
    return r->hires;
}

static bool take_hr_negative(struct tern_infotext_reading *r, const char *v)
{
    if (r->hires)
        r->params.hires.hr_negative_prompt = v;
    return r->hires;
}

const struct tern_infotext_known tern_infotext_second_pass[] = {
    {"Hires upscale", take_hr_scale},
    {"Hires resize", take_hr_resize},
    {"Hires steps", take_hr_steps},
    {"Hires upscaler", take_hr_upscaler},
    {"Hires sampler", take_hr_sampler},
    {"Hires schedule type", take_hr_schedule},
    {"Hires discard penultimate sigma", take_hr_discard},
    {"Hires K-diffusion levels", take_hr_levels},
    {"Hires CFG Scale", take_hr_cfg},
    {"Hires prompt", take_hr_prompt},
    {"Hires negative prompt", take_hr_negative},
    {NULL, NULL},
};
