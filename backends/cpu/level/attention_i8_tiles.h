/* Attention in int8 by the tiles of AMX, for sixteen queries at a time: while tiles make scores with the block of keys that comes next and
 * sums of values for the last one, vectors make powers of the one in between. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILES_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILES_H

#include "backends/cpu/level/attention_i8_tile_products.h"

#define KEPT 3 /* tiles of results that stay where they are from block to block, if there are no more */

struct i8_scratch {
    float scores[2][QUERIES * LD_SCORES];
    uint8_t powers[2][QUERIES * LD_BYTES];
    float factor[QUERIES], shift[QUERIES];
};

struct i8_group {
    const struct tern_cpu_attend_i8 *a;
    int64_t row, blocks;
    bool quick; /* its scores are small enough for the quick way */
};

static void i8_results_from_tiles(const struct i8_group *g)
{
    const int64_t ldo = g->a->ldo;
    int32_t *o = g->a->o + g->row * ldo;
    _tile_stored(0, o, ldo * 4);
    _tile_stored(1, o + LANES, ldo * 4);
    _tile_stored(2, o + 2 * LANES, ldo * 4);
}

static void i8_results_to_tiles(const struct i8_group *g)
{
    const int64_t ldo = g->a->ldo;
    const int32_t *o = g->a->o + g->row * ldo;
    STORES_ARE_DONE();
    _tile_loadd(0, o, ldo * 4);
    _tile_loadd(1, o + LANES, ldo * 4);
    _tile_loadd(2, o + 2 * LANES, ldo * 4);
}

static void i8_scores_alone(const struct i8_group *g, const struct i8_products *p)
{
    const int64_t deep = g->a->head->depth / 64;
    STORES_ARE_DONE();
    if (deep == 1)
        _tile_loadd(5, p->q, p->ldq);
    for (int v = 0; v <= 4; v++)
        i8_score_tile(deep, v, p);
}

static void i8_values_alone(const struct i8_group *g, const struct i8_products *p)
{
    const int64_t wide = g->a->head->columns / LANES;
    STORES_ARE_DONE();
    _tile_loadd(6, p->powers, LD_BYTES);
    for (int64_t c = 0; c <= wide; c++)
        i8_value_tile(false, wide, c, p);
}

/* Powers of a block of any kind, whose references results are then relative to. */
static void i8_powers_by_rows(const struct i8_group *g, int64_t block, float *x, uint8_t *to)
{
    const struct tern_cpu_attend_i8 *a = g->a;
    const int64_t left = a->head->keys - block * BLOCK, keys = left < BLOCK ? left : BLOCK;
    for (int i = 0; i < QUERIES; i++, x += LD_SCORES) {
        const int64_t r = g->row + i;
        const float factor = a->row[r] * a->head->k_scale[block];
        for (int64_t j = 0; j < BLOCK; j++)
            x[j] = j < keys ? (x[j] - SCORES_ZERO) * factor : -INFINITY;
        if (r < a->rows)
            i8_another_most(a, r, keys, x);
        i8_row_powers(i, x, a->most[r], to + i * LD_BYTES);
    }
}

/* What rows are made with. */
static struct i8_rows i8_rows_of(const struct i8_group *g, int64_t block, struct i8_scratch *s)
{
    const struct tern_cpu_attend_i8 *a = g->a;
    const __m512 factor = _mm512_mul_ps(_mm512_loadu_ps(a->row + g->row), _mm512_set1_ps(a->head->k_scale[block]));
    const __m512 shift = _mm512_add_ps(_mm512_loadu_ps(a->most + g->row), _mm512_set1_ps(BYTES_SHIFT));
    _mm512_storeu_ps(s->factor, factor);
    _mm512_storeu_ps(s->shift, _mm512_fmadd_ps(factor, _mm512_set1_ps(SCORES_ZERO), shift));
    return (struct i8_rows){s->scores[block % 2], s->factor, s->shift, s->powers[block % 2], _mm512_setzero_si512(), 0};
}

/* Powers of a whole block after rows got other references where theirs do not do. False: a score is far from others, or no number, and
 * rows want to be made one by one. */
static bool i8_powers_again(const struct i8_group *g, int64_t block, struct i8_scratch *s)
{
    const struct tern_cpu_attend_i8 *a = g->a;
    const float scale = a->head->k_scale[block], *x = s->scores[block % 2];
    for (int64_t i = g->row; i < g->row + QUERIES && i < a->rows; i++, x += LD_SCORES) {
        const __m512 factor = _mm512_set1_ps(a->row[i] * scale), from = _mm512_set1_ps(SCORES_ZERO);
        __m512 tops = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x), from), factor);
        for (int v = 1; v < 4; v++)
            tops = _mm512_max_ps(tops, _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + v * LANES), from), factor));
        if (_mm512_cmp_ps_mask(tops, _mm512_set1_ps(a->most[i] + MOST_ROOM), _CMP_GE_OQ))
            i8_other_most(a, i, _mm512_reduce_max_ps(tops));
    }
    struct i8_rows rows = i8_rows_of(g, block, s);
    i8_rows_until(&rows, QUERIES);
    return i8_rows_fit(&rows);
}

static struct i8_products i8_products_of(const struct i8_group *g, int64_t next, int64_t last, struct i8_scratch *s)
{
    const struct tern_cpu_attend_i8 *a = g->a;
    const struct tern_cpu_head_i8 *h = a->head;
    return (struct i8_products){.q = a->q + g->row * a->ldq,
                                .ldq = a->ldq,
                                .k = h->k + next * BLOCK * h->depth,
                                .scores = s->scores[next % 2],
                                .powers = s->powers[last % 2],
                                .v = h->v + last * BLOCK * h->columns,
                                .v_row = h->columns * 4,
                                .o = a->o + g->row * a->ldo,
                                .ldo = a->ldo};
}

/* Powers of blocks from `now` on, with scores of the next one and values of the last one each, as far as there is a next one. The block
 * that it ends at: the last one, of which nothing is done, or one whose powers are still to be made, by other references. */
INLINE int64_t i8_blocks(const int64_t deep, const int64_t wide, const bool kept, const struct i8_group *g, int64_t now,
                         struct i8_scratch *s)
{
    if (deep == 1)
        _tile_loadd(5, g->a->q + g->row * g->a->ldq, g->a->ldq);
    for (; now + 1 < g->blocks; now++) {
        const struct i8_products p = i8_products_of(g, now + 1, now - 1, s);
        if (!i8_step(deep, wide, kept, &p, i8_rows_of(g, now, s)))
            return now;
    }
    return now;
}

/* Sizes that the compiler knows. */
#define BLOCKS(name, deep, wide, kept)                                                                         \
    static __attribute__((noinline)) int64_t name(const struct i8_group *g, int64_t now, struct i8_scratch *s) \
    {                                                                                                          \
        return i8_blocks(deep, wide, kept, g, now, s);                                                         \
    }
BLOCKS(i8_blocks_40, 1, KEPT, true)
BLOCKS(i8_blocks_64, 1, 5, false)
BLOCKS(i8_blocks_80, 2, 6, false)
BLOCKS(i8_blocks_any, g->a->head->depth / 64, g->a->head->columns / LANES, false)
#undef BLOCKS

static int64_t i8_quick_blocks(const struct i8_group *g, int64_t now, struct i8_scratch *s)
{
    const struct tern_cpu_head_i8 *h = g->a->head;
    if (h->depth == 64 && h->columns == KEPT * LANES) {
        i8_results_to_tiles(g);
        now = i8_blocks_40(g, now, s);
        i8_results_from_tiles(g);
        return now;
    }
    if (h->depth == 64 && h->columns == 80)
        return i8_blocks_64(g, now, s);
    return h->depth == 128 && h->columns == 96 ? i8_blocks_80(g, now, s) : i8_blocks_any(g, now, s);
}

static void i8_powers_of(const struct i8_group *g, int64_t block, struct i8_scratch *s)
{
    const bool whole = g->a->head->keys - block * BLOCK >= BLOCK;
    if (!g->quick || !whole || !i8_powers_again(g, block, s))
        i8_powers_by_rows(g, block, s->scores[block % 2], s->powers[block % 2]);
}

static void i8_all_blocks(const struct i8_group *g, struct i8_scratch *s)
{
    struct i8_products p = i8_products_of(g, 0, 0, s);
    i8_scores_alone(g, &p);
    for (int64_t now = 0; now < g->blocks; now++) {
        const bool quick = g->quick && now > 0;
        if (quick)
            now = i8_quick_blocks(g, now, s);
        const bool next = now + 1 < g->blocks;
        if (!quick || !next) {
            p = i8_products_of(g, next ? now + 1 : 0, now > 0 ? now - 1 : 0, s);
            if (now > 0)
                i8_values_alone(g, &p);
            if (next)
                i8_scores_alone(g, &p);
        }
        i8_powers_of(g, now, s);
    }
    p = i8_products_of(g, 0, g->blocks - 1, s);
    i8_values_alone(g, &p);
}

/* NaN if one is no number. */
static float i8_largest(int64_t n, const float *x)
{
    float largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabsf(x[i]) <= largest || isnan(largest) ? largest : fabsf(x[i]);
    return largest;
}

/* What `factor`, the largest, times a score and SCORES_ZERO reaches is small enough. */
static bool i8_is_quick(float factor, int64_t e)
{
    return factor * SCORES_ZERO <= MOST_OF_SHIFT && factor * 127 * 127 * (float)e <= MOST_SCORE;
}

static void attend_i8(const struct tern_cpu_attend_i8 *a)
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int64_t rows = filled(a->rows, QUERIES), blocks = filled(h->keys, BLOCK) / BLOCK;
    for (int64_t i = 0; i < rows; i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    const float scale = i8_largest(blocks, h->k_scale);
    i8_begin();
    for (int64_t row = 0; row < rows; row += QUERIES) {
        const bool quick = i8_is_quick(i8_largest(QUERIES, a->row + row) * scale, h->e);
        const struct i8_group g = {.a = a, .row = row, .blocks = blocks, .quick = quick};
        i8_all_blocks(&g, a->scratch);
    }
    i8_end();
    for (int64_t i = 0; i < a->rows; i++) /* the values of a column of ones */
        a->sum[i] = isnan(a->most[i]) ? NAN : (float)a->o[i * a->ldo + h->values];
}

#endif
