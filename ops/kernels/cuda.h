/* What is CUDA C++ in a kernel text: the language part of portable.h. For NVRTC, without any header of the toolkit.
 * 16-bit floats are converted by the instructions of sm_53 and later. */
typedef unsigned int uint;

#define FN static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
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
#define tern_exp(x) expf(x)
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

/* Buffers are arguments behind the parameters, in the order of their slots. */
#define READ_ELEMENT(b, i) b[i]
#define WRITE_ELEMENT(b, i, v) b[i] = (v)
#define ARGUMENT_READ(slot, b) , const STORAGE(b) *__restrict__ b
#define ARGUMENT_WRITE(slot, b) , STORAGE(b) *__restrict__ b
#define LOCAL_BUFFER(slot, b) const int b##_offset = P.offset[slot];
#define LOCAL_SHARED(type, name, n) __shared__ type name[n];
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
