/* What is OpenCL C 1.2 in a kernel text: the language part of portable.h. Needs no extension: f16 is storage only, and
 * vload_half and vstore_half are part of the core. Only subgroups and dot products want extensions, and OpenCL C 3.0. */
#ifdef SUBGROUP
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define SUBGROUP_SIZED __attribute__((intel_reqd_sub_group_size(SUBGROUP)))
#else
#define SUBGROUP_SIZED
#endif
#ifdef DOT_PRODUCT
#pragma OPENCL EXTENSION cl_khr_integer_dot_product : enable
#endif
#define FN inline static
#define UNROLL _Pragma("unroll")
#define UNROLL_4
#define UNROLL_2
#define FLOAT(x) ((float)(x))
#define INT(x) ((int)(x))
#define UINT(x) ((uint)(x))
#define AS_FLOAT(x) as_float(x)
#define AS_UINT(x) as_uint(x)

#define LOCAL_X ((int)get_local_id(0))
#define LOCAL_Y ((int)get_local_id(1))
#define GROUP_X ((int)get_group_id(0))
#define GROUP_Y ((int)get_group_id(1))
#define GROUP_Z ((int)get_group_id(2))
#define GROUPS_X ((int)get_num_groups(0))
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define SUBGROUP_ITEM ((int)get_sub_group_id() * SUBGROUP + (int)get_sub_group_local_id())
#define SHUFFLE_XOR(v, mask) sub_group_shuffle_xor(v, (uint)(mask))

#define VEC4 float4
#define MAKE_VEC4(a, b, c, d) ((float4)(a, b, c, d))
#define INT2 int2
#define MAKE_INT2(a, b) ((int2)(a, b))
#define UINT2 uint2
#define MAKE_UINT2(a, b) ((uint2)(a, b))
#define UINT4 uint4
#define MAKE_UINT4(a, b, c, d) ((uint4)(a, b, c, d))
#define DOT_WORDS(a, b) dot_4x8packed_ss_int(a, b)

#define SCHAR char
#define UCHAR uchar
#define USHORT ushort
#define NARROW_I8(v) ((char)(v))
#define NARROW_U8(v) ((uchar)(v))
#define NARROW_16(v) ((ushort)(v))

#define SQRT(x) sqrt(x)
#define RSQRT(x) (1.0f / sqrt(x))
#define FLOOR(x) floor(x)
#define CEIL(x) ceil(x)
#define ROUND(x) rint(x)
#define ABS(x) fabs(x)
#define FMA(a, b, c) fma(a, b, c)
#define MULHI(a, b) mul_hi(a, b)
#define tern_exp(x) exp(x)
#define tern_quick_exp2(x) exp2(x)
#define tern_log(x) log(x)
#define tern_sin(x) sin(x)
#define tern_cos(x) cos(x)
#define tern_erf(x) erf(x)
#define tern_pow(x, y) pow(x, y)

FN float tern_f32_of_f16(uint bits)
{
    ushort h = (ushort)bits;
    return vload_half(0, (const __private half *)&h);
}

FN uint tern_f16_of_f32(float v)
{
    ushort h;
    vstore_half_rte(v, 0, (__private half *)&h);
    return h;
}

/* Buffers are arguments behind the parameters, in the order of their slots. */
#define READ_ELEMENT(b, i) b[i]
#define WRITE_ELEMENT(b, i, v) b[i] = (v)
#define ARGUMENT_READ(slot, b) , __global const STORAGE(b) *restrict b
#define ARGUMENT_WRITE(slot, b) , __global STORAGE(b) *restrict b
#define LOCAL_BUFFER(slot, b) const int b##_offset = P.offset[slot];
#define LOCAL_SHARED(type, name, n) __local type name[n];
#define KERNEL_BEGIN                                                                                               \
    struct tern_params {                                                                                           \
        TERN_PARAMS_HEAD(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)                        \
        KERNEL_PARAMS(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)                           \
    };                                                                                                             \
    __kernel __attribute__((reqd_work_group_size(GROUP_SIZE_X, GROUP_SIZE_Y, 1))) SUBGROUP_SIZED void tern_kernel( \
        const struct tern_params P KERNEL_BUFFERS(ARGUMENT_READ, ARGUMENT_WRITE) POST_BUFFERS(ARGUMENT_READ))      \
    {                                                                                                              \
        KERNEL_BUFFERS(LOCAL_BUFFER, LOCAL_BUFFER)                                                                 \
        POST_BUFFERS(LOCAL_BUFFER)                                                                                 \
        KERNEL_SHARED(LOCAL_SHARED)
#define KERNEL_END }
