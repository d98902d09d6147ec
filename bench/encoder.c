/* A text encoder with its weights kept, and under a budget that does not hold them, each in a process of its own: resident memory as the
 * system counts it, time, and whether the states are the same bits. usage: bench_encoder MODEL COMPONENT BYTES [f32|bf16|f16]   Public
 * headers only; Markdown on standard output, exit code 1 when the budget is missed or a bit differs. With a minus before BYTES the first
 * one is left out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tern/tern.h>

#include "timing.h"

#define LENGTH 77
#define MOST ((size_t)64 << 20)

/* What the child tells. */
struct result {
    double seconds;
    size_t peak, bytes;
    char states[MOST];
};

static struct tern_weights *make_inputs(struct tern_context *ctx)
{
    struct tern_weights *w = tern_weights_create(ctx);
    int64_t ids[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        ids[i] = 3 + i;
    tern_tensor *t = tern_tensor_create(ctx, TERN_I64, 2, (const int64_t[]){1, LENGTH}, ids);
    tern_weights_add(w, "input_ids", t);
    tern_tensor_unref(&t);
    return w;
}

static int encode(const char *model, const char *component, size_t budget, enum tern_dtype dtype, struct result *r)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.budget = budget});
    double start = now();
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.dtype = dtype});
    struct tern_weights *in = make_inputs(ctx), *out = p ? tern_pipeline_exec(p, component, in) : NULL;
    const tern_tensor *t = tern_weights_get(out, "last_hidden_state");
    r->bytes = t ? (size_t)tern_tensor_numel(t) * sizeof(float) : 0;
    bool ok = t && r->bytes <= MOST && tern_tensor_read(t, TERN_F32, r->states, r->bytes) == TERN_OK;
    r->seconds = now() - start;
    r->peak = tern_memory_peak(ctx);
    if (!ok)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_weights_unref(&out);
    tern_weights_unref(&in);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return !ok;
}

/* Resident bytes at most; 0: it failed. */
static size_t measure(char **argv, size_t budget, enum tern_dtype dtype, struct result *r)
{
    int status;
    struct rusage usage;
    pid_t child = fork();
    if (!child)
        _exit(encode(argv[1], argv[2], budget, dtype, r));
    if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status)
        return 0;
    printf("| %s | %.3f GiB | %.3f GiB | %.2f s |\n", budget ? "under the budget" : "kept", (double)r->peak / (1 << 30),
           (double)usage.ru_maxrss / (1 << 20), r->seconds);
    fflush(stdout);
    return (size_t)usage.ru_maxrss << 10;
}

int main(int argc, char **argv)
{
    struct result *r = mmap(NULL, 2 * sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *name = argc > 4 ? argv[4] : "bf16";
    const enum tern_dtype dtype = !strcmp(name, "f32") ? TERN_F32 : !strcmp(name, "f16") ? TERN_F16 : TERN_BF16;
    const bool alone = argc > 3 && argv[3][0] == '-';
    const size_t budget = argc > 3 ? strtoull(argv[3] + alone, NULL, 10) : 0;
    if (argc < 4 || argc > 5 || !budget || r == MAP_FAILED) {
        fprintf(stderr, "usage: %s MODEL COMPONENT BYTES [f32|bf16|f16]\n", argv[0]);
        return 2;
    }
    printf("%s of %s, one text, %s, budget %.3f GiB\n\n", argv[2], argv[1], name, (double)budget / (1 << 30));
    printf("| weights | allocated at most | resident at most | from the file to the states |\n|---|---|---|---|\n");
    if (!alone && !measure(argv, 0, dtype, &r[0]))
        return 1;
    const size_t most = measure(argv, budget, dtype, &r[1]);
    const bool same = alone || (r[0].bytes == r[1].bytes && !memcmp(r[0].states, r[1].states, r[1].bytes));
    printf("\n%s", alone ? "" : same ? "The states are the same bits.\n" : "The states differ.\n");
    return !most || most > budget || !same;
}
