/* DDPM's ancestral sampling with the small variance [Ho 2020, algorithm 2], over the timesteps of the run. */
#include <math.h>

#include "models/schedulers/scheduler.h"

/* Also where the next timestep is clean and the variance is 1e-20, as diffusers does. */
static bool draws_noise(const struct tern_scheduler *s, int i) { return s->timesteps[i] > 0; }

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float a = s->alphas_cumprod[(int64_t)s->timesteps[i]];
    float a_next = i == s->calls - 1 ? 1 : s->alphas_cumprod[(int64_t)s->timesteps[i + 1]];
    float alpha = a / a_next, beta = 1 - alpha; /* of this step */
    float of_x0 = sqrtf(a_next) * beta / (1 - a), of_x = sqrtf(alpha) * (1 - a_next) / (1 - a);
    float deviation = sqrtf(fmaxf((1 - a_next) / (1 - a) * beta, 1e-20f));

    float *x0 = s->rows[0];
    tern_predict_unit(s, sqrtf(a), sqrtf(1 - a), m, x, x0, n);
    tern_predict_limit(s, x0, 1, n);
    bool noisy = draws_noise(s, i);
    for (int64_t j = 0; j < n; j++)
        x[j] = of_x0 * x0[j] + of_x * x[j] + (noisy ? deviation * noise[j] : 0);
}

const struct tern_sampler_fns tern_sampler_ddpm = {
    .sampler = TERN_SAMPLER_DDPM,
    .name = "ddpm",
    .class_name = "DDPMScheduler",
    .noise = TERN_NOISE_TABLE,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = 2,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.0001,
                 .beta_end = 0.02,
                 .clip_sample = true,
                 .clip_sample_range = 1,
                 .dynamic_thresholding_ratio = 0.995,
                 .sample_max_value = 1},
    .set_steps = tern_timesteps_signalled,
    .step = step,
    .draws_noise = draws_noise,
};
