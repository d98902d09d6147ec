/* Products of int8, by the rule of ops/quantized.c: a convolution as an implicit product of matrices, as in conv2d.cl, or a linear layer,
 * which is one of 1 x 1. x and w are words of four bytes along the channels (quantize_pack.cl); sums are exact. A group makes TM x TN
 * values, an item RM x RN of them; GROUP_Z is the group of channels.
 * Host: TM, TN, TK, RM, RN, multiples of 4, TK in words; BIAS; BY_ROW: factors are those of rows, not of pictures; FLAT: filters of 1 x 1
 * and nothing around pictures, so pixels lie behind each other; GATED: of the TN sums for a row half are values, half their gates. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, factors) READ(2, w) READ(3, scale) READ(4, bias) WRITE(5, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, factors) READ(2, w) READ(3, scale) WRITE(4, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_QUANTIZED_PRODUCT
#define KERNEL_SHARED(ARRAY) ARRAY(UINT4, tile, TK * PITCH)

/* A row of the tile is one word of the depth: its pixels, then its output channels. One more vector keeps transposed writes off each
 * other's banks. */
#define PITCH (TM / 4 + TN / 4 + 1)
#define ITEMS (GROUP_SIZE_X * GROUP_SIZE_Y)
#define PER_ROW (TK / 4) /* blocks of 4 x 4 words along the depth; divides ITEMS, so that an item keeps its place there */
#define ALL_BLOCKS ((TM + TN) / 4 * PER_ROW)
#define BLOCKS ((ALL_BLOCKS + ITEMS - 1) / ITEMS)
#define NOTHING MAKE_UINT4(0u, 0u, 0u, 0u)

#ifdef FLAT
#define X_AT(m, r, i) ((m)*P.x_w + GROUP_Z * P.channels)
#define INSIDE(m, r, i) (m) < pixels
#else
#define TOP(r, i) (top[(r)*4 + (i)] + ky * P.dilation_h)
#define LEFT(r, i) (left[(r)*4 + (i)] + kx * P.dilation_w)
#define X_AT(m, r, i) (first[(r)*4 + (i)] + TOP(r, i) * P.x_h + LEFT(r, i) * P.x_w)
#define INSIDE(m, r, i) (TOP(r, i) >= 0 && TOP(r, i) < P.in_h && LEFT(r, i) >= 0 && LEFT(r, i) < P.in_w)
#endif
#define X4(m, r, i) (there && INSIDE((m) + (i), r, i) ? LOAD16(x, X_AT((m) + (i), r, i) + c) : NOTHING)

/* Column q of the tile: the output channel, and the row of the weight; GATED two values and their two gates by turns. */
#ifdef GATED
#define OUTPUTS (TN / 2)
#define CHANNEL(q) (n0 + (q) / 4 * 2 + (q) % 2)
#define GATE(q) ((q) % 4 / 2 * P.outputs)
#else
#define OUTPUTS TN
#define CHANNEL(q) (n0 + (q))
#define GATE(q) 0
#endif
#define ROW(q) (GROUP_Z * P.outputs + CHANNEL(q) + GATE(q))
#define W4(q) (there && CHANNEL(q) < P.outputs ? LOAD16(w, ROW(q) * P.w_o + ky * P.w_h + kx * P.w_w + c) : NOTHING)

#define PIXEL(i) tile[k * PITCH + LOCAL_Y + (i)*GROUP_SIZE_Y]
#define WEIGHT(j) tile[k * PITCH + TM / 4 + LOCAL_X + (j)*GROUP_SIZE_X]
#ifdef BIAS
#define PLUS_BIAS(o) +LOAD(bias, (o)*P.bias_n)
#else
#define PLUS_BIAS(o)
#endif
/* The value of column q of row i of the item; j and lane are its place among the item's sums. */
#define VALUE(i, j, lane, q) (FLOAT(sum[((i) * (RN / 4) + (j)) * 4 + (lane)]) * (factor * LOAD(scale, ROW(q) * P.scale_n)) PLUS_BIAS(ROW(q)))

KERNEL_BEGIN
    const int t = LOCAL_Y * GROUP_SIZE_X + LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * OUTPUTS;
    const int pixels = P.batch * P.out_h * P.out_w;
    const int depth = P.kernel_h * P.kernel_w * P.channels;
    const int my_k = t % PER_ROW * 4;
#ifndef FLAT
    /* where the pixels of this item's blocks begin: picture and group, and top left of the window */
    int first[BLOCKS * 4];
    int top[BLOCKS * 4];
    int left[BLOCKS * 4];
    UNROLL for (int r = 0; r < BLOCKS * 4; r++) {
        int m = m0 + (t / PER_ROW + r / 4 * (ITEMS / PER_ROW)) * 4 + r % 4;
        int row = m / P.out_w;
        int picture = row / P.out_h;
        first[r] = m < pixels ? picture * P.x_n + GROUP_Z * P.channels : 0;
        top[r] = m < pixels ? (row - picture * P.out_h) * P.stride_h - P.padding_h : -1000000000; /* outside of every picture */
        left[r] = (m - row * P.out_w) * P.stride_w - P.padding_w;
    }
#endif
    int sum[RM * RN];
    UNROLL for (int i = 0; i < RM * RN; i++)
        sum[i] = 0;
    for (int k0 = 0; k0 < depth; k0 += TK * 4) {
        int place = k0 + my_k * 4;
        bool there = place < depth;
        int tap = place / P.channels;
        int c = place - tap * P.channels;
        int ky = tap / P.kernel_w;
        int kx = tap - ky * P.kernel_w;
        UNROLL for (int r = 0; r < BLOCKS; r++) {
            int block = t / PER_ROW + r * (ITEMS / PER_ROW);
            int at = my_k * PITCH + block;
            UINT4 v0 = NOTHING;
            UINT4 v1 = NOTHING;
            UINT4 v2 = NOTHING;
            UINT4 v3 = NOTHING;
            if (block < TM / 4) {
                int m = m0 + block * 4;
                v0 = X4(m, r, 0);
                v1 = X4(m, r, 1);
                v2 = X4(m, r, 2);
                v3 = X4(m, r, 3);
            } else if (block < (TM + TN) / 4) {
                int q = block * 4 - TM;
                v0 = W4(q);
                v1 = W4(q + 1);
                v2 = W4(q + 2);
                v3 = W4(q + 3);
            }
            if (block < (TM + TN) / 4) {
                STORE_COLUMNS_BY(MAKE_UINT4, tile, at, PITCH, v0, v1, v2, v3);
            }
        }
        BARRIER();
        UNROLL_4 for (int k = 0; k < TK; k++) {
            UINT4 right[RN / 4];
            UNROLL for (int j = 0; j < RN / 4; j++)
                right[j] = WEIGHT(j);
            UNROLL for (int i = 0; i < RM; i++) {
                UINT4 rows = PIXEL(i / 4);
                uint one = PART_OF(rows, i % 4);
                UNROLL for (int j = 0; j < RN / 4; j++) {
                    const int s = (i * (RN / 4) + j) * 4;
                    sum[s] += DOT4(one, right[j].x);
                    sum[s + 1] += DOT4(one, right[j].y);
                    sum[s + 2] += DOT4(one, right[j].z);
                    sum[s + 3] += DOT4(one, right[j].w);
                }
            }
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < RM; i++) {
        int m = m0 + (LOCAL_Y + i / 4 * GROUP_SIZE_Y) * 4 + i % 4;
        if (m < pixels) {
            int row = m / P.out_w;
            int picture = row / P.out_h;
            int to = picture * P.y_n + (row - picture * P.out_h) * P.y_h + (m - row * P.out_w) * P.y_w;
#ifdef BY_ROW
            float factor = LOAD(factors, m);
#else
            float factor = LOAD(factors, picture);
#endif
            UNROLL for (int j = 0; j < RN / 4; j++) {
                UNROLL for (int lane = 0; lane < OUTPUTS * 4 / TN; lane++) {
                    int q = (LOCAL_X + j * GROUP_SIZE_X) * 4 + lane;
                    if (CHANNEL(q) < P.outputs) {
                        int o = GROUP_Z * P.outputs + CHANNEL(q);
                        int at = to + o * P.y_c;
                        float v = VALUE(i, j, lane, q);
#ifdef GATED
                        v *= tern_gelu(VALUE(i, j, lane + 2, q + 2));
#endif
                        STORE(y, at, POST(v, at, o));
                    }
                }
            }
        }
    }
KERNEL_END
