/* DeepCache: which calls of the UNet are whole, and what the others take from them.        [Ma 2023: Accelerating Diffusion Models for
 * Free] */
#include <complex.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "models/pipelines/pipeline.h"
#include "models/schedulers/scheduler.h"

#define MAX_INTERVAL 1000
#define MAX_POW 10

enum tern_status tern_job_check_cache(const struct tern_job *j)
{
    struct tern_context *ctx = j->p->ctx;
    const struct tern_txt2img_params *q = &j->params;
    const int branches = TERN_UNET_BRANCHES * j->p->unet_config.blocks;
    if (q->cache_interval < 0 || q->cache_interval > MAX_INTERVAL)
        return tern_fail(ctx, TERN_E_INVALID, "cache_interval: expected 1 (no call of the UNet is cut short)..%d, found %d", MAX_INTERVAL,
                         q->cache_interval);
    if (q->cache_branch_id < 0 || q->cache_branch_id >= branches)
        return tern_fail(ctx, TERN_E_INVALID, "cache_branch_id: the UNet of %s has the branches 0..%d, found %d", j->p->name, branches - 1,
                         q->cache_branch_id);
    if (q->cache_pow != 0 && !(q->cache_pow > 1 && q->cache_pow <= MAX_POW))
        return tern_fail(ctx, TERN_E_INVALID,
                         "cache_pow: expected a number above 1 and at most %d, or 0 for whole calls at even distances, found %g", MAX_POW,
                         q->cache_pow);
    if (q->cache_center < 0 || q->cache_center > q->steps)
        return tern_fail(ctx, TERN_E_INVALID, "cache_center: expected 0..%d, a step of the job, found %d", q->steps, q->cache_center);
    return TERN_OK;
}

/* ---- calls at uneven distances, bit for bit as Python and numpy compute the reference's formula: where it is rounded decides */

/* CMPLX of C11, which clang 14 lacks. */
static complex double complex_of(double real, double imaginary)
{
    const double parts[] = {real, imaginary};
    complex double z;
    memcpy(&z, parts, sizeof(z));
    return z;
}

/* base ^ exponent, of a negative base the principal value */
static complex double power_of(double base, double exponent)
{
    const double size = pow(fabs(base), exponent), angle = atan2(0, -1) * exponent;
    return base < 0 ? complex_of(size * cos(angle), size * sin(angle)) : complex_of(size, 0);
}

static complex double product(complex double a, complex double b)
{
    return complex_of(creal(a) * creal(b) - cimag(a) * cimag(b), creal(a) * cimag(b) + cimag(a) * creal(b));
}

/* numpy multiplies where the exponent is whole. */
static complex double raised(complex double x, double exponent)
{
    complex double out = 1;
    if (exponent != floor(exponent))
        return cpow(x, exponent);
    for (unsigned n = (unsigned)exponent; n; n >>= 1, x = product(x, x))
        out = n & 1 ? product(out, x) : out;
    return out;
}

/* Point i of 0..n: evenly spaced roots, raised again, and cut to a whole number. */
static int point(int i, int n, int total, int center, double exponent)
{
    const complex double first = power_of(-center, 1 / exponent), last = power_of(total - center, 1 / exponent), all = last - first;
    if (!center) /* real numbers */
        return (int)pow(i == n ? creal(last) : i * (creal(all) / n), exponent);
    const double part = 1.0 / n;
    const complex double x = complex_of(i * (creal(all) * part) + creal(first), i * (cimag(all) * part) + cimag(first));
    return (int)creal(raised(i == n ? last : x, exponent));
}

static int by_value(const void *a, const void *b) { return (*(const int *)a > *(const int *)b) - (*(const int *)a < *(const int *)b); }

/* The points, rising, each once; their number. */
static int points(int n, int total, int center, double exponent, int *out)
{
    int count = 0;
    for (int i = 0; i <= n; i++)
        out[i] = point(i, n, total, center, exponent);
    qsort(out, (size_t)n + 1, sizeof(*out), by_value);
    for (int i = 0; i <= n; i++)
        if (!count || out[i] != out[count - 1])
            out[count++] = out[i];
    return count;
}

/* The exponent falls until there are as many whole calls as the interval asks for: the first, and the points between first and last. */
static enum tern_status choose_uneven(struct tern_job *j, int *point)
{
    const struct tern_txt2img_params *q = &j->params;
    const int total = j->planned, n = (total + q->cache_interval - 1) / q->cache_interval,
              center = q->cache_center < total ? q->cache_center : total;
    for (double exponent = q->cache_pow; exponent > 1; exponent -= 0.02) {
        const int count = points(n, total, center, exponent, point), whole = count > 2 ? count - 1 : 1;
        if (whole != n)
            continue;
        j->whole[0] = true;
        for (int i = 1; i < count - 1; i++)
            if (point[i] + center >= 0 && point[i] + center < total)
                j->whole[point[i] + center] = true;
        return TERN_OK;
    }
    return tern_fail(j->p->ctx, TERN_E_INVALID,
                     "cache_center %d, cache_pow %g: no power up to that gives %d whole calls of %d; a larger cache_pow, another "
                     "cache_center or cache_interval would help",
                     q->cache_center, q->cache_pow, n, total);
}

enum tern_status tern_job_plan_cache(struct tern_job *j)
{
    const struct tern_txt2img_params *q = &j->params;
    const int steps = j->scheduler->steps * j->scheduler->fns->calls_per_step, calls = tern_job_expected_calls(j);
    j->caches = q->cache_interval > 1;
    if (!j->caches || q->cache_pow == 0)
        return TERN_OK;
    j->planned = (steps < calls ? steps : calls) - j->begin; /* pndm makes a call more, which the reference does not count */
    j->planned = j->planned > 1 ? j->planned : 1;
    j->whole = tern_calloc(j->p->ctx, (size_t)j->planned, sizeof(*j->whole));
    int *point = tern_calloc(j->p->ctx, (size_t)j->planned + 1, sizeof(*point));
    enum tern_status st = j->whole && point ? choose_uneven(j, point) : tern_error_status(j->p->ctx);
    tern_free(j->p->ctx, point);
    return st;
}

/* The first call with the timestep of this one: the reference looks calls up by their timestep. */
static int first_with_timestep(const struct tern_job *j, int call)
{
    const double t = tern_scheduler_timestep(j->scheduler, call);
    int i = 0;
    while (i < call && tern_scheduler_timestep(j->scheduler, i) != t)
        i++;
    return i;
}

bool tern_job_is_shallow(const struct tern_job *j, int call)
{
    const int interval = j->params.cache_interval, i = call - j->begin;
    if (!j->caches)
        return false;
    if (!j->whole)
        return (first_with_timestep(j, call) - first_with_timestep(j, j->begin)) % interval;
    return i < j->planned ? !j->whole[i] : (i - j->planned + 1) % interval; /* a sampler may make more calls than were expected */
}

struct tern_stage tern_job_shallow_stage(const struct tern_job *j)
{
    struct tern_stage s = tern_job_stage(j, "unet");
    s.part = TERN_UNET_SHALLOW;
    return s;
}

int64_t tern_job_deep_values(const struct tern_job *j)
{
    int64_t s[4];
    tern_unet_deep_shape(&j->p->unet_config, j->params.cache_branch_id, tern_job_group(j) * j->branches, j->lh, j->lw, s);
    return s[0] * s[1] * s[2] * s[3];
}
