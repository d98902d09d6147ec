/* A library that stands in for libOpenCL.so.1: it passes everything on, and says of the device what a test tells it to.
 * TERN_OPENCL_LIBRARY names it; a test opens it too and gets this by the function opencl_shim(). */
#ifndef TERN_TESTS_OPENCL_SHIM_H
#define TERN_TESTS_OPENCL_SHIM_H

#include <stdbool.h>
#include <stddef.h>

struct opencl_shim {
    size_t max_allocation;  /* bytes that a buffer may have; 0: as its own */
    bool discrete;          /* with memory of its own, which is looked for when a buffer is first written to */
    size_t most_found;      /* bytes of a buffer for which it is found then */
    const char *driver;     /* CL_DRIVER_VERSION; NULL: its own */
    const char *version;    /* CL_DEVICE_VERSION; NULL: its own */
    const char *extensions; /* NULL: its own */
    bool dot_products;      /* of packed words: what cl_khr_integer_dot_product has to say */
};

#endif
