/* Rows of a table by id: embedding. An id outside the table gives zeros.
 * Host: ID_NDIM 1..6 dimensions of the ids. GROUP_X walks all elements. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, ids) READ(1, table) WRITE(2, y)
#define KERNEL_PARAMS TERN_PARAMS_EMBEDDING
#define KERNEL_SHARED(ARRAY)

KERNEL_BEGIN
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.n * P.width; i += GROUPS_X * GROUP_SIZE_X) {
        int number = i / P.width;
        int j = i - number * P.width;
        int rest = number;
        int from = 0;
        int to = 0;
        UNROLL for (int d = ID_NDIM - 1; d >= 0; d--) {
            int above = d > 0 ? rest / P.shape[d] : 0;
            int index = rest - above * P.shape[d];
            rest = above;
            from += index * P.id_stride[d];
            to += index * P.y_stride[d];
        }
        int id = LOADI(ids, from);
        int at = to + j * P.y_step;
        if (id >= 0 && id < P.rows) {
            COPY(y, at, table, id * P.table_row + j * P.table_step);
        } else {
            STOREI(y, at, 0);
        }
    }
KERNEL_END
