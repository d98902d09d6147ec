/* conv2d as an implicit product of matrices: rows are output pixels (m), columns output channels (n), the depth goes over taps and
 * input channels, channels fastest. Any strides; channels-last lies right. Sums in f32. A group makes TM x TN values, an
 * item RM x RN of them; GROUP_Z is the group of channels. Tiles go through shared memory in blocks of 4 x 4, four pixels or output
 * channels to a vector; an item loads BLOCKS of them.
 * Host: TM, TN, TK, RM, RN, multiples of 4; BIAS; WIDE: channels are loaded by four. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, w) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_CONV2D
#define KERNEL_SHARED(ARRAY) ARRAY(VEC4, tile, TK * PITCH)

/* A row of the tile is one k: its pixels, then its output channels. One more vector keeps transposed writes off each other's banks. */
#define PITCH (TM / 4 + TN / 4 + 1)
#define ITEMS (GROUP_SIZE_X * GROUP_SIZE_Y)
#define PER_ROW (TK / 4) /* blocks along k; divides ITEMS, so that an item keeps its place there */
#define ALL_BLOCKS ((TM + TN) / 4 * PER_ROW)
#define BLOCKS ((ALL_BLOCKS + ITEMS - 1) / ITEMS)
/* Element of the tap (ky, kx) and channel c: of the window of pixel i of block r, and of output channel n. */
#define INSIDE(r, i, ky, kx)                                                                                        \
    (top[(r)*4 + (i)] + (ky) >= 0 && top[(r)*4 + (i)] + (ky) < P.in_h && left[(r)*4 + (i)] + (kx) >= 0 &&           \
     left[(r)*4 + (i)] + (kx) < P.in_w)
#define X_AT(r, i, ky, kx, c) (first[(r)*4 + (i)] + (top[(r)*4 + (i)] + (ky)) * P.x_h + (left[(r)*4 + (i)] + (kx)) * P.x_w + (c)*P.x_c)
#define W_AT(n, ky, kx, c) ((GROUP_Z * P.outputs + (n)) * P.w_o + (ky)*P.w_h + (kx)*P.w_w + (c)*P.w_c)
#define X4(r, i) (there && INSIDE(r, i, ky *P.dilation_h, kx *P.dilation_w) ? \
    LOAD4(x, X_AT(r, i, ky *P.dilation_h, kx *P.dilation_w, c)) : ZERO4)
#define W4(n) (there && (n) < P.outputs ? LOAD4(w, W_AT(n, ky, kx, c)) : ZERO4)
#define X1(r, i) (there && INSIDE(r, i, ky *P.dilation_h, kx *P.dilation_w) ? \
    LOAD(x, X_AT(r, i, ky *P.dilation_h, kx *P.dilation_w, c)) : 0.0f)
#define W1(n) (there && (n) < P.outputs ? LOAD(w, W_AT(n, ky, kx, c)) : 0.0f)
/* Declares the tap and channel of place `at` in the depth, and whether there is one. */
#define PLACE(at)                           \
    int tap = (at) / P.channels;            \
    int c = (at) - tap * P.channels;        \
    int ky = tap / P.kernel_w;              \
    int kx = tap - ky * P.kernel_w;         \
    bool there = (at) < depth;
#define PIXEL(i) tile[d * PITCH + LOCAL_Y + (i)*GROUP_SIZE_Y]
#define WEIGHT(j) tile[d * PITCH + TM / 4 + LOCAL_X + (j)*GROUP_SIZE_X]

KERNEL_BEGIN
    const int t = LOCAL_Y * GROUP_SIZE_X + LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * TN;
    const int pixels = P.batch * P.out_h * P.out_w;
    const int depth = P.kernel_h * P.kernel_w * P.channels;
    const int my_k = t % PER_ROW * 4;
    /* where the pixels of this item's blocks begin: picture and group, and top left of the window */
    int first[BLOCKS * 4];
    int top[BLOCKS * 4];
    int left[BLOCKS * 4];
    UNROLL for (int r = 0; r < BLOCKS * 4; r++) {
        int m = m0 + (t / PER_ROW + r / 4 * (ITEMS / PER_ROW)) * 4 + r % 4;
        int row = m / P.out_w;
        int picture = row / P.out_h;
        first[r] = m < pixels ? picture * P.x_n + GROUP_Z * P.channels * P.x_c : 0;
        top[r] = m < pixels ? (row - picture * P.out_h) * P.stride_h - P.padding_h : -1000000000; /* outside of every picture */
        left[r] = (m - row * P.out_w) * P.stride_w - P.padding_w;
    }
    VEC4 sum[RM * RN / 4];
    UNROLL for (int i = 0; i < RM * RN / 4; i++)
        sum[i] = ZERO4;
    for (int k0 = 0; k0 < depth; k0 += TK) {
#ifdef WIDE
        PLACE(k0 + my_k)
#endif
        UNROLL for (int r = 0; r < BLOCKS; r++) {
            int block = t / PER_ROW + r * (ITEMS / PER_ROW);
            int n = n0 + block * 4 - TM;
            int at = my_k * PITCH + block;
#ifdef WIDE
            VEC4 v0 = ZERO4;
            VEC4 v1 = ZERO4;
            VEC4 v2 = ZERO4;
            VEC4 v3 = ZERO4;
            if (block < TM / 4) {
                v0 = X4(r, 0);
                v1 = X4(r, 1);
                v2 = X4(r, 2);
                v3 = X4(r, 3);
            } else {
                v0 = W4(n);
                v1 = W4(n + 1);
                v2 = W4(n + 2);
                v3 = W4(n + 3);
            }
            if (block < (TM + TN) / 4) {
                STORE_COLUMNS(tile, at, PITCH, v0, v1, v2, v3);
            }
#else
            UNROLL for (int i = 0; i < 4; i++) {
                PLACE(k0 + my_k + i)
                VEC4 v = ZERO4;
                if (block < TM / 4)
                    v = MAKE_VEC4(X1(r, 0), X1(r, 1), X1(r, 2), X1(r, 3));
                else
                    v = MAKE_VEC4(W1(n), W1(n + 1), W1(n + 2), W1(n + 3));
                if (block < (TM + TN) / 4)
                    tile[at + i * PITCH] = v;
            }
#endif
        }
        BARRIER();
        UNROLL for (int d = 0; d < TK; d++) {
            ADD_PRODUCT(sum, RM, RN, PIXEL, WEIGHT)
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < RM; i++) {
        int m = m0 + (LOCAL_Y + i / 4 * GROUP_SIZE_Y) * 4 + i % 4;
        if (m < pixels) {
            int row = m / P.out_w;
            int picture = row / P.out_h;
            int to = picture * P.y_n + (row - picture * P.out_h) * P.y_h + (m - row * P.out_w) * P.y_w;
            UNROLL for (int j = 0; j < RN; j++) {
                int n = n0 + (LOCAL_X + j / 4 * GROUP_SIZE_X) * 4 + j % 4;
                if (n < P.outputs) {
                    int o = GROUP_Z * P.outputs + n;
                    float v = LANE(sum[i * (RN / 4) + j / 4], j % 4);
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
