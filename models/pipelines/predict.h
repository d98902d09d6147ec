/* What the UNet predicts at a step, for all pictures of a job. */
#ifndef TERN_MODELS_PREDICT_H
#define TERN_MODELS_PREDICT_H

#include "models/pipelines/pipeline.h"

enum { TERN_UNET_SAMPLE, TERN_UNET_TIME, TERN_UNET_CONTEXT, TERN_UNET_ADDED, TERN_UNET_INPUTS };

/* What one of the UNet's plans is given that was computed before the steps (hoist.c), of each kind: n values, for the text by group, for
 * the time by call, and by group where there is pooled text. */
struct tern_known {
    int n[TERN_KNOWN_KINDS];
    tern_tensor **values[TERN_KNOWN_KINDS];
};

/* The UNet, host buffers of one step, and the tensors of all. A group's rows are its pictures' for each branch. */
struct tern_predictor {
    struct tern_binding *binding, *shallow; /* the latter of a job that caches; else NULL */
    tern_tensor **deep;                     /* by group: what the last whole call has kept for the shallow ones */
    tern_tensor *shallow_out;
    int groups, pictures; /* of a group */
    float *input;         /* (groups, rows of the sample in a group, channels of the UNet, lh, lw) */
    float *output;        /* (groups, rows of a group, 4, lh, lw); in the end (count, 4, lh, lw) what was predicted */
    tern_tensor *(*in)[TERN_UNET_INPUTS], *out;
    struct tern_known known[2]; /* of the plan, and of the shallow one */
};

/* To be closed on failure, too. */
enum tern_status tern_predictor_open(struct tern_job *j, struct tern_predictor *s);
void tern_predictor_close(const struct tern_job *j, struct tern_predictor *s);
/* Into s->output, with guidance. */
enum tern_status tern_job_predict(struct tern_job *j, int call, struct tern_predictor *s);

#endif
