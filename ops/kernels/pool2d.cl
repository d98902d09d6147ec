/* avg_pool2d and max_pool2d: one item a value of the output. Any strides.
 * Host: MAXIMUM or AVERAGE; INTEGER for integers (MAXIMUM only). */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_POOL2D
#define KERNEL_SHARED(ARRAY)

#ifdef INTEGER
#define VALUE int
#define ZERO 0
#define FETCH(i) LOADI(x, i)
#define GREATER(a, b) ((a) > (b))
#else
#define VALUE float
#define ZERO 0.0f
#define FETCH(i) LOAD(x, i)
#define GREATER(a, b) ((a) > (b) || IS_NAN(a)) /* NaN wins */
#endif

FN int clip(int v, int size) { return v < 0 ? 0 : v > size ? size : v; }

KERNEL_BEGIN
    const int n = P.batch * P.channels * P.out_h * P.out_w;
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < n; i += GROUPS_X * GROUP_SIZE_X) {
        int row = i / P.out_w;
        int ox = i - row * P.out_w;
        int plane = row / P.out_h;
        int oy = row - plane * P.out_h;
        int picture = plane / P.channels;
        int c = plane - picture * P.channels;
        int from = picture * P.x_n + c * P.x_c;
        int to = picture * P.y_n + c * P.y_c + oy * P.y_h + ox * P.y_w;
        int top = oy * P.stride_h - P.padding_h;
        int left = ox * P.stride_w - P.padding_w;
#ifdef AVERAGE
        /* the divisor counts the window's part inside the padded input, or inside the input only */
        int bottom = top + P.kernel_h < P.in_h + P.padding_h ? top + P.kernel_h : P.in_h + P.padding_h;
        int right = left + P.kernel_w < P.in_w + P.padding_w ? left + P.kernel_w : P.in_w + P.padding_w;
        int divisor = (bottom - top) * (right - left);
        int y0 = clip(top, P.in_h);
        int y1 = clip(bottom, P.in_h);
        int x0 = clip(left, P.in_w);
        int x1 = clip(right, P.in_w);
        float sum = 0.0f;
        for (int iy = y0; iy < y1; iy++)
            for (int ix = x0; ix < x1; ix++)
                sum += LOAD(x, from + iy * P.x_h + ix * P.x_w);
        if (P.include_pad == 0)
            divisor = (y1 - y0) * (x1 - x0);
        float v = y0 < y1 && x0 < x1 ? sum / FLOAT(divisor) : 0.0f;
        STORE(y, to, POST(v, to, c));
#else
        int best = -1; /* offset of the largest */
        VALUE largest = ZERO;
        for (int ky = 0; ky < P.kernel_h; ky++) {
            int iy = top + ky * P.dilation_h;
            if (iy < 0 || iy >= P.in_h)
                continue;
            for (int kx = 0; kx < P.kernel_w; kx++) {
                int ix = left + kx * P.dilation_w;
                if (ix < 0 || ix >= P.in_w)
                    continue;
                int at = from + iy * P.x_h + ix * P.x_w;
                VALUE v = FETCH(at);
                if (best < 0 || GREATER(v, largest)) {
                    best = at;
                    largest = v;
                }
            }
        }
#ifdef INTEGER
        STOREI(y, to, best < 0 ? P.least : largest);
#else
        float v = best < 0 ? -INFINITE : largest;
        STORE(y, to, POST(v, to, c));
#endif
#endif
    }
KERNEL_END
