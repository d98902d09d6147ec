/* What the tests of tuning share: a file in a folder of its own, contexts of the device "trial", plans. Failures end the running test. */
#ifndef TERN_TESTS_TUNE_HELP_H
#define TERN_TESTS_TUNE_HELP_H

#include "core/status.h"
#include "tune_backend.h"

#define TUNE_ELEMENTS 4096

struct tune {
    char folder[64], file[80];
    int warnings;
    char last[TERN_ERROR_SIZE]; /* message of a warning */
    bool cancel;
};
struct tune tune_open(void);
/* Removes the folder. */
void tune_close(struct tune *f);

/* With the file, that cache folder, one thread. */
struct tern_context *tune_context(struct tune *f, enum tern_tune_level level);
struct tern_context *tune_context_of(struct tune *f, const struct tern_context_params *params);

/* |x| of TUNE_ELEMENTS values. */
struct tern_graph *tune_graph(struct tern_context *ctx);
struct tern_plan *tune_plan(struct tern_context *ctx, const struct tern_plan_params *params);
/* Name of the kernel of step i. */
const char *tune_kernel(const struct tern_plan *p, int i);
/* Runs the plan of one context once: the values are right. */
void tune_check(struct tern_plan *p);

#endif
