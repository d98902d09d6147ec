/* Blocks of a matrix with rows and columns exchanged, in vectors of 16 bytes: what packing a weight comes down to. */
#ifndef TERN_BACKENDS_CPU_TRANSPOSE_H
#define TERN_BACKENDS_CPU_TRANSPOSE_H

#include <stdint.h>
#include <string.h>

typedef uint16_t cpu_u16x8 __attribute__((vector_size(16)));
typedef uint32_t cpu_u32x4 __attribute__((vector_size(16)));
typedef uint64_t cpu_u64x2 __attribute__((vector_size(16)));

/* Values of two vectors by turns: of their first halves, of their second halves. */
#define CPU_LOW16(a, b) ((cpu_u32x4)__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11))
#define CPU_HIGH16(a, b) ((cpu_u32x4)__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15))
#define CPU_LOW32(a, b) ((cpu_u64x2)__builtin_shufflevector(a, b, 0, 4, 1, 5))
#define CPU_HIGH32(a, b) ((cpu_u64x2)__builtin_shufflevector(a, b, 2, 6, 3, 7))
#define CPU_LOW64(a, b) __builtin_shufflevector(a, b, 0, 2)
#define CPU_HIGH64(a, b) __builtin_shufflevector(a, b, 1, 3)

static inline void cpu_transpose_block_uint16_t(const uint16_t *src, int64_t lds, uint16_t *dst, int64_t ldd)
{
    cpu_u16x8 x[8];
    cpu_u32x4 pair[8];
    cpu_u64x2 four[8], column;
    for (int j = 0; j < 8; j++)
        memcpy(&x[j], src + j * lds, sizeof(x[j]));
    for (int j = 0; j < 8; j += 2) {
        pair[j] = CPU_LOW16(x[j], x[j + 1]);
        pair[j + 1] = CPU_HIGH16(x[j], x[j + 1]);
    }
    for (int j = 0; j < 8; j += 4)
        for (int half = 0; half < 2; half++) {
            four[j + 2 * half] = CPU_LOW32(pair[j + half], pair[j + 2 + half]);
            four[j + 2 * half + 1] = CPU_HIGH32(pair[j + half], pair[j + 2 + half]);
        }
    for (int t = 0; t < 8; t++) {
        column = t % 2 ? CPU_HIGH64(four[t / 2], four[4 + t / 2]) : CPU_LOW64(four[t / 2], four[4 + t / 2]);
        memcpy(dst + t * ldd, &column, sizeof(column));
    }
}

static inline void cpu_transpose_block_uint32_t(const uint32_t *src, int64_t lds, uint32_t *dst, int64_t ldd)
{
    cpu_u32x4 x[4];
    cpu_u64x2 pair[4], column;
    for (int j = 0; j < 4; j++)
        memcpy(&x[j], src + j * lds, sizeof(x[j]));
    for (int j = 0; j < 4; j += 2) {
        pair[j] = CPU_LOW32(x[j], x[j + 1]);
        pair[j + 1] = CPU_HIGH32(x[j], x[j + 1]);
    }
    for (int t = 0; t < 4; t++) {
        column = t % 2 ? CPU_HIGH64(pair[t / 2], pair[2 + t / 2]) : CPU_LOW64(pair[t / 2], pair[2 + t / 2]);
        memcpy(dst + t * ldd, &column, sizeof(column));
    }
}

/* cpu_transpose_TYPE: dst[t * ldd + j] = src[j * lds + t] for j < rows, t < n. */
#define CPU_TRANSPOSE(type)                                                                                                \
    static inline void cpu_transpose_##type(int64_t rows, int64_t n, const type *src, int64_t lds, type *dst, int64_t ldd) \
    {                                                                                                                      \
        const int64_t side = 16 / sizeof(type), whole_rows = rows / side * side, whole = n / side * side;                  \
        for (int64_t j = 0; j < whole_rows; j += side)                                                                     \
            for (int64_t t = 0; t < whole; t += side)                                                                      \
                cpu_transpose_block_##type(src + j * lds + t, lds, dst + t * ldd + j, ldd);                                \
        for (int64_t j = 0; j < rows; j++)                                                                                 \
            for (int64_t t = j < whole_rows ? whole : 0; t < n; t++)                                                       \
                dst[t * ldd + j] = src[j * lds + t];                                                                       \
    }
CPU_TRANSPOSE(uint16_t)
CPU_TRANSPOSE(uint32_t)

#endif
