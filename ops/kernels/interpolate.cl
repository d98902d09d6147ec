/* Pictures (N, C, H, W) in another size, with PyTorch's rules of which pixel lies where (ops/interpolate.c). Any strides.
 * Host: NEAREST or BILINEAR; CHANNELS_LAST: items side by side are channels (else pixels). The steps from an output pixel to the next,
 * in input pixels, are made by the host; same_*: the sizes are equal, twice_*: the output is twice as large. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_INTERPOLATE
#define KERNEL_SHARED(ARRAY)

/* The result is an index, so all compute it in f32 alike. */
FN int nearest(int o, int size, int same, int twice, float step)
{
    if (same != 0)
        return o;
    if (twice != 0)
        return o / 2;
    int i = INT(FLOOR(FLOAT(o) * step));
    return i < size - 1 ? i : size - 1;
}

/* Where an output position lies in the input; align: corners lie on corners. */
FN float position(int o, int same, int align, float step)
{
    if (same != 0)
        return FLOAT(o);
    if (align != 0)
        return FLOAT(o) * step;
    float at = FMA(step, FLOAT(o) + 0.5f, -0.5f);
    return at < 0.0f ? 0.0f : at;
}

KERNEL_BEGIN
    const int n = P.batch * P.channels * P.out_h * P.out_w;
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < n; i += GROUPS_X * GROUP_SIZE_X) {
#ifdef CHANNELS_LAST
        int pixel = i / P.channels;
        int c = i - pixel * P.channels;
        int row = pixel / P.out_w;
        int ox = pixel - row * P.out_w;
        int picture = row / P.out_h;
        int oy = row - picture * P.out_h;
#else
        int row = i / P.out_w;
        int ox = i - row * P.out_w;
        int plane = row / P.out_h;
        int oy = row - plane * P.out_h;
        int picture = plane / P.channels;
        int c = plane - picture * P.channels;
#endif
        int from = picture * P.x_n + c * P.x_c;
        int to = picture * P.y_n + c * P.y_c + oy * P.y_h + ox * P.y_w;
#ifdef NEAREST
        int iy = nearest(oy, P.in_h, P.same_h, P.twice_h, P.step_h);
        int ix = nearest(ox, P.in_w, P.same_w, P.twice_w, P.step_w);
        float v = LOAD(x, from + iy * P.x_h + ix * P.x_w);
#else
        float at_y = position(oy, P.same_h, P.align, P.step_h);
        float at_x = position(ox, P.same_w, P.align, P.step_w);
        int y0 = INT(at_y) < P.in_h - 1 ? INT(at_y) : P.in_h - 1;
        int x0 = INT(at_x) < P.in_w - 1 ? INT(at_x) : P.in_w - 1;
        int y1 = y0 < P.in_h - 1 ? y0 + 1 : y0;
        int x1 = x0 < P.in_w - 1 ? x0 + 1 : x0;
        float wy = at_y - FLOAT(y0) < 1.0f ? at_y - FLOAT(y0) : 1.0f;
        float wx = at_x - FLOAT(x0) < 1.0f ? at_x - FLOAT(x0) : 1.0f;
        float above = LOAD(x, from + y0 * P.x_h + x0 * P.x_w) * (1.0f - wx) + LOAD(x, from + y0 * P.x_h + x1 * P.x_w) * wx;
        float below = LOAD(x, from + y1 * P.x_h + x0 * P.x_w) * (1.0f - wx) + LOAD(x, from + y1 * P.x_h + x1 * P.x_w) * wx;
        float v = above * (1.0f - wy) + below * wy;
#endif
        STORE(y, to, POST(v, to, c));
    }
KERNEL_END
