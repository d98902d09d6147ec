/* Every small model of the golden data by its architecture: its networks' runs, its pictures, and how it is loaded. Failures end the
 * running test. */
#ifndef TERN_TESTS_ARCH_HELP_H
#define TERN_TESTS_ARCH_HELP_H

#include "job_cases.h"
#include "model_help.h"

struct arch {
    const char *name;
    const char *networks;    /* folder of tests/data with golden runs of its networks; NULL: they are those of another row */
    const char *cases;       /* folder of tests/data with cases.json, latents and pictures; NULL: none */
    const char *pictures[4]; /* names of its cases: one a job that it has */
};
extern const struct arch archs[];
extern const int arch_count;

/* The model of a row, loaded. */
struct arch_model {
    struct tern_pipeline *p;
    char made[PATH_SIZE]; /* a folder that was made for it; "": none */
};
struct arch_model arch_open(struct tern_context *ctx, const struct arch *a);
void arch_close(struct arch_model *m);

/* The largest NMSE of a component's outputs by its plan, as jobs run it; what is pooled behind a plan is left out. -1: jobs have no plan
 * for such inputs (sizes that the VAE does not divide, several timesteps at once, texts of another length). */
double arch_plan_error(struct tern_pipeline *p, const char *component, const struct golden *g, const char *what);

/* Runs the pictures of a row and compares latents and pixels. */
void arch_check_pictures(struct tern_context *ctx, struct tern_pipeline *p, const struct arch *a, struct job_worst *w);

#endif
