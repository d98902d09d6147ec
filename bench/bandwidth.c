/* Norms and element-wise ops as shares of what memory gives at most, in f32, f16 and bf16 in turns.
 * usage: bench_bandwidth [--threads N] [--runs N] [OP...]. Public headers only; Markdown on standard output. Sizes are those of Stable
 * Diffusion 1.5 at 512 x 512, whose tensors may lie in the last cache, and large ones, which do not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

enum { DTYPES = 3, MOST_RUNS = 101 };

static const enum tern_dtype dtypes[DTYPES] = {TERN_F32, TERN_F16, TERN_BF16};

static const struct row {
    const char *name;
    int ndim;
    int64_t shape[4];
} rows[] = {{"add", 2, {8192, 320}},
            {"add", 2, {32768, 2048}},
            {"silu", 2, {8192, 320}},
            {"gelu", 2, {8192, 1280}},
            {"geglu", 2, {8192, 2560}},
            {"softmax", 2, {8192, 77}},
            {"softmax", 2, {8192, 4096}},
            {"layer_norm", 2, {8192, 320}},
            {"layer_norm", 2, {2048, 640}},
            {"layer_norm", 2, {65536, 1024}},
            {"rms_norm", 2, {8192, 320}},
            {"group_norm", 4, {2, 320, 64, 64}},
            {"group_norm", 4, {2, 960, 64, 64}},
            {"group_norm", 4, {2, 1280, 16, 16}},
            {"group_norm", 4, {1, 128, 512, 512}},
            {"group_norm_silu", 4, {2, 320, 64, 64}},
            {"group_norm_silu", 4, {2, 1280, 16, 16}},
            {"group_norm_silu", 4, {1, 128, 512, 512}}};

/* One op in all dtypes, each as a plan. The last step is what counts. */
struct job {
    struct tern_context *ctx;
    const struct row *row;
    struct tern_weights *weights; /* "w", "b": by channel */
    tern_tensor *x[DTYPES], *other[DTYPES];
    struct tern_binding *binding[DTYPES];
    double seconds, bytes, roofline;
    char kernel[48];
};

static tern_tensor *ramp(struct tern_context *ctx, int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    float *v = malloc((size_t)n * sizeof(*v));
    for (int64_t i = 0; v && i < n; i++)
        v[i] = (float)(i * 7919 % 2001 - 1000) * 3e-3f;
    tern_tensor *t = v ? tern_tensor_create(ctx, TERN_F32, ndim, shape, v) : NULL;
    free(v);
    return t;
}

static enum tern_status forward(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct job *j = user;
    const char *name = j->row->name;
    tern_tensor *x = in[0], *w = tern_weights_get(j->weights, "w"), *b = tern_weights_get(j->weights, "b");
    int64_t half = j->row->shape[1] / 2;
    if (!strcmp(name, "add"))
        out[0] = tern_add(x, in[1]);
    else if (!strcmp(name, "silu"))
        out[0] = tern_silu(x);
    else if (!strcmp(name, "gelu"))
        out[0] = tern_gelu(x, TERN_GELU_NONE);
    else if (!strcmp(name, "geglu"))
        out[0] = tern_mul(tern_slice(x, 1, 0, half, 1), tern_gelu(tern_slice(x, 1, half, 2 * half, 1), TERN_GELU_NONE));
    else if (!strcmp(name, "softmax"))
        out[0] = tern_softmax(x, 1);
    else if (!strcmp(name, "layer_norm"))
        out[0] = tern_layer_norm(x, 1, w, b, 1e-5);
    else if (!strcmp(name, "rms_norm"))
        out[0] = tern_rms_norm(x, 1, w, 1e-5);
    else
        out[0] = tern_group_norm(tern_contiguous(x, TERN_CHANNELS_LAST), 32, w, b, 1e-5);
    if (!strcmp(name, "group_norm_silu"))
        out[0] = tern_silu(out[0]);
    return tern_error_status(j->ctx);
}

static bool prepare(struct job *j)
{
    struct tern_graph_input input[2] = {{.name = "x", .ndim = j->row->ndim}, {.name = "y", .ndim = j->row->ndim}};
    for (int i = 0; i < 2; i++)
        memcpy(input[i].shape, j->row->shape, sizeof(j->row->shape));
    j->weights = tern_weights_create(j->ctx);
    tern_weights_add(j->weights, "w", ramp(j->ctx, 1, &j->row->shape[1]));
    tern_weights_add(j->weights, "b", ramp(j->ctx, 1, &j->row->shape[1]));
    tern_tensor *x = ramp(j->ctx, j->row->ndim, j->row->shape);
    for (int i = 0; i < DTYPES; i++) {
        input[0].dtype = input[1].dtype = dtypes[i];
        j->x[i] = tern_cast(x, dtypes[i]);
        j->other[i] = tern_neg(j->x[i]);
        struct tern_graph *g = tern_graph_trace(j->ctx, forward, j, j->weights, input, 2, 1);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        j->binding[i] = tern_plan_bind(plan, j->weights);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
    }
    return j->binding[0] && j->binding[1] && j->binding[2];
}

static void tell(void *user, const struct tern_step_profile *s)
{
    struct job *j = user;
    j->seconds = s->seconds;
    j->bytes = s->bytes;
    j->roofline = s->roofline;
    snprintf(j->kernel, sizeof(j->kernel), "%s", s->kernel);
}

static bool run(struct job *j, int runs)
{
    double seconds[DTYPES][MOST_RUNS], share[DTYPES][MOST_RUNS];
    tern_tensor *y[DTYPES] = {NULL};
    for (int i = -1; i < runs; i++)
        for (int k = 0; k < DTYPES; k++) {
            tern_tensor *const in[] = {j->x[k], j->other[k]};
            if (tern_plan_profile(j->binding[k], in, &y[k], tell, j))
                return false;
            seconds[k][i < 0 ? 0 : i] = j->seconds;
            share[k][i < 0 ? 0 : i] = j->roofline;
        }
    printf("| %s (", j->row->name);
    for (int i = 0; i < j->row->ndim; i++)
        printf("%s%lld", i ? ", " : "", (long long)j->row->shape[i]);
    printf(") | %s |", j->kernel);
    for (int k = 0; k < DTYPES; k++)
        printf(" %.3f ms | %.0f %% |", 1e3 * median(seconds[k], runs), 100 * median(share[k], runs));
    printf("\n");
    fflush(stdout);
    return true;
}

static bool wanted(const char *name, char **names)
{
    for (int i = 0; names[i]; i++)
        if (!strcmp(name, names[i]))
            return true;
    return !names[0];
}

int main(int argc, char **argv)
{
    int threads = 2, runs = 11, i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2)
        *(!strcmp(argv[i], "--threads") ? &threads : &runs) = atoi(argv[i + 1]);
    if (threads < 1 || runs < 1 || runs > MOST_RUNS || (i < argc && argv[i][0] == '-')) {
        fprintf(stderr, "usage: %s [--threads N] [--runs 1..%d] [OP...]\n", argv[0], MOST_RUNS);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
    struct tern_device_peak peak;
    bool good = ctx && !tern_device_peak(ctx, &peak);
    if (good)
        printf("measured peak: %.1f GB/s, %d threads\n\n| op | kernel | f32 | of the peak | f16 | of the peak | bf16 | of the peak |\n"
               "|---|---|---|---|---|---|---|---|\n",
               peak.bytes * 1e-9, threads);
    for (size_t k = 0; good && k < sizeof(rows) / sizeof(*rows); k++) {
        struct job j = {.ctx = ctx, .row = &rows[k]};
        if (!wanted(rows[k].name, argv + i))
            continue;
        tern_scope_begin(ctx);
        good = prepare(&j) && run(&j, runs);
        for (int d = 0; d < DTYPES; d++)
            tern_binding_unref(&j.binding[d]);
        tern_weights_unref(&j.weights);
        tern_scope_end(ctx, NULL);
    }
    if (!good)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_context_destroy(&ctx);
    return good ? 0 : 1;
}
