/* DPM-Solver of order 1 to 3 in the noise prediction [Lu 2022a], as k-diffusion has it: dpm_fast with a given number of calls,
 * dpm_adaptive with steps as long as its error allows. Both go from the highest training level to the lowest and end there. Times
 * are -ln sigma. A step of order k makes k calls: at its beginning, and 1 / k, 2 / k of the way. */
#include <math.h>
#include <string.h>

#include "models/schedulers/scheduler.h"

/* dpm_adaptive, k-diffusion's defaults */
#define RTOL 0.05
#define ATOL 0.0078
#define FIRST_STEP 0.05
#define ACCEPT 0.81
#define CLOSE 1e-5 /* to the end */
#define MOST_STEPS 1000
#define SHORTEST 1e-10

enum { START, EPS, X0, LOW, PREVIOUS, HELD, ROWS }; /* rows; LOW on: of dpm_adaptive */

static void set_call(struct tern_scheduler *s, int i, double time)
{
    s->sigmas[i] = (float)exp(-time);
    s->timesteps[i] = (double)(float)tern_timestep_of(s, exp(-time));
}

/* The calls of a step to `next`. With eta it goes further down, and noise comes back up. */
static void lay_step(struct tern_scheduler *s, int first, double time, double next, int order)
{
    struct tern_dpm_step *d = &s->dpm;
    double from = exp(-time), to = exp(-next), up = fmin(to, s->options.eta * to * sqrt(fmax(from * from - to * to, 0)) / from);
    d->first = first;
    d->order = order;
    d->time = time;
    d->next = next;
    d->down = up > 0 ? fmin(d->end, -log(sqrt(fmax(to * to - up * up, 0)))) : next;
    d->up = d->down > next ? sqrt(to * to - exp(-2 * d->down)) : 0;
    for (int k = 0; k < order; k++)
        set_call(s, first + k, time + (d->down - time) * k / order);
    s->sigmas[first + order] = (float)to;
}

/* The range of a run without the first steps. TERN_E_INVALID when there is none; s->calls is 0 when nothing is left of it. */
static enum tern_status set_range(struct tern_scheduler *s, int skipped)
{
    double low = (double)s->train_sigmas[0], high = (double)s->train_sigmas[s->config.num_train_timesteps - 1];
    enum tern_status status = tern_growing_steps(s);
    if (status)
        return status;
    if (!(high > low))
        return tern_fail(s->ctx, TERN_E_INVALID, "scheduler: %s needs noise levels that rise, found %g to %g", s->fns->name, low, high);
    if (skipped > 0)
        high = skipped < s->calls ? (double)s->sigmas[skipped] : low;
    s->dpm = (struct tern_dpm_step){.start = -log(high), .end = -log(low), .h = FIRST_STEP};
    s->calls = s->sigma_count = 0;
    return TERN_OK;
}

static bool is_empty(const struct tern_scheduler *s) { return !(s->dpm.start < s->dpm.end - CLOSE); }

/* Call i of dpm_fast is in the step that this lays out: all have three calls; the last one what is left, and when nothing is, the last
 * two have two and one. */
static void lay_fast_step(struct tern_scheduler *s, int i)
{
    int n = s->calls, steps = n / 3 + 1, k = n % 3 == 0 && i == n - 1 ? steps - 1 : i / 3;
    int order = n % 3 ? (k == steps - 1 ? n % 3 : 3) : k == steps - 1 ? 1 : k == steps - 2 ? 2 : 3;
    double whole = s->dpm.end - s->dpm.start;
    lay_step(s, i, s->dpm.start + whole * k / steps, k == steps - 1 ? s->dpm.end : s->dpm.start + whole * (k + 1) / steps, order);
}

static enum tern_status skip_steps_fast(struct tern_scheduler *s, int skipped)
{
    enum tern_status status = set_range(s, skipped);
    if (status || is_empty(s))
        return status;
    s->calls = s->steps - skipped;
    s->sigma_count = s->calls + 1;
    for (int i = 0; i < s->calls; i += s->dpm.order)
        lay_fast_step(s, i);
    lay_fast_step(s, 0);
    return TERN_OK;
}

/* The next try of a step of dpm_adaptive. */
static void lay_adaptive_step(struct tern_scheduler *s, double time)
{
    lay_step(s, s->calls, time, fmin(s->dpm.end, time + s->dpm.h), 3);
    s->calls += 3;
    s->sigma_count = s->calls + 1;
}

static enum tern_status skip_steps_adaptive(struct tern_scheduler *s, int skipped)
{
    enum tern_status status = set_range(s, skipped);
    if (!status && !is_empty(s))
        lay_adaptive_step(s, s->dpm.start);
    return status;
}

static enum tern_status set_steps_fast(struct tern_scheduler *s) { return skip_steps_fast(s, 0); }
static enum tern_status set_steps_adaptive(struct tern_scheduler *s) { return skip_steps_adaptive(s, 0); }

static int call_of_step(const struct tern_scheduler *s, int i) { return i - s->dpm.first; }
static bool ends_step(const struct tern_scheduler *s, int i) { return call_of_step(s, i) == s->dpm.order - 1; }

/* out = start + a eps + b (e - eps) */
static void combine(const struct tern_scheduler *s, double a, double b, const float *e, float *out, int64_t n)
{
    const float *start = s->rows[START], *eps = s->rows[EPS];
    float fa = (float)a, fb = (float)b;
    for (int64_t j = 0; j < n; j++)
        out[j] = start[j] + fa * eps[j] + (e == eps ? 0 : fb * (e[j] - eps[j]));
}

/* The sample that call k + 1 of the step is given or, after the last, the step's result. e: the noise that call k found. */
static void advance(const struct tern_scheduler *s, int k, const float *e, float *x, int64_t n)
{
    const struct tern_dpm_step *d = &s->dpm;
    int order = d->order;
    double share = (double)(k + 1) / order, h = d->down - d->time, part = share * h, a = -exp(-d->time - part) * expm1(part), b = 0;
    if (k == order - 1 && order == 2)
        b = a;       /* a / (2 r1), r1 = 1 / 2 */
    else if (k == 1) /* r2 / r1 = 2 */
        b = -exp(-d->time - part) * 2 * (expm1(part) / part - 1);
    else if (k == 2)
        b = -exp(-d->time - part) * 1.5 * (expm1(part) / part - 1);
    combine(s, a, b, e, x, n);
}

static void step(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    int k = call_of_step(s, i);
    float sigma = s->sigmas[i], *e = k == 0 ? s->rows[EPS] : s->rows[X0];
    if (k == 0)
        memcpy(s->rows[START], x, (size_t)n * sizeof(float));
    tern_predict_growing(s, sigma, m, x, s->rows[X0], n);
    for (int64_t j = 0; j < n; j++)
        e[j] = (x[j] - s->rows[X0][j]) / sigma;
    advance(s, k, e, x, n);
}

static void step_fast(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    step(s, i, m, noise, x, n);
    if (!ends_step(s, i))
        return;
    tern_add_noise(s, x, noise, (float)s->dpm.up, n);
    if (i + 1 < s->calls)
        lay_fast_step(s, i + 1);
}

/* How far order 2 and 3 are from each other, in what is allowed. The pictures of a batch have one error, and so the same steps. */
static double error_of(const struct tern_scheduler *s, const float *high, int64_t n)
{
    const float *low = s->rows[LOW], *previous = s->rows[PREVIOUS];
    double sum = 0;
    for (int64_t j = 0; j < n; j++) {
        double allowed = fmax(ATOL, RTOL * (double)fmaxf(fabsf(low[j]), fabsf(previous[j])));
        double d = ((double)low[j] - (double)high[j]) / allowed;
        sum += d * d;
    }
    return sqrt(sum / (double)n);
}

/* k-diffusion's controller; of its three coefficients two are 0. */
static bool control(struct tern_scheduler *s)
{
    double factor = 1 + atan(pow(1 / (s->dpm.error + 1e-8), 1 / (s->options.eta > 0 ? 1.5 : 3)) - 1);
    s->dpm.h *= factor;
    return factor >= ACCEPT;
}

/* A step that is accepted takes its noise; of one that is not, the noise that was drawn is held for the next. */
static void end_try(struct tern_scheduler *s, const float *noise, float *x, int64_t n)
{
    const float *unit = s->stored ? s->rows[HELD] : noise;
    s->dpm.error = error_of(s, x, n);
    s->dpm.accepted = control(s);
    if (s->dpm.accepted) {
        memcpy(s->rows[PREVIOUS], s->rows[LOW], (size_t)n * sizeof(float));
        tern_add_noise(s, x, unit, (float)s->dpm.up, n);
        s->stored = 0;
        return;
    }
    memcpy(x, s->rows[START], (size_t)n * sizeof(float));
    if (noise) {
        memcpy(s->rows[HELD], noise, (size_t)n * sizeof(float));
        s->stored = 1;
    }
}

static void step_adaptive(struct tern_scheduler *s, int i, const float *m, const float *noise, float *x, int64_t n)
{
    if (i == 0)
        memcpy(s->rows[PREVIOUS], x, (size_t)n * sizeof(float));
    step(s, i, m, noise, x, n);
    if (call_of_step(s, i) == 1) { /* order 2 with r1 = 1 / 3, from the same calls */
        const struct tern_dpm_step *d = &s->dpm;
        double a = -exp(-d->down) * expm1(d->down - d->time);
        combine(s, a, 1.5 * a, s->rows[X0], s->rows[LOW], n);
    }
    if (ends_step(s, i))
        end_try(s, noise, x, n);
}

static enum tern_status extend(struct tern_scheduler *s, int i)
{
    const struct tern_dpm_step *d = &s->dpm;
    if (!ends_step(s, i))
        return TERN_OK;
    if (!isfinite(d->error))
        return tern_fail(s->ctx, TERN_E_INVALID,
                         "scheduler: dpm_adaptive cannot go on at noise level %g: the model's outputs are no numbers", exp(-d->time));
    double time = d->accepted ? d->next : d->time;
    if (!(time < d->end - CLOSE))
        return TERN_OK;
    if (s->calls >= 3 * MOST_STEPS || d->h < SHORTEST)
        return tern_fail(
            s->ctx, TERN_E_INVALID,
            "scheduler: dpm_adaptive came to noise level %g only, in %d steps down to a length of %g: the model's outputs differ "
            "too much between near levels; use another sampler",
            exp(-time), s->calls / 3, d->h);
    lay_adaptive_step(s, time);
    return TERN_OK;
}

/* As if all steps were as long as the next. */
static int expected(const struct tern_scheduler *s)
{
    const struct tern_dpm_step *d = &s->dpm;
    double steps = ceil((d->end - CLOSE - d->next) / d->h);
    return s->calls + (steps > 0 ? 3 * (int)fmin(steps, MOST_STEPS) : 0);
}

static bool draws_noise(const struct tern_scheduler *s, int i) { return s->dpm.up > 0 && ends_step(s, i) && !s->stored; }

#define COMMON                                                                                               \
    .noise = TERN_NOISE_GROWING, .has_sample_prediction = true, .defaults = TERN_GROWING_DEFAULTS, .eta = 1, \
    .takes = TERN_TAKES_ETA | TERN_TAKES_NOISE

const struct tern_sampler_fns tern_sampler_dpm_fast = {
    .sampler = TERN_SAMPLER_DPM_FAST,
    .name = "dpm_fast",
    .class_name = "k_diffusion.sample_dpm_fast",
    .calls_per_step = 1,
    .rows = LOW,
    .set_steps = set_steps_fast,
    .skip_steps = skip_steps_fast,
    .step = step_fast,
    .draws_noise = draws_noise,
    COMMON,
};

const struct tern_sampler_fns tern_sampler_dpm_adaptive = {
    .sampler = TERN_SAMPLER_DPM_ADAPTIVE,
    .name = "dpm_adaptive",
    .class_name = "k_diffusion.sample_dpm_adaptive",
    .calls_per_step = 1,
    .most_calls = 3 * MOST_STEPS,
    .rows = ROWS,
    .set_steps = set_steps_adaptive,
    .skip_steps = skip_steps_adaptive,
    .step = step_adaptive,
    .extend = extend,
    .expected = expected,
    .draws_noise = draws_noise,
    COMMON,
};
