/* The line of devices: what "auto" takes, and who stands behind it when a device fails. */
#ifndef TERN_CORE_LINE_H
#define TERN_CORE_LINE_H

#include "core/hal.h"

/* Opens the first device of `spec` that works: "cuda:1", a list "cuda,opencl:1,cpu", or "auto": the line, best first. What stands
 * behind it is kept in ctx->behind. NULL with the error recorded, which has the reason of every one that did not work. */
struct tern_device *tern_device_choose(struct tern_context *ctx, const char *spec);

struct tern_line_entry {
    char name[24]; /* "cuda:0" */
    double flops;  /* what ops/score.c measured, a second; 0: the only one in line, not measured */
};
#define TERN_LINE_MOST 32

/* line.c: the devices that compute, best first, the CPU among them; how many. Measured when the cache has nothing of this start of the
 * machine, or when `fresh`. Devices that are the host's processor again (caps.software) stay out. -1 with the error recorded. */
int tern_line(struct tern_context *ctx, bool fresh, struct tern_line_entry line[TERN_LINE_MOST]);

/* ops/score.c: operations a second of ctx's device in the layers that diffusion models spend their time in; takes about a second.
 * 0 with the error recorded. */
double tern_device_score(struct tern_context *ctx);

#endif
