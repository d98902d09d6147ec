/* Copies of elements, bit by bit: contiguous, reshape, permute, slice, a part of cat, pad. One dtype on both sides.
 * Host: NDIM 1..6, innermost last; PAD where the output is larger than what is copied (INTEGER for the value's kind). */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_COPY
#define KERNEL_SHARED(ARRAY)

KERNEL_BEGIN
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.n; i += GROUPS_X * GROUP_SIZE_X) {
        int rest = i;
        int from = 0;
        int to = 0;
        bool there = true;
        UNROLL for (int d = NDIM - 1; d >= 0; d--) {
            int above = d > 0 ? rest / P.shape[d] : 0;
            int index = rest - above * P.shape[d];
            rest = above;
            to += index * P.y_stride[d];
#ifdef PAD
            index -= P.before[d];
            there = there && index >= 0 && index < P.inside[d];
#endif
            from += index * P.x_stride[d];
        }
        if (there) {
            COPY(y, to, x, from);
        } else {
#ifdef INTEGER
            STOREI(y, to, P.whole);
#else
            STORE(y, to, P.value);
#endif
        }
    }
KERNEL_END
