/* layer_norm and rms_norm: a group makes one row. Two passes over it for mean and variance, in f32, then the values.
 * Host: GROUP_SIZE_X a power of two; ROW_NDIM 1..6 kept dimensions; CENTRED (layer_norm); WEIGHT, BIAS. Rows have one step. */
#if defined(WEIGHT) && defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, weight) READ(2, bias) WRITE(3, y)
#elif defined(WEIGHT)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, weight) WRITE(2, y)
#elif defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, bias) WRITE(2, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_ROWS
#ifdef CENTRED
#define KERNEL_SHARED(ARRAY) ARRAY(float, sums, REDUCE_ROOM) ARRAY(float, part, REDUCE_ROOM)
#else
#define KERNEL_SHARED(ARRAY) ARRAY(float, part, REDUCE_ROOM)
#endif
#define SUM(a, b) ((a) + (b))

KERNEL_BEGIN
    for (int row = GROUP_X; row < P.rows; row += GROUPS_X) {
        ROW_PLACE(row, from, to)
        float mean = 0.0f;
#ifdef CENTRED
        float sum = 0.0f;
        for (int j = ITEM; j < P.cols; j += GROUP_SIZE_X)
            sum += LOAD(x, from + j * P.x_step);
        REDUCE(sum, sums, SUM)
        mean = sum / FLOAT(P.cols);
#endif
        float squares = 0.0f;
        for (int j = ITEM; j < P.cols; j += GROUP_SIZE_X) {
            float deviation = LOAD(x, from + j * P.x_step) - mean;
            squares += deviation * deviation;
        }
        REDUCE(squares, part, SUM)
        float scale = RSQRT(squares / FLOAT(P.cols) + P.eps);
        for (int j = ITEM; j < P.cols; j += GROUP_SIZE_X) {
            float v = (LOAD(x, from + j * P.x_step) - mean) * scale;
#ifdef WEIGHT
            v *= LOAD(weight, j * P.weight_step);
#endif
#ifdef BIAS
            v += LOAD(bias, j * P.bias_step);
#endif
            int at = to + j * P.y_step;
            STORE(y, at, POST(v, at, j));
        }
#ifndef CENTRED
        BARRIER(); /* before the sums are filled again */
#endif
    }
KERNEL_END
