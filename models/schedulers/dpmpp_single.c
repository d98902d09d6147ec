/* DPM-Solver++ with two calls a step [Lu 2022b, algorithm 1], as k-diffusion has it. dpm++2s_a is ancestral: x0 is predicted at a
 * level and halfway (in ln sigma) to how far the step goes down; the second prediction makes the whole step, then noise goes up
 * to the next level. dpm++sde solves the SDE: the second call is halfway to the next level, and both halves are ancestral steps. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

/* From `start` towards a constant x0, which ratio 0 gives itself. */
static void approach(float *x, const float *start, const float *x0, float ratio, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        x[j] = ratio * start[j] + (1 - ratio) * x0[j];
}

/* The ancestral step from `start` at one level to another. */
static void move(const struct tern_scheduler *s, float from, float to, const float *start, const float *x0, const float *noise, float *x,
                 int64_t n)
{
    struct tern_ancestral a = tern_ancestral_step(s, from, to);
    approach(x, start, x0, a.down / from, n);
    tern_add_noise(s, x, noise, a.up, n);
}

static float middle_ancestral(const struct tern_scheduler *s, float from, float to)
{
    return tern_log_middle(from, tern_ancestral_step(s, from, to).down);
}

static enum tern_status set_steps_ancestral(struct tern_scheduler *s) { return tern_midpoint_steps(s, middle_ancestral); }

static void step_ancestral(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float *start = s->rows[0], *x0 = s->rows[1];
    tern_predict_growing(s, s->sigmas[i], m, x, x0, n);
    if (i % 2 == 0) {
        memcpy(start, x, (size_t)n * sizeof(float));
        approach(x, start, x0, s->sigmas[i + 1] / s->sigmas[i], n);
        return;
    }
    move(s, s->sigmas[i - 1], s->sigmas[i + 1], start, x0, noise, x, n);
}

static float middle(const struct tern_scheduler *s, float from, float to) { return tern_log_middle(from, to); }
static enum tern_status set_steps(struct tern_scheduler *s) { return tern_midpoint_steps(s, middle); }

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float *start = s->rows[0], *x0 = s->rows[1];
    bool first = i % 2 == 0;
    tern_predict_growing(s, s->sigmas[i], m, x, x0, n);
    if (first)
        memcpy(start, x, (size_t)n * sizeof(float));
    move(s, s->sigmas[first ? i : i - 1], s->sigmas[i + 1], start, x0, noise, x, n);
}

static bool draws_noise(const struct tern_scheduler *s, int i) { return s->options.eta > 0 && i < s->calls - 1; }

/* exp(ln sigma) in f32, as k-diffusion asks for it: near 14.6 the last bit is as much as the tree tells apart. */
static float through_log(float sigma) { return tern_exp_f32((float)log((double)sigma)); }

static struct tern_noise_span noise_span(const struct tern_scheduler *s, int i)
{
    return (struct tern_noise_span){through_log(s->sigmas[i % 2 ? i - 1 : i]), through_log(s->sigmas[i + 1])};
}

const struct tern_sampler_fns tern_sampler_dpmpp_sde = {
    .sampler = TERN_SAMPLER_DPMPP_SDE,
    .name = "dpm++sde",
    .class_name = "k_diffusion.sample_dpmpp_sde",
    .aliases = {"dpmppsde"},
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 2,
    .rows = 2,
    .defaults = TERN_GROWING_DEFAULTS,
    .set_steps = set_steps,
    .step = step,
    .draws_noise = draws_noise,
    .noise_span = noise_span,
    .eta = 1,
    .takes = TERN_TAKES_ETA | TERN_TAKES_NOISE,
};

const struct tern_sampler_fns tern_sampler_dpmpp_2s_a = {
    .sampler = TERN_SAMPLER_DPMPP_2S_A,
    .name = "dpm++2s_a",
    .class_name = "k_diffusion.sample_dpmpp_2s_ancestral",
    .aliases = {"dpmpp2sa", "dpmpp2sancestral", "dpm++2sancestral"},
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 2,
    .rows = 2,
    .defaults = TERN_GROWING_DEFAULTS,
    .set_steps = set_steps_ancestral,
    .step = step_ancestral,
    .draws_noise = tern_midpoint_draws_noise,
    .eta = 1,
    .takes = TERN_TAKES_ETA | TERN_TAKES_NOISE,
};
