/* The gemm tile: MR rows of A times one packed panel of B, all sums in registers. Taller blocks are several. */
#ifndef TERN_BACKENDS_CPU_GEMM_H
#define TERN_BACKENDS_CPU_GEMM_H

#include "backends/cpu/level/vec.h"

#define LINE 16 /* f32 in a line of cache */

/* Rows of A that one address serves: those of x86 reach one and two distances further. */
#if defined(__x86_64__)
#define SHARE 3
#else
#define SHARE 1
#endif

/* The tallest tile. Half panels of two vectors have twice as many rows: six sums wait for themselves. */
#if MR == 6 && NV == 2
#define MOST_HEIGHT (2 * MR)
#else
#define MOST_HEIGHT MR
#endif

enum storage { STORE_F32, STORE_F16, STORE_BF16 };

INLINE vf load_b(const void *b, int64_t at, enum storage storage)
{
    if (storage == STORE_F32)
        return v_load((const float *)b + at);
    return storage == STORE_F16 ? v_from_f16((const uint16_t *)b + at) : v_from_bf16((const uint16_t *)b + at);
}

struct call {
    int64_t k, lda, ldc;
    const float *a, *bias;
    const void *b;
    float *c;
    int cols;
    bool accumulate;
    struct tern_gemm_ahead ahead;
};

/* A part of the depth is summed by itself before it is added to C: the error grows with the length of a part, not of the whole.
 * The lines of C are fetched meanwhile. Where the rows of A lie behind each other, so do those of the next tile, from beyond L2: in other
 * places they are in L2, and fetching them costs more than it saves.
 * rows, nv (vectors per row) and storage are constants wherever this is inlined, so that acc lives in registers. */
INLINE void tile(const struct call *q, const int rows, const int nv, const enum storage storage)
{
    vf acc[MOST_HEIGHT][NV];
    float edge[MOST_HEIGHT][NR];
    const bool whole = q->cols == nv * VW, stream = q->ahead.a;
    const float *a = q->a;
    float *c = q->c;
    int64_t ldc = q->ldc;

    if (q->k >= 6 * LINE) /* in shorter parts there is no time for it */
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < nv; j++)
                __builtin_prefetch(c + i * ldc + j * VW, 1);
    if (!whole) { /* the last panel: through a small copy */
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < nv * VW; j++)
                edge[i][j] = j >= q->cols ? 0 : q->accumulate ? q->c[i * q->ldc + j] : q->bias ? q->bias[j] : 0;
        c = edge[0];
        ldc = NR;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            acc[i][j] = q->accumulate ? v_set(0) : !whole ? v_load(c + i * ldc + j * VW) : q->bias ? v_load(q->bias + j * VW) : v_set(0);

    const int64_t lda = q->lda;
    const float *row[MOST_HEIGHT]; /* of A: every SHARE-th one at the current column */
    const char *b_row = q->b, *next = q->ahead.b;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i += SHARE)
        row[i] = a + i * lda;
    for (int64_t k = 0; k < q->k; k++) {
        vf b[NV];
        __builtin_prefetch(next, 0, 2);
        next += q->ahead.step;
        if (stream && k % LINE < rows)
            __builtin_prefetch(a + (rows + k % LINE) * lda + k / LINE * LINE);
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            b[j] = load_b(b_row, j * VW, storage);
        b_row += nv * VW * (storage == STORE_F32 ? 4 : 2);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vf x = v_set(row[i / SHARE * SHARE][i % SHARE * lda]);
#pragma GCC unroll 4
            for (int j = 0; j < nv; j++)
                acc[i][j] = v_fma(x, b[j], acc[i][j]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i += SHARE) {
            row[i]++;
            __asm__("" : "+r"(row[i])); /* else gcc keeps twelve addresses, four of them in vector registers */
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < nv; j++)
            v_store(c + i * ldc + j * VW, q->accumulate ? v_load(c + i * ldc + j * VW) + acc[i][j] : acc[i][j]);
    if (!whole)
        for (int i = 0; i < rows; i++)
            memcpy(q->c + i * q->ldc, edge[i], (size_t)q->cols * sizeof(float));
}

/* halves: of a panel */
#define ROWS(n, halves, storage) \
    static void tile_##n##_##halves##_##storage(const struct call *q) { tile(q, n, halves *NV / 2, storage); }
#define STORAGES(n, halves) ROWS(n, halves, STORE_F32) ROWS(n, halves, STORE_F16) ROWS(n, halves, STORE_BF16)
#define WIDTHS(n) STORAGES(n, 1) STORAGES(n, 2)
#define ENTRY(n, halves)                                                                                   \
    {                                                                                                      \
        tile_##n##_##halves##_STORE_F32, tile_##n##_##halves##_STORE_F16, tile_##n##_##halves##_STORE_BF16 \
    }
WIDTHS(1)
WIDTHS(2)
WIDTHS(4)
#if MR >= 6
WIDTHS(6)
#endif
#if MR >= 12
WIDTHS(8)
WIDTHS(12)
#elif MOST_HEIGHT == 12
STORAGES(12, 1)
#endif

/* Highest first; not every height is there for whole panels. */
typedef void tile_fn(const struct call *);
static const struct {
    int rows;
    tile_fn *of[2][3]; /* half panels, whole ones */
} tiles[] = {
#if MR >= 12
    {12, {ENTRY(12, 1), ENTRY(12, 2)}}, {8, {ENTRY(8, 1), ENTRY(8, 2)}},
#elif MOST_HEIGHT == 12
    {12, {ENTRY(12, 1)}},
#endif
#if MR >= 6
    {6, {ENTRY(6, 1), ENTRY(6, 2)}},
#endif
    {4, {ENTRY(4, 1), ENTRY(4, 2)}},    {2, {ENTRY(2, 1), ENTRY(2, 2)}}, {1, {ENTRY(1, 1), ENTRY(1, 2)}},
};

static void gemm_tile_ahead(int rows, int cols, int64_t k, const float *a, int64_t lda, const void *b, enum tern_dtype b_dtype,
                            bool half_panel, float *c, int64_t ldc, bool accumulate, const float *bias, const struct tern_gemm_ahead *ahead)
{
    struct call q = {k, lda, ldc, a, bias, b, c, cols, accumulate, *ahead};
    int storage = b_dtype == TERN_F32 ? STORE_F32 : b_dtype == TERN_F16 ? STORE_F16 : STORE_BF16;
    for (int h = 0; rows; h++) {
        tile_fn *const compute = tiles[h].of[!half_panel][storage];
        for (const int height = tiles[h].rows; compute && rows >= height; rows -= height) {
            compute(&q);
            q.a += height * lda;
            q.c += height * ldc;
            q.ahead.b = (const char *)q.ahead.b + k * ahead->step;
        }
    }
}

/* What is next is not known: B is fetched where it is, in L1. */
static void gemm_tile(int rows, int cols, int64_t k, const float *a, int64_t lda, const void *b, enum tern_dtype b_dtype, bool half_panel,
                      float *c, int64_t ldc, bool accumulate, const float *bias)
{
    const struct tern_gemm_ahead ahead = {b, 0, lda == k};
    gemm_tile_ahead(rows, cols, k, a, lda, b, b_dtype, half_panel, c, ldc, accumulate, bias, &ahead);
}

#endif
