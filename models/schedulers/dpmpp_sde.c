/* DPM-Solver++ for the SDE with one call a step, of order 2 and 3 [Lu 2022b, 5; k-diffusion's sample_dpmpp_2m_sde and
 * sample_dpmpp_3m_sde]. In h, the fall of ln sigma over a step, the sample decays by exp(-h (1 + eta)) towards x0, whose slope the
 * calls before tell; noise makes up for what eta decays more. The last step, down to 0, gives x0. */
#include <math.h>

#include "models/schedulers/scheduler.h"

enum { X0S = 3 }; /* rows: x0 of the last calls, newest first */

/* x = keep x + c0 x0 + c1 (x0 - x1) + c2 (x1 - x2) + up noise */
struct update {
    double keep, c0, c1, c2, up;
};

static double fall(const struct tern_scheduler *s, int i) { return log((double)s->sigmas[i]) - log((double)s->sigmas[i + 1]); }

static struct update start(const struct tern_scheduler *s, int i)
{
    double h = fall(s, i), to = (double)s->sigmas[i + 1];
    return (struct update){.keep = exp(-h * (1 + s->options.eta)),
                           .c0 = -expm1(-h * (1 + s->options.eta)),
                           .up = to * sqrt(-expm1(-2 * h * s->options.eta))};
}

/* (exp(-x) - 1) / x + 1 */
static double phi_2(double x) { return expm1(-x) / x + 1; }

/* How many steps before tell of the slope: those made, of another level. */
static int known(const struct tern_scheduler *s, int i, int most)
{
    int n = 0;
    while (n < most && n < s->stored && fall(s, i - n) > 0 && fall(s, i - n - 1) > 0)
        n++;
    return n;
}

static void step_with(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n, int most,
                      void (*slope)(const struct tern_scheduler *s, int i, int known, struct update *u))
{
    float *x0 = tern_newest_row(s, X0S), *x1 = s->rows[1], *x2 = s->rows[2];
    tern_predict_growing(s, s->sigmas[i], m, x, x0, n);
    struct update u = {.c0 = 1};
    if (s->sigmas[i + 1] > 0) {
        u = start(s, i);
        slope(s, i, known(s, i, most), &u);
    }
    float keep = (float)u.keep, c0 = (float)u.c0, c1 = (float)u.c1, c2 = (float)u.c2;
    for (int64_t j = 0; j < n; j++) {
        float y = keep * x[j] + c0 * x0[j];
        if (c1 != 0)
            y = y + c1 * (x0[j] - x1[j]);
        if (c2 != 0)
            y = y + c2 * (x1[j] - x2[j]);
        x[j] = y;
    }
    tern_add_noise(s, x, noise, (float)u.up, n);
    s->stored++;
}

static void slope_midpoint(const struct tern_scheduler *s, int i, int known, struct update *u)
{
    if (known)
        u->c1 = 0.5 * u->c0 * fall(s, i) / fall(s, i - 1);
}

static void slope_heun(const struct tern_scheduler *s, int i, int known, struct update *u)
{
    double h = fall(s, i);
    if (known)
        u->c1 = phi_2(h * (1 + s->options.eta)) * h / fall(s, i - 1);
}

static void slope_third(const struct tern_scheduler *s, int i, int known, struct update *u)
{
    if (known < 2) {
        slope_heun(s, i, known, u);
        return;
    }
    double h = fall(s, i), r0 = fall(s, i - 1) / h, r1 = fall(s, i - 2) / h, a = phi_2(h * (1 + s->options.eta)),
           b = a / (h * (1 + s->options.eta)) - 0.5;
    /* of the first slope and of its change, which both are made of D0 = (x0 - x1) / r0 and D1 = (x1 - x2) / r1 */
    double change = (a * r0 - b) / (r0 + r1);
    u->c1 = (a + change) / r0;
    u->c2 = -change / r1;
}

static void step_2m(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    step_with(s, i, m, noise, x, n, 1, slope_midpoint);
}

static void step_2m_heun(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    step_with(s, i, m, noise, x, n, 1, slope_heun);
}

static void step_3m(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    step_with(s, i, m, noise, x, n, 2, slope_third);
}

static bool draws_noise(const struct tern_scheduler *s, int i) { return s->options.eta > 0 && i < s->calls - 1; }

static struct tern_noise_span noise_span(const struct tern_scheduler *s, int i)
{
    return (struct tern_noise_span){s->sigmas[i], s->sigmas[i + 1]};
}

#define COMMON                                                                                                                          \
    .noise = TERN_NOISE_GROWING, .has_schedules = true, .has_sample_prediction = true, .calls_per_step = 1, .rows = X0S,                \
    .defaults = TERN_GROWING_DEFAULTS, .set_steps = tern_growing_steps, .draws_noise = draws_noise, .noise_span = noise_span, .eta = 1, \
    .takes = TERN_TAKES_ETA | TERN_TAKES_NOISE

const struct tern_sampler_fns tern_sampler_dpmpp_2m_sde = {
    .sampler = TERN_SAMPLER_DPMPP_2M_SDE,
    .name = "dpm++2m_sde",
    .class_name = "k_diffusion.sample_dpmpp_2m_sde",
    .aliases = {"dpmpp2msde"},
    .step = step_2m,
    COMMON,
};

const struct tern_sampler_fns tern_sampler_dpmpp_2m_sde_heun = {
    .sampler = TERN_SAMPLER_DPMPP_2M_SDE_HEUN,
    .name = "dpm++2m_sde_heun",
    .class_name = "k_diffusion.sample_dpmpp_2m_sde(heun)",
    .aliases = {"dpmpp2msdeheun"},
    .step = step_2m_heun,
    COMMON,
};

const struct tern_sampler_fns tern_sampler_dpmpp_3m_sde = {
    .sampler = TERN_SAMPLER_DPMPP_3M_SDE,
    .name = "dpm++3m_sde",
    .class_name = "k_diffusion.sample_dpmpp_3m_sde",
    .aliases = {"dpmpp3msde"},
    .discards = true,
    .step = step_3m,
    COMMON,
};
