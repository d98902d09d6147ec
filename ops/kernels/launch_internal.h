/* What the launch_*.c files share. */
#ifndef TERN_OPS_KERNELS_LAUNCH_INTERNAL_H
#define TERN_OPS_KERNELS_LAUNCH_INTERNAL_H

#include "core/status.h"
#include "ops/kernels/launch.h"

/* Sizes and spans at which indices of 32 bits are safe, sums of them too. */
#define TERN_LAUNCH_MAX_ELEMENTS ((int64_t)1 << 30)

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
/* A slot that is read by four elements. */
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
/* The same for matrix units: SM x SN subgroups of MM x MN matrices each, TK deep; launch_matrix.c. */
struct tern_matrix_tile {
    int tk, mm, mn, sm, sn;
};
/* Whether the device has matrix units for factors of these dtypes. */
bool tern_matrix_has(const struct tern_launch_maker *m, enum tern_dtype a, enum tern_dtype b);
/* The macros that every text for them wants; the first input has the dtype of the factors. */
void tern_matrix_define(struct tern_launch_maker *m);
/* False when the device has none for these dtypes, or no tile fits it; then another text has to do. */
bool tern_matrix_choose(const struct tern_launch_maker *m, enum tern_dtype a, enum tern_dtype b, int64_t rows, int64_t cols, int64_t batch,
                        struct tern_matrix_tile *t);
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
/* Fails the launch. */
void tern_launch_refuse(struct tern_launch_maker *m);

/* Posts of the description as POST and POST_BUFFERS; channel: the dimension of the output that the text's c counts. */
void tern_launch_posts(struct tern_launch_maker *m, int channel);
/* The call of function of `p` on `value` ("tern_silu(v)"), its second operand given; false when there is none. */
bool tern_post_call(const struct tern_post *p, const char *value, const char *operand, char *out, size_t size);

static inline int tern_ceil_div(int64_t a, int64_t b) { return (int)((a + b - 1) / b); }

#define TERN_LAUNCH_FAMILIES(F) \
    F(elementwise) F(copy) F(reduce) F(matmul) F(conv) F(rows) F(group_norm) F(sdpa) F(lookup) F(picture) F(fill)
#define DECLARE(family) bool tern_launch_##family(struct tern_launch_maker *m);
/* False when the op is of another family; m->failed when it is of this one and cannot be run. */
TERN_LAUNCH_FAMILIES(DECLARE)
#undef DECLARE

#endif
