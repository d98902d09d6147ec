/* The noise of each training timestep: betas -> alphas_cumprod -> sigmas, in f32 as PyTorch computes them. */
#include <math.h>

#include "models/schedulers/scheduler.h"

#define PI 3.14159265358979323846

/* torch.linspace in f32: both halves are counted from their own end, with fused multiply-adds. */
static float linspace(float start, float end, int64_t n, int64_t i)
{
    float step = (end - start) / (float)(n - 1);
    return i < n / 2 ? fmaf(step, (float)i, start) : fmaf(-step, (float)(n - 1 - i), end);
}

/* Nichol, Dhariwal 2021, eq. 17 */
static double cosine_alpha_bar(double t)
{
    double c = cos((t + 0.008) / 1.008 * PI / 2);
    return c * c;
}

static float beta_at(const struct tern_scheduler *s, int64_t i)
{
    const struct tern_scheduler_config *c = &s->config;
    int64_t n = c->num_train_timesteps;
    if (s->trained_betas)
        return s->trained_betas[i];
    switch (c->beta_schedule) {
    case TERN_BETA_LINEAR:
        return linspace((float)c->beta_start, (float)c->beta_end, n, i);
    case TERN_BETA_SCALED_LINEAR: {
        float root = linspace((float)sqrt(c->beta_start), (float)sqrt(c->beta_end), n, i);
        return root * root;
    }
    default: {
        double beta = 1 - cosine_alpha_bar((double)(i + 1) / (double)n) / cosine_alpha_bar((double)i / (double)n);
        return (float)(beta < 0.999 ? beta : 0.999);
    }
    }
}

/* alphas (in `a`) -> their running products, added up in double, kept in f32 */
static void cumulate(float *a, int64_t n)
{
    double product = 1;
    for (int64_t i = 0; i < n; i++) {
        product *= (double)a[i];
        a[i] = (float)product;
    }
}

/* Lin 2024, algorithm 1: shifts and scales sqrt(alphas_cumprod) so that the last one is 0. a: alphas_cumprod -> alphas. */
static void rescale_to_zero_snr(float *a, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = sqrtf(a[i]);
    float first = a[0], last = a[n - 1], scale = first / (first - last);
    for (int64_t i = 0; i < n; i++) {
        float root = (a[i] - last) * scale;
        a[i] = root * root;
    }
    for (int64_t i = n - 1; i > 0; i--)
        a[i] = a[i] / a[i - 1];
    for (int64_t i = 0; i < n; i++)
        a[i] = 1 - (1 - a[i]); /* through the betas, as the reference does: this rounds */
}

enum tern_status tern_scheduler_make_table(struct tern_scheduler *s)
{
    const struct tern_scheduler_config *c = &s->config;
    int64_t n = c->num_train_timesteps;
    float *a = s->alphas_cumprod = tern_calloc(s->ctx, (size_t)n, sizeof(float));
    s->train_sigmas = tern_calloc(s->ctx, (size_t)n, sizeof(float));
    if (!a || !s->train_sigmas)
        return tern_error_status(s->ctx);

    for (int64_t i = 0; i < n; i++) {
        float beta = beta_at(s, i);
        if (!(beta > 0 && beta < 1))
            return tern_fail(s->ctx, TERN_E_FORMAT, "scheduler_config.json: beta %g at timestep %lld; betas must lie between 0 and 1 (%s)",
                             (double)beta, (long long)i, s->trained_betas ? "trained_betas" : "beta_start, beta_end, beta_schedule");
        a[i] = 1 - beta;
    }
    cumulate(a, n);
    if (c->rescale_betas_zero_snr) {
        rescale_to_zero_snr(a, n);
        cumulate(a, n);
        if (s->fns->noise != TERN_NOISE_TABLE)
            a[n - 1] = 0x1p-24f; /* diffusers' stand-in for 0, so that the first sigma is finite */
    }
    for (int64_t i = 0; i < n; i++) {
        bool end = c->rescale_betas_zero_snr && i == n - 1;
        if (!(a[i] < 1 && (a[i] > 0 || end)))
            return tern_fail(s->ctx, TERN_E_FORMAT,
                             "scheduler_config.json: the betas make alphas_cumprod %g at timestep %lld; it must lie between 0 and 1",
                             (double)a[i], (long long)i);
        s->train_sigmas[i] = a[i] > 0 ? sqrtf((1 - a[i]) / a[i]) : INFINITY;
        if (s->fns->noise != TERN_NOISE_TABLE && isinf(s->train_sigmas[i]))
            return tern_fail(s->ctx, TERN_E_INVALID,
                             "scheduler_config.json: the betas make the noise level infinite at timestep %lld; %s expects a finite one",
                             (long long)i, s->fns->name);
    }
    return TERN_OK;
}
