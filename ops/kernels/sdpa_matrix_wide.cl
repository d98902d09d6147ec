/* sdpa_matrix.cl for large heads, such as the VAE's one of 512: f16 or bf16, no mask. A group makes 64 queries; the values that these have
 * so far are shared out to its subgroups by columns, in matrices. BK keys at a time: queries and keys come in parts of EC elements, a
 * subgroup makes 32 queries' scores of its part of the keys; scores and powers go through shared memory; then values come in parts of 16
 * rows. Parts have two stages, as in matmul_matrix.cl. Powers, of e here, are rounded as in sdpa_matrix.cl, and results rescaled where the
 * largest score grows by more than 8.
 * With a head of 512 and subgroups of 32 an item has 128 floats of results and 32 of scores: docs/kernel-texts.md counts the rest.
 * Host: MATRIX, MATRIX_SUBGROUP, MATRIX_BF16; E, EV (sizes of heads); BK; BATCH_NDIM; WIDE_Y: eight elements are stored at once. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) WRITE(3, y)
#define KERNEL_PARAMS TERN_PARAMS_SDPA
#define KERNEL_SHARED(ARRAY) ARRAY(UINT4, tile, TILE / 8) ARRAY(float, tops, ITEMS) ARRAY(float, rescale, BQ) ARRAY(int, grown, 1)

#define ITEMS GROUP_SIZE_X
#define SUBGROUPS (ITEMS / MATRIX_SUBGROUP)
#define BQ 64
#define EC 32
/* Scores: two rows of subgroups, with two matrices of queries and MN of keys each. */
#define SN (SUBGROUPS / 2)
#define MN (BK / 16 / SN)
#define LANES_PER_ROW (ITEMS / BQ)
#define MINE (BK / LANES_PER_ROW) /* scores of its row of which an item makes powers */
/* Values: matrix j of a subgroup is number j * SUBGROUPS + SUBGROUP_ID of those that a head takes. A part has VJ of each subgroup. */
#define NV (((EV + 15) / 16 + SUBGROUPS - 1) / SUBGROUPS)
#if NV % 2 == 0
#define VJ 2
#else
#define VJ 1
#endif
#define VC (16 * VJ * SUBGROUPS)
/* Eight elements more than a row has: eight rows, which a load of a matrix reads at once, lie in all banks. */
#define PITCH(width) ((width) + 8)
#define PITCH_S (BK + 4)
/* Where things are in the tile, in elements of 16 bits: two stages of queries and keys; or scores, as f32; or powers, and behind them two
 * stages of values, or a matrix of sums of each subgroup. */
#define STAGE ((BQ + BK) * PITCH(EC))
#define VALUES_AT (BQ * PITCH(BK))
#define V_STAGE (16 * PITCH(VC))
#define PITCH_SUMS 20
#define SUMS (2 * 16 * PITCH_SUMS * SUBGROUPS)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define TILE LARGER(LARGER(2 * STAGE, 2 * BQ * PITCH_S), VALUES_AT + LARGER(2 * V_STAGE, SUMS))
#define Q_LOADS ((BQ * EC / 8 + ITEMS - 1) / ITEMS)
#define K_LOADS ((BK * EC / 8 + ITEMS - 1) / ITEMS)
#define V_LOADS ((16 * VC / 8 + ITEMS - 1) / ITEMS)

#define RESULT(v, gate, i, at, c) POST((v) * f, at, c)

/* This item's loads of `n` rows from `first` on, `width` elements each from `begin` on; and puts them into the tile. */
#define FETCH(next, loads, n, width, buffer, from, first, rows, begin, size, stride) \
    UNROLL for (int r = 0; r < loads; r++) {                                         \
        int at = LOCAL_X + r * ITEMS;                                                \
        int line = at / ((width) / 8);                                               \
        int c = (begin) + at % ((width) / 8) * 8;                                    \
        next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);                                        \
        if (line < (n) && (first) + line < (rows) && c < (size))                     \
            next[r] = LOAD8(buffer, from + ((first) + line) * (stride) + c);         \
    }
#define KEEP(next, loads, n, width, to)                                                          \
    UNROLL for (int r = 0; r < loads; r++) {                                                     \
        int at = LOCAL_X + r * ITEMS;                                                            \
        if (at < (n) * ((width) / 8))                                                            \
            tile[((to) + at / ((width) / 8) * PITCH(width)) / 8 + at % ((width) / 8)] = next[r]; \
    }
#define FETCH_KEYS(first, begin)                                        \
    FETCH(q_next, Q_LOADS, BQ, EC, query, q0, l0, P.l, begin, E, P.q_l) \
    FETCH(k_next, K_LOADS, BK, EC, key, key0, first, P.s, begin, E, P.key_s)
#define FETCH_VALUES(first, h) FETCH(v_next, V_LOADS, 16, VC, value, v0, first, P.s, (h)*VC, EV, P.v_s)

#ifdef MATRIX_BF16
#define PART(v) tern_bf16_of_f32(v)
#else
#define PART(v) tern_f16_of_f32(v)
#endif
#define PAIR(i) (PART(p[i]) | PART(p[(i) + 1]) << 16)
/* Scores i and on of this item's, from a vector of the tile: of keys n and on; behind the last key there are none. */
#define SCORE(i, v, n)                                    \
    p[i] = (n) < P.s ? AS_FLOAT(v) * P.scale : -INFINITE; \
    top = LARGER(p[i], top);
#define SCORES(i, v, n) SCORE(i, (v).x, n) SCORE((i) + 1, (v).y, (n) + 1) SCORE((i) + 2, (v).z, (n) + 2) SCORE((i) + 3, (v).w, (n) + 3)
#define SCALED(v) AS_UINT(AS_FLOAT(v) * f)

KERNEL_BEGIN
    const int l0 = GROUP_X * BQ;
    int q0 = 0;
    int key0 = 0;
    int v0 = 0;
    int y0 = 0;
    EACH_BATCH_DIM(GROUP_Y, q0 += index * P.q_batch[d]; key0 += index * P.key_batch[d]; v0 += index * P.v_batch[d];
                   y0 += index * P.y_batch[d];)
    const int sub_m = SUBGROUP_ID / SN * 32;
    const int sub_n = SUBGROUP_ID % SN * (16 * MN);
    const int strip = VALUES_AT / 2 + SUBGROUP_ID * (16 * PITCH_SUMS); /* floats */
    const int row = LOCAL_X / LANES_PER_ROW;
    const int my_part = LOCAL_X % LANES_PER_ROW;
    float largest = -INFINITE; /* of the row, and the sum of this item's powers */
    float sum = 0.0f;
    MATRIX_A(left, 4);
    MATRIX_B(right, 1);
    MATRIX_SUM(score, 2 * MN);
    MATRIX_SUM(result, 4 * NV);
    UNROLL for (int j = 0; j < 4 * NV; j++)
        MATRIX_ZERO(result[j]);
    if (LOCAL_X == 0)
        grown[0] = -1;
    UINT4 q_next[Q_LOADS];
    UINT4 k_next[K_LOADS];
    UINT4 v_next[V_LOADS];
    FETCH_KEYS(0, 0)
    for (int s0 = 0; s0 < P.s; s0 += BK) {
        int stage = 0;
        UNROLL for (int j = 0; j < 2 * MN; j++)
            MATRIX_ZERO(score[j]);
        for (int e0 = 0; e0 < E; e0 += EC) {
            KEEP(q_next, Q_LOADS, BQ, EC, stage)
            KEEP(k_next, K_LOADS, BK, EC, stage + BQ * PITCH(EC))
            BARRIER();
            if (e0 + EC < E) {
                FETCH_KEYS(s0, e0 + EC)
            }
            UNROLL for (int k = 0; k < EC; k += 16) {
                UNROLL for (int i = 0; i < 2; i++)
                    MATRIX_LOAD_A(left[i], tile, stage + (sub_m + 16 * i) * PITCH(EC) + k, PITCH(EC), MATRIX_ROWS);
                UNROLL for (int j = 0; j < MN; j++) {
                    MATRIX_LOAD_B(right[0], tile, stage + (BQ + sub_n + 16 * j) * PITCH(EC) + k, PITCH(EC), MATRIX_COLUMNS);
                    UNROLL for (int i = 0; i < 2; i++)
                        MATRIX_MULTIPLY(score[i * MN + j], left[i], MATRIX_ROWS, right[0], MATRIX_COLUMNS);
                }
            }
            stage = STAGE - stage;
        }
        FETCH_VALUES(s0, 0)
        BARRIER(); /* queries and keys have been used */
        UNROLL for (int i = 0; i < 2; i++) {
            UNROLL for (int j = 0; j < MN; j++)
                MATRIX_STORE(score[i * MN + j], tile, (sub_m + 16 * i) * PITCH_S + sub_n + 16 * j, PITCH_S);
        }
        BARRIER();
        float p[MINE]; /* scores, then powers: eight neighbours at a time */
        float top = -INFINITE;
        UNROLL for (int j = 0; j < MINE; j += 8) {
            int n = j * LANES_PER_ROW + my_part * 8;
            UINT4 low = tile[(row * PITCH_S + n) / 4];
            UINT4 high = tile[(row * PITCH_S + n) / 4 + 1];
            SCORES(j, low, s0 + n)
            SCORES(j + 4, high, s0 + n + 4)
        }
        tops[LOCAL_X] = top;
        BARRIER(); /* tops are there; scores have been used */
        UNROLL for (int i = 0; i < LANES_PER_ROW; i++)
            top = LARGER(tops[row * LANES_PER_ROW + i], top);
        float up = 1.0f;
        if (largest == -INFINITE) {
            largest = top; /* nothing has been summed */
        } else if (top > largest + 8.0f) {
            up = tern_exp(largest - top);
            sum *= up;
            largest = top;
            grown[0] = s0; /* whoever writes it writes the same */
        }
        if (my_part == 0)
            rescale[row] = up;
        UNROLL for (int j = 0; j < MINE; j += 8) {
            UNROLL for (int i = 0; i < 8; i++) {
                p[j + i] = p[j + i] == -INFINITE ? 0.0f : tern_exp(p[j + i] - largest);
                sum += p[j + i];
            }
            tile[row * (PITCH(BK) / 8) + j / 8 * LANES_PER_ROW + my_part] = MAKE_UINT4(PAIR(j), PAIR(j + 2), PAIR(j + 4), PAIR(j + 6));
        }
        BARRIER();
        if (grown[0] == s0) {
            UNROLL for (int i = 0; i < 4; i++) {
                UNROLL for (int j = 0; j < NV; j++) {
                    MATRIX_STORE(result[i * NV + j], tile, strip, PITCH_SUMS);
                    BARRIER();
                    for (int e = LANE; e < 64; e += MATRIX_SUBGROUP) {
                        int at = (strip + e / 4 * PITCH_SUMS) / 4 + e % 4;
                        float f = rescale[16 * i + e / 4];
                        UINT4 v = tile[at];
                        tile[at] = MAKE_UINT4(SCALED(v.x), SCALED(v.y), SCALED(v.z), SCALED(v.w));
                    }
                    BARRIER();
                    MATRIX_LOAD_SUM(result[i * NV + j], tile, strip, PITCH_SUMS);
                    BARRIER();
                }
            }
        }
        FETCH_KEYS(s0 + BK, 0)
        stage = 0;
        for (int k = 0; k < BK && s0 + k < P.s; k += 16) {
            UNROLL for (int h = 0; h < NV / VJ; h++) {
                KEEP(v_next, V_LOADS, 16, VC, VALUES_AT + stage)
                BARRIER();
                if (h + 1 < NV / VJ) {
                    FETCH_VALUES(s0 + k, h + 1)
                } else if (k + 16 < BK) {
                    FETCH_VALUES(s0 + k + 16, 0)
                }
                if (h == 0) {
                    UNROLL for (int i = 0; i < 4; i++)
                        MATRIX_LOAD_A(left[i], tile, 16 * i * PITCH(BK) + k, PITCH(BK), MATRIX_ROWS);
                }
                UNROLL for (int j = 0; j < VJ; j++) {
                    MATRIX_LOAD_B(right[0], tile, VALUES_AT + stage + 16 * (j * SUBGROUPS + SUBGROUP_ID), PITCH(VC), MATRIX_ROWS);
                    UNROLL for (int i = 0; i < 4; i++)
                        MATRIX_MULTIPLY(result[i * NV + h * VJ + j], left[i], MATRIX_ROWS, right[0], MATRIX_ROWS);
                }
                stage = V_STAGE - stage;
            }
        }
        BARRIER(); /* powers and values have been used */
    }
    tops[LOCAL_X] = sum;
    BARRIER();
    float all = 0.0f;
    UNROLL for (int i = 0; i < LANES_PER_ROW; i++)
        all += tops[row * LANES_PER_ROW + i];
    if (my_part == 0)
        rescale[row] = all == 0.0f ? 0.0f : 1.0f / all;
    UNROLL for (int i = 0; i < 4; i++) {
        UNROLL for (int j = 0; j < NV; j++) {
            MATRIX_STORE(result[i * NV + j], tile, strip, PITCH_SUMS);
            BARRIER();
            for (int e = LANE * STORE_WIDTH; e < 256; e += MATRIX_SUBGROUP * STORE_WIDTH) {
                int line = 16 * i + e / 16;
                int c = 16 * (j * SUBGROUPS + SUBGROUP_ID) + e % 16;
                float f = rescale[line];
                int to = y0 + (l0 + line) * P.y_l + c * P.y_e;
                if (l0 + line < P.l && c < EV) {
                    STORE_RESULTS(strip + e / 16 * PITCH_SUMS + e % 16, to, c)
                }
            }
            BARRIER();
        }
    }
KERNEL_END
