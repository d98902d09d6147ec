/* matmul as products of matrices that kernels take where they lie: any strides of a batch, so heads need no copies. Matrices of `other` are
 * packed for each call, many of a batch at a time; then threads share the products of all. */
#ifndef TERN_BACKENDS_CPU_MATMUL_H
#define TERN_BACKENDS_CPU_MATMUL_H

#include "backends/cpu/gemm.h"
#include "ops/matmul.h"

struct cpu_matmul {
    int64_t batch, m, n, k; /* where all of a batch meet the same matrix, their rows are those of one product */
    int64_t lda;            /* values between rows of x, whose values are neighbours */
    int64_t row, column;    /* of other: from one to the next */
    struct tern_meta dims;  /* of the batch */
    int64_t x_stride[TERN_MAX_DIMS], other_stride[TERN_MAX_DIMS];
};

/* Whether x and other have that dtype, and rows of x lie dense; out is contiguous, and there is a depth. */
bool tern_cpu_matmul_of(const struct tern_op_desc *d, enum tern_dtype dtype, struct cpu_matmul *p);

/* The matrices of a chunk of the batch, and where they are packed one behind the other. */
struct cpu_matmul_run {
    const struct cpu_matmul_kind *kind;
    const struct tern_cpu_level *level;
    struct cpu_matmul p;
    int64_t first; /* of the batch */
    const char *x, *other;
    char *out, *packed;
    size_t packed_size; /* bytes of a packed matrix */
};

/* What a kernel makes of that. */
struct cpu_matmul_kind {
    enum tern_dtype dtype;
    int64_t (*panel_width)(const struct tern_cpu_level *level);
    size_t (*packed_size)(const struct tern_cpu_level *level, const struct cpu_matmul *p);
    size_t (*workspace)(struct tern_context *ctx, const struct cpu_matmul *p, int64_t batch); /* beside what is packed */
    void (*pack)(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *other, void *packed, int64_t panel);
    /* Products first .. first + count. */
    void (*multiply)(struct tern_context *ctx, const struct cpu_matmul_run *r, int64_t count, void *workspace);
};

size_t tern_cpu_matmul_workspace(struct tern_context *ctx, const struct tern_op_desc *d, const struct cpu_matmul_kind *kind);
enum tern_status tern_cpu_matmul_launch(const struct tern_kernel_args *a, const struct cpu_matmul_kind *kind);

/* Product i of a chunk: its rows of x, its packed matrix, its result. */
const void *tern_cpu_matmul_x(const struct cpu_matmul_run *r, int64_t i);
const void *tern_cpu_matmul_b(const struct cpu_matmul_run *r, int64_t i);
void *tern_cpu_matmul_out(const struct cpu_matmul_run *r, int64_t i);

#endif
