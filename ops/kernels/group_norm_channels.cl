/* group_norm of pictures whose channels lie together: an item keeps WIDE neighbouring channels and walks down the pixels, so that no place is
 * divided for, and neighbouring items read neighbouring vectors. A group of items has a tile of whole groups of channels: P.tile vectors of
 * P.rows pixels at a time. GROUP_X is the share of the pixels, GROUP_Y the picture and tile.
 * Host: WIDE 8 (x is F16X8 or BF16X8) or 4 (F32X4); Y_WIDE: elements that are stored at once, 8, 4 or 1; WEIGHT, BIAS. PARTS: the first of two
 * launches, mean and sum of squared deviations of P.band pixels of each group to a workspace, laid out as group_norm_stats does. Without, the
 * values: each group of items merges the parts of its tile. ONE_PASS, GIVEN, MOMENTS (only with ONE_PASS): as in group_norm. */
#if defined(PARTS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, stats)
#else
#ifdef ONE_PASS
#define AFTER 1
#define STATS(READ)
#else
#define AFTER 2
#define STATS(READ) READ(1, stats)
#endif
#if defined(WEIGHT) && defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) READ(AFTER, weight) READ(AFTER + 1, bias) WRITE(AFTER + 2, y)
#elif defined(WEIGHT)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) READ(AFTER, weight) WRITE(AFTER + 1, y)
#elif defined(BIAS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) READ(AFTER, bias) WRITE(AFTER + 1, y)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) STATS(READ) WRITE(AFTER, y)
#endif
#endif
#define KERNEL_PARAMS TERN_PARAMS_GROUP_NORM
#if defined(PARTS) || defined(ONE_PASS)
#define FROM_VALUES
#define PITCH (GROUP_SIZE_X + 1) /* so that the channels of a group lie in different banks */
#define KERNEL_SHARED(ARRAY)                                                                             \
    ARRAY(float, values, WIDE *PITCH) ARRAY(float, partial, GROUP_SIZE_X) ARRAY(float, means, GROUP_SIZE_X) \
    ARRAY(float, scales, GROUP_SIZE_X)
#else
#define KERNEL_SHARED(ARRAY) ARRAY(float, partial, GROUP_SIZE_X) ARRAY(float, means, GROUP_SIZE_X) ARRAY(float, scales, GROUP_SIZE_X)
#endif

#if WIDE == 8
#define LOAD_WIDE(v, at)                          \
    UINT4 words_ = LOAD8(x, at);                  \
    VEC4 low_ = FLOATS_OF(x, words_.x, words_.y); \
    VEC4 high_ = FLOATS_OF(x, words_.z, words_.w); \
    v[0] = low_.x;                                \
    v[1] = low_.y;                                \
    v[2] = low_.z;                                \
    v[3] = low_.w;                                \
    v[4] = high_.x;                               \
    v[5] = high_.y;                               \
    v[6] = high_.z;                               \
    v[7] = high_.w;
#else
#define LOAD_WIDE(v, at)        \
    VEC4 four_ = LOAD4(x, at);  \
    v[0] = four_.x;             \
    v[1] = four_.y;             \
    v[2] = four_.z;             \
    v[3] = four_.w;
#endif

/* For each channel i of the item, `own` is its group of the tile. */
#define EACH_CHANNEL(steps)                                          \
    {                                                                \
        int own = column * WIDE / P.channels;                        \
        int next_ = (own + 1) * P.channels - column * WIDE;          \
        UNROLL for (int i = 0; i < WIDE; i++)                        \
        {                                                            \
            if (i == next_) {                                        \
                own++;                                               \
                next_ += P.channels;                                 \
            }                                                        \
            steps                                                    \
        }                                                            \
    }

/* The sum of v over the P.lanes items of a group of channels, the same for all of them. */
#define TOTAL(v)                                                   \
    BARRIER();                                                     \
    partial[ITEM] = v;                                             \
    for (int step_ = P.lanes / 2; step_ > 0; step_ /= 2) {         \
        BARRIER();                                                 \
        if (lane < step_)                                          \
            partial[ITEM] += partial[ITEM + step_];                \
    }                                                              \
    BARRIER();                                                     \
    v = partial[ITEM - lane];

/* This item's share of what the items left of group `mine`: `row` of the pixels, and `found`. */
#define EACH_VALUE(steps)                                                                      \
    {                                                                                          \
        const int rows_ = P.lanes / P.channels;                                                \
        const int channels_ = P.lanes - rows_ * P.channels;                                    \
        int row = lane / P.channels;                                                           \
        int channel_ = mine * P.channels + lane - row * P.channels;                            \
        while (row < of_rows) {                                                                \
            float found = values[channel_ % WIDE * PITCH + row * P.tile + channel_ / WIDE];    \
            steps                                                                              \
            row += rows_;                                                                      \
            channel_ += channels_;                                                             \
            if (channel_ >= (mine + 1) * P.channels) {                                         \
                channel_ -= P.channels;                                                        \
                row++;                                                                         \
            }                                                                                  \
        }                                                                                      \
    }

KERNEL_BEGIN
    const int picture = GROUP_Y / P.tiles;
    const int tile = GROUP_Y - picture * P.tiles;
    const int in_tile = P.groups / P.tiles;
    const int line = ITEM / P.tile; /* of the pixels that the group of items walks together; those behind the last one do not walk */
    const int column = ITEM - line * P.tile;
    const int channel = (tile * P.tile + column) * WIDE;
    const int from = picture * P.x_n + channel;
    const int mine = ITEM / P.lanes; /* what the item sums up between the walks: group of the tile, and its place there */
    const int lane = ITEM - mine * P.lanes;
    const int first_stats = (picture * P.groups + tile * in_tile + mine) * P.parts * 2;
#ifdef FROM_VALUES
#ifdef PARTS
    const int begin = GROUP_X * P.band;
    const int size = P.pixels - begin < P.band ? P.pixels - begin : P.band;
#else
    const int begin = 0;
    const int size = P.pixels;
#endif
    const int of_rows = mine < in_tile ? P.rows : 0;
    const int each = size / P.rows; /* pixels of a line; the first ones have one more */
    const int longer = size - each * P.rows;
    const int count = line < P.rows ? each + (line < longer ? 1 : 0) : 0;
    const float share = count > 0 ? 1.0f / FLOAT(count) : 0.0f;
    /* Each channel's first four are taken off, on average, so that large means cost no digits, and a value far from the others few:
     * of n squares their sum is at most 1 + n / 4 times that of the deviations. */
    float shift[WIDE];
    float sum[WIDE];
    float squares[WIDE];
    UNROLL for (int i = 0; i < WIDE; i++) {
        shift[i] = 0.0f;
        sum[i] = 0.0f;
        squares[i] = 0.0f;
    }
    UNROLL for (int k = 0; k < 4; k++) {
        if (k < count) {
            float v[WIDE];
            LOAD_WIDE(v, from + (begin + line + k * P.rows) * P.x_pixel)
            UNROLL for (int i = 0; i < WIDE; i++) shift[i] += v[i];
        }
    }
    UNROLL for (int i = 0; i < WIDE; i++) {
        shift[i] *= count < 4 ? share : 0.25f;
        shift[i] = IS_FINITE(shift[i]) ? shift[i] : 0.0f; /* the mean may be infinite */
    }
    UNROLL_4 for (int k = 0; k < count; k++) {
        float v[WIDE];
        LOAD_WIDE(v, from + (begin + line + k * P.rows) * P.x_pixel)
        UNROLL for (int i = 0; i < WIDE; i++) {
            v[i] -= shift[i];
            sum[i] += v[i];
            squares[i] += v[i] * v[i];
        }
    }
    UNROLL for (int i = 0; i < WIDE; i++) {
        float more = sum[i] * share;
        squares[i] -= more * sum[i];
        squares[i] = squares[i] > 0.0f || IS_NAN(squares[i]) ? squares[i] : 0.0f;
        shift[i] += more; /* the mean now */
        values[i * PITCH + ITEM] = shift[i];
    }
    BARRIER();
    /* What items have of a group becomes one [Chan 1979]: means, weighted by their pixels, then deviations. */
    float base = mine < in_tile ? values[mine * P.channels % WIDE * PITCH + mine * P.channels / WIDE] : 0.0f;
    base = IS_FINITE(base) ? base : 0.0f;
    float mean = 0.0f;
    EACH_VALUE(mean += (found - base) * FLOAT(row < longer ? each + 1 : each);)
    TOTAL(mean)
    mean = base + mean / FLOAT(size * P.channels);
    if (lane == 0 && mine < in_tile)
        means[mine] = mean;
    BARRIER();
    EACH_CHANNEL(float away = shift[i] - means[own]; values[i * PITCH + ITEM] = squares[i] + FLOAT(count) * away * away;)
    BARRIER();
    float deviations = 0.0f;
    EACH_VALUE(deviations += found;)
    TOTAL(deviations)
#ifdef PARTS
    if (lane == 0 && mine < in_tile) {
        STORE(stats, first_stats + GROUP_X * 2, mean);
        STORE(stats, first_stats + GROUP_X * 2 + 1, deviations);
    }
#else
    const float variance = deviations / FLOAT(size * P.channels);
#endif
#elif defined(GIVEN)
    const float mean = mine < in_tile ? LOAD(stats, (picture * P.groups + tile * in_tile + mine) * 2) : 0.0f;
    const float given = mine < in_tile ? LOAD(stats, (picture * P.groups + tile * in_tile + mine) * 2 + 1) : 0.0f;
    const float variance = given < 0.0f ? 0.0f : given;
#else
    const int parts = mine < in_tile ? P.parts : 0;
    float base = parts > 0 ? LOAD(stats, first_stats) : 0.0f;
    base = IS_FINITE(base) ? base : 0.0f;
    float mean = 0.0f;
    for (int k = lane; k < parts; k += P.lanes)
        mean += (LOAD(stats, first_stats + k * 2) - base) * FLOAT(k < P.parts - 1 ? P.band : P.pixels - k * P.band);
    TOTAL(mean)
    mean = base + mean / FLOAT(P.pixels);
    float deviations = 0.0f;
    for (int k = lane; k < parts; k += P.lanes) {
        float away = LOAD(stats, first_stats + k * 2) - mean;
        int n = (k < P.parts - 1 ? P.band : P.pixels - k * P.band) * P.channels;
        deviations += LOAD(stats, first_stats + k * 2 + 1) + away * away * FLOAT(n);
    }
    TOTAL(deviations)
    const float variance = deviations / FLOAT(P.pixels * P.channels);
#endif
#if defined(MOMENTS)
    if (lane == 0 && mine < in_tile) {
        STORE(y, (picture * P.groups + tile * in_tile + mine) * 2, mean);
        STORE(y, (picture * P.groups + tile * in_tile + mine) * 2 + 1, variance);
    }
#elif !defined(PARTS)
    if (lane == 0 && mine < in_tile) {
        means[mine] = mean;
        scales[mine] = RSQRT(variance + P.eps);
    }
    BARRIER();
    float middle[WIDE];
    float scale[WIDE];
    float above[WIDE];
    EACH_CHANNEL(middle[i] = means[own]; scale[i] = scales[own]; above[i] = 0.0f;)
#ifdef WEIGHT
    UNROLL for (int i = 0; i < WIDE; i++) scale[i] *= LOAD(weight, (channel + i) * P.weight_step);
#endif
#ifdef BIAS
    UNROLL for (int i = 0; i < WIDE; i++) above[i] = LOAD(bias, (channel + i) * P.bias_step);
#endif
    const int to = picture * P.y_n + channel;
    UNROLL_2 for (int pixel = line < P.rows ? GROUP_X * P.rows + line : P.pixels; pixel < P.pixels; pixel += GROUPS_X * P.rows) {
        const int at = to + pixel * P.y_pixel;
        float v[WIDE];
        LOAD_WIDE(v, from + pixel * P.x_pixel)
        UNROLL for (int i = 0; i < WIDE; i++) {
            v[i] = (v[i] - middle[i]) * scale[i] + above[i];
            v[i] = POST(v[i], at + i, channel + i);
        }
#if Y_WIDE == 8
        STORE8(y, at, MAKE_UINT4(WORD_OF(y, v[0], v[1]), WORD_OF(y, v[2], v[3]), WORD_OF(y, v[4], v[5]), WORD_OF(y, v[6], v[7])));
#elif Y_WIDE == 4
        UNROLL for (int i = 0; i < WIDE; i += 4) STORE4(y, at + i, MAKE_VEC4(v[i], v[i + 1], v[i + 2], v[i + 3]));
#else
        UNROLL for (int i = 0; i < WIDE; i++) STORE(y, at + i, v[i]);
#endif
    }
#endif
KERNEL_END
