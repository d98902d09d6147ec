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
/* A context on the device; without it the running test is skipped. */
struct tern_context *quantize_device(const char *name);
/* The UNet's plan at a small size, and its binding. */
extern const struct tern_stage quantize_stage;
const struct tern_plan *quantize_plan(struct tern_context *ctx, struct tern_pipeline *p);
struct tern_binding *quantize_binding(struct tern_context *ctx, struct tern_pipeline *p);
/* Bytes of weights on a GPU. */
size_t quantize_weights_there(const struct tern_context *ctx);
/* The same after a binding with those words, which takes what was predicted. */
size_t quantize_bind(const char *device, const char *words);
/* A model that tern_convert made with the words: the bits of those words on its source, and as many bytes of weights. */
void quantize_converted(struct tern_context *ctx, const char *words);
/* A LoRA on one attention: of the steps that read a kept weight (`kept` gives its value; -1: none) few have another with it, and again few
 * without it. */
void quantize_loras(struct tern_context *ctx, const char *words, int (*kept)(const struct tern_node *n));
/* Nodes of the op that have not been taken out. */
int quantize_count(const struct tern_plan *p, enum tern_op op);

#endif
