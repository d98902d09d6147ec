/* The clean sample x0 that a model's output stands for, its limits, and the f32 arithmetic that goes with it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

void tern_predict_unit(const struct tern_scheduler *s, float alpha, float sigma, const float *m, const float *x, float *x0, int64_t n)
{
    switch (s->config.prediction_type) {
    case TERN_PREDICT_EPSILON:
        for (int64_t i = 0; i < n; i++)
            x0[i] = (x[i] - sigma * m[i]) / alpha;
        break;
    case TERN_PREDICT_V: /* v = alpha e - sigma x0 [Salimans, Ho 2022] */
        for (int64_t i = 0; i < n; i++)
            x0[i] = alpha * x[i] - sigma * m[i];
        break;
    default:
        memcpy(x0, m, (size_t)n * sizeof(float));
    }
}

float tern_predict_noise(const struct tern_scheduler *s, float alpha, float sigma, float m, float x)
{
    switch (s->config.prediction_type) {
    case TERN_PREDICT_EPSILON:
        return m;
    case TERN_PREDICT_V:
        return alpha * m + sigma * x;
    default:
        return (x - alpha * m) / sigma;
    }
}

void tern_predict_growing(const struct tern_scheduler *s, float sigma, const float *m, const float *x, float *x0, int64_t n)
{
    float square = sigma * sigma + 1, slope = -sigma / sqrtf(square);
    switch (s->config.prediction_type) {
    case TERN_PREDICT_EPSILON:
        for (int64_t i = 0; i < n; i++)
            x0[i] = x[i] - sigma * m[i];
        break;
    case TERN_PREDICT_V:
        for (int64_t i = 0; i < n; i++)
            x0[i] = m[i] * slope + x[i] / square;
        break;
    default:
        memcpy(x0, m, (size_t)n * sizeof(float));
    }
}

void tern_scheduler_predict_clean(const struct tern_scheduler *s, int i, const float *m, const float *x, float *x0, int64_t n)
{
    if (s->fns->noise == TERN_NOISE_TABLE) {
        float a = s->alphas_cumprod[(int64_t)s->timesteps[i]];
        tern_predict_unit(s, sqrtf(a), sqrtf(1 - a), m, x, x0, n);
    } else if (s->fns->noise == TERN_NOISE_UNIT) {
        struct tern_unit_noise u = tern_unit_noise(s->sigmas[i]);
        tern_predict_unit(s, u.alpha, u.sigma, m, x, x0, n);
    } else {
        tern_predict_growing(s, tern_call_sigma(s, i), m, x, x0, n);
    }
}

static int compare_f32(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

/* torch.quantile of |x|, linear between neighbours; NaN when there is one. `sorted` has room for n values. */
static float abs_quantile(const float *x, float *sorted, int64_t n, double ratio)
{
    for (int64_t i = 0; i < n; i++)
        sorted[i] = fabsf(x[i]);
    qsort(sorted, (size_t)n, sizeof(float), compare_f32);
    if (isnan(sorted[n - 1]))
        return sorted[n - 1];
    double rank = ratio * (double)(n - 1);
    int64_t low = (int64_t)rank, high = low + 1 < n ? low + 1 : low;
    return (float)((double)sorted[low] + (rank - (double)low) * ((double)sorted[high] - (double)sorted[low]));
}

/* Dynamic thresholding, each picture for itself [Saharia 2022, 2.3]. */
static void threshold(const struct tern_scheduler *s, float *x0, float *scratch, int64_t n)
{
    int64_t size = n / s->batch;
    for (int b = 0; b < s->batch; b++) {
        float *x = x0 + b * size;
        float limit = abs_quantile(x, scratch, size, s->config.dynamic_thresholding_ratio);
        limit = fminf(fmaxf(limit, 1), (float)s->config.sample_max_value);
        for (int64_t i = 0; i < size; i++)
            x[i] = (x[i] < -limit ? -limit : x[i] > limit ? limit : x[i]) / limit;
    }
}

void tern_predict_limit(struct tern_scheduler *s, float *x0, int scratch, int64_t n)
{
    if (s->config.thresholding) {
        threshold(s, x0, s->rows[scratch], n);
        return;
    }
    if (!s->config.clip_sample)
        return;
    float limit = (float)s->config.clip_sample_range;
    for (int64_t i = 0; i < n; i++)
        x0[i] = x0[i] < -limit ? -limit : x0[i] > limit ? limit : x0[i];
}

float *tern_newest_row(struct tern_scheduler *s, int count)
{
    float *oldest = s->rows[count - 1];
    for (int k = count - 1; k > 0; k--)
        s->rows[k] = s->rows[k - 1];
    return s->rows[0] = oldest;
}

void tern_add_noise(const struct tern_scheduler *s, float *x, const float *noise, float up, int64_t n)
{
    up = (float)s->options.s_noise * up;
    for (int64_t j = 0; noise && j < n; j++)
        x[j] = x[j] + noise[j] * up;
}

float tern_exp_f32(float x) { return (float)exp((double)x); }
float tern_expm1_f32(float x) { return (float)expm1((double)x); }

struct tern_unit_noise tern_unit_noise(float ratio)
{
    struct tern_unit_noise u;
    u.alpha = 1 / sqrtf(ratio * ratio + 1);
    u.sigma = ratio * u.alpha;
    u.lambda = (float)log((double)u.alpha) - (float)log((double)u.sigma);
    return u;
}
