/* What is GLSL in a kernel text: the language part of portable.h. For Vulkan 1.2, behind "#version 450". The parameters
 * are the storage buffer at binding 0, slot s is the one at binding 1 + s. 16-bit and 8-bit types are storage only. */
#extension GL_EXT_shader_16bit_storage : enable
#extension GL_EXT_shader_8bit_storage : enable
#extension GL_EXT_control_flow_attributes : enable
#ifdef SUBGROUP
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#endif
#ifdef DOT_PRODUCT /* glslang has a word for it of its own only since 2024: OpSDot of four bytes in a word, which is format 0 */
#extension GL_EXT_spirv_intrinsics : require
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [ 6018, 6019 ],
                  id = 4450) int tern_dot_of_words(uint a, uint b, spirv_literal int format);
#define DOT_WORDS(a, b) tern_dot_of_words(a, b, 0)
#endif
#ifdef MATRIX /* f16 alone */
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#endif

#define FN
#define EXACT precise /* drivers rearrange sums as if they were exact, unless they are told */
#define UNROLL [[unroll]]
#define UNROLL_4
#define UNROLL_2
#define FLOAT(x) float(x)
#define INT(x) int(x)
#define UINT(x) uint(x)
#define AS_FLOAT(x) uintBitsToFloat(x)
#define AS_UINT(x) floatBitsToUint(x)

#define LOCAL_X int(gl_LocalInvocationID.x)
#define LOCAL_Y int(gl_LocalInvocationID.y)
#define GROUP_X int(gl_WorkGroupID.x)
#define GROUP_Y int(gl_WorkGroupID.y)
#define GROUP_Z int(gl_WorkGroupID.z)
#define GROUPS_X int(gl_NumWorkGroups.x)
#define BARRIER() barrier()
#define SUBGROUP_ITEM (int(gl_SubgroupID) * SUBGROUP + int(gl_SubgroupInvocationID))
#define SHUFFLE_XOR(v, mask) subgroupShuffleXor(v, uint(mask))

#define VEC4 vec4
#define MAKE_VEC4(a, b, c, d) vec4(a, b, c, d)
#define INT2 ivec2
#define MAKE_INT2(a, b) ivec2(a, b)
#define UINT2 uvec2
#define MAKE_UINT2(a, b) uvec2(a, b)
#define UINT4 uvec4
#define MAKE_UINT4(a, b, c, d) uvec4(a, b, c, d)

#define SCHAR int8_t
#define UCHAR uint8_t
#define USHORT uint16_t
#define NARROW_I8(v) int8_t(v)
#define NARROW_U8(v) uint8_t(uint(v) & 255u)
#define NARROW_16(v) uint16_t(v)

#define SQRT(x) sqrt(x)
#define RSQRT(x) (1.0f / sqrt(x))
#define tern_quick_exp2(x) exp2(x)
#define FLOOR(x) floor(x)
#define CEIL(x) ceil(x)
#define ROUND(x) roundEven(x)
#define ABS(x) abs(x)
#define FMA(a, b, c) fma(a, b, c)

/* Not `unpackHalf2x16` for the way back: how that rounds is left to the driver. */
#define tern_f32_of_f16(bits) unpackHalf2x16(bits).x
#define TERN_OWN_FUNCTIONS 1

uint MULHI(uint a, uint b)
{
    uint high, low;
    umulExtended(a, b, high, low);
    return high;
}

#ifdef MATRIX
#define SUBGROUP_ID int(gl_SubgroupID)
#define LANE int(gl_SubgroupInvocationID)
#define SHARED_FLOAT(tile, i) AS_FLOAT(tile[(i) >> 2][(i)&3])
#define MATRIX_ROWS gl_CooperativeMatrixLayoutRowMajor
#define MATRIX_COLUMNS gl_CooperativeMatrixLayoutColumnMajor
#define MATRIX_A(name, n) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseA> name[n]
#define MATRIX_B(name, n) coopmat<float16_t, gl_ScopeSubgroup, 16, 16, gl_MatrixUseB> name[n]
#define MATRIX_SUM(name, n) coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator> name[n]
#define MATRIX_ZERO(x) x = coopmat<float, gl_ScopeSubgroup, 16, 16, gl_MatrixUseAccumulator>(0.0f)
#define MATRIX_LOAD_A(x, tile, i, pitch, layout) coopMatLoad(x, tile, uint(i) / 8u, uint(pitch) / 8u, layout)
#define MATRIX_LOAD_B(x, tile, i, pitch, layout) coopMatLoad(x, tile, uint(i) / 8u, uint(pitch) / 8u, layout)
#define MATRIX_LOAD_SUM(x, tile, i, pitch) coopMatLoad(x, tile, uint(i) / 4u, uint(pitch) / 4u, gl_CooperativeMatrixLayoutRowMajor)
#define MATRIX_MULTIPLY(sum, a, a_layout, b, b_layout) sum = coopMatMulAdd(a, b, sum)
#define MATRIX_STORE(x, tile, i, pitch) coopMatStore(x, tile, uint(i) / 4u, uint(pitch) / 4u, gl_CooperativeMatrixLayoutRowMajor)
#endif

#define READ_ELEMENT(b, i) b.at[i]
#define WRITE_ELEMENT(b, i, v) b.at[i] = (v)
#define BLOCK_READ(slot, b)                                                                             \
    layout(std430, set = 0, binding = slot + 1) restrict readonly buffer b##_block { STORAGE(b) at[]; } \
    b;
#define BLOCK_WRITE(slot, b)                                                                             \
    layout(std430, set = 0, binding = slot + 1) restrict writeonly buffer b##_block { STORAGE(b) at[]; } \
    b;
#define LOCAL_BUFFER(slot, b) const int b##_offset = P.offset[slot];
#define GLOBAL_SHARED(type, name, n) shared type name[n];
#define KERNEL_BEGIN                                                                             \
    layout(local_size_x = GROUP_SIZE_X, local_size_y = GROUP_SIZE_Y) in;                         \
    layout(std430, set = 0, binding = 0) restrict readonly buffer tern_params{                   \
        TERN_PARAMS_HEAD(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)      \
            KERNEL_PARAMS(MEMBER_INT, MEMBER_INTS, MEMBER_UINT, MEMBER_FLOAT, MEMBER_FLOATS)} P; \
    KERNEL_BUFFERS(BLOCK_READ, BLOCK_WRITE)                                                      \
    POST_BUFFERS(BLOCK_READ)                                                                     \
    KERNEL_SHARED(GLOBAL_SHARED)                                                                 \
    void main()                                                                                  \
    {                                                                                            \
        KERNEL_BUFFERS(LOCAL_BUFFER, LOCAL_BUFFER)                                               \
        POST_BUFFERS(LOCAL_BUFFER)
#define KERNEL_END }
