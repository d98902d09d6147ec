/* Products of attention in int8 by the tiles of AMX, and powers between them. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILE_PRODUCTS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_I8_TILE_PRODUCTS_H

#include "backends/cpu/level/attention_i8_tile_powers.h"

/* gcc 12 does not know that a load of a tile reads memory. */
#define STORES_ARE_DONE() __asm__ volatile("" ::: "memory")

/* What tiles do meanwhile: scores of a group with a block of keys, powers of it times values of another block. */
struct i8_products {
    const uint8_t *q;
    int64_t ldq;
    const int8_t *k;
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
        _tile_loadd(t, scores_from, 0);                                \
        for (int64_t i = 0; i < deep; i++) {                           \
            if (deep > 1)                                              \
                _tile_loadd(5, p->q + i * 64, p->ldq);                 \
            _tile_loadd(7, p->k + i * 64 * BLOCK + (v)*64, 4 * BLOCK); \
            _tile_dpbssd(t, 5, 7);                                     \
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

#undef SCORES
#undef VALUES
#endif
