/* Latent consistency model [Luo 2023]: every call predicts x0, noise is added again before the next. */
#include <math.h>

#include "models/schedulers/scheduler.h"

#define SIGMA_DATA 0.5f

static bool draws_noise(const struct tern_scheduler *s, int i) { return i != s->calls - 1; }

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    bool last = i == s->calls - 1;
    float a = s->alphas_cumprod[(int64_t)s->timesteps[i]];
    float a_next = s->alphas_cumprod[(int64_t)s->timesteps[last ? i : i + 1]];
    float alpha_next = sqrtf(a_next), sigma_next = sqrtf(1 - a_next);

    /* Boundary condition: at timestep 0 the sample itself is the result. */
    float scaled = (float)s->timesteps[i] * (float)s->config.timestep_scaling;
    float square = scaled * scaled + SIGMA_DATA * SIGMA_DATA;
    float c_skip = SIGMA_DATA * SIGMA_DATA / square, c_out = scaled / sqrtf(square);

    float *x0 = s->rows[0];
    tern_predict_unit(s, sqrtf(a), sqrtf(1 - a), m, x, x0, n);
    tern_predict_limit(s, x0, 1, n);
    for (int64_t j = 0; j < n; j++) {
        float denoised = c_out * x0[j] + c_skip * x[j];
        x[j] = last ? denoised : alpha_next * denoised + sigma_next * noise[j];
    }
}

const struct tern_sampler_fns tern_sampler_lcm = {
    .sampler = TERN_SAMPLER_LCM,
    .name = "lcm",
    .class_name = "LCMScheduler",
    .noise = TERN_NOISE_TABLE,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = 2,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.00085,
                 .beta_end = 0.012,
                 .beta_schedule = TERN_BETA_SCALED_LINEAR,
                 .original_inference_steps = 50,
                 .timestep_scaling = 10,
                 .clip_sample_range = 1,
                 .set_alpha_to_one = true,
                 .dynamic_thresholding_ratio = 0.995,
                 .sample_max_value = 1},
    .set_steps = tern_timesteps_distilled,
    .step = step,
    .draws_noise = draws_noise,
};
