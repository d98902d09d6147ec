/* What the tests of an interval that is chosen share: a small random model with a cache folder of its own, and jobs. */
#ifndef TERN_TESTS_DEEPCACHE_HELP_H
#define TERN_TESTS_DEEPCACHE_HELP_H

#include <tern/pipeline.h>
#include <tern/tern.h>

struct choosing {
    struct tern_context *ctx;
    struct tern_pipeline *p;
    char folder[64]; /* the cache */
    int logged;      /* warnings that something is measured anew */
    int choices;
    int fewest; /* calls of a pass that was run; 0: none was */
    char value[64], why[256];
};

/* Setup and teardown of a test. */
int choosing_open(void **state);
int choosing_close(void **state);

/* Of 12 steps; what is chosen is kept. */
struct tern_txt2img_params choosing_job(struct choosing *f, double quality, int count);
/* What was chosen last. */
int choosing_interval(const struct choosing *f);
/* The same job with an interval, as the choice says it. */
struct tern_txt2img_params choosing_with(struct tern_txt2img_params q, int interval);
/* SSIM of its first picture to that of whole calls. */
double choosing_quality_of(struct choosing *f, struct tern_txt2img_params q, int interval);

#endif
