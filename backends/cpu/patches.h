/* conv2d as a product, for channels-last pictures: row = output pixel, column = output channel, depth = tap x input channel. */
#ifndef TERN_BACKENDS_CPU_PATCHES_H
#define TERN_BACKENDS_CPU_PATCHES_H

#include "backends/cpu/gemm.h"

struct cpu_picture {
    const char *x; /* (N, H, W, C) in memory */
    int64_t element;
    int64_t h, w, c, oh, ow, kh, kw;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
};
struct cpu_picture tern_cpu_picture_make(const struct tern_op_desc *d, const void *x);

/* Whether each output reads the one pixel that lies where it does: then the pixels are a matrix, and their convolution a product. */
bool tern_cpu_picture_is_matrix(const struct cpu_picture *s);

/* Rows row0 .. row0 + rows, depth k0 .. k0 + kc, to dst with ld values between rows; zeros where a tap lies in the padding. */
void tern_cpu_picture_gather(const struct cpu_picture *s, int64_t row0, int64_t rows, int64_t k0, int64_t kc, void *dst, int64_t ld);

/* Whether the layouts are right, whatever the dtypes of picture and bias. */
bool tern_cpu_picture_fits(const struct tern_op_desc *d);
/* The weight (O, C, kh, kw): the depth is a tap, then a channel. */
struct cpu_pack tern_cpu_picture_weights(const struct tern_op_desc *d);

/* Of conv2d in f32: kernels that share the packed weights. */
bool tern_cpu_conv2d_supports_f32(struct tern_device *device, const struct tern_op_desc *d);
bool tern_cpu_conv2d_post_f32(const struct tern_op_desc *d);
size_t tern_cpu_conv2d_packed_size(struct tern_context *ctx, const struct tern_op_desc *d);
enum tern_status tern_cpu_conv2d_pack(struct tern_context *ctx, const struct tern_op_desc *d, const void *src, void *dst);

#endif
