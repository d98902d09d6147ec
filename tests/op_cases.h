/* The op case table (tests/data/ops, made by tools/goldens_ops.py, which describes the format) and the running of one
 * case: by the dispatcher's choice, by a kernel candidate, or by the reference called directly. */
#ifndef TERN_TESTS_OP_CASES_H
#define TERN_TESTS_OP_CASES_H

#include "ops/op.h"

struct op_cases;

/* NULL with the reason in message when the table cannot be read. */
struct op_cases *op_cases_load(const char *folder, char *message, size_t size);
void op_cases_free(struct op_cases **cases);

int op_cases_count(const struct op_cases *cases);
const char *op_case_name(const struct op_cases *cases, int i);
enum tern_op op_case_op(const struct op_cases *cases, int i);
/* True when the case is a call that must be refused. */
bool op_case_is_error(const struct op_cases *cases, int i);

enum op_case_result { OP_CASE_PASSED, OP_CASE_SKIPPED, OP_CASE_FAILED };

struct op_case_options {
    const char *kernel; /* a candidate of the context's device; "reference"; NULL: the dispatcher chooses */
    bool constant;      /* inputs but the first are constants, as weights are: packed once */
};

/* Runs case i on the context's device. Skipped: the candidate is for another op or does not support the call, or the
 * device computes nothing and there is nothing to compare. Failed: the message says where and how. The context is left
 * without an error. */
enum op_case_result op_case_run(const struct op_cases *cases, int i, struct tern_context *ctx, const struct op_case_options *options,
                                char *message, size_t size);

/* Runs a call into host memory; false when it cannot, with the reason in message, which is empty if it does not support it. */
typedef bool (*op_case_runner)(const struct tern_kernel_args *a, void *user, char *message, size_t size);

/* op_case_run_reference with a runner in the reference's place. Skipped: the runner does not support the call, or it is one that is
 * refused. */
enum op_case_result op_case_run_by(const struct op_cases *cases, int i, struct tern_context *ctx, op_case_runner run, void *user,
                                   char *message, size_t size);

/* Calls the reference itself with guarded output memory: once contiguous, once with the dimensions in reverse order. */
enum op_case_result op_case_run_reference(const struct op_cases *cases, int i, struct tern_context *ctx, char *message, size_t size);

#endif
