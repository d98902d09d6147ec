/* Attention in f32 by the vectors of the level: sizes, the product of a few rows, keys and values as it reads them. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_F32_TILES_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_F32_TILES_H

#include "backends/cpu/level/gemm.h"
#include "backends/cpu/transpose.h"

#define HALF_NV (NV / 2)
#define F32_QUERIES (2 * MR)       /* of a group: whole tiles of scores, and of values */
#define F32_WIDE (2 * MR / 3 & ~1) /* rows of a tile of values that is a panel and a half wide */
#define F32_TASK (4 * F32_QUERIES)
#define F32_KEYS (4 * NR) /* of a block */
#define F32_LD (F32_KEYS + 16)

struct f32_scratch {
    float powers[F32_QUERIES * F32_LD];
    float sums[F32_QUERIES * VW]; /* of the powers of a block */
};

/* Values of at most half a vector behind whole panels lie twice in theirs, and two rows of results share a vector, in the even row's place.
 * Where vectors are shorter too little is left to gain. */
#if defined(TERN_LEVEL_512)
#define F32_SHARED true
#else
#define F32_SHARED false
#endif
INLINE int64_t f32_shared_from(int64_t values)
{
    const int64_t left = values % NR;
    return F32_SHARED && values > NR && left > 0 && left <= VW / 2 ? values - left : INT64_MAX;
}

/* x in the first half, y in the second. */
INLINE vf f32_halves(vf x, vf y)
{
#if defined(TERN_LEVEL_512)
    return (vf)_mm512_mask_mov_ps((__m512)x, 0xff00, (__m512)y);
#else
    memcpy((char *)&x + sizeof(x) / 2, &y, sizeof(x) / 2);
    return x;
#endif
}

/* Rows of A, a panel of B, and half of one behind it, or any memory. */
struct f32_tile {
    const float *a, *b, *half;
    int64_t lda;
};

/* rows and nv are constants wherever this is inlined, so that acc lives in registers. nv: vectors of a row of B, of which HALF_NV lie in
 * the half panel where there are more than NV; shared: these are for two rows at once, with sums in the even one's place. */
INLINE void f32_multiply(const int rows, const int nv, const bool shared, int64_t k, const struct f32_tile *t, vf acc[MR][NV + HALF_NV])
{
    const int whole = nv > NV ? NV : nv, own = shared ? whole : nv;
    const float *b = t->b, *half = t->half, *row[MR];
    const int64_t lda = t->lda;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i += SHARE)
        row[i] = t->a + i * lda;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            acc[i][j] = v_set(0);
    for (int64_t d = 0; d < k; d++) {
        vf x[MR], y[NV + HALF_NV];
#pragma GCC unroll 8
        for (int j = 0; j < nv; j++)
            y[j] = v_load(j < whole ? b + j * VW : half + (j - whole) * VW);
        b += whole * VW;
        half += HALF_NV * VW;
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            x[i] = v_set(row[i / SHARE * SHARE][i % SHARE * lda]);
#pragma GCC unroll 8
            for (int j = 0; j < own; j++)
                acc[i][j] = v_fma(x[i], y[j], acc[i][j]);
            if (shared && i % 2)
                acc[i - 1][whole] = v_fma(f32_halves(x[i - 1], x[i]), y[whole], acc[i - 1][whole]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < rows; i += SHARE) {
            row[i]++;
            __asm__("" : "+r"(row[i])); /* else gcc keeps an address for each row */
        }
    }
}

/* Keys of a block beside each other; behind the last one zeros, up to half a panel or a whole one. */
static void f32_pack_keys(int64_t keys, int64_t e, const void *src, int64_t ld, int64_t depth, void *dst)
{
    for (int64_t j = 0; j < keys; j += NR) {
        const int64_t left = keys - j, width = left <= NR / 2 ? NR / 2 : NR, there = left < width ? left : width;
        float *to = (float *)dst + j * depth;
        if (there < width)
            memset(to, 0, (size_t)(width * depth) * sizeof(*to));
        cpu_transpose_uint32_t(there, e, (const uint32_t *)src + j * ld, ld, (uint32_t *)(void *)to, width);
    }
}

static void f32_pack_values(int64_t key, int64_t keys, int64_t ev, const void *src, int64_t ld, int64_t depth, void *dst)
{
    for (int64_t c = 0; c < ev; c += NR) {
        const int64_t left = ev - c, width = left <= NR / 2 ? NR / 2 : NR;
        const float *v = (const float *)src + c;
        float *to = (float *)dst + c * depth + key * width;
        for (int64_t i = 0; i < keys; i++, v += ld, to += width) {
            for (int64_t j = 0; j < width; j += VW)
                v_store(to + j, left - j >= VW ? v_load(v + j) : left > j ? v_load_n(v + j, left - j) : v_set(0));
            if (c == f32_shared_from(ev))
                memcpy(to + VW / 2, to, VW / 2 * sizeof(float));
        }
    }
}

#endif
