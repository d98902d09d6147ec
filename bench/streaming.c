/* What streaming costs: one step of the UNet with its weights in memory, and with most of them brought at every run, in turns.
 * usage: bench_streaming MODEL [--dtype f32|bf16|f16|int8] [--quantize WORDS] [--side N] [--runs N] [--threads N] [--keep BYTES] [--cold]
 * [--device NAME]. int8: --dtype bf16 --quantize "*". SD 1.x; public headers only; Markdown on standard output. The file cache is warm:
 * what is measured is what the processor does, and of a GPU its bus. --cold: the cache holds none of the weights when a run begins. What is
 * hidden: of the time that preparing all weights takes by itself; of a GPU, of what copying them in their turn costs. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tern/tern.h>

#include "timing.h"
#include "unet.h"

#define MOST_RUNS 64
#define MOST_SIDE 2048

struct options {
    const char *model, *dtype, *device, *quantize;
    int side, runs, threads;
    bool cold;
    size_t keep;
};

/* A way to have the weights there. */
struct way {
    const char *name, *device_name; /* the second: of a GPU; NULL: not there */
    enum tern_streaming streaming;
    bool resident;
    struct tern_plan *plan;
    struct tern_binding *binding;
    tern_tensor *out;
    double seconds[MOST_RUNS], bring; /* bring: of one run, until weights were there */
};

enum { IN_MEMORY, PREPARED, DEMANDED, WAYS = 4 };
static struct way ways[WAYS] = {
    [IN_MEMORY] = {.name = "in memory", .device_name = "in memory", .streaming = TERN_STREAMING_SPILL, .resident = true},
    [PREPARED] = {.name = "prepared anew", .streaming = TERN_STREAMING_PREPARE},
    [DEMANDED] = {.name = "kept prepared in a file, no prefetch", .device_name = "copied in turn", .streaming = TERN_STREAMING_DEMAND},
    {.name = "kept prepared in a file", .device_name = "copied while steps before are computed", .streaming = TERN_STREAMING_SPILL}};

static const char *name_of(const struct options *o, const struct way *w) { return strcmp(o->device, "cpu") ? w->device_name : w->name; }

static bool bind(struct tern_pipeline *p, const struct tern_graph *g, const struct options *o, struct way *w)
{
    w->plan = tern_plan_compile(g, &(struct tern_plan_params){.resident = w->resident ? 0 : o->keep, .quantize = o->quantize});
    w->binding = tern_plan_bind(w->plan, tern_pipeline_weights(p, "unet"));
    tern_binding_set_streaming(w->binding, w->streaming);
    return w->binding != NULL;
}

/* Lets the system forget what it holds of the files that a run reads: all that the process has open. */
static void forget_files(void)
{
    char name[300];
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(name, sizeof(name), "/proc/self/fd/%s", e->d_name);
        struct stat st;
        int file = !stat(name, &st) && S_ISREG(st.st_mode) && st.st_size > 1 << 20 ? open(name, O_RDONLY) : -1;
        if (file < 0)
            continue;
        fdatasync(file);
        posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
        close(file);
    }
    if (d)
        closedir(d);
}

/* Until the result is there: a device may go on when the run returns. */
static bool run(struct way *w, tern_tensor *const *in, double *seconds)
{
    static float values[4 * MOST_SIDE / 8 * MOST_SIDE / 8 * 2];
    double start = now();
    bool ok = tern_plan_run(w->binding, in, &w->out) == TERN_OK &&
              tern_tensor_read(w->out, TERN_F32, values, (size_t)tern_tensor_numel(w->out) * sizeof(*values)) == TERN_OK;
    *seconds = now() - start;
    return ok;
}

static void add_bring(void *user, const struct tern_step_profile *s) { *(double *)user += s->bring; }

/* How long it takes to prepare the weights of all steps, by itself. */
static bool time_bring(struct way *w, tern_tensor *const *in)
{
    return tern_plan_profile(w->binding, in, &w->out, add_bring, &w->bring) == TERN_OK;
}

static bool measure(const struct options *o, tern_tensor *const *in)
{
    double ignored;
    bool ok = true;
    for (int i = 0; ok && i < 2 * WAYS; i++) /* the second run writes what the third one reads */
        ok = !name_of(o, &ways[i % WAYS]) || run(&ways[i % WAYS], in, &ignored);
    for (int r = 0; ok && r < o->runs; r++)
        for (int i = 0; ok && i < WAYS; i++) {
            struct way *w = &ways[(i + r) % WAYS];
            if (!name_of(o, w))
                continue;
            if (o->cold)
                forget_files();
            ok = run(w, in, &w->seconds[r]);
        }
    if (o->cold)
        forget_files();
    return ok && (!name_of(o, &ways[PREPARED]) || time_bring(&ways[PREPARED], in));
}

static void print(const struct options *o)
{
    double base = median(ways[IN_MEMORY].seconds, o->runs);
    const double copy = name_of(o, &ways[PREPARED]) ? ways[PREPARED].bring : median(ways[DEMANDED].seconds, o->runs) - base;
    printf("%s on %s, %d x %d, two rows, %s%s%s, %d threads, %d runs in turns%s; bringing all that streams takes %.3f s of a step\n\n",
           o->model, o->device, o->side, o->side, o->dtype, o->quantize ? ", " : "", o->quantize ? o->quantize : "", o->threads, o->runs,
           o->cold ? ", files not in memory" : "", copy);
    printf(
        "| weights | kept | prepared forms travel | steps streamed | arena | a step | least | longest | more than in memory | hidden |\n");
    printf("|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < WAYS; i++) {
        struct way *w = &ways[i];
        if (!name_of(o, w))
            continue;
        const struct tern_plan_facts f = tern_plan_facts(w->plan);
        const double s = median(w->seconds, o->runs);
        printf("| %s | %.0f MiB | %.0f MiB | %d | %.0f MiB | %.3f s | %.3f s | %.3f s |", name_of(o, w), (double)f.resident / (1 << 20),
               (double)f.travels / (1 << 20), f.streamed, (double)f.arena / (1 << 20), s, w->seconds[0], w->seconds[o->runs - 1]);
        if (i != IN_MEMORY)
            printf(" %.3f s | %.0f %% |\n", s - base, 100 * (1 - (s - base) / copy));
        else
            printf(" | |\n");
    }
}

static bool parse(int argc, char **argv, struct options *o)
{
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--cold")) {
            o->cold = true;
            continue;
        }
        const char *value = argv[i][0] == '-' && i + 1 < argc ? argv[i + 1] : NULL;
        if (!value && !o->model && argv[i][0] != '-')
            o->model = argv[i];
        else if (!value)
            return false;
        else if (!strcmp(argv[i], "--dtype"))
            o->dtype = value;
        else if (!strcmp(argv[i], "--device"))
            o->device = value;
        else if (!strcmp(argv[i], "--quantize"))
            o->quantize = value;
        else if (!strcmp(argv[i], "--keep"))
            o->keep = strtoull(value, NULL, 10);
        else
            *(!strcmp(argv[i], "--side") ? &o->side : !strcmp(argv[i], "--runs") ? &o->runs : &o->threads) = atoi(value);
        i += value != NULL;
    }
    if (!strcmp(o->dtype, "int8") && !o->quantize)
        o->quantize = "*";
    return o->model && o->side >= 64 && o->side <= MOST_SIDE && o->runs > 0 && o->runs <= MOST_RUNS && o->threads > 0 && o->keep > 0;
}

static enum tern_dtype dtype_of(const struct options *o)
{
    return !strcmp(o->dtype, "f32") ? TERN_F32 : !strcmp(o->dtype, "f16") ? TERN_F16 : TERN_BF16;
}

int main(int argc, char **argv)
{
    struct options o = {.dtype = "bf16", .device = "cpu", .side = 512, .runs = 5, .threads = 2, .keep = 1};
    if (!parse(argc, argv, &o)) {
        fprintf(
            stderr,
            "usage: %s MODEL [--dtype f32|bf16|f16|int8] [--quantize WORDS] [--side N] [--runs N] [--threads N] [--keep BYTES] [--cold] "
            "[--device NAME]\n",
            argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = o.device, .threads = o.threads});
    struct tern_pipeline *p = ctx ? tern_pipeline_load(ctx, o.model, &(struct tern_pipeline_params){.dtype = dtype_of(&o)}) : NULL;
    struct tern_graph *g = p ? tern_pipeline_graph(p, "unet", &(struct tern_graph_size){2, o.side, o.side}) : NULL;
    tern_tensor *in[4] = {NULL};
    bool ok = g != NULL;
    if (ok)
        tern_scope_begin(ctx);
    ok = ok && unet_inputs(ctx, dtype_of(&o), o.side, in);
    for (int i = 0; ok && i < WAYS; i++)
        ok = !name_of(&o, &ways[i]) || bind(p, g, &o, &ways[i]);
    ok = ok && measure(&o, in);
    if (ok)
        print(&o);
    else
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    if (g)
        tern_scope_end(ctx, NULL);
    for (int i = 0; i < WAYS; i++) {
        tern_binding_unref(&ways[i].binding);
        tern_plan_unref(&ways[i].plan);
    }
    tern_graph_destroy(&g);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
