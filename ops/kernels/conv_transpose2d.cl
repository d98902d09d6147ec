/* conv_transpose2d: one item a value of the output, which gathers the input pixels that reach it. Any strides, sums in f32.
 * Host: BIAS. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_CONV2D
#define KERNEL_SHARED(ARRAY)

/* Here channels are the input's in a group, outputs the output's in a group. */
KERNEL_BEGIN
    const int all_outputs = P.outputs * P.groups;
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.batch * P.out_h * P.out_w * all_outputs; i += GROUPS_X * GROUP_SIZE_X) {
        int pixel = i / all_outputs; /* channels fastest: items side by side share their pixels */
        int o = i - pixel * all_outputs;
        int row = pixel / P.out_w;
        int ox = pixel - row * P.out_w;
        int picture = row / P.out_h;
        int oy = row - picture * P.out_h;
        int group = o / P.outputs;
        int from = picture * P.x_n + group * P.channels * P.x_c;
        int filters = group * P.channels * P.w_o + (o - group * P.outputs) * P.w_c;
        float sum = 0.0f;
        for (int ky = 0; ky < P.kernel_h; ky++) {
            int ty = oy + P.padding_h - ky * P.dilation_h;
            int iy = ty / P.stride_h;
            if (ty < 0 || iy * P.stride_h != ty || iy >= P.in_h)
                continue;
            for (int kx = 0; kx < P.kernel_w; kx++) {
                int tx = ox + P.padding_w - kx * P.dilation_w;
                int ix = tx / P.stride_w;
                if (tx < 0 || ix * P.stride_w != tx || ix >= P.in_w)
                    continue;
                int at = from + iy * P.x_h + ix * P.x_w;
                int filter_at = filters + ky * P.w_h + kx * P.w_w;
                for (int c = 0; c < P.channels; c++)
                    sum += LOAD(x, at + c * P.x_c) * LOAD(w, filter_at + c * P.w_o);
            }
        }
#ifdef BIAS
        sum += LOAD(bias, o * P.bias_n);
#endif
        int to = picture * P.y_n + oy * P.y_h + ox * P.y_w + o * P.y_c;
        STORE(y, to, POST(sum, to, o));
    }
KERNEL_END
