/* conv2d as an implicit product of matrices: rows are output pixels (m), columns output channels (n), the depth goes over taps and
 * input channels, channels fastest. Any strides; channels-last lies right. Sums in f32. A group makes TM x TN values, an
 * item RM x RN of them; GROUP_Z is the group of channels.
 * Host: TM, TN, TK, RM, RN, where a tile is a whole number of loads for every item; BIAS; WIDE: channels are loaded by four. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_CONV2D
#define KERNEL_SHARED(ARRAY) ARRAY(float, x_tile, TK * PITCH_X) ARRAY(float, w_tile, TK * PITCH_W)

#define PITCH_X (TM + 1)
#define PITCH_W (TN + 1)
#define ITEMS (GROUP_SIZE_X * GROUP_SIZE_Y)
#ifdef WIDE
#define WIDTH 4
#else
#define WIDTH 1
#endif
#define PER_ROW (TK / WIDTH) /* loads for the depth of a tile; divides ITEMS, so that an item keeps its place in the depth */
#define X_LOADS (TM * PER_ROW / ITEMS)
#define W_LOADS (TN * PER_ROW / ITEMS)

KERNEL_BEGIN
    const int t = LOCAL_Y * GROUP_SIZE_X + LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * TN;
    const int pixels = P.batch * P.out_h * P.out_w;
    const int depth = P.kernel_h * P.kernel_w * P.channels;
    const int my_k = t % PER_ROW * WIDTH;
    /* where the pixels of this item's loads begin: picture and group, and top left of the window */
    int first[X_LOADS];
    int top[X_LOADS];
    int left[X_LOADS];
    UNROLL for (int r = 0; r < X_LOADS; r++) {
        int m = m0 + t / PER_ROW + r * (ITEMS / PER_ROW);
        int row = m / P.out_w;
        int picture = row / P.out_h;
        first[r] = m < pixels ? picture * P.x_n + GROUP_Z * P.channels * P.x_c : 0;
        top[r] = m < pixels ? (row - picture * P.out_h) * P.stride_h - P.padding_h : -1000000000; /* outside of every picture */
        left[r] = (m - row * P.out_w) * P.stride_w - P.padding_w;
    }
    float sum[RM * RN];
    UNROLL for (int i = 0; i < RM * RN; i++)
        sum[i] = 0.0f;
    for (int k0 = 0; k0 < depth; k0 += TK) {
        int k = k0 + my_k;
        int tap = k / P.channels;
        int c = k - tap * P.channels;
        int ky = tap / P.kernel_w;
        int kx = tap - ky * P.kernel_w;
        UNROLL for (int r = 0; r < X_LOADS; r++) {
            int m = t / PER_ROW + r * (ITEMS / PER_ROW);
            int iy = top[r] + ky * P.dilation_h;
            int ix = left[r] + kx * P.dilation_w;
            bool there = k < depth && iy >= 0 && iy < P.in_h && ix >= 0 && ix < P.in_w;
#ifdef WIDE
            VEC4 v = MAKE_VEC4(0.0f, 0.0f, 0.0f, 0.0f);
            if (there)
                v = LOAD4(x, first[r] + iy * P.x_h + ix * P.x_w + c * P.x_c);
            x_tile[my_k * PITCH_X + m] = v.x;
            x_tile[(my_k + 1) * PITCH_X + m] = v.y;
            x_tile[(my_k + 2) * PITCH_X + m] = v.z;
            x_tile[(my_k + 3) * PITCH_X + m] = v.w;
#else
            float v = 0.0f;
            if (there)
                v = LOAD(x, first[r] + iy * P.x_h + ix * P.x_w + c * P.x_c);
            x_tile[my_k * PITCH_X + m] = v;
#endif
        }
        UNROLL for (int r = 0; r < W_LOADS; r++) {
            int n = t / PER_ROW + r * (ITEMS / PER_ROW);
            bool there = k < depth && n0 + n < P.outputs;
#ifdef WIDE
            VEC4 v = MAKE_VEC4(0.0f, 0.0f, 0.0f, 0.0f);
            if (there)
                v = LOAD4(w, (GROUP_Z * P.outputs + n0 + n) * P.w_o + ky * P.w_h + kx * P.w_w + c * P.w_c);
            w_tile[my_k * PITCH_W + n] = v.x;
            w_tile[(my_k + 1) * PITCH_W + n] = v.y;
            w_tile[(my_k + 2) * PITCH_W + n] = v.z;
            w_tile[(my_k + 3) * PITCH_W + n] = v.w;
#else
            float v = 0.0f;
            if (there)
                v = LOAD(w, (GROUP_Z * P.outputs + n0 + n) * P.w_o + ky * P.w_h + kx * P.w_w + c * P.w_c);
            w_tile[my_k * PITCH_W + n] = v;
#endif
        }
        BARRIER();
        UNROLL for (int d = 0; d < TK; d++) {
            float pixel[RM];
            float weight[RN];
            UNROLL for (int i = 0; i < RM; i++)
                pixel[i] = x_tile[d * PITCH_X + LOCAL_Y * RM + i];
            UNROLL for (int j = 0; j < RN; j++)
                weight[j] = w_tile[d * PITCH_W + LOCAL_X + j * GROUP_SIZE_X];
            UNROLL for (int i = 0; i < RM; i++)
                UNROLL for (int j = 0; j < RN; j++)
                    sum[i * RN + j] += pixel[i] * weight[j];
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < RM; i++) {
        int m = m0 + LOCAL_Y * RM + i;
        if (m < pixels) {
            int row = m / P.out_w;
            int picture = row / P.out_h;
            int to = picture * P.y_n + (row - picture * P.out_h) * P.y_h + (m - row * P.out_w) * P.y_w;
            UNROLL for (int j = 0; j < RN; j++) {
                int n = n0 + LOCAL_X + j * GROUP_SIZE_X;
                if (n < P.outputs) {
                    int o = GROUP_Z * P.outputs + n;
                    float v = sum[i * RN + j];
#ifdef BIAS
                    v += LOAD(bias, o * P.bias_n);
#endif
                    int at = to + o * P.y_c;
                    STORE(y, at, POST(v, at, o));
                }
            }
        }
    }
KERNEL_END
