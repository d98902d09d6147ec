/* DPM-Solver-2 in k-diffusion's form, plain and ancestral: a step to the geometric mean of two noise levels, and from the first
 * level the whole way by the slope found there. Calls 0, 2, 4 … are at the levels, calls 1, 3, 5 … between them; the last
 * step, down to 0, is one call. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

struct tern_ancestral tern_ancestral_step(float from, float to)
{
    struct tern_ancestral a = {.up = sqrtf(to * to * (from * from - to * to) / (from * from))};
    a.down = sqrtf(fmaxf(to * to - a.up * a.up, 0)); /* rounding can make it negative when `to` is tiny */
    return a;
}

/* Between two levels, linear in ln sigma, f32 as PyTorch does it; 0 when one is 0. */
static float between(float from, float to)
{
    float a = (float)log((double)from), b = (float)log((double)to);
    return to > 0 ? tern_exp_f32(b - (b - a) * 0.5f) : 0;
}

/* A call between two levels or, when ancestral, between one and how far it goes down; sigmas has the level of each call. */
static enum tern_status midpoint_steps(struct tern_scheduler *s, bool ancestral)
{
    enum tern_status status = tern_timesteps_fractional(s);
    status = status ? status : tern_sigmas_growing(s);
    if (status)
        return status;
    int n = s->calls;
    for (int i = n - 1; i >= 0; i--) { /* from the end, so that nothing is overwritten before it is read */
        float from = s->sigmas[i], to = i == n - 1 ? 0 : s->sigmas[2 * i + 2];
        s->sigmas[2 * i] = from;
        s->sigmas[2 * i + 1] = between(from, ancestral ? tern_ancestral_step(from, to).down : to);
        s->timesteps[2 * i] = s->schedule == TERN_SCHEDULE_KARRAS ? rint(s->timesteps[i]) : s->timesteps[i];
        s->timesteps[2 * i + 1] = (double)(float)tern_timestep_of(s, (double)s->sigmas[2 * i + 1]);
    }
    s->calls = 2 * n - 1;
    s->sigma_count = 2 * n;
    return TERN_OK;
}

static enum tern_status set_steps(struct tern_scheduler *s) { return midpoint_steps(s, false); }
static enum tern_status set_steps_ancestral(struct tern_scheduler *s) { return midpoint_steps(s, true); }

static bool draws_noise(const struct tern_scheduler *s, int i) { return i % 2 == 1; }

/* The first half of a step, which keeps x in rows[0] for the second; also the last step. */
static void first_half(struct tern_scheduler *s, int i, const float *x0, float *x, int64_t n)
{
    float sigma = s->sigmas[i], dt = s->sigmas[i + 1] - sigma, *start = s->rows[0];
    memcpy(start, x, (size_t)n * sizeof(float));
    for (int64_t j = 0; j < n; j++)
        x[j] = x[j] + (x[j] - x0[j]) / sigma * dt;
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float *start = s->rows[0], *x0 = s->rows[1], sigma = s->sigmas[i];
    tern_predict_growing(s, sigma, m, x, x0, n);
    if (i % 2 == 0) {
        first_half(s, i, x0, x, n);
        return;
    }
    float dt = s->sigmas[i + 1] - s->sigmas[i - 1];
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
    struct tern_ancestral a = tern_ancestral_step(s->sigmas[i - 1], s->sigmas[i + 1]);
    float dt = a.down - s->sigmas[i - 1];
    for (int64_t j = 0; j < n; j++) {
        /* a level so far below the one before that the point between them is 0: x is clean already */
        float y = sigma > 0 ? start[j] + (x[j] - x0[j]) / sigma * dt : x[j];
        x[j] = y + noise[j] * a.up;
    }
}

#define DEFAULTS                                                                                                         \
    {                                                                                                                    \
        .num_train_timesteps = 1000, .beta_start = 0.00085, .beta_end = 0.012, .timestep_spacing = TERN_SPACING_LINSPACE \
    }

const struct tern_sampler_fns tern_sampler_dpm2 = {
    .sampler = TERN_SAMPLER_DPM2,
    .name = "dpm2",
    .class_name = "KDPM2DiscreteScheduler",
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .calls_per_step = 2,
    .rows = 2,
    .defaults = DEFAULTS,
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
    .calls_per_step = 2,
    .rows = 2,
    .defaults = DEFAULTS,
    .set_steps = set_steps_ancestral,
    .step = step_ancestral,
    .draws_noise = draws_noise,
};
