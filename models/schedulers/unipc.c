/* UniPC [Zhao 2023, algorithms 1 and 2] in the data prediction: each call first corrects the sample that the last
 * prediction gave, then predicts the next. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

#define MAX_ORDER TERN_SOLVER_MAX_ORDER

/* Rows 0..2: x0 of the last calls, newest first. */
enum { CONVERTED = MAX_ORDER, LAST_SAMPLE, SCRATCH };

/* x_t = ratio x_s - base m0 - gain (sum over k of rho[k] D_k), D_k = (m_k+1 - m0) / r[k], the last D = m_t - m0 with r 1 */
struct update {
    float ratio, base, gain;
    float r[MAX_ORDER], rho[MAX_ORDER];
    int order;
};

static enum tern_status set_steps(struct tern_scheduler *s)
{
    enum tern_status status = tern_timesteps_solver(s);
    return status ? status : tern_sigmas_solver(s);
}

/* Solves the n x n system in f32 by elimination with row exchanges; the result is left in b. The last bits are those of
 * LAPACK's sgesv as PyTorch has it: fused multiply-adds, and pivots that divide by their reciprocal. */
static void solve(float a[MAX_ORDER][MAX_ORDER], float *b, int n)
{
    for (int c = 0; c < n; c++) {
        int pivot = c;
        for (int r = c + 1; r < n; r++)
            if (fabsf(a[r][c]) > fabsf(a[pivot][c]))
                pivot = r;
        for (int k = 0; k < n; k++) {
            float t = a[c][k];
            a[c][k] = a[pivot][k];
            a[pivot][k] = t;
        }
        float t = b[c];
        b[c] = b[pivot];
        b[pivot] = t;
        for (int r = c + 1; r < n; r++) {
            float f = a[r][c] * (1 / a[c][c]);
            for (int k = c + 1; k < n; k++)
                a[r][k] = fmaf(-f, a[c][k], a[r][k]);
            b[r] = fmaf(-f, b[c], b[r]);
        }
    }
    for (int r = n - 1; r >= 0; r--) {
        for (int k = r + 1; k < n; k++)
            b[r] = fmaf(-a[r][k], b[k], b[r]);
        b[r] *= 1 / a[r][r];
    }
}

/* rho from the conditions of order (equations 5 and 9): powers of r times rho = b. */
static void weights(struct update *u, float hh, float scale, bool corrector)
{
    float powers[MAX_ORDER][MAX_ORDER], b[MAX_ORDER];
    float phi = tern_expm1_f32(hh) / hh - 1;
    int factorial = 1, unknowns = corrector ? u->order : u->order - 1;
    for (int i = 0; i < u->order; i++) {
        for (int k = 0; k < u->order; k++)
            powers[i][k] = i == 0 ? 1 : powers[i - 1][k] * u->r[k];
        b[i] = phi * (float)factorial / scale;
        factorial *= i + 2;
        phi = phi / hh - (float)(1.0 / factorial);
    }
    if (unknowns == 1) { /* both simplified in the reference */
        u->rho[0] = 0.5f;
        return;
    }
    solve(powers, b, unknowns);
    memcpy(u->rho, b, sizeof(b[0]) * (size_t)unknowns);
}

/* From sigmas[t - 1] to sigmas[t]. */
static struct update prepare(const struct tern_scheduler *s, int t, int order, bool corrector)
{
    struct tern_unit_noise to = tern_unit_noise(s->sigmas[t]), from = tern_unit_noise(s->sigmas[t - 1]);
    float h = to.lambda - from.lambda, hh = -h;
    struct update u = {.ratio = to.sigma / from.sigma, .order = order};
    if (h == 0) { /* the schedule repeats a noise level: nothing moves */
        u.order = 0;
        return u;
    }
    float phi = tern_expm1_f32(hh), scale = s->config.solver_type == TERN_SOLVER_BH1 ? hh : phi;
    u.base = to.alpha * phi;
    u.gain = to.alpha * scale;
    for (int k = 1; k < order; k++) {
        u.r[k - 1] = (tern_unit_noise(s->sigmas[t - 1 - k]).lambda - from.lambda) / h;
        if (u.r[k - 1] == 0 || (k > 1 && u.r[k - 1] == u.r[k - 2])) { /* repeated level, or a step to sigma 0: no slope */
            u.order = k;
            break;
        }
    }
    u.r[u.order - 1] = 1;
    if (u.order > 1 || corrector)
        weights(&u, hh, scale, corrector);
    return u;
}

/* x_s -> x_t; `now`: x0 at t (corrector), NULL for the predictor. out may be x. */
static void apply(const struct tern_scheduler *s, const struct update *u, const float *x, const float *now, float *out, int64_t n)
{
    const float *m0 = s->rows[0];
    for (int64_t j = 0; j < n; j++) {
        float y = u->ratio * x[j] - u->base * m0[j], sum = 0;
        for (int k = 0; k + 1 < u->order; k++)
            sum += u->rho[k] * ((s->rows[k + 1][j] - m0[j]) / u->r[k]);
        if (now && u->order > 0)
            sum += u->rho[u->order - 1] * (now[j] - m0[j]);
        out[j] = u->order > (now ? 0 : 1) ? y - u->gain * sum : y;
    }
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    struct tern_unit_noise here = tern_unit_noise(s->sigmas[i]);
    float *now = s->rows[CONVERTED];
    tern_predict_unit(s, here.alpha, here.sigma, m, x, now, n);
    tern_predict_limit(s, now, SCRATCH, n);
    if (s->done > 0) {
        struct update corrector = prepare(s, i, s->order, true);
        apply(s, &corrector, s->rows[LAST_SAMPLE], now, x, n);
    }

    s->rows[CONVERTED] = s->rows[MAX_ORDER - 1];
    for (int k = MAX_ORDER - 1; k > 0; k--)
        s->rows[k] = s->rows[k - 1];
    s->rows[0] = now;

    int order = (int)s->config.solver_order;
    if (s->config.lower_order_final && order > s->calls - i)
        order = s->calls - i;
    s->order = order < s->stored + 1 ? order : s->stored + 1;
    s->stored += s->stored < (int)s->config.solver_order;

    memcpy(s->rows[LAST_SAMPLE], x, (size_t)n * sizeof(float));
    struct update predictor = prepare(s, i + 1, s->order, false);
    apply(s, &predictor, x, NULL, x, n);
}

const struct tern_sampler_fns tern_sampler_unipc = {
    .sampler = TERN_SAMPLER_UNIPC,
    .name = "unipc",
    .class_name = "UniPCMultistepScheduler",
    .noise = TERN_NOISE_UNIT,
    .has_schedules = true,
    .has_sample_prediction = true,
    .calls_per_step = 1,
    .rows = MAX_ORDER + 3,
    .defaults = {.num_train_timesteps = 1000,
                 .beta_start = 0.0001,
                 .beta_end = 0.02,
                 .timestep_spacing = TERN_SPACING_LINSPACE,
                 .solver_order = 2,
                 .solver_type = TERN_SOLVER_BH2,
                 .lower_order_final = true,
                 .dynamic_thresholding_ratio = 0.995,
                 .sample_max_value = 1},
    .set_steps = set_steps,
    .step = step,
};
