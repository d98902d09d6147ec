/* Attention without the matrix of scores [Milakov 2018; Dao 2022]: a group makes BQ queries of one head. It goes over the keys in blocks of
 * BK; each query keeps its largest score so far, the sum of the exponentials, and its output so far. An item has RQ queries: it
 * computes their scores with four keys, as products of tiles, and then COLS columns of their outputs. Queries and keys come in parts of EC
 * elements, values in parts of KC keys. A query that sees no key gives zeros.
 * Host: E, EV (sizes of heads), RQ (4 or 8), EC (a multiple of 4), KC (divides 4 GROUP_SIZE_X); BATCH_NDIM; MASK with MASK_BOOL or not; CAUSAL;
 * WIDE: elements of queries and keys are loaded by four. */
#ifdef MASK
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) READ(3, mask) WRITE(4, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) WRITE(3, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_SDPA
#define BQ (GROUP_SIZE_Y * RQ)
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
#define MY_ROWS(i) (LOCAL_Y + (i)*GROUP_SIZE_Y) /* of queries, in vectors */
#define QUERY(i) tile[k * PITCH + MY_ROWS(i)]
#define KEY(j) tile[k * PITCH + BQ / 4 + LOCAL_X]
/* Element k of query or key number n of this tile, which has them behind each other; WIDE: and of the three behind it. */
#define ROW_AT(n) ((n) < BQ ? q0 + (l0 + (n)) * P.q_l : key0 + (s0 + (n)-BQ) * P.key_s)
#define IS_ROW(n) ((n) < BQ ? l0 + (n) < P.l : s0 + (n)-BQ < P.s)
#ifdef WIDE
#define ROW4(n, k) (!(IS_ROW(n) && (k) < E) ? ZERO4 : (n) < BQ ? LOAD4(query, ROW_AT(n) + (k)) : LOAD4(key, ROW_AT(n) + (k)))
#else
#define ROW1(n, k)                                                                                                              \
    (!(IS_ROW(n) && (k) < E) ? 0.0f : (n) < BQ ? LOAD(query, ROW_AT(n) + (k)*P.q_e) : LOAD(key, ROW_AT(n) + (k)*P.key_e))
#endif
#define VALUE(row, col) ((row) < P.s && (col) < EV ? LOAD(value, v0 + (row)*P.v_s + (col)*P.v_e) : 0.0f)
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
    int rest = GROUP_Y;
    int q0 = 0;
    int key0 = 0;
    int v0 = 0;
    int mask0 = 0;
    int y0 = 0;
    UNROLL for (int d = BATCH_NDIM - 1; d >= 0; d--) {
        int above = d > 0 ? rest / P.batch_shape[d] : 0;
        int index = rest - above * P.batch_shape[d];
        rest = above;
        q0 += index * P.q_batch[d];
        key0 += index * P.key_batch[d];
        v0 += index * P.v_batch[d];
        mask0 += index * P.mask_batch[d];
        y0 += index * P.y_batch[d];
    }
    VEC4 result[RQ / 4 * COLS]; /* four queries to a vector, like `sums` and `largest` */
    VEC4 sums[RQ / 4]; /* of this item's keys */
    VEC4 largest[RQ / 4];
    UNROLL for (int i = 0; i < RQ / 4 * COLS; i++)
        result[i] = ZERO4;
    UNROLL for (int i = 0; i < RQ / 4; i++) {
        sums[i] = ZERO4;
        largest[i] = MAKE_VEC4(-INFINITE, -INFINITE, -INFINITE, -INFINITE);
    }
#ifdef CAUSAL
    const int s_end = P.s < l0 + BQ ? P.s : l0 + BQ; /* keys behind the last query are not seen */
#else
    const int s_end = P.s;
#endif
    for (int s0 = 0; s0 < s_end; s0 += BK) {
        VEC4 score[RQ]; /* a query each, of four keys */
        UNROLL for (int i = 0; i < RQ; i++)
            score[i] = ZERO4;
        for (int e0 = 0; e0 < E; e0 += EC) {
#ifdef WIDE
            for (int b = t; b < (BQ + BK) / 4 * (EC / 4); b += ITEMS) {
                int n = b / (EC / 4);
                int k = b % (EC / 4) * 4;
                VEC4 w0 = ROW4(n * 4, e0 + k);
                VEC4 w1 = ROW4(n * 4 + 1, e0 + k);
                VEC4 w2 = ROW4(n * 4 + 2, e0 + k);
                VEC4 w3 = ROW4(n * 4 + 3, e0 + k);
                STORE_COLUMNS(tile, k * PITCH + n, PITCH, w0, w1, w2, w3);
            }
#else
            for (int b = t; b < (BQ + BK) / 4 * EC; b += ITEMS) {
                int n = b / EC;
                int k = b % EC;
                tile[k * PITCH + n] =
                    MAKE_VEC4(ROW1(n * 4, e0 + k), ROW1(n * 4 + 1, e0 + k), ROW1(n * 4 + 2, e0 + k), ROW1(n * 4 + 3, e0 + k));
            }
#endif
            BARRIER();
            UNROLL for (int k = 0; k < EC; k++) {
                ADD_PRODUCT(score, RQ, 4, QUERY, KEY)
            }
            BARRIER();
        }
        UNROLL for (int i = 0; i < RQ; i++) {
            int l = l0 + MY_ROWS(i / 4) * 4 + i % 4;
            float kept[4];
            UNROLL for (int j = 0; j < 4; j++) {
                int s = s0 + LOCAL_X * 4 + j;
                bool seen = l < P.l && s < P.s;
                float dot = LANE(score[i], j) * P.scale;
#ifdef CAUSAL
                seen = seen && s <= l;
#endif
#ifdef MASK
                if (seen) {
                    int at = mask0 + l * P.mask_l + s * P.mask_s;
#ifdef MASK_BOOL
                    seen = LOADI(mask, at) != 0;
#else
                    dot += LOAD(mask, at);
#endif
                }
#endif
                kept[j] = seen ? dot : -INFINITE;
            }
            score[i] = MAKE_VEC4(kept[0], kept[1], kept[2], kept[3]);
        }
        UNROLL for (int i = 0; i < RQ / 4; i++)
            part[LOCAL_X * (BQ / 4) + MY_ROWS(i)] = MAKE_VEC4(largest_of(score[i * 4]), largest_of(score[i * 4 + 1]),
                                                              largest_of(score[i * 4 + 2]), largest_of(score[i * 4 + 3]));
        BARRIER();
        UNROLL for (int i = 0; i < RQ / 4; i++) {
            VEC4 top = largest[i];
            for (int x = 0; x < GROUP_SIZE_X; x++)
                top = larger4(top, part[x * (BQ / 4) + MY_ROWS(i)]);
            VEC4 up = MAKE_VEC4(rescale(largest[i].x, top.x), rescale(largest[i].y, top.y), rescale(largest[i].z, top.z),
                                rescale(largest[i].w, top.w));
            VEC4 w0 = power4(score[i * 4], top.x);
            VEC4 w1 = power4(score[i * 4 + 1], top.y);
            VEC4 w2 = power4(score[i * 4 + 2], top.z);
            VEC4 w3 = power4(score[i * 4 + 3], top.w);
            STORE_COLUMNS(weight, LOCAL_X * 4 * PITCH_W + MY_ROWS(i), PITCH_W, w0, w1, w2, w3);
            sums[i] = MAKE_VEC4(sums[i].x * up.x + sum_of(w0), sums[i].y * up.y + sum_of(w1), sums[i].z * up.z + sum_of(w2),
                                sums[i].w * up.w + sum_of(w3));
            UNROLL for (int j = 0; j < COLS; j++)
                result[i * COLS + j] = tern_mul4(result[i * COLS + j], up);
            largest[i] = top;
        }
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
            for (int k = 0; k < KC; k++) {
                UNROLL for (int i = 0; i < RQ / 4; i++) {
                    VEC4 w = weight[(c0 + k) * PITCH_W + MY_ROWS(i)];
#if EV % (4 * GROUP_SIZE_X) == 0
                    UNROLL for (int j = 0; j < COLS / 4; j++) {
                        VEC4 v = values[k * ROW + LOCAL_X + j * GROUP_SIZE_X];
                        result[i * COLS + j * 4] = tern_mad4(v.x, w, result[i * COLS + j * 4]);
                        result[i * COLS + j * 4 + 1] = tern_mad4(v.y, w, result[i * COLS + j * 4 + 1]);
                        result[i * COLS + j * 4 + 2] = tern_mad4(v.z, w, result[i * COLS + j * 4 + 2]);
                        result[i * COLS + j * 4 + 3] = tern_mad4(v.w, w, result[i * COLS + j * 4 + 3]);
                    }
#else
                    UNROLL for (int j = 0; j < COLS; j++)
                        result[i * COLS + j] = tern_mad4(values[k * ROW + LOCAL_X + j * GROUP_SIZE_X], w, result[i * COLS + j]);
#endif
                }
            }
            BARRIER();
        }
    }
    UNROLL for (int i = 0; i < RQ / 4; i++)
        part[LOCAL_X * (BQ / 4) + MY_ROWS(i)] = sums[i];
    BARRIER();
    UNROLL for (int i = 0; i < RQ; i++) {
        int l = l0 + MY_ROWS(i / 4) * 4 + i % 4;
        float total = 0.0f;
        for (int x = 0; x < GROUP_SIZE_X; x++)
            total += LANE(part[x * (BQ / 4) + MY_ROWS(i / 4)], i % 4);
        UNROLL for (int j = 0; j < COLS; j++) {
#if EV % (4 * GROUP_SIZE_X) == 0
            int e = (LOCAL_X + j / 4 * GROUP_SIZE_X) * 4 + j % 4;
#else
            int e = LOCAL_X + j * GROUP_SIZE_X;
#endif
            if (l < P.l && e < EV) {
                int to = y0 + l * P.y_l + e * P.y_e;
                float v = total == 0.0f ? 0.0f : LANE(result[i / 4 * COLS + j], i % 4) / total;
                STORE(y, to, POST(v, to, e));
            }
        }
    }
KERNEL_END
