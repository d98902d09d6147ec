/* Attention in int8 by the tiles of AMX, for sixteen queries at a time: while tiles make scores with the block of keys that comes next and
 * sums of values for the last one, vectors make powers of the one in between. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILES_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILES_H

#include "backends/cpu/level/attention_i8_most.h"

#define LD_BYTES 64 /* from a row of powers to the next */
#define KEPT 3      /* tiles of results that stay where they are from block to block, if there are no more */

struct i8_scratch {
    float scores[2][QUERIES * LD_SCORES];
    uint8_t powers[2][QUERIES * LD_BYTES];
    float factor[QUERIES], shift[QUERIES];
};

/* ---- powers */

/* Sums of scores begin with SCORES_FROM, the bits of SCORES_ZERO, whose last place counts ones, and are floats from the start. So
 * y = shift - factor x score needs no conversion; shift is rounded once, to 1/128 at most, which is the same for all keys of a block. */
#define SCORES_ZERO 12582912.0f
#define MOST_OF_SHIFT 49152 /* of factor x SCORES_ZERO */
#define MOST_SCORE 12000    /* of factor x score: no y is so far below 2^15 that it has none but bits of BYTES_BASE */

/* 2^-f in 1/256, for f in the middle of a 64th. A power is wrong by 0.9 % at most, 0.35 % in the mean square, before it is cut. */
static const uint8_t tiles_table[64]
    __attribute__((aligned(64))) = {255, 252, 249, 246, 244, 241, 239, 236, 233, 231, 228, 226, 224, 221, 219, 216,
                                    214, 212, 210, 207, 205, 203, 201, 198, 196, 194, 192, 190, 188, 186, 184, 182,
                                    180, 178, 176, 174, 172, 171, 169, 167, 165, 163, 162, 160, 158, 156, 155, 153,
                                    151, 150, 148, 147, 145, 143, 142, 140, 139, 137, 136, 134, 133, 132, 130, 129};

/* Rows of powers of a whole block, one after the other. */
struct i8_rows {
    const float *x, *factor, *shift;
    uint8_t *to;
    __m512i any; /* bits that some y has */
    int row;
};

/* As i8_word_powers. */
INLINE __m512i i8_tile_powers(__m512i x, __m512i y, const uint16_t *part)
{
    const __m512i low = _mm512_set4_epi32(0x0d0c0000, 0x09080000, 0x05040000, 0x01000000);
    const __m512i words = _mm512_mask_shuffle_epi8(x, 0xcccccccccccccccc, y, low);
    const __m512i top = _mm512_maskz_permutexvar_epi8(0xaaaaaaaaaaaaaaaa, _mm512_slli_epi16(words, 6), _mm512_load_si512(tiles_table));
    return _mm512_adds_epu16(_mm512_srlv_epi16(top, _mm512_srli_epi16(words, 8)), _mm512_load_si512(part));
}

INLINE void i8_next_row(struct i8_rows *r)
{
    const __m512 factor = _mm512_set1_ps(r->factor[r->row]), shift = _mm512_set1_ps(r->shift[r->row]);
    const float *x = r->x + r->row * LD_SCORES;
    __m512i y[4];
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++)
        y[v] = (__m512i)_mm512_fnmadd_ps(_mm512_loadu_ps(x + v * LANES), factor, shift);
    r->any = _mm512_ternarylogic_epi32(r->any, y[0], y[1], 0xfe); /* any | y[0] | y[1] */
    r->any = _mm512_ternarylogic_epi32(r->any, y[2], y[3], 0xfe);
    const __m512i even = i8_tile_powers(y[0], y[2], bytes_parts[r->row % 4]);
    const __m512i odd = i8_tile_powers(y[1], y[3], bytes_parts[(r->row + 1) % 4]);
    const __m512i turned = _mm512_set4_epi32(0x0e0f0c0d, 0x0a0b0809, 0x06070405, 0x02030001); /* high bytes in the place of low ones */
    _mm512_storeu_si512(r->to + r->row * LD_BYTES, _mm512_mask_shuffle_epi8(odd, 0x5555555555555555, even, turned));
    r->row++;
}

/* All y were in 2^15 .. 2^15 + 256. */
INLINE bool i8_rows_fit(const struct i8_rows *r)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    return _mm512_cmpeq_epi32_mask(_mm512_and_si512(r->any, high), _mm512_set1_epi32(BYTES_BASE)) == 0xffff;
}

/* ---- products */

/* gcc 12 does not know that a load of a tile reads memory. */
#define STORES_ARE_DONE() __asm__ volatile("" ::: "memory")

/* What tiles do meanwhile: scores of a group with a block of keys, powers of it times values of another block. */
struct i8_products {
    const uint8_t *q;
    int64_t ldq;
    const int8_t *k;
    const int32_t *offset;
    float *scores;
    const uint8_t *powers;
    const int8_t *v;
    int64_t v_row; /* bytes */
    int32_t *o;
    int64_t ldo;
};

/* Scores with 16 keys, in tile t. Of a depth of one tile the queries are in tile 5 before. */
#define SCORES(t, v)                                                   \
    do {                                                               \
        _tile_loadd(t, p->offset + (v)*LANES, 0);                      \
        for (int64_t i = 0; i < deep; i++) {                           \
            if (deep > 1)                                              \
                _tile_loadd(5, p->q + i * 64, p->ldq);                 \
            _tile_loadd(7, p->k + i * 64 * BLOCK + (v)*64, 4 * BLOCK); \
            _tile_dpbusd(t, 5, 7);                                     \
        }                                                              \
    } while (0)

/* 16 columns of results, in tile t. */
#define VALUES(t, c)                                      \
    do {                                                  \
        if (!kept)                                        \
            _tile_loadd(t, p->o + (c)*LANES, p->ldo * 4); \
        _tile_loadd(7, p->v + (c)*64, p->v_row);          \
        _tile_dpbusd(t, 6, 7);                            \
    } while (0)

/* A store waits for its products, and what is behind it for the store: so it comes after the next ones. */
INLINE void i8_score_tile(const int64_t deep, const int v, const struct i8_products *p)
{
    if (v < 4 && v % 2)
        SCORES(4, v);
    else if (v < 4)
        SCORES(3, v);
    if (v > 0 && v % 2)
        _tile_stored(3, p->scores + (v - 1) * LANES, LD_SCORES * 4);
    else if (v > 0)
        _tile_stored(4, p->scores + (v - 1) * LANES, LD_SCORES * 4);
}

INLINE void i8_value_tile(const bool kept, const int64_t wide, const int64_t c, const struct i8_products *p)
{
    const int64_t last = c - 1;
    if (c < wide) {
        if (c % 3 == 0)
            VALUES(0, c);
        else if (c % 3 == 1)
            VALUES(1, c);
        else
            VALUES(2, c);
    }
    if (kept || last < 0 || last >= wide)
        return;
    if (last % 3 == 0)
        _tile_stored(0, p->o + last * LANES, p->ldo * 4);
    else if (last % 3 == 1)
        _tile_stored(1, p->o + last * LANES, p->ldo * 4);
    else
        _tile_stored(2, p->o + last * LANES, p->ldo * 4);
}

INLINE void i8_rows_until(struct i8_rows *r, const int row)
{
    while (r->row < row)
        i8_next_row(r);
}

/* All at once, of a whole block. False: what powers there are means nothing. */
INLINE bool i8_step(const int64_t deep, const int64_t wide, const bool kept, const struct i8_products *p, struct i8_rows rows)
{
    STORES_ARE_DONE();
    _tile_loadd(6, p->powers, LD_BYTES);
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        i8_score_tile(deep, v, p);
        i8_rows_until(&rows, 4 * v + 2);
        for (int64_t c = wide * v / 4; c < wide * (v + 1) / 4; c++)
            i8_value_tile(kept, wide, c, p);
        i8_rows_until(&rows, 4 * v + 4);
    }
    i8_value_tile(kept, wide, wide, p);
    i8_score_tile(deep, 4, p);
    return i8_rows_fit(&rows);
}

/* ---- a group of queries against all keys */

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
                                .offset = h->offset + next * BLOCK,
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

/* What `factor` times a score, and SCORES_ZERO, reach is small enough. */
static bool i8_is_quick(const struct tern_cpu_attend_i8 *a, int64_t row, int64_t blocks)
{
    const struct tern_cpu_head_i8 *h = a->head;
    float k = 0, q = 0;
    for (int64_t b = 0; b < blocks; b++)
        k = h->k_scale[b] <= k ? k : h->k_scale[b]; /* NaN stays */
    for (int64_t i = row; i < row + QUERIES; i++)
        q = fabsf(a->row[i]) <= q ? q : fabsf(a->row[i]);
    const float factor = q * k;
    return factor * SCORES_ZERO <= MOST_OF_SHIFT && factor * 127 * 127 * (float)h->e <= MOST_SCORE;
}

static void attend_i8(const struct tern_cpu_attend_i8 *a)
{
    const struct tern_cpu_head_i8 *h = a->head;
    const int64_t rows = filled(a->rows, QUERIES), blocks = filled(h->keys, BLOCK) / BLOCK;
    for (int64_t i = 0; i < rows; i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    i8_begin();
    for (int64_t row = 0; row < rows; row += QUERIES) {
        const struct i8_group g = {.a = a, .row = row, .blocks = blocks, .quick = i8_is_quick(a, row, blocks)};
        i8_all_blocks(&g, a->scratch);
    }
    i8_end();
    for (int64_t i = 0; i < a->rows; i++) /* the values of a column of ones */
        a->sum[i] = isnan(a->most[i]) ? NAN : (float)a->o[i * a->ldo + h->values];
}

#endif
