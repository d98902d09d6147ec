/* The op set. Names, argument order and meaning are those of torch and torch.nn.functional.
 *
 * All functions: tensors are of one context (else TERN_E_INVALID) and are not changed, the result is new and belongs to the open scope, or
 * to the caller when none is open. NULL among the required inputs gives NULL, so that a model reads as straight-line code and is checked
 * once at its end. On an error NULL is returned and the context keeps the message (op, shapes, expected, found). Any strides are allowed.
 * Zero in a params field means the default, params NULL all defaults. */
#ifndef TERN_OPS_H
#define TERN_OPS_H

#include <tern/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- element-wise, one input: same shape and dtype; floating point but neg, abs, square, relu, clamp and the scalar ops */
TERN_API tern_tensor *tern_neg(tern_tensor *x);         /* torch.neg */
TERN_API tern_tensor *tern_abs(tern_tensor *x);         /* torch.abs */
TERN_API tern_tensor *tern_exp(tern_tensor *x);         /* torch.exp */
TERN_API tern_tensor *tern_log(tern_tensor *x);         /* torch.log */
TERN_API tern_tensor *tern_sqrt(tern_tensor *x);        /* torch.sqrt */
TERN_API tern_tensor *tern_rsqrt(tern_tensor *x);       /* torch.rsqrt */
TERN_API tern_tensor *tern_reciprocal(tern_tensor *x);  /* torch.reciprocal */
TERN_API tern_tensor *tern_square(tern_tensor *x);      /* torch.square */
TERN_API tern_tensor *tern_sin(tern_tensor *x);         /* torch.sin */
TERN_API tern_tensor *tern_cos(tern_tensor *x);         /* torch.cos */
TERN_API tern_tensor *tern_tanh(tern_tensor *x);        /* torch.tanh */
TERN_API tern_tensor *tern_erf(tern_tensor *x);         /* torch.erf */
TERN_API tern_tensor *tern_floor(tern_tensor *x);       /* torch.floor */
TERN_API tern_tensor *tern_ceil(tern_tensor *x);        /* torch.ceil */
TERN_API tern_tensor *tern_round(tern_tensor *x);       /* torch.round: half to even */
TERN_API tern_tensor *tern_sigmoid(tern_tensor *x);     /* torch.sigmoid */
TERN_API tern_tensor *tern_relu(tern_tensor *x);        /* torch.nn.functional.relu */
TERN_API tern_tensor *tern_silu(tern_tensor *x);        /* torch.nn.functional.silu */
TERN_API tern_tensor *tern_quick_gelu(tern_tensor *x);  /* x * torch.sigmoid(1.702 * x) */
TERN_API tern_tensor *tern_logical_not(tern_tensor *x); /* torch.logical_not: bool */

enum tern_gelu_approximate { TERN_GELU_NONE = 0, TERN_GELU_TANH };
/* torch.nn.functional.gelu(x, approximate='none'|'tanh') */
TERN_API tern_tensor *tern_gelu(tern_tensor *x, enum tern_gelu_approximate approximate);
/* torch.clamp(x, min, max); infinities leave a side open */
TERN_API tern_tensor *tern_clamp(tern_tensor *x, double min, double max);
TERN_API tern_tensor *tern_add_scalar(tern_tensor *x, double other);    /* torch.add(x, other) */
TERN_API tern_tensor *tern_mul_scalar(tern_tensor *x, double other);    /* torch.mul(x, other) */
TERN_API tern_tensor *tern_pow_scalar(tern_tensor *x, double exponent); /* torch.pow(x, exponent) */

/* ---- element-wise, two inputs: PyTorch's broadcasting; dtypes must be equal (tern_cast otherwise) */
TERN_API tern_tensor *tern_add(tern_tensor *x, tern_tensor *other);     /* torch.add */
TERN_API tern_tensor *tern_sub(tern_tensor *x, tern_tensor *other);     /* torch.sub */
TERN_API tern_tensor *tern_mul(tern_tensor *x, tern_tensor *other);     /* torch.mul */
TERN_API tern_tensor *tern_div(tern_tensor *x, tern_tensor *other);     /* torch.div, floating point */
TERN_API tern_tensor *tern_pow(tern_tensor *x, tern_tensor *other);     /* torch.pow, floating point */
TERN_API tern_tensor *tern_maximum(tern_tensor *x, tern_tensor *other); /* torch.maximum: NaN wins */
TERN_API tern_tensor *tern_minimum(tern_tensor *x, tern_tensor *other); /* torch.minimum: NaN wins */
TERN_API tern_tensor *tern_eq(tern_tensor *x, tern_tensor *other);      /* torch.eq … torch.ge: bool */
TERN_API tern_tensor *tern_ne(tern_tensor *x, tern_tensor *other);
TERN_API tern_tensor *tern_lt(tern_tensor *x, tern_tensor *other);
TERN_API tern_tensor *tern_le(tern_tensor *x, tern_tensor *other);
TERN_API tern_tensor *tern_gt(tern_tensor *x, tern_tensor *other);
TERN_API tern_tensor *tern_ge(tern_tensor *x, tern_tensor *other);
TERN_API tern_tensor *tern_logical_and(tern_tensor *x, tern_tensor *other); /* torch.logical_and: bool */
TERN_API tern_tensor *tern_logical_or(tern_tensor *x, tern_tensor *other);  /* torch.logical_or: bool */
/* torch.where(condition, x, other): condition bool, all three broadcast */
TERN_API tern_tensor *tern_where(tern_tensor *condition, tern_tensor *x, tern_tensor *other);

/* ---- dtype, copies and views. Views share memory with x; eager views cost nothing. */
/* x.to(dtype): float to int truncates, to bool is x != 0; equal dtype returns x itself, referenced. Floats that are
 * out of an integer's range become whatever the device makes of them, as in PyTorch. */
TERN_API tern_tensor *tern_cast(tern_tensor *x, enum tern_dtype dtype);
enum tern_memory_format { TERN_CONTIGUOUS = 0, TERN_CHANNELS_LAST };
/* x.contiguous(memory_format=…): x itself, referenced, when it is so already. CHANNELS_LAST needs 4-D. */
TERN_API tern_tensor *tern_contiguous(tern_tensor *x, enum tern_memory_format format);
/* torch.reshape: one size may be -1. A view where PyTorch gives one, else a copy. */
TERN_API tern_tensor *tern_reshape(tern_tensor *x, int ndim, const int64_t *shape);
/* torch.permute */
TERN_API tern_tensor *tern_permute(tern_tensor *x, int ndim, const int *dims);
/* torch.transpose, torch.unsqueeze, torch.squeeze(dim), torch.flatten(start, end) */
TERN_API tern_tensor *tern_transpose(tern_tensor *x, int dim0, int dim1);
TERN_API tern_tensor *tern_unsqueeze(tern_tensor *x, int dim);
TERN_API tern_tensor *tern_squeeze(tern_tensor *x, int dim);
TERN_API tern_tensor *tern_flatten(tern_tensor *x, int start_dim, int end_dim);
/* x.expand(shape): size -1 keeps a dimension */
TERN_API tern_tensor *tern_expand(tern_tensor *x, int ndim, const int64_t *shape);
/* x[..., start:end:step, ...] in dimension dim; start and end clamp and count from the end when negative, as in
 * Python; step >= 1. INT64_MAX as end: up to the end. */
TERN_API tern_tensor *tern_slice(tern_tensor *x, int dim, int64_t start, int64_t end, int64_t step);
/* (N, C) -> (N, C, 1, 1), for adding to a picture */
TERN_API tern_tensor *tern_as_nc11(tern_tensor *x);
/* torch.cat: 1..8 tensors of one dtype, equal sizes but in dim */
TERN_API tern_tensor *tern_cat(tern_tensor *const *tensors, int n, int dim);
/* torch.nn.functional.pad(x, pad, value=value): pairs (before, after) from the last dimension on; negative crops */
TERN_API tern_tensor *tern_pad(tern_tensor *x, int n, const int64_t *pad, double value);

/* ---- reductions. n = 0: all dimensions. */
TERN_API tern_tensor *tern_sum(tern_tensor *x, int n, const int *dim, bool keepdim);  /* torch.sum; integers give i64 */
TERN_API tern_tensor *tern_mean(tern_tensor *x, int n, const int *dim, bool keepdim); /* torch.mean, floating point */
TERN_API tern_tensor *tern_amax(tern_tensor *x, int n, const int *dim, bool keepdim); /* torch.amax: NaN wins */
TERN_API tern_tensor *tern_argmax(tern_tensor *x, int dim, bool keepdim);             /* torch.argmax: i64, first of equals, NaN wins */
TERN_API tern_tensor *tern_softmax(tern_tensor *x, int dim);                          /* torch.nn.functional.softmax */

/* torch.nn.functional.layer_norm over the last normalized_ndim dimensions; weight and bias of those sizes, or NULL
 * [Ba 2016]. rms_norm: no mean, no bias [Zhang 2019]. */
TERN_API tern_tensor *tern_layer_norm(tern_tensor *x, int normalized_ndim, tern_tensor *weight, tern_tensor *bias, double eps);
TERN_API tern_tensor *tern_rms_norm(tern_tensor *x, int normalized_ndim, tern_tensor *weight, double eps);
/* torch.nn.functional.group_norm: x (N, C, ...), num_groups divides C, weight and bias (C) or NULL [Wu 2018] */
TERN_API tern_tensor *tern_group_norm(tern_tensor *x, int num_groups, tern_tensor *weight, tern_tensor *bias, double eps);
/* group_norm in two halves, so that parts of a picture can be normalised by the statistics of the whole.
 * stats: (N, num_groups, 2) f32 whatever x is: mean and biased variance of each group (torch.var_mean, correction=0).
 * apply: x (N, C, ...), stats (N, G, 2) f32 of any source, G divides C: (x - mean) / sqrt(variance + eps) * weight + bias, like x.
 * A variance below 0 counts as 0. The mean is rounded to f32 between the halves: where it is m standard deviations from 0, the
 * result is off by up to m * 6e-8. */
TERN_API tern_tensor *tern_group_norm_stats(tern_tensor *x, int num_groups);
TERN_API tern_tensor *tern_group_norm_apply(tern_tensor *x, tern_tensor *stats, tern_tensor *weight, tern_tensor *bias, double eps);

/* ---- products. Weights may be stored in another floating-point dtype than x: they are converted, x's dtype counts. */
/* torch.matmul: (..., M, K) x (..., K, N), leading dimensions broadcast; vectors as there */
TERN_API tern_tensor *tern_matmul(tern_tensor *x, tern_tensor *other);
/* torch.nn.functional.linear: x (..., K), weight (N, K), bias (N) or NULL -> (..., N) */
TERN_API tern_tensor *tern_linear(tern_tensor *x, tern_tensor *weight, tern_tensor *bias);
/* diffusers.models.activations.GEGLU: values, gates = linear(x, weight, bias).chunk(2, -1); values * gelu(gates). x (..., K), weight (2 N,
 * K), bias (2 N) or NULL -> (..., N) [Shazeer 2020] */
TERN_API tern_tensor *tern_linear_geglu(tern_tensor *x, tern_tensor *weight, tern_tensor *bias);

/* A single number sets both directions; the _hw pair (height, width) counts when the number is 0. */
struct tern_conv2d_params {
    int stride, padding, dilation; /* 1, 0, 1 */
    int groups;                    /* 1 */
    int stride_hw[2], padding_hw[2], dilation_hw[2];
};
/* torch.nn.functional.conv2d: x (N, C, H, W), weight (O, C / groups, kh, kw), bias (O) or NULL */
TERN_API tern_tensor *tern_conv2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, const struct tern_conv2d_params *params);
#define tern_conv2d(x, weight, bias, ...) tern_conv2d_p(x, weight, bias, &(const struct tern_conv2d_params){__VA_ARGS__})

/* int8, symmetric, -127 to 127. Scale of each slice x[i]: its largest |value| / 127. x (N, ...) float -> (N) f32 */
TERN_API tern_tensor *tern_quantize_scale(tern_tensor *x);
/* torch.round(x / scale): x (N, ...) float, scale (N) -> (N, ...) i8; zeros where the scale is 0 or no number */
TERN_API tern_tensor *tern_quantize(tern_tensor *x, tern_tensor *scale);
/* linear, linear_geglu and conv2d in int8. weight: i8 with the scale of each output channel, or float without (NULL): then it counts as
 * quantize(weight, quantize_scale(weight)). x (float) is quantised as it comes: each row of a linear layer, each picture of a convolution
 * by its largest value. Sums are exact; the result has the dtype of x. As torch.ops.quantized.linear_dynamic, but symmetric and by rows. */
TERN_API tern_tensor *tern_quantized_linear(tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias);
TERN_API tern_tensor *tern_quantized_linear_geglu(tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias);
TERN_API tern_tensor *tern_quantized_conv2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *scale, tern_tensor *bias,
                                              const struct tern_conv2d_params *params);
#define tern_quantized_conv2d(x, weight, scale, bias, ...) \
    tern_quantized_conv2d_p(x, weight, scale, bias, &(const struct tern_conv2d_params){__VA_ARGS__})

/* linear, linear_geglu and conv2d whose weights (float) count as they are kept in so many bits: 8, int8 with a scale of each output channel
 * (its largest |value| / 127), or 4, groups of 32 along the depth with a scale in bf16 (the value of largest size / -8). x, sums and result
 * are as those ops have them. */
TERN_API tern_tensor *tern_weight_only_linear(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits);
TERN_API tern_tensor *tern_weight_only_linear_geglu(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits);
TERN_API tern_tensor *tern_weight_only_conv2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *bias, int bits,
                                                const struct tern_conv2d_params *params);
#define tern_weight_only_conv2d(x, weight, bias, bits, ...) \
    tern_weight_only_conv2d_p(x, weight, bias, bits, &(const struct tern_conv2d_params){__VA_ARGS__})

/* A weight (O, C) or (O, C, kh, kw) as these ops keep it, in words: (O, C kh kw) values of so many bits with their scales, in the order
 * of ops/weight_only.h -> (O, words) i32: 1 + C kh kw / 4 words of 8 bits, 9 words for each 64 values of 4 bits, rounded up. */
TERN_API tern_tensor *tern_pack_weight(tern_tensor *weight, int bits);
/* What such words stand for: values times scales, in a floating dtype, in that shape. */
TERN_API tern_tensor *tern_unpack_weight(tern_tensor *packed, int ndim, const int64_t *shape, enum tern_dtype dtype, int bits);

struct tern_conv_transpose2d_params {
    int stride, padding, output_padding, dilation; /* 1, 0, 0, 1 */
    int groups;                                    /* 1 */
    int stride_hw[2], padding_hw[2], output_padding_hw[2], dilation_hw[2];
};
/* torch.nn.functional.conv_transpose2d: weight (C, O / groups, kh, kw) */
TERN_API tern_tensor *tern_conv_transpose2d_p(tern_tensor *x, tern_tensor *weight, tern_tensor *bias,
                                              const struct tern_conv_transpose2d_params *params);
#define tern_conv_transpose2d(x, weight, bias, ...) \
    tern_conv_transpose2d_p(x, weight, bias, &(const struct tern_conv_transpose2d_params){__VA_ARGS__})

struct tern_sdpa_params {
    tern_tensor *attn_mask; /* bool (true takes part) or x's dtype (added); broadcast to (..., L, S); NULL: none */
    bool is_causal;         /* row i sees columns 0..i; not together with attn_mask */
    double scale;           /* 1 / sqrt(E) */
    bool int8;              /* products may be of int8, where the device has a kernel for that and there are many keys */
};
/* torch.nn.functional.scaled_dot_product_attention: query (..., L, E), key (..., S, E), value (..., S, Ev) */
TERN_API tern_tensor *tern_sdpa_p(tern_tensor *query, tern_tensor *key, tern_tensor *value, const struct tern_sdpa_params *params);
#define tern_sdpa(query, key, value, ...) tern_sdpa_p(query, key, value, &(const struct tern_sdpa_params){__VA_ARGS__})

/* ---- pictures (N, C, H, W) */
enum tern_interpolate_mode { TERN_NEAREST = 0, TERN_BILINEAR };
struct tern_interpolate_params {
    int64_t size[2];     /* output height and width; or */
    double scale_factor; /* both directions; or */
    double scale_factor_hw[2];
    enum tern_interpolate_mode mode;
    bool align_corners; /* bilinear only */
};
/* torch.nn.functional.interpolate (recompute_scale_factor unset: a given scale is used as it is) */
TERN_API tern_tensor *tern_interpolate_p(tern_tensor *x, const struct tern_interpolate_params *params);
#define tern_interpolate(x, ...) tern_interpolate_p(x, &(const struct tern_interpolate_params){__VA_ARGS__})

struct tern_pool2d_params {
    int kernel_size, stride, padding, dilation; /* required, kernel_size, 0, 1 (max_pool2d only) */
    int kernel_size_hw[2], stride_hw[2], padding_hw[2], dilation_hw[2];
    bool ceil_mode;
    bool exclude_pad; /* avg_pool2d: count_include_pad=False */
};
/* torch.nn.functional.avg_pool2d, max_pool2d */
TERN_API tern_tensor *tern_avg_pool2d_p(tern_tensor *x, const struct tern_pool2d_params *params);
TERN_API tern_tensor *tern_max_pool2d_p(tern_tensor *x, const struct tern_pool2d_params *params);
#define tern_avg_pool2d(x, ...) tern_avg_pool2d_p(x, &(const struct tern_pool2d_params){__VA_ARGS__})
#define tern_max_pool2d(x, ...) tern_max_pool2d_p(x, &(const struct tern_pool2d_params){__VA_ARGS__})

/* ---- look-ups. An index out of range gives zeros for its row; model code checks ids before. */
/* torch.nn.functional.embedding: input (...) of i32 or i64, weight (V, E) -> (..., E) of weight's dtype */
TERN_API tern_tensor *tern_embedding(tern_tensor *input, tern_tensor *weight);
/* torch.gather: index i64 or i32, same number of dimensions as x */
TERN_API tern_tensor *tern_gather(tern_tensor *x, int dim, tern_tensor *index);

/* ---- made from nothing */
TERN_API tern_tensor *tern_full(struct tern_context *ctx, enum tern_dtype dtype, int ndim, const int64_t *shape, double fill_value);
/* torch.arange(start, end, step) */
TERN_API tern_tensor *tern_arange(struct tern_context *ctx, enum tern_dtype dtype, double start, double end, double step);
/* torch.randn / torch.rand with a CUDA generator of that seed and Philox offset: f32, the same on every device */
TERN_API tern_tensor *tern_randn(struct tern_context *ctx, int ndim, const int64_t *shape, uint64_t seed, uint64_t offset);
TERN_API tern_tensor *tern_rand(struct tern_context *ctx, int ndim, const int64_t *shape, uint64_t seed, uint64_t offset);

/* ---- kernels, for benches and tests: an op may have several on a device, of which one is chosen for each call */
/* The name of kernel i, from 0, that the default device has for an op ("conv2d"). NULL: there are no more, or no such op. Static. */
TERN_API const char *tern_op_kernel(const struct tern_context *ctx, const char *op, int i);
/* From here on calls of that kernel's op are computed by it: those that run, and those of graphs that are recorded and compiled.
 * "reference": every op by its reference, on the host. NULL: chosen, as at the start. A call that the kernel does not support fails
 * (TERN_E_UNSUPPORTED). TERN_E_NOT_FOUND: the device has no kernel of that name. */
TERN_API enum tern_status tern_op_force(struct tern_context *ctx, const char *kernel);

#ifdef __cplusplus
}
#endif
#endif
