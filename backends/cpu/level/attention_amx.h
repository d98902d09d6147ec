/* Attention in bf16 by the tiles of AMX: three meetings are at work at once. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_AMX_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_AMX_H

#include "backends/cpu/level/attention_meeting.h"
#include "backends/cpu/level/attention_quick_powers.h"

/* All groups meet a block of keys before the next block, but for those that causality keeps from it. */
static struct meeting after(const struct tern_cpu_attend *a, struct meeting m)
{
    do {
        m.row += QUERIES;
        if (m.row >= a->rows) {
            m.row = 0;
            m.key += KEYS;
        }
        m.there = m.there && m.key < a->keys;
    } while (m.there && !meets(a, &m));
    return m;
}

INLINE struct factors value_factors(const struct tern_cpu_attend *a, const struct meeting *m, const uint16_t *p)
{
    return (struct factors){
        rows_of(a, m),         a->columns, filled(keys_of(a, m), PAIR), m->key, filled(a->keys, PAIR), LD_POWERS, a->ldo, p, values_of(a),
        a->o + m->row * a->ldo};
}

/* A panel whose sums are still in tiles, in the first pair or the second. It is stored when the next one is on its way: a store waits for
 * the products, and what is behind it waits for the store. */
struct kept {
    float *c;
    int64_t ldc;
    bool there, wide, second;
};

static void store_kept(struct kept *kept)
{
    if (kept->there)
        store_panel(kept->c, kept->ldc, kept->wide, kept->second);
    kept->there = false;
}

INLINE void next_powers(const bool whole, struct quick_powers *now)
{
    if (whole)
        quick_powers_next(now);
    else
        quick_powers_some(now);
}

/* Scores of the meeting that comes next and values of the last one, panel by panel, the first in the tiles that `second` names; between
 * panels a share of the rows of powers of the one that is there now, so that tiles and vectors are at work together. False: one of the rows
 * needs another `most`, or other powers. whole: all of them see all of a whole block. */
INLINE bool meet_from(const bool whole, bool second, const struct factors *s, const struct factors *v, int rows, struct quick_powers now,
                      struct kept *kept)
{
    const int64_t first = filled(s->n, 32), end = first + v->n;
    const int panels = (int)(filled(end, 32) / 32);
    int at = 0, row = 0;
    now.strange = _mm512_setzero_si512(); /* as it is; the compiler is to know */
#pragma GCC unroll 8
    for (int64_t j = 0; j < end; j += 32) {
        const struct factors *f = j < first ? s : v;
        const int64_t column = j < first ? j : j - first;
        multiply_panel(f, column, j >= first, second);
        at++;
        for (; row < rows * at / panels; row++)
            next_powers(whole, &now);
        if (kept->there)
            store_panel(kept->c, kept->ldc, kept->wide, !second);
        *kept = (struct kept){f->c + column, f->ldc, true, is_wide(f, column), second};
        second = !second;
    }
    for (; row < rows; row++)
        next_powers(whole, &now);
    return quick_powers_fit(&now);
}

INLINE bool meet(const bool whole, const struct factors *s, const struct factors *v, int rows, struct quick_powers now, struct kept *kept)
{
    return kept->there && !kept->second ? meet_from(whole, true, s, v, rows, now, kept) : meet_from(whole, false, s, v, rows, now, kept);
}

#define MEET(name, WHOLE)                                                                                                           \
    static __attribute__((noinline)) bool name(const struct factors *s, const struct factors *v, int rows, struct quick_powers now, \
                                               struct kept *kept)                                                                   \
    {                                                                                                                               \
        if (!s->n) /* the kept one may be what values are added to first */                                                         \
            store_kept(kept);                                                                                                       \
        return meet(WHOLE, s, v, rows, now, kept);                                                                                  \
    }
MEET(meet_any, true)
MEET(meet_some, false)
#undef MEET

/* Whole blocks of keys, sizes that the compiler knows: without loops attention at 64 x 64 pixels took 0.82 of the time. */
#define MEET(name, DEPTH, COLUMNS)                                                                                        \
    static __attribute__((noinline)) bool name(const struct factors *s, const struct factors *v, struct quick_powers now, \
                                               struct kept *kept)                                                         \
    {                                                                                                                     \
        const struct factors scores = {QUERIES, KEYS, DEPTH, 0, DEPTH, s->lda, LD_SCORES, s->a, s->b, s->c};              \
        const struct factors values = {QUERIES, COLUMNS, KEYS, v->k0, v->depth, LD_POWERS, v->ldc, v->a, v->b, v->c};     \
        return meet(true, &scores, &values, QUERIES, now, kept);                                                          \
    }
MEET(meet_40, 64, 48) /* sizes of heads, and the column of ones */
MEET(meet_64, 64, 80)
MEET(meet_80, 96, 96)
#undef MEET

static bool meet_whole(const struct tern_cpu_attend *a, const struct factors *s, const struct factors *v, struct quick_powers now,
                       struct kept *kept)
{
    const bool whole = s->n == KEYS && v->k == KEYS;
    if (whole && a->depth == 64 && a->columns == 48)
        return meet_40(s, v, now, kept);
    if (whole && a->depth == 64 && a->columns == 80)
        return meet_64(s, v, now, kept);
    if (whole && a->depth == 96 && a->columns == 96)
        return meet_80(s, v, now, kept);
    return meet_any(s, v, QUERIES, now, kept);
}

/* Products of the neighbours of `now`, and its powers, as far as they are there. False: its powers are still to be made. */
static bool meet_now(const struct tern_cpu_attend *a, const struct factors *s, const struct factors *v, const struct meeting *now,
                     struct quick_powers powers, struct kept *kept)
{
    if (!now->there || a->mask || (now->key && !quick_mosts_fit(powers.most))) {
        meet_any(s, v, 0, powers, kept);
        return !now->there;
    }
    powers.keys = keys_of(a, now);
    if (a->causal)
        powers.seen = a->first + now->row - now->key + 1;
    for (int i = 0; i < QUERIES && !now->key; i++)
        a->most[now->row + i] = FIRST_MOST;
    const bool whole = powers.keys == KEYS && powers.seen >= KEYS;
    const bool fit = whole ? meet_whole(a, s, v, powers, kept) : meet_some(s, v, QUERIES, powers, kept);
    if (now->key || (fit && first_powers_count(rows_of(a, now), filled(powers.keys, PAIR), powers.to)))
        return fit;
    for (int64_t i = 0; i < rows_of(a, now); i++)
        a->most[now->row + i] = -INFINITY;
    return false;
}

static void all_meetings(const struct tern_cpu_attend *a)
{
    struct attention_scratch *scratch = a->scratch;
    struct meeting last = {0}, now = {0}, next = {.there = true};
    struct kept kept = {0};
    for (int turn = 0; next.there || now.there || last.there; turn++) {
        float *x = scratch->scores[(turn + 1) % 2];
        uint16_t *p = scratch->powers[(turn + 1) % 2];
        const struct factors s = next.there ? score_factors(a, &next, scratch->scores[turn % 2]) : (struct factors){0};
        const struct factors v = last.there ? value_factors(a, &last, scratch->powers[turn % 2]) : (struct factors){0};
        if (!meet_now(a, &s, &v, &now, quick_powers_begin(x, p, a->factor, a->most + now.row), &kept)) {
            store_kept(&kept); /* results, too, may need another `most` */
            if (hides(a, &now))
                hide(a, &now, x);
            powers_for(a, &now, x, p);
        }
        if (!last.there) /* those are scores of `next`, whose powers are made before they would be stored */
            store_kept(&kept);
        last = now;
        now = next;
        next = after(a, next);
    }
    store_kept(&kept);
}

#endif
