/* The calls and tasks of gemm_dot.c, and what becomes of their sums: bias, posts and one rounding while they are in L1. */
#ifndef TERN_BACKENDS_CPU_GEMM_DOT_FINISH_H
#define TERN_BACKENDS_CPU_GEMM_DOT_FINISH_H

#include "backends/cpu/gemm_dot_blocks.h"

struct cpu_dot_call {
    const struct cpu_dot_gemm *g;
    const struct tern_cpu_level *level;
    struct tern_cpu_dot_blocks b;
    char *workspace;
    int64_t c_size; /* bytes of a value of C */
    bool fetch;     /* C is larger than L2, so that fetching it, and what posts add to it, is worth its instructions; tiles wait for it */
};

/* A task's rows and panels and its scratch: bias and, of int8, scales of its columns lie there as the panels do. */
struct cpu_dot_task {
    int64_t row0, rows, p0, p1;
    uint16_t *a;
    uint16_t *b; /* expanded; NULL: B is read where it is */
    float *c, *bias, *scale;
    const float *factor; /* of rows that became bytes in a; NULL: they came so */
    int32_t *offset;
};

/* Of panel p of B: its columns, the first of them in the bias. */
int64_t tern_cpu_dot_columns(const struct cpu_dot_call *r, int64_t p, int64_t *first);
/* Begins to fetch where a row of columns of panels p .. p + n will be written, and what its posts will read. */
void tern_cpu_dot_fetch(const struct cpu_dot_call *r, int64_t row, int64_t p, int64_t n);
/* `rows` rows of sums at c are ready: columns of panels p .. p + n. They are written to C; c is scratch then. */
void tern_cpu_dot_finish(const struct cpu_dot_call *r, const struct cpu_dot_task *t, int64_t row, int64_t rows, int64_t p, int64_t n,
                         float *c);

#endif
