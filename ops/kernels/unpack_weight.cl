/* The values of a weight in few bits, which lies in words: ops/weight_only.h. An item makes one value.
 * Host: WEIGHT_BITS, 8 or 4. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, packed) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_PACKED_WEIGHT
#define KERNEL_SHARED(ARRAY)

#define WORD(at) UINT(LOADI(packed, row * P.word_row + (at)*P.word_step))

KERNEL_BEGIN
    for (int n = GROUP_X * GROUP_SIZE_X + LOCAL_X; n < P.rows * P.depth; n += GROUPS_X * GROUP_SIZE_X) {
        int row = n / P.depth;
        int i = n - row * P.depth;
#if WEIGHT_BITS == 8
        float scale = AS_FLOAT(WORD(0));
        int value = INT(WORD(1 + i / 4) << UINT(24 - i % 4 * 8)) >> 24;
#else
        int pair = i / 64;
        int inside = i - pair * 64;
        float scale = tern_f32_of_bf16(WORD(pair * 9) >> UINT(inside / 32 * 16) & 0xffffu);
        int value = INT(WORD(pair * 9 + 1 + inside / 8) >> UINT(inside % 8 * 4) & 15u) - 8;
#endif
        STORE(y, WEIGHT_PLACE(row, i), FLOAT(value) * scale);
    }
KERNEL_END
