/* One picture without and with a memory budget, each in a process of its own: resident memory as the system counts it, time, and
 * whether the pictures agree. usage: bench_budget MODEL BYTES [STEPS]. Public headers only; Markdown on standard output, exit
 * code 1 when the budget or the picture is missed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tern/tern.h>

#include "timing.h"

#define SIDE 512
#define BYTES (3 * SIDE * SIDE)

/* What the child tells. */
struct result {
    size_t predicted, peak;
    double seconds;
    unsigned char rgb[BYTES];
};

static int paint(const char *model, size_t budget, int steps, struct result *r)
{
    double start = now();
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.budget = budget});
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, &(struct tern_pipeline_params){.single_use = true});
    struct tern_txt2img_params q = {.prompt = "a cat", .width = SIDE, .height = SIDE, .steps = steps, .seed = 1};
    struct tern_image *image = p && !tern_generate_check(p, &q, &r->predicted) ? tern_txt2img(p, &q) : NULL;
    if (image)
        memcpy(r->rgb, tern_image_data(image), BYTES);
    else
        fprintf(stderr, "%s\n", ctx ? tern_error(ctx) : tern_create_error());
    r->peak = tern_memory_peak(ctx);
    r->seconds = now() - start;
    int failed = !image;
    tern_image_destroy(&image);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return failed;
}

/* Resident bytes at most; 0: it failed. */
static size_t measure(const char *model, size_t budget, int steps, struct result *r)
{
    int status;
    struct rusage usage;
    pid_t child = fork();
    if (!child)
        _exit(paint(model, budget, steps, r));
    if (child < 0 || wait4(child, &status, 0, &usage) < 0 || status)
        return 0;
    printf("| %s | %.3f GiB | %.3f GiB | %.3f GiB | %.1f s |\n", budget ? "with" : "without", (double)r->predicted / (1 << 30),
           (double)r->peak / (1 << 30), (double)usage.ru_maxrss / (1 << 20), r->seconds);
    fflush(stdout);
    return (size_t)usage.ru_maxrss << 10;
}

int main(int argc, char **argv)
{
    struct result *r = mmap(NULL, 2 * sizeof(*r), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t budget = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    int steps = argc > 3 ? atoi(argv[3]) : 2, worst = 0;
    if (argc < 3 || argc > 4 || !budget || steps < 1 || r == MAP_FAILED) {
        fprintf(stderr, "usage: %s MODEL BYTES [STEPS]\n", argv[0]);
        return 2;
    }
    printf("%d x %d, %d steps, budget %.3f GiB\n\n", SIDE, SIDE, steps, (double)budget / (1 << 30));
    printf("| budget | predicted | allocated at most | resident at most | time |\n|---|---|---|---|---|\n");
    if (!measure(argv[1], 0, steps, &r[0]))
        return 1;
    size_t most = measure(argv[1], budget, steps, &r[1]);
    if (!most)
        return 1;
    for (int i = 0; i < BYTES; i++) {
        int off = abs(r[0].rgb[i] - r[1].rgb[i]);
        worst = off > worst ? off : worst;
    }
    printf("\nThe pictures differ by at most %d of 255.\n", worst);
    return most > budget || worst > 1;
}
