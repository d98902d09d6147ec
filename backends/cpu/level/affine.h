/* What is done with values when their moments are known: rows of f32, f16 or bf16, scaled by column or as a whole, in f32. */
#ifndef TERN_BACKENDS_CPU_LEVEL_AFFINE_H
#define TERN_BACKENDS_CPU_LEVEL_AFFINE_H

#include "backends/cpu/level/convert.h"
#include "backends/cpu/level/elementwise.h"

/* Rows that are gone through together: what belongs to their columns is read once for them. */
#define NORM_ROWS 4
/* Of so many columns at most that stays in L1 anyhow; then rows that are in no cache come one after the other. Processors fetch ahead what
 * is read and written in order: pictures from memory take 0.5 to 0.8 of the time. */
#define NORM_NARROW 1024
INLINE bool goes_together(int64_t n, bool near) { return near || n > NORM_NARROW; }

INLINE const void *row_of(const enum tern_dtype dtype, const void *x, int64_t at)
{
    return (const char *)x + at * (dtype == TERN_F32 ? 4 : 2);
}

/* What is done with n <= VW columns. */
struct columns {
    vf shift, scale, offset;
};

INLINE struct columns columns_of(const struct tern_cpu_affine *a, int64_t c, int64_t n)
{
    if (n == VW)
        return (struct columns){v_load(a->shift + c), v_load(a->scale + c), v_load(a->offset + c)};
    return (struct columns){v_load_n(a->shift + c, n), v_load_n(a->scale + c, n), v_load_n(a->offset + c, n)};
}

INLINE vf v_affine(vf x, const struct columns *c) { return v_fma(x - c->shift, c->scale, c->offset); }

/* Of n <= VW values from element at on, and what is done with them. */
INLINE vf affine_at(const enum tern_dtype from, const enum tern_dtype to, const bool silu, const void *x, int64_t at, int64_t n,
                    const struct columns *c)
{
    const vf y = v_affine(n == VW ? v_load_as(from, x, at) : v_load_as_n(from, x, at, n), c);
    return silu ? silu_for(to, y) : y;
}

INLINE void affine_rows(const enum tern_dtype from, const enum tern_dtype to, const bool silu, const int rows, int64_t n, const void *x,
                        int64_t ldx, const struct tern_cpu_affine *a, bool vectors, void *y, int64_t ldy)
{
    int64_t i = 0;
    struct columns c[4];
    for (int k = 0; k < 4; k++)
        c[k] = (struct columns){v_set(*a->shift), v_set(*a->scale), v_set(*a->offset)};
    for (; stores_two(to) && i + 4 * VW <= n; i += 4 * VW) {
        for (int k = 0; k < 4 && vectors; k++)
            c[k] = columns_of(a, i + k * VW, VW);
        for (int r = 0; r < rows; r++) {
            vf v[4];
            for (int k = 0; k < 4; k++)
                v[k] = affine_at(from, to, silu, x, r * ldx + i + k * VW, VW, &c[k]);
            v_store_four_as(to, y, r * ldy + i, v);
        }
    }
    for (; i + VW <= n; i += VW) {
        if (vectors)
            c[0] = columns_of(a, i, VW);
        for (int r = 0; r < rows; r++)
            v_store_as(to, y, r * ldy + i, affine_at(from, to, silu, x, r * ldx + i, VW, &c[0]));
    }
    if (i == n)
        return;
    if (vectors)
        c[0] = columns_of(a, i, n - i);
    for (int r = 0; r < rows; r++)
        v_store_as_n(to, y, r * ldy + i, affine_at(from, to, silu, x, r * ldx + i, n - i, &c[0]), n - i);
}

INLINE void affine_all(const enum tern_dtype from, const enum tern_dtype to, const bool silu, int64_t rows, int64_t n, const void *x,
                       int64_t ldx, const struct tern_cpu_affine *a, bool vectors, bool near, void *y, int64_t ldy)
{
    int64_t r = 0;
    for (; goes_together(n, near) && r + NORM_ROWS <= rows; r += NORM_ROWS)
        affine_rows(from, to, silu, NORM_ROWS, n, row_of(from, x, r * ldx), ldx, a, vectors, (void *)row_of(to, y, r * ldy), ldy);
    for (; r < rows; r++)
        affine_rows(from, to, silu, 1, n, row_of(from, x, r * ldx), ldx, a, vectors, (void *)row_of(to, y, r * ldy), ldy);
}

INLINE void affine_of(const enum tern_dtype from, const enum tern_dtype to, int64_t rows, int64_t n, const void *x, int64_t ldx,
                      const struct tern_cpu_affine *a, bool vectors, bool near, void *y, int64_t ldy)
{
    if (a->silu)
        affine_all(from, to, true, rows, n, x, ldx, a, vectors, near, y, ldy);
    else
        affine_all(from, to, false, rows, n, x, ldx, a, vectors, near, y, ldy);
}

INLINE void affine_alike(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, const struct tern_cpu_affine *a,
                         bool vectors, bool near, void *y, int64_t ldy)
{
    affine_of(dtype, dtype, rows, n, x, ldx, a, vectors, near, y, ldy);
}

INLINE void affine_narrow(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, const struct tern_cpu_affine *a,
                          bool vectors, bool near, void *y, int64_t ldy)
{
    affine_of(TERN_F32, dtype, rows, n, x, ldx, a, vectors, near, y, ldy);
}

INLINE void affine_wide(const enum tern_dtype dtype, int64_t rows, int64_t n, const void *x, int64_t ldx, const struct tern_cpu_affine *a,
                        bool vectors, bool near, void *y, int64_t ldy)
{
    affine_of(dtype, TERN_F32, rows, n, x, ldx, a, vectors, near, y, ldy);
}

static void affine(enum tern_dtype from, enum tern_dtype to, int64_t rows, int64_t n, const void *x, int64_t ldx,
                   const struct tern_cpu_affine *a, bool vectors, bool near, void *y, int64_t ldy)
{
    if (from == to)
        FOR_DTYPE(from, affine_alike, rows, n, x, ldx, a, vectors, near, y, ldy)
    else if (to == TERN_F32)
        FOR_DTYPE(from, affine_wide, rows, n, x, ldx, a, vectors, near, y, ldy)
    else
        FOR_DTYPE(to, affine_narrow, rows, n, x, ldx, a, vectors, near, y, ldy)
}

#endif
