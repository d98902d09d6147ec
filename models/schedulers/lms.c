/* Linear multistep: the slopes of the last calls (up to 4), each weighted by the integral of its Lagrange polynomial over
 * the step (Adams-Bashforth for uneven steps). */
#include "models/schedulers/scheduler.h"

#define MAX_ORDER 4

/* Lagrange polynomial of node k among the sigmas i, i - 1 … i - order + 1. */
static double lagrange(const float *sigma, int i, int order, int k, double at)
{
    double p = 1;
    for (int j = 0; j < order; j++)
        if (j != k)
            p *= (at - (double)sigma[i - j]) / ((double)sigma[i - k] - (double)sigma[i - j]);
    return p;
}

/* Simpson's rule: exact, because the polynomial has degree 3 at most. */
static float weight(const float *sigma, int i, int order, int k)
{
    double a = (double)sigma[i], b = (double)sigma[i + 1];
    double sum = lagrange(sigma, i, order, k, a) + 4 * lagrange(sigma, i, order, k, (a + b) / 2) + lagrange(sigma, i, order, k, b);
    return (float)((b - a) / 6 * sum);
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    /* rows 0..3: slopes, newest first */
    float *slope = tern_newest_row(s, MAX_ORDER), *x0 = s->rows[MAX_ORDER];
    s->stored += s->stored < MAX_ORDER;

    float sigma = s->sigmas[i];
    tern_predict_growing(s, sigma, m, x, x0, n);
    for (int64_t j = 0; j < n; j++)
        slope[j] = (x[j] - x0[j]) / sigma;

    /* The order follows the place in the schedule, also when a run began in its middle (img2img) and fewer slopes are
     * there: the missing ones count as 0. This is what diffusers does; k-diffusion's order is that of the slopes. */
    int order = s->anew ? s->stored : i + 1 < MAX_ORDER ? i + 1 : MAX_ORDER;
    for (int k = 1; k < order; k++)
        if (s->sigmas[i - k] == s->sigmas[i - k + 1])
            order = k; /* the schedule repeats a noise level: no polynomial goes through both */
    float w[MAX_ORDER];
    for (int k = 0; k < order; k++)
        w[k] = weight(s->sigmas, i, order, k);
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int k = 0; k < order && k < s->stored; k++)
            sum += w[k] * s->rows[k][j];
        x[j] += sum;
    }
}

const struct tern_sampler_fns tern_sampler_lms = {
    .sampler = TERN_SAMPLER_LMS,
    .name = "lms",
    .class_name = "LMSDiscreteScheduler",
    .noise = TERN_NOISE_GROWING,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = MAX_ORDER + 1,
    .defaults = {.num_train_timesteps = 1000, .beta_start = 0.0001, .beta_end = 0.02, .timestep_spacing = TERN_SPACING_LINSPACE},
    .set_steps = tern_growing_steps,
    .step = step,
};
