/* A library that stands in for libvulkan.so.1: it passes everything on, counts, and fails or lies as a test tells it.
 * TERN_VULKAN_LIBRARY names it; a test opens it too and gets this by the function vulkan_shim(). */
#ifndef TERN_TESTS_VULKAN_SHIM_H
#define TERN_TESTS_VULKAN_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VULKAN_SHIM_OUT_OF_MEMORY (-2) /* VK_ERROR_OUT_OF_DEVICE_MEMORY */

struct vulkan_shim {
    /* told by the test */
    long fail_at;          /* this call (from 1) of those that can fail does, with `fail_with` */
    int fail_with;         /* a VkResult */
    const char *fail_of;   /* only calls of that function count for fail_at; NULL: all */
    bool stays_lost;       /* all later ones fail likewise */
    uint64_t counter;      /* of the semaphore, as it says; 0: the truth */
    uint32_t version;      /* of the driver; 0: its own */
    bool rearranges;       /* has no SignedZeroInfNanPreserve */
    bool discrete;         /* memory of the device's own beside that of the host, and some that is only for who asked for it */
    size_t local_bytes;    /* of it there are, with `discrete`; 0: no limit */
    size_t heap_bytes;     /* of it the driver says there are; 0: as its own */
    size_t free_bytes;     /* of them, by VK_EXT_memory_budget where the driver has that; 0: all */
    size_t max_allocation; /* bytes that an allocation may have; 0: as its own */
    bool drops_dispatches; /* they are counted and not passed on: nothing is computed */
    int matrix; /* has VK_KHR_cooperative_matrix: 1 in the shape of the texts, 2 in another; taken away from what the driver gets */
    /* counted */
    bool tells_free;        /* VK_EXT_memory_budget was asked */
    long calls;             /* that can fail, and count for fail_at */
    long made, live;        /* objects, and those that were not destroyed */
    long submits, idles;    /* of command buffers; waits for the whole device */
    long waits;             /* for a semaphore */
    long matrices_enabled;  /* devices that were opened with cooperative matrices */
    long copies, binds;     /* recorded: copies of buffers, pipelines */
    long not_asked_for;     /* allocations of memory that takes a feature that is not enabled */
    long dispatches, parts; /* whole launches, or their first parts; further parts */
    size_t local_used, host_used;
};

#endif
