/* DPM-Solver++ multistep of order 1 to 3 in the data prediction [Lu 2022b, algorithm 2; order 3 from Lu 2022a, B.3]. */
#include <math.h>

#include "models/schedulers/scheduler.h"

enum { SCRATCH = TERN_SOLVER_MAX_ORDER };

/* x = ratio x + c0 x0 + c1 D1 + c2 D2; D1, D2: differences of x0 over ln(alpha / sigma), scaled by r0, r1 */
struct update {
    float ratio, c0, c1, c2;
    float inverse_r0, inverse_r1, blend, inverse_sum; /* 1 / r0, 1 / r1, r0 / (r0 + r1), 1 / (r0 + r1) */
    int order;
};

static enum tern_status set_steps(struct tern_scheduler *s)
{
    enum tern_status status = tern_timesteps_solver(s);
    return status ? status : tern_sigmas_solver(s);
}

static int order_at(const struct tern_scheduler *s, int i)
{
    const struct tern_scheduler_config *c = &s->config;
    bool few = c->lower_order_final && s->calls < 15;
    int order = s->stored + 1 < (int)c->solver_order ? s->stored + 1 : (int)c->solver_order;
    const bool at_zero = s->sigmas[s->calls] == 0; /* ln of it is no number to go by */
    if (i == s->calls - 1 && (c->euler_at_final || few || at_zero))
        return 1;
    if (i == s->calls - 2 && few && order > 2)
        return 2;
    return order;
}

static struct update prepare(const struct tern_scheduler *s, int i, int order)
{
    struct tern_unit_noise to = tern_unit_noise(s->sigmas[i + 1]), from = tern_unit_noise(s->sigmas[i]);
    float h = to.lambda - from.lambda, e = tern_exp_f32(-h) - 1;
    struct update u = {.ratio = to.sigma / from.sigma, .c0 = -(to.alpha * e), .order = 1};
    if (order == 1 || h == 0)
        return u;

    float h0 = from.lambda - tern_unit_noise(s->sigmas[i - 1]).lambda, r0 = h0 / h;
    if (h0 == 0) /* the schedule repeats a noise level: there is no slope */
        return u;
    u.inverse_r0 = 1 / r0;
    float h1 = order == 3 ? tern_unit_noise(s->sigmas[i - 1]).lambda - tern_unit_noise(s->sigmas[i - 2]).lambda : 0;
    if (h1 == 0) {
        u.order = 2;
        u.c1 = s->config.solver_type == TERN_SOLVER_HEUN ? to.alpha * (e / h + 1) : -(0.5f * (to.alpha * e));
        return u;
    }
    float r1 = h1 / h;
    u.order = 3;
    u.inverse_r1 = 1 / r1;
    u.blend = r0 / (r0 + r1);
    u.inverse_sum = 1 / (r0 + r1);
    u.c1 = to.alpha * (e / h + 1);
    u.c2 = -(to.alpha * ((e + h) / (h * h) - 0.5f));
    return u;
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    /* rows 0..2: x0 of the last calls, newest first */
    const float *m0 = tern_newest_row(s, TERN_SOLVER_MAX_ORDER), *m1 = s->rows[1], *m2 = s->rows[2];

    struct tern_unit_noise from = tern_unit_noise(s->sigmas[i]);
    tern_predict_unit(s, from.alpha, from.sigma, m, x, s->rows[0], n);
    tern_predict_limit(s, s->rows[0], SCRATCH, n);

    struct update u = prepare(s, i, order_at(s, i));
    for (int64_t j = 0; j < n; j++) {
        float y = u.ratio * x[j] + u.c0 * m0[j];
        if (u.order > 1) {
            float d1 = u.inverse_r0 * (m0[j] - m1[j]);
            if (u.order == 3) {
                float change = d1 - u.inverse_r1 * (m1[j] - m2[j]);
                y = y + u.c1 * (d1 + u.blend * change) + u.c2 * (u.inverse_sum * change);
            } else {
                y = y + u.c1 * d1;
            }
        }
        x[j] = y;
    }
    s->stored += s->stored < (int)s->config.solver_order;
}

const struct tern_sampler_fns tern_sampler_dpmpp_2m = {
    .sampler = TERN_SAMPLER_DPMPP_2M,
    .name = "dpm++2m",
    .class_name = "DPMSolverMultistepScheduler",
    .aliases = {"dpmpp2m"},
    .noise = TERN_NOISE_UNIT,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = TERN_SOLVER_MAX_ORDER + 1,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.0001,
                 .beta_end = 0.02,
                 .timestep_spacing = TERN_SPACING_LINSPACE,
                 .solver_order = 2,
                 .solver_type = TERN_SOLVER_MIDPOINT,
                 .lower_order_final = true,
                 .dynamic_thresholding_ratio = 0.995,
                 .sample_max_value = 1},
    .set_steps = set_steps,
    .step = step,
};
