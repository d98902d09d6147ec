/* What the tests of whole models share: contexts, models by name, golden component runs. Failures end the running test. */
#ifndef TERN_TESTS_MODEL_HELP_H
#define TERN_TESTS_MODEL_HELP_H

#include <tern/pipeline.h>
#include <tern/tern.h>

#define PATH_SIZE 512

/* A level above scalar that nearly every processor has. */
#ifdef __aarch64__
#define MODEL_USUAL_LEVEL "neon"
#else
#define MODEL_USUAL_LEVEL "avx2"
#endif

/* A CPU context. level: scalar, avx2 … as in TERN_CPU_LEVEL; NULL: the best that the processor has. */
struct tern_context *model_context(const char *level, int threads);

/* Where a model of the golden data lies: "sd1", "sd1-heads", "sd1-inpaint", "sd1-mini", "sd2", "sdxl", "demo". */
const char *model_path(const char *name, char out[PATH_SIZE]);
struct tern_pipeline *model_load(struct tern_context *ctx, const char *path);

/* tern_pipeline_exec that must work. */
struct tern_weights *model_exec(struct tern_pipeline *p, const char *component, const struct tern_weights *inputs);

/* A golden file of tests/data/components split into its inputs and what is expected. */
struct golden {
    struct tern_weights *inputs, *expected;
};
struct golden golden_open(struct tern_context *ctx, const char *path);
void golden_close(struct golden *g);
/* Runs the component on the inputs; the largest NMSE of all outputs. Fails when names or shapes are not those expected. */
double golden_error(struct tern_pipeline *p, const char *component, const struct golden *g, const char *what);

/* The NMSE of one output, which is `name` in messages; fails when it is NULL or has another shape or dtype than `expected`. */
double golden_output_error(const tern_tensor *found, const tern_tensor *expected, const char *name, const char *what);

/* Runs a binding on made-up inputs, once; its first output as f32. */
void model_run(struct tern_binding *b, float *result, size_t bytes);
/* The same; false, with the error recorded, when it fails. */
bool model_try_run(struct tern_binding *b, float *result, size_t bytes);
/* Those inputs, which the caller owns. */
void model_inputs(struct tern_binding *b, tern_tensor **in);

/* Calls fn for each golden file of a model: path, component ("unet") and name ("unet.square"). */
void golden_each(const char *model, void (*fn)(void *arg, const char *path, const char *component, const char *name), void *arg);
/* Those of a folder of tests/data, which may hold other files without a dot in their name. */
void golden_each_in(const char *data, void (*fn)(void *arg, const char *path, const char *component, const char *name), void *arg);

#endif
