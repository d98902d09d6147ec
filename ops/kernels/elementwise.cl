/* Element-wise ops, alone or fused: y = EXPRESSION of v0, v1 …, the elements of the inputs at a place of the output.
 * Host: INPUTS 1..8; EXPRESSION; VALUE float, or int with INTEGER defined; NDIM 1..6 dimensions after merging, innermost
 * last. P.scalar and P.whole are the numbers of an expression. */
#if INPUTS == 1
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x0) WRITE(1, y)
#elif INPUTS == 2
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x0) READ(1, x1) WRITE(2, y)
#elif INPUTS == 3
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x0) READ(1, x1) READ(2, x2) WRITE(3, y)
#elif INPUTS == 4
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x0) READ(1, x1) READ(2, x2) READ(3, x3) WRITE(4, y)
#elif INPUTS == 5
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x0) READ(1, x1) READ(2, x2) READ(3, x3) READ(4, x4) WRITE(5, y)
#elif INPUTS == 6
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x0) READ(1, x1) READ(2, x2) READ(3, x3) READ(4, x4) READ(5, x5) WRITE(6, y)
#elif INPUTS == 7
#define KERNEL_BUFFERS(READ, WRITE) \
    READ(0, x0) READ(1, x1) READ(2, x2) READ(3, x3) READ(4, x4) READ(5, x5) READ(6, x6) WRITE(7, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) \
    READ(0, x0) READ(1, x1) READ(2, x2) READ(3, x3) READ(4, x4) READ(5, x5) READ(6, x6) READ(7, x7) WRITE(8, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_ELEMENTWISE
#define KERNEL_SHARED(ARRAY)

#ifdef INTEGER
#define FETCH(b, i) LOADI(b, i)
#define PUT(i, v) STOREI(y, i, v)
#else
#define FETCH(b, i) LOAD(b, i)
#define PUT(i, v) STORE(y, i, v)
#endif

KERNEL_BEGIN
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.n; i += GROUPS_X * GROUP_SIZE_X) {
        int rest = i;
        int at[9];
        UNROLL for (int k = 0; k < 9; k++)
            at[k] = 0;
        UNROLL for (int d = NDIM - 1; d >= 0; d--) {
            int above = d > 0 ? rest / P.shape[d] : 0;
            int index = rest - above * P.shape[d];
            rest = above;
            UNROLL for (int k = 0; k < INPUTS; k++)
                at[k] += index * P.stride[k * 6 + d];
            at[8] += index * P.stride[48 + d];
        }
        VALUE v0 = FETCH(x0, at[0]);
#if INPUTS > 1
        VALUE v1 = FETCH(x1, at[1]);
#endif
#if INPUTS > 2
        VALUE v2 = FETCH(x2, at[2]);
#endif
#if INPUTS > 3
        VALUE v3 = FETCH(x3, at[3]);
#endif
#if INPUTS > 4
        VALUE v4 = FETCH(x4, at[4]);
#endif
#if INPUTS > 5
        VALUE v5 = FETCH(x5, at[5]);
#endif
#if INPUTS > 6
        VALUE v6 = FETCH(x6, at[6]);
#endif
#if INPUTS > 7
        VALUE v7 = FETCH(x7, at[7]);
#endif
        PUT(at[8], EXPRESSION);
    }
KERNEL_END
