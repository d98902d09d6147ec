/* Times one component of a model, one run at a time, as whoever holds its standard input asks: bench_model MODEL COMPONENT
 * Public headers only. Each line it prints is a JSON object; see bench/README.md. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

/* Widths of what a UNet is told: text states, and what SDXL is told beside them. */
struct arch {
    const char *name;
    int64_t context, added;
};
static const struct arch archs[] = {{"sd15", 768, 0}, {"sdxl", 2048, 2816}};

struct job {
    const struct arch *arch;
    const char *model, *component, *device, *quantize; /* quantize: words of tern_plan_params, or NULL */
    enum tern_dtype dtype;                             /* to compute in */
    int threads, batch, width, height;
};

/* Most memory that the process ever held at once, in bytes, files that are mapped and read included; 0 when unknown. */
static unsigned long long peak_resident(void)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib << 10;
}

/* Unit noise, the same for every peer that uses PyTorch's CPU generator. */
static bool add_noise(struct tern_context *ctx, struct tern_weights *w, const char *name, enum tern_dtype dtype, int ndim,
                      const int64_t *shape)
{
    struct tern_generator g;
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *values = malloc((size_t)n * sizeof(*values));
    if (!values)
        return false;
    tern_generator_seed(&g, TERN_GENERATOR_CPU, 0);
    tern_generator_randn(&g, values, n);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, ndim, shape, values);
    free(values);
    tern_scope_begin(ctx);
    bool ok = t && tern_weights_add(w, name, dtype == TERN_F32 ? t : tern_cast(t, dtype)) == TERN_OK;
    tern_scope_end(ctx, NULL);
    tern_tensor_unref(&t);
    return ok;
}

static bool add_ids(struct tern_context *ctx, struct tern_weights *w, int64_t batch)
{
    int64_t ids[8 * 77], n = batch * 77;
    for (int64_t i = 0; i < n; i++)
        ids[i] = i % 77 == 0 ? 49406 : i % 77 > 40 ? 49407 : 1000 + i;
    tern_tensor *t = tern_tensor_create(ctx, TERN_I64, 2, (const int64_t[]){batch, 77}, ids);
    bool ok = t && tern_weights_add(w, "input_ids", t) == TERN_OK;
    tern_tensor_unref(&t);
    return ok;
}

/* The component's inputs in the sizes of the architecture, in the order of its graph. NULL when something failed. */
static struct tern_weights *make_inputs(struct tern_context *ctx, const struct job *j, tern_tensor **in)
{
    static const char *const names[] = {"input_ids", "latent", "sample", "time", "encoder_hidden_states", "added"};
    struct tern_weights *w = tern_weights_create(ctx);
    int64_t h = j->height / 8, wd = j->width / 8;
    bool ok = w != NULL;
    if (ok && !strcmp(j->component, "text_encoder"))
        ok = add_ids(ctx, w, j->batch);
    else if (ok && !strcmp(j->component, "vae_decoder"))
        ok = add_noise(ctx, w, "latent", j->dtype, 4, (const int64_t[]){j->batch, 4, h, wd});
    else if (ok) /* unet; another name is refused by tern_pipeline_graph */
        ok = add_noise(ctx, w, "sample", j->dtype, 4, (const int64_t[]){j->batch, 4, h, wd}) &&
             add_noise(ctx, w, "time", TERN_F32, 2, (const int64_t[]){1, 320}) &&
             add_noise(ctx, w, "encoder_hidden_states", j->dtype, 3, (const int64_t[]){j->batch, 77, j->arch->context}) &&
             (!j->arch->added || add_noise(ctx, w, "added", TERN_F32, 2, (const int64_t[]){j->batch, j->arch->added}));
    for (size_t i = 0; ok && i < sizeof(names) / sizeof(*names); i++)
        if ((*in = tern_weights_get(w, names[i])))
            in++;
    if (!ok)
        tern_weights_unref(&w);
    return w;
}

/* Seconds of one run; below 0 when it failed. Other devices than the CPU are waited for, by reading the result. */
static double run_once(const struct job *j, struct tern_binding *b, tern_tensor *const *in, tern_tensor **out)
{
    double start = now();
    bool ok = tern_plan_run(b, in, out) == TERN_OK;
    size_t size = ok && j->device ? (size_t)tern_tensor_numel(out[0]) * sizeof(float) : 0;
    void *result = size ? malloc(size) : NULL;
    if (size)
        ok = result && tern_tensor_read(out[0], TERN_F32, result, size) == TERN_OK;
    double seconds = now() - start;
    free(result);
    return ok ? seconds : -1;
}

/* The component's plan, bound. NULL when something failed. */
static struct tern_binding *bind(struct tern_pipeline *p, const struct job *j)
{
    struct tern_graph *g = tern_pipeline_graph(p, j->component, &(struct tern_graph_size){j->batch, j->width, j->height});
    struct tern_plan *plan = tern_plan_cached(g, &(struct tern_plan_params){.quantize = j->quantize});
    struct tern_binding *b = tern_plan_bind(plan, tern_pipeline_weights(p, j->component));
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    return b;
}

/* Loads, runs once, then once for each line "run" on standard input. "first" is what a user waits for: plan and binding, too. */
static bool serve(struct tern_context *ctx, const struct job *j)
{
    char line[64];
    double start = now(), seconds = -1;
    tern_tensor *in[4] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
    const struct tern_pipeline_params params = {.dtype = j->dtype, .keep_text_encoder = true};
    struct tern_pipeline *p = tern_pipeline_load(ctx, j->model, &params);
    struct tern_weights *inputs = p ? make_inputs(ctx, j, in) : NULL;
    double load = now() - start;
    start = now();
    tern_scope_begin(ctx);
    struct tern_binding *b = inputs ? bind(p, j) : NULL;
    bool ok = b && run_once(j, b, in, out) >= 0;
    if (ok) {
        printf("{\"load\": %.6f, \"first\": %.6f}\n", load, now() - start);
        fflush(stdout);
    }
    while (ok && fgets(line, sizeof(line), stdin) && !strncmp(line, "run", 3)) {
        ok = (seconds = run_once(j, b, in, out)) >= 0;
        printf("{\"run\": %.6f}\n", seconds);
        fflush(stdout);
    }
    if (ok)
        printf("{\"peak_resident\": %llu, \"peak_allocated\": %zu}\n", peak_resident(), tern_memory_peak(ctx));
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_weights_unref(&inputs);
    tern_pipeline_destroy(&p);
    return ok;
}

static int number(const char *text, int most)
{
    char *end;
    long n = strtol(text, &end, 10);
    return *end || n < 1 || n > most ? -1 : (int)n;
}

static const struct arch *arch_of(const char *name)
{
    for (size_t i = 0; i < sizeof(archs) / sizeof(*archs); i++)
        if (!strcmp(archs[i].name, name))
            return &archs[i];
    return NULL;
}

static bool parse(int argc, char **argv, struct job *j)
{
    *j = (struct job){.arch = archs, .dtype = TERN_F32, .batch = 1, .width = 512, .height = 512};
    if (argc < 3)
        return false;
    j->model = argv[1];
    j->component = argv[2];
    for (int i = 3; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (!strcmp(name, "--threads"))
            j->threads = number(value, 1024);
        else if (!strcmp(name, "--device"))
            j->device = value;
        else if (!strcmp(name, "--batch"))
            j->batch = number(value, 8);
        else if (!strcmp(name, "--width"))
            j->width = number(value, 8192);
        else if (!strcmp(name, "--height"))
            j->height = number(value, 8192);
        else if (!strcmp(name, "--arch"))
            j->arch = arch_of(value);
        else if (!strcmp(name, "--quantize"))
            j->quantize = value;
        else if (!strcmp(name, "--dtype"))
            j->dtype = tern_dtype_parse(value);
        else
            return false;
    }
    return argc % 2 == 1 && j->arch && j->threads >= 0 && j->batch > 0 && j->width > 0 && j->height > 0 && j->dtype != TERN_DTYPE_COUNT;
}

int main(int argc, char **argv)
{
    struct job j;
    if (!parse(argc, argv, &j)) {
        fprintf(stderr,
                "usage: %s MODEL text_encoder|unet|vae_decoder [--batch N] [--arch sd15|sdxl] [--width N] [--height N] [--threads N] "
                "[--dtype TYPE] [--quantize WORDS] [--device NAME]\n",
                argv[0]);
        return 2;
    }
    const struct tern_context_params params = {.threads = j.threads, .device = j.device};
    struct tern_context *ctx = tern_context_create(&params);
    bool ok = ctx && serve(ctx, &j);
    if (!ok)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
