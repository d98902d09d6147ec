/* One job on the CPU and on another device: how far the latents are apart, and the time of each.
 * usage: bench_devices MODEL DEVICE [SIDE] [STEPS]. Public headers only; Markdown on standard output, exit code 1 when the normalised mean
 * square error is above 1e-5. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tern/tern.h>

#include "timing.h"

#define ALLOWED 1e-5

/* Values of the final latents, to free; NULL when something failed, which is told. */
static float *paint(const char *model, const char *device, int side, int steps, size_t *count)
{
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.device = device});
    if (!ctx) {
        fprintf(stderr, "%s\n", tern_create_error());
        return NULL;
    }
    double start = now();
    float *values = NULL;
    struct tern_pipeline *p = tern_pipeline_load(ctx, model, NULL);
    struct tern_images *images =
        p ? tern_generate(p, &(struct tern_txt2img_params){.prompt = "a cat", .width = side, .height = side, .steps = steps, .seed = 1})
          : NULL;
    tern_tensor *latents = images ? tern_images_latents(images) : NULL;
    *count = latents ? (size_t)tern_tensor_numel(latents) : 0;
    if (latents && (values = malloc(*count * sizeof(*values))) && tern_tensor_read(latents, TERN_F32, values, *count * sizeof(*values))) {
        free(values);
        values = NULL;
    }
    if (values)
        printf("| %s | %.1f s |\n", device, now() - start);
    else
        fprintf(stderr, "%s: %s\n", device, tern_error(ctx));
    fflush(stdout);
    tern_images_destroy(&images);
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
    return values;
}

int main(int argc, char **argv)
{
    int side = argc > 3 ? atoi(argv[3]) : 256, steps = argc > 4 ? atoi(argv[4]) : 2;
    if (argc < 3 || argc > 5 || side < 64 || steps < 1) {
        fprintf(stderr, "usage: %s MODEL DEVICE [SIDE] [STEPS]\n", argv[0]);
        return 2;
    }
    size_t n = 0, m = 0;
    double off = 0, all = 0;
    printf("%d x %d, %d steps\n\n| device | time |\n|---|---|\n", side, side, steps);
    float *expected = paint(argv[1], "cpu", side, steps, &n), *found = expected ? paint(argv[1], argv[2], side, steps, &m) : NULL;
    for (size_t i = 0; found && m == n && i < n; i++) {
        off += ((double)found[i] - expected[i]) * ((double)found[i] - expected[i]);
        all += (double)expected[i] * expected[i];
    }
    bool agree = found && m == n && off <= ALLOWED * all; /* not so when either is NaN */
    if (found)
        printf("\nNormalised mean square error of the latents: %.2g, allowed %.0e.\n", off / all, ALLOWED);
    free(expected);
    free(found);
    return !agree;
}
