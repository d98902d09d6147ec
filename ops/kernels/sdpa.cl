/* Attention without the matrix of scores [Milakov 2018; Dao 2022]: a group makes BQ queries of one head; blocks of BK keys and values
 * go through shared memory, while each query keeps its largest score so far, the sum of the exponentials, and its output so far,
 * spread over the items. A query that sees no key gives zeros.
 * Host: E, EV (sizes of heads), BQ, BK; BATCH_NDIM; MASK with MASK_BOOL or not; CAUSAL. */
#ifdef MASK
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) READ(3, mask) WRITE(4, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, query) READ(1, key) READ(2, value) WRITE(3, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_SDPA
#if E > EV
#define WIDEST E
#else
#define WIDEST EV
#endif
#define KERNEL_SHARED(ARRAY) \
    ARRAY(float, q, BQ * E) ARRAY(float, block, BK * (WIDEST + 1)) ARRAY(float, score, BQ * BK) ARRAY(float, largest, BQ) ARRAY(float, sums, BQ) \
    ARRAY(float, rescale, BQ)
#define PITCH (WIDEST + 1) /* of a block's rows: keys are read column by column */
#define MINE ((BQ * EV + GROUP_SIZE_X - 1) / GROUP_SIZE_X) /* values of the output that an item keeps */

KERNEL_BEGIN
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
    float out_part[MINE];
    UNROLL for (int i = 0; i < MINE; i++)
        out_part[i] = 0.0f;
    for (int i = LOCAL_X; i < BQ * E; i += GROUP_SIZE_X) {
        int row = i / E;
        float v = 0.0f;
        if (l0 + row < P.l)
            v = LOAD(query, q0 + (l0 + row) * P.q_l + (i - row * E) * P.q_e) * P.scale;
        q[i] = v;
    }
    for (int i = LOCAL_X; i < BQ; i += GROUP_SIZE_X) {
        largest[i] = -INFINITE;
        sums[i] = 0.0f;
    }
#ifdef CAUSAL
    const int s_end = P.s < l0 + BQ ? P.s : l0 + BQ; /* keys behind the last query are not seen */
#else
    const int s_end = P.s;
#endif
    for (int s0 = 0; s0 < s_end; s0 += BK) {
        BARRIER(); /* the block before has been used; at first, the queries are there */
        for (int i = LOCAL_X; i < BK * E; i += GROUP_SIZE_X) {
            int row = i / E;
            float v = 0.0f;
            if (s0 + row < P.s)
                v = LOAD(key, key0 + (s0 + row) * P.key_s + (i - row * E) * P.key_e);
            block[row * PITCH + i - row * E] = v;
        }
        BARRIER();
        for (int i = LOCAL_X; i < BQ * BK; i += GROUP_SIZE_X) {
            int row = i / BK;
            int j = i - row * BK;
            int l = l0 + row;
            int s = s0 + j;
            bool seen = l < P.l && s < P.s;
            float dot = 0.0f;
            for (int e = 0; e < E; e++)
                dot += q[row * E + e] * block[j * PITCH + e];
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
            score[i] = seen ? dot : -INFINITE;
        }
        BARRIER();
        for (int i = LOCAL_X; i < BQ; i += GROUP_SIZE_X) {
            float before = largest[i];
            float top = before;
            for (int j = 0; j < BK; j++)
                top = score[i * BK + j] > top || IS_NAN(score[i * BK + j]) ? score[i * BK + j] : top;
            float up = top == -INFINITE ? 1.0f : tern_exp(before - top);
            float sum = sums[i] * up;
            for (int j = 0; j < BK; j++) {
                float p = top == -INFINITE ? 0.0f : tern_exp(score[i * BK + j] - top);
                score[i * BK + j] = p;
                sum += p;
            }
            largest[i] = top;
            sums[i] = sum;
            rescale[i] = up;
        }
        for (int i = LOCAL_X; i < BK * EV; i += GROUP_SIZE_X) {
            int row = i / EV;
            float v = 0.0f;
            if (s0 + row < P.s)
                v = LOAD(value, v0 + (s0 + row) * P.v_s + (i - row * EV) * P.v_e);
            block[row * PITCH + i - row * EV] = v;
        }
        BARRIER();
        UNROLL for (int i = 0; i < MINE; i++) {
            int at = LOCAL_X + i * GROUP_SIZE_X;
            if (at < BQ * EV) {
                int row = at / EV;
                float v = out_part[i] * rescale[row];
                for (int j = 0; j < BK; j++)
                    v += score[row * BK + j] * block[j * PITCH + at - row * EV];
                out_part[i] = v;
            }
        }
    }
    BARRIER();
    UNROLL for (int i = 0; i < MINE; i++) {
        int at = LOCAL_X + i * GROUP_SIZE_X;
        int row = at / EV;
        if (at < BQ * EV && l0 + row < P.l) {
            int e = at - row * EV;
            int to = y0 + (l0 + row) * P.y_l + e * P.y_e;
            float v = sums[row] == 0.0f ? 0.0f : out_part[i] / sums[row];
            STORE(y, to, POST(v, to, e));
        }
    }
KERNEL_END
