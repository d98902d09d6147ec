/* What the UNet predicts at a step, for all pictures of a job. */
#ifndef TERN_MODELS_PREDICT_H
#define TERN_MODELS_PREDICT_H

#include "models/pipelines/pipeline.h"

#define TERN_UNET_INPUTS 4 /* sample, time, context, added */

/* The UNet, host buffers of one step, and the tensors of all. A group's rows are its pictures' for each branch. */
struct tern_predictor {
    struct tern_binding *binding, *shallow; /* the latter of a job that caches; else NULL */
    tern_tensor **deep;                     /* by group: what the last whole call has kept for the shallow ones */
    tern_tensor *shallow_out;
    int groups, pictures; /* of a group */
    float *input;         /* (groups, rows of a group, channels of the UNet, lh, lw) */
    float *output;        /* as much for 4 channels; in the end (count, 4, lh, lw) what was predicted */
    tern_tensor *(*in)[TERN_UNET_INPUTS], *out;
};

/* To be closed on failure, too. */
enum tern_status tern_predictor_open(const struct tern_job *j, struct tern_predictor *s);
void tern_predictor_close(const struct tern_job *j, struct tern_predictor *s);
/* Into s->output, with guidance. */
enum tern_status tern_job_predict(struct tern_job *j, int call, struct tern_predictor *s);

#endif
