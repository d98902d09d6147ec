/* What the launch_*.c files share. */
#ifndef TERN_OPS_KERNELS_LAUNCH_INTERNAL_H
#define TERN_OPS_KERNELS_LAUNCH_INTERNAL_H

#include "core/status.h"
#include "ops/kernels/launch.h"

/* Several tensors walked together: dimensions of size 1 are left out, those that lie behind each other in every tensor merged. */
struct tern_loop {
    int ndim;                                           /* at least 1 */
    int32_t shape[TERN_MAX_DIMS];                       /* innermost last */
    int32_t stride[TERN_MAX_INPUTS + 1][TERN_MAX_DIMS]; /* of each tensor */
};
/* n arrays of strides over a shape. by_last: dimensions are ordered by the memory of the last one, else they stay in order.
 * False when more than TERN_LOOP_DIMS are left. Strides and sizes are below TERN_LAUNCH_MAX_ELEMENTS. */
bool tern_loop_make(int ndim, const int64_t *shape, int n, const int64_t (*stride)[TERN_MAX_DIMS], bool by_last, struct tern_loop *loop);

/* Makers of launches: `f` goes on only while nothing failed. */
struct tern_launch_maker {
    const struct tern_op_desc *d;
    const struct tern_launch_limits *limits;
    struct tern_launches *out;
    struct tern_launch *l; /* the one that is being made */
    char *defines;         /* its */
    bool failed;
};

/* The next launch, with cleared parameters of `params_size` bytes. */
struct tern_launch *tern_launch_begin(struct tern_launch_maker *m, const char *text, size_t params_size, int group_x, int group_y);
void tern_launch_define(struct tern_launch_maker *m, const char *fmt, ...) TERN_PRINTF(2, 3);
/* The next slot, named in the text: reads input `what` (or the workspace, f32), or writes it. */
void tern_launch_read(struct tern_launch_maker *m, const char *name, int what);
void tern_launch_write(struct tern_launch_maker *m, const char *name, int what);
/* The next slot with a dtype of the caller's choice, e.g. "F32X4". */
void tern_launch_slot(struct tern_launch_maker *m, const char *name, int what, const char *dtype, size_t size);
/* A slot that is read, or the output, by four elements. */
void tern_launch_read4(struct tern_launch_maker *m, const char *name, int what);
/* "F32", "F16W" …: how a dtype is read on this device. */
const char *tern_launch_read_dtype(const struct tern_launch_maker *m, enum tern_dtype dtype);
/* Groups for n items of work, in x. */
void tern_launch_items(struct tern_launch_maker *m, int64_t n, int per_group);
/* Lets the text exchange values within subgroups (SUBGROUP), where the device can and groups are made of whole ones. */
void tern_launch_subgroups(struct tern_launch_maker *m);
/* How a group of items cuts a product: TM x TN values from rows x cols, RM x RN an item, TK deep. */
struct tern_tile {
    int tm, tn, tk, rm, rn;
};
struct tern_tile tern_tile_choose(const struct tern_launch_maker *m, int64_t rows, int64_t cols);
/* Its macros, and groups for that many values. */
void tern_tile_define(struct tern_launch_maker *m, const struct tern_tile *t, int64_t rows, int64_t cols, int64_t batch);
/* The same for matrix units: SM x SN subgroups of MM x MN matrices each, TK deep (in 16 bits); launch_matrix.c. */
struct tern_matrix_tile {
    int tk, mm, mn, sm, sn;
    enum tern_dtype factors;
};
/* Whether the device has matrix units for factors of these dtypes. */
bool tern_matrix_has(const struct tern_launch_maker *m, enum tern_dtype a, enum tern_dtype b);
/* The macros that every text for them wants. */
void tern_matrix_define(struct tern_launch_maker *m, enum tern_dtype factors);
/* False when the device has none for these dtypes, or no tile fits it; then another text has to do. */
bool tern_matrix_choose(const struct tern_launch_maker *m, enum tern_dtype a, enum tern_dtype b, int64_t rows, int64_t cols, int64_t batch,
                        struct tern_matrix_tile *t);
/* Whether all items have as many vectors of 16 bytes to load for a step of that tile: with subgroups of 64 a thin one has too few. */
bool tern_matrix_loads_whole(const struct tern_launch_maker *m, const struct tern_matrix_tile *t);
/* Begins the launch, with these macros and groups. */
struct tern_launch *tern_matrix_begin(struct tern_launch_maker *m, const char *text, size_t params_size, const struct tern_matrix_tile *t,
                                      int64_t rows, int64_t cols, int64_t batch);
/* Into how many parts to split the depth, so that the groups fill a device: 1, or up to 8. */
int tern_matrix_parts(const struct tern_launch_maker *m, const struct tern_matrix_tile *t, int64_t rows, int64_t cols, int64_t depth);
/* Ends a launch that leaves parts of products (rows, cols) in the workspace, as its output `y`, and makes the one that sums them, with bias
 * (input 2, if it is there) and posts along `channel`. */
void tern_matrix_sum_parts(struct tern_launch_maker *m, int parts, int64_t rows, int64_t cols, int64_t y_m, int64_t y_n, int channel);
/* A slot that is read, or the output, by eight elements of 16 bits. */
void tern_launch_read8(struct tern_launch_maker *m, const char *name, int what);
/* Lets the text multiply int8 by an instruction for it (DOT_PRODUCT), where the device has one. */
void tern_launch_dot_product(struct tern_launch_maker *m);
/* Items for rows of that many elements. */
int tern_launch_row_items(const struct tern_launch_maker *m, int64_t cols);
/* Dimensions first .. first + n - 1 of x as one, for every strides given; false when they do not merge. */
bool tern_launch_one_step(const struct tern_meta *x, int first, int n, const int64_t *stride, int32_t *step);
/* Weight and bias, where they are there; the weight is that input. */
void tern_launch_weight_and_bias(struct tern_launch_maker *m, int weight);
/* A launch of reduce.cl, "SUM", "MEAN", "AMAX", "ARGMAX" or "MOST", of an input; its output, `y`, is the next slot. Strides of rows are
 * those of the input and of the output. by_four: "MOST" of columns that lie behind each other, at multiples of 4. */
void tern_launch_reduction(struct tern_launch_maker *m, const char *how, int input, bool by_four, const struct tern_loop *rows,
                           const struct tern_loop *cols);
/* Of convolutions of any kind; launch_conv.c. bias: the input; and whether 32 bits hold all positions. */
struct tern_params_conv2d tern_conv_params(const struct tern_op_desc *d, int bias);
bool tern_conv_fits(const struct tern_op_desc *d, const struct tern_params_conv2d *p);
/* The slot of what matrix units make, and how its pixels lie (WIDE_Y, IN_A_ROW). The launch's parameters are conv2d's, or begin so. */
void tern_conv_write_matrix(struct tern_launch_maker *m, const char *name, int what);

/* int8, launch_quantize.c. What becomes words of int8: input 0 or 1 as slices of which each has a scale. Sizes and strides as in the
 * parameters of quantize_pack, `deep` and `parts` apart. */
struct tern_quantize_view {
    int input;
    bool whole; /* slices are pictures; else pixels */
    int64_t n, h, w, groups, channels, x_n, x_h, x_w, x_c;
};
/* Where parts of the workspace begin, in bytes. */
struct tern_quantize_room {
    size_t factors, mosts, words;
};
/* Bytes of a group's channels, filled up. */
static inline int64_t tern_quantize_deep(int64_t channels) { return (channels + 15) / 16 * 16; }
/* What comes into a product: factors of its slices, and words. */
void tern_quantize_input(struct tern_launch_maker *m, const struct tern_quantize_view *v, const struct tern_quantize_room *room);
/* A weight: words; of floats the scales of its slices, too, in the place of factors. */
void tern_quantize_weight(struct tern_launch_maker *m, const struct tern_quantize_view *v, const struct tern_quantize_room *room);
/* Parts in which the largest |value| of a slice is looked for; 0: the launch that makes the words finds it. */
int tern_quantize_parts(const struct tern_launch_maker *m, const struct tern_quantize_view *v);

/* Posts of the description as POST and POST_BUFFERS; channel: the dimension of the output that the text's c counts, -1 where c is 0. */
void tern_launch_posts(struct tern_launch_maker *m, int channel);
/* The call of function of `p` on `value` ("tern_silu(v)"), its second operand given; false when there is none. */
bool tern_post_call(const struct tern_post *p, const char *value, const char *operand, char *out, size_t size);

static inline int tern_ceil_div(int64_t a, int64_t b) { return (int)((a + b - 1) / b); }

#define TERN_LAUNCH_FAMILIES(F) \
    F(elementwise)              \
    F(copy) F(reduce) F(matmul) F(conv) F(quantize) F(quantized) F(packed_weight) F(rows) F(group_norm) F(sdpa) F(lookup) F(picture) F(fill)
#define DECLARE(family) bool tern_launch_##family(struct tern_launch_maker *m);
/* False when the op is of another family; m->failed when it is of this one and cannot be run. */
TERN_LAUNCH_FAMILIES(DECLARE)
#undef DECLARE

#endif
