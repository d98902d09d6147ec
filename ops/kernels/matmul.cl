/* y (m, n) = a (m, k) b (k, n) + bias (n), batched: matmul and linear (whose weight (n, k) is b by its strides). Sums in f32.
 * A group makes TM x TN values, an item RM x RN of them; tiles TK deep go through shared memory.
 * Host: TM, TN, TK, RM, RN, BATCH_NDIM; BIAS; WIDE_A, WIDE_B: a's and b's elements are loaded by four along k; B_ALONG_N: b's
 * neighbours in memory are along n (and WIDE_B loads along n). */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, a) READ(1, b) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, a) READ(1, b) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_MATMUL
#define KERNEL_SHARED(ARRAY) ARRAY(float, a_tile, TK * PITCH_A) ARRAY(float, b_tile, TK * PITCH_B)

/* Rows of the tiles are k; one more column keeps transposed writes off each other's banks. */
#define PITCH_A (TM + 1)
#define PITCH_B (TN + 1)
#define ITEMS (GROUP_SIZE_X * GROUP_SIZE_Y)
/* e: this item's numbers below n, which all items of the group share out */
#define EACH(e, n)                                                                                  \
    UNROLL for (int e##_r = 0, e = t; e##_r < ((n) + ITEMS - 1) / ITEMS; e##_r++, e += ITEMS)       \
        if ((n) % ITEMS == 0 || e < (n))

KERNEL_BEGIN
    const int t = LOCAL_Y * GROUP_SIZE_X + LOCAL_X;
    const int m0 = GROUP_Y * TM;
    const int n0 = GROUP_X * TN;
    int rest = GROUP_Z;
    int a0 = 0;
    int b0 = 0;
    int y0 = 0;
    UNROLL for (int d = BATCH_NDIM - 1; d >= 0; d--) {
        int above = d > 0 ? rest / P.batch_shape[d] : 0;
        int index = rest - above * P.batch_shape[d];
        rest = above;
        a0 += index * P.a_batch[d];
        b0 += index * P.b_batch[d];
        y0 += index * P.y_batch[d];
    }
    float sum[RM * RN];
    UNROLL for (int i = 0; i < RM * RN; i++)
        sum[i] = 0.0f;
    for (int k0 = 0; k0 < P.k; k0 += TK) {
#ifdef WIDE_A
        EACH(e, TM * TK / 4) {
            int m = e / (TK / 4);
            int k = e % (TK / 4) * 4;
            VEC4 v = MAKE_VEC4(0.0f, 0.0f, 0.0f, 0.0f);
            if (m0 + m < P.m && k0 + k < P.k)
                v = LOAD4(a, a0 + (m0 + m) * P.a_m + k0 + k);
            a_tile[k * PITCH_A + m] = v.x;
            a_tile[(k + 1) * PITCH_A + m] = v.y;
            a_tile[(k + 2) * PITCH_A + m] = v.z;
            a_tile[(k + 3) * PITCH_A + m] = v.w;
        }
#else
        EACH(e, TM * TK) {
            int m = e / TK;
            int k = e % TK;
            float v = 0.0f;
            if (m0 + m < P.m && k0 + k < P.k)
                v = LOAD(a, a0 + (m0 + m) * P.a_m + (k0 + k) * P.a_k);
            a_tile[k * PITCH_A + m] = v;
        }
#endif
#if defined(WIDE_B) && defined(B_ALONG_N)
        EACH(e, TN * TK / 4) {
            int k = e / (TN / 4);
            int n = e % (TN / 4) * 4;
            VEC4 v = MAKE_VEC4(0.0f, 0.0f, 0.0f, 0.0f);
            if (n0 + n < P.n && k0 + k < P.k)
                v = LOAD4(b, b0 + (k0 + k) * P.b_k + n0 + n);
            b_tile[k * PITCH_B + n] = v.x;
            b_tile[k * PITCH_B + n + 1] = v.y;
            b_tile[k * PITCH_B + n + 2] = v.z;
            b_tile[k * PITCH_B + n + 3] = v.w;
        }
#elif defined(WIDE_B)
        EACH(e, TN * TK / 4) {
            int n = e / (TK / 4);
            int k = e % (TK / 4) * 4;
            VEC4 v = MAKE_VEC4(0.0f, 0.0f, 0.0f, 0.0f);
            if (n0 + n < P.n && k0 + k < P.k)
                v = LOAD4(b, b0 + (n0 + n) * P.b_n + k0 + k);
            b_tile[k * PITCH_B + n] = v.x;
            b_tile[(k + 1) * PITCH_B + n] = v.y;
            b_tile[(k + 2) * PITCH_B + n] = v.z;
            b_tile[(k + 3) * PITCH_B + n] = v.w;
        }
#else
        EACH(e, TN * TK) {
#ifdef B_ALONG_N
            int k = e / TN;
            int n = e % TN;
#else
            int n = e / TK;
            int k = e % TK;
#endif
            float v = 0.0f;
            if (n0 + n < P.n && k0 + k < P.k)
                v = LOAD(b, b0 + (n0 + n) * P.b_n + (k0 + k) * P.b_k);
            b_tile[k * PITCH_B + n] = v;
        }
#endif
        BARRIER();
        UNROLL for (int k = 0; k < TK; k++) {
            float left[RM];
            float right[RN];
            UNROLL for (int i = 0; i < RM; i++)
                left[i] = a_tile[k * PITCH_A + LOCAL_Y * RM + i];
            UNROLL for (int j = 0; j < RN; j++)
                right[j] = b_tile[k * PITCH_B + LOCAL_X + j * GROUP_SIZE_X];
            UNROLL for (int i = 0; i < RM; i++)
                UNROLL for (int j = 0; j < RN; j++)
                    sum[i * RN + j] += left[i] * right[j];
        }
        BARRIER();
    }
    UNROLL for (int i = 0; i < RM; i++) {
        UNROLL for (int j = 0; j < RN; j++) {
            int m = m0 + LOCAL_Y * RM + i;
            int n = n0 + LOCAL_X + j * GROUP_SIZE_X;
            if (m < P.m && n < P.n) {
                float v = sum[i * RN + j];
#ifdef BIAS
                v += LOAD(bias, n * P.bias_n);
#endif
                int at = y0 + m * P.y_m + n * P.y_n;
                STORE(y, at, POST(v, at, n));
            }
        }
    }
KERNEL_END
