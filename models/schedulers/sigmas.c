/* Noise levels of a run: sigma = noise / signal at each timestep, or a schedule's levels and the timesteps that they belong to. */
#include <math.h>

#include "models/schedulers/scheduler.h"

/* numpy.interp over the training timesteps 0, 1, 2 … */
static double interpolate(const struct tern_scheduler *s, double t)
{
    int64_t last = s->config.num_train_timesteps - 1, j = (int64_t)t;
    if (t <= 0 || j >= last)
        return (double)s->train_sigmas[t <= 0 ? 0 : last];
    double low = (double)s->train_sigmas[j], high = (double)s->train_sigmas[j + 1];
    return t == (double)j ? low : (high - low) * (t - (double)j) + low;
}

double tern_timestep_of(const struct tern_scheduler *s, double sigma)
{
    double x = log(fmax(sigma, 1e-10));
    int64_t low = 0, high = s->config.num_train_timesteps - 1;
    while (high - low > 1) { /* the last training sigma that is not above */
        int64_t middle = low + (high - low) / 2;
        if (x >= (double)tern_log_sigma(s, middle))
            low = middle;
        else
            high = middle;
    }
    float a = tern_log_sigma(s, low), b = tern_log_sigma(s, low + 1);
    double w = a == b ? 0 : ((double)a - x) / (double)(a - b);
    w = w < 0 ? 0 : w > 1 ? 1 : w;
    return (1 - w) * (double)low + w * (double)(low + 1);
}

static double lowest(const struct tern_scheduler *s) { return (double)s->train_sigmas[0]; }
static double highest(const struct tern_scheduler *s) { return (double)s->train_sigmas[s->config.num_train_timesteps - 1]; }

/* Replaces timesteps and sigmas by the schedule's levels from `max` down to `min`; the last, before rounding, in *last. */
static enum tern_status levels(struct tern_scheduler *s, double min, double max, double *last)
{
    /* LMSDiscreteScheduler._convert_to_karras is the one that does not ask for them */
    const bool asks = s->fns->sampler != TERN_SAMPLER_LMS || s->schedule != TERN_SCHEDULE_KARRAS, whole = s->options.k_diffusion_levels;
    min = whole ? lowest(s) : asks && !isnan(s->config.sigma_min) ? s->config.sigma_min : min;
    max = whole ? highest(s) : asks && !isnan(s->config.sigma_max) ? s->config.sigma_max : max;
    if (min > max)
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler_config.json: sigma_min %g is above sigma_max %g", min, max);
    s->calls = tern_schedule_levels(s, min, max, s->timesteps);
    for (int i = 0; i < s->calls; i++) {
        *last = s->timesteps[i];
        s->sigmas[i] = (float)*last;
        s->timesteps[i] = tern_timestep_of(s, *last);
    }
    return TERN_OK;
}

/* k-diffusion's levels end at 0, and the model is told the very timestep of each. The model's own stay what they are. */
static bool is_k_diffusion(const struct tern_scheduler *s)
{
    return s->schedule > TERN_SCHEDULE_BETA || (s->schedule != TERN_SCHEDULE_DEFAULT && s->options.k_diffusion_levels);
}

static bool ends_at_zero(const struct tern_scheduler *s) { return is_k_diffusion(s) || s->config.final_sigmas_type == TERN_FINAL_ZERO; }

static void finish(struct tern_scheduler *s, double smallest)
{
    s->sigmas[s->calls] = ends_at_zero(s) ? 0 : (float)smallest;
    s->sigma_count = s->calls + 1;
}

static void from_timesteps(struct tern_scheduler *s)
{
    for (int i = 0; i < s->calls; i++)
        s->sigmas[i] = (float)interpolate(s, s->timesteps[i]);
}

enum tern_status tern_growing_steps(struct tern_scheduler *s)
{
    double last;
    enum tern_status status = tern_timesteps_fractional(s);
    if (status)
        return status;
    from_timesteps(s);
    if (s->schedule != TERN_SCHEDULE_DEFAULT) {
        double min = interpolate(s, s->timesteps[s->calls - 1]), max = interpolate(s, s->timesteps[0]);
        status = levels(s, min, max, &last);
        if (status)
            return status;
        for (int i = 0; i < s->calls; i++)
            s->timesteps[i] = (double)(float)s->timesteps[i];
    }
    finish(s, lowest(s));
    return TERN_OK;
}

/* What the solvers' classes in diffusers make whole numbers of: karras rounds, but dpm++ with the cosine schedule cuts the
 * fraction off, as do exponential and beta. */
static double solver_timestep(const struct tern_scheduler *s, double t)
{
    bool unipc = s->fns->sampler == TERN_SAMPLER_UNIPC;
    if (is_k_diffusion(s))
        return (double)(float)t;
    bool round = s->schedule == TERN_SCHEDULE_KARRAS && (unipc || s->config.beta_schedule != TERN_BETA_COSINE);
    return round ? rint(t) : floor(t);
}

enum tern_status tern_sigmas_solver(struct tern_scheduler *s)
{
    double smallest = lowest(s), last;
    from_timesteps(s);
    if (s->schedule != TERN_SCHEDULE_DEFAULT) {
        enum tern_status status = levels(s, smallest, highest(s), &last);
        if (status)
            return status;
        for (int i = 0; i < s->calls; i++)
            s->timesteps[i] = solver_timestep(s, s->timesteps[i]);
        if (s->fns->sampler == TERN_SAMPLER_UNIPC)
            smallest = last;
    }
    finish(s, smallest);
    return TERN_OK;
}
