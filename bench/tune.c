/* How near the cost model comes to measured choices. usage: bench_tune MODEL [--threads N] [--width N] [--height N] [--runs N] [--bf16]
 * [--cache FILE] [--time SECONDS] [COMPONENT...]. Each component's plan by the cost model and by measuring everything (what FILE has is
 * not measured again; SECONDS: most for a component), bound to the same weights, run in turns. Public headers only; Markdown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

#define MOST_RUNS 32

struct options {
    const char *model, *cache;
    int threads, width, height, runs;
    double seconds;
    enum tern_dtype dtype;
    const char *components[8];
    int n_components;
};

/* Zeros, in the order of the graph's inputs. */
static void make_inputs(struct tern_context *ctx, const char *component, const struct options *o, int64_t batch, tern_tensor **in)
{
    int64_t h = o->height / 8, w = o->width / 8;
    if (!strcmp(component, "text_encoder")) {
        in[0] = tern_tensor_create(ctx, TERN_I64, 2, (const int64_t[]){batch, 77}, NULL);
        return;
    }
    if (!strcmp(component, "vae_encoder")) {
        in[0] = tern_tensor_create(ctx, o->dtype, 4, (const int64_t[]){batch, 3, o->height, o->width}, NULL);
        return;
    }
    in[0] = tern_tensor_create(ctx, o->dtype, 4, (const int64_t[]){batch, 4, h, w}, NULL);
    if (strcmp(component, "unet") != 0)
        return;
    in[1] = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1, 320}, NULL);
    in[2] = tern_tensor_create(ctx, o->dtype, 3, (const int64_t[]){batch, 77, 768}, NULL);
}

struct sums {
    double usual, fastest;
    int rows;
};

static void tell(void *user, const struct tern_tuned_step *s)
{
    struct sums *sums = user;
    if (s->usual_seconds <= 0)
        return;
    sums->usual += s->steps * s->usual_seconds;
    sums->fastest += s->steps * s->seconds;
    if (!strcmp(s->kernel, s->usual))
        return;
    if (!sums->rows++)
        printf("| steps | op | result | fastest | time | by the cost model | time | ratio |\n|---|---|---|---|---|---|---|---|\n");
    printf("| %d | %s | %s | %s | %.2f ms | %s | %.2f ms | %.2f |\n", s->steps, s->op, s->output, s->kernel, s->seconds * 1e3, s->usual,
           s->usual_seconds * 1e3, s->usual_seconds / s->seconds);
}

static double run_plan(struct tern_binding *b, tern_tensor *const *in, tern_tensor **out)
{
    double start = now();
    return tern_plan_run(b, in, out) ? -1 : now() - start;
}

/* plans[0]: by the cost model; plans[1]: tuned. */
static bool run_both(struct tern_plan *const *plans, const struct tern_weights *weights, tern_tensor *const *in, int runs)
{
    tern_tensor *out[2][TERN_GRAPH_MAX_IO] = {{NULL}};
    struct tern_binding *b[2] = {NULL};
    double times[2][MOST_RUNS];
    bool ok = true;
    for (int k = 0; ok && k < 2; k++) {
        b[k] = tern_plan_bind(plans[k], weights);
        ok = b[k] && run_plan(b[k], in, out[k]) >= 0;
    }
    for (int i = 0; ok && i < runs; i++) /* in turns, and the first of a turn changes */
        for (int k = 0; ok && k < 2; k++) {
            int which = (i + k) % 2;
            times[which][i] = run_plan(b[which], in, out[which]);
            ok = times[which][i] >= 0;
        }
    if (ok) {
        double usual = median(times[0], runs), tuned = median(times[1], runs);
        printf("\nwhole plan, medians of %d: %.3f s by the cost model, %.3f s tuned, ratio %.3f; prepared weights %.0f MiB and %.0f MiB\n",
               runs, usual, tuned, usual / tuned, (double)tern_plan_facts(plans[0]).resident / (1 << 20),
               (double)tern_plan_facts(plans[1]).resident / (1 << 20));
    }
    tern_binding_unref(&b[0]);
    tern_binding_unref(&b[1]);
    return ok;
}

static bool measure(struct tern_context *ctx, struct tern_pipeline *p, const char *component, const struct options *o)
{
    const int batch = strncmp(component, "vae", 3) ? 2 : 1;
    tern_tensor *in[4] = {NULL};
    struct sums sums = {0, 0, 0};
    struct tern_graph *g = tern_pipeline_graph(p, component, &(struct tern_graph_size){batch, o->width, o->height});
    struct tern_plan *plans[2] = {tern_plan_compile(g, &(struct tern_plan_params){.without = "tune"}), tern_plan_compile(g, NULL)};
    bool ok = plans[0] && plans[1];
    printf("\n%s\n\n", component);
    if (ok && !tern_plan_tuning(plans[1], tell, &sums) && sums.fastest > 0)
        printf("\nsteps with a choice: %.1f ms by the cost model, %.1f ms at best, ratio %.3f\n", sums.usual * 1e3, sums.fastest * 1e3,
               sums.usual / sums.fastest);
    tern_scope_begin(ctx);
    if (ok)
        make_inputs(ctx, component, o, batch, in);
    ok = ok && (!o->runs || run_both(plans, tern_pipeline_weights(p, component), in, o->runs));
    tern_scope_end(ctx, NULL);
    tern_plan_unref(&plans[0]);
    tern_plan_unref(&plans[1]);
    tern_graph_destroy(&g);
    return ok;
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.threads = 2, .width = 512, .height = 512, .runs = 3};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;
        int *number = !strcmp(a, "--threads")  ? &o->threads
                      : !strcmp(a, "--width")  ? &o->width
                      : !strcmp(a, "--height") ? &o->height
                      : !strcmp(a, "--runs")   ? &o->runs
                                               : NULL;
        if (!strcmp(a, "--bf16"))
            o->dtype = TERN_BF16;
        else if (a[0] == '-' && !next)
            return false;
        else if (number)
            *number = atoi(argv[++i]);
        else if (!strcmp(a, "--cache"))
            o->cache = argv[++i];
        else if (!strcmp(a, "--time"))
            o->seconds = atof(argv[++i]);
        else if (!o->model)
            o->model = a;
        else if (o->n_components < 8)
            o->components[o->n_components++] = a;
    }
    static const char *const all[] = {"unet", "vae_decoder"};
    for (bool none = !o->n_components; none && o->n_components < 2; o->n_components++)
        o->components[o->n_components] = all[o->n_components];
    return o->model && o->threads > 0 && o->width > 0 && o->height > 0 && o->runs >= 0 && o->runs <= MOST_RUNS;
}

int main(int argc, char **argv)
{
    struct options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: %s MODEL [--threads N] [--width N] [--height N] [--runs 0..32] [--bf16] [--cache FILE] [--time SECONDS] "
                "[COMPONENT...]\n",
                argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(
        &(struct tern_context_params){.threads = o.threads, .tune = {.level = TERN_TUNE_FULL, .cache = o.cache, .seconds = o.seconds}});
    struct tern_pipeline *p =
        ctx ? tern_pipeline_load(ctx, o.model, &(struct tern_pipeline_params){.dtype = o.dtype, .keep_text_encoder = true}) : NULL;
    bool ok = p != NULL;
    printf("%d x %d, %d threads, %s; batch 2 (VAE: 1)\n", o.width, o.height, o.threads, tern_dtype_name(o.dtype));
    for (int i = 0; ok && i < o.n_components; i++)
        ok = measure(ctx, p, o.components[i], &o);
    if (!ok)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
