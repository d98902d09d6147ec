/* What is host C in a kernel text: the language part of portable.h. Every item is a coroutine of the runner, every access to a
 * buffer is checked and left out when it is outside. For tests: slow, and clean under the sanitizers. Behind host_item.h. */
typedef uint32_t uint;
typedef struct {
    float x, y, z, w;
} vec4;
typedef struct {
    int x, y;
} int2;
typedef struct {
    uint x, y;
} uint2;
typedef struct {
    uint x, y, z, w;
} uint4;

#define FN static inline
#define UNROLL
#define UNROLL_4
#define UNROLL_2
#define FLOAT(x) ((float)(x))
#define INT(x) ((int)(x))
#define UINT(x) ((uint)(x))

FN float AS_FLOAT(uint x)
{
    float f;
    memcpy(&f, &x, sizeof(f));
    return f;
}

FN uint AS_UINT(float x)
{
    uint u;
    memcpy(&u, &x, sizeof(u));
    return u;
}

#define LOCAL_X (item->local[0])
#define LOCAL_Y (item->local[1])
#define GROUP_X (item->group[0])
#define GROUP_Y (item->group[1])
#define GROUP_Z (item->group[2])
#define GROUPS_X (item->groups[0])
#define BARRIER() item->barrier(item, __LINE__)
/* The group is one row, so its subgroups are ranges of LOCAL_X. */
#define SUBGROUP_ITEM LOCAL_X
#define SHUFFLE_XOR(v, mask) _Generic((v), float : shuffle_float, int : shuffle_int)(item, v, mask, __LINE__)
#ifdef SUBGROUP
FN int shuffle_int(struct tern_host_item *item, int v, int mask, int line)
{
    return (int)item->exchange(item, (uint)v, mask, SUBGROUP, line);
}
FN float shuffle_float(struct tern_host_item *item, float v, int mask, int line)
{
    return AS_FLOAT(item->exchange(item, AS_UINT(v), mask, SUBGROUP, line));
}
#endif

#define VEC4 vec4
#define MAKE_VEC4(a, b, c, d) ((vec4){a, b, c, d})
#define INT2 int2
#define MAKE_INT2(a, b) ((int2){a, b})
#define UINT2 uint2
#define MAKE_UINT2(a, b) ((uint2){a, b})
#define UINT4 uint4
#define MAKE_UINT4(a, b, c, d) ((uint4){a, b, c, d})

#define DOT_WORDS(a, b) dot_words(a, b)
FN int dot_words(uint a, uint b)
{
    int8_t left[4], right[4];
    memcpy(left, &a, 4);
    memcpy(right, &b, 4);
    return left[0] * right[0] + left[1] * right[1] + left[2] * right[2] + left[3] * right[3];
}

#define SCHAR int8_t
#define UCHAR uint8_t
#define USHORT uint16_t
#define NARROW_I8(v) ((int8_t)(v))
#define NARROW_U8(v) ((uint8_t)(v))
#define NARROW_16(v) ((uint16_t)(v))

#define SQRT(x) sqrtf(x)
#define RSQRT(x) (1.0f / sqrtf(x))
#define tern_quick_exp2(x) exp2f(x)
#define FLOOR(x) floorf(x)
#define CEIL(x) ceilf(x)
#define ROUND(x) rintf(x)
#define ABS(x) fabsf(x)
#define FMA(a, b, c) fmaf(a, b, c)
#define MULHI(a, b) ((uint)((uint64_t)(a) * (b) >> 32))

FN float tern_f32_of_f16(uint h)
{
    uint sign = (h >> 15) << 31, exponent = h >> 10 & 31u, fraction = h & 1023u;
    if (exponent == 0u)
        return AS_FLOAT(sign | AS_UINT((float)fraction * 5.9604644775390625e-8f));
    return AS_FLOAT(sign | (exponent == 31u ? 255u : exponent + 112u) << 23 | fraction << 13);
}
#define TERN_OWN_FUNCTIONS 1

#ifdef MATRIX /* the values are the runner's, an item keeps their number */
#if defined(MATRIX_I8)
#define TERN_FACTORS TERN_HOST_I8
#define TERN_SUMS TERN_HOST_I8
#elif defined(MATRIX_BF16)
#define TERN_FACTORS TERN_HOST_BF16
#define TERN_SUMS 0
#else
#define TERN_FACTORS 0
#define TERN_SUMS 0
#endif
/* Vulkan does not say how items are counted within a group: here backwards. */
#define SUBGROUP_ID ((GROUP_SIZE_X - 1 - LOCAL_X) / MATRIX_SUBGROUP)
#define LANE (MATRIX_SUBGROUP - 1 - LOCAL_X % MATRIX_SUBGROUP)
#define SHARED_FLOAT(tile, i) AS_FLOAT(((const uint *)(tile))[i])
#define SHARED_INT(tile, i) INT(((const uint *)(tile))[i])
#define MATRIX_ROWS 0
#define MATRIX_COLUMNS TERN_HOST_COLUMNS
#define MATRIX_A(name, n) int name[n] = {0}
#define MATRIX_B(name, n) int name[n] = {0}
#define MATRIX_SUM(name, n) int name[n] = {0}
#define TERN_WORD(...) item->matrix(item, &(const struct tern_host_matrix){__VA_ARGS__, .line = __LINE__})
#define MATRIX_ZERO(X) TERN_WORD(TERN_HOST_ZERO, .x = &(X), .kind = TERN_SUMS)
#define MATRIX_LOAD_A(X, TILE, I, PITCH, LAYOUT) \
    TERN_WORD(TERN_HOST_LOAD_A, .x = &(X), .tile = TILE, .i = I, .pitch = PITCH, .kind = (LAYOUT) | TERN_FACTORS)
#define MATRIX_LOAD_B(X, TILE, I, PITCH, LAYOUT) \
    TERN_WORD(TERN_HOST_LOAD_B, .x = &(X), .tile = TILE, .i = I, .pitch = PITCH, .kind = (LAYOUT) | TERN_FACTORS)
#define MATRIX_LOAD_SUM(X, TILE, I, PITCH) TERN_WORD(TERN_HOST_LOAD_SUM, .x = &(X), .tile = TILE, .i = I, .pitch = PITCH, .kind = TERN_SUMS)
#define MATRIX_MULTIPLY(SUM, A, A_LAYOUT, B, B_LAYOUT) \
    TERN_WORD(TERN_HOST_MULTIPLY, .x = &(SUM), .a = A, .b = B, .kind = (A_LAYOUT), .b_kind = (B_LAYOUT))
#define MATRIX_STORE(X, TILE, I, PITCH) TERN_WORD(TERN_HOST_STORE, .x = &(X), .tile = TILE, .i = I, .pitch = PITCH, .kind = TERN_SUMS)
#else
#define MATRIX_SUBGROUP 0
#endif

#define READ_ELEMENT(b, i) (item->inside(item, b##_slot, (i), sizeof(*b), __LINE__) ? b[i] : (STORAGE(b)){0})
#define WRITE_ELEMENT(b, i, v)                                       \
    do {                                                             \
        int64_t at_ = (i);                                           \
        if (item->inside(item, b##_slot, at_, sizeof(*b), __LINE__)) \
            b[at_] = (v);                                            \
    } while (0)
#define LOCAL_READ(slot, b)                    \
    const STORAGE(b) *const b = buffers[slot]; \
    const int b##_offset = P.offset[slot], b##_slot = slot;
#define LOCAL_WRITE(slot, b)             \
    STORAGE(b) *const b = buffers[slot]; \
    const int b##_offset = P.offset[slot], b##_slot = slot;
#define LOCAL_SHARED(type, name, n) type *const name = item->shared(item, item->n_shared++, sizeof(type) * (n));
#define KERNEL_BEGIN                                                                                                            \
    struct tern_params {                                                                                                        \
        TERN_PARAMS_HEAD(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)                                     \
        KERNEL_PARAMS(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)                                        \
    };                                                                                                                          \
    extern const struct tern_host_info tern_kernel_info;                                                                        \
    const struct tern_host_info tern_kernel_info = {{GROUP_SIZE_X, GROUP_SIZE_Y}, sizeof(struct tern_params), MATRIX_SUBGROUP}; \
    void tern_kernel(struct tern_host_item *item, const void *params, void *const *buffers);                                    \
    void tern_kernel(struct tern_host_item *item, const void *params, void *const *buffers)                                     \
    {                                                                                                                           \
        const struct tern_params P = *(const struct tern_params *)params;                                                       \
        KERNEL_BUFFERS(LOCAL_READ, LOCAL_WRITE)                                                                                 \
        POST_BUFFERS(LOCAL_READ)                                                                                                \
        KERNEL_SHARED(LOCAL_SHARED)
#define KERNEL_END }
