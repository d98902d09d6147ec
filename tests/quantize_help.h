/* What the tests of quantised models share: the model with words for its layers, the latents of one job, layers by op. Failures end the
 * running test. */
#ifndef TERN_TESTS_QUANTIZE_HELP_H
#define TERN_TESTS_QUANTIZE_HELP_H

#include "graph/plan.h"
#include "models/pipelines/pipeline.h"

/* The model "sd1" with words for the UNet and the text encoder; NULL: none. */
struct tern_pipeline *quantize_load(struct tern_context *ctx, const char *unet, const char *text_encoder, enum tern_offload offload);
/* The latents of a small job after its last step, and their number; free(). */
float *quantize_latents(struct tern_context *ctx, struct tern_pipeline *p, int64_t *n);
/* Nodes of the op that have not been taken out. */
int quantize_count(const struct tern_plan *p, enum tern_op op);

#endif
