/* The backends that this build has. The table is filled in backends/, so that core knows none of them. */
#ifndef TERN_CORE_REGISTRY_H
#define TERN_CORE_REGISTRY_H

#include "core/hal.h"

struct tern_backend {
    const char *name; /* "cpu" */
    /* A device by the part of "name:ordinal" behind the colon (0 when absent). NULL with the error recorded. */
    struct tern_device *(*create)(struct tern_context *ctx, int ordinal);
};

/* NULL-terminated, in order of preference. */
extern const struct tern_backend *const tern_backends[];

/* "cuda:1" -> device. NULL with the error recorded, which lists the known names. */
struct tern_device *tern_device_open(struct tern_context *ctx, const char *spec);

#endif
