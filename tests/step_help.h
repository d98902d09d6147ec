/* What tests of a UNet's steps on a GPU share: the UNet with its inputs, and Stable Diffusion 1.5 at full size. Failures end the running
 * test. */
#ifndef TERN_TESTS_STEP_HELP_H
#define TERN_TESTS_STEP_HELP_H

#include "graph/plan.h"
#include "models/pipelines/pipeline.h"

#define STEP_MOST_KERNELS 450 /* of a step of SD 1.5; PyTorch's eager mode launches over 1,000 */

struct step_unet {
    struct tern_binding *binding;
    int n;
    tern_tensor *in[TERN_GRAPH_MAX_IO], *out[1];
};
/* For `rows` texts that share one picture of side x side pixels, as with guidance; its inputs are filled. */
struct step_unet step_unet_open(struct tern_pipeline *p, int rows, int side);
void step_unet_close(struct step_unet *u);
/* Values from -1 to 1, others for each step. */
void step_fill(tern_tensor *t, int step);

/* The whole model in f16 with random weights, in a folder of its own under /tmp, which step_remove deletes. */
#define STEP_FOLDER 32
struct tern_pipeline *step_sd15(struct tern_context *ctx, char folder[STEP_FOLDER]);
void step_remove(const char *folder);

#endif
