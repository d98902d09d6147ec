/* What is CUDA C++ in a kernel text: the language part of portable.h. For NVRTC, without any header of the toolkit.
 * 16-bit floats are converted by the instructions of sm_53 and later. */
typedef unsigned int uint;

#define FN static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
#define UNROLL_2 _Pragma("unroll 2")
#define FLOAT(x) ((float)(x))
#define INT(x) ((int)(x))
#define UINT(x) ((uint)(x))
#define AS_FLOAT(x) __uint_as_float(x)
#define AS_UINT(x) __float_as_uint(x)

#define LOCAL_X ((int)threadIdx.x)
#define LOCAL_Y ((int)threadIdx.y)
#define GROUP_X ((int)blockIdx.x)
#define GROUP_Y ((int)blockIdx.y)
#define GROUP_Z ((int)blockIdx.z)
#define GROUPS_X ((int)gridDim.x)
#define BARRIER() __syncthreads()
#define SUBGROUP_ITEM LOCAL_X
#define SHUFFLE_XOR(v, mask) __shfl_xor_sync(0xffffffffu, v, mask)

#define VEC4 float4
#define MAKE_VEC4(a, b, c, d) make_float4(a, b, c, d)
#define INT2 int2
#define MAKE_INT2(a, b) make_int2(a, b)
#define UINT2 uint2
#define MAKE_UINT2(a, b) make_uint2(a, b)
#define UINT4 uint4
#define MAKE_UINT4(a, b, c, d) make_uint4(a, b, c, d)

#define DOT_WORDS(a, b) __dp4a(INT(a), INT(b), 0)

#define SCHAR signed char
#define UCHAR unsigned char
#define USHORT unsigned short
#define NARROW_I8(v) ((signed char)(v))
#define NARROW_U8(v) ((unsigned char)(v))
#define NARROW_16(v) ((unsigned short)(v))

#define SQRT(x) sqrtf(x)
#define RSQRT(x) (1.0f / sqrtf(x))
#define FLOOR(x) floorf(x)
#define CEIL(x) ceilf(x)
#define ROUND(x) rintf(x)
#define ABS(x) fabsf(x)
#define FMA(a, b, c) fmaf(a, b, c)
#define MULHI(a, b) __umulhi(a, b)
#define tern_quotient(x, y) __fdiv_rn(x, y)
#define tern_over(x, y) __fdividef(x, y) /* 0 from 2^126 on, where the quotient is none that counts */
#define tern_exp(x) expf(x)
#define tern_quick_exp2(x) exp2f(x)
#define tern_log(x) logf(x)
#define tern_sin(x) sinf(x)
#define tern_cos(x) cosf(x)
#define tern_tanh(x) tanhf(x)
#define tern_erf(x) erff(x)
#define tern_pow(x, y) powf(x, y)

FN float tern_f32_of_f16(uint bits)
{
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"((unsigned short)bits));
    return v;
}

FN uint tern_f16_of_f32(float v)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}

#ifdef MATRIX
/* Matrix units: `wmma` of sm_70 (f16), sm_72 (int8) and sm_80 (bf16), as PTX since NVRTC has no headers at a user's. The stand-in driver of
 * the tests brings its own words. */
#define SUBGROUP_ID (LOCAL_X / MATRIX_SUBGROUP)
#define LANE (LOCAL_X % MATRIX_SUBGROUP)
#define SHARED_FLOAT(tile, i) (((const float *)(tile))[i])
#define SHARED_INT(tile, i) (((const int *)(tile))[i])
#define MATRIX_ROWS "row"
#define MATRIX_COLUMNS "col"
#ifndef MATRIX_LOAD_A
FN uint tern_shared_address(const void *p)
{
    uint at;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(at) : "l"(p));
    return at;
}
#define TERN_8_IN(x, c) c((x).at[0]), c((x).at[1]), c((x).at[2]), c((x).at[3]), c((x).at[4]), c((x).at[5]), c((x).at[6]), c((x).at[7])
#define TERN_4_IN(x, c) c((x).at[0]), c((x).at[1]), c((x).at[2]), c((x).at[3])
#define TERN_UINT_IN "r"
#define TERN_UINT_OUT "=r"
#ifdef MATRIX_I8
struct tern_sums {
    int at[8];
};
#define TERN_SUM_DTYPE "s32"
#define TERN_SUM_IN "r"
#define TERN_SUM_OUT "+r"
#define TERN_ELEMENT 1
struct tern_factor {
    uint at[2];
};
#define TERN_FACTOR(x, c) c((x).at[0]), c((x).at[1])
#define TERN_LOAD_FORM ".s8 {%0, %1}, [%2], %3;"
#define TERN_MULTIPLY_FORM \
    ".m16n16k16.s32.s8.s8.s32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, {%0, %1, %2, %3, %4, %5, %6, %7};"
#else
struct tern_sums {
    float at[8];
};
#define TERN_SUM_DTYPE "f32"
#define TERN_SUM_IN "f"
#define TERN_SUM_OUT "+f"
#define TERN_ELEMENT 2
#ifdef MATRIX_BF16 /* four registers of two values each; f16 has every value twice, in eight */
struct tern_factor {
    uint at[4];
};
#define TERN_FACTOR(x, c) TERN_4_IN(x, c)
#define TERN_LOAD_FORM ".bf16 {%0, %1, %2, %3}, [%4], %5;"
#define TERN_MULTIPLY_FORM                                                                                                           \
    ".m16n16k16.f32.bf16.bf16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3, %4, " \
    "%5, %6, %7};"
#else
struct tern_factor {
    uint at[8];
};
#define TERN_FACTOR(x, c) TERN_8_IN(x, c)
#define TERN_LOAD_FORM ".f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"
#define TERN_MULTIPLY_FORM                                                                                                              \
    ".m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, " \
    "%23}, {%0, %1, %2, %3, %4, %5, %6, %7};"
#endif
#endif
#define MATRIX_A(name, n) struct tern_factor name[n]
#define MATRIX_B(name, n) struct tern_factor name[n]
#define MATRIX_SUM(name, n) struct tern_sums name[n]
#define MATRIX_ZERO(x) UNROLL for (int i_ = 0; i_ < 8; i_++)(x).at[i_] = 0
#define TERN_LOAD(which, x, tile, i, pitch, layout)                                            \
    asm volatile("wmma.load." which ".sync.aligned." layout ".m16n16k16.shared" TERN_LOAD_FORM \
                 : TERN_FACTOR(x, TERN_UINT_OUT)                                               \
                 : "r"(tern_shared_address(tile) + TERN_ELEMENT * (i)), "r"(pitch)             \
                 : "memory")
#define MATRIX_LOAD_A(x, tile, i, pitch, layout) TERN_LOAD("a", x, tile, i, pitch, layout)
#define MATRIX_LOAD_B(x, tile, i, pitch, layout) TERN_LOAD("b", x, tile, i, pitch, layout)
#define MATRIX_LOAD_SUM(x, tile, i, pitch)                                                                                      \
    asm volatile("wmma.load.c.sync.aligned.row.m16n16k16.shared." TERN_SUM_DTYPE " {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;" \
                 : TERN_8_IN(x, TERN_SUM_OUT)                                                                                   \
                 : "r"(tern_shared_address(tile) + 4 * (i)), "r"(pitch)                                                         \
                 : "memory")
#define MATRIX_MULTIPLY(sum, a, a_layout, b, b_layout)                             \
    asm volatile("wmma.mma.sync.aligned." a_layout "." b_layout TERN_MULTIPLY_FORM \
                 : TERN_8_IN(sum, TERN_SUM_OUT)                                    \
                 : TERN_FACTOR(a, TERN_UINT_IN), TERN_FACTOR(b, TERN_UINT_IN))
#define MATRIX_STORE(x, tile, i, pitch)                                                      \
    asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.shared." TERN_SUM_DTYPE            \
                 " [%8], {%0, %1, %2, %3, %4, %5, %6, %7}, %9;" ::TERN_8_IN(x, TERN_SUM_IN), \
                 "r"(tern_shared_address(tile) + 4 * (i)), "r"(pitch)                        \
                 : "memory")
#endif
#endif

/* Buffers are arguments behind the parameters, in the order of their slots. */
#define READ_ELEMENT(b, i) b[i]
#define WRITE_ELEMENT(b, i, v) b[i] = (v)
#define ARGUMENT_READ(slot, b) , const STORAGE(b) *__restrict__ b
#define ARGUMENT_WRITE(slot, b) , STORAGE(b) *__restrict__ b
#define LOCAL_BUFFER(slot, b) const int b##_offset = P.offset[slot];
#define LOCAL_SHARED(type, name, n) alignas(32) __shared__ type name[n];
#define KERNEL_BEGIN                                                                                                      \
    struct tern_params {                                                                                                  \
        TERN_PARAMS_HEAD(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)                               \
        KERNEL_PARAMS(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)                                  \
    };                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(GROUP_SIZE_X *GROUP_SIZE_Y)                                              \
        tern_kernel(const struct tern_params P KERNEL_BUFFERS(ARGUMENT_READ, ARGUMENT_WRITE) POST_BUFFERS(ARGUMENT_READ)) \
    {                                                                                                                     \
        KERNEL_BUFFERS(LOCAL_BUFFER, LOCAL_BUFFER)                                                                        \
        POST_BUFFERS(LOCAL_BUFFER)                                                                                        \
        KERNEL_SHARED(LOCAL_SHARED)
#define KERNEL_END }
