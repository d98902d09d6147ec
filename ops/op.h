/* What an op is: its number, attributes, schema, shape rule and reference, all generated from ops.def. */
#ifndef TERN_OPS_OP_H
#define TERN_OPS_OP_H

#include "core/shape.h"
#include "core/tensor.h"

#define TERN_MAX_INPUTS 8

enum tern_op {
#define OP(name, inputs, attrs, counterpart) TERN_OP_##name,
#include "ops/ops.def"
#undef OP
    TERN_OP_COUNT
};

/* struct tern_conv2d_attrs { int64_t stride[2]; … } */
#define I(name) int64_t name;
#define I2(name) int64_t name[2];
#define IV(name) int64_t name##_n, name[TERN_MAX_DIMS];
#define P(name) int64_t name##_n, name[2 * TERN_MAX_DIMS];
#define F(name) double name;
#define OP(name, inputs, attrs, counterpart)                     \
    struct tern_##name##_attrs {                                 \
        int64_t reserved; /* C has no empty structs; always 0 */ \
        attrs                                                    \
    };
#include "ops/ops.def"
#undef OP
union tern_op_attrs {
#define OP(name, inputs, attrs, counterpart) struct tern_##name##_attrs name;
#include "ops/ops.def"
#undef OP
};
#undef I
#undef I2
#undef IV
#undef P
#undef F

/* An element-wise op on the result, before it is stored: y = op(y, value) or, with an input, y = op(y, in[input]). */
#define TERN_MAX_POST 3
struct tern_post {
    int64_t op;    /* enum tern_op */
    int64_t input; /* index of its other operand, behind the op's own inputs; -1: none */
    double value;  /* the scalar of add_scalar, mul_scalar; gelu's approximate; cast's dtype, a floating one: the result's from there on */
};

/* What is done with in[0] where it is read: group_norm of it, and silu of that or not. */
struct tern_pre {
    int64_t num_groups; /* 0: nothing */
    int64_t silu;
    int64_t input; /* index of the norm's weight, behind all other inputs; behind it its bias. Both may be absent */
    double eps;
};

/* One use of an op: everything but the data. Absent optional inputs have present[i] == false. */
struct tern_op_desc {
    enum tern_op op;
    int n_in;
    bool present[TERN_MAX_INPUTS];
    bool constant[TERN_MAX_INPUTS]; /* a weight: kernels may ask for it in a prepared form */
    struct tern_meta in[TERN_MAX_INPUTS];
    struct tern_meta out;
    union tern_op_attrs attrs;
    int64_t n_post;
    struct tern_post post[TERN_MAX_POST];
    struct tern_pre pre;
};

/* Whether it is a product of int8. */
bool tern_op_is_quantized(enum tern_op op);
/* What is made of a weight by itself to be kept: quantize, pack_weight. */
bool tern_op_prepares(enum tern_op op);
bool tern_op_is_weight_only(enum tern_op op);
/* Whether tern_pre may be in front of it. */
bool tern_op_takes_pre(enum tern_op op);
/* Multiplications and additions of a product; 0 for other ops. And bytes of operands and result, each once. */
double tern_desc_flops(const struct tern_op_desc *d);
double tern_desc_bytes(const struct tern_op_desc *d);
/* Rows of the product that a linear layer or a matmul is, pixels of a convolution's result; 0 for other ops. */
int64_t tern_desc_rows(const struct tern_op_desc *d);
/* Whether kernels of the device make the result whole (tern_device_caps.max_argument, max_rows). */
bool tern_desc_is_made_whole(const struct tern_op_desc *d, const struct tern_device_caps *caps);

enum tern_attr_kind { TERN_ATTR_INT, TERN_ATTR_FLOAT };
struct tern_attr_info {
    const char *name;
    enum tern_attr_kind kind;
    size_t offset; /* into union tern_op_attrs */
    int count;     /* values, e.g. 2 for I2 */
};

struct tern_kernel_args; /* ops/kernel.h */

struct tern_op_info {
    const char *name;
    const char *inputs; /* as in ops.def */
    int min_inputs, max_inputs;
    const struct tern_attr_info *attrs;
    int n_attrs;
    size_t attrs_size;
    /* Checks inputs and attributes, completes the attributes (negative dims, defaults), and sets out's
     * dtype, shape and contiguous strides. Errors are recorded in ctx and name op, expected, found. */
    enum tern_status (*shape)(struct tern_context *ctx, struct tern_op_desc *d);
    /* Any dtype, any strides, one thread, sums in double. Slow and right. Inputs and output are host memory. */
    void (*reference)(const struct tern_kernel_args *a);
};

/* The rows of ops.def from neg to where: each element of the output depends on the elements of the inputs at its place. */
static inline bool tern_op_is_elementwise(enum tern_op op) { return op >= TERN_OP_neg && op <= TERN_OP_where; }

/* By value: a few words. */
struct tern_op_info tern_op_get(enum tern_op op);
/* TERN_OP_COUNT when there is no such op. */
enum tern_op tern_op_find(const char *name);

/* View ops (reshape, permute, expand, slice) need no kernel: out's strides and the offset in elements from in[0].
 * False when the op is no view or no view is possible (reshape of strided memory): then it is a copy. */
bool tern_op_view(const struct tern_op_desc *d, struct tern_meta *view, int64_t *offset);

#define OP(name, inputs, attrs, counterpart)                                              \
    enum tern_status tern_shape_##name(struct tern_context *ctx, struct tern_op_desc *d); \
    void tern_ref_##name(const struct tern_kernel_args *a);
#include "ops/ops.def"
#undef OP

/* Runs the op eagerly or records it, whichever the context is set to. Absent inputs are NULL. Returns NULL when an
 * error is recorded, also one from before. Public op functions are thin wrappers of this. */
tern_tensor *tern_op_call(struct tern_context *ctx, enum tern_op op, tern_tensor *const *in, int n_in, const union tern_op_attrs *attrs);

#endif
