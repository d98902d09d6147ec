/* Integers of sizes and blocks; none is negative, divisors are positive. */
#ifndef TERN_CPU_INTEGERS_H
#define TERN_CPU_INTEGERS_H

#include <stdint.h>

static inline int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* To a multiple of b. */
static inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
/* Of the fewest about equal parts of at most so much: a multiple of `step`, which may make it a little more. */
static inline int64_t equal_part(int64_t total, int64_t most, int64_t step)
{
    return round_up(ceil_div(total, ceil_div(total, most)), step);
}
/* To an odd number of lines: rows so far apart do not share cache sets. line: values in 64 bytes. */
static inline int64_t odd_lines(int64_t values, int64_t line) { return (ceil_div(values, line) | 1) * line; }

#endif
