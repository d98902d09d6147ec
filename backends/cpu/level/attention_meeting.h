/* Meetings of attention in bf16: which queries meet which keys, and what levels have in common there. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_MEETING_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_MEETING_H

#include "backends/cpu/level/attention_powers.h"
#include "backends/cpu/level/attention_tiles.h"

/* A pair of a block of keys and a group of queries. */
struct meeting {
    int64_t key, row;
    bool there;
};

INLINE int64_t keys_of(const struct tern_cpu_attend *a, const struct meeting *m)
{
    return a->keys - m->key < KEYS ? a->keys - m->key : KEYS;
}
INLINE int64_t rows_of(const struct tern_cpu_attend *a, const struct meeting *m)
{
    return a->rows - m->row < QUERIES ? a->rows - m->row : QUERIES;
}

INLINE const uint16_t *queries_of(const struct tern_cpu_attend *a, int64_t row) { return (const uint16_t *)a->q + row * a->ldq; }
INLINE const uint16_t *keys_at(const struct tern_cpu_attend *a, int64_t key) { return (const uint16_t *)a->k + key * a->depth; }
INLINE const uint16_t *values_of(const struct tern_cpu_attend *a) { return a->v; }

/* Some of the queries see some of the keys, as far as causality goes. */
INLINE bool meets(const struct tern_cpu_attend *a, const struct meeting *m) { return !a->causal || m->key < a->first + m->row + QUERIES; }

/* What is no key, or invisible, has the score -infinity. */
static void hide(const struct tern_cpu_attend *a, const struct meeting *m, float *x)
{
    int64_t keys = keys_of(a, m), rows = rows_of(a, m), end = filled(keys, PAIR);
    for (int64_t i = 0; i < rows; i++, x += LD_SCORES) {
        int64_t visible = keys, last = a->first + m->row + i - m->key + 1;
        if (a->mask)
            a->mask(a->mask_arg, m->row + i, m->key, keys, x);
        if (a->causal && last < visible)
            visible = last < 0 ? 0 : last;
        for (int64_t j = visible; j < end; j++)
            x[j] = -INFINITY;
    }
}

/* Some scores of a meeting are not those of queries and keys. */
INLINE bool hides(const struct tern_cpu_attend *a, const struct meeting *m) { return a->mask || a->causal || keys_of(a, m) % PAIR; }

INLINE struct factors score_factors(const struct tern_cpu_attend *a, const struct meeting *m, float *x)
{
    return (struct factors){rows_of(a, m), keys_of(a, m),         a->depth,           0, a->depth, a->ldq,
                            LD_SCORES,     queries_of(a, m->row), keys_at(a, m->key), x};
}

/* The powers of a meeting, one by one where a row may need another `most`: results by an older one follow. */
static void powers_for(const struct tern_cpu_attend *a, const struct meeting *m, float *scores, uint16_t *to)
{
    struct powers w = {.a = a, .x = scores, .to = to, .most = a->most + m->row, .rows = rows_of(a, m), .keys = filled(keys_of(a, m), PAIR)};
    for (int i = 0; i < QUERIES; i++)
        w.shrink[i] = 1;
    while (w.row < w.rows)
        next_row(&w);
    if (w.grown)
        shrink_results(&w, a->o + m->row * a->ldo);
}

#endif
