/* The inside of a suite: the case table, the checks, and what a check tells. One file a stage. */
#ifndef TERN_CONFORMANCE_SUITE_H
#define TERN_CONFORMANCE_SUITE_H

#include <jansson.h>
#include <tern/conformance.h>
#include <tern/pipeline.h>

#include "conformance/guard.h"
#include "core/context.h"
#include "core/files.h"
#include "ops/kernel.h"

#define TERN_CONFORMANCE_MESSAGE 1024

/* tools/goldens_ops/table.py describes the format. What tern_table_load lets through is well-formed. */
struct tern_table {
    json_t *root;
    const json_t *limits, *cases;
    struct tern_mapping *values;
};

/* What a check found. */
struct tern_verdict {
    enum tern_conformance_result result;
    double error;
    char message[TERN_CONFORMANCE_MESSAGE];
};

struct tern_check {
    enum tern_conformance_stage stage;
    int item;          /* case, seed, or index of a file or picture */
    const char *group; /* static, or owned by the suite's lists */
    const char *name;
    const char *way;
};

/* Runs a call into host memory in the reference's place; false when it cannot, with the reason in message, which is empty when it does
 * not support the call. */
typedef bool (*tern_case_runner)(const struct tern_kernel_args *a, void *user, char *message, size_t size);

/* Which strides a runner's output has: as it comes, the dimensions in reverse, or one after the other. */
enum tern_runner_orders { TERN_ORDERS_BOTH, TERN_ORDERS_FIRST, TERN_ORDERS_REVERSED };

struct tern_conformance {
    tern_case_runner runner; /* of "reference_strides": tests set it. NULL: the reference itself */
    void *runner_user;
    enum tern_runner_orders orders; /* of the runner's output */
    struct tern_context *ctx;       /* the caller's */
    struct tern_context *own;       /* where checks run; its memory is guarded */
    struct tern_context *judge; /* whose references say what is right: `own`, or one on the CPU where the host cannot see own's memory */
    struct tern_guard guard;
    struct tern_table table;
    char *data; /* folder */
    char description[512];
    struct tern_check *checks;
    int count, capacity;
    int cases;
    char **kept; /* strings that checks point to */
    int n_kept, kept_capacity;
    struct tern_pipeline *pipeline; /* the last that was used: checks of one model stand together */
    char pipeline_key[4096 + 16];
    json_t *demo; /* rows of demo-sheet/cases.json; NULL: not there */
    struct tern_verdict verdict;
};

/* ---- what a check tells: false, so that it can be returned */
bool tern_verdict_fail(struct tern_verdict *v, const char *fmt, ...) TERN_PRINTF(2, 3);
bool tern_verdict_skip(struct tern_verdict *v, const char *fmt, ...) TERN_PRINTF(2, 3);

/* ---- building the list; false with the error recorded in c->ctx */
bool tern_suite_add(struct tern_conformance *c, const struct tern_check *check);
/* A copy that lives as long as the suite. NULL with the error recorded. */
const char *tern_suite_keep(struct tern_conformance *c, const char *text);

/* ---- table.c */
bool tern_table_load(struct tern_context *ctx, const char *folder, struct tern_table *t);
void tern_table_close(struct tern_table *t);
const json_t *tern_table_case(const struct tern_table *t, int i);
/* "" when absent */
const char *tern_json_word(const json_t *o, const char *key);
/* A number, or the text "nan", "inf" or "-inf". */
double tern_json_real(const json_t *v);
/* {dtype, shape} as a contiguous meta; false when it is not valid. */
bool tern_spec_meta(const json_t *spec, struct tern_meta *m);
/* The stored elements of a spec with "at". */
const void *tern_spec_stored(const struct tern_table *t, const json_t *spec);

/* ---- inputs.c */
struct tern_call {
    enum tern_op op;
    struct tern_op_info info;
    tern_tensor *in[TERN_MAX_INPUTS];
    int n_in;
    union tern_op_attrs attrs;
};
/* The call of a case; its inputs belong to the open scope of ctx. False when they could not be made (error recorded in ctx). */
bool tern_call_prepare(const struct tern_table *t, const json_t *row, struct tern_context *ctx, struct tern_call *call);
/* Its description, as a dispatcher has it. False when the shape rule refuses it (error recorded in ctx). */
bool tern_call_describe(struct tern_context *ctx, const struct tern_call *call, struct tern_op_desc *d);

/* ---- compare.c: `found` holds the elements of m in row-major order */
bool tern_case_compare(const struct tern_table *t, const json_t *row, const struct tern_meta *m, const void *found, struct tern_verdict *v);

/* ---- one file a stage: adds its checks, runs one */
bool tern_ops_add(struct tern_conformance *c, const struct tern_conformance_params *params);
void tern_ops_run(struct tern_conformance *c, const struct tern_check *check);
bool tern_graphs_add(struct tern_conformance *c);
void tern_graphs_run(struct tern_conformance *c, const struct tern_check *check);
bool tern_models_add(struct tern_conformance *c);
void tern_models_run(struct tern_conformance *c, const struct tern_check *check);
bool tern_pictures_add(struct tern_conformance *c);
void tern_pictures_run(struct tern_conformance *c, const struct tern_check *check);

/* A model in the suite's context: the one that was asked for last is kept. Borrowed; NULL with the error recorded there. */
struct tern_pipeline *tern_suite_pipeline(struct tern_conformance *c, const char *model, enum tern_dtype dtype);

/* sum (found - expected)^2 / sum expected^2, of tensors of one shape; NaN, and what cannot be read, counts as infinite. */
double tern_tensor_nmse(const tern_tensor *found, const tern_tensor *expected);

#endif
