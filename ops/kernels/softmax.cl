/* softmax: a group makes one row: its largest value, the sum of exp(x - largest), then the quotients. NaN, or a largest value of
 * infinity, makes the row NaN.
 * Host: GROUP_SIZE_X a power of two; ROW_NDIM 1..6 kept dimensions. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_ROWS
#define KERNEL_SHARED(ARRAY) ARRAY(float, part, GROUP_SIZE_X)
#define SUM(a, b) ((a) + (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

KERNEL_BEGIN
    for (int row = GROUP_X; row < P.rows; row += GROUPS_X) {
        ROW_PLACE(row, from, to)
        float largest = -INFINITE;
        for (int j = LOCAL_X; j < P.cols; j += GROUP_SIZE_X) {
            float v = LOAD(x, from + j * P.x_step);
            largest = LARGER(v, largest); /* NaN is passed by here: it comes into the sum */
        }
        part[LOCAL_X] = largest;
        REDUCE(part, LOCAL_X, GROUP_SIZE_X, LARGER);
        largest = part[0];
        BARRIER();
        float sum = 0.0f;
        for (int j = LOCAL_X; j < P.cols; j += GROUP_SIZE_X)
            sum += tern_exp(LOAD(x, from + j * P.x_step) - largest);
        part[LOCAL_X] = sum;
        REDUCE(part, LOCAL_X, GROUP_SIZE_X, SUM);
        sum = part[0];
        for (int j = LOCAL_X; j < P.cols; j += GROUP_SIZE_X) {
            int at = to + j * P.y_step;
            float v = tern_exp(LOAD(x, from + j * P.x_step) - largest) / sum;
            STORE(y, at, POST(v, at, j));
        }
        BARRIER(); /* before the sums are filled again */
    }
KERNEL_END
