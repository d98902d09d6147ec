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
#define KERNEL_SHARED(ARRAY) ARRAY(float, part, GROUP_SIZE_X)
#define SUM(a, b) ((a) + (b))

KERNEL_BEGIN
    for (int row = GROUP_X; row < P.rows; row += GROUPS_X) {
        ROW_PLACE(row, from, to)
        float mean = 0.0f;
#ifdef CENTRED
        float sum = 0.0f;
        for (int j = LOCAL_X; j < P.cols; j += GROUP_SIZE_X)
            sum += LOAD(x, from + j * P.x_step);
        part[LOCAL_X] = sum;
        REDUCE(part, LOCAL_X, GROUP_SIZE_X, SUM);
        mean = part[0] / FLOAT(P.cols);
        BARRIER();
#endif
        float squares = 0.0f;
        for (int j = LOCAL_X; j < P.cols; j += GROUP_SIZE_X) {
            float deviation = LOAD(x, from + j * P.x_step) - mean;
            squares += deviation * deviation;
        }
        part[LOCAL_X] = squares;
        REDUCE(part, LOCAL_X, GROUP_SIZE_X, SUM);
        float scale = RSQRT(part[0] / FLOAT(P.cols) + P.eps);
        for (int j = LOCAL_X; j < P.cols; j += GROUP_SIZE_X) {
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
        BARRIER(); /* before the sums are filled again */
    }
KERNEL_END
