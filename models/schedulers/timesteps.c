/* Which of the T training timesteps a run of n steps visits (Lin 2024, table 2), with NumPy's rounding. */
#include <math.h>

#include "models/schedulers/scheduler.h"

/* numpy.linspace(0, stop, n)[i] */
static double linspace(double stop, int64_t n, int64_t i)
{
    if (n == 1)
        return 0;
    return i == n - 1 ? stop : (double)i * (stop / (double)(n - 1));
}

/* ln(alpha / sigma) in f32 at timestep t */
static float log_snr(const struct tern_scheduler *s, int64_t t)
{
    float a = s->alphas_cumprod[t];
    return (float)log((double)sqrtf(a)) - (float)log((double)sqrtf(1 - a));
}

/* Number of timesteps that lambda_min_clipped leaves. */
static int64_t unclipped(const struct tern_scheduler *s)
{
    int64_t n = s->config.num_train_timesteps;
    while (n > 0 && log_snr(s, n - 1) < (float)s->config.lambda_min_clipped)
        n--;
    return n;
}

/* i-th of `points` multiples of `stride`, highest first */
static int leading(struct tern_scheduler *s, int64_t stride, int64_t points)
{
    for (int64_t i = 0; i < s->steps; i++)
        s->timesteps[i] = (double)((points - 1 - i) * stride + s->config.steps_offset);
    return s->steps;
}

/* numpy.arange(top, 0, -T/n), rounded, less one. Rounding may give a point at 0 too many (n = 61, say), which becomes
 * timestep -1. As in diffusers it is one call more at the lowest sigma; where the timestep is an index (there: of the
 * last, noisiest one) it is left out. */
static int trailing(struct tern_scheduler *s, int64_t top)
{
    double start = (double)top, stride = (double)s->config.num_train_timesteps / s->steps;
    double delta = (start - stride) - start;
    int64_t count = (int64_t)ceil(start / stride);
    int n = 0;
    for (int64_t i = 0; i < count && n <= s->steps; i++) {
        double t = rint(start + (double)i * delta) - 1;
        if (t >= 0 || s->fns->noise != TERN_NOISE_TABLE)
            s->timesteps[n++] = t;
    }
    return n;
}

static enum tern_status check(struct tern_scheduler *s, int count)
{
    s->calls = count;
    if (count < 1)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: %d steps leave no timestep (lambda_min_clipped %g)", s->steps,
                         s->config.lambda_min_clipped);
    double first = s->timesteps[0], last = (double)s->config.num_train_timesteps - 1;
    if (first > last)
        return tern_fail(s->ctx, TERN_E_INVALID,
                         "scheduler: %d steps with steps_offset %lld begin at timestep %g, past the last, %g; use fewer steps", s->steps,
                         (long long)s->config.steps_offset, first, last);
    return TERN_OK;
}

enum tern_status tern_timesteps_fractional(struct tern_scheduler *s)
{
    int64_t t = s->config.num_train_timesteps, n = s->steps;
    switch (s->config.timestep_spacing) {
    case TERN_SPACING_LINSPACE:
        for (int64_t i = 0; i < n; i++)
            s->timesteps[i] = (double)(float)linspace((double)(t - 1), n, n - 1 - i);
        return check(s, s->steps);
    case TERN_SPACING_LEADING:
        return check(s, leading(s, t / n, n));
    default:
        return check(s, trailing(s, t));
    }
}

enum tern_status tern_timesteps_whole(struct tern_scheduler *s)
{
    int64_t t = s->config.num_train_timesteps, n = s->steps;
    if (s->config.timestep_spacing != TERN_SPACING_LINSPACE)
        return tern_timesteps_fractional(s);
    for (int64_t i = 0; i < n; i++)
        s->timesteps[i] = rint(linspace((double)(t - 1), n, n - 1 - i));
    return check(s, s->steps);
}

enum tern_status tern_timesteps_solver(struct tern_scheduler *s)
{
    int64_t t = unclipped(s), n = s->steps;
    if (t < 1)
        return check(s, 0);
    switch (s->config.timestep_spacing) {
    case TERN_SPACING_LINSPACE:
        for (int64_t i = 0; i < n; i++)
            s->timesteps[i] = rint(linspace((double)(t - 1), n + 1, n - i));
        return check(s, s->steps);
    case TERN_SPACING_LEADING:
        if (t / (n + 1) == 0)
            return tern_fail(s->ctx, TERN_E_INVALID,
                             "scheduler: %d steps of %s with leading spacing need %d timesteps, there are %lld; use fewer steps", s->steps,
                             s->fns->name, s->steps + 1, (long long)t);
        return check(s, leading(s, t / (n + 1), n + 1));
    default:
        return check(s, trailing(s, t));
    }
}

enum tern_status tern_timesteps_check_signal(struct tern_scheduler *s)
{
    for (int i = 0; i < s->calls; i++)
        if (s->alphas_cumprod[(int64_t)s->timesteps[i]] == 0 && s->config.prediction_type == TERN_PREDICT_EPSILON)
            return tern_fail(s->ctx, TERN_E_INVALID,
                             "scheduler: rescale_betas_zero_snr leaves no signal at timestep %g, so that \"prediction_type\": \"epsilon\" "
                             "cannot be used with %s; the model's is probably v_prediction",
                             s->timesteps[i], s->fns->name);
    return TERN_OK;
}

enum tern_status tern_timesteps_signalled(struct tern_scheduler *s)
{
    enum tern_status status = tern_timesteps_whole(s);
    return status ? status : tern_timesteps_check_signal(s);
}

enum tern_status tern_timesteps_distilled(struct tern_scheduler *s)
{
    int64_t t = s->config.num_train_timesteps, original = s->config.original_inference_steps;
    if (original > t)
        return tern_fail(s->ctx, TERN_E_INVALID,
                         "scheduler_config.json: \"original_inference_steps\": at most num_train_timesteps %lld, found %lld", (long long)t,
                         (long long)original);
    if (s->steps > original)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: %s makes at most original_inference_steps %lld steps, asked for %d",
                         s->fns->name, (long long)original, s->steps);
    double stride = (double)original / s->steps;
    for (int i = 0; i < s->steps; i++)
        s->timesteps[i] = (double)((original - (int64_t)floor(i * stride)) * (t / original) - 1);
    s->calls = s->steps;
    return tern_timesteps_check_signal(s);
}
