/* The values of a weight in few bits, which lies in words: ops/weight_only.h. An item makes one value, or eight neighbours at once (WIDE_Y).
 * Host: WEIGHT_BITS, 8 or 4; WIDE_Y: y has 16 bits, and eight channels lie together, at a multiple of eight. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, packed) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_PACKED_WEIGHT
#define KERNEL_SHARED(ARRAY)

#define WORD(at) UINT(LOADI(packed, row * P.word_row + (at)*P.word_step))
#ifdef WIDE_Y
#define WIDTH 8
#else
#define WIDTH 1
#endif

#if WEIGHT_BITS == 8
#define VALUE_OF(word, i) (FLOAT(INT((word) << UINT(24 - (i) % 4 * 8)) >> 24) * scale)
#else
#define VALUE_OF(word, i) (FLOAT(INT((word) >> UINT((i) % 8 * 4) & 15u) - 8) * scale)
#endif
#define TWO(word, i) WORD_OF(y, VALUE_OF(word, i), VALUE_OF(word, (i) + 1))

KERNEL_BEGIN
    const int per_row = P.depth / WIDTH;
    for (int n = GROUP_X * GROUP_SIZE_X + LOCAL_X; n < P.rows * per_row; n += GROUPS_X * GROUP_SIZE_X) {
        int row = n / per_row;
        int i = (n - row * per_row) * WIDTH;
#if WEIGHT_BITS == 8
        float scale = AS_FLOAT(WORD(0));
        uint word = WORD(1 + i / 4);
#else
        int pair = i / 64;
        int inside = i - pair * 64;
        float scale = tern_f32_of_bf16(WORD(pair * 9) >> UINT(inside / 32 * 16) & 0xffffu);
        uint word = WORD(pair * 9 + 1 + inside / 8);
#endif
#ifndef WIDE_Y
        STORE(y, WEIGHT_PLACE(row, i), VALUE_OF(word, i));
#elif WEIGHT_BITS == 8
        uint next = WORD(2 + i / 4);
        STORE8(y, WEIGHT_PLACE(row, i), MAKE_UINT4(TWO(word, 0), TWO(word, 2), TWO(next, 0), TWO(next, 2)));
#else
        STORE8(y, WEIGHT_PLACE(row, i), MAKE_UINT4(TWO(word, 0), TWO(word, 2), TWO(word, 4), TWO(word, 6)));
#endif
    }
KERNEL_END
