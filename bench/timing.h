/* What the benchmarks share: the clock of the command, and the middle of some measurements. */
#ifndef TERN_BENCH_TIMING_H
#define TERN_BENCH_TIMING_H

#include <stdlib.h>

#include "../tools/tern/clock.h"

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
