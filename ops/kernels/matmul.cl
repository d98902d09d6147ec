/* y (m, n) = a (m, k) b (k, n) + bias (n), batched: matmul and linear (whose weight (n, k) is b by its strides). Sums in f32.
 * A group makes TM x TN values, an item RM x RN of them; tiles TK deep go through shared memory, four rows or columns to a vector,
 * so that an item reads (RM + RN) / 4 vectors for RM x RN products.
 * Host: TM, TN, TK, RM, RN, multiples of 4; BATCH_NDIM; BIAS; WIDE_A, WIDE_B: a's and b's elements are loaded by four along k;
 * B_ALONG_N: b's neighbours in memory are along n (and WIDE_B loads along n); GATED: b has n columns of values, then n of gates, y is values
 * times gelu of their gates; a tile has two of each by turns, and WIDE_B never loads along n. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, a) READ(1, b) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, a) READ(1, b) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_MATMUL
#define KERNEL_SHARED(ARRAY) ARRAY(VEC4, a_tile, TK * PITCH_A) ARRAY(VEC4, b_tile, TK * PITCH_B)

/* Rows of the tiles are k; one more vector keeps transposed writes off each other's banks. */
#define PITCH_A (TM / 4 + 1)
#define PITCH_B (TN / 4 + 1)
#define ITEMS (GROUP_SIZE_X * GROUP_SIZE_Y)
/* e: this item's numbers below n, which all items of the group share out */
#define EACH(e, n)                                                                                  \
    UNROLL for (int e##_r = 0, e = t; e##_r < ((n) + ITEMS - 1) / ITEMS; e##_r++, e += ITEMS)       \
        if ((n) % ITEMS == 0 || e < (n))

/* Column q of b's tile: the column of y, and how far behind it b has it. */
#ifdef GATED
#define OUTPUT(q) (n0 + (q) / 4 * 2 + (q) % 2)
#define BEHIND(q) ((q) % 4 / 2 * P.n)
#define OUTPUTS(columns) ((columns) / 2)
#else
#define OUTPUT(q) (n0 + (q))
#define BEHIND(q) 0
#define OUTPUTS(columns) (columns)
#endif
#define COLUMN(q) (OUTPUT(q) + BEHIND(q))

#ifdef BIAS
#define PLUS_BIAS(n) +LOAD(bias, (n)*P.bias_n)
#else
#define PLUS_BIAS(n)
#endif

/* The element, or WIDE the four from it on, in row or column `at` of the tile and at depth `deep`. */
#ifdef WIDE_A
#define A4(at, deep) (m0 + (at) < P.m && k0 + (deep) < P.k ? LOAD4(a, a0 + (m0 + (at)) * P.a_m + k0 + (deep)) : ZERO4)
#else
#define A1(at, deep) (m0 + (at) < P.m && k0 + (deep) < P.k ? LOAD(a, a0 + (m0 + (at)) * P.a_m + (k0 + (deep)) * P.a_k) : 0.0f)
#endif
#if defined(WIDE_B) && defined(B_ALONG_N)
#define B4(at, deep) (n0 + (at) < P.n && k0 + (deep) < P.k ? LOAD4(b, b0 + (k0 + (deep)) * P.b_k + n0 + (at)) : ZERO4)
#elif defined(WIDE_B)
#define B4(at, deep) (OUTPUT(at) < P.n && k0 + (deep) < P.k ? LOAD4(b, b0 + COLUMN(at) * P.b_n + k0 + (deep)) : ZERO4)
#else
#define B1(at, deep) (OUTPUT(at) < P.n && k0 + (deep) < P.k ? LOAD(b, b0 + COLUMN(at) * P.b_n + (k0 + (deep)) * P.b_k) : 0.0f)
#endif
#define LEFT(i) a_tile[k * PITCH_A + LOCAL_Y + (i)*GROUP_SIZE_Y]
#define RIGHT(j) b_tile[k * PITCH_B + LOCAL_X + (j)*GROUP_SIZE_X]

KERNEL_BEGIN
    const int t = LOCAL_Y * GROUP_SIZE_X + LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * OUTPUTS(TN);
    int a0 = 0;
    int b0 = 0;
    int y0 = 0;
    EACH_BATCH_DIM(GROUP_Z, a0 += index * P.a_batch[d]; b0 += index * P.b_batch[d]; y0 += index * P.y_batch[d];)
    VEC4 sum[RM * RN / 4];
    UNROLL for (int i = 0; i < RM * RN / 4; i++)
        sum[i] = ZERO4;
    for (int k0 = 0; k0 < P.k; k0 += TK) {
#ifdef WIDE_A
        EACH(e, TM / 4 * TK / 4) {
            int m = e / (TK / 4);
            int k = e % (TK / 4) * 4;
            VEC4 v0 = A4(m * 4, k);
            VEC4 v1 = A4(m * 4 + 1, k);
            VEC4 v2 = A4(m * 4 + 2, k);
            VEC4 v3 = A4(m * 4 + 3, k);
            STORE_COLUMNS(a_tile, k * PITCH_A + m, PITCH_A, v0, v1, v2, v3);
        }
#else
        EACH(e, TM / 4 * TK) {
            int m = e / TK * 4;
            int k = e % TK;
            a_tile[k * PITCH_A + m / 4] = MAKE_VEC4(A1(m, k), A1(m + 1, k), A1(m + 2, k), A1(m + 3, k));
        }
#endif
#if defined(WIDE_B) && defined(B_ALONG_N)
        EACH(e, TN / 4 * TK) {
            int k = e / (TN / 4);
            int n = e % (TN / 4);
            b_tile[k * PITCH_B + n] = B4(n * 4, k);
        }
#elif defined(WIDE_B)
        EACH(e, TN / 4 * TK / 4) {
            int n = e / (TK / 4);
            int k = e % (TK / 4) * 4;
            VEC4 v0 = B4(n * 4, k);
            VEC4 v1 = B4(n * 4 + 1, k);
            VEC4 v2 = B4(n * 4 + 2, k);
            VEC4 v3 = B4(n * 4 + 3, k);
            STORE_COLUMNS(b_tile, k * PITCH_B + n, PITCH_B, v0, v1, v2, v3);
        }
#else
        EACH(e, TN / 4 * TK) {
#ifdef B_ALONG_N
            int k = e / (TN / 4);
            int n = e % (TN / 4) * 4;
#else
            int n = e / TK * 4;
            int k = e % TK;
#endif
            b_tile[k * PITCH_B + n / 4] = MAKE_VEC4(B1(n, k), B1(n + 1, k), B1(n + 2, k), B1(n + 3, k));
        }
#endif
        BARRIER();
        UNROLL_4 for (int k = 0; k < TK; k++) {
            ADD_PRODUCT(sum, RM, RN, LEFT, RIGHT)
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < RM; i++) {
        int m = m0 + (LOCAL_Y + i / 4 * GROUP_SIZE_Y) * 4 + i % 4;
        UNROLL for (int j = 0; j < RN / 4; j++) {
            UNROLL for (int lane = 0; lane < OUTPUTS(4); lane++) {
                int n = OUTPUT((LOCAL_X + j * GROUP_SIZE_X) * 4 + lane);
                if (m < P.m && n < P.n) {
                    float v = PART_OF(sum[i * (RN / 4) + j], lane) PLUS_BIAS(n);
#ifdef GATED
                    v *= tern_gelu(PART_OF(sum[i * (RN / 4) + j], lane + 2) PLUS_BIAS(P.n + n));
#endif
                    int at = y0 + m * P.y_m + n * P.y_n;
                    STORE(y, at, POST(v, at, n));
                }
            }
        }
    }
KERNEL_END
