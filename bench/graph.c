/* Plans of a model's components: time to compile, memory, and a run beside the eager one. usage: bench_graph MODEL [--threads N]
 * [--width N] [--height N] [--runs N] [--profile] [--bf16] [--trace FILE] [--without PASSES] [--quantize WORDS] [COMPONENT...]. --profile:
 * where the time of a run goes, by kernel, and how near each comes to the device's peak; --trace: every step of the last component, for
 * Chrome's or Perfetto's viewer. Public headers only; Markdown on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

struct options {
    const char *model;
    int threads, width, height, runs;
    bool profile;
    const char *trace, *without, *quantize;
    enum tern_dtype dtype;
    const char *components[8];
    int n_components;
};

/* What tern_pipeline_exec takes for the same work. */
static struct tern_weights *eager_inputs(struct tern_context *ctx, const char *component, const struct options *o, int batch)
{
    struct tern_weights *w = tern_weights_create(ctx);
    int64_t h = o->height / 8, wd = o->width / 8;
    const float t = 500;
    tern_scope_begin(ctx);
    if (!strcmp(component, "text_encoder")) {
        tern_weights_add(w, "input_ids", tern_tensor_create(ctx, TERN_I64, 2, (const int64_t[]){batch, 77}, NULL));
    } else if (!strcmp(component, "unet")) {
        tern_weights_add(w, "sample", tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){batch, 4, h, wd}, NULL));
        tern_weights_add(w, "timestep", tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){1}, &t));
        tern_weights_add(w, "encoder_hidden_states", tern_tensor_create(ctx, TERN_F32, 3, (const int64_t[]){batch, 77, 768}, NULL));
    } else if (!strcmp(component, "vae_decoder")) {
        tern_weights_add(w, "latent", tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){batch, 4, h, wd}, NULL));
    } else {
        tern_weights_add(w, "sample", tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){batch, 3, o->height, o->width}, NULL));
    }
    tern_scope_end(ctx, NULL);
    return w;
}

struct row {
    double trace, compile, bind, first, plan, eager;
    size_t predicted, measured; /* bytes that binding and the first run take */
    struct tern_plan_facts facts;
};

static double run_eager(struct tern_pipeline *p, const char *component, const struct tern_weights *in)
{
    double start = now();
    struct tern_weights *out = tern_pipeline_exec(p, component, in);
    double seconds = out ? now() - start : -1;
    tern_weights_unref(&out);
    return seconds;
}

static double run_plan(struct tern_binding *b, tern_tensor *const *in, tern_tensor **out)
{
    double start = now();
    return tern_plan_run(b, in, out) ? -1 : now() - start;
}

/* Time by kernel, and the trace that is being written. */
struct profile {
    struct by_kernel {
        char op[32], kernel[48];
        int count;
        double seconds, flops, least; /* least: seconds that the device's peak allows */
    } row[64];
    int rows;
    FILE *trace;
    bool any;
};

static void tell(void *user, const struct tern_step_profile *s)
{
    struct profile *p = user;
    int i = 0;
    while (i < p->rows && (strcmp(p->row[i].op, s->op) || strcmp(p->row[i].kernel, s->kernel)))
        i++;
    if (i < 64) {
        snprintf(p->row[i].op, sizeof(p->row[i].op), "%s", s->op);
        snprintf(p->row[i].kernel, sizeof(p->row[i].kernel), "%s", s->kernel);
        p->rows += i == p->rows;
        p->row[i].count++;
        p->row[i].seconds += s->seconds;
        p->row[i].flops += s->flops;
        p->row[i].least += s->roofline * s->seconds;
    }
    if (p->trace)
        fprintf(p->trace,
                "%s\n{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": %.1f, \"dur\": %.1f, "
                "\"args\": {\"output\": \"%s\", \"gflops_per_second\": %.2f, \"gigabytes_per_second\": %.2f, \"roofline\": %.4g}}",
                p->any ? "," : "", s->kernel, s->op, s->start * 1e6, s->seconds * 1e6, s->output, s->flops / s->seconds * 1e-9,
                s->bytes / s->seconds * 1e-9, s->roofline);
    p->any = true;
}

static int slower(const void *a, const void *b)
{
    double x = ((const struct by_kernel *)a)->seconds, y = ((const struct by_kernel *)b)->seconds;
    return x < y ? 1 : -(x > y);
}

static bool run_profile(struct tern_binding *b, tern_tensor *const *in, tern_tensor **out, const char *component, const char *trace)
{
    struct profile p = {.trace = trace ? fopen(trace, "w") : NULL};
    double total = 0;
    if (trace && !p.trace)
        perror(trace);
    if (p.trace)
        fprintf(p.trace, "[");
    bool ok = tern_plan_profile(b, in, out, tell, &p) == TERN_OK && (p.trace || !trace);
    if (p.trace) {
        fprintf(p.trace, "\n]\n");
        ok = !fclose(p.trace) && ok;
    }
    for (int i = 0; i < p.rows; i++)
        total += p.row[i].seconds;
    qsort(p.row, (size_t)p.rows, sizeof(p.row[0]), slower);
    printf("\n%s\n\n| op | kernel | steps | time | share | GFLOP/s | roofline |\n|---|---|---|---|---|---|---|\n", component);
    for (int i = 0; i < p.rows; i++)
        printf("| %s | %s | %d | %.4f s | %.1f %% | %.1f | %.2f |\n", p.row[i].op, p.row[i].kernel, p.row[i].count, p.row[i].seconds,
               100 * p.row[i].seconds / total, p.row[i].flops / p.row[i].seconds * 1e-9, p.row[i].least / p.row[i].seconds);
    printf("\n");
    return ok;
}

/* The inputs of the graph, in its order, from those of exec. */
static void plan_inputs(struct tern_context *ctx, const char *component, enum tern_dtype dtype, const struct tern_weights *w,
                        tern_tensor **in)
{
    static const int64_t time[] = {1, 320};
    const char *first = !strcmp(component, "text_encoder") ? "input_ids" : !strcmp(component, "vae_decoder") ? "latent" : "sample";
    in[0] = tern_weights_get(w, first);
    if (strcmp(component, "text_encoder") != 0)
        in[0] = tern_cast(in[0], dtype);
    if (!strcmp(component, "unet")) {
        in[1] = tern_tensor_create(ctx, TERN_F32, 2, time, NULL);
        in[2] = tern_cast(tern_weights_get(w, "encoder_hidden_states"), dtype);
    }
}

static bool measure(struct tern_context *ctx, struct tern_pipeline *p, const char *component, const struct options *o, struct row *r)
{
    double plans[64], eagers[64];
    const int batch = strncmp(component, "vae", 3) ? 2 : 1;
    tern_tensor *in[4] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
    struct tern_weights *w = eager_inputs(ctx, component, o, batch);
    double start = now();
    struct tern_graph *g = tern_pipeline_graph(p, component, &(struct tern_graph_size){batch, o->width, o->height});
    r->trace = now() - start;
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = o->without, .quantize = o->quantize});
    const struct tern_weights *weights = tern_pipeline_weights(p, component);
    r->predicted = plan ? tern_plan_bind_bytes(plan, weights) + tern_plan_facts(plan).arena + tern_plan_facts(plan).outputs : 0;
    tern_memory_trim(ctx); /* what is kept for reuse would be counted before, not by the measurement */
    size_t before = tern_memory_used(ctx);
    tern_memory_reset_peak(ctx);
    start = now();
    struct tern_binding *b = tern_plan_bind(plan, weights);
    r->bind = now() - start;
    bool ok = b != NULL;
    tern_scope_begin(ctx);
    if (ok) {
        r->facts = tern_plan_facts(plan);
        plan_inputs(ctx, component, o->dtype, w, in);
        r->first = run_plan(b, in, out);
        r->measured = tern_memory_peak(ctx) - before;
        ok = r->first >= 0 && run_eager(p, component, w) >= 0;
    }
    for (int i = 0; ok && i < o->runs; i++) { /* in turns, and the first of a turn changes */
        if (i % 2)
            plans[i] = run_plan(b, in, out);
        eagers[i] = run_eager(p, component, w);
        if (i % 2 == 0)
            plans[i] = run_plan(b, in, out);
        ok = plans[i] >= 0 && eagers[i] >= 0;
    }
    if (ok && (o->profile || o->trace))
        ok = run_profile(b, in, out, component, o->trace);
    if (ok) {
        r->plan = median(plans, o->runs);
        r->eager = median(eagers, o->runs);
    }
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    return ok;
}

static void print_row(const char *component, const struct row *r)
{
    printf("| %s | %d | %d | %.3f s | %.3f s | %.2f s | %.1f MiB | %.3f | %.1f MiB | %.3f | %.3f s | %.3f s | %.3f |\n", component,
           r->facts.launches, r->facts.prepared, r->trace, r->facts.compile_time, r->bind, (double)r->facts.arena / (1 << 20),
           r->facts.least_arena ? (double)r->facts.arena / (double)r->facts.least_arena : 1, (double)r->measured / (1 << 20),
           (double)r->predicted / (double)r->measured, r->eager, r->plan, r->plan / r->eager);
    fflush(stdout);
}

/* Measured before anything that is timed. */
static bool print_peak(struct tern_context *ctx)
{
    struct tern_device_peak peak;
    if (tern_device_peak(ctx, &peak))
        return false;
    printf("measured peak: %.1f GFLOP/s in f32, %.1f in bf16, %.1f GB/s\n\n", peak.flops * 1e-9, peak.flops_bf16 * 1e-9, peak.bytes * 1e-9);
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    *o = (struct options){.threads = 2, .width = 512, .height = 512, .runs = 5};
    for (int i = 1; i < argc; i++) {
        int *number = !strcmp(argv[i], "--threads")  ? &o->threads
                      : !strcmp(argv[i], "--width")  ? &o->width
                      : !strcmp(argv[i], "--height") ? &o->height
                      : !strcmp(argv[i], "--runs")   ? &o->runs
                                                     : NULL;
        if (!strcmp(argv[i], "--profile")) {
            o->profile = true;
            continue;
        }
        if (!strcmp(argv[i], "--bf16")) {
            o->dtype = TERN_BF16;
            continue;
        }
        if (!strcmp(argv[i], "--trace") || !strcmp(argv[i], "--without") || !strcmp(argv[i], "--quantize")) {
            if (i + 1 >= argc)
                return false;
            *(argv[i][2] == 't' ? &o->trace : argv[i][2] == 'q' ? &o->quantize : &o->without) = argv[i + 1];
            i++;
            continue;
        }
        if (number && (i + 1 >= argc || (*number = atoi(argv[++i])) < 1))
            return false;
        if (!number && !o->model)
            o->model = argv[i];
        else if (!number && o->n_components < 8)
            o->components[o->n_components++] = argv[i];
    }
    static const char *const all[] = {"text_encoder", "unet", "vae_decoder", "vae_encoder"};
    for (bool none = !o->n_components; none && o->n_components < 4; o->n_components++)
        o->components[o->n_components] = all[o->n_components];
    if (o->runs > 64)
        o->runs = 64;
    return o->model != NULL;
}

int main(int argc, char **argv)
{
    struct options o;
    if (!parse(argc, argv, &o)) {
        fprintf(stderr,
                "usage: %s MODEL [--threads N] [--width N] [--height N] [--runs N] [--profile] [--bf16] [--trace FILE] [--without PASSES] "
                "[--quantize WORDS] "
                "[COMPONENT...]\n",
                argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = o.threads});
    struct tern_pipeline *p =
        ctx ? tern_pipeline_load(ctx, o.model, &(struct tern_pipeline_params){.dtype = o.dtype, .keep_text_encoder = true}) : NULL;
    bool ok = p != NULL;
    ok = ok && (!(o.profile || o.trace) || print_peak(ctx));
    printf("%d x %d, %d threads, %s; batch 2 (VAE: 1)\n\n", o.width, o.height, o.threads, tern_dtype_name(o.dtype));
    printf("| component | launches | prepared | trace | compile | bind | arena | of the least | with weights | predicted / measured | "
           "eager | plan | plan / eager |\n");
    printf("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; ok && i < o.n_components; i++) {
        struct row r = {0};
        ok = measure(ctx, p, o.components[i], &o, &r);
        if (ok)
            print_row(o.components[i], &r);
    }
    if (!ok)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
