/* What int8 is worth: steps of the UNet as it is and quantised, in turns in one process, so that what else the machine does meets both.
 * usage: bench_quantize MODEL [--quantize WORDS] [--dtype f32|bf16|f16] [--side N] [--runs N] [--threads N] [--device NAME]
 * SD 1.x; public headers only; Markdown on standard output. WORDS: of tern_plan_params, "*" unless given. */
#include <stdio.h>
#include <string.h>
#include <tern/tern.h>

#include "timing.h"
#include "unet.h"

#define MOST_RUNS 256
#define MOST_SIDE 2048

struct options {
    const char *model, *quantize, *device;
    enum tern_dtype dtype;
    int side, runs, threads;
};

struct way {
    const char *name, *quantize;
    struct tern_binding *binding;
    tern_tensor *out;
    double seconds[MOST_RUNS];
};

static bool bind(struct tern_pipeline *p, const struct tern_graph *g, struct way *w)
{
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.quantize = w->quantize});
    w->binding = tern_plan_bind(plan, tern_pipeline_weights(p, "unet"));
    tern_plan_unref(&plan);
    return w->binding != NULL;
}

/* Until the result is there: a device may go on when the run returns. */
static bool run(struct way *w, tern_tensor *const *in, double *seconds)
{
    static float values[2 * 4 * MOST_SIDE / 8 * MOST_SIDE / 8];
    double start = now();
    bool ok = tern_plan_run(w->binding, in, &w->out) == TERN_OK &&
              tern_tensor_read(w->out, TERN_F32, values, (size_t)tern_tensor_numel(w->out) * sizeof(*values)) == TERN_OK;
    *seconds = now() - start;
    return ok;
}

/* Two runs each are not counted: they prepare weights. Who begins takes turns, too. */
static bool measure(const struct options *o, struct way ways[2], tern_tensor *const *in)
{
    double ignored;
    bool ok = true;
    for (int i = 0; ok && i < 4; i++)
        ok = run(&ways[i % 2], in, &ignored);
    for (int r = 0; ok && r < o->runs; r++)
        for (int i = 0; ok && i < 2; i++)
            ok = run(&ways[(i + r) % 2], in, &ways[(i + r) % 2].seconds[r]);
    return ok;
}

static void print(const struct options *o, struct way ways[2])
{
    double ratio[MOST_RUNS], middle[2];
    for (int i = 0; i < o->runs; i++)
        ratio[i] = ways[1].seconds[i] / ways[0].seconds[i];
    printf("%s on %s, %d x %d, two rows, %s, %d threads, %d runs in turns\n\n", o->model, o->device, o->side, o->side,
           tern_dtype_name(o->dtype), o->threads, o->runs);
    printf("| step | median | least | longest |\n|---|---|---|---|\n");
    for (int i = 0; i < 2; i++) {
        middle[i] = median(ways[i].seconds, o->runs);
        printf("| %s | %.3f s | %.3f s | %.3f s |\n", ways[i].name, middle[i], ways[i].seconds[0], ways[i].seconds[o->runs - 1]);
    }
    double pairs = median(ratio, o->runs);
    printf("\n%.3f of the time; of the two runs of a turn %.3f in the middle, %.3f to %.3f\n", middle[1] / middle[0], pairs, ratio[0],
           ratio[o->runs - 1]);
}

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (argv[i][0] != '-') {
            o->model = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--quantize"))
            o->quantize = value;
        else if (!strcmp(argv[i], "--device"))
            o->device = value;
        else if (!strcmp(argv[i], "--dtype"))
            o->dtype = tern_dtype_parse(value);
        else if (!strcmp(argv[i], "--side"))
            o->side = atoi(value);
        else if (!strcmp(argv[i], "--runs"))
            o->runs = atoi(value);
        else if (!strcmp(argv[i], "--threads"))
            o->threads = atoi(value);
        else
            return false;
        i++;
    }
    return o->model && tern_dtype_size(o->dtype) && o->side >= 64 && o->side <= MOST_SIDE && o->side % 64 == 0 && o->runs > 0 &&
           o->runs <= MOST_RUNS && o->threads > 0;
}

int main(int argc, char **argv)
{
    struct options o = {.quantize = "*", .device = "cpu", .dtype = TERN_BF16, .side = 512, .runs = 5, .threads = 2};
    if (!parse(argc, argv, &o)) {
        fprintf(stderr, "usage: %s MODEL [--quantize WORDS] [--dtype f32|bf16|f16] [--side N] [--runs N] [--threads N] [--device NAME]\n",
                argv[0]);
        return 2;
    }
    static struct way ways[2];
    ways[0].name = tern_dtype_name(o.dtype);
    ways[1].name = ways[1].quantize = o.quantize;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = o.device, .threads = o.threads});
    struct tern_pipeline *p = ctx ? tern_pipeline_load(ctx, o.model, &(struct tern_pipeline_params){.dtype = o.dtype}) : NULL;
    struct tern_graph *g = p ? tern_pipeline_graph(p, "unet", &(struct tern_graph_size){2, o.side, o.side}) : NULL;
    tern_tensor *in[3] = {NULL};
    if (g)
        tern_scope_begin(ctx);
    bool ok = g && unet_inputs(ctx, o.dtype, o.side, in) && bind(p, g, &ways[0]) && bind(p, g, &ways[1]) && measure(&o, ways, in);
    if (ok)
        print(&o, ways);
    else
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    if (g)
        tern_scope_end(ctx, NULL);
    for (int i = 0; i < 2; i++)
        tern_binding_unref(&ways[i].binding);
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
