/* What a kernel text is written in: element types, access to buffers and parameters, functions of values. Not a C header: the
 * source of a kernel is the language's part (cuda.h, opencl.h, glsl.h, host.h), this, params.h and the text (text.c).
 *
 * A text says what it works on by three lists, and then what each item of a group does:
 *     #define KERNEL_BUFFERS(READ, WRITE) READ(0, x) WRITE(1, y)         slots and names; slots are numbered from 0
 *     #define KERNEL_PARAMS TERN_PARAMS_FILL                             a list of params.h
 *     #define KERNEL_SHARED(ARRAY) ARRAY(float, part, GROUP_SIZE_X)      type, name, number of elements; may be empty
 *     KERNEL_BEGIN ... KERNEL_END
 * Between them only: LOAD and its like, STORE and its like, P.name (a parameter), shared arrays, LOCAL_X, GROUP_X …, BARRIER().
 * The host defines GROUP_SIZE_X and GROUP_SIZE_Y, DTYPE_<name> for each buffer, and what the text's own comment names.
 *
 * Loops: UNROLL; UNROLL_4 and UNROLL_2 where a whole one would be so long that the drivers' compilers take seconds for it.
 *
 * What all four languages want of a text: conditions are bool (write != 0), casts are INT(x) FLOAT(x) UINT(x), no pointers, no
 * initialisers of arrays, no static, no recursion; functions begin with FN and know neither buffers nor parameters; uint
 * constants end in u, float ones in f. A barrier stands where all items of a group come by, or none. */

#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define MEMBER_INT(name) int name;
#define MEMBER_INTS(name, n) int name[n];
#define MEMBER_UINT(name) uint name;
#define MEMBER_FLOAT(name) float name;
#define MEMBER_FLOATS(name, n) float name[n];

/* A variable whose sums are done as they are written: where rounding errors are what is computed. */
#ifndef EXACT
#define EXACT
#endif

#define IS_NAN(x) ((AS_UINT(x) & 0x7fffffffu) > 0x7f800000u)
#define IS_FINITE(x) ((AS_UINT(x) & 0x7fffffffu) < 0x7f800000u)
#define INFINITE AS_FLOAT(0x7f800000u)
#define NO_NUMBER AS_FLOAT(0x7fc00000u)

/* ---- element types: how they are stored, and their way to float (or int) and back, rounded to nearest even ---- */

FN float tern_f32_of_bf16(uint bits) { return AS_FLOAT(bits << 16); }

FN uint tern_bf16_of_f32(float v)
{
    uint bits = AS_UINT(v);
    if (IS_NAN(v))
        return bits >> 16 | 64u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/* A 64-bit integer, given by its halves: as int, limited to its range. */
FN int tern_int_of_pair(int low, int high)
{
    if (high == (low < 0 ? -1 : 0))
        return low;
    return high < 0 ? -2147483647 - 1 : 2147483647;
}

/* As float, rounded once: of the magnitude the first 32 bits count, with a bit that says whether others follow. */
FN float tern_f32_of_pair(int low, int high)
{
    uint lo = UINT(low), hi = UINT(high);
    float scale = 4294967296.0f;
    if (high == (low < 0 ? -1 : 0))
        return FLOAT(low);
    if (high < 0) {
        hi = ~hi + (lo == 0u ? 1u : 0u);
        lo = ~lo + 1u;
        scale = -scale;
    }
    if (hi == 0u)
        return FLOAT(lo) * (scale < 0.0f ? -1.0f : 1.0f);
    while (hi < 0x80000000u) {
        hi = hi << 1 | lo >> 31;
        lo = lo << 1;
        scale *= 0.5f;
    }
    return FLOAT(lo != 0u ? hi | 1u : hi) * scale;
}

/* Truncates; NaN gives 0, what is beyond the range its end. */
FN int tern_int_of_f32(float v)
{
    if (IS_NAN(v))
        return 0;
    return v >= 2147483648.0f ? 2147483647 : v < -2147483648.0f ? -2147483647 - 1 : INT(v);
}

#define STORAGE_F32 float
#define STORAGE_F16 USHORT
#define STORAGE_BF16 USHORT
#define STORAGE_I8 SCHAR
#define STORAGE_U8 UCHAR
#define STORAGE_BOOL UCHAR
#define STORAGE_I32 int
#define STORAGE_I64 INT2
#define STORAGE(b) PASTE(STORAGE_, DTYPE_##b)

#define LOAD_F32(b, i) READ_ELEMENT(b, i)
#define LOAD_F16(b, i) tern_f32_of_f16(UINT(READ_ELEMENT(b, i)))
#define LOAD_BF16(b, i) tern_f32_of_bf16(UINT(READ_ELEMENT(b, i)))
#define LOAD_I8(b, i) FLOAT(LOADI_I8(b, i))
#define LOAD_U8(b, i) FLOAT(LOADI_U8(b, i))
#define LOAD_BOOL(b, i) FLOAT(LOADI_BOOL(b, i))
#define LOAD_I32(b, i) FLOAT(READ_ELEMENT(b, i))
#define LOAD_I64(b, i) tern_f32_of_pair(READ_ELEMENT(b, i).x, READ_ELEMENT(b, i).y)
#define LOADI_I8(b, i) INT(READ_ELEMENT(b, i))
#define LOADI_U8(b, i) INT(READ_ELEMENT(b, i))
#define LOADI_BOOL(b, i) (INT(READ_ELEMENT(b, i)) != 0 ? 1 : 0)
#define LOADI_I32(b, i) READ_ELEMENT(b, i)
#define LOADI_I64(b, i) tern_int_of_pair(READ_ELEMENT(b, i).x, READ_ELEMENT(b, i).y)

#define STORE_F32(b, i, v) WRITE_ELEMENT(b, i, v)
#define STORE_F16(b, i, v) WRITE_ELEMENT(b, i, NARROW_16(tern_f16_of_f32(v)))
#define STORE_BF16(b, i, v) WRITE_ELEMENT(b, i, NARROW_16(tern_bf16_of_f32(v)))
#define STORE_I8(b, i, v) STOREI_I8(b, i, tern_int_of_f32(v))
#define STORE_U8(b, i, v) STOREI_U8(b, i, tern_int_of_f32(v))
#define STORE_BOOL(b, i, v) WRITE_ELEMENT(b, i, NARROW_U8((v) != 0.0f ? 1 : 0))
#define STORE_I32(b, i, v) STOREI_I32(b, i, tern_int_of_f32(v))
#define STORE_I64(b, i, v) STOREI_I64(b, i, tern_int_of_f32(v))
#define STOREI_F32(b, i, v) WRITE_ELEMENT(b, i, FLOAT(v))
#define STOREI_F16(b, i, v) STORE_F16(b, i, FLOAT(v))
#define STOREI_BF16(b, i, v) STORE_BF16(b, i, FLOAT(v))
#define STOREI_I8(b, i, v) WRITE_ELEMENT(b, i, NARROW_I8(v))
#define STOREI_U8(b, i, v) WRITE_ELEMENT(b, i, NARROW_U8(v))
#define STOREI_BOOL(b, i, v) WRITE_ELEMENT(b, i, NARROW_U8((v) != 0 ? 1 : 0))
#define STOREI_I32(b, i, v) WRITE_ELEMENT(b, i, v)
#define STOREI_I64(b, i, v) WRITE_ELEMENT(b, i, MAKE_INT2(v, (v) < 0 ? -1 : 0))

#define COPY_F32(to, j, b, i) WRITE_ELEMENT(to, j, READ_ELEMENT(b, i))
#define COPY_F16(to, j, b, i) WRITE_ELEMENT(to, j, NARROW_16(UINT(READ_ELEMENT(b, i))))
#define COPY_BF16(to, j, b, i) COPY_F16(to, j, b, i)
#define COPY_I8(to, j, b, i) WRITE_ELEMENT(to, j, NARROW_I8(INT(READ_ELEMENT(b, i))))
#define COPY_U8(to, j, b, i) WRITE_ELEMENT(to, j, NARROW_U8(INT(READ_ELEMENT(b, i))))
#define COPY_BOOL(to, j, b, i) COPY_U8(to, j, b, i)
#define COPY_I32(to, j, b, i) COPY_F32(to, j, b, i)
#define COPY_I64(to, j, b, i) COPY_F32(to, j, b, i)

/* Read only, where a device has no 16-bit or 8-bit storage: several elements to a 32-bit word, the first in its low bits. */
#define STORAGE_F16W uint
#define STORAGE_BF16W uint
#define STORAGE_I8W uint
#define STORAGE_U8W uint
#define STORAGE_BOOLW uint
#define HALF_OF_WORD(b, i) (READ_ELEMENT(b, (i) >> 1) >> UINT(((i)&1) << 4) & 0xffffu)
#define BYTE_OF_WORD(b, i) (READ_ELEMENT(b, (i) >> 2) >> UINT(((i)&3) << 3) & 0xffu)
#define LOAD_F16W(b, i) tern_f32_of_f16(HALF_OF_WORD(b, i))
#define LOAD_BF16W(b, i) tern_f32_of_bf16(HALF_OF_WORD(b, i))
#define LOAD_I8W(b, i) FLOAT(LOADI_I8W(b, i))
#define LOAD_U8W(b, i) FLOAT(LOADI_U8W(b, i))
#define LOAD_BOOLW(b, i) FLOAT(LOADI_BOOLW(b, i))
#define LOADI_I8W(b, i) (INT(BYTE_OF_WORD(b, i) ^ 128u) - 128)
#define LOADI_U8W(b, i) INT(BYTE_OF_WORD(b, i))
#define LOADI_BOOLW(b, i) (BYTE_OF_WORD(b, i) != 0u ? 1 : 0)

/* Four elements at once, for LOAD4; offset and index are multiples of 4, memory is aligned to as many elements. */
#define STORAGE_F32X4 VEC4
#define STORAGE_F16X4 UINT2
#define STORAGE_BF16X4 UINT2
FN VEC4 tern_f16_of_words(UINT2 w)
{
    return MAKE_VEC4(tern_f32_of_f16(w.x & 0xffffu), tern_f32_of_f16(w.x >> 16), tern_f32_of_f16(w.y & 0xffffu),
                     tern_f32_of_f16(w.y >> 16));
}
FN VEC4 tern_bf16_of_words(UINT2 w)
{
    return MAKE_VEC4(AS_FLOAT(w.x << 16), AS_FLOAT(w.x & 0xffff0000u), AS_FLOAT(w.y << 16), AS_FLOAT(w.y & 0xffff0000u));
}
#define LOAD4_F32X4(b, i) READ_ELEMENT(b, (i) >> 2)
#define LOAD4_F16X4(b, i) tern_f16_of_words(READ_ELEMENT(b, (i) >> 2))
#define LOAD4_BF16X4(b, i) tern_bf16_of_words(READ_ELEMENT(b, (i) >> 2))

/* Eight elements of 16 bits as they are stored, two to a word, for LOAD8 and STORE8; offset and index are multiples of 8. */
#define STORAGE_F16X8 UINT4
#define STORAGE_BF16X8 UINT4
#define BITS_F16X8(v) tern_f16_of_f32(v)
#define BITS_BF16X8(v) tern_bf16_of_f32(v)
#define FLOATS_F16X8(v, w) tern_f16_of_words(MAKE_UINT2(v, w))
#define FLOATS_BF16X8(v, w) tern_bf16_of_words(MAKE_UINT2(v, w))

/* Sixteen int8, four to a word, the first in its low bits, for LOAD16; offset and index are multiples of 16, but where they are read one by
 * one (I8, I8W). */
#define STORAGE_I8X16 UINT4
#define LOAD16_I8X16(b, i) READ_ELEMENT(b, (i) >> 4)
#define BYTE_OF_I8(b, i) (UINT(LOADI_I8(b, i)) & 255u)
#define WORD_OF_BYTES(BYTE, b, i) (BYTE(b, i) | BYTE(b, (i) + 1) << 8 | BYTE(b, (i) + 2) << 16 | BYTE(b, (i) + 3) << 24)
#define LOAD16_BY(BYTE, b, i)                                                                               \
    MAKE_UINT4(WORD_OF_BYTES(BYTE, b, i), WORD_OF_BYTES(BYTE, b, (i) + 4), WORD_OF_BYTES(BYTE, b, (i) + 8), \
               WORD_OF_BYTES(BYTE, b, (i) + 12))
#define LOAD16_I8(b, i) LOAD16_BY(BYTE_OF_I8, b, i)
#define LOAD16_I8W(b, i) LOAD16_BY(BYTE_OF_WORD, b, i)

/* ---- what texts call: i counts elements from where the argument begins in its buffer ---- */

#define LOAD(b, i) PASTE(LOAD_, DTYPE_##b)(b, (i) + b##_offset)
#define LOADI(b, i) PASTE(LOADI_, DTYPE_##b)(b, (i) + b##_offset)
#define LOAD4(b, i) PASTE(LOAD4_, DTYPE_##b)(b, (i) + b##_offset)
#define STORE(b, i, v) PASTE(STORE_, DTYPE_##b)(b, (i) + b##_offset, v)
#define STOREI(b, i, v) PASTE(STOREI_, DTYPE_##b)(b, (i) + b##_offset, v)
#define LOAD8(b, i) READ_ELEMENT(b, ((i) + b##_offset) >> 3)
#define STORE8(b, i, v) WRITE_ELEMENT(b, ((i) + b##_offset) >> 3, v)
/* Four floats to a buffer of F32X4. */
#define STORE4(b, i, v) WRITE_ELEMENT(b, ((i) + b##_offset) >> 2, v)
#define LOAD16(b, i) PASTE(LOAD16_, DTYPE_##b)(b, (i) + b##_offset)
/* Four values of two words of b. */
#define FLOATS_OF(b, v, w) PASTE(FLOATS_, DTYPE_##b)(v, w)
/* Two values as two elements of b in a word; and an element of 16 bits as it is stored. */
#define WORD_OF(b, v, w) (PASTE(BITS_, DTYPE_##b)(v) | PASTE(BITS_, DTYPE_##b)(w) << 16)
#define BITS(b, i) UINT(READ_ELEMENT(b, (i) + b##_offset))
/* The bits of one element; both buffers have one dtype. */
#define COPY(to, j, b, i) PASTE(COPY_, DTYPE_##to)(to, (j) + to##_offset, b, (i) + b##_offset)

/* What happens to a result before it is stored: i is its place in the output, c its channel or column. The host may define
 * it, and up to three buffers for it: #define POST_BUFFERS(READ) READ(4, post0) … */
#ifndef POST
#define POST(v, i, c) (v)
#endif
#ifndef POST_BUFFERS
#define POST_BUFFERS(READ)
#endif
/* Operand n of a post. */
#define POST_AT(n, i, c) ((i) / P.post_inner[n] * P.post_ld[n] + (c)*P.post_step[n])

#define ZERO4 MAKE_VEC4(0.0f, 0.0f, 0.0f, 0.0f)
/* Lane 0 to 3 of a vector; known when the text is compiled, once loops are unrolled. */
#define PART_OF(v, lane) ((lane) == 0 ? (v).x : (lane) == 1 ? (v).y : (lane) == 2 ? (v).z : (v).w)
FN VEC4 tern_mad4(float s, VEC4 v, VEC4 sum) { return MAKE_VEC4(sum.x + s * v.x, sum.y + s * v.y, sum.z + s * v.z, sum.w + s * v.w); }
FN VEC4 tern_mul4(VEC4 a, VEC4 b) { return MAKE_VEC4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w); }
/* sum += column times row: LEFT(i) is the vector of rows 4 i … 4 i + 3, RIGHT(j) that of columns 4 j … 4 j + 3; rows x cols sums, a
 * row of them in cols / 4 vectors. */
#define ADD_PRODUCT(sum, rows, cols, LEFT, RIGHT)                                                      \
    VEC4 right_[(cols) / 4];                                                                           \
    UNROLL for (int j_ = 0; j_ < (cols) / 4; j_++) right_[j_] = RIGHT(j_);                             \
    UNROLL for (int i_ = 0; i_ < (rows) / 4; i_++)                                                     \
    {                                                                                                  \
        VEC4 left_ = LEFT(i_);                                                                         \
        UNROLL for (int j_ = 0; j_ < (cols) / 4; j_++)                                                 \
        {                                                                                              \
            const int at_ = i_ * (cols) + j_;                                                          \
            sum[at_] = tern_mad4(left_.x, right_[j_], sum[at_]);                                       \
            sum[at_ + (cols) / 4] = tern_mad4(left_.y, right_[j_], sum[at_ + (cols) / 4]);             \
            sum[at_ + 2 * ((cols) / 4)] = tern_mad4(left_.z, right_[j_], sum[at_ + 2 * ((cols) / 4)]); \
            sum[at_ + 3 * ((cols) / 4)] = tern_mad4(left_.w, right_[j_], sum[at_ + 3 * ((cols) / 4)]); \
        }                                                                                              \
    }
/* Four vectors as the columns of a block of a shared array of vectors that MAKE makes: its rows begin at `at` and lie `pitch` apart. */
#define STORE_COLUMNS_BY(MAKE, array, at, pitch, v0, v1, v2, v3)      \
    array[at] = MAKE((v0).x, (v1).x, (v2).x, (v3).x);                 \
    array[(at) + (pitch)] = MAKE((v0).y, (v1).y, (v2).y, (v3).y);     \
    array[(at) + 2 * (pitch)] = MAKE((v0).z, (v1).z, (v2).z, (v3).z); \
    array[(at) + 3 * (pitch)] = MAKE((v0).w, (v1).w, (v2).w, (v3).w)
#define STORE_COLUMNS(array, at, pitch, v0, v1, v2, v3) STORE_COLUMNS_BY(MAKE_VEC4, array, at, pitch, v0, v1, v2, v3)

/* ---- int8 ---- */

/* Where value i of an output channel of a weight lies: tap by tap, channel by channel there. */
#define WEIGHT_TAP_(i) ((i) / P.channels)
#define WEIGHT_PLACE(row, i) \
    ((row)*P.w_o + WEIGHT_TAP_(i) / P.kernel_w * P.w_h + WEIGHT_TAP_(i) % P.kernel_w * P.w_w + ((i)-WEIGHT_TAP_(i) * P.channels) * P.w_c)

/* Four products of int8, summed: the bytes of two words. DOT_PRODUCT (defined by the host): the device has an instruction for it. */
#ifdef DOT_PRODUCT
#define DOT4(a, b) DOT_WORDS(a, b)
#else
#define BYTE_(word, shift) (INT((word) << (shift)) >> 24)
#define DOT4(a, b) (BYTE_(a, 24) * BYTE_(b, 24) + BYTE_(a, 16) * BYTE_(b, 16) + BYTE_(a, 8) * BYTE_(b, 8) + BYTE_(a, 0) * BYTE_(b, 0))
#endif
/* The larger of two |values|: NaN wins. */
#define MOST(a, b) ((a) > (b) || IS_NAN(a) ? (a) : (b))

/* For each dimension d of the batch, the last one first: `index` is where number `number` of the batch lies along it. Host: BATCH_NDIM. */
#define EACH_BATCH_DIM(number, steps)                            \
    int batch_rest_ = number;                                    \
    UNROLL for (int d = BATCH_NDIM - 1; d >= 0; d--)             \
    {                                                            \
        int above_ = d > 0 ? batch_rest_ / P.batch_shape[d] : 0; \
        int index = batch_rest_ - above_ * P.batch_shape[d];     \
        batch_rest_ = above_;                                    \
        steps                                                    \
    }

/* Declares from and to: where row number `row` of the kept dimensions begins in x and y. Host: ROW_NDIM. */
#define ROW_PLACE(row, from, to)                               \
    int from = 0;                                              \
    int to = 0;                                                \
    int row_rest_ = row;                                       \
    UNROLL for (int d_ = ROW_NDIM - 1; d_ >= 0; d_--)          \
    {                                                          \
        int above_ = d_ > 0 ? row_rest_ / P.row_shape[d_] : 0; \
        int index_ = row_rest_ - above_ * P.row_shape[d_];     \
        row_rest_ = above_;                                    \
        from += index_ * P.x_row[d_];                          \
        to += index_ * P.y_row[d_];                            \
    }

/* ---- over all items of a group, a power of two of them ---- */

/* ITEM: the number of an item of a group that is one row, in place of LOCAL_X; with SUBGROUP (defined by the host: the device exchanges
 * values among that many items, and groups are made of whole subgroups) those of a subgroup follow each other.
 * SHUFFLE_XOR(v, mask): v, a float or an int, of the item of the subgroup whose number differs by the bits of mask, which is below
 * SUBGROUP. All items of the subgroup come by. REDUCE(v, part, combine): v, a float of each item, becomes combine(…) of all items' v, the
 * same bits for all. REDUCE2 does so with two. combine gives the same in either order of its operands. part: a shared array of REDUCE_ROOM
 * floats, free before, and filled again only behind another barrier (that of a REDUCE with another array is one). */
#ifdef SUBGROUP
#define ITEM SUBGROUP_ITEM
#define REDUCE_ROOM (GROUP_SIZE_X / SUBGROUP)
#if GROUP_SIZE_X / SUBGROUP < SUBGROUP
#define REDUCE_LANES_ REDUCE_ROOM
#else
#define REDUCE_LANES_ SUBGROUP
#endif
#define REDUCE_WITHIN_(v, lanes, combine)                       \
    UNROLL for (int step_ = (lanes) / 2; step_ > 0; step_ /= 2) \
    {                                                           \
        float other_ = SHUFFLE_XOR(v, step_);                   \
        v = combine(v, other_);                                 \
    }
/* Every subgroup combines the parts of all of them in the same way. */
#define REDUCE_ACROSS_(v, part, combine)                                      \
    v = part[ITEM % REDUCE_LANES_];                                           \
    UNROLL for (int step_ = SUBGROUP; step_ < REDUCE_ROOM; step_ += SUBGROUP) \
    {                                                                         \
        float other_ = part[ITEM % SUBGROUP + step_];                         \
        v = combine(v, other_);                                               \
    }                                                                         \
    REDUCE_WITHIN_(v, REDUCE_LANES_, combine)
#if GROUP_SIZE_X > SUBGROUP
#define REDUCE(v, part, combine)         \
    REDUCE_WITHIN_(v, SUBGROUP, combine) \
    if (ITEM % SUBGROUP == 0)            \
        part[ITEM / SUBGROUP] = v;       \
    BARRIER();                           \
    REDUCE_ACROSS_(v, part, combine)
#define REDUCE2(v, part, w, w_part, combine) \
    REDUCE_WITHIN_(v, SUBGROUP, combine)     \
    REDUCE_WITHIN_(w, SUBGROUP, combine)     \
    if (ITEM % SUBGROUP == 0) {              \
        part[ITEM / SUBGROUP] = v;           \
        w_part[ITEM / SUBGROUP] = w;         \
    }                                        \
    BARRIER();                               \
    REDUCE_ACROSS_(v, part, combine)         \
    REDUCE_ACROSS_(w, w_part, combine)
#else
#define REDUCE(v, part, combine) REDUCE_WITHIN_(v, SUBGROUP, combine)
#define REDUCE2(v, part, w, w_part, combine) REDUCE_WITHIN_(v, SUBGROUP, combine) REDUCE_WITHIN_(w, SUBGROUP, combine)
#endif
#else
#define ITEM LOCAL_X
#define REDUCE_ROOM GROUP_SIZE_X
#define REDUCE(v, part, combine)                                  \
    part[ITEM] = v;                                               \
    for (int step_ = GROUP_SIZE_X / 2; step_ > 0; step_ /= 2) {   \
        BARRIER();                                                \
        if (ITEM < step_)                                         \
            part[ITEM] = combine(part[ITEM], part[ITEM + step_]); \
    }                                                             \
    BARRIER();                                                    \
    v = part[0];
#define REDUCE2(v, part, w, w_part, combine)                            \
    part[ITEM] = v;                                                     \
    w_part[ITEM] = w;                                                   \
    for (int step_ = GROUP_SIZE_X / 2; step_ > 0; step_ /= 2) {         \
        BARRIER();                                                      \
        if (ITEM < step_) {                                             \
            part[ITEM] = combine(part[ITEM], part[ITEM + step_]);       \
            w_part[ITEM] = combine(w_part[ITEM], w_part[ITEM + step_]); \
        }                                                               \
    }                                                                   \
    BARRIER();                                                          \
    v = part[0];                                                        \
    w = w_part[0];
#endif

/* ---- results of matrix units: their sums lie in the shared array `tile`, and go to the buffer y ---- */

#ifdef MATRIX_I8
#define SUM_OF_WORD(w) FLOAT(INT(w))
#define SHARED_SUM(i) FLOAT(SHARED_INT(tile, i))
#else
#define SUM_OF_WORD(w) AS_FLOAT(w)
#define SHARED_SUM(i) SHARED_FLOAT(tile, i)
#endif

/* STORE_RESULTS(from, at, n): from sum `from` of the tile to element `at` of y, STORE_WIDTH neighbours: eight with WIDE_Y (defined by the
 * host: y has 16 bits, its places are multiples of 8), else one. The text's RESULT(v, gate, i, at, n) is done to each: v is a float, and so
 * is what lies eight behind it, i counts those that are stored at once, n is its channel or column. */
#ifdef WIDE_Y
#define STORE_WIDTH 8
#define STORE_RESULTS(from, at, n)                                                              \
    {                                                                                           \
        UINT4 low_ = tile[(from) / 4];                                                          \
        UINT4 high_ = tile[(from) / 4 + 1];                                                     \
        EIGHT_GATES(from)                                                                       \
        low_ = MAKE_UINT4(TWO_RESULTS(low_.x, low_.y, low_gate_.x, low_gate_.y, 0, at, n),      \
                          TWO_RESULTS(low_.z, low_.w, low_gate_.z, low_gate_.w, 2, at, n),      \
                          TWO_RESULTS(high_.x, high_.y, high_gate_.x, high_gate_.y, 4, at, n),  \
                          TWO_RESULTS(high_.z, high_.w, high_gate_.z, high_gate_.w, 6, at, n)); \
        STORE8(y, at, low_);                                                                    \
    }
#define TWO_RESULTS(v, w, v_gate, w_gate, i, at, n)                                   \
    WORD_OF(y, RESULT(SUM_OF_WORD(v), SUM_OF_WORD(v_gate), i, (at) + (i), (n) + (i)), \
            RESULT(SUM_OF_WORD(w), SUM_OF_WORD(w_gate), (i) + 1, (at) + (i) + 1, (n) + (i) + 1))
#ifdef GATED
#define EIGHT_GATES(from)                   \
    UINT4 low_gate_ = tile[(from) / 4 + 2]; \
    UINT4 high_gate_ = tile[(from) / 4 + 3];
#else
#define EIGHT_GATES(from)
#endif
#else
#define STORE_WIDTH 1
#define STORE_RESULTS(from, at, n) STORE(y, at, RESULT(SHARED_SUM(from), SHARED_SUM((from) + 8), 0, at, n));
#endif

/* Column q of a tile is result OUTPUT_OF(q) of its row, or the gate of it. GATED: of the 16 columns of a matrix eight are results, and
 * eight behind them are their gates. */
#ifdef GATED
#define RESULTS_OF_MATRIX 8
#define OUTPUT_OF(q) ((q) / 16 * 8 + (q) % 8)
#define IS_GATE(q) ((q) % 16 / 8)
#else
#define RESULTS_OF_MATRIX 16
#define OUTPUT_OF(q) (q)
#define IS_GATE(q) 0
#endif
#define OUTPUTS_OF(columns) ((columns) / 16 * RESULTS_OF_MATRIX)

/* The results of a product, of which a subgroup has mm x mn matrices of 16 x 16, mn a power of two: 16 rows of them at a time go through
 * STRIP_FLOATS(mn) floats of the tile, which nobody reads any more. Row 0 and column 0 of the subgroup are m0 and n0 of the result, which
 * has `rows` rows and `cols` columns. An item keeps its columns. Of the text, besides RESULT: EACH_COLUMN(n) declares what STORE_WIDTH
 * results from column n on share with those above, EACH_ROW(m) what those of a row share; PLACE(n) is the place of one in y, CHANNEL(n) its
 * channel. */
#define STRIP_PITCH(mn) (16 * (mn) + 4)
#define STRIP_FLOATS(mn) (16 * STRIP_PITCH(mn))
/* Stores of a row, and how many of them are done at once. */
#define STORE_STEPS_(mn) (RESULTS_OF_MATRIX * (mn) / STORE_WIDTH)
#define STORE_ITEMS_(mn) (STORE_STEPS_(mn) < MATRIX_SUBGROUP ? STORE_STEPS_(mn) : MATRIX_SUBGROUP)
#define STORE_PRODUCT(sum, mm, mn, m0, n0, rows, cols)                                                                             \
    const int strip_ = SUBGROUP_ID * STRIP_FLOATS(mn);                                                                             \
    for (int step_ = 0; step_ < STORE_STEPS_(mn); step_ += STORE_ITEMS_(mn)) {                                                     \
        const int col_ = (step_ + LANE % STORE_ITEMS_(mn)) * STORE_WIDTH;                                                          \
        const int n_ = (n0) + col_;                                                                                                \
        EACH_COLUMN(n_)                                                                                                            \
        UNROLL for (int i_ = 0; i_ < (mm); i_++)                                                                                   \
        {                                                                                                                          \
            UNROLL for (int j_ = 0; j_ < (mn); j_++) MATRIX_STORE(sum[i_ * (mn) + j_], tile, strip_ + 16 * j_, STRIP_PITCH(mn));   \
            BARRIER();                                                                                                             \
            for (int line_ = LANE / STORE_ITEMS_(mn); line_ < 16; line_ += MATRIX_SUBGROUP / STORE_ITEMS_(mn)) {                   \
                const int m_ = (m0) + 16 * i_ + line_;                                                                             \
                if (m_ < (rows) && n_ < (cols)) {                                                                                  \
                    EACH_ROW(m_)                                                                                                   \
                    const int place_ = PLACE(n_);                                                                                  \
                    const int channel_ = CHANNEL(n_);                                                                              \
                    const int from_ = strip_ + line_ * STRIP_PITCH(mn) + col_ / RESULTS_OF_MATRIX * 16 + col_ % RESULTS_OF_MATRIX; \
                    STORE_RESULTS(from_, place_, channel_)                                                                         \
                }                                                                                                                  \
            }                                                                                                                      \
            BARRIER();                                                                                                             \
        }                                                                                                                          \
    }
/* For EACH_COLUMN: values `first` and behind of b, `step` elements apart, as an array; `there` is false where no column is. */
#define LOAD_COLUMNS(name, there, b, first, step) \
    float name[STORE_WIDTH];                      \
    UNROLL for (int i_ = 0; i_ < STORE_WIDTH; i_++) name[i_] = (there) ? LOAD(b, ((first) + i_) * (step)) : 0.0f;

/* Where pixel m of a convolution's result lies in y. IN_A_ROW (defined by the host): all lie behind each other. */
#ifdef IN_A_ROW
#define PIXEL_PLACE(m) ((m)*P.y_w)
#else
#define PIXEL_PLACE(m) ((m) / P.out_w / P.out_h * P.y_n + (m) / P.out_w % P.out_h * P.y_h + (m) % P.out_w * P.y_w)
#endif

/* Value j of a group of channels of a picture, as group norm counts them (TERN_PARAMS_GROUP_NORM): neighbours in memory follow each other.
 * `from` is where the group begins in x. */
#ifdef CHANNELS_LAST
#define PIXEL_OF(j) ((j) / P.channels)
#define CHANNEL_OF(j, pixel) ((j) - (pixel)*P.channels)
#else
#define PIXEL_OF(j) ((j) - (j) / P.pixels * P.pixels)
#define CHANNEL_OF(j, pixel) ((j) / P.pixels)
#endif
#define GROUP_PLACE(j) (from + CHANNEL_OF(j, PIXEL_OF(j)) * P.x_c + PIXEL_OF(j) * P.x_pixel)
