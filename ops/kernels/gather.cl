/* gather: y[…] = x[… index[…] …], the index in the place of one dimension. An index outside x gives zero.
 * Host: NDIM 1..6; x_stride is 0 in the gathered dimension. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, index) WRITE(2, y)
#define KERNEL_PARAMS TERN_PARAMS_GATHER
#define KERNEL_SHARED(ARRAY)

KERNEL_BEGIN
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.n; i += GROUPS_X * GROUP_SIZE_X) {
        int rest = i;
        int from = 0;
        int at = 0;
        int to = 0;
        UNROLL for (int d = NDIM - 1; d >= 0; d--) {
            int above = d > 0 ? rest / P.shape[d] : 0;
            int place = rest - above * P.shape[d];
            rest = above;
            from += place * P.x_stride[d];
            at += place * P.index_stride[d];
            to += place * P.y_stride[d];
        }
        int chosen = LOADI(index, at);
        if (chosen >= 0 && chosen < P.size) {
            COPY(y, to, x, from + chosen * P.step);
        } else {
            STOREI(y, to, 0);
        }
    }
KERNEL_END
