/* The inner loops of the CPU kernels as a function table, one per instruction set. Every file of this folder
 * is one text that is compiled once per level with its vector width; see vec.h. */
#ifndef TERN_BACKENDS_CPU_LEVEL_H
#define TERN_BACKENDS_CPU_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tern/base.h>

/* Rows of A that a gemm tile takes at most, and the width of a packed panel of B in elements. */
#define TERN_GEMM_MAX_MR 16
#define TERN_GEMM_MAX_NR 48

enum tern_cpu_unary {
    TERN_CPU_NEG,
    TERN_CPU_ABS,
    TERN_CPU_EXP,
    TERN_CPU_SQRT,
    TERN_CPU_RSQRT,
    TERN_CPU_RECIPROCAL,
    TERN_CPU_SQUARE,
    TERN_CPU_TANH,
    TERN_CPU_SIGMOID,
    TERN_CPU_RELU,
    TERN_CPU_SILU,
    TERN_CPU_GELU,
    TERN_CPU_GELU_TANH,
    TERN_CPU_QUICK_GELU,
    TERN_CPU_ADD_SCALAR,
    TERN_CPU_MUL_SCALAR,
    TERN_CPU_UNARY_COUNT
};
enum tern_cpu_binary { TERN_CPU_ADD, TERN_CPU_SUB, TERN_CPU_MUL, TERN_CPU_DIV, TERN_CPU_BINARY_COUNT };

/* A normalisation. shift is a value of the data, so that large means cost no digits; what the mean is beside it is part of offset. */
struct tern_cpu_affine {
    const float *shift, *scale, *offset;
    bool silu; /* of that: as a result of 16 bits wants it, if it is one */
};

/* A normalisation of rows. */
struct tern_cpu_norm {
    const float *weight, *bias; /* n values, or NULL */
    double eps;
    bool center; /* else the mean counts as 0 */
};

/* Products of words: 32 bits with two bf16 or four int8 along the depth, which an instruction multiplies and adds to one sum. Depths and
 * strides count halves of words: a bf16, or two int8. */

/* Columns of a packed panel of B; a last panel of at most half as many is half as wide. */
#define TERN_DOT_NR 32

#define TERN_DOT_ROWS 32 /* of a block of A at most, in two halves */
#define TERN_DOT_HALF (TERN_DOT_ROWS / 2)

/* A part of the depth of a block of A: `depth` halves of words of each row. The rows of a half of the block lie ld apart. */
struct tern_dot_piece {
    const uint16_t *a[2];
    int64_t ld, k0, depth; /* the row of B that it begins with; both multiples of the level's step */
};

/* C (rows x panel width, ldc) = or += the sum of A's n pieces times the panel's rows that belong to them. Memory for rows up to a multiple
 * of the level's row_step is there, in A and in C: what lies behind the last row is read and written, and means nothing. */
struct tern_dot_block {
    int rows, n;
    bool half_panel, accumulate;
    bool stream; /* the panel comes from L2, and its next part behind it: it is fetched while it is multiplied, not `next` */
    const struct tern_dot_piece *pieces;
    /* next: the panel that comes after this one, or any; its part may be fetched meanwhile. */
    const uint16_t *panel, *next;
    const void *start; /* of each row of sums, as wide as the panel; NULL: zeros. Not read where they accumulate. */
    void *c;           /* sums, of 32 bits each */
    int64_t ldc;
    /* Of products of f32: pieces of a value of B, and values between the planes that hold the first, second and third ones. */
    int planes;
    int64_t a_plane, b_plane;
};

/* A panel of B: k / 2 rows of words, half (i, j) at (i / 2 * width + j) * 2 + i % 2. */
struct tern_cpu_dot {
    int step; /* of the depth; 0: the level has no such instructions, and nothing else is there */
    int row_step;
    int rows; /* of a block that is done the fastest, where all rows lie behind each other */
    int tile; /* of one that takes its panels from L2 as fast, by `stream`; 0: there is none */
    /* Panels come from L2 and take no place in L1: A and B of a task may have more of the caches, and what else goes by them while blocks
     * multiply costs more than it saves. Not said of bf16x3, where none of it was measured. */
    bool past_l1;
    /* Around all blocks of a task, on its thread. */
    void (*begin)(void), (*end)(void);
    void (*block)(const struct tern_dot_block *block);
};

/* Products of bf16, sums in f32. */
struct tern_cpu_bf16 {
    struct tern_cpu_dot dot;
    int gain; /* multiplications in the time of one in f32, as the instructions go */
    /* As multiply_add of the level; sum: of two of the sums, each of which grows by the depth of an instruction in a round. */
    double (*multiply_add)(int64_t rounds, float *sum);
};

/* Products of f32 by instructions for bf16: a value is the sum of up to three of bf16. Those of A lie in three planes, of B in as many as
 * its dtype needs. */
struct tern_cpu_bf16x3 {
    struct tern_cpu_dot dot;
    /* Rows of n values, ldx apart, to rows in each plane of y, ldy values apart and filled up with zeros to the step; rows i and i + 16 of
     * each 32 of the depth are a word, here and in panels. */
    void (*split_rows)(int64_t rows, int64_t n, const float *x, int64_t ldx, uint16_t *y, int64_t ldy, int64_t plane);
    /* Rows of `width` values of a panel as gemm_tile has them, of f32, f16 or bf16, to 3, 2 or 1 planes of words; likewise filled up. */
    void (*split_panel)(enum tern_dtype dtype, int64_t rows, int64_t width, const void *b, uint16_t *y, int64_t plane);
};

/* What sums x of int8 are worth in row r, column i: (x - offset[i]) * (scale[i] * factor[r]) + bias[i] + more[r][i]; bias and more may be
 * NULL. offset is of zeros, and not read, where `zero` of the level is 0. The product and bias are rounded once to f32, and again with
 * more, which is of f32, f16 or bf16. */
struct tern_i8_values {
    const int32_t *offset;
    const float *scale, *factor, *bias;
    const void *const *more;
    enum tern_dtype more_dtype;
};

#define TERN_I8_MOST 127 /* of a weight, and its opposite the least */

/* Products of int8, sums of 32 bits: those of up to 65,536 products fit. */
struct tern_cpu_i8 {
    struct tern_cpu_dot dot; /* A is bytes as quantize makes them, B int8 */
    int gain;                /* as that of bf16 */
    int zero;                /* the byte of A that counts as 0 */
    /* Of n values of f32, f16 or bf16: the largest |x[i]|; infinite or no number if one of them is */
    float (*most)(enum tern_dtype dtype, int64_t n, const void *x);
    /* y[i] = x[i] * factor, of at most 127, to the nearest even, plus zero */
    void (*quantize)(enum tern_dtype dtype, int64_t n, const void *x, float factor, uint8_t *y);
    /* y[i] = x[i] / scale to the nearest even, at most 127 and at least -127; scale > 0 and finite, and so are all values */
    void (*weights)(enum tern_dtype dtype, int64_t n, const void *x, float scale, int8_t *y);
    /* Rows of n values of so many sums, ldx and ldy apart, in f32, f16 or bf16; y may be x */
    void (*scale)(enum tern_dtype dtype, int64_t rows, int64_t n, const int32_t *x, int64_t ldx, const struct tern_i8_values *values,
                  void *y, int64_t ldy);
    /* As geglu of the level, of such sums. */
    void (*geglu)(enum tern_dtype dtype, int64_t rows, int64_t n, const int32_t *x, const int32_t *gate, int64_t ld,
                  const struct tern_i8_values *x_values, const struct tern_i8_values *gate_values, void *y, int64_t ldy);
    /* As that of bf16; NULL: the level has no instructions for products of bytes */
    double (*multiply_add)(int64_t rounds, float *sum);
};

/* Winograd's convolution in int8: tiles of 2 x 4 outputs (rows, columns), 4 x 6 points, row by row. The weights of the four at the corners
 * are single taps of the filter: 0, 2, 6 and 8. Those of the other twenty are sums. */
#define TERN_WINOGRAD_I8_HIGH 2
#define TERN_WINOGRAD_I8_WIDE 4
#define TERN_WINOGRAD_I8_POINTS 24
#define TERN_WINOGRAD_I8_SUMS 20

struct tern_cpu_winograd_i8 {
    /* n channels of a tile; x: its 24 pixels in f32, f16 or bf16. Value p goes to v + p * step, in whole vectors with zeros behind the last
     * channel; most[p]: the largest |value|, infinite or no number if one of them is. */
    void (*input)(enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step, float *most);
    /* n bytes of each of the nine taps of a panel of weights, which lie `step` apart and are rows of `row` bytes. most: for each of the
     * sums `row` values, the largest |value| at that place of a row; what is there counts, too. */
    void (*most)(int64_t n, int64_t row, const int8_t *taps, int64_t step, int16_t *most);
    /* Sum s of the same to y + s * y_step, times factor[s * row + i] / 2^15 at place i of a row: floor(x f / 2^15 + 1 / 2), which fits. */
    void (*filter)(int64_t n, int64_t row, const int8_t *taps, int64_t step, const int16_t *factor, int8_t *y, int64_t y_step);
    /* y: the eight output pixels in f32, f16 or bf16, NULL: not wanted. m + p * step: sums of point p, each counts
     * (m - offset[p * columns + i]) * (scale[p * columns + i] * row[p]). offset is read in any case: levels with another `zero` share the
     * function. bias: n values, or NULL. Whole vectors of all but y are read. */
    void (*output)(enum tern_dtype dtype, int64_t n, const int32_t *m, int64_t step, const int32_t *offset, const float *scale,
                   int64_t columns, const float *row, const float *bias, void *const *y);
};

/* Winograd's convolution by whole numbers of 16 bits, two to a word; sums of 32 bits. */
#define TERN_WINOGRAD_I16_DEPTH 160     /* input channels of a part at most */
#define TERN_WINOGRAD_I16_NORM 32760.0f /* of a row or a column of a part, in what it counts: rounded it is below 2^15 */
#define TERN_WINOGRAD_I16_LEAST 1e-32f  /* smaller norms count as that */

struct tern_cpu_winograd_i16 {
    /* As winograd_input, of a part: value p of channel c is v[p * step + c] * unit[p * unit_step]; no number where one of the channels is
     * none. Up to a multiple of 32 channels zeros are written. */
    void (*input)(enum tern_dtype dtype, int64_t n, const void *const *x, int16_t *v, int64_t step, float *unit, int64_t unit_step);
    /* As winograd_filter: squares[p * width + j] += those of value p of column j. */
    void (*squares)(enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap, float *squares);
    /* Value p of channel i, column j, times scale[p * width + j], goes to u[p * step + (i / 2 * width + j) * 2 + i % 2]; behind an odd last
     * channel zeros. */
    void (*filter)(enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap, const float *scale,
                   int16_t *u, int64_t step);
    /* m (rows x panel width, ldm) = or += the products of rows of v (depth values, an even number) with a panel, times unit[row]. */
    void (*multiply)(int64_t rows, int64_t depth, const int16_t *v, int64_t ldv, const int16_t *u, bool half_panel, const float *unit,
                     float *m, int64_t ldm, bool accumulate);
};

/* Attention in bf16 and int8: rows of queries of a group. */
#define TERN_ATTENTION_ROWS 16

/* Queries of one head against all of its keys, f32 or bf16. Leading sizes are in elements. */
struct tern_cpu_attend {
    int64_t rows, keys;
    int64_t depth;           /* of q and k, filled up with zeros */
    int64_t values, columns; /* of v, and filled up, on levels with `ones` to one more than there are */
    const void *q;           /* rows filled up to whole groups */
    int64_t ldq;
    const void *k, *v; /* from pack_keys and pack_values */
    float factor;      /* of scores to exponents of two; finite and above zero. Where the level says that queries have it: 1 */
    bool halves;       /* the processor computes the level's vectors in two halves */
    bool causal;
    int64_t first; /* index of the first row, for causal */
    /* Changes the scores of a row (counted from the first one) with keys key .. key + keys; NULL: nothing to change. */
    void (*mask)(const void *arg, int64_t row, int64_t key, int64_t keys, float *scores);
    const void *mask_arg;
    /* Results: sums of values times 2^(score x factor - most[row]), and of the powers alone. o is zero before; it has memory for whole
     * groups and `sums` columns more. */
    float *o;
    int64_t ldo;
    float *most, *sum; /* for whole groups, too */
    void *scratch;     /* as many bytes as the level says, at 64 */
};

struct tern_cpu_attention {
    size_t scratch; /* 0: the level has none */
    int group;      /* rows that are always there together */
    int rows;       /* of a task, at most: whole groups */
    int block;      /* keys that are packed at a time, all but the last */
    /* What is filled up: e, and the depth and columns of packed values, to multiples of these. */
    int e_step, key_step, column_step;
    bool ones;   /* values have a column of ones behind them */
    int sums;    /* columns behind a row of results */
    bool scaled; /* queries come with the factor: scores are exponents of two */
    void (*attend)(const struct tern_cpu_attend *a);
    /* A block of keys of e values, ld apart. */
    void (*pack_keys)(int64_t keys, int64_t e, const void *k, int64_t ld, int64_t depth, void *to);
    /* Keys key .. key + keys, a block, of the values, of which there are ev a key, ld apart; v: that of `key`. depth: of the packed matrix,
     * all keys filled up; to: its start. */
    void (*pack_values)(int64_t key, int64_t keys, int64_t ev, const void *v, int64_t ld, int64_t depth, void *to);
    /* y[i] = 2^(x[i] * factor - most), n a multiple of 32, factor 1 where queries have it; of bf16 those of 16 values and of the next 16 by
     * turns. False: a result is no number, or so large that another `most` is wanted */
    bool (*power)(int64_t n, const float *x, float factor, float most, void *y);
    /* Of a whole block of keys, quicker and less exact, in bf16; NULL in f32. False, too, where a result is below 2^-111. */
    bool (*quick_power)(const float *x, float factor, float most, uint16_t *y);
    /* A row of results: y[i] = x[i] * factor, n of them, in the tensors' dtype. x is filled up to column_step. */
    void (*write)(int64_t n, const float *x, float factor, void *y);
};

/* Attention in int8: keys of a block, and the widest rows. */
#define TERN_ATTENTION_I8_KEYS 64
#define TERN_ATTENTION_I8_WIDTH 256

/* Keys and values of a head. */
struct tern_cpu_head_i8 {
    int64_t keys, e, values;
    int64_t depth, columns; /* e filled up to the level's step; values, with a column of ones where it wants one, to 16 */
    /* Packed: keys are filled up to whole blocks. For each key what its scores begin with (not written where `zero` of the level is 0), for
     * each block of keys what a byte counts. */
    int8_t *k, *v;
    int32_t *offset;
    float *k_scale;
    float *v_scale, *v_mean; /* of columns: what a byte counts, and from where on */
};

/* Queries of a head against all of its keys. */
struct tern_cpu_attend_i8 {
    const struct tern_cpu_head_i8 *head;
    int64_t rows;
    const uint8_t *q; /* as quantize of int8 makes them, rows filled up to whole groups of TERN_ATTENTION_ROWS with zeros */
    int64_t ldq;
    bool halves;      /* the processor computes the level's vectors in two halves */
    const float *row; /* what a byte of a row counts, times the factor of scores to exponents of two; 0 behind the last row */
    /* Results: sums of bytes of values, and of the powers alone; NaN where a score is no number. o is zero before; it has memory for whole
     * groups, and without `ones` 16 columns more. */
    int32_t *o;
    int64_t ldo;
    float *most, *sum;
    void *scratch; /* attend_scratch bytes at 64 */
};

struct tern_cpu_attention_i8 {
    size_t scratch; /* 0: the level has none */
    int rows;       /* of a task, at most */
    int e_step;     /* what e is filled up to a multiple of */
    bool ones;      /* values have a column of ones behind them */
    void (*attend)(const struct tern_cpu_attend_i8 *a);
    /* Of bf16, rows ld apart, into the head's memory. */
    void (*pack_keys)(const struct tern_cpu_head_i8 *h, const uint16_t *k, int64_t ld);
    void (*pack_values)(const struct tern_cpu_head_i8 *h, const uint16_t *v, int64_t ld);
};

/* What a tile fetches meanwhile: a line of B at each step of the depth, `step` bytes behind the one before, into L2; and the rows of A
 * that lie behind its own, into L1. */
struct tern_gemm_ahead {
    const void *b;
    int64_t step;
    bool a;
};

typedef void tern_cpu_unary_fn(int64_t n, const float *x, float *y, float s);

struct tern_cpu_level {
    const char *name;
    bool (*available)(void);
    bool emulated; /* computes slowly what the processor lacks: only who names it gets it */
    /* In the text of a level: the level whose functions it has, but for `i8`, and `bf16` and attention in bf16 and int8 where it has these.
     * NULL: it is whole. Those of tern_cpu_levels are. */
    const struct tern_cpu_level *over;
    int mr, nr; /* gemm tile */

    /* C (rows x cols, ldc) = or += A (rows x k, rows lda apart) times a packed panel of B (k x nr, nr contiguous; nr is
     * the level's, or half of it when `half_panel`), mr rows at a time. cols <= the panel's width. With `accumulate` C is added to,
     * else it starts from bias (cols values, or NULL). b_dtype: f32, f16 or bf16 storage. */
    void (*gemm_tile)(int rows, int cols, int64_t k, const float *a, int64_t lda, const void *b, enum tern_dtype b_dtype, bool half_panel,
                      float *c, int64_t ldc, bool accumulate, const float *bias);
    /* The same, and what comes next is fetched. */
    void (*gemm_tile_ahead)(int rows, int cols, int64_t k, const float *a, int64_t lda, const void *b, enum tern_dtype b_dtype,
                            bool half_panel, float *c, int64_t ldc, bool accumulate, const float *bias,
                            const struct tern_gemm_ahead *ahead);

    struct tern_cpu_bf16 bf16;
    struct tern_cpu_bf16x3 bf16x3;
    struct tern_cpu_i8 i8;
    struct tern_cpu_winograd_i8 winograd_i8;
    struct tern_cpu_winograd_i16 winograd_i16; /* empty: the level has no instructions for it */
    struct tern_cpu_attention attention_f32, attention_bf16;
    struct tern_cpu_attention_i8 attention_i8;

    /* y[i] = f(x[i]); s is the scalar of ADD_SCALAR, MUL_SCALAR. y may be x. */
    tern_cpu_unary_fn *unary[TERN_CPU_UNARY_COUNT];
    /* The same for what is then rounded to f16 or bf16: relative errors of the logistic function and of what is made of it, and of gelu,
     * up to 1.5e-4. */
    tern_cpu_unary_fn *unary_half[TERN_CPU_UNARY_COUNT];
    /* step 1 or 0: each operand is an array or one value. */
    void (*binary[TERN_CPU_BINARY_COUNT])(int64_t n, const float *x, int x_step, const float *y, int y_step, float *out);
    /* `unary`, `binary` on arrays of f32, `unary_half`, `binary` on those of f16 or bf16: computed in f32, rounded once, to nearest even. */
    void (*unary_of[TERN_CPU_UNARY_COUNT])(enum tern_dtype dtype, int64_t n, const void *x, void *y, float s);
    void (*binary_of[TERN_CPU_BINARY_COUNT])(enum tern_dtype dtype, int64_t n, const void *x, int x_step, const void *y, int y_step,
                                             void *out);

    /* Rows row0 .. row0 + rows of a panel of weights of 8 or 4 bits (weights.h of the levels): in f32, rows of `width` values; in bf16, as
     * a panel of words, row0 and rows even (NULL: the level has no instructions for it). */
    void (*expand_f32)(int bits, const void *values, const void *scales, int64_t width, int64_t row0, int64_t rows, float *y);
    void (*expand_bf16)(int bits, const void *values, const void *scales, int64_t width, int64_t row0, int64_t rows, uint16_t *y);

    /* y = x * gelu(gate), rows of n values, ld and ldy values apart; y of f32, or of f16 or bf16, rounded once: with the
     * gelu of unary_half, and v_gelu_bf16. */
    void (*geglu)(enum tern_dtype dtype, int64_t rows, int64_t n, const float *x, const float *gate, int64_t ld, void *y, int64_t ldy);

    /* y = x + more[row], of f32, f16 or bf16, or x where more is NULL: rows of n values, ldx and ldy apart, y rounded once to nearest even;
     * where there are instructions for bf16 denormals become zero. y may be x. */
    void (*store_rows)(enum tern_dtype dtype, int64_t rows, int64_t n, const float *x, int64_t ldx, const void *const *more,
                       enum tern_dtype more_dtype, void *y, int64_t ldy);

    /* Conversions; bf16 and f16 round to nearest even. */
    void (*to_f32)(enum tern_dtype dtype, int64_t n, const void *x, float *y);   /* f16, bf16, f32 */
    void (*from_f32)(enum tern_dtype dtype, int64_t n, const float *x, void *y); /* f16, bf16, f32 */

    /* For normalisations of f32, f16 or bf16, in f32. Sum and sum of squares of x[i] - shift, in partial sums that are added in double. */
    void (*moments)(enum tern_dtype dtype, int64_t n, const void *x, float shift, double *sum, double *square);
    /* sum[i] += x[i] - shift[i], square[i] += (x[i] - shift[i])^2 for `rows` rows of n values, ldx values apart. near: they lie in a
     * cache of the thread's, L2 or about that; here and below it decides the order alone. */
    void (*moments_by_column)(enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, bool near, const float *shift,
                              float *sum, float *square);
    /* y[i] = (x[i] - a->shift[i]) * a->scale[i] + a->offset[i], or with the first value of each for all, or silu of it: rows of n
     * values, ldx and ldy values apart. The dtypes are the same, or one of them is f32. */
    void (*affine)(enum tern_dtype from, enum tern_dtype to, int64_t rows, int64_t n, const void *x, int64_t ldx,
                   const struct tern_cpu_affine *a, bool vectors, bool near, void *y, int64_t ldy);
    /* Rows of n values that lie together: (x - mean) / sqrt(variance + eps) * weight + bias. `to` is `from`, or `from` is f32. */
    void (*normalize)(enum tern_dtype from, enum tern_dtype to, int64_t rows, int64_t n, const void *x, const struct tern_cpu_norm *p,
                      void *y);

    /* The transforms of Winograd's convolution on n channels of one tile of 4 x 4 outputs. x: its 6 x 6 input pixels in f32, f16 or bf16,
     * row by row; result i goes to v + i * step. */
    void (*winograd_input)(enum tern_dtype dtype, int64_t n, const void *const *x, float *v, int64_t step);
    /* m + i * step: product i, which counts unit[i * columns + c] in channel c (NULL: 1); y: the 16 output pixels, row by row, NULL: not
     * wanted. bias: n values, or NULL. */
    void (*winograd_output)(int64_t n, const float *m, int64_t step, const float *unit, int64_t columns, const float *bias,
                            float *const *y);
    /* Filters of a panel of B (`width` output channels, a multiple of half of nr) and n input channels, each 9 rows of the panel, which lie
     * `tap` values apart, and the channels `channel`: value i of input channel j goes to u + i * step + j * width. dtype: f32, f16 or bf16
     * storage. */
    void (*winograd_filter)(enum tern_dtype dtype, int64_t n, int64_t width, const void *w, int64_t channel, int64_t tap, float *u,
                            int64_t step);

    float (*max)(int64_t n, const float *x); /* -inf when n is 0; NaN is not special */
    float (*sum)(int64_t n, const float *x);
    /* x[i] = exp(x[i] - max) and their sum; no x is above max + 88, and what is no normal number may become zero */
    float (*exp_sum)(int64_t n, float *x, float max);

    /* Multiplies and adds in registers, as fast as the level can; returns the number of operations, proportional to `rounds`. sum:
     * of what was computed. */
    double (*multiply_add)(int64_t rounds, float *sum);
};

/* NULL-terminated, lowest first. Which are there depends on the target of the build. */
const struct tern_cpu_level *const *tern_cpu_levels(void);

#endif
