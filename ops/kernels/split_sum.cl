/* y (m, n) = the sum of `parts` products (m, n) that lie one behind the other, + bias (n): the second half of a product whose depth was split.
 * Host: BIAS. */
#ifdef BIAS
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, bias) WRITE(2, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_SPLIT_SUM
#define KERNEL_SHARED(ARRAY)

KERNEL_BEGIN
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.size; i += GROUPS_X * GROUP_SIZE_X) {
        int m = i / P.n;
        int n = i - m * P.n;
        int at = m * P.y_m + n * P.y_n;
        float v = 0.0f;
        for (int part = 0; part < P.parts; part++)
            v += LOAD(x, part * P.size + i);
#ifdef BIAS
        v += LOAD(bias, n * P.bias_n);
#endif
        STORE(y, at, POST(v, at, n));
    }
KERNEL_END
