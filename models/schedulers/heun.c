/* Heun's method [Karras 2022, algorithm 2]: an Euler step, then the mean of both slopes. Each noise level but
 * the first and the last stands twice in the schedule: calls 0, 2, 4 … are Euler steps, calls 1, 3, 5 … correct them. */
#include <string.h>

#include "models/schedulers/scheduler.h"

static enum tern_status set_steps(struct tern_scheduler *s)
{
    enum tern_status status = tern_growing_steps(s);
    if (status)
        return status;
    int n = s->calls;
    s->sigmas[2 * n - 1] = s->sigmas[n];
    for (int i = n - 1; i > 0; i--) { /* from the end, so that nothing is overwritten before it is read */
        s->timesteps[2 * i] = s->timesteps[2 * i - 1] = s->timesteps[i];
        s->sigmas[2 * i] = s->sigmas[2 * i - 1] = s->sigmas[i];
    }
    s->calls = 2 * n - 1;
    s->sigma_count = 2 * n;
    return TERN_OK;
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float *slope = s->rows[0], *start = s->rows[1], *x0 = s->rows[2];
    float sigma = tern_call_sigma(s, i);
    tern_predict_growing(s, sigma, m, x, x0, n);
    tern_predict_limit(s, x0, 0, n);
    if (s->done % 2 == 0) {
        float dt = s->sigmas[i + 1] - sigma;
        memcpy(start, x, (size_t)n * sizeof(float));
        for (int64_t j = 0; j < n; j++) {
            slope[j] = (x[j] - x0[j]) / sigma;
            x[j] = x[j] + slope[j] * dt;
        }
        return;
    }
    float dt = sigma - tern_call_sigma(s, i - 1);
    for (int64_t j = 0; j < n; j++)
        x[j] = start[j] + (slope[j] + (x[j] - x0[j]) / sigma) / 2 * dt;
}

const struct tern_sampler_fns tern_sampler_heun = {
    .sampler = TERN_SAMPLER_HEUN,
    .name = "heun",
    .class_name = "HeunDiscreteScheduler",
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 2,
    .takes = TERN_TAKES_CHURN,
    .rows = 3,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.00085,
                 .beta_end = 0.012,
                 .clip_sample_range = 1,
                 .timestep_spacing = TERN_SPACING_LINSPACE},
    .set_steps = set_steps,
    .step = step,
};
