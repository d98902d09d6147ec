/* Matrix products with packed weights in f32: C (m x n) = A (m x k) B + bias. A comes in blocks from a callback, so that a convolution
 * gathers its patches there (implicit GEMM). */
#ifndef TERN_BACKENDS_CPU_GEMM_H
#define TERN_BACKENDS_CPU_GEMM_H

#include "backends/cpu/post.h"

struct cpu_gemm {
    int64_t m, n, k;
    /* Writes rows row0..row0+rows of A, columns k0..k0+kc, to dst with ld values between rows. NULL: source is A, rows lda values apart. */
    void (*gather)(const struct cpu_gemm *g, int64_t row0, int64_t rows, int64_t k0, int64_t kc, float *dst, int64_t ld);
    const void *source; /* for gather */
    int64_t lda;        /* without gather; A is read where it lies if that is as fast */
    const void *b;      /* packed by tern_cpu_pack_b */
    enum tern_dtype b_dtype;
    const struct cpu_weights *kept; /* B is packed by tern_cpu_weights_pack, and expanded part by part; NULL: it is not */
    const float *bias;              /* n values, or NULL */
    float *c;
    int64_t ldc;
    const struct cpu_post *post; /* on finished rows of C; NULL: none */
    /* C = values * gelu(gates), each of n columns: panels of B, which cpu_pack made so, are of values and of gates by turns, bias is n
     * of values and n of gates. No posts. */
    bool gated;
    /* Many products of one kind, 0: this one alone. `product` gives product i, a copy of this, its source, b and c. No posts. */
    int64_t batch;
    void (*product)(const void *products, int64_t i, struct cpu_gemm *one);
    const void *products;
};

/* Bytes of scratch that tern_cpu_gemm_run needs. */
size_t tern_cpu_gemm_workspace(struct tern_context *ctx, const struct cpu_gemm *g);
void tern_cpu_gemm_run(struct tern_context *ctx, const struct cpu_gemm *g, void *workspace);
/* The same for a kernel whose inputs are A, weight and bias: weights, bias, output and posts are those of the call. */
enum tern_status tern_cpu_gemm_launch(const struct tern_kernel_args *a, const struct cpu_gemm *like, const struct cpu_rows *rows);

/* Depth of the parts: a panel of B of that depth leaves room in L1. */
int64_t tern_cpu_gemm_depth(struct tern_context *ctx, int64_t k);

/* Packed B: panels of nr columns, each k x nr; a last panel of at most nr / 2 columns is half as wide. Missing
 * columns are zero. Element (i, j) of B is src[j * column + (i % inner) * outer_stride + (i / inner) * inner_stride]:
 * for linear inner = k, outer_stride = 1; for a convolution (O, C, kh, kw): inner = C. */
struct cpu_pack {
    int64_t n, k, inner;
    int64_t column, within, between; /* strides in elements: of j, of i % inner, of i / inner */
    size_t element;                  /* bytes: 2 or 4 */
    bool gated; /* B has 2 n columns: a panel of the first n and one of the others by turns, each as wide as a whole one */
};
size_t tern_cpu_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k, size_t element);
int64_t tern_cpu_panel_count(const struct tern_cpu_level *level, int64_t n);
/* One panel; dst is the start of the whole packed matrix. */
void tern_cpu_pack_panel(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *src, void *dst, int64_t panel);
/* All panels, in parallel; `packed`, if not NULL, is called behind each, while it lies in cache. */
void tern_cpu_pack_b(struct tern_context *ctx, const struct cpu_pack *p, const void *src, void *dst,
                     void (*packed)(void *arg, int64_t panel), void *arg);

/* Whether an op is values times gelu of gates. */
bool tern_cpu_is_gated(const struct tern_op_desc *d);
/* Of linear: whether the layouts are right, whatever the dtypes of x and bias; its weight (n, k). */
bool tern_cpu_linear_fits(const struct tern_op_desc *d);
/* Of linear and linear_geglu in f32: kernels that share the packed weights. */
bool tern_cpu_linear_supports_f32(struct tern_device *device, const struct tern_op_desc *d);
bool tern_cpu_linear_post_f32(const struct tern_op_desc *d);
size_t tern_cpu_linear_packed_size(struct tern_context *ctx, const struct tern_op_desc *d);
enum tern_status tern_cpu_linear_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst);

#endif
