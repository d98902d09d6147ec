/* What the shape rules and the public functions share: checks whose errors name op, input, expected and found. */
#ifndef TERN_OPS_RULES_H
#define TERN_OPS_RULES_H

#include "core/status.h"
#include "ops/op.h"

static inline const char *tern_rule_op(const struct tern_op_desc *d) { return tern_op_get(d->op).name; }
/* Name of input i, as in ops.def; returns out. */
const char *tern_rule_input(const struct tern_op_desc *d, int i, char out[32]);

/* Which dtypes an op takes. Without bool: PyTorch has no arithmetic on it. */
enum tern_dtype_class { TERN_ANY_DTYPE, TERN_NO_BOOL, TERN_FLOAT_ONLY, TERN_I8_ONLY };
enum tern_status tern_rule_dtype(struct tern_context *ctx, const struct tern_op_desc *d, int i, enum tern_dtype_class allowed);
/* Inputs i and j have one dtype. */
enum tern_status tern_rule_same_dtype(struct tern_context *ctx, const struct tern_op_desc *d, int i, int j);
/* Input i has ndim dimensions; `expected` is their text: "(N, C, H, W)". */
enum tern_status tern_rule_ndim(struct tern_context *ctx, const struct tern_op_desc *d, int i, int ndim, const char *expected);
/* Input i, if present, is a floating-point vector of n values: a bias or scale. */
enum tern_status tern_rule_vector(struct tern_context *ctx, const struct tern_op_desc *d, int i, int64_t n);
/* Counts a negative *dim from the end. A scalar has dimensions 0 and -1, as in PyTorch; *dim is 0 then. */
enum tern_status tern_rule_dim(struct tern_context *ctx, const struct tern_op_desc *d, int64_t *dim, int ndim);
/* An attribute in min..2^31-1, so that products of two and sums with sizes cannot overflow. */
enum tern_status tern_rule_range(struct tern_context *ctx, const struct tern_op_desc *d, const char *name, int64_t value, int64_t min);
/* A value that is to be stored in dtype: integers truncate it, and refuse what they cannot hold. */
enum tern_status tern_rule_value(struct tern_context *ctx, const struct tern_op_desc *d, enum tern_dtype dtype, const char *name,
                                 double *value);
/* Sets out, contiguous. Refuses sizes that are negative or whose product does not fit. */
enum tern_status tern_rule_out(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype dtype, int ndim, const int64_t *shape);
/* tern_rule_out with the shape of input 0 */
enum tern_status tern_rule_out_like(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype dtype);
/* tern_rule_out with the shape to which the first n inputs broadcast */
enum tern_status tern_rule_out_broadcast(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype dtype, int n);

/* A window (convolution, pooling) along one direction, in elements. */
struct tern_window {
    int64_t in, kernel, stride, padding, dilation;
    bool ceil_mode; /* windows may begin inside and end outside */
};
/* Checks it and sets the number of positions. */
enum tern_status tern_rule_window(struct tern_context *ctx, const struct tern_op_desc *d, const struct tern_window *w, int64_t *out);

/* What convolutions check alike (ops/conv.c): dtypes, dimensions, groups; `weight_shape` is text. */
enum tern_status tern_conv_inputs(struct tern_context *ctx, const struct tern_op_desc *d, enum tern_dtype_class weight, int64_t groups,
                                  const char *weight_shape);
/* The rule of conv2d with weights of that class and `bias` as the index of the bias; attributes are those of conv2d. */
enum tern_status tern_rule_conv2d(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype_class weight, int bias);
/* The rule of linear with weights of that class; the result has N / parts columns. */
enum tern_status tern_rule_linear(struct tern_context *ctx, struct tern_op_desc *d, enum tern_dtype_class weight, int bias, int64_t parts);

struct tern_conv2d_params; /* tern/ops.h */
union tern_op_attrs tern_conv2d_attributes(const struct tern_conv2d_params *params);

/* A number of a params struct: the single one, else that of the direction, else the default. */
static inline int64_t tern_either(int both, int one, int64_t otherwise) { return both ? both : one ? one : otherwise; }

/* Check of the public functions' arguments, before there is a description: ndim sizes or dimensions in a list, which may be NULL when
 * there are none. */
bool tern_ndim_fits(struct tern_context *ctx, const char *op, int ndim, const void *list);

/* tern_op_call with one and two inputs; NULL when one is NULL. */
tern_tensor *tern_call_unary(enum tern_op op, tern_tensor *x, const union tern_op_attrs *attrs);
tern_tensor *tern_call_binary(enum tern_op op, tern_tensor *x, tern_tensor *other);

#endif
