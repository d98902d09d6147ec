/* Options of sampling: steps, guidance, seed, sampler, its noise levels and its own options. */
#include "picture.h"

enum {
    OPT_STEPS = OPT_SAMPLING,
    OPT_CFG,
    OPT_IMAGE_CFG,
    OPT_SEED,
    OPT_SAMPLER,
    OPT_SCHEDULE,
    OPT_ETA,
    OPT_S_CHURN,
    OPT_S_TMIN,
    OPT_S_TMAX,
    OPT_S_NOISE,
    OPT_ENSD,
    OPT_DISCARD,
};

const struct opt sampling_opts[] = {
    {OPT_STEPS, 0, "steps", "N", "sampling steps, 1 to 1000 (default 20)"},
    {OPT_CFG, 0, "cfg", "X", "guidance scale, 0 to 1000 (default 7.5, SDXL 5,\nthe model that ships with tern 4); at most 1: none"},
    {OPT_IMAGE_CFG, 0, "image-cfg", "X",
     "instruct-pix2pix: guidance scale of the picture, above 0\n(default 1.5); below 1: no guidance at all"},
    {OPT_SEED, 0, "seed", "N", "seed of the first picture, the next has N + 1 and so on;\n-1: random, and shown (default)"},
    {OPT_SAMPLER, 0, "sampler", "NAME",
     "ddim, pndm, euler, euler_a, dpm++2m, heun, lms, unipc, lcm,\ndpm2, dpm2_a, ddpm, tcd, dpm++2s_a, dpm++sde,\ndpm++2m_sde, "
     "dpm++2m_sde_heun, dpm++3m_sde, dpm_fast,\n"
     "dpm_adaptive (default: the model's); \"DPM++ 2M Karras\"\nand the like, too"},
    {OPT_SCHEDULE, 0, "schedule", "NAME",
     "default, karras, exponential, beta, sgm_uniform, simple,\nnormal, ddim_uniform or align_your_steps"},
    {OPT_ETA, 0, "eta", "X",
     "how much of its noise an ancestral, DPM or SDE sampler adds\n(default 1), or ddim (default 0), 0 to 10; tcd's gamma, 0 to "
     "1\n(default 0.3)"},
    {OPT_S_CHURN, 0, "s-churn", "X", "euler, heun, dpm2: noise before each step (sigma churn),\n0 to 1000 (default 0)"},
    {OPT_S_TMIN, 0, "s-tmin", "X", "the lowest noise level at which that is done (default 0)"},
    {OPT_S_TMAX, 0, "s-tmax", "X", "the highest one (default 0: no limit)"},
    {OPT_S_NOISE, 0, "s-noise", "X", "factor of the noise that steps add, 0 to 10 (default 1)"},
    {OPT_ENSD, 0, "ensd", "N", "eta noise seed delta: noise after the first is of the seed\nplus N (default 0: of the seed, going on)"},
    {OPT_DISCARD, 0, "discard-penultimate-sigma", NULL,
     "\nleave out the last noise level but one, of one step more;\nAUTOMATIC1111 does so for dpm2, dpm2_a and dpm++3m_sde"},
    {0},
};

static int apply_cfg(const struct opt *opt, const char *text, struct picture_settings *s)
{
    int code = value_number(opt, text, 0, false, 1000, &s->cfg);
    s->cfg = s->cfg == 0 ? TERN_CFG_ZERO : s->cfg;
    return code;
}

/* A factor of which 0 means 0, where the library takes it as its default. */
static int apply_factor(const struct opt *opt, const char *text, double *out)
{
    int code = value_number(opt, text, 0, false, 10, out);
    *out = *out == 0 ? -1 : *out;
    return code;
}

static int apply_sampler_option(const struct opt *opt, const char *text, struct picture_settings *s)
{
    struct tern_sampler_options *o = &s->sampler_options;
    switch (opt->id) {
    case OPT_ETA:
        return apply_factor(opt, text, &o->eta);
    case OPT_S_NOISE:
        return apply_factor(opt, text, &o->s_noise);
    case OPT_S_CHURN:
        return value_number(opt, text, 0, false, 1000, &o->s_churn);
    case OPT_S_TMIN:
        return value_number(opt, text, 0, false, 1e6, &o->s_tmin);
    case OPT_S_TMAX:
        return value_number(opt, text, 0, false, 1e6, &o->s_tmax);
    case OPT_DISCARD:
        o->discard_penultimate_sigma = true;
        s->hires.hr_discard_penultimate_sigma = 0; /* in both passes */
        return GO_ON;
    default:
        return value_int(opt, text, INT32_MIN, INT32_MAX, &s->ensd);
    }
}

int sampling_apply(const struct opt *opt, const char *value, struct picture_settings *s)
{
    switch (opt->id) {
    case OPT_STEPS:
        return value_int(opt, value, 1, 1000, &s->steps);
    case OPT_CFG:
        return apply_cfg(opt, value, s);
    case OPT_IMAGE_CFG:
        return value_number(opt, value, 0, true, 1000, &s->image_cfg);
    case OPT_SEED:
        return value_seed(opt, value, &s->seed, &s->seed_given);
    case OPT_SAMPLER:
        return value_sampler(opt, value, &s->sampler, &s->schedule, s->schedule_given);
    case OPT_SCHEDULE:
        s->schedule_given = true;
        return value_schedule(opt, value, &s->schedule);
    default:
        return apply_sampler_option(opt, value, s);
    }
}
