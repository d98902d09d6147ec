/* Attention without the matrix of scores [Milakov 2018; Dao 2022]: a group makes BQ queries of one head. It goes over the keys in blocks of
 * BK; each query keeps its largest score so far, the sum of the exponentials, and its output so far. An item has four queries: it
 * computes their scores with four keys, as products of tiles, and then COLS columns of their outputs. Queries and keys come in parts of EC
 * elements, values in parts of KC keys. A query that sees no key gives zeros.
 * Host: E, EV (sizes of heads), EC (a multiple of 4), KC (divides BK); BATCH_NDIM; MASK with MASK_BOOL or not; CAUSAL;
 * WIDE: elements of queries and keys are loaded by four. */
#ifdef MASK
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) READ(3, mask) WRITE(4, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) WRITE(3, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_SDPA
#define BQ (GROUP_SIZE_Y * 4)
#define BK (GROUP_SIZE_X * 4)
#define KERNEL_SHARED(ARRAY)                                                                                                   \
    ARRAY(VEC4, tile, EC * PITCH) ARRAY(VEC4, weight, BK * PITCH_W) ARRAY(VEC4, part, GROUP_SIZE_X * BQ / 4) ARRAY(VALUES, values, KC * ROW)

/* A row of the tile is one element of the heads: of the queries, then of the keys. One of `weight` is one key: of its queries. One
 * more vector keeps transposed writes off each other's banks. */
#define PITCH (BQ / 4 + BK / 4 + 1)
#define PITCH_W (BQ / 4 + 1)
#define ITEMS (GROUP_SIZE_X * GROUP_SIZE_Y)
#define COLS ((EV + GROUP_SIZE_X - 1) / GROUP_SIZE_X)
/* Columns lie by four with each item when they share out so. */
#if EV % (4 * GROUP_SIZE_X) == 0
#define VALUES VEC4
#define ROW (EV / 4)
#else
#define VALUES float
#define ROW (COLS * GROUP_SIZE_X)
#endif
#define QUERY(i) tile[k * PITCH + LOCAL_Y]
#define KEY(j) tile[k * PITCH + BQ / 4 + LOCAL_X]
/* Element `deep` of query or key number n of the block; WIDE: and of the three behind it. */
#ifdef WIDE
#define QUERY_AT(n, deep) (l0 + (n) < P.l && (deep) < E ? LOAD4(query, q0 + (l0 + (n)) * P.q_l + (deep)) : ZERO4)
#define KEY_AT(n, deep) (s0 + (n) < P.s && (deep) < E ? LOAD4(key, key0 + (s0 + (n)) * P.key_s + (deep)) : ZERO4)
#else
#define QUERY_AT(n, deep) (l0 + (n) < P.l && (deep) < E ? LOAD(query, q0 + (l0 + (n)) * P.q_l + (deep)*P.q_e) : 0.0f)
#define KEY_AT(n, deep) (s0 + (n) < P.s && (deep) < E ? LOAD(key, key0 + (s0 + (n)) * P.key_s + (deep)*P.key_e) : 0.0f)
#endif
/* Takes EC elements of a block of queries or keys to the tile, from vector `begin` of its rows on. */
#ifdef WIDE
#define TAKE(size, begin, AT)                                                                                                  \
    for (int b = t; b < (size) / 4 * (EC / 4); b += ITEMS) {                                                                   \
        int n = b / (EC / 4);                                                                                                  \
        int k = b % (EC / 4) * 4;                                                                                              \
        VEC4 w0 = AT(n * 4, e0 + k);                                                                                           \
        VEC4 w1 = AT(n * 4 + 1, e0 + k);                                                                                       \
        VEC4 w2 = AT(n * 4 + 2, e0 + k);                                                                                       \
        VEC4 w3 = AT(n * 4 + 3, e0 + k);                                                                                       \
        STORE_COLUMNS(tile, k * PITCH + (begin) + n, PITCH, w0, w1, w2, w3);                                                   \
    }
#else
#define TAKE(size, begin, AT)                                                                                                  \
    for (int b = t; b < (size) / 4 * EC; b += ITEMS) {                                                                         \
        int n = b / EC;                                                                                                        \
        int k = b % EC;                                                                                                        \
        tile[k * PITCH + (begin) + n] =                                                                                        \
            MAKE_VEC4(AT(n * 4, e0 + k), AT(n * 4 + 1, e0 + k), AT(n * 4 + 2, e0 + k), AT(n * 4 + 3, e0 + k));                 \
    }
#endif
#define VALUE(row, col) ((row) < P.s && (col) < EV ? LOAD(value, v0 + (row)*P.v_s + (col)*P.v_e) : 0.0f)
#ifdef CAUSAL
#define SEES(row, col) ((row) < P.l && (col) < P.s && (col) <= (row))
#else
#define SEES(row, col) ((row) < P.l && (col) < P.s)
#endif
#define MASK_AT(row, col) (mask0 + (row)*P.mask_l + (col)*P.mask_s)
#if defined(MASK_BOOL)
#define APPLY_MASK(col) seen = LOADI(mask, MASK_AT(l, col)) != 0;
#elif defined(MASK)
#define APPLY_MASK(col) dot += LOAD(mask, MASK_AT(l, col));
#else
#define APPLY_MASK(col)
#endif
/* The score of query l with key j of this item's four, or that it is not seen. */
#define KEEP(lane, j)                             \
    {                                             \
        bool seen = SEES(l, s0 + LOCAL_X * 4 + j); \
        float dot = score[i].lane * P.scale;      \
        if (seen) {                               \
            APPLY_MASK(s0 + LOCAL_X * 4 + j)      \
        }                                         \
        score[i].lane = seen ? dot : -INFINITE;   \
    }
#define LARGER(a, b) ((b) > (a) || IS_NAN(b) ? (b) : (a))

FN VEC4 larger4(VEC4 a, VEC4 b) { return MAKE_VEC4(LARGER(a.x, b.x), LARGER(a.y, b.y), LARGER(a.z, b.z), LARGER(a.w, b.w)); }
/* exp(x - top); 0 where nothing was seen so far */
FN float power(float x, float top) { return top == -INFINITE ? 0.0f : tern_exp(x - top); }
FN VEC4 power4(VEC4 x, float top) { return MAKE_VEC4(power(x.x, top), power(x.y, top), power(x.z, top), power(x.w, top)); }
FN float largest_of(VEC4 v) { return LARGER(LARGER(v.x, v.y), LARGER(v.z, v.w)); }
FN float sum_of(VEC4 v) { return v.x + v.y + (v.z + v.w); }
FN float rescale(float before, float top) { return top == -INFINITE ? 1.0f : tern_exp(before - top); }

KERNEL_BEGIN
    const int t = LOCAL_Y * GROUP_SIZE_X + LOCAL_X;
    const int l0 = GROUP_X * BQ;
    int q0 = 0;
    int key0 = 0;
    int v0 = 0;
    int mask0 = 0;
    int y0 = 0;
    EACH_BATCH_DIM(GROUP_Y, q0 += index * P.q_batch[d]; key0 += index * P.key_batch[d]; v0 += index * P.v_batch[d];
                   mask0 += index * P.mask_batch[d]; y0 += index * P.y_batch[d];)
    VEC4 result[COLS]; /* four queries to a vector, like `sums` and `largest` */
    VEC4 sums = ZERO4; /* of this item's keys */
    VEC4 largest = MAKE_VEC4(-INFINITE, -INFINITE, -INFINITE, -INFINITE);
    UNROLL for (int j = 0; j < COLS; j++)
        result[j] = ZERO4;
#ifdef CAUSAL
    const int s_end = P.s < l0 + BQ ? P.s : l0 + BQ; /* keys behind the last query are not seen */
#else
    const int s_end = P.s;
#endif
    for (int s0 = 0; s0 < s_end; s0 += BK) {
        VEC4 score[4]; /* a query each, of four keys */
        UNROLL for (int i = 0; i < 4; i++)
            score[i] = ZERO4;
        for (int e0 = 0; e0 < E; e0 += EC) {
            TAKE(BQ, 0, QUERY_AT)
            TAKE(BK, BQ / 4, KEY_AT)
            BARRIER();
            UNROLL_4 for (int k = 0; k < EC; k++) {
                ADD_PRODUCT(score, 4, 4, QUERY, KEY)
            }
            BARRIER();
        }
        UNROLL for (int i = 0; i < 4; i++) {
            int l = l0 + LOCAL_Y * 4 + i;
            KEEP(x, 0)
            KEEP(y, 1)
            KEEP(z, 2)
            KEEP(w, 3)
        }
        part[LOCAL_X * GROUP_SIZE_Y + LOCAL_Y] =
            MAKE_VEC4(largest_of(score[0]), largest_of(score[1]), largest_of(score[2]), largest_of(score[3]));
        BARRIER();
        VEC4 top = largest;
        for (int x = 0; x < GROUP_SIZE_X; x++)
            top = larger4(top, part[x * GROUP_SIZE_Y + LOCAL_Y]);
        VEC4 up = MAKE_VEC4(rescale(largest.x, top.x), rescale(largest.y, top.y), rescale(largest.z, top.z), rescale(largest.w, top.w));
        largest = top;
        score[0] = power4(score[0], top.x);
        score[1] = power4(score[1], top.y);
        score[2] = power4(score[2], top.z);
        score[3] = power4(score[3], top.w);
        STORE_COLUMNS(weight, LOCAL_X * 4 * PITCH_W + LOCAL_Y, PITCH_W, score[0], score[1], score[2], score[3]);
        sums = MAKE_VEC4(sums.x * up.x + sum_of(score[0]), sums.y * up.y + sum_of(score[1]), sums.z * up.z + sum_of(score[2]),
                         sums.w * up.w + sum_of(score[3]));
        UNROLL for (int j = 0; j < COLS; j++)
            result[j] = tern_mul4(result[j], up);
        for (int c0 = 0; c0 < BK && s0 + c0 < s_end; c0 += KC) {
            for (int b = t; b < KC * ROW; b += ITEMS) {
                int s = s0 + c0 + b / ROW;
                int e = b % ROW;
#if EV % (4 * GROUP_SIZE_X) == 0
                values[b] = MAKE_VEC4(VALUE(s, e * 4), VALUE(s, e * 4 + 1), VALUE(s, e * 4 + 2), VALUE(s, e * 4 + 3));
#else
                values[b] = VALUE(s, e);
#endif
            }
            BARRIER();
            UNROLL for (int k = 0; k < KC; k++) { /* as a loop PoCL 3.1 gets it wrong for small heads in f32 */
                VEC4 w = weight[(c0 + k) * PITCH_W + LOCAL_Y];
#if EV % (4 * GROUP_SIZE_X) == 0
                UNROLL for (int j = 0; j < COLS / 4; j++) {
                    VEC4 v = values[k * ROW + LOCAL_X + j * GROUP_SIZE_X];
                    result[j * 4] = tern_mad4(v.x, w, result[j * 4]);
                    result[j * 4 + 1] = tern_mad4(v.y, w, result[j * 4 + 1]);
                    result[j * 4 + 2] = tern_mad4(v.z, w, result[j * 4 + 2]);
                    result[j * 4 + 3] = tern_mad4(v.w, w, result[j * 4 + 3]);
                }
#else
                UNROLL for (int j = 0; j < COLS; j++)
                    result[j] = tern_mad4(values[k * ROW + LOCAL_X + j * GROUP_SIZE_X], w, result[j]);
#endif
            }
            BARRIER();
        }
    }
    part[LOCAL_X * GROUP_SIZE_Y + LOCAL_Y] = sums;
    BARRIER();
    VEC4 total = ZERO4;
    for (int x = 0; x < GROUP_SIZE_X; x++) {
        VEC4 more = part[x * GROUP_SIZE_Y + LOCAL_Y];
        total = MAKE_VEC4(total.x + more.x, total.y + more.y, total.z + more.z, total.w + more.w);
    }
    UNROLL for (int i = 0; i < 4; i++) {
        int l = l0 + LOCAL_Y * 4 + i;
        float sum = PART_OF(total, i);
        UNROLL for (int j = 0; j < COLS; j++) {
#if EV % (4 * GROUP_SIZE_X) == 0
            int e = (LOCAL_X + j / 4 * GROUP_SIZE_X) * 4 + j % 4;
#else
            int e = LOCAL_X + j * GROUP_SIZE_X;
#endif
            if (l < P.l && (EV % GROUP_SIZE_X == 0 || e < EV)) {
                int to = y0 + l * P.y_l + e * P.y_e;
                float v = sum == 0.0f ? 0.0f : PART_OF(result[j], i) / sum;
                STORE(y, to, POST(v, to, e));
            }
        }
    }
KERNEL_END
