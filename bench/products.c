/* The products of a Stable Diffusion 1.5 UNet at 512 x 512 in f32 and bf16, as shares of what the processor computes at most.
 * usage: bench_products [--threads N] [--runs N]. Public headers only; Markdown on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

/* w == 0: linear of n * h rows */
struct shape {
    int64_t n, c, h, w, o;
    int kernel;
};

static const struct shape shapes[] = {{2, 320, 64, 64, 320, 3},    {2, 640, 32, 32, 640, 3},   {2, 1280, 16, 16, 1280, 3},
                                      {2, 1280, 8, 8, 1280, 3},    {2, 960, 64, 64, 320, 3},   {2, 640, 64, 64, 320, 1},
                                      {2, 320, 4096, 0, 320, 0},   {2, 320, 4096, 0, 2560, 0}, {2, 1280, 4096, 0, 320, 0},
                                      {2, 640, 1024, 0, 640, 0},   {2, 640, 1024, 0, 5120, 0}, {2, 1280, 256, 0, 1280, 0},
                                      {2, 1280, 256, 0, 10240, 0}, {2, 768, 77, 0, 320, 0}};

/* The same product in f32 and in bf16, each as a plan. */
struct product {
    struct tern_context *ctx;
    const struct shape *s;
    struct tern_weights *weights; /* "w": f16, as most files have it; "b" */
    tern_tensor *x[2];
    struct tern_plan *plan[2];
    struct tern_binding *binding[2];
};

static tern_tensor *ramp(struct tern_context *ctx, int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *v = malloc((size_t)n * sizeof(*v));
    for (int64_t i = 0; v && i < n; i++)
        v[i] = (float)(i * 7919 % 2001 - 1000) * 1e-3f;
    tern_tensor *t = v ? tern_tensor_create(ctx, TERN_F32, ndim, shape, v) : NULL;
    free(v);
    return t;
}

static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct product *p = user;
    tern_tensor *w = tern_weights_get(p->weights, "w"), *b = tern_weights_get(p->weights, "b");
    tern_tensor *y = p->s->w ? tern_conv2d(in[0], w, b, .padding = p->s->kernel / 2) : tern_linear(in[0], w, b);
    out[0] = tern_contiguous(tern_slice(y, 1, 0, 1, 1), TERN_CONTIGUOUS); /* y lies in the plan's memory, as inside a model */
    return tern_error_status(p->ctx);
}

static bool prepare(struct product *p)
{
    const struct shape *s = p->s;
    const bool conv = s->w > 0;
    struct tern_graph_input input = {"x", TERN_F32, conv ? 4 : 3, {s->n, conv ? s->c : s->h, conv ? s->h : s->c, s->w}};
    tern_tensor *w = ramp(p->ctx, conv ? 4 : 2, (const int64_t[]){s->o, s->c, s->kernel, s->kernel});
    p->weights = tern_weights_create(p->ctx);
    tern_weights_add(p->weights, "w", tern_cast(w, TERN_F16));
    tern_weights_add(p->weights, "b", ramp(p->ctx, 1, &s->o));
    p->x[0] = ramp(p->ctx, input.ndim, input.shape);
    if (conv)
        p->x[0] = tern_contiguous(p->x[0], TERN_CHANNELS_LAST);
    p->x[1] = tern_cast(p->x[0], TERN_BF16);
    for (int i = 0; i < 2; i++) {
        input.dtype = i ? TERN_BF16 : TERN_F32;
        struct tern_graph *g = tern_graph_trace(p->ctx, forward, p, p->weights, &input, 1, 1);
        p->plan[i] = tern_plan_compile(g, NULL);
        p->binding[i] = tern_plan_bind(p->plan[i], p->weights);
        tern_graph_destroy(&g);
    }
    return p->binding[0] && p->binding[1];
}

static void finish(struct product *p)
{
    for (int i = 0; i < 2; i++) {
        tern_binding_unref(&p->binding[i]);
        tern_plan_unref(&p->plan[i]);
    }
    tern_weights_unref(&p->weights);
}

static void tell(void *user, const struct tern_step_profile *step)
{
    if (step->flops > 0)
        *(double *)user = step->seconds;
}

/* Seconds of the product; below 0: it failed. */
static double call(const struct product *p, int bf16)
{
    double seconds = -1;
    tern_tensor *out[1] = {NULL};
    tern_scope_begin(p->ctx);
    bool ok = tern_plan_profile(p->binding[bf16], &p->x[bf16], out, tell, &seconds) == TERN_OK;
    tern_scope_end(p->ctx, NULL);
    return ok ? seconds : -1;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* In turns. */
static bool measure(struct tern_context *ctx, const struct shape *s, int runs, const struct tern_device_peak *peak)
{
    static double seconds[2][1000];
    struct product p = {.ctx = ctx, .s = s};
    tern_scope_begin(ctx);
    bool ok = prepare(&p);
    for (int i = -1; ok && i < runs; i++)
        for (int k = 0; k < 2; k++) {
            double t = call(&p, (k + i) & 1);
            ok = ok && t >= 0;
            if (i >= 0)
                seconds[(k + i) & 1][i] = t;
        }
    tern_scope_end(ctx, NULL);
    finish(&p);
    if (!ok)
        return false;
    for (int k = 0; k < 2; k++)
        qsort(seconds[k], (size_t)runs, sizeof(double), compare);
    double flops = 2.0 * (double)(s->n * s->h * (s->w ? s->w : 1)) * (double)s->o * (double)(s->c * (s->w ? s->kernel * s->kernel : 1));
    double f32 = seconds[0][runs / 2], bf16 = seconds[1][runs / 2], most = peak->flops_bf16 > 0 ? peak->flops_bf16 : peak->flops;
    if (s->w)
        printf("| conv %dx%d (%d, %d, %d, %d), %d", s->kernel, s->kernel, (int)s->n, (int)s->c, (int)s->h, (int)s->w, (int)s->o);
    else
        printf("| linear %d x %d, %d", (int)(s->n * s->h), (int)s->c, (int)s->o);
    printf(" | %.2f ms | %.0f %% | %.2f ms | %.2f ms | %.0f | %.0f %% | %.0f %% | %.1f |\n", f32 * 1e3, 100 * flops / f32 / peak->flops,
           bf16 * 1e3, seconds[1][0] * 1e3, flops / bf16 * 1e-9, 100 * flops / bf16 / most, 100 * flops / seconds[1][0] / most, f32 / bf16);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    int threads = 2, runs = 21;
    for (int i = 1; i < argc; i += 2) {
        int *number = !strcmp(argv[i], "--threads") ? &threads : !strcmp(argv[i], "--runs") ? &runs : NULL;
        if (!number || i + 1 >= argc || (*number = atoi(argv[i + 1])) < 1 || runs > 1000) {
            fprintf(stderr, "usage: %s [--threads N] [--runs N]\n", argv[0]);
            return 2;
        }
    }
    struct tern_device_peak peak = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
    bool ok = ctx && tern_device_peak(ctx, &peak) == TERN_OK;
    if (ok)
        printf("%d threads; measured peak: %.1f GFLOP/s in f32, %.1f in bf16\n\n"
               "| product | f32 | of the peak | bf16 | best | GFLOP/s | of the peak | best | f32 / bf16 |\n"
               "|---|---|---|---|---|---|---|---|---|\n",
               threads, peak.flops * 1e-9, peak.flops_bf16 * 1e-9);
    for (size_t i = 0; ok && i < sizeof(shapes) / sizeof(*shapes); i++)
        ok = measure(ctx, &shapes[i], runs, &peak);
    if (!ok)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
