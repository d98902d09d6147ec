/* What the tests of backends for GPUs share. Failures end the running test. */
#ifndef TERN_TESTS_GPU_HELP_H
#define TERN_TESTS_GPU_HELP_H

#include <tern/tern.h>

/* One in so many checks of single ops, by the kernel that is chosen: how many passed. */
int gpu_ops_agree(struct tern_context *ctx, const char *device, int one_in);

/* A small picture by the demo model, in two steps. */
struct tern_image *gpu_paint(struct tern_context *ctx, const char *prompt);
/* Values of two pictures differ by at most 1. */
void gpu_compare(const struct tern_image *a, const struct tern_image *b);

/* What a plan of a convolution, a norm and a product gives on a device, three runs of it; in the last nothing is allocated. */
#define GPU_PLAN_VALUES (4 * 6 * 5)
void gpu_run_plan(struct tern_context *ctx, float *values);

#endif
