/* DDIM [Song 2021, eq. 12]; without noise unless eta is given. */
#include <math.h>

#include "models/schedulers/scheduler.h"

static bool draws_noise(const struct tern_scheduler *s, int i) { return s->options.eta > 0; }

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    const struct tern_scheduler_config *c = &s->config;
    /* T / steps back, whatever the spacing: not always the next timestep. */
    int64_t t = (int64_t)s->timesteps[i], previous = t - c->num_train_timesteps / s->steps;
    float a = s->alphas_cumprod[t];
    float a_previous = previous >= 0 ? s->alphas_cumprod[previous] : c->set_alpha_to_one ? 1 : s->alphas_cumprod[0];
    float alpha = sqrtf(a), sigma = sqrtf(1 - a), alpha_next = sqrtf(a_previous),
          up = (float)s->options.eta * sqrtf((1 - a_previous) / (1 - a) * (1 - a / a_previous));
    float sigma_next = sqrtf(fmaxf(1 - a_previous - up * up, 0));

    float *x0 = s->rows[0];
    tern_predict_unit(s, alpha, sigma, m, x, x0, n);
    tern_predict_limit(s, x0, 1, n);
    for (int64_t j = 0; j < n; j++)
        x[j] = alpha_next * x0[j] + sigma_next * tern_predict_noise(s, alpha, sigma, m[j], x[j]);
    tern_add_noise(s, x, noise, up, n);
}

const struct tern_sampler_fns tern_sampler_ddim = {
    .sampler = TERN_SAMPLER_DDIM,
    .name = "ddim",
    .class_name = "DDIMScheduler",
    .noise = TERN_NOISE_TABLE,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = 2,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.0001,
                 .beta_end = 0.02,
                 .clip_sample = true,
                 .clip_sample_range = 1,
                 .set_alpha_to_one = true,
                 .dynamic_thresholding_ratio = 0.995,
                 .sample_max_value = 1},
    .set_steps = tern_timesteps_signalled,
    .step = step,
    .draws_noise = draws_noise,
    .takes = TERN_TAKES_ETA,
};
