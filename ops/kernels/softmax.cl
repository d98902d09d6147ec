/* softmax: a group makes one row: its largest value, the sum of exp(x - largest), then the quotients. NaN, or a largest value of
 * infinity, makes the row NaN.
 * Host: GROUP_SIZE_X a power of two; ROW_NDIM 1..6 kept dimensions. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_ROWS
#define KERNEL_SHARED(ARRAY) ARRAY(float, tops, REDUCE_ROOM) ARRAY(float, sums, REDUCE_ROOM)
#define SUM(a, b) ((a) + (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

KERNEL_BEGIN
    for (int row = GROUP_X; row < P.rows; row += GROUPS_X) {
        ROW_PLACE(row, from, to)
        float largest = -INFINITE;
        for (int j = ITEM; j < P.cols; j += GROUP_SIZE_X) {
            float v = LOAD(x, from + j * P.x_step);
            largest = LARGER(v, largest); /* NaN is passed by here: it comes into the sum */
        }
        REDUCE(largest, tops, LARGER)
        float sum = 0.0f;
        for (int j = ITEM; j < P.cols; j += GROUP_SIZE_X)
            sum += tern_exp(LOAD(x, from + j * P.x_step) - largest);
        REDUCE(sum, sums, SUM)
        for (int j = ITEM; j < P.cols; j += GROUP_SIZE_X) {
            int at = to + j * P.y_step;
            float v = tern_exp(LOAD(x, from + j * P.x_step) - largest) / sum;
            STORE(y, at, POST(v, at, j));
        }
    }
KERNEL_END
