/* What tern quantize says about a recipe. */
#ifndef TERN_TOOL_QUANTIZE_REPORT_H
#define TERN_TOOL_QUANTIZE_REPORT_H

#include <tern/quantize.h>

#include "command.h"

struct report {
    struct tern_context *ctx;
    const char *path; /* of the Markdown file; pictures are named after it */
    int pictures;
    char failed[512]; /* why a picture could not be written; empty: all were */
};
/* tern_quantize_params.on_picture; user: the report. */
void report_picture(int prompt, const struct tern_image *before, const struct tern_image *after, void *user);
/* GO_ON or FAILED after a message. */
int report_write(const struct report *r, const struct tern_recipe *recipe, const char *path);
/* A line for people, or the event "done". */
void report_tell(const struct run_settings *s, const struct tern_recipe *recipe, const char *path);

#endif
