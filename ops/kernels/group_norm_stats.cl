/* First pass of group_norm: mean and sum of squared deviations of a part of a group of channels, to a workspace: two values a part.
 * The mean of its first values is taken off, so that large means cost no digits, nor does one value far from the others. GROUP_X is the part, GROUP_Y the picture and group.
 * Host: GROUP_SIZE_X a power of two; CHANNELS_LAST: neighbours in memory are channels (else pixels). */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, stats)
#define KERNEL_PARAMS TERN_PARAMS_GROUP_NORM
#define KERNEL_SHARED(ARRAY) ARRAY(float, firsts, REDUCE_ROOM) ARRAY(float, part, REDUCE_ROOM) ARRAY(float, squared, REDUCE_ROOM)
#define SUM(a, b) ((a) + (b))

KERNEL_BEGIN
    const int picture = GROUP_Y / P.groups;
    const int group = GROUP_Y - picture * P.groups;
    const int from = picture * P.x_n + group * P.channels * P.x_c;
    const int n = P.channels * P.pixels;
    const int begin = GROUP_X * P.part;
    const int end = n - begin < P.part ? n : begin + P.part;
    float shift = begin + ITEM < end ? LOAD(x, GROUP_PLACE(begin + ITEM)) : 0.0f;
    REDUCE(shift, firsts, SUM)
    shift /= FLOAT(end - begin < GROUP_SIZE_X ? end - begin : GROUP_SIZE_X);
    shift = IS_FINITE(shift) ? shift : 0.0f; /* the mean may be infinite */
    float sum = 0.0f;
    float squares = 0.0f;
    for (int j = begin + ITEM; j < end; j += GROUP_SIZE_X) {
        float v = LOAD(x, GROUP_PLACE(j)) - shift;
        sum += v;
        squares += v * v;
    }
    REDUCE2(sum, part, squares, squared, SUM)
    if (ITEM == 0) {
        float mean = sum / FLOAT(end - begin);
        float deviations = squares - mean * sum;
        int at = (GROUP_Y * P.parts + GROUP_X) * 2;
        STORE(stats, at, mean + shift);
        STORE(stats, at + 1, deviations > 0.0f || IS_NAN(deviations) ? deviations : 0.0f);
    }
KERNEL_END
