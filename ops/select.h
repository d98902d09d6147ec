/* The memory of past kernel choices: a direct-mapped table. */
#ifndef TERN_OPS_SELECT_H
#define TERN_OPS_SELECT_H

#include "ops/kernel.h"

#define TERN_SELECT_ENTRIES 1024

struct tern_select_entry {
    uint64_t hash; /* odd; 0: empty */
    const struct tern_device *device;
    const struct tern_kernel *kernel;
    struct tern_op_desc desc;
};

struct tern_select_cache {
    struct tern_select_entry entries[TERN_SELECT_ENTRIES];
};

/* The kernel is of the op and takes the posts of the description, and what is in front of it; whether it supports the rest is not asked. */
bool tern_kernel_takes(const struct tern_kernel *k, struct tern_device *device, const struct tern_op_desc *d);

const struct tern_kernel *tern_select_cached(struct tern_context *ctx, struct tern_select_cache *cache, struct tern_device *device,
                                             const struct tern_op_desc *d);

/* Name of the forced kernel, or NULL. */
const char *tern_dispatch_forced(const struct tern_context *ctx);

#endif
