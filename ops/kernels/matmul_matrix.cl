/* matmul.cl for devices with matrix units: y (m, n) = a (m, k) b (k, n) + bias (n), batched; a and b are both f16 or both bf16, sums f32.
 * A group of SM x SN subgroups makes TM x TN values, a subgroup MM x MN matrices of 16 x 16. Tiles TK deep lie in shared memory with the
 * elements as they are stored, in two stages: while one is multiplied, the next is on its way into registers, then into the other stage.
 * Host: MATRIX, MATRIX_SUBGROUP, MATRIX_BF16; TK, MM, MN, SM, SN; BATCH_NDIM; BIAS; WIDE_A, WIDE_B, WIDE_Y: eight elements at once; B_ALONG_N:
 * b's neighbours in memory are along n, and its tile lies so; PARTS: group z sums only its part of the depth, y is a product for each;
 * GATED: b has n columns of values, then n of gates, y is values times gelu of their gates; a tile has eight of each by turns. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, a) READ(1, b) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, a) READ(1, b) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_MATMUL
#define KERNEL_SHARED(ARRAY) ARRAY(UINT4, tile, (2 * STAGE > 2 * STRIPS ? 2 * STAGE : 2 * STRIPS) / 8)

#define ITEMS GROUP_SIZE_X
#define TM (16 * MM * SM)
#define TN (16 * MN * SN)
/* Eight elements more than a row has: eight rows, which a load of a matrix reads at once, lie in all banks. */
#define PITCH_A (TK + 8)
#ifdef B_ALONG_N
#define PITCH_B (TN + 8)
#define STAGE (TM * PITCH_A + TK * PITCH_B)
#define B_LAYOUT MATRIX_ROWS
#define B_AT(k, n) ((k)*PITCH_B + (n))
#define B_ROW (TN / 8) /* loads of a row of b's tile */
#else
#define PITCH_B (TK + 8)
#define STAGE (TM * PITCH_A + TN * PITCH_B)
#define B_LAYOUT MATRIX_COLUMNS
#define B_AT(k, n) ((n)*PITCH_B + (k))
#define B_ROW (TK / 8)
#endif
#define STRIPS (SM * SN * STRIP_FLOATS(MN))
#define A_LOADS ((TM * TK / 8 + ITEMS - 1) / ITEMS)
#define B_LOADS ((TN * TK / 8 + ITEMS - 1) / ITEMS)

/* Column q of b's tile: the column of y, and how far behind it b has it. */
#define OUTPUT(q) (n0 + OUTPUT_OF(q))
#define BEHIND(q) (IS_GATE(q) * P.n)

#ifdef BIAS
#define BIASES(name, c, first) LOAD_COLUMNS(name, (c) < P.n, bias, first, P.bias_n)
#define PLUS_BIAS(name) +name
#else
#define BIASES(name, c, first)
#define PLUS_BIAS(name)
#endif
#ifdef GATED
#define EACH_COLUMN(c) BIASES(biases, c, c) BIASES(gate_biases, c, P.n + (c))
#define RESULT(v, gate, i, at, c) POST(((v)PLUS_BIAS(biases[i])) * tern_gelu((gate)PLUS_BIAS(gate_biases[i])), at, c)
#else
#define EACH_COLUMN(c) BIASES(biases, c, c)
#define RESULT(v, gate, i, at, c) POST((v)PLUS_BIAS(biases[i]), at, c)
#endif
#define EACH_ROW(m) const int line = y0 + (m)*P.y_m;
#define PLACE(n) (line + (n)*P.y_n)
#define CHANNEL(n) (n)

KERNEL_BEGIN
    const int t = LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * OUTPUTS_OF(TN);
    const int sub_m = SUBGROUP_ID / SN * (16 * MM);
    const int sub_n = SUBGROUP_ID % SN * (16 * MN);
    int a0 = 0;
    int b0 = 0;
    int y0 = 0;
    EACH_BATCH_DIM(GROUP_Z, a0 += index * P.a_batch[d]; b0 += index * P.b_batch[d]; y0 += index * P.y_batch[d];)
    UINT4 a_next[A_LOADS];
    UINT4 b_next[B_LOADS];
    MATRIX_A(left, MM);
    MATRIX_B(right, 1);
    MATRIX_SUM(sum, MM * MN);
    UNROLL for (int i = 0; i < MM * MN; i++)
        MATRIX_ZERO(sum[i]);
    int stage = 0;
#ifdef PARTS
    const int part = ((P.k + TK - 1) / TK + PARTS - 1) / PARTS * TK;
    const int k_begin = GROUP_Z * part;
    const int k_end = k_begin + part < P.k ? k_begin + part : P.k;
#else
    const int k_begin = 0;
    const int k_end = P.k;
#endif
    /* fetches what comes after k0, multiplies k0's: at first there is nothing to multiply, at last nothing to fetch */
    for (int k0 = k_begin - TK; k0 < k_end; k0 += TK) {
        UNROLL for (int r = 0; r < A_LOADS; r++) {
            int e = t + r * ITEMS;
            int m = m0 + e / (TK / 8);
            int k = k0 + TK + e % (TK / 8) * 8;
            bool there = e < TM * TK / 8 && m < P.m;
            a_next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);
#ifdef WIDE_A
            if (there && k < k_end)
                a_next[r] = LOAD8(a, a0 + m * P.a_m + k);
#else
            uint w[8];
            UNROLL for (int i = 0; i < 8; i++) {
                w[i] = 0u;
                if (there && k + i < k_end)
                    w[i] = BITS(a, a0 + m * P.a_m + (k + i) * P.a_k);
            }
            a_next[r] = MAKE_UINT4(w[0] | w[1] << 16, w[2] | w[3] << 16, w[4] | w[5] << 16, w[6] | w[7] << 16);
#endif
        }
        UNROLL for (int r = 0; r < B_LOADS; r++) {
            int e = t + r * ITEMS;
#ifdef B_ALONG_N
            int k = k0 + TK + e / B_ROW;
            int q = e % B_ROW * 8;
            bool there = e < TN * TK / 8 && k < k_end;
#else
            int q = e / B_ROW;
            int k = k0 + TK + e % B_ROW * 8;
            bool there = e < TN * TK / 8 && OUTPUT(q) < P.n;
#endif
            int n = OUTPUT(q) + BEHIND(q);
            b_next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);
#ifdef WIDE_B
            if (there && OUTPUT(q) < P.n && k < k_end)
                b_next[r] = LOAD8(b, b0 + k * P.b_k + n * P.b_n);
#else
            uint w[8];
            UNROLL for (int i = 0; i < 8; i++) {
                w[i] = 0u;
#ifdef B_ALONG_N
                if (there && OUTPUT(q) + i < P.n)
                    w[i] = BITS(b, b0 + k * P.b_k + (n + i) * P.b_n);
#else
                if (there && k + i < k_end)
                    w[i] = BITS(b, b0 + n * P.b_n + (k + i) * P.b_k);
#endif
            }
            b_next[r] = MAKE_UINT4(w[0] | w[1] << 16, w[2] | w[3] << 16, w[4] | w[5] << 16, w[6] | w[7] << 16);
#endif
        }
        if (k0 >= k_begin) {
            UNROLL for (int k = 0; k < TK; k += 16) {
                UNROLL for (int i = 0; i < MM; i++)
                    MATRIX_LOAD_A(left[i], tile, stage + (sub_m + 16 * i) * PITCH_A + k, PITCH_A, MATRIX_ROWS);
                UNROLL for (int j = 0; j < MN; j++) {
                    MATRIX_LOAD_B(right[0], tile, stage + TM * PITCH_A + B_AT(k, sub_n + 16 * j), PITCH_B, B_LAYOUT);
                    UNROLL for (int i = 0; i < MM; i++)
                        MATRIX_MULTIPLY(sum[i * MN + j], left[i], MATRIX_ROWS, right[0], B_LAYOUT);
                }
            }
        }
        stage = STAGE - stage;
        UNROLL for (int r = 0; r < A_LOADS; r++) {
            int e = t + r * ITEMS;
            if (TM * TK / 8 % ITEMS == 0 || e < TM * TK / 8)
                tile[(stage + e / (TK / 8) * PITCH_A) / 8 + e % (TK / 8)] = a_next[r];
        }
        UNROLL for (int r = 0; r < B_LOADS; r++) {
            int e = t + r * ITEMS;
            if (TN * TK / 8 % ITEMS == 0 || e < TN * TK / 8)
                tile[(stage + TM * PITCH_A + e / B_ROW * PITCH_B) / 8 + e % B_ROW] = b_next[r];
        }
        BARRIER();
    }
    STORE_PRODUCT(sum, MM, MN, m0 + sub_m, n0 + OUTPUTS_OF(sub_n), P.m, P.n)
KERNEL_END
