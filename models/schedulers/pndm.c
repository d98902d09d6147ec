/* Pseudo numerical methods [Liu 2022]: PLMS, a linear multistep of noise predictions, after three Runge-Kutta steps of four
 * calls each (prk), or with skip_prk_steps after two calls at the second timestep. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

#define PRK_CALLS 12
#define MAX_ORDER 4

/* Rows 0..3: noise predictions, newest first. */
enum { START = MAX_ORDER, SUM = MAX_ORDER + 1 };

/* With p = the ascending timesteps, half = half a stride: p[-1], then p[-2] + half, p[-2] + half, p[-2], p[-2] … */
static void prk_schedule(struct tern_scheduler *s)
{
    int n = s->calls;
    double half = (double)(s->config.num_train_timesteps / s->steps / 2);
    double top[MAX_ORDER];
    memcpy(top, s->timesteps, sizeof(top));
    memmove(s->timesteps + PRK_CALLS, s->timesteps + 3, (size_t)(n - 3) * sizeof(double));
    for (int k = 0; k < 3; k++) {
        double *call = s->timesteps + (size_t)k * 4;
        call[0] = top[k];
        call[1] = call[2] = top[k + 1] + half;
        call[3] = top[k + 1];
    }
    s->calls = PRK_CALLS + n - 3;
}

static enum tern_status set_steps(struct tern_scheduler *s)
{
    enum tern_status status = tern_timesteps_whole(s);
    if (status)
        return status;
    if (!s->config.skip_prk_steps) {
        if (s->calls < MAX_ORDER)
            return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: pndm with \"skip_prk_steps\": false needs at least %d steps, asked for %d",
                             MAX_ORDER, s->steps);
        prk_schedule(s);
    } else if (s->calls > 1) {
        memmove(s->timesteps + 2, s->timesteps + 1, (size_t)(s->calls - 1) * sizeof(double));
        s->calls++;
    }
    return TERN_OK;
}

static float alpha_at(const struct tern_scheduler *s, int64_t t)
{
    int64_t last = s->config.num_train_timesteps - 1;
    if (t < 0)
        return s->config.set_alpha_to_one ? 1 : s->alphas_cumprod[0];
    return s->alphas_cumprod[t < last ? t : last];
}

/* From x at timestep t to `out` at timestep `to` with the noise (or v) m: equation 9. */
static void transfer(const struct tern_scheduler *s, int64_t t, int64_t to, const float *x, const float *m, float *out, int64_t n)
{
    float a = alpha_at(s, t), a_to = alpha_at(s, to), b = 1 - a, b_to = 1 - a_to;
    float alpha = sqrtf(a), sigma = sqrtf(b);
    float scale = sqrtf(a_to / a), gap = a_to - a, divisor = a * sqrtf(b_to) + sqrtf(a * b * a_to);
    bool v = s->config.prediction_type == TERN_PREDICT_V;
    for (int64_t j = 0; j < n; j++) {
        float e = v ? alpha * m[j] + sigma * x[j] : m[j];
        out[j] = scale * x[j] - gap * e / divisor;
    }
}

static void store(struct tern_scheduler *s, const float *m, int64_t n)
{
    float *oldest = s->rows[MAX_ORDER - 1];
    for (int k = MAX_ORDER - 1; k > 0; k--)
        s->rows[k] = s->rows[k - 1];
    s->rows[0] = oldest;
    memcpy(oldest, m, (size_t)n * sizeof(float));
    s->stored += s->stored < MAX_ORDER;
}

static void step_prk(struct tern_scheduler *s, int i, const float *m, float *x, int64_t n)
{
    float *sum = s->rows[SUM];
    int stage = s->done % 4;
    int64_t half = s->config.num_train_timesteps / s->steps / 2;
    int64_t from = (int64_t)s->timesteps[s->done - stage], to = (int64_t)s->timesteps[i] - (stage % 2 ? 0 : half);

    const float sixth = (float)(1.0 / 6), third = (float)(1.0 / 3);
    if (stage == 0) {
        memset(sum, 0, (size_t)n * sizeof(float));
        memcpy(s->rows[START], x, (size_t)n * sizeof(float));
        store(s, m, n);
    }
    for (int64_t j = 0; j < n; j++)
        sum[j] += (stage == 0 || stage == 3 ? sixth : third) * m[j];
    transfer(s, from, to, s->rows[START], stage == 3 ? sum : m, x, n);
}

/* Adams-Bashforth over the stored predictions; the first two calls take the mean of both ends. */
static void combine(const struct tern_scheduler *s, const float *m, float *out, int64_t n)
{
    float *const *e = s->rows;
    for (int64_t j = 0; j < n; j++) {
        if (s->stored == 1)
            out[j] = s->done == 1 ? (m[j] + e[0][j]) / 2 : m[j];
        else if (s->stored == 2)
            out[j] = (3 * e[0][j] - e[1][j]) / 2;
        else if (s->stored == 3)
            out[j] = (23 * e[0][j] - 16 * e[1][j] + 5 * e[2][j]) / 12;
        else
            out[j] = (float)(1.0 / 24) * (55 * e[0][j] - 59 * e[1][j] + 37 * e[2][j] - 9 * e[3][j]);
    }
}

static void step_plms(struct tern_scheduler *s, int i, const float *m, float *x, int64_t n)
{
    int64_t stride = s->config.num_train_timesteps / s->steps;
    int64_t from = (int64_t)s->timesteps[i], to = from - stride;
    if (s->done == 1) { /* the first step again, from its start */
        to = from;
        from += stride;
    } else {
        store(s, m, n);
    }
    combine(s, m, s->rows[SUM], n);
    if (s->done == 0)
        memcpy(s->rows[START], x, (size_t)n * sizeof(float));
    transfer(s, from, to, s->done == 1 ? s->rows[START] : x, s->rows[SUM], x, n);
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    if (!s->config.skip_prk_steps && s->done < PRK_CALLS)
        step_prk(s, i, m, x, n);
    else
        step_plms(s, i, m, x, n);
}

const struct tern_sampler_fns tern_sampler_pndm = {
    .sampler = TERN_SAMPLER_PNDM,
    .name = "pndm",
    .class_name = "PNDMScheduler",
    .aliases = {"plms"},
    .noise = TERN_NOISE_TABLE,
    .calls_per_step = 1,
    .rows = MAX_ORDER + 2,
    .defaults = {.num_train_timesteps = 1000, .beta_start = 0.0001, .beta_end = 0.02},
    .set_steps = set_steps,
    .step = step,
};
