/* What the benchmarks share: a clock, and the middle of some measurements. */
#ifndef TERN_BENCH_TIMING_H
#define TERN_BENCH_TIMING_H

#include <stdlib.h>
#include <time.h>

/* Seconds; only differences mean something. */
static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Sorts them. */
static inline double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), by_size);
    return values[n / 2];
}

#endif
