/* Matrix products of words (level.h), of bf16 with sums in f32: C (m x n) = A (m x k) B + bias, posts, one rounding. A comes in blocks of
 * rows and parts of the depth from a callback, which may point into the picture or matrix itself. C is of bf16, or of f32 where a cast is
 * among the posts. */
#ifndef TERN_BACKENDS_CPU_GEMM_DOT_H
#define TERN_BACKENDS_CPU_GEMM_DOT_H

#include "backends/cpu/gemm.h"

#define TERN_DOT_PIECES 16
#define CPU_X3_PLANES 3 /* of A, of products of f32 by pieces of bf16 */

/* What sums of int8 mean: (sum - offset) x column x row, with a value of `row` for so many rows of C. Columns are those of B as it was
 * before it was packed. */
struct cpu_dot_scales {
    const int32_t *offset;
    const float *column, *row;
    int64_t rows;
};

/* A of int8 as it comes: rows of k values, which lie behind each other. A task makes bytes of its rows, `pitch` apart, each by its own
 * largest value, or those of `rows` rows by in[], whose scales are those of the product. */
struct cpu_dot_values {
    enum tern_dtype dtype;
    const void *x;
    int64_t k, pitch;
    const float *in; /* NULL: by their own */
    int64_t rows;
};

struct cpu_dot_gemm {
    int64_t m, n, k;
    int64_t first;                  /* row of C that it begins with: of a band of a picture */
    const struct tern_cpu_dot *dot; /* of the level: what multiplies */
    int64_t rows;                   /* of a block of A, at most TERN_DOT_ROWS */
    /* 0: its rows of C lie behind each other. Else the second half of a block lies so many rows behind the first one, and blocks go through
     * that many rows and as many more, which m is a multiple of. */
    int64_t apart;
    /* The depth in the parts that a block of rows can have in L1. They decide the order of the sums: threads have no say in them. */
    int parts;
    int64_t part_depth; /* of the longest */
    bool stream;        /* blocks are tiles of the level, to which panels come from L2 */
    size_t scratch;     /* values of bf16 that `stage` needs */
    /* The pieces of rows row0 .. row0 + rows of A, as tasks count them, in that part, ready to be multiplied; their number. They are a
     * block: row0 is a multiple of g->rows, and rows at most that. */
    int (*stage)(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces);
    const struct cpu_dot_values *values; /* in place of stage; NULL: `stage` it is */
    const void *source;                  /* for stage */
    int64_t lda;                         /* for tern_cpu_dot_rows: values between rows of source */
    const void *b;                       /* packed by tern_cpu_bf16_pack, or with `split` by tern_cpu_pack_b */
    const struct cpu_weights *kept;      /* B is packed by tern_cpu_weights_pack, and expanded part by part; NULL: it is not */
    /* Products of f32 by pieces of bf16, `dot` is of it: A comes in three planes, a_plane values apart, and B of b_dtype is split part by
     * part. C is of f32. NULL: they are not. */
    const struct tern_cpu_bf16x3 *split;
    int64_t a_plane;
    enum tern_dtype b_dtype;
    /* With `kept` or `split`: where the rows of B lie that belong to a part, which `stage` then names in that order, or names none; their
     * number. NULL: they are the part's range of the depth. */
    int (*ranges)(const struct cpu_dot_gemm *g, int part, struct tern_dot_piece *pieces);
    int bias_input;   /* its index among those of the op */
    const void *bias; /* n values, or NULL */
    enum tern_dtype bias_dtype;
    void *c;
    enum tern_dtype c_dtype;
    int64_t ldc;
    const struct cpu_post *post;         /* on finished rows of C, in f32; NULL: none */
    const struct cpu_dot_scales *scales; /* of int8; NULL: sums are f32 */
    /* C = values * gelu(gates), each of n columns: panels of B are of values and of gates by turns, bias is n of values and n of gates. C
     * is of bf16, without posts. */
    bool gated;
    /* Many products of one kind, 0: this one alone. `product` gives product i, a copy of this, its source, b and c. No posts. */
    int64_t batch;
    void (*product)(const void *products, int64_t i, struct cpu_dot_gemm *one);
    const void *products;
};

/* The level has g->dot. */
size_t tern_cpu_dot_workspace(struct tern_context *ctx, const struct cpu_dot_gemm *g);
/* Weights, bias, output and posts are those of the call. */
enum tern_status tern_cpu_dot_launch(const struct tern_kernel_args *a, const struct cpu_dot_gemm *like, const struct cpu_rows *rows,
                                     void *workspace);

/* b, c and what belongs to them are there. */
void tern_cpu_dot_run(struct tern_context *ctx, const struct cpu_dot_gemm *g, void *workspace);

/* Values of a row in a part, so that `rows` of them take two thirds of L1: about equal parts, in steps of the level. */
int64_t tern_cpu_dot_part(struct tern_context *ctx, const struct tern_cpu_dot *dot, int64_t depth, int64_t rows);
/* Parts of k as it comes, blocks of rows that lie behind each other: sets stream, rows, parts, part_depth, scratch and a_plane; `stage` is
 * for tern_cpu_dot_gathered. Where one part does not do, blocks are tiles if the level has them (not with `split`): fewer rows have longer
 * parts in L1, and most sums never leave the registers before they are whole. Where panels do not go by L1, parts have five sixths of it. */
void tern_cpu_dot_parts(struct tern_context *ctx, struct cpu_dot_gemm *g);
/* Where the first row of a block lies in C; its second half lies g->apart behind. row0: as tasks count them. */
int64_t tern_cpu_dot_row(const struct cpu_dot_gemm *g, int64_t row0);
/* The range of the depth of such a part; its length. */
int64_t tern_cpu_dot_range(const struct cpu_dot_gemm *g, int part, int64_t *k0);
/* Values between the rows of a part in scratch. */
int64_t tern_cpu_dot_lda(const struct cpu_dot_gemm *g);
/* As `stage`, of rows that a task has made bytes of: those from row i of them on. */
int tern_cpu_dot_bytes(const struct cpu_dot_gemm *g, int64_t i, int part, const uint16_t *bytes, struct tern_dot_piece *pieces);
/* As `stage`, of a matrix of bf16: rows are read where they lie, or copied. */
int tern_cpu_dot_rows(const struct cpu_dot_gemm *g, int64_t row0, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces);
/* With `split`: rows of a part in f32, ldx values apart, to scratch in pieces. What `stage` returns. */
int tern_cpu_dot_split(const struct cpu_dot_gemm *g, int64_t rows, int part, const float *x, int64_t ldx, uint16_t *scratch,
                       struct tern_dot_piece *pieces);
/* A part is in scratch: fills its rows up to the level's step. What `stage` returns. */
int tern_cpu_dot_gathered(const struct cpu_dot_gemm *g, int64_t rows, int part, uint16_t *scratch, struct tern_dot_piece *pieces);

/* B in bf16 from any floating dtype, rounded to nearest even: no copy of it in f32 is made. The depth is filled up with zeros. */
size_t tern_cpu_bf16_packed_size(const struct tern_cpu_level *level, int64_t n, int64_t k);
/* weight (n, c) or (n, c, kh, kw), contiguous; row tap x c + channel of B. gated: weight (2 n, c), a panel of the first n columns of B and
 * one of the others by turns, each in the place of a whole one. */
void tern_cpu_bf16_pack(struct tern_context *ctx, const struct tern_meta *weight, bool gated, const void *src, void *dst);
/* One panel of a B of bf16 that lies in any strides; dst is the start of the whole packed matrix. */
void tern_cpu_bf16_pack_panel(const struct tern_cpu_level *level, const struct cpu_pack *p, const void *src, void *dst, int64_t panel);

#endif
