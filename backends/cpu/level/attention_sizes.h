/* Sizes of attention in bf16: what its parts agree on. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_SIZES_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_SIZES_H

#include "backends/cpu/level/bf16.h"

#define QUERIES TERN_ATTENTION_ROWS /* of a tile */
#define KEYS 64                     /* of a block */
#define PAIR 32                     /* keys whose powers are rounded together: key i beside key i + 16, in P as in the packed values */
/* Values between rows, also of LD_POWERS: odd numbers of lines, so that rows do not share cache sets. */
#define LD_SCORES (KEYS + 16)

/* 2^(x factor - most) for the powers above which a row gets another `most`. */
#define GROWTH 16
#define TOO_MUCH ((127 + GROWTH) << 7) /* as bf16; infinity and NaN are above it */

/* Tiles of AMX sum the powers with a column of ones behind the values. Without them SUMS places behind a row's results sum the powers, and
 * half a vector of columns is SHARED by two rows. */
#if defined(TERN_LEVEL_amx)
#define SUMS 0
#define LD_POWERS (KEYS + 32)
#define TASK_ROWS 256
#define SHARED false
#else
#define SUMS 16
#define BLOCKS 4 /* that meet their values together, so that sums come and go less */
#define LD_POWERS (BLOCKS * KEYS + 32)
#define TASK_ROWS 64 /* queries, results and a block of keys and values lie in L1 */
#define SHARED true
#endif

/* By tiles, scores and powers of one meeting are made while those of another one are read. */
struct attention_scratch {
    float scores[SUMS ? 1 : 2][QUERIES * LD_SCORES];
    uint16_t powers[SUMS ? 1 : 2][QUERIES * LD_POWERS];
};

INLINE int64_t filled(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

/* Columns of values from where on a row of results shares a vector with its neighbour, in the even row's place: at most half a vector
 * behind whole panels. */
INLINE bool half_vector(int64_t left) { return SHARED && left > 0 && left <= 8; }
INLINE int64_t shared_from(int64_t values) { return values > 32 && half_vector(values % 32) ? values / 32 * 32 : INT64_MAX; }

#endif
