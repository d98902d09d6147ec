/* A library that stands in for libOpenCL.so.1: it passes everything on, and says of the device what a test tells it to.
 * TERN_OPENCL_LIBRARY names it; a test opens it too and gets this by the function opencl_shim(). */
#ifndef TERN_TESTS_OPENCL_SHIM_H
#define TERN_TESTS_OPENCL_SHIM_H

#include <stdbool.h>
#include <stddef.h>

struct opencl_shim {
    size_t max_allocation; /* bytes that a buffer may have; 0: as its own */
};

#endif
