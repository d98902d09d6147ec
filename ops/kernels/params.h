/* The parameters of every kernel text, each list once: texts make the struct of the device from it, launch.h that of the host.
 * I int, IV int[n], U uint, F float, FV float[n]: members of 32 bits, so that all languages lay them out alike. */
#ifndef TERN_OPS_KERNELS_PARAMS_H
#define TERN_OPS_KERNELS_PARAMS_H

/* clang-format off */
#define TERN_MAX_SLOTS 12
#define TERN_LOOP_DIMS 6

/* What every kernel has first. offset: where each slot's argument begins in its buffer, in elements of its dtype. post_*: place of
 * the operands of posts (POST_AT of portable.h), and their scalars. */
#define TERN_PARAMS_HEAD(I, IV, U, F, FV) IV(offset, TERN_MAX_SLOTS) IV(post_inner, 3) IV(post_ld, 3) IV(post_step, 3) FV(post_value, 3)

/* n values in the order of their output; stride: 8 inputs, then the output, TERN_LOOP_DIMS each. */
#define TERN_PARAMS_ELEMENTWISE(I, IV, U, F, FV) I(n) IV(shape, TERN_LOOP_DIMS) IV(stride, 54) FV(scalar, 4) IV(whole, 2)

/* to[…] = x[…] with sizes `shape`; pad: an index less `before` that is not in 0 .. inside - 1 gives the value. */
#define TERN_PARAMS_COPY(I, IV, U, F, FV) \
    I(n)                                  \
    IV(shape, TERN_LOOP_DIMS)             \
    IV(x_stride, TERN_LOOP_DIMS) IV(y_stride, TERN_LOOP_DIMS) IV(before, TERN_LOOP_DIMS) IV(inside, TERN_LOOP_DIMS) F(value) I(whole)

/* rows: kept dimensions, cols: reduced ones. */
#define TERN_PARAMS_REDUCE(I, IV, U, F, FV) \
    I(rows)                                 \
    I(cols)                                 \
    IV(row_shape, TERN_LOOP_DIMS)           \
    IV(x_row, TERN_LOOP_DIMS) IV(y_row, TERN_LOOP_DIMS) IV(col_shape, TERN_LOOP_DIMS) IV(x_col, TERN_LOOP_DIMS)

#define TERN_PARAMS_MATMUL(I, IV, U, F, FV)                                                                              \
    I(m)                                                                                                                 \
    I(n)                                                                                                                 \
    I(k) I(a_m) I(a_k) I(b_k) I(b_n) I(y_m) I(y_n) I(bias_n) IV(batch_shape, TERN_LOOP_DIMS) IV(a_batch, TERN_LOOP_DIMS) \
        IV(b_batch, TERN_LOOP_DIMS) IV(y_batch, TERN_LOOP_DIMS)

/* size: of a product, m n. */
#define TERN_PARAMS_SPLIT_SUM(I, IV, U, F, FV) I(size) I(n) I(parts) I(y_m) I(y_n) I(bias_n)

/* channels and outputs are those of one group. conv_transpose2d has the same. */
#define TERN_PARAMS_CONV2D(I, IV, U, F, FV)                                                                                          \
    I(batch)                                                                                                                         \
    I(channels)                                                                                                                      \
    I(outputs) I(groups) I(in_h) I(in_w) I(out_h) I(out_w) I(kernel_h) I(kernel_w) I(stride_h) I(stride_w) I(padding_h) I(padding_w) \
        I(dilation_h) I(dilation_w) I(x_n) I(x_c) I(x_h) I(x_w) I(w_o) I(w_c) I(w_h) I(w_w) I(y_n) I(y_c) I(y_h) I(y_w) I(bias_n)

/* x as slices of pixels, h w of them in a picture, of groups of channels; parts: of what was found of a slice before. */
#define TERN_PARAMS_QUANTIZE_PACK(I, IV, U, F, FV) \
    I(slices)                                      \
    I(pixels)                                      \
    I(h) I(w) I(groups) I(channels) I(deep) I(parts) I(chunks) I(x_n) I(x_c) I(x_h) I(x_w) I(x_slice) I(scale_n)

/* A convolution, or a linear layer as one of 1 x 1: strides of x and w in bytes; channels: filled up to a multiple of 16. */
#define TERN_PARAMS_QUANTIZED_PRODUCT(I, IV, U, F, FV) TERN_PARAMS_CONV2D(I, IV, U, F, FV) I(scale_n)

/* A weight (O, C, kh, kw), depth values in each of its rows, and the words of a row. */
#define TERN_PARAMS_PACKED_WEIGHT(I, IV, U, F, FV)                                                                           \
    I(rows) I(depth) I(channels) I(kernel_w) I(w_o) I(w_c) I(w_h) I(w_w) I(word_row) I(word_step)

/* rows: kept dimensions; cols: the elements of one row, x_step and y_step apart. */
#define TERN_PARAMS_ROWS(I, IV, U, F, FV)                                                                                    \
    I(rows) I(cols) IV(row_shape, TERN_LOOP_DIMS) IV(x_row, TERN_LOOP_DIMS) IV(y_row, TERN_LOOP_DIMS) I(x_step) I(y_step)    \
    I(weight_step) I(bias_step) F(eps)

/* channels: of a group; part: elements of a part of a group; parts: their number. Of group_norm_channels, behind eps: vectors of a tile, tiles of a
 * picture, pixels that a group of items walks together, items that sum up a group of channels, pixels of a part. */
#define TERN_PARAMS_GROUP_NORM(I, IV, U, F, FV)                                                                              \
    I(groups) I(channels) I(pixels) I(part) I(parts) I(x_n) I(x_c) I(x_pixel) I(y_n) I(y_c) I(y_pixel) I(weight_step)        \
    I(bias_step) F(eps) I(tile) I(tiles) I(rows) I(lanes) I(band)

#define TERN_PARAMS_SDPA(I, IV, U, F, FV)                                                                                    \
    I(l) I(s) I(q_l) I(q_e) I(key_s) I(key_e) I(v_s) I(v_e) I(mask_l) I(mask_s) I(y_l) I(y_e)                                \
    IV(batch_shape, TERN_LOOP_DIMS) IV(q_batch, TERN_LOOP_DIMS) IV(key_batch, TERN_LOOP_DIMS) IV(v_batch, TERN_LOOP_DIMS)    \
    IV(mask_batch, TERN_LOOP_DIMS) IV(y_batch, TERN_LOOP_DIMS) F(scale)

/* n ids, rows of `width` elements in a table of `rows`. */
#define TERN_PARAMS_EMBEDDING(I, IV, U, F, FV)                                                                               \
    I(n) I(width) I(rows) IV(shape, TERN_LOOP_DIMS) IV(id_stride, TERN_LOOP_DIMS) IV(y_stride, TERN_LOOP_DIMS) I(y_step)     \
    I(table_row) I(table_step)

/* size, step: of x along the gathered dimension. */
#define TERN_PARAMS_GATHER(I, IV, U, F, FV)                                                                                  \
    I(n) IV(shape, TERN_LOOP_DIMS) IV(x_stride, TERN_LOOP_DIMS) IV(index_stride, TERN_LOOP_DIMS)                             \
    IV(y_stride, TERN_LOOP_DIMS) I(size) I(step)

#define TERN_PARAMS_INTERPOLATE(I, IV, U, F, FV)                                                                             \
    I(batch) I(channels) I(in_h) I(in_w) I(out_h) I(out_w) I(x_n) I(x_c) I(x_h) I(x_w) I(y_n) I(y_c) I(y_h) I(y_w)           \
    I(same_h) I(same_w) I(twice_h) I(twice_w) I(align) F(step_h) F(step_w)

/* least: the smallest integer of the dtype. */
#define TERN_PARAMS_POOL2D(I, IV, U, F, FV)                                                                                  \
    I(batch) I(channels) I(in_h) I(in_w) I(out_h) I(out_w) I(kernel_h) I(kernel_w) I(stride_h) I(stride_w) I(padding_h)      \
    I(padding_w) I(dilation_h) I(dilation_w) I(x_n) I(x_c) I(x_h) I(x_w) I(y_n) I(y_c) I(y_h) I(y_w) I(include_pad) I(least)

/* whole, whole_step: the numbers of integer dtypes. */
#define TERN_PARAMS_FILL(I, IV, U, F, FV)                                                                                    \
    I(n) IV(shape, TERN_LOOP_DIMS) IV(y_stride, TERN_LOOP_DIMS) F(value) F(step) I(whole) I(whole_step) U(seed_low)          \
    U(seed_high) U(offset_low) U(offset_high)

/* clang-format on */
#endif
