/* Conformance: does a device compute what tern says? A suite is a list of checks; each runs by itself and tells how far it was
 * from its limit. Four stages: single ops by the dispatcher's choice, by every kernel and by the reference; random graphs as
 * plans; whole components of small models; pictures of the model that ships with tern. */
#ifndef TERN_CONFORMANCE_H
#define TERN_CONFORMANCE_H

#include <tern/context.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tern_conformance;

enum tern_conformance_stage {
    TERN_CONFORMANCE_OPS = 0,  /* the case table: values from PyTorch in f64, rounded once, and calls that must be refused */
    TERN_CONFORMANCE_GRAPHS,   /* random graphs: a plan's run against an eager run by the references */
    TERN_CONFORMANCE_MODELS,   /* components of small models against diffusers and transformers */
    TERN_CONFORMANCE_PICTURES, /* pictures of the demo model against diffusers' */
    TERN_CONFORMANCE_STAGES
};
/* "ops", "graphs", "models", "pictures". The string is static. */
TERN_API const char *tern_conformance_stage_name(enum tern_conformance_stage stage);

/* For every field: zero means the default that stands beside it. */
struct tern_conformance_params {
    const char *device; /* as in tern_context_params; the context's */
    const char *stages; /* "pictures" or "graphs,models": only checks of these stages, by name; all */
    const char *op;     /* "conv2d": only checks of that op; all */
    const char *kernel; /* only checks by that kernel, or by "chosen", "constant", "reference" or "reference_strides"; all */
    const char *data;   /* folder with ops/, components/, models/, formats/mini/, demo-sheet/; found as the demo model is */
};

/* Makes the list of checks. They run in a context of the suite's own, made like ctx (threads, budget, log, cancel), whose memory has
 * guard bytes around every block and is filled with NaN. The suite keeps ctx alive. NULL with the error recorded in ctx: no table, a
 * damaged one, an unknown stage, op or kernel (what there is is told), an op or kernel without the stage of ops, no such device, no
 * memory. */
TERN_API struct tern_conformance *tern_conformance_create(struct tern_context *ctx, const struct tern_conformance_params *params);
/* NULL is allowed. */
TERN_API void tern_conformance_destroy(struct tern_conformance **c);

/* Of the suite and its device. Strings live as long as the suite; of no suite (NULL) they are empty. */
struct tern_conformance_facts {
    const char *device;      /* "cpu" */
    const char *level;       /* which of its kernels' variants run: "avx2"; "" when there is one */
    const char *description; /* one line for people */
    int cases;               /* of the table, those left out by stages and op not counted */
    int checks;
};
TERN_API struct tern_conformance_facts tern_conformance_facts(const struct tern_conformance *c);

/* One check. Strings live as long as the suite; of no suite or check they are empty. */
struct tern_conformance_check {
    enum tern_conformance_stage stage;
    const char *group; /* the op; "random"; the model */
    const char *name;  /* "conv2d.3x3.f32"; unique within its stage and way */
    /* How: "chosen" (what the dispatcher takes), "constant" (likewise, all inputs but the first being weights, packed once), "reference",
     * "reference_strides" (the reference itself, into guarded memory, with two orders of the output's dimensions), or the name of a
     * kernel that is forced. Graphs: "plan". Models and demo: the dtype. */
    const char *way;
};
/* i from 0 to checks - 1; checks of one stage, group and way stand together. */
TERN_API struct tern_conformance_check tern_conformance_get(const struct tern_conformance *c, int i);

/* Skipped: the kernel does not support that call or is not launched for it, or what is needed is not there; the message says which. */
enum tern_conformance_result { TERN_CONFORMANCE_PASSED = 0, TERN_CONFORMANCE_FAILED, TERN_CONFORMANCE_SKIPPED };

struct tern_conformance_outcome {
    enum tern_conformance_result result;
    double error;   /* the largest error as a share of what is allowed; at most 1 when passed; 0: the same bits, or nothing to measure */
    double seconds; /* that it took */
    const char *message; /* where and how it failed, or why it was skipped; "" otherwise. Until the next run of this suite */
};
/* Runs check i. What the check finds is in the outcome; the status tells whether it could run: TERN_E_CANCELLED (recorded in the
 * context that the suite was made with), TERN_E_INVALID for an i that is out of range. One thread at a time. */
TERN_API enum tern_status tern_conformance_run(struct tern_conformance *c, int i, struct tern_conformance_outcome *out);

#ifdef __cplusplus
}
#endif
#endif
