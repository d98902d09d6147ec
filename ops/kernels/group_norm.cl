/* Second pass of group_norm: each group of items merges the parts of its group of channels [Chan 1979] and makes its share of the
 * values. GROUP_X is the share, GROUP_Y the picture and group.
 * Host: CHANNELS_LAST as in group_norm_stats; WEIGHT, BIAS. */
#if defined(WEIGHT) && defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, stats) READ(2, weight) READ(3, bias) WRITE(4, y)
#elif defined(WEIGHT)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, stats) READ(2, weight) WRITE(3, y)
#elif defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, stats) READ(2, bias) WRITE(3, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, stats) WRITE(2, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_GROUP_NORM
#define KERNEL_SHARED(ARRAY)

KERNEL_BEGIN
    const int picture = GROUP_Y / P.groups;
    const int group = GROUP_Y - picture * P.groups;
    const int from = picture * P.x_n + group * P.channels * P.x_c;
    const int to = picture * P.y_n + group * P.channels * P.y_c;
    const int n = P.channels * P.pixels;
    float mean = 0.0f;
    float deviations = 0.0f;
    int count = 0;
    for (int i = 0; i < P.parts; i++) {
        int at = (GROUP_Y * P.parts + i) * 2;
        int size = n - count < P.part ? n - count : P.part;
        float delta = LOAD(stats, at) - mean;
        float share = FLOAT(size) / FLOAT(count + size);
        mean += delta * share;
        deviations += LOAD(stats, at + 1) + delta * delta * FLOAT(count) * share;
        count += size;
    }
    const float scale = RSQRT(deviations / FLOAT(n) + P.eps);
    for (int j = GROUP_X * GROUP_SIZE_X + LOCAL_X; j < n; j += GROUPS_X * GROUP_SIZE_X) {
#ifdef CHANNELS_LAST
        int pixel = j / P.channels;
        int c = j - pixel * P.channels;
#else
        int c = j / P.pixels;
        int pixel = j - c * P.pixels;
#endif
        int channel = group * P.channels + c;
        float v = (LOAD(x, from + c * P.x_c + pixel * P.x_pixel) - mean) * scale;
#ifdef WEIGHT
        v *= LOAD(weight, channel * P.weight_step);
#endif
#ifdef BIAS
        v += LOAD(bias, channel * P.bias_step);
#endif
        int at = to + c * P.y_c + pixel * P.y_pixel;
        STORE(y, at, POST(v, at, channel));
    }
KERNEL_END
