/* Products of Winograd's whole numbers of 16 bits: some rows of tiles times a panel, all sums in registers, as the gemm tile has them. */
#ifndef TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I16_TILE_H
#define TERN_BACKENDS_CPU_LEVEL_WINOGRAD_I16_TILE_H

#include "backends/cpu/level/gemm.h"

struct i16_call {
    int64_t depth, ldv, ldm;
    const int16_t *v, *u;
    const float *unit;
    float *m;
    bool accumulate;
};

/* acc += products of pairs. The builtin of gcc 12 copies each sum there and back. */
INLINE void i16_add(__m512i *acc, __m512i x, __m512i y) { __asm__("vpdpwssd %2, %1, %0" : "+v"(*acc) : "v"(x), "v"(y)); }

/* Rows that follow each other are fetched for the next tile, from beyond L2. */
INLINE void i16_tile(const struct i16_call *q, const int rows, const int nv)
{
    __m512i acc[MR][NV];
    const char *row[MR], *next = (const char *)(q->v + rows * q->ldv); /* of every SHARE-th row of A, at the current column */
    const int16_t *u = q->u;
    const int64_t ld = q->ldv * 2, lines = rows * ld;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++) {
            __builtin_prefetch(q->m + i * q->ldm + j * VW, 1);
            acc[i][j] = _mm512_setzero_si512();
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i += SHARE)
        row[i] = (const char *)q->v + i * ld;
    for (int64_t k = 0; k < q->depth; k += 2, u += 2 * nv * VW) {
        __m512i b[NV];
        if (k * 32 < lines)
            __builtin_prefetch(next + k * 32);
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++)
            b[j] = _mm512_loadu_si512(u + 2 * j * VW);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            int32_t pair;
            memcpy(&pair, row[i / SHARE * SHARE] + i % SHARE * ld, sizeof(pair));
            const __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 2
            for (int j = 0; j < nv; j++)
                i16_add(&acc[i][j], x, b[j]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i += SHARE) {
            row[i] += 4;
            __asm__("" : "+r"(row[i])); /* else gcc keeps an address for each row */
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        const vf unit = v_set(q->unit[i]);
#pragma GCC unroll 2
        for (int j = 0; j < nv; j++) {
            float *to = q->m + i * q->ldm + j * VW;
            v_store(to, v_fma((vf)_mm512_cvtepi32_ps(acc[i][j]), unit, q->accumulate ? v_load(to) : v_set(0)));
        }
    }
}

#define I16_TILE(n)                                                               \
    static void i16_tile_##n##_1(const struct i16_call *q) { i16_tile(q, n, 1); } \
    static void i16_tile_##n##_2(const struct i16_call *q) { i16_tile(q, n, 2); }
I16_TILE(12)
I16_TILE(6)
I16_TILE(4)
I16_TILE(2)
I16_TILE(1)
#undef I16_TILE

static void winograd_i16_multiply(int64_t rows, int64_t depth, const int16_t *v, int64_t ldv, const int16_t *u, bool half_panel,
                                  const float *unit, float *m, int64_t ldm, bool accumulate)
{
    static const struct {
        int rows;
        void (*of[2])(const struct i16_call *); /* half panels, whole ones */
    } heights[] = {{12, {i16_tile_12_1, i16_tile_12_2}},
                   {6, {i16_tile_6_1, i16_tile_6_2}},
                   {4, {i16_tile_4_1, i16_tile_4_2}},
                   {2, {i16_tile_2_1, i16_tile_2_2}},
                   {1, {i16_tile_1_1, i16_tile_1_2}}};
    struct i16_call q = {depth, ldv, ldm, v, u, unit, m, accumulate};
    for (int h = 0; rows; h++)
        for (const int height = heights[h].rows; rows >= height; rows -= height) {
            heights[h].of[!half_panel](&q);
            q.v += height * ldv;
            q.unit += height;
            q.m += height * ldm;
        }
}

#endif
