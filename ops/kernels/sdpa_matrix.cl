/* sdpa.cl for devices with matrix units: f16 or bf16, heads that are multiples of 8, elements of a head behind each other. A group makes 64
 * queries of one head, a subgroup 16 of them; 32 keys and values at a time go through shared memory. What a query has so far stays in
 * matrices. Scores are exponents of 2. What a query has is rescaled only where the largest score grows by more than 11.5 [Milakov 2018; Dao
 * 2022]: the powers, rounded to the 16 bits of the factors, are below 2^11.5 then, and rounding is relative. A query that sees no key gives
 * zeros.
 * Host: MATRIX, MATRIX_SUBGROUP, MATRIX_BF16; E, EV (sizes of heads); BATCH_NDIM; MASK with MASK_BOOL or not; CAUSAL; WIDE_Y: eight elements
 * are stored at once. */
#ifdef MASK
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) READ(3, mask) WRITE(4, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) WRITE(3, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_SDPA
#define KERNEL_SHARED(ARRAY)                                                                                                    \
    ARRAY(UINT4, tile, (STRIPS_AT + 2 * STRIPS > BQ * PITCH_E ? STRIPS_AT + 2 * STRIPS : BQ * PITCH_E) / 8) ARRAY(float, rescale, BQ) \
    ARRAY(float, sums, ITEMS) ARRAY(int, grown, 1)

#define ITEMS GROUP_SIZE_X
#define BQ 64 /* four subgroups */
#define BK 32
#define NE ((E + 15) / 16) /* matrices that a head takes; what is behind its end is zero */
#define NV ((EV + 15) / 16)
#define PITCH_E (16 * NE + 8)
#define PITCH_V (16 * NV + 8)
#define PITCH_P (BK + 8)
#define PITCH_S (BK + 4)
/* Where things are in the tile, in elements of 16 bits: keys at 0, values, powers; then scores as f32. Queries first take it all. */
#define VALUES_AT (BK * PITCH_E)
#define PARTS_AT (VALUES_AT + BK * PITCH_V)
#define STRIPS_AT (PARTS_AT + BQ * PITCH_P)
#define STRIPS (BQ * PITCH_S) /* floats */
#define K_LOADS ((BK * 2 * NE + ITEMS - 1) / ITEMS)
#define V_LOADS ((BK * 2 * NV + ITEMS - 1) / ITEMS)
#define Q_LOADS ((BQ * 2 * NE + ITEMS - 1) / ITEMS)
#define LANES_PER_ROW (MATRIX_SUBGROUP / 16)
#define MINE (BK / LANES_PER_ROW) /* scores of its row of which an item makes powers */

#define RESULT(v, gate, i, at, c) POST((v) * f, at, c)

#ifdef CAUSAL
#define SEES(at) ((at) < P.s && (at) <= l)
#else
#define SEES(at) ((at) < P.s)
#endif
#define LOG2_E 1.4426950408889634f
#if defined(MASK_BOOL)
#define MASKED(v, at) (LOADI(mask, mask0 + l * P.mask_l + (at)*P.mask_s) != 0 ? (v) : -INFINITE)
#elif defined(MASK)
/* The least float of bf16 stays finite, so that a row that is masked so sees all keys alike. */
FN float exponent_of_mask(float m) { return m < -2.3e38f && m > -INFINITE ? -3.3e38f : m * LOG2_E; }
#define MASKED(v, at) ((v) + exponent_of_mask(LOAD(mask, mask0 + l * P.mask_l + (at)*P.mask_s)))
#else
#define MASKED(v, at) (v)
#endif
/* Whether a query may not see a key of the block. */
#if defined(MASK) || defined(CAUSAL)
#define IS_HIDING(s0) true
#else
#define IS_HIDING(s0) ((s0) + BK > P.s)
#endif

/* Declares next: this item's loads of `n` rows from `first` on, `size` of 16 * N elements each; and puts them into the tile. */
#define FETCH(next, loads, n, N, size, buffer, from, first, rows, stride)                       \
    UNROLL for (int r = 0; r < loads; r++) {                                                    \
        int e = LOCAL_X + r * ITEMS;                                                            \
        int row = e / (2 * N);                                                                  \
        int c = e % (2 * N) * 8;                                                                \
        next[r] = MAKE_UINT4(0u, 0u, 0u, 0u);                                                   \
        if (row < n && (first) + row < rows && c < size)                                        \
            next[r] = LOAD8(buffer, from + ((first) + row) * stride + c);                       \
    }
#define KEEP(next, loads, n, N, at, pitch)                       \
    UNROLL for (int r = 0; r < loads; r++) {                     \
        int e = LOCAL_X + r * ITEMS;                             \
        if (e < n * 2 * N)                                       \
            tile[(at + e / (2 * N) * pitch) / 8 + e % (2 * N)] = next[r]; \
    }

#ifdef MATRIX_BF16
#define PART(v) tern_bf16_of_f32(v)
#else
#define PART(v) tern_f16_of_f32(v)
#endif
#define PAIR(v, w) (PART(v) | PART(w) << 16)

KERNEL_BEGIN
    const int l0 = GROUP_X * BQ;
    int q0 = 0;
    int key0 = 0;
    int v0 = 0;
    int mask0 = 0;
    int y0 = 0;
    EACH_BATCH_DIM(GROUP_Y, q0 += index * P.q_batch[d]; key0 += index * P.key_batch[d]; v0 += index * P.v_batch[d];
                   mask0 += index * P.mask_batch[d]; y0 += index * P.y_batch[d];)
    const int my_row = SUBGROUP_ID * 16 + LANE / LANES_PER_ROW;
    const int my_part = LANE % LANES_PER_ROW * MINE;
    const int l = l0 + my_row;
    const int strip = STRIPS_AT / 2 + SUBGROUP_ID * 16 * PITCH_S; /* floats */
    const int scores = (STRIPS_AT / 2 + my_row * PITCH_S + my_part) / 4; /* vectors */
    const float scale = P.scale * LOG2_E;
    float largest = -INFINITE;
    float sum = 0.0f;
    MATRIX_A(q, NE);
    MATRIX_A(part, 1);
    MATRIX_B(right, 1);
    MATRIX_SUM(score, 1);
    MATRIX_SUM(result, NV);
    UNROLL for (int j = 0; j < NV; j++)
        MATRIX_ZERO(result[j]);
    UINT4 q_next[Q_LOADS];
    FETCH(q_next, Q_LOADS, BQ, NE, E, query, q0, l0, P.l, P.q_l)
    KEEP(q_next, Q_LOADS, BQ, NE, 0, PITCH_E)
    if (LOCAL_X == 0)
        grown[0] = -1;
    BARRIER();
    UNROLL for (int i = 0; i < NE; i++)
        MATRIX_LOAD_A(q[i], tile, SUBGROUP_ID * 16 * PITCH_E + 16 * i, PITCH_E, MATRIX_ROWS);
    BARRIER();
#ifdef CAUSAL
    const int s_end = P.s < l0 + BQ ? P.s : l0 + BQ; /* keys behind the last query are not seen */
#else
    const int s_end = P.s;
#endif
    UINT4 k_next[K_LOADS];
    UINT4 v_next[V_LOADS];
    FETCH(k_next, K_LOADS, BK, NE, E, key, key0, 0, P.s, P.key_s)
    KEEP(k_next, K_LOADS, BK, NE, 0, PITCH_E)
    BARRIER();
    for (int s0 = 0; s0 < s_end; s0 += BK) {
        FETCH(v_next, V_LOADS, BK, NV, EV, value, v0, s0, P.s, P.v_s)
        UNROLL for (int n = 0; n < BK; n += 16) {
            MATRIX_ZERO(score[0]);
            UNROLL for (int i = 0; i < NE; i++) {
                MATRIX_LOAD_B(right[0], tile, n * PITCH_E + 16 * i, PITCH_E, MATRIX_COLUMNS);
                MATRIX_MULTIPLY(score[0], q[i], MATRIX_ROWS, right[0], MATRIX_COLUMNS);
            }
            MATRIX_STORE(score[0], tile, strip + n, PITCH_S);
        }
        BARRIER(); /* scores are there; keys and the values before have been used */
        KEEP(v_next, V_LOADS, BK, NV, VALUES_AT, PITCH_V)
        FETCH(k_next, K_LOADS, BK, NE, E, key, key0, s0 + BK, P.s, P.key_s)
        float p[MINE]; /* scores, then powers */
        float top = -INFINITE;
        UNROLL for (int j = 0; j < MINE; j += 4) {
            UINT4 v = tile[scores + j / 4];
            p[j] = AS_FLOAT(v.x) * scale;
            p[j + 1] = AS_FLOAT(v.y) * scale;
            p[j + 2] = AS_FLOAT(v.z) * scale;
            p[j + 3] = AS_FLOAT(v.w) * scale;
        }
        if (IS_HIDING(s0)) {
            UNROLL for (int j = 0; j < MINE; j++) {
                int at = s0 + my_part + j;
                p[j] = l < P.l && SEES(at) ? MASKED(p[j], at) : -INFINITE;
            }
        }
        UNROLL for (int j = 0; j < MINE; j++)
            top = p[j] > top ? p[j] : top;
#ifdef SUBGROUP
        UNROLL for (int step = 1; step < LANES_PER_ROW; step *= 2) {
            float other = SHUFFLE_XOR(top, step);
            top = other > top ? other : top;
        }
#else
        sums[SUBGROUP_ID * MATRIX_SUBGROUP + LANE] = top;
        BARRIER();
        UNROLL for (int i = 0; i < LANES_PER_ROW; i++) {
            float other = sums[my_row * LANES_PER_ROW + i];
            top = other > top ? other : top;
        }
#endif
        float up = 1.0f;
        if (largest == -INFINITE) {
            largest = top; /* nothing has been summed */
        } else if (top > largest + 11.5f) {
            up = tern_quick_exp2(largest - top);
            sum *= up;
            largest = top;
            grown[0] = s0; /* whoever writes it writes the same */
        }
        rescale[my_row] = up;
        const float base = largest == -INFINITE ? 0.0f : largest;
        UNROLL for (int j = 0; j < MINE; j++) {
            p[j] = tern_quick_exp2(p[j] - base);
            sum += p[j];
        }
        UNROLL for (int j = 0; j < MINE; j += 8) {
            tile[(PARTS_AT + my_row * PITCH_P + my_part + j) / 8] =
                MAKE_UINT4(PAIR(p[j], p[j + 1]), PAIR(p[j + 2], p[j + 3]), PAIR(p[j + 4], p[j + 5]), PAIR(p[j + 6], p[j + 7]));
        }
        KEEP(k_next, K_LOADS, BK, NE, 0, PITCH_E)
        BARRIER();
        if (grown[0] == s0) {
            UNROLL for (int j = 0; j < NV; j++) {
                MATRIX_STORE(result[j], tile, strip, PITCH_S);
                BARRIER();
                for (int e = LANE; e < 64; e += MATRIX_SUBGROUP) {
                    int at = (strip + e / 4 * PITCH_S) / 4 + e % 4;
                    float f = rescale[SUBGROUP_ID * 16 + e / 4];
                    UINT4 v = tile[at];
                    tile[at] = MAKE_UINT4(AS_UINT(AS_FLOAT(v.x) * f), AS_UINT(AS_FLOAT(v.y) * f), AS_UINT(AS_FLOAT(v.z) * f),
                                          AS_UINT(AS_FLOAT(v.w) * f));
                }
                BARRIER();
                MATRIX_LOAD_SUM(result[j], tile, strip, PITCH_S);
                BARRIER();
            }
        }
        UNROLL for (int k = 0; k < BK; k += 16) {
            MATRIX_LOAD_A(part[0], tile, PARTS_AT + SUBGROUP_ID * 16 * PITCH_P + k, PITCH_P, MATRIX_ROWS);
            UNROLL for (int j = 0; j < NV; j++) {
                MATRIX_LOAD_B(right[0], tile, VALUES_AT + k * PITCH_V + 16 * j, PITCH_V, MATRIX_ROWS);
                MATRIX_MULTIPLY(result[j], part[0], MATRIX_ROWS, right[0], MATRIX_ROWS);
            }
        }
    }
    sums[SUBGROUP_ID * MATRIX_SUBGROUP + LANE] = sum;
    BARRIER();
    UNROLL for (int j = 0; j < NV; j++) {
        MATRIX_STORE(result[j], tile, strip, PITCH_S);
        BARRIER();
        for (int e = LANE * STORE_WIDTH; e < 256; e += MATRIX_SUBGROUP * STORE_WIDTH) {
            int row = SUBGROUP_ID * 16 + e / 16;
            int c = 16 * j + e % 16;
            float all = 0.0f;
            UNROLL for (int i = 0; i < LANES_PER_ROW; i++)
                all += sums[row * LANES_PER_ROW + i];
            float f = all == 0.0f ? 0.0f : 1.0f / all;
            int to = y0 + (l0 + row) * P.y_l + c * P.y_e;
            int from = STRIPS_AT / 2 + row * PITCH_S + c - 16 * j;
            if (l0 + row < P.l && c < EV) {
                STORE_RESULTS(from, to, c)
            }
        }
        BARRIER();
    }
KERNEL_END
