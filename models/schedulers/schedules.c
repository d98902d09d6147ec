/* Noise levels of a run by a formula, instead of those of given timesteps. karras, exponential and beta are in diffusers;
 * the others are AUTOMATIC1111's (modules/sd_schedulers.py), which takes them over the range of all training sigmas. */
#include <math.h>

#include "models/schedulers/scheduler.h"

#define RHO 7.0
#define BETA 0.6 /* both parameters of the beta distribution [Lee 2024] */

/* numpy.linspace(0, 1, n)[i] */
static double ramp(int n, int i) { return n == 1 ? 0 : i == n - 1 ? 1 : i * (1.0 / (n - 1)); }

/* Karras 2022, eq. 5 */
static double karras(int n, int i, double min, double max)
{
    double from = pow(max, 1 / RHO), to = pow(min, 1 / RHO);
    return pow(from + ramp(n, i) * (to - from), RHO);
}

static double exponential(int n, int i, double min, double max)
{
    double from = log(max), to = log(min);
    return exp(i == n - 1 && n > 1 ? to : from + ramp(n, i) * (to - from));
}

static double beta(int n, int i, double min, double max) { return min + tern_beta_quantile(BETA, 1 - ramp(n, i)) * (max - min); }

float tern_log_sigma(const struct tern_scheduler *s, int64_t t) { return (float)log((double)s->train_sigmas[t]); }

/* The noise level at a timestep, linear in ln sigma (k-diffusion's t_to_sigma). */
static double sigma_at(const struct tern_scheduler *s, double t)
{
    int64_t low = (int64_t)t, high = low + (t > (double)low);
    double w = t - (double)low;
    return exp((1 - w) * (double)tern_log_sigma(s, low) + w * (double)tern_log_sigma(s, high));
}

/* `points` timesteps evenly from the last down to 0; the i-th */
static double even(const struct tern_scheduler *s, int points, int i)
{
    return sigma_at(s, (double)(s->config.num_train_timesteps - 1) * (1 - ramp(points, i)));
}

/* Levels for 10 steps of Stable Diffusion 1.5 and XL, found by optimisation [Sabour 2024]; other numbers of steps interpolate ln sigma. */
static double align_your_steps(bool sdxl, int n, int i)
{
    enum { LAST = 10 };
    static const double levels[2][LAST + 1] = {{0.029, 0.152, 0.399, 0.652, 0.963, 1.396, 1.886, 2.697, 3.861, 6.475, 14.615},
                                               {0.029, 0.113, 0.234, 0.38, 0.555, 0.862, 1.342, 2.181, 3.771, 6.315, 14.615}};
    const double *rising = levels[sdxl];
    double at = ramp(n, n - 1 - i) * LAST; /* one step gets the lowest level, as in A1111 */
    int low = (int)at;
    if (low >= LAST)
        return rising[LAST];
    double a = log(rising[low]), b = log(rising[low + 1]);
    return exp(a + (b - a) * (at - low));
}

/* Every (T / n)-th training sigma from the second one on. Rounding makes it more than n. */
static int ddim_uniform(const struct tern_scheduler *s, double *level)
{
    int64_t t = s->config.num_train_timesteps, stride = t / s->steps;
    int n = (int)((t - 2) / stride + 1);
    for (int i = 0; i < n; i++)
        level[i] = (double)s->train_sigmas[1 + (n - 1 - i) * stride];
    return n;
}

static double level_at(const struct tern_scheduler *s, int i, double min, double max)
{
    int n = s->steps;
    int64_t t = s->config.num_train_timesteps;
    switch (s->schedule) {
    case TERN_SCHEDULE_KARRAS:
        return karras(n, i, min, max);
    case TERN_SCHEDULE_EXPONENTIAL:
        return exponential(n, i, min, max);
    case TERN_SCHEDULE_BETA:
        return beta(n, i, min, max);
    case TERN_SCHEDULE_SGM_UNIFORM:
        return even(s, n + 1, i);
    case TERN_SCHEDULE_NORMAL:
        return even(s, n, i);
    case TERN_SCHEDULE_SIMPLE:
        return (double)s->train_sigmas[t - 1 - (int64_t)(i * ((double)t / n))];
    default:
        return align_your_steps(s->options.sdxl, n, i);
    }
}

int tern_schedule_levels(const struct tern_scheduler *s, double min, double max, double *level)
{
    if (s->schedule == TERN_SCHEDULE_DDIM_UNIFORM)
        return ddim_uniform(s, level);
    for (int i = 0; i < s->steps; i++)
        level[i] = level_at(s, i, min, max);
    return s->steps;
}
