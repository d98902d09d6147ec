/* A weight in few bits as words of 32 bits: ops/weight_only.h. A row's values lie tap by tap, channel by channel there.
 * Host: WEIGHT_BITS, 8: a group of items makes a row; or 4: an item makes the nine words of 64 values. */
#define KERNEL_BUFFERS(READ, WRITE) READ(0, weight) WRITE(1, y)
#define KERNEL_PARAMS TERN_PARAMS_PACKED_WEIGHT
#if WEIGHT_BITS == 8
#define KERNEL_SHARED(ARRAY) ARRAY(float, part, REDUCE_ROOM)
#else
#define KERNEL_SHARED(ARRAY)
#endif

#define VALUE(row, i) ((i) < P.depth ? LOAD(weight, WEIGHT_PLACE(row, i)) : 0.0f)
#define WHOLE(row, i, least, most) INT(tern_weight_value(VALUE(row, i), scale, least, most))

KERNEL_BEGIN
#if WEIGHT_BITS == 8
    for (int row = GROUP_X; row < P.rows; row += GROUPS_X) {
        float most = 0.0f;
        for (int i = ITEM; i < P.depth; i += GROUP_SIZE_X) {
            float size = ABS(LOAD(weight, WEIGHT_PLACE(row, i)));
            most = MOST(size, most);
        }
        REDUCE(most, part, MOST)
        float scale = tern_weight_scale(tern_quotient(most, 127.0f));
        if (ITEM == 0)
            STOREI(y, row * P.word_row, INT(AS_UINT(scale)));
        for (int word = ITEM; word < (P.depth + 3) / 4; word += GROUP_SIZE_X) {
            uint bits = 0u;
            UNROLL for (int k = 0; k < 4; k++)
                bits |= (UINT(WHOLE(row, word * 4 + k, -127.0f, 127.0f)) & 255u) << UINT(k * 8);
            STOREI(y, row * P.word_row + (word + 1) * P.word_step, INT(bits));
        }
        BARRIER(); /* before the part is filled again */
    }
#else
    const int pairs = (P.depth + 63) / 64;
    for (int i = GROUP_X * GROUP_SIZE_X + LOCAL_X; i < P.rows * pairs; i += GROUPS_X * GROUP_SIZE_X) {
        int row = i / pairs;
        int pair = i - row * pairs;
        int to = row * P.word_row + pair * 9 * P.word_step;
        uint scales = 0u;
        for (int group = 0; group < 2; group++) {
            int first = pair * 64 + group * 32;
            float most = 0.0f;
            for (int k = 0; k < 32; k++) {
                float v = VALUE(row, first + k);
                if (ABS(v) > ABS(most) || (IS_NAN(v) && !IS_NAN(most)))
                    most = v;
            }
            uint half_bits = tern_bf16_of_f32(tern_weight_scale(most * -0.125f));
            float scale = tern_f32_of_bf16(half_bits);
            scales |= half_bits << UINT(group * 16);
            for (int word = 0; word < 4; word++) {
                uint bits = 0u;
                for (int k = 0; k < 8; k++)
                    bits |= UINT(WHOLE(row, first + word * 8 + k, -8.0f, 7.0f) + 8) << UINT(k * 4);
                STOREI(y, to + (1 + group * 4 + word) * P.word_step, INT(bits));
            }
        }
        STOREI(y, to, INT(scales));
    }
#endif
KERNEL_END
