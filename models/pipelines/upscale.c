/* torch.nn.functional.interpolate of latents (align_corners false): each output is a weighted sum of a few inputs, along the columns and
 * then along the rows. */
#include "models/pipelines/upscale.h"

#include <math.h>
#include <stdio.h>

#include "core/context.h"
#include "core/memory.h"
#include "core/status.h"
#include "models/schedulers/scheduler.h"

/* a of Keys' cubic, as torch has it without and with antialias */
#define CUBIC_PLAIN (-0.75)
#define CUBIC_ANTIALIAS (-0.5)

static const struct tern_upscaler upscalers[] = {
    {"Latent", TERN_UPSCALE_BILINEAR, false},          {"Latent (antialiased)", TERN_UPSCALE_BILINEAR, true},
    {"Latent (bicubic)", TERN_UPSCALE_BICUBIC, false}, {"Latent (bicubic antialiased)", TERN_UPSCALE_BICUBIC, true},
    {"Latent (nearest)", TERN_UPSCALE_NEAREST, false}, {"Latent (nearest-exact)", TERN_UPSCALE_NEAREST_EXACT, false},
};
#define UPSCALERS (sizeof(upscalers) / sizeof(*upscalers))

const struct tern_upscaler *tern_upscaler_find(const char *name)
{
    for (size_t i = 0; i < UPSCALERS; i++)
        if (!name || tern_same_name(name, upscalers[i].name))
            return &upscalers[i];
    return NULL;
}

void tern_upscaler_list(char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < UPSCALERS && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", upscalers[i].name);
}

/* One input of an output. */
struct tap {
    int64_t at;
    double weight;
};

/* An axis: the taps of output i are tap[i * most] and the `count[i]` - 1 behind it. */
struct axis {
    int64_t in, out, reach; /* inputs on each side of an output */
    double stretch;         /* antialias makes them so many times as wide */
    bool one;               /* an output is one of the inputs */
    size_t most;
    int64_t *count;
    struct tap *tap;
};

/* [Keys 1981] */
static double cubic(double x, double a)
{
    x = fabs(x);
    return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
}

static double weight(const struct tern_upscaler *u, double x)
{
    if (u->mode == TERN_UPSCALE_BICUBIC)
        return cubic(x, u->antialias ? CUBIC_ANTIALIAS : CUBIC_PLAIN);
    return fmax(1 - fabs(x), 0);
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* torch computes these in f32, where a product may lie on the other side of a whole number. */
static int64_t nearest(const struct tern_upscaler *u, int64_t i, int64_t in, int64_t out)
{
    const float scale = (float)in / (float)out;
    const float at = u->mode == TERN_UPSCALE_NEAREST_EXACT ? (float)(((double)i + 0.5) * (double)scale) : (float)i * scale;
    return clamp((int64_t)floorf(at), 0, in - 1);
}

/* The taps of output i; their number. */
static int64_t weigh(const struct tern_upscaler *u, int64_t i, const struct axis *a, struct tap *tap)
{
    const double centre = ((double)i + 0.5) * ((double)a->in / (double)a->out) - 0.5, reach = (double)a->reach * a->stretch;
    int64_t first = (int64_t)floor(centre) - a->reach + 1, end = first + 2 * a->reach;
    double sum = 0;
    if (u->antialias) {
        first = clamp((int64_t)(centre + 1 - reach), 0, a->in - 1);
        end = clamp((int64_t)(centre + 1 + reach), first + 1, a->in);
    }
    for (int64_t k = first; k < end; k++) {
        tap[k - first] = (struct tap){clamp(k, 0, a->in - 1), weight(u, ((double)k - centre) / a->stretch)};
        sum += tap[k - first].weight;
    }
    for (int64_t k = 0; k < end - first; k++)
        tap[k].weight /= sum;
    return end - first;
}

static void axis_free(struct tern_context *ctx, struct axis *a)
{
    tern_free(ctx, a->count);
    tern_free(ctx, a->tap);
}

/* Of what `in` and `out` say. */
static struct axis axis_of(const struct tern_upscaler *u, int64_t in, int64_t out)
{
    struct axis a = {.in = in, .out = out, .reach = u->mode == TERN_UPSCALE_BICUBIC ? 2 : 1};
    a.stretch = u->antialias && in > out ? (double)in / (double)out : 1;
    a.one = u->mode == TERN_UPSCALE_NEAREST || u->mode == TERN_UPSCALE_NEAREST_EXACT;
    a.most = a.one ? 1 : 2 * (size_t)ceil((double)a.reach * a.stretch) + 1;
    return a;
}

static bool axis_make(struct tern_context *ctx, const struct tern_upscaler *u, int64_t in, int64_t out, struct axis *a)
{
    *a = axis_of(u, in, out);
    a->count = tern_alloc(ctx, (size_t)out * sizeof(*a->count));
    a->tap = tern_alloc(ctx, (size_t)out * a->most * sizeof(*a->tap));
    for (int64_t i = 0; a->count && a->tap && i < out; i++) {
        struct tap *tap = a->tap + (size_t)i * a->most;
        a->count[i] = a->one ? 1 : weigh(u, i, a, tap);
        if (a->one)
            *tap = (struct tap){nearest(u, i, in, out), 1};
    }
    return a->count && a->tap;
}

/* `lines` of the axis: values of one line are `step` apart, lines `line` in x and `to_line` in y. */
static void resample(const struct axis *a, int64_t lines, int64_t step, int64_t line, int64_t to_line, const float *x, float *y)
{
    for (int64_t l = 0; l < lines; l++)
        for (int64_t i = 0; i < a->out; i++) {
            const struct tap *tap = a->tap + (size_t)i * a->most;
            double sum = 0;
            for (int64_t k = 0; k < a->count[i]; k++)
                sum += tap[k].weight * (double)x[l * line + tap[k].at * step];
            y[l * to_line + i * step] = (float)sum;
        }
}

enum tern_status tern_upscale(struct tern_context *ctx, const struct tern_upscaler *u, const struct tern_planes *size, const float *from,
                              int64_t rows, int64_t columns, float *to)
{
    struct axis across = {0}, down = {0};
    float *wide = tern_alloc(ctx, (size_t)(size->rows * columns) * sizeof(*wide)); /* (rows, new columns) */
    if (wide && axis_make(ctx, u, size->columns, columns, &across) && axis_make(ctx, u, size->rows, rows, &down))
        for (int64_t p = 0; p < size->count; p++) {
            resample(&across, size->rows, 1, size->columns, columns, from + p * size->rows * size->columns, wide);
            resample(&down, columns, columns, 1, 1, wide, to + p * rows * columns);
        }
    axis_free(ctx, &across);
    axis_free(ctx, &down);
    tern_free(ctx, wide);
    return tern_error_status(ctx);
}

size_t tern_upscale_bytes(const struct tern_upscaler *u, const struct tern_planes *size, int64_t rows, int64_t columns)
{
    const struct axis axes[] = {axis_of(u, size->columns, columns), axis_of(u, size->rows, rows)};
    size_t bytes = (size_t)(size->rows * columns) * sizeof(float);
    for (int i = 0; i < 2; i++)
        bytes += (size_t)axes[i].out * (sizeof(*axes[i].count) + axes[i].most * sizeof(*axes[i].tap));
    return bytes;
}
