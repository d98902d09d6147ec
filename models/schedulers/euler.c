/* Euler's method on dx / dsigma = (x - x0) / sigma [Karras 2022, algorithm 2]. */
#include "models/schedulers/scheduler.h"

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float sigma = tern_call_sigma(s, i), dt = s->sigmas[i + 1] - sigma;
    float *x0 = s->rows[0];
    tern_predict_growing(s, sigma, m, x, x0, n);
    for (int64_t j = 0; j < n; j++)
        x[j] = x[j] + (x[j] - x0[j]) / sigma * dt;
}

const struct tern_sampler_fns tern_sampler_euler = {
    .sampler = TERN_SAMPLER_EULER,
    .name = "euler",
    .class_name = "EulerDiscreteScheduler",
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .takes = TERN_TAKES_CHURN,
    .rows = 1,
    .defaults = {.num_train_timesteps = 1000, .beta_start = 0.0001, .beta_end = 0.02, .timestep_spacing = TERN_SPACING_LINSPACE},
    .set_steps = tern_growing_steps,
    .step = step,
};
