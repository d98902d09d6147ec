/* quantized_product.cl for devices with matrix units for int8: x and w are words of four bytes along the channels, which are multiples of 16;
 * sums are exact. A group of SM x SN subgroups makes TM x TN sums, a subgroup MM x MN matrices of 16 x 16; GROUP_Z is the group of channels.
 * Two stages as in matmul_matrix.cl. A stage is slices of 16 bytes of the depth, in which rows lie behind each other: so every matrix is 256
 * bytes that lie together. A pair of vectors between slices keeps what is stored at once off each other's banks.
 * Host: MATRIX, MATRIX_SUBGROUP, MATRIX_I8; TK, here in pairs of bytes; MM, MN, SM, SN, where a tile is a whole number of loads for every
 * item; BIAS, BY_ROW as in quantized_product.cl; GATED: a tile has eight values and eight gates by turns; WIDE_Y: eight channels of a pixel
 * are stored at once; IN_A_ROW. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, factors) READ(2, w) READ(3, scale) READ(4, bias) WRITE(5, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, factors) READ(2, w) READ(3, scale) WRITE(4, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_QUANTIZED_PRODUCT
#define KERNEL_SHARED(ARRAY) ARRAY(UINT4, tile, 2 * STAGE > STRIPS / 4 ? 2 * STAGE : STRIPS / 4)

#define ITEMS GROUP_SIZE_X
#define TM (16 * MM * SM)
#define TN (16 * MN * SN)
#define SLICES (TK / 8) /* divides ITEMS, so that an item keeps its place in the depth */
#define SLICE (TM + TN + 2)
#define STAGE (SLICES * SLICE)
#define STRIPS (SM * SN * STRIP_FLOATS(MN))
#define STEP (ITEMS / SLICES) /* rows that are loaded at once */
#define X_LOADS (TM / STEP)
#define W_LOADS (TN / STEP)
#define AT(slice, row) (stage + (slice)*SLICE + (row))

/* Column q of the tile: the output channel, and the row of the weight. */
#define OUTPUT(q) (n0 + OUTPUT_OF(q))
#define ROW(q) (CHANNEL(OUTPUT(q)) + IS_GATE(q) * P.outputs)
#define CHANNEL(n) (GROUP_Z * P.outputs + (n))

#define SCALES(name, n, first) LOAD_COLUMNS(name, (n) < P.outputs, scale, first, P.scale_n)
#ifdef BIAS
#define BIASES(name, n, first) LOAD_COLUMNS(name, (n) < P.outputs, bias, first, P.bias_n)
#define PLUS_BIAS(name) +name
#else
#define BIASES(name, n, first)
#define PLUS_BIAS(name)
#endif
#define VALUES(n) SCALES(scales, n, CHANNEL(n)) BIASES(biases, n, CHANNEL(n))
#define VALUE(v, i) ((v) * (factor * scales[i]) PLUS_BIAS(biases[i]))
#ifdef GATED
#define EACH_COLUMN(n) VALUES(n) SCALES(gate_scales, n, P.outputs + (n)) BIASES(gate_biases, n, P.outputs + (n))
#define GATE(v, i) ((v) * (factor * gate_scales[i]) PLUS_BIAS(gate_biases[i]))
#define RESULT(v, gate, i, at, o) POST(VALUE(v, i) * tern_gelu(GATE(gate, i)), at, o)
#else
#define EACH_COLUMN(n) VALUES(n)
#define RESULT(v, gate, i, at, o) POST(VALUE(v, i), at, o)
#endif
#ifdef BY_ROW
#define FACTOR(m) LOAD(factors, m)
#else
#define FACTOR(m) LOAD(factors, (m) / (P.out_h * P.out_w))
#endif
#define EACH_ROW(m)                  \
    const int line = PIXEL_PLACE(m); \
    const float factor = FACTOR(m);
#define PLACE(n) (line + CHANNEL(n) * P.y_c)

KERNEL_BEGIN
    const int t = LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * OUTPUTS_OF(TN);
    const int sub_m = SUBGROUP_ID / SN * (16 * MM);
    const int sub_n = SUBGROUP_ID % SN * (16 * MN);
    const int pixels = P.batch * P.out_h * P.out_w;
    const int depth = P.kernel_h * P.kernel_w * P.channels;
    const int my_row = t / SLICES;
    const int my_slice = t % SLICES;
    /* where the pixels of this item's loads begin: picture and group, and top left of the window */
    int first[X_LOADS];
    int top[X_LOADS];
    int left_edge[X_LOADS];
    UNROLL for (int r = 0; r < X_LOADS; r++) {
        int m = m0 + my_row + r * STEP;
        int row = m / P.out_w;
        int picture = row / P.out_h;
        first[r] = m < pixels ? picture * P.x_n + GROUP_Z * P.channels : 0;
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
    /* fetches what comes after k0, multiplies k0's: at first there is nothing to multiply, at last nothing to fetch */
    for (int k0 = -16 * SLICES; k0 < depth; k0 += 16 * SLICES) {
        int k = k0 + 16 * (SLICES + my_slice);
        int tap = k / P.channels;
        int c = k - tap * P.channels;
        int ky = tap / P.kernel_w;
        int kx = tap - ky * P.kernel_w;
        UNROLL for (int r = 0; r < X_LOADS; r++) {
            int iy = top[r] + ky * P.dilation_h;
            int ix = left_edge[r] + kx * P.dilation_w;
            x_next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);
            if (k < depth && iy >= 0 && iy < P.in_h && ix >= 0 && ix < P.in_w)
                x_next[r] = LOAD16(x, first[r] + iy * P.x_h + ix * P.x_w + c);
        }
        UNROLL for (int r = 0; r < W_LOADS; r++) {
            int q = my_row + r * STEP;
            w_next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);
            if (k < depth && OUTPUT(q) < P.outputs)
                w_next[r] = LOAD16(w, ROW(q) * P.w_o + ky * P.w_h + kx * P.w_w + c);
        }
        if (k0 >= 0) {
            UNROLL for (int d = 0; d < SLICES; d++) {
                UNROLL for (int i = 0; i < MM; i++)
                    MATRIX_LOAD_A(left[i], tile, 16 * AT(d, sub_m + 16 * i), 16, MATRIX_ROWS);
                UNROLL for (int j = 0; j < MN; j++) {
                    MATRIX_LOAD_B(right[0], tile, 16 * AT(d, TM + sub_n + 16 * j), 16, MATRIX_COLUMNS);
                    UNROLL for (int i = 0; i < MM; i++)
                        MATRIX_MULTIPLY(sum[i * MN + j], left[i], MATRIX_ROWS, right[0], MATRIX_COLUMNS);
                }
            }
        }
        stage = STAGE - stage;
        UNROLL for (int r = 0; r < X_LOADS; r++)
            tile[AT(my_slice, my_row + r * STEP)] = x_next[r];
        UNROLL for (int r = 0; r < W_LOADS; r++)
            tile[AT(my_slice, TM + my_row + r * STEP)] = w_next[r];
        BARRIER();
    }
    STORE_PRODUCT(sum, MM, MN, m0 + sub_m, n0 + OUTPUTS_OF(sub_n), pixels, P.outputs)
KERNEL_END
