/* The prompts of a job where they are more than one text to each row: read before anything is computed, encoded once, and put together
 * anew when another text holds. */
#ifndef TERN_MODELS_CONDITIONS_H
#define TERN_MODELS_CONDITIONS_H

#include "models/pipelines/pipeline.h"
#include "models/prompts/prompts.h"

#define TERN_ENCODERS 2
#define TERN_MOST_CONDITIONS (1 + TERN_MOST_SUBPROMPTS) /* a negative prompt, and those that AND joins */
_Static_assert(TERN_MOST_BRANCHES == TERN_MOST_CONDITIONS + 1, "and the negative one beside a picture");

/* One text that holds for some steps. */
struct tern_condition_text {
    struct tern_chunks chunks[TERN_ENCODERS];
    int times;     /* how often the schedule names it, which counts in the mean of emphasis */
    float *states; /* (tokens of the job, D) */
    float *pooled; /* SDXL: (P) */
};

/* What one row of the UNet is told. */
struct tern_condition {
    double weight; /* of its difference from the negative one */
    bool zeros;    /* no text at all */
    struct tern_prompt_schedule schedule;
    struct tern_condition_text *texts;
    int64_t chunks; /* of its longest text */
};

struct tern_conditions {
    struct tern_condition at[TERN_MOST_CONDITIONS]; /* the negative one first when the job is guided */
    int count;
    int64_t chunks, length, width;    /* of each text in the end; ids of a chunk; D */
    struct tern_condition_text empty; /* one chunk that says nothing: its states (L, D) */
    int shown[TERN_MOST_CONDITIONS];  /* the texts that the job's context is made of; -1 at first */
    bool vectors;                     /* embeddings are used */
    bool brackets;                    /* some prompt has them, so that emphasis counts */
};

/* The text of a chunk: that of the empty one behind the end. */
const int64_t *tern_condition_ids(const struct tern_conditions *c, const struct tern_condition_text *t, int encoder, int64_t chunk);
/* Encodes all texts. */
enum tern_status tern_conditions_encode(struct tern_job *j);
/* Multiplies the states of one chunk of all texts of a condition, columns first..first + width, with the weights of their tokens, and
 * gives them back the mean that they had. */
enum tern_status tern_conditions_emphasise(struct tern_job *j, struct tern_condition *c, int encoder, int64_t chunk, int64_t first,
                                           int64_t width);

#endif
