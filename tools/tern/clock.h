/* The clock of what the command measures. */
#ifndef TERN_TOOLS_CLOCK_H
#define TERN_TOOLS_CLOCK_H

#include <time.h>

/* Seconds; only differences mean something. */
static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
