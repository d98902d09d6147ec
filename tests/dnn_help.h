/* A plan of convolutions with other operations behind each, which the tests of cuDNN run on every device. */
#ifndef TERN_TESTS_DNN_HELP_H
#define TERN_TESTS_DNN_HELP_H

#include <tern/context.h>

/* Convolutions of the plan; values of its result. */
enum { DNN_CONVOLUTIONS = 6, DNN_PICTURE = 2 * 8 * 5 * 6 };

/* The plan in that dtype `times` over, the bias in f32, as models have it; values: of the last run. False, with the error recorded, when it
 * could not run. */
bool dnn_run_plan(struct tern_context *ctx, enum tern_dtype dtype, int times, float *values);

#endif
