/* matmul as products of matrices that kernels take where they lie: any strides of a batch, so heads need no copies. */
#ifndef TERN_BACKENDS_CPU_MATMUL_H
#define TERN_BACKENDS_CPU_MATMUL_H

#include "backends/cpu/cpu.h"
#include "ops/matmul.h"

struct cpu_matmul {
    int64_t batch, m, n, k; /* where all of a batch meet the same matrix, their rows are those of one product */
    int64_t lda;            /* values between rows of x, whose values are neighbours */
    int64_t row, column;    /* of other: from one to the next */
    struct tern_meta dims;  /* of the batch */
    int64_t x_stride[TERN_MAX_DIMS], other_stride[TERN_MAX_DIMS];
};

/* Whether x and other have that dtype, and rows of x lie dense; out is contiguous, and there is a depth. */
bool cpu_matmul_of(const struct tern_op_desc *d, enum tern_dtype dtype, struct cpu_matmul *p);
/* Values from the start of x or other to matrix i of the batch. */
int64_t cpu_matmul_x(const struct cpu_matmul *p, int64_t i);
int64_t cpu_matmul_other(const struct cpu_matmul *p, int64_t i);
/* Products of a batch that are packed and multiplied together, where other's matrix takes so many bytes packed. */
int64_t cpu_matmul_chunk(struct tern_context *ctx, const struct cpu_matmul *p, size_t packed);

/* The matrices of a chunk of the batch, and where they are packed one behind the other. */
struct cpu_matmul_run {
    const struct tern_cpu_level *level;
    struct cpu_matmul p;
    int64_t first; /* of the batch */
    const char *x, *other;
    char *out, *packed;
    size_t element, packed_size; /* bytes: of a value, of a packed matrix */
    int64_t panels;              /* of a matrix */
    void (*pack)(const struct cpu_matmul_run *r, const void *other, void *packed, int64_t panel);
};

struct cpu_matmul_run cpu_matmul_begin(const struct tern_kernel_args *a, const struct cpu_matmul *p);
/* Packs matrices first .. first + count of other, all threads. */
void cpu_matmul_pack(struct tern_context *ctx, const struct cpu_matmul_run *r, int64_t count);

#endif
