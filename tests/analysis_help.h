/* What the tests of tern_pipeline_quantize share: a small model, params, a context that can be stopped. Failures end the running test. */
#ifndef TERN_TESTS_ANALYSIS_HELP_H
#define TERN_TESTS_ANALYSIS_HELP_H

#include <tern/quantize.h>

extern const char *const analysis_prompts[2];
/* Small and quick; what time the layers of so small a model take does not count. */
struct tern_quantize_params analysis_params(void);

/* Cancels when so many units are done; 0: never. */
struct analysis_stop {
    int at, reached, calls;
    bool wrong; /* another stage was told, or more done than there is */
};

struct analysis {
    struct analysis_stop stop;
    struct tern_context *ctx;
    struct tern_pipeline *p;
};

void analysis_open_typed(struct analysis *f, const char *path, enum tern_dtype dtype);
void analysis_open_path(struct analysis *f, const char *path);
/* The model "sd1". */
void analysis_open(struct analysis *f);
void analysis_close(struct analysis *f);
struct tern_recipe *analysis_run(struct analysis *f, const struct tern_quantize_params *q);

/* Of a model in a folder. What the last norm gives the first channel is `value` times as large, and the last convolution reads it with
 * weights of 0, or the norm has a bias of 0 for it. */
void analysis_change_last(const char *folder, float value, bool unread);
/* One channel of what goes into the last convolution is very large, and the convolution does not read it: in floats that is as if it were
 * not there, in int8 no other channel is left. */
void analysis_spoil(const char *folder);

#endif
