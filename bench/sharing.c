/* Plans that are shared: what a second checkpoint, another size, a new process and a switch of weights cost. usage:
 * bench_sharing MODEL [SECOND_MODEL] [LOADS]. SECOND_MODEL: of the same architecture; the same again without one. LOADS: how often a
 * model is loaded and dropped (300). Public headers only; Markdown on standard output, exit code 1 when a count is missed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <tern/tern.h>

#include "timing.h"

#define RUNS 20

static size_t resident(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void row(const char *what, const char *asked, const char *unit, double measured)
{
    printf("| %s | %s | %.4g%s |\n", what, asked, measured, unit);
    fflush(stdout);
}

static const struct tern_graph_size size = {2, 512, 512}, other = {2, 640, 512}, small = {2, 64, 64};

/* Seconds of trace, key and plan of the UNet; the plan is the caller's. */
static double get_plan(struct tern_pipeline *p, const struct tern_graph_size *s, struct tern_plan **plan)
{
    double start = now();
    struct tern_graph *g = tern_pipeline_graph(p, "unet", s);
    *plan = tern_plan_cached(g, NULL);
    tern_graph_destroy(&g);
    return now() - start;
}

struct call {
    double began, first; /* seconds; the first kernel began so long after the call, -1: not yet */
};

static void tell(void *user, const struct tern_step_profile *step)
{
    struct call *c = user;
    if (c->first < 0)
        c->first = now() - c->began - step->seconds;
}

/* Median seconds from the call to the first kernel, with one binding or with two in turns, and allocations in all. */
static double to_first_kernel(struct tern_context *ctx, struct tern_binding *const *b, int n, tern_tensor *const *in, uint64_t *allocations)
{
    double times[RUNS];
    struct tern_device_peak peak;
    tern_tensor *out[1] = {NULL};
    for (int i = 0; i < n; i++)
        tern_plan_run(b[i], in, out); /* the output, and memory of the run */
    tern_device_peak(ctx, &peak);     /* measured here, not by the first profile */
    *allocations = tern_memory_allocations(ctx);
    for (int i = 0; i < RUNS; i++) {
        struct call c = {now(), -1};
        tern_plan_profile(b[i % n], in, out, tell, &c);
        times[i] = c.first;
    }
    *allocations = tern_memory_allocations(ctx) - *allocations;
    return median(times, RUNS);
}

static bool measure_switch(struct tern_context *ctx, struct tern_pipeline *a, struct tern_pipeline *second)
{
    struct tern_plan *plan = NULL;
    get_plan(a, &small, &plan);
    struct tern_binding *b[] = {tern_plan_bind(plan, tern_pipeline_weights(a, "unet")),
                                tern_plan_bind(plan, tern_pipeline_weights(second, "unet"))};
    uint64_t one = 1, two = 1;
    tern_scope_begin(ctx);
    tern_tensor *in[] = {tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){2, 4, 8, 8}, NULL),
                         tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){1, 320}, NULL),
                         tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){2, 77, 768}, NULL)};
    bool ok = b[0] && b[1] && in[2];
    double same = ok ? to_first_kernel(ctx, b, 1, in, &one) : 0, turns = ok ? to_first_kernel(ctx, b, 2, in, &two) : 0;
    tern_scope_end(ctx, NULL);
    if (ok) {
        row("switch between two resident sets: call to first kernel, in turns", "<= 1 ms", " ms", 1e3 * turns);
        row("the same without a switch", "", " ms", 1e3 * same);
        row("allocations in 40 runs", "0", "", (double)(one + two));
    }
    tern_binding_unref(&b[0]);
    tern_binding_unref(&b[1]);
    tern_plan_unref(&plan);
    return ok && !one && !two;
}

static bool measure_loads(struct tern_context *ctx, const char *model, int loads)
{
    size_t before = 0;
    for (int i = -10; i < loads; i++) { /* the first ten fill caches */
        if (!i)
            before = resident();
        struct tern_pipeline *p = tern_pipeline_load(ctx, model, NULL);
        if (!p)
            return false;
        tern_pipeline_destroy(&p);
    }
    double growth = 100 * ((double)resident() / (double)before - 1);
    char what[64];
    snprintf(what, sizeof(what), "%d loads and drops: growth of resident memory", loads);
    row(what, "<= 1 %", " %", growth);
    return growth <= 1;
}

static bool measure(const char *folder, const char *model, const char *second, int loads)
{
    const struct tern_context_params params = {.cache_dir = folder};
    struct tern_context *ctx = tern_context_create(&params);
    struct tern_pipeline *a = tern_pipeline_load(ctx, model, NULL), *b = a ? tern_pipeline_load(ctx, second, NULL) : NULL;
    struct tern_plan *plan = NULL, *again = NULL, *bigger = NULL;
    bool ok = b != NULL;
    if (ok) {
        double first = get_plan(a, &size, &plan), shared = get_plan(b, &size, &again), new_size = get_plan(a, &other, &bigger);
        ok = plan && bigger && plan == again;
        row("UNet plan: trace and compile", "<= 1.0 s", " s", first);
        row("the same at a new size", "<= 1.0 s", " s", new_size);
        row("second checkpoint: trace and shared plan, beyond reading and preparing", "<= 50 ms", " ms", 1e3 * shared);
    }
    tern_plan_unref(&bigger);
    tern_plan_unref(&again);
    tern_plan_unref(&plan);
    struct tern_context *fresh = ok ? tern_context_create(&params) : NULL; /* as another process: nothing but the folder */
    struct tern_pipeline *c = fresh ? tern_pipeline_load(fresh, model, NULL) : NULL;
    if (c)
        row("trace and plan from the disk", "<= 0.2 s", " s", get_plan(c, &size, &again));
    tern_plan_unref(&again);
    tern_pipeline_destroy(&c);
    tern_context_destroy(&fresh);
    ok = ok && measure_switch(ctx, a, b);
    tern_pipeline_destroy(&a);
    tern_pipeline_destroy(&b);
    tern_memory_trim(ctx);
    ok = ok && measure_loads(ctx, model, loads);
    if (!ok)
        fprintf(stderr, "%s\n", tern_error(ctx));
    tern_context_destroy(&ctx);
    return ok;
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/tern-sharing-XXXXXX", command[64];
    if (argc < 2 || argc > 4 || !mkdtemp(folder)) {
        fprintf(stderr, "usage: %s MODEL [SECOND_MODEL] [LOADS]\n", argv[0]);
        return 2;
    }
    printf("| what | asked | measured |\n|---|---|---|\n");
    bool ok = measure(folder, argv[1], argc > 2 ? argv[2] : argv[1], argc > 3 ? atoi(argv[3]) : 300);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command) || !ok;
}
