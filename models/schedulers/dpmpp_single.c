/* DPM-Solver++ with two calls a step [Lu 2022b, algorithm 1], as k-diffusion has it. dpm++2s_a is ancestral: x0 is predicted at a
 * level and halfway (in ln sigma) to how far the step goes down; the second prediction makes the whole step, then noise goes up
 * to the next level. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

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
        tern_move(x, start, x0, s->sigmas[i + 1] / s->sigmas[i], n);
        return;
    }
    struct tern_ancestral a = tern_ancestral_step(s, s->sigmas[i - 1], s->sigmas[i + 1]);
    tern_move(x, start, x0, a.down / s->sigmas[i - 1], n);
    tern_add_noise(x, noise, a.up, n);
}

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
};
