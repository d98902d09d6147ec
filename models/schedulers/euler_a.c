/* Euler with ancestral sampling: a step down past the next noise level, then noise up to it. */
#include "models/schedulers/scheduler.h"

/* Also at the last step, where it is drawn and multiplied by 0. */
static bool draws_noise(const struct tern_scheduler *s, int i) { return s->options.eta > 0; }

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    float from = s->sigmas[i], to = s->sigmas[i + 1];
    struct tern_ancestral a = tern_ancestral_step(s, from, to);
    float dt = a.down - from;
    float *x0 = s->rows[0];
    tern_predict_growing(s, from, m, x, x0, n);
    for (int64_t j = 0; j < n; j++)
        x[j] = x[j] + (x[j] - x0[j]) / from * dt;
    tern_add_noise(s, x, noise, a.up, n);
}

const struct tern_sampler_fns tern_sampler_euler_a = {
    .sampler = TERN_SAMPLER_EULER_A,
    .name = "euler_a",
    .class_name = "EulerAncestralDiscreteScheduler",
    .aliases = {"eulera", "eulerancestral"},
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .calls_per_step = 1,
    .rows = 1,
    .defaults = {.num_train_timesteps = 1000, .beta_start = 0.0001, .beta_end = 0.02, .timestep_spacing = TERN_SPACING_LINSPACE},
    .set_steps = tern_growing_steps,
    .step = step,
    .draws_noise = draws_noise,
    .eta = 1,
    .takes = TERN_TAKES_ETA | TERN_TAKES_NOISE,
};
