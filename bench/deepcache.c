/* Pictures with and without DeepCache, from the checkpoint to the picture, in turns.
 * usage: bench_deepcache MODEL [STEPS [ROUNDS [f32|bf16|f16]]]   default: 50 steps, 1 round, bf16. Public headers only; Markdown on standard
 * output. With fewer steps the last column is computed from what was measured, and so is a 50-step job; with 50 it is the measurement. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

#define MOST_STEPS 1000
#define MOST_ROUNDS 16
#define FULL_JOB 50

static const struct way {
    const char *name;
    int interval, branch;
    double pow;
} ways[] = {
    {"none", 1, 0, 0}, {"N = 2", 2, 0, 0}, {"N = 3", 3, 0, 0}, {"N = 3, branch 3", 3, 3, 0}, {"N = 5", 5, 0, 0}, {"N = 5, quad", 5, 0, 1.4},
};
#define WAYS (int)(sizeof(ways) / sizeof(*ways))

/* Of one job; calls are those of the UNet behind the first one. */
struct timed {
    double seconds, fixed, whole, shallow; /* fixed: all but the calls */
    int whole_calls, calls;
};

struct watch {
    double last, call[MOST_STEPS];
    int calls;
};

static void note(int step, int steps, const float *latents, int64_t count, void *user)
{
    struct watch *w = user;
    double t = now();
    if (w->last > 0)
        w->call[w->calls++] = t - w->last;
    w->last = t;
}

/* With a cache, what takes longer than the middle between the shortest and the longest call is a whole one. */
static void sort_calls(const struct watch *w, const struct way *way, struct timed *t)
{
    double longest = 0, shortest = w->call[0], whole[MOST_STEPS] = {0}, shallow[MOST_STEPS] = {0};
    int n = 0, k = 0;
    for (int i = 0; i < w->calls; i++) {
        longest = w->call[i] > longest ? w->call[i] : longest;
        shortest = w->call[i] < shortest ? w->call[i] : shortest;
    }
    for (int i = 0; i < w->calls; i++)
        *(way->interval < 2 || 2 * w->call[i] > longest + shortest ? &whole[n++] : &shallow[k++]) = w->call[i];
    t->whole = n ? median(whole, n) : 0;
    t->shallow = k ? median(shallow, k) : 0;
    t->whole_calls = n + 1; /* and the first */
    t->calls = w->calls + 1;
    t->fixed = t->seconds - t->whole;
    for (int i = 0; i < w->calls; i++)
        t->fixed -= w->call[i];
}

static bool paint(struct tern_context *ctx, const char *model, enum tern_dtype dtype, int steps, const struct way *way, struct timed *t)
{
    struct watch w = {.calls = 0};
    double start = now();
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.dtype = dtype, .single_use = true});
    struct tern_txt2img_params q = {.prompt = "a boat on the sea at sunset",
                                    .negative_prompt = "rain",
                                    .steps = steps,
                                    .seed = 1,
                                    .sampler = TERN_SAMPLER_DDIM, /* a call of the UNet for each step */
                                    .cache_interval = way->interval,
                                    .cache_branch_id = way->branch,
                                    .cache_center = way->pow > 0 ? 3 * steps / 10 : 0,
                                    .cache_pow = way->pow,
                                    .on_step = note,
                                    .on_step_user = &w};
    struct tern_image *image = p ? tern_txt2img(p, &q) : NULL;
    bool ok = image != NULL;
    if (!ok)
        fprintf(stderr, "%s: %s\n", way->name, tern_error(ctx));
    tern_image_destroy(&image);
    tern_pipeline_destroy(&p);
    t->seconds = now() - start;
    sort_calls(&w, way, t);
    return ok;
}

/* Seconds of a job of 50 steps, by what a call takes. */
static double full_job(const struct timed *t, const struct way *way)
{
    int whole = (FULL_JOB + way->interval - 1) / way->interval;
    return t->calls == FULL_JOB ? t->seconds : t->fixed + whole * t->whole + (FULL_JOB - whole) * t->shallow;
}

static int by_seconds(const void *a, const void *b)
{
    return by_size(&((const struct timed *)a)->seconds, &((const struct timed *)b)->seconds);
}

static void print(struct timed *all, int rounds, int steps)
{
    double base = 0, base_full = 0;
    printf("| DeepCache | whole calls | of a whole call | of a shallow call | the rest | %d steps | ratio | %d steps | ratio |\n", steps,
           FULL_JOB);
    printf("|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < WAYS; i++) {
        qsort(all + i * rounds, (size_t)rounds, sizeof(*all), by_seconds);
        const struct timed *t = &all[i * rounds + rounds / 2];
        double full = full_job(t, &ways[i]);
        base = i ? base : t->seconds;
        base_full = i ? base_full : full;
        printf("| %s | %d of %d | %.3f s | %.3f s | %.2f s | %.1f s | %.2f | %.1f s | %.2f |\n", ways[i].name, t->whole_calls, t->calls,
               t->whole, t->shallow, t->fixed, t->seconds, base / t->seconds, full, base_full / full);
    }
}

int main(int argc, char **argv)
{
    int steps = argc > 2 ? atoi(argv[2]) : FULL_JOB, rounds = argc > 3 ? atoi(argv[3]) : 1;
    const char *name = argc > 4 ? argv[4] : "bf16";
    enum tern_dtype dtype = !strcmp(name, "f32") ? TERN_F32 : !strcmp(name, "f16") ? TERN_F16 : TERN_BF16;
    static struct timed all[WAYS * MOST_ROUNDS];
    if (argc < 2 || argc > 5 || steps < 2 || steps > MOST_STEPS || rounds < 1 || rounds > MOST_ROUNDS) {
        fprintf(stderr, "usage: %s MODEL [STEPS [ROUNDS [f32|bf16|f16]]]\n", argv[0]);
        return 2;
    }
    struct tern_context *ctx = tern_context_create(NULL);
    bool ok = ctx != NULL;
    if (!ok)
        fprintf(stderr, "%s\n", tern_create_error());
    for (int r = 0; ok && r < rounds; r++)
        for (int i = 0; ok && i < WAYS; i++)
            ok = paint(ctx, argv[1], dtype, steps, &ways[i], &all[i * rounds + r]);
    if (ok)
        print(all, rounds, steps);
    tern_context_destroy(&ctx);
    return !ok;
}
