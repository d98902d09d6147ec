/* DPM-Solver-2 in k-diffusion's form, plain and ancestral: a step to the geometric mean of two noise levels, and from the first
 * level the whole way by the slope found there. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

/* Between two levels, linear in ln sigma, with the rounding of torch.lerp; 0 when one is 0. */
static float between(float from, float to)
{
    float a = (float)log((double)from), b = (float)log((double)to);
    return to > 0 ? tern_exp_f32(b - (b - a) * 0.5f) : 0;
}

static float middle(const struct tern_scheduler *s, float from, float to) { return between(from, to); }
static float middle_ancestral(const struct tern_scheduler *s, float from, float to)
{
    return between(from, tern_ancestral_step(s, from, to).down);
}

/* diffusers' classes round the timesteps of the levels, with Karras' levels only. */
static enum tern_status rounded(struct tern_scheduler *s, enum tern_status status)
{
    for (int i = 0; !status && s->schedule == TERN_SCHEDULE_KARRAS && i < s->calls; i += 2)
        s->timesteps[i] = rint(s->timesteps[i]);
    return status;
}

static enum tern_status set_steps(struct tern_scheduler *s) { return rounded(s, tern_midpoint_steps(s, middle)); }
static enum tern_status set_steps_ancestral(struct tern_scheduler *s) { return rounded(s, tern_midpoint_steps(s, middle_ancestral)); }

/* The first half of a step, which keeps x in rows[0] for the second; also the last step. */
static void first_half(struct tern_scheduler *s, int i, const float *x0, float *x, int64_t n)
{
    float sigma = tern_call_sigma(s, i), dt = tern_call_sigma(s, i + 1) - sigma, *start = s->rows[0];
    memcpy(start, x, (size_t)n * sizeof(float));
    for (int64_t j = 0; j < n; j++)
        x[j] = x[j] + (x[j] - x0[j]) / sigma * dt;
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float *start = s->rows[0], *x0 = s->rows[1], sigma = tern_call_sigma(s, i);
    tern_predict_growing(s, sigma, m, x, x0, n);
    if (i % 2 == 0) {
        first_half(s, i, x0, x, n);
        return;
    }
    float dt = s->sigmas[i + 1] - tern_call_sigma(s, i - 1);
    for (int64_t j = 0; j < n; j++)
        x[j] = start[j] + (x[j] - x0[j]) / sigma * dt;
}

static void step_ancestral(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float *start = s->rows[0], *x0 = s->rows[1], sigma = s->sigmas[i];
    tern_predict_growing(s, sigma, m, x, x0, n);
    if (i % 2 == 0) {
        first_half(s, i, x0, x, n);
        return;
    }
    struct tern_ancestral a = tern_ancestral_step(s, s->sigmas[i - 1], s->sigmas[i + 1]);
    float dt = a.down - s->sigmas[i - 1];
    for (int64_t j = 0; sigma > 0 && j < n; j++) /* 0: a level so far below the one before that x is clean already */
        x[j] = start[j] + (x[j] - x0[j]) / sigma * dt;
    tern_add_noise(s, x, noise, a.up, n);
}

const struct tern_sampler_fns tern_sampler_dpm2 = {
    .sampler = TERN_SAMPLER_DPM2,
    .name = "dpm2",
    .class_name = "KDPM2DiscreteScheduler",
    .takes = TERN_TAKES_CHURN,
    .middle = middle,
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .discards = true,
    .calls_per_step = 2,
    .lower_noise = true,
    .rows = 2,
    .defaults = TERN_GROWING_DEFAULTS,
    .set_steps = set_steps,
    .step = step,
};

const struct tern_sampler_fns tern_sampler_dpm2_a = {
    .sampler = TERN_SAMPLER_DPM2_A,
    .name = "dpm2_a",
    .class_name = "KDPM2AncestralDiscreteScheduler",
    .aliases = {"dpm2ancestral"},
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .discards = true,
    .calls_per_step = 2,
    .lower_noise = true,
    .rows = 2,
    .defaults = TERN_GROWING_DEFAULTS,
    .set_steps = set_steps_ancestral,
    .step = step_ancestral,
    .draws_noise = tern_midpoint_draws_noise,
    .eta = 1,
    .takes = TERN_TAKES_ETA | TERN_TAKES_NOISE,
};
