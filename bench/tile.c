/* The halves of the VAE in less memory than they take whole: arena, time and difference by limit, in turns with the whole.
 * usage: bench_tile MODEL [--width N] [--height N] [--runs N] [vae_decoder|vae_encoder]. Public headers only; Markdown on standard
 * output, exit code 1 when a result differs by more than an NMSE of 1e-10. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

#define MOST_RUNS 32

struct options {
    const char *model, *component;
    int width, height, runs;
};

struct one {
    struct tern_plan *plan;
    struct tern_binding *binding;
    tern_tensor *out[2];
    double seconds[MOST_RUNS];
};

static bool open_one(struct tern_pipeline *p, const struct tern_graph *g, const char *component, size_t arena, struct one *o)
{
    *o = (struct one){.plan = tern_plan_compile(g, &(struct tern_plan_params){.arena = arena})};
    o->binding = tern_plan_bind(o->plan, tern_pipeline_weights(p, component));
    return o->binding != NULL;
}

static void close_one(struct one *o)
{
    tern_binding_unref(&o->binding);
    tern_plan_unref(&o->plan);
}

static bool run(struct one *o, tern_tensor *in, int i)
{
    double start = now();
    bool ok = tern_plan_run(o->binding, &in, o->out) == TERN_OK;
    o->seconds[i] = now() - start;
    tern_plan_trim(o->plan);
    return ok;
}

static double nmse(const tern_tensor *y, const tern_tensor *x)
{
    size_t n = (size_t)tern_tensor_numel(x);
    float *a = malloc(n * sizeof(*a)), *b = malloc(n * sizeof(*b));
    double error = 0, norm = 0;
    bool ok = a && b && !tern_tensor_read(y, TERN_F32, a, n * sizeof(*a)) && !tern_tensor_read(x, TERN_F32, b, n * sizeof(*b));
    for (size_t i = 0; ok && i < n; i++) {
        error += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)b[i] * b[i];
    }
    free(a);
    free(b);
    return ok ? error / norm : 1;
}

/* Seeded noise of the component's input. */
static tern_tensor *make_input(struct tern_context *ctx, const struct options *o)
{
    bool decoder = !strcmp(o->component, "vae_decoder");
    const int64_t shape[] = {1, decoder ? 4 : 3, decoder ? o->height / 8 : o->height, decoder ? o->width / 8 : o->width};
    int64_t n = shape[1] * shape[2] * shape[3];
    float *values = malloc((size_t)n * sizeof(*values));
    struct tern_generator random;
    tern_generator_seed(&random, TERN_GENERATOR_CPU, 1);
    if (values)
        tern_generator_randn(&random, values, n);
    tern_tensor *t = values ? tern_tensor_create(ctx, TERN_F32, 4, shape, values) : NULL;
    free(values);
    return t;
}

static bool measure(struct tern_pipeline *p, const struct options *o, const struct tern_graph *g, tern_tensor *in, struct one *whole,
                    double part)
{
    struct one tiled;
    size_t limit = part > 0 ? (size_t)(part * (double)tern_plan_facts(whole->plan).arena) : 1;
    bool ok = open_one(p, g, o->component, limit, &tiled);
    for (int i = 0; ok && i < o->runs; i++)
        ok = i % 2 ? run(&tiled, in, i) && run(whole, in, i) : run(whole, in, i) && run(&tiled, in, i);
    if (ok) {
        struct tern_plan_facts f = tern_plan_facts(tiled.plan);
        double error = nmse(tiled.out[0], whole->out[0]);
        printf("| %.1f MiB | %.1f MiB | %.3f | %d | %.3f s | %.3f | %.1e |\n", (double)limit / (1 << 20), (double)f.arena / (1 << 20),
               (double)f.arena / (double)tern_plan_facts(whole->plan).arena, f.launches, median(tiled.seconds, o->runs),
               median(tiled.seconds, o->runs) / median(whole->seconds, o->runs), error);
        fflush(stdout);
        ok = error <= 1e-10;
    }
    close_one(&tiled);
    return ok;
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.component = "vae_decoder", .width = 512, .height = 512, .runs = 3};
    for (int i = 1; i < argc; i++) {
        int *number = !strcmp(argv[i], "--width")    ? &o->width
                      : !strcmp(argv[i], "--height") ? &o->height
                      : !strcmp(argv[i], "--runs")   ? &o->runs
                                                     : NULL;
        if (number && (i + 1 >= argc || (*number = atoi(argv[++i])) < 1))
            return false;
        if (!number && !o->model)
            o->model = argv[i];
        else if (!number)
            o->component = argv[i];
    }
    o->runs = o->runs < MOST_RUNS ? o->runs : MOST_RUNS;
    return o->model && !strncmp(o->component, "vae_", 4);
}

int main(int argc, char **argv)
{
    static const double parts[] = {0.75, 0.5, 0.25, 0};
    struct options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: %s MODEL [--width N] [--height N] [--runs N] [vae_decoder|vae_encoder]\n", argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(NULL);
    struct tern_pipeline *p = ctx ? tern_pipeline_load(ctx, o.model, NULL) : NULL;
    struct tern_graph *g = p ? tern_pipeline_graph(p, o.component, &(struct tern_graph_size){1, o.width, o.height}) : NULL;
    struct one whole = {NULL};
    if (ctx)
        tern_scope_begin(ctx);
    tern_tensor *in = g ? make_input(ctx, &o) : NULL;
    bool ok = in && open_one(p, g, o.component, 0, &whole);
    if (ok)
        printf("%s, %d x %d, f32; arena without a limit %.1f MiB\n\n| limit | arena | of the whole | launches | time | over the whole's | "
               "NMSE |\n|---|---|---|---|---|---|---|\n",
               o.component, o.width, o.height, (double)tern_plan_facts(whole.plan).arena / (1 << 20));
    for (int i = 0; ok && i < 4; i++)
        ok = measure(p, &o, g, in, &whole, parts[i]);
    if (!ok)
        fprintf(stderr, "%s\n", !ctx ? tern_create_error() : tern_error_status(ctx) ? tern_error(ctx) : "the result differs");
    if (ctx)
        tern_scope_end(ctx, NULL);
    close_one(&whole);
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
