/* conv2d.cl for devices with matrix units: rows are output pixels (m), columns output channels (n), the depth goes over taps and input
 * channels, which are multiples of 8 and lie behind each other in x and w; both are f16 or both bf16, sums f32. Tiles and stages as in
 * matmul_matrix.cl; GROUP_Z is the group of channels.
 * Host: MATRIX, MATRIX_SUBGROUP, MATRIX_BF16; TK, MM, MN, SM, SN, where a tile is a whole number of loads for every item; BIAS; WIDE_Y: eight
 * channels of a pixel are stored at once; IN_A_ROW; PARTS: GROUP_Z is a part of the depth, of one group, and y is a product (pixels,
 * outputs) of each. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_CONV2D
#define KERNEL_SHARED(ARRAY) ARRAY(UINT4, tile, (2 * STAGE > 2 * STRIPS ? 2 * STAGE : 2 * STRIPS) / 8)

#define ITEMS GROUP_SIZE_X
#define TM (16 * MM * SM)
#define TN (16 * MN * SN)
#define PITCH (TK + 8)
#define STAGE ((TM + TN) * PITCH)
#define STRIPS (SM * SN * STRIP_FLOATS(MN))
#define PER_ROW (TK / 8) /* loads for the depth of a tile; divides ITEMS, so that an item keeps its place in the depth */
#define X_LOADS (TM * PER_ROW / ITEMS)
#define W_LOADS (TN * PER_ROW / ITEMS)

#ifdef PARTS
#define GROUP 0
#define EACH_ROW(m) const int line = (GROUP_Z * pixels + (m)) * P.outputs;
#define PLACE(n) (line + (n))
#else
#define GROUP GROUP_Z
#define EACH_ROW(m) const int line = PIXEL_PLACE(m);
#define PLACE(n) (line + CHANNEL(n) * P.y_c)
#endif
#define CHANNEL(n) (GROUP * P.outputs + (n))
#ifdef BIAS
#define EACH_COLUMN(n) LOAD_COLUMNS(biases, (n) < P.outputs, bias, CHANNEL(n), P.bias_n)
#define RESULT(v, gate, i, at, o) POST((v) + biases[i], at, o)
#else
#define EACH_COLUMN(n)
#define RESULT(v, gate, i, at, o) POST(v, at, o)
#endif

KERNEL_BEGIN
    const int t = LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * TN;
    const int sub_m = SUBGROUP_ID / SN * (16 * MM);
    const int sub_n = SUBGROUP_ID % SN * (16 * MN);
    const int pixels = P.batch * P.out_h * P.out_w;
    const int depth = P.kernel_h * P.kernel_w * P.channels;
    const int my_row = t / PER_ROW;
    const int my_k = t % PER_ROW * 8;
    /* where the pixels of this item's loads begin: picture and group, and top left of the window */
    int first[X_LOADS];
    int top[X_LOADS];
    int left_edge[X_LOADS];
    UNROLL for (int r = 0; r < X_LOADS; r++) {
        int m = m0 + my_row + r * (ITEMS / PER_ROW);
        int row = m / P.out_w;
        int picture = row / P.out_h;
        first[r] = m < pixels ? picture * P.x_n + GROUP * P.channels : 0;
        top[r] = m < pixels ? (row - picture * P.out_h) * P.stride_h - P.padding_h : -1000000000; /* outside of every picture */
        left_edge[r] = (m - row * P.out_w) * P.stride_w - P.padding_w;
    }
    UINT4 x_next[X_LOADS];
    UINT4 w_next[W_LOADS];
    MATRIX_A(left, MM);
    MATRIX_B(right, 1);
    MATRIX_SUM(sum, MM * MN);
    UNROLL for (int i = 0; i < MM * MN; i++)
        MATRIX_ZERO(sum[i]);
    int stage = 0;
#ifdef PARTS
    const int part = ((depth + TK - 1) / TK + PARTS - 1) / PARTS * TK;
    const int k_begin = GROUP_Z * part;
    const int k_end = k_begin + part < depth ? k_begin + part : depth;
#else
    const int k_begin = 0;
    const int k_end = depth;
#endif
    /* fetches what comes after k0, multiplies k0's: at first there is nothing to multiply, at last nothing to fetch */
    for (int k0 = k_begin - TK; k0 < k_end; k0 += TK) {
        int k = k0 + TK + my_k;
        int tap = k / P.channels;
        int c = k - tap * P.channels;
        int ky = tap / P.kernel_w;
        int kx = tap - ky * P.kernel_w;
        UNROLL for (int r = 0; r < X_LOADS; r++) {
            int iy = top[r] + ky * P.dilation_h;
            int ix = left_edge[r] + kx * P.dilation_w;
            x_next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);
            if (k < k_end && iy >= 0 && iy < P.in_h && ix >= 0 && ix < P.in_w)
                x_next[r] = LOAD8(x, first[r] + iy * P.x_h + ix * P.x_w + c);
        }
        UNROLL for (int r = 0; r < W_LOADS; r++) {
            int n = n0 + my_row + r * (ITEMS / PER_ROW);
            w_next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);
            if (k < k_end && n < P.outputs)
                w_next[r] = LOAD8(w, (GROUP * P.outputs + n) * P.w_o + ky * P.w_h + kx * P.w_w + c);
        }
        if (k0 >= k_begin) {
            UNROLL for (int d = 0; d < TK; d += 16) {
                UNROLL for (int i = 0; i < MM; i++)
                    MATRIX_LOAD_A(left[i], tile, stage + (sub_m + 16 * i) * PITCH + d, PITCH, MATRIX_ROWS);
                UNROLL for (int j = 0; j < MN; j++) {
                    MATRIX_LOAD_B(right[0], tile, stage + (TM + sub_n + 16 * j) * PITCH + d, PITCH, MATRIX_COLUMNS);
                    UNROLL for (int i = 0; i < MM; i++)
                        MATRIX_MULTIPLY(sum[i * MN + j], left[i], MATRIX_ROWS, right[0], MATRIX_COLUMNS);
                }
            }
        }
        stage = STAGE - stage;
        UNROLL for (int r = 0; r < X_LOADS; r++)
            tile[(stage + (my_row + r * (ITEMS / PER_ROW)) * PITCH + my_k) / 8] = x_next[r];
        UNROLL for (int r = 0; r < W_LOADS; r++)
            tile[(stage + (TM + my_row + r * (ITEMS / PER_ROW)) * PITCH + my_k) / 8] = w_next[r];
        BARRIER();
    }
    STORE_PRODUCT(sum, MM, MN, m0 + sub_m, n0 + sub_n, pixels, P.outputs)
KERNEL_END
