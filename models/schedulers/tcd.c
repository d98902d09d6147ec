/* Trajectory consistency distillation [Zheng 2024, algorithm 4]: a step down to (1 - eta) of the next timestep, then noise up
 * to the next. */
#include <math.h>

#include "models/schedulers/scheduler.h"

static bool draws_noise(const struct tern_scheduler *s, int i) { return s->options.eta > 0 && i != s->calls - 1; }

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float next = i == s->calls - 1 ? 0 : (float)s->timesteps[i + 1];
    int64_t down = (int64_t)floorf((float)(1 - s->options.eta) * next);
    float a = s->alphas_cumprod[(int64_t)s->timesteps[i]], a_next = s->alphas_cumprod[(int64_t)next], a_down = s->alphas_cumprod[down];
    float alpha = sqrtf(a), sigma = sqrtf(1 - a), alpha_down = sqrtf(a_down), sigma_down = sqrtf(1 - a_down);
    float keep = sqrtf(a_next / a_down), add = sqrtf(1 - a_next / a_down);

    float *x0 = s->rows[0];
    tern_predict_unit(s, alpha, sigma, m, x, x0, n);
    for (int64_t j = 0; j < n; j++) {
        float y = alpha_down * x0[j] + sigma_down * tern_predict_noise(s, alpha, sigma, m[j], x[j]);
        x[j] = draws_noise(s, i) ? keep * y + add * noise[j] : y;
    }
}

const struct tern_sampler_fns tern_sampler_tcd = {
    .sampler = TERN_SAMPLER_TCD,
    .name = "tcd",
    .class_name = "TCDScheduler",
    .noise = TERN_NOISE_TABLE,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = 1,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.00085,
                 .beta_end = 0.012,
                 .beta_schedule = TERN_BETA_SCALED_LINEAR,
                 .original_inference_steps = 50},
    .set_steps = tern_timesteps_distilled,
    .step = step,
    .draws_noise = draws_noise,
    .takes = TERN_TAKES_ETA,
    .eta = 0.3, /* of diffusers' step; gamma of the paper */
    .most_eta = 1,
};
