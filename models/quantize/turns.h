/* Two plans of a call of the UNet that run in turns, so that what else the machine does hits both. */
#ifndef TERN_MODELS_QUANTIZE_TURNS_H
#define TERN_MODELS_QUANTIZE_TURNS_H

#include "models/quantize/analysis.h"

struct tern_side {
    struct tern_plan *plan;
    struct tern_binding *binding;                                /* NULL: it is not run */
    tern_tensor *in[TERN_GRAPH_MAX_IO], *out[TERN_GRAPH_MAX_IO]; /* of a scope around all runs: given again, so that devices replay */
    double *seconds;                                             /* by step: the least so far; 0: none */
    int step;
    double call; /* of a whole call: the least so far; 0: none */
};

/* A plan of the job's size; `without`: as in tern_plan_params. Bound when it is to run. Errors are recorded. */
void tern_side_open(struct tern_quantize_run *run, const char *words, const char *without, bool runs, struct tern_side *side);
void tern_side_close(struct tern_quantize_run *run, struct tern_side *side);

/* Runs both some times: the times of their steps, or of their whole calls. */
void tern_sides_profile(struct tern_context *ctx, struct tern_side sides[2]);
void tern_sides_time(struct tern_context *ctx, struct tern_side sides[2]);

#endif
