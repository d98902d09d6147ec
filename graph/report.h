/* What the JSON reports share. Functions that return int follow jansson: other than 0 for lack of memory. */
#ifndef TERN_GRAPH_REPORT_H
#define TERN_GRAPH_REPORT_H

#include "core/json.h"
#include "core/shape.h"

/* json.c: sets "shape" and "dtype". */
int tern_report_meta(json_t *o, const struct tern_meta *m);
/* Writes the object as one line and drops it; with `bad` only drops it: the error is then recorded. */
enum tern_status tern_report_send(struct tern_context *ctx, json_t *o, int bad, void (*write)(void *user, const char *line), void *user);

#endif
