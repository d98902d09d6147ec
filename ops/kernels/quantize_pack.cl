/* int8 as products read it: words of four values, the first in the low bits; of every pixel its groups of channels, each filled with zeros
 * to P.deep, a multiple of 16. A slice has P.pixels pixels and one scale.
 * Host: where the scale comes from: FOUND (x comes into a product; a group finds the largest |x| of a slice by itself), PARTS (likewise, the
 * largest of P.parts parts of a slice has been found before), SCALED (x is a weight, its scales are there); none of them: x is int8 already.
 * But for FOUND, P.chunks groups share the words of a slice. WIDE: channels are loaded by four; DENSE, with WIDE: a slice lies in memory in
 * the order of its words, P.x_slice elements behind the one before. */
#if defined(FOUND)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, factors) WRITE(2, y)
#define KERNEL_SHARED(ARRAY) ARRAY(float, part, REDUCE_ROOM)
#elif defined(PARTS)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, mosts) WRITE(2, factors) WRITE(3, y)
#define KERNEL_SHARED(ARRAY)
#elif defined(SCALED)
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) READ(1, scale) WRITE(2, y)
#define KERNEL_SHARED(ARRAY)
#else
#define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)
#define KERNEL_SHARED(ARRAY)
#endif
#define KERNEL_PARAMS TERN_PARAMS_QUANTIZE_PACK

#ifdef DENSE
#define PLACE(word) int at = slice * P.x_slice + (word)*4;
#define FETCH VEC4 v = LOAD4(x, at);
#else
/* Declares the place of word `word` of the slice: the first of its channels in the group, and where that one lies in x. */
#define PLACE(word)                                                                                                      \
    int before = (word) / (P.deep / 4);                                                                                  \
    int c = ((word)-before * (P.deep / 4)) * 4;                                                                          \
    int inside = before / P.groups;                                                                                      \
    int pixel = slice * P.pixels + inside;                                                                               \
    int row = pixel / P.w;                                                                                               \
    int picture = row / P.h;                                                                                             \
    int at = picture * P.x_n + (row - picture * P.h) * P.x_h + (pixel - row * P.w) * P.x_w +                             \
             ((before - inside * P.groups) * P.channels + c) * P.x_c;
#ifdef WIDE
#define FETCH VEC4 v = c < P.channels ? LOAD4(x, at) : ZERO4;
#else
#define FETCH_1(i) (c + (i) < P.channels ? LOAD(x, at + (i)*P.x_c) : 0.0f)
#define FETCH VEC4 v = MAKE_VEC4(FETCH_1(0), FETCH_1(1), FETCH_1(2), FETCH_1(3));
#endif
#endif

/* Of what comes into a product: ops/quantize.c, tern_quantize_factors_of. */
#define FACTORS(most)                                        \
    float up = tern_quotient(127.0f, most);                  \
    bool known = !IS_NAN(most) && most < INFINITE;           \
    bool usable = known && up < INFINITE;                    \
    float down = usable ? tern_quotient(most, 127.0f) : known ? 0.0f : NO_NUMBER;
#if defined(FOUND) || defined(PARTS)
#define WHOLE(v) (usable ? INT(ROUND((v)*up)) : 0)
#elif defined(SCALED)
#define WHOLE(v) INT(tern_quantize(v, by))
#else
#define WHOLE(v) INT(v)
#endif
#define BYTE(v) (UINT(WHOLE(v)) & 255u)

KERNEL_BEGIN
    const int words = P.pixels * P.groups * (P.deep / 4);
#ifdef FOUND
    for (int slice = GROUP_X; slice < P.slices; slice += GROUPS_X) {
        const int first = ITEM;
        const int step = GROUP_SIZE_X;
        float most = 0.0f;
        for (int i = first; i < words; i += step) {
            PLACE(i)
            FETCH
            most = MOST(ABS(v.x), most);
            most = MOST(ABS(v.y), most);
            most = MOST(ABS(v.z), most);
            most = MOST(ABS(v.w), most);
        }
        REDUCE(most, part, MOST)
#else
    for (int group = GROUP_X; group < P.slices * P.chunks; group += GROUPS_X) {
        const int slice = group / P.chunks;
        const int first = (group - slice * P.chunks) * GROUP_SIZE_X + LOCAL_X;
        const int step = P.chunks * GROUP_SIZE_X;
#endif
#ifdef PARTS
        float most = 0.0f;
        for (int i = 0; i < P.parts; i++)
            most = MOST(LOAD(mosts, slice * P.parts + i), most);
#endif
#if defined(FOUND) || defined(PARTS)
        FACTORS(most)
        if (first == 0)
            STORE(factors, slice, down);
#elif defined(SCALED)
        float by = LOAD(scale, slice * P.scale_n);
#endif
        for (int i = first; i < words; i += step) {
            PLACE(i)
            FETCH
            uint bytes = BYTE(v.x) | BYTE(v.y) << 8 | BYTE(v.z) << 16 | BYTE(v.w) << 24;
            STOREI(y, slice * words + i, INT(bytes));
        }
#ifdef FOUND
        BARRIER(); /* before the part is filled again */
#endif
    }
KERNEL_END
