/* What stands before a CUDA source that is compiled by the host's C++ compiler, so that the stand-in driver can run it: the language's
 * words and built-in functions, as far as kernel texts use them. */
#include "half.h"
#include "kernel.h"

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
/* "extern C void __launch_bounds__(n) name(…)": a declaration, a constant, and the function */
#define __launch_bounds__(n)       \
    standin_bounds_before(void);   \
    enum { standin_bounds = (n) }; \
    extern "C" __attribute__((noinline)) void
/* One group runs at a time, so its memory may be static; between groups it is spoiled. */
#define __shared__ static __attribute__((section("standin_shared")))

extern "C" {
float sqrtf(float), floorf(float), ceilf(float), rintf(float), fabsf(float), fmaf(float, float, float), expf(float), exp2f(float),
    logf(float);
float sinf(float), cosf(float), tanhf(float), erff(float), powf(float, float), fminf(float, float), fmaxf(float, float);
__attribute__((visibility("hidden"))) standin_item *standin_now;
__attribute__((visibility("hidden"))) void (*standin_barrier)(int);
__attribute__((visibility("hidden"))) unsigned (*standin_exchange)(unsigned, int, int);
__attribute__((visibility("hidden"))) standin_matrix_word standin_matrix;
}

#define threadIdx (standin_now->thread)
#define blockIdx (standin_now->group)
#define blockDim (standin_now->size)
#define gridDim (standin_now->groups)
/* __COUNTER__ counts the barriers of the text: without one, items need no stack of their own. */
#define __syncthreads() ((void)__COUNTER__, standin_barrier(__LINE__))

/* All 32 lanes of a warp take part; counted like barriers. */
#define __shfl_xor_sync(lanes, v, mask) ((void)__COUNTER__, standin_shuffle(lanes, v, mask, __LINE__))
static inline int standin_shuffle(unsigned, int v, int mask, int line) { return (int)standin_exchange((unsigned)v, mask, line); }
static inline float standin_shuffle(unsigned, float v, int mask, int line)
{
    return half_float(standin_exchange(half_bits(v), mask, line));
}

struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static inline int2 make_int2(int x, int y) { return {x, y}; }
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

static inline float __uint_as_float(unsigned u) { return half_float(u); }
static inline unsigned __float_as_uint(float f) { return half_bits(f); }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fdividef(float x, float y) { return y > 8.5e37f ? x * 0.0f : x / y; }
static inline int __dp4a(int a, int b, int sum)
{
    for (int shift = 0; shift < 32; shift += 8)
        sum += (signed char)(a >> shift) * (signed char)(b >> shift);
    return sum;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }

/* PTX instructions that texts write as asm; nvrtc.c puts these calls in their place. */
static inline float ptx_cvt_f32_f16(unsigned short h) { return half_to_float(h); }
static inline unsigned short ptx_cvt_rn_f16_f32(float v) { return half_from_float(v); }

/* The words for matrix units, in place of those of cuda.h, which are PTX. nvrtc.c says whether a text has them, and for which dtype. */
#if STANDIN_MATRIX && STANDIN_ARCH < (STANDIN_BF16 ? 80 : STANDIN_I8 ? 72 : 70)
#error "no such matrix units"
#endif
enum { WORD_ZERO, WORD_LOAD_A, WORD_LOAD_B, WORD_LOAD_SUM, WORD_MULTIPLY, WORD_STORE, KIND_COLUMNS = 1, KIND_BF16 = 2, KIND_I8 = 4 };
#define KIND_OF(layout) (*(layout) == 'c' ? KIND_COLUMNS : 0)
#define KIND_OF_SUMS (STANDIN_I8 ? KIND_I8 : 0)
#define MATRIX_A(name, n) int name[n] = {}
#define MATRIX_B(name, n) int name[n] = {}
#define MATRIX_SUM(name, n) int name[n] = {}
#define MATRIX_ZERO(x) standin_matrix(WORD_ZERO, &(x), 0, 0, KIND_OF_SUMS, 0, 0, 0, 0, __LINE__)
#define MATRIX_LOAD(word, x, tile, i, pitch, layout) \
    standin_matrix(word, &(x), 0, 0, KIND_OF(layout) | (STANDIN_BF16 ? KIND_BF16 : STANDIN_I8 ? KIND_I8 : 0), 0, tile, i, pitch, __LINE__)
#define MATRIX_LOAD_A(x, tile, i, pitch, layout) MATRIX_LOAD(WORD_LOAD_A, x, tile, i, pitch, layout)
#define MATRIX_LOAD_B(x, tile, i, pitch, layout) MATRIX_LOAD(WORD_LOAD_B, x, tile, i, pitch, layout)
#define MATRIX_LOAD_SUM(x, tile, i, pitch) standin_matrix(WORD_LOAD_SUM, &(x), 0, 0, KIND_OF_SUMS, 0, tile, i, pitch, __LINE__)
#define MATRIX_MULTIPLY(sum, a, a_layout, b, b_layout) \
    standin_matrix(WORD_MULTIPLY, &(sum), a, b, KIND_OF(a_layout), KIND_OF(b_layout), 0, 0, 0, __LINE__)
#define MATRIX_STORE(x, tile, i, pitch) standin_matrix(WORD_STORE, &(x), 0, 0, KIND_OF_SUMS, 0, tile, i, pitch, __LINE__)
