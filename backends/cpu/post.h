/* What happens to a row of a kernel's output before it leaves the cache: the element-wise ops of desc->post. */
#ifndef TERN_BACKENDS_CPU_POST_H
#define TERN_BACKENDS_CPU_POST_H

#include "backends/cpu/cpu.h"

/* How a kernel goes through its output: dimensions of rows and of columns, outermost first. Rows lie behind each other. */
struct cpu_rows {
    int n_row, n_col;
    int row[TERN_MAX_DIMS], col[TERN_MAX_DIMS];
};
/* The first `split` dimensions are rows, the others columns. */
struct cpu_rows tern_cpu_rows_contiguous(int ndim, int split);
/* (N, C, H, W) with C fastest: a row is a pixel. */
struct cpu_rows tern_cpu_rows_channels_last(void);

/* An operand as rows: row r, column c is data[r / inner * ld + c * step]. */
struct cpu_operand {
    int64_t inner, ld;
    int step; /* 0 or 1 */
};
/* `m` under the shape of `out`, of a floating dtype; false when it does not have that form. */
bool tern_cpu_operand_make(const struct tern_meta *m, const struct tern_meta *out, const struct cpu_rows *rows, struct cpu_operand *o);

/* Of f32, for a result that is stored in that dtype: `unary` or `unary_half` of the level. */
static inline tern_cpu_unary_fn *cpu_unary_for(const struct tern_cpu_level *l, enum tern_dtype stored, enum tern_cpu_unary which)
{
    return (stored == TERN_F32 ? l->unary : l->unary_half)[which];
}

struct cpu_post {
    int n, taken; /* steps from `taken` on are applied; those before are done by the kernel that makes the values */
    const struct tern_cpu_level *level;
    struct cpu_post_step {
        tern_cpu_unary_fn *unary;
        void (*binary)(int64_t n, const float *x, int x_step, const float *y, int y_step, float *out);
        float scalar;
        const void *data;
        enum tern_dtype dtype; /* of data */
        int64_t size;          /* bytes of a value of it */
        struct cpu_operand operand;
    } step[TERN_MAX_POST];
};

/* Whether all posts can be applied to an output that is gone through in that way, by a kernel that stores values of that dtype or of f32. */
bool tern_cpu_post_fits(const struct tern_op_desc *d, enum tern_dtype dtype, const struct cpu_rows *rows);
struct cpu_post tern_cpu_post_make(const struct tern_kernel_args *a, const struct cpu_rows *rows);
/* Takes the first step, if it is a sum with an array (`taken` says so): a kernel adds what is there, columns from col on of a row, of
 * step[0].dtype. */
void tern_cpu_post_take_sum(struct cpu_post *p);
const void *tern_cpu_post_taken(const struct cpu_post *p, int64_t row, int64_t col);
/* Columns col .. col + n of a row at x, in f32 whatever the dtype of the output, to y, which may be x. A step is left. */
void tern_cpu_post_apply(const struct cpu_post *p, const float *x, float *y, int64_t row, int64_t col, int64_t n);
/* All steps, a sum that was taken too, then a rounding to dtype: from x, which is scratch then, to y. p: may be NULL. A sum
 * that is all there is may take denormals for zero, as products do (store_value). */
void tern_cpu_post_store(const struct tern_cpu_level *level, const struct cpu_post *p, enum tern_dtype dtype, int64_t row, int64_t col,
                         int64_t n, float *x, void *y);
/* As tern_cpu_post_apply, for `rows` rows that lie behind each other at y, in place. */
void tern_cpu_post_apply_rows(const struct cpu_post *p, float *y, int64_t row, int64_t rows, int64_t col, int64_t n);
/* Begins to fetch the operands of columns col .. col + n of a row into L1. Results of tiles are short pieces of rows, far apart, which no
 * processor fetches ahead by itself. */
void tern_cpu_post_fetch(const struct cpu_post *p, int64_t row, int64_t col, int64_t n);
#define CPU_POST_AHEAD 8 /* rows, where one after the other is finished in f32 */
/* Bytes that will be read; that will be written. */
void tern_cpu_fetch(const void *x, int64_t bytes);
void tern_cpu_fetch_to_write(const void *y, int64_t bytes);

#endif
