/* Second pass of group_norm: each group of items merges the parts of its group of channels [Chan 1979] and makes its share of the
 * values. GROUP_X is the share, GROUP_Y the picture and group.
 * Host: CHANNELS_LAST as in group_norm_stats; WEIGHT, BIAS. ONE_PASS: there are no statistics yet, one group of items makes them, as
 * group_norm_stats does, and then all values of its group of channels. GIVEN: they are an input, mean and variance of each group
 * (group_norm_apply). MOMENTS: these are what is made, and no values (group_norm_stats). */
#ifdef ONE_PASS
#define AFTER 1
#define STATS(READ)
#define KERNEL_SHARED(ARRAY) ARRAY(float, firsts, REDUCE_ROOM) ARRAY(float, part, REDUCE_ROOM) ARRAY(float, squared, REDUCE_ROOM)
#define SUM(a, b) ((a) + (b))
#else
#define AFTER 2
#define STATS(READ) READ(1, stats)
#define KERNEL_SHARED(ARRAY)
#endif
#if defined(MOMENTS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) WRITE(AFTER, y)
#elif defined(WEIGHT) && defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) READ(AFTER, weight) READ(AFTER + 1, bias) WRITE(AFTER + 2, y)
#elif defined(WEIGHT)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) READ(AFTER, weight) WRITE(AFTER + 1, y)
#elif defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) READ(AFTER, bias) WRITE(AFTER + 1, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) WRITE(AFTER, y)
#endif
#define KERNEL_PARAMS TERN_PARAMS_GROUP_NORM

KERNEL_BEGIN
    const int picture = GROUP_Y / P.groups;
    const int group = GROUP_Y - picture * P.groups;
    const int from = picture * P.x_n + group * P.channels * P.x_c;
    const int n = P.channels * P.pixels;
#ifdef GIVEN
    const float mean = LOAD(stats, GROUP_Y * 2);
    const float given = LOAD(stats, GROUP_Y * 2 + 1);
    const float variance = given < 0.0f ? 0.0f : given;
#else
    float mean = 0.0f;
    float deviations = 0.0f;
#ifdef ONE_PASS
    float shift = ITEM < n ? LOAD(x, GROUP_PLACE(ITEM)) : 0.0f;
    REDUCE(shift, firsts, SUM)
    shift /= FLOAT(n < GROUP_SIZE_X ? n : GROUP_SIZE_X);
    shift = IS_FINITE(shift) ? shift : 0.0f; /* the mean may be infinite */
    float sum = 0.0f;
    float squares = 0.0f;
    for (int j = ITEM; j < n; j += GROUP_SIZE_X) {
        float v = LOAD(x, GROUP_PLACE(j)) - shift;
        sum += v;
        squares += v * v;
    }
    REDUCE2(sum, part, squares, squared, SUM)
    mean = sum / FLOAT(n);
    deviations = squares - mean * sum;
    deviations = deviations > 0.0f || IS_NAN(deviations) ? deviations : 0.0f;
    mean += shift;
#else
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
#endif
    const float variance = deviations / FLOAT(n);
#endif
#ifdef MOMENTS
    if (ITEM == 0) {
        STORE(y, GROUP_Y * 2, mean);
        STORE(y, GROUP_Y * 2 + 1, variance);
    }
#else
    const int to = picture * P.y_n + group * P.channels * P.y_c;
    const float scale = RSQRT(variance + P.eps);
    for (int j = GROUP_X * GROUP_SIZE_X + ITEM; j < n; j += GROUPS_X * GROUP_SIZE_X) {
        int pixel = PIXEL_OF(j);
        int c = CHANNEL_OF(j, pixel);
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
#endif
KERNEL_END
