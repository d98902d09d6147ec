/* Attention of Stable Diffusion 1.5 at 512 x 512 in f32 and bf16, as shares of what the processor computes at most.
 * usage: bench_attention [--threads N] [--runs N] [--shape I]. Public headers only; Markdown on standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <tern/tern.h>

struct shape {
    int64_t n, heads, queries, keys, size;
};

static const struct shape shapes[] = {{2, 8, 4096, 4096, 40}, {2, 8, 1024, 1024, 80}, {2, 8, 256, 256, 160},
                                      {2, 8, 64, 64, 160},    {2, 8, 4096, 77, 40},   {2, 8, 1024, 77, 80},
                                      {2, 8, 256, 77, 160},   {2, 8, 64, 77, 160},    {1, 1, 4096, 4096, 512}};
#define SHAPES ((int)(sizeof(shapes) / sizeof(*shapes)))

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* (N, L, H E) memory as the projections leave it, viewed as (N, H, L, E). */
static tern_tensor *heads(struct tern_context *ctx, const struct shape *s, int64_t length, uint64_t seed, enum tern_dtype dtype)
{
    tern_tensor *x = tern_randn(ctx, 4, (const int64_t[]){s->n, length, s->heads, s->size}, seed, 0);
    return tern_permute(tern_cast(x, dtype), 4, (const int[]){0, 2, 1, 3});
}

/* Seconds; below 0: it failed. */
static double call(struct tern_context *ctx, tern_tensor *const x[3])
{
    tern_scope_begin(ctx);
    double begin = now();
    bool ok = tern_sdpa(x[0], x[1], x[2]) != NULL;
    double seconds = now() - begin;
    tern_scope_end(ctx, NULL);
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
    tern_tensor *x[2][3];
    tern_scope_begin(ctx);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++)
            x[k][i] = heads(ctx, s, i ? s->keys : s->queries, (uint64_t)i + 1, k ? TERN_BF16 : TERN_F32);
    bool ok = x[1][2] != NULL;
    for (int i = -1; ok && i < runs; i++)
        for (int k = 0; k < 2; k++) {
            double t = call(ctx, x[(k + i) & 1]);
            ok = ok && t >= 0;
            if (i >= 0)
                seconds[(k + i) & 1][i] = t;
        }
    tern_scope_end(ctx, NULL);
    if (!ok)
        return false;
    for (int k = 0; k < 2; k++)
        qsort(seconds[k], (size_t)runs, sizeof(double), compare);
    double flops = 4.0 * (double)(s->n * s->heads * s->queries) * (double)(s->keys * s->size);
    double f32 = seconds[0][runs / 2], bf16 = seconds[1][runs / 2], most = peak->flops_bf16 > 0 ? peak->flops_bf16 : peak->flops;
    printf("| (%d, %d, %d, %d), %d keys | %.2f ms | %.0f %% | %.2f ms | %.2f ms | %.0f | %.0f %% | %.0f %% | %.1f |\n", (int)s->n,
           (int)s->heads, (int)s->queries, (int)s->size, (int)s->keys, f32 * 1e3, 100 * flops / f32 / peak->flops, bf16 * 1e3,
           seconds[1][0] * 1e3, flops / bf16 * 1e-9, 100 * flops / bf16 / most, 100 * flops / seconds[1][0] / most, f32 / bf16);
    fflush(stdout);
    return true;
}

int main(int argc, char **argv)
{
    int threads = 2, runs = 11, only = -1;
    for (int i = 1; i < argc; i += 2) {
        int *number = !strcmp(argv[i], "--threads") ? &threads
                      : !strcmp(argv[i], "--runs")  ? &runs
                      : !strcmp(argv[i], "--shape") ? &only
                                                    : NULL;
        if (!number || i + 1 >= argc || (*number = atoi(argv[i + 1])) < (number != &only) || runs > 1000 || only >= SHAPES) {
            fprintf(stderr, "usage: %s [--threads N] [--runs N] [--shape I]\n", argv[0]);
            return 2;
        }
    }
    struct tern_device_peak peak = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
    bool ok = ctx && tern_device_peak(ctx, &peak) == TERN_OK;
    if (ok)
        printf("%d threads; measured peak: %.1f GFLOP/s in f32, %.1f in bf16\n\n"
               "| queries | f32 | of the peak | bf16 | best | GFLOP/s | of the peak | best | f32 / bf16 |\n"
               "|---|---|---|---|---|---|---|---|---|\n",
               threads, peak.flops * 1e-9, peak.flops_bf16 * 1e-9);
    for (int i = 0; ok && i < SHAPES; i++)
        if (only < 0 || i == only)
            ok = measure(ctx, &shapes[i], runs, &peak);
    if (!ok)
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    tern_context_destroy(&ctx);
    return ok ? 0 : 1;
}
