/* Attention in bf16: scores, powers and sums of values for queries of one head, a group of queries and a block of keys at a time, so that
 * what they have in common stays in L1. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_H

#include "backends/cpu/level/bf16.h"

#if defined(TERN_LEVEL_BF16) && defined(TERN_LEVEL_512)
#define LEVEL_ATTENTION

#include "backends/cpu/level/attention_pack.h"
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
    } while (m.there && a->causal && m.key >= a->first + m.row + QUERIES);
    return m;
}

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

#if defined(TERN_LEVEL_amx)
INLINE struct factors value_factors(const struct tern_cpu_attend *a, const struct meeting *m, const uint16_t *p)
{
    return (struct factors){
        rows_of(a, m),         a->columns, filled(keys_of(a, m), PAIR), m->key, filled(a->keys, PAIR), LD_POWERS, a->ldo, p, values_of(a),
        a->o + m->row * a->ldo};
}

/* Scores of the meeting that comes next and values of the last one, panel by panel; between panels a share of the rows of powers of the one
 * that is there now, so that tiles and vectors are at work together. A panel is stored when the next one is on its way. False: one of
 * the rows needs another `most`. */
static bool meet(const struct factors *s, const struct factors *v, int rows, struct row_powers now)
{
    const int64_t first = filled(s->n, 32), end = first + v->n;
    const int panels = (int)(filled(end, 32) / 32);
    int at = 0, row = 0;
    for (int64_t j = 0; j < end; j += 32) {
        const bool second = at % 2;
        if (j >= first)
            multiply_panel(v, j - first, true, second);
        else
            multiply_panel(s, j, false, second);
        if (j > first)
            store_panel(v, j - 32 - first, !second);
        else if (j > 0)
            store_panel(s, j - 32, !second);
        at++;
        for (; row < rows * at / panels; row++)
            row_powers_next(&now);
    }
    for (; row < rows; row++)
        row_powers_next(&now);
    if (v->n)
        store_panel(v, (v->n - 1) / 32 * 32, (at - 1) % 2);
    else if (s->n)
        store_panel(s, (s->n - 1) / 32 * 32, (at - 1) % 2);
    return !row_powers_too_much(&now);
}

static void all_meetings(const struct tern_cpu_attend *a)
{
    struct attention_scratch *scratch = a->scratch;
    struct meeting last = {0}, now = {0}, next = {.there = true};
    for (int turn = 0; next.there || now.there || last.there; turn++) {
        float *x = scratch->scores[(turn + 1) % 2];
        uint16_t *p = scratch->powers[(turn + 1) % 2];
        const struct factors s = next.there ? score_factors(a, &next, scratch->scores[turn % 2]) : (struct factors){0};
        const struct factors v = last.there ? value_factors(a, &last, scratch->powers[turn % 2]) : (struct factors){0};
        const bool hidden = now.there && hides(a, &now), whole = now.there && !hidden && keys_of(a, &now) == KEYS && now.key > 0;
        if (hidden)
            hide(a, &now, x);
        /* The last meeting's values are in the results when this one's may need another `most`. */
        if (!meet(&s, &v, whole ? QUERIES : 0, row_powers_begin(x, p, a->factor, a->most + now.row)) || (now.there && !whole))
            powers_for(a, &now, x, p);
        last = now;
        now = next;
        next = after(a, next);
    }
}
#else
/* Eight rows of powers times nv vectors of values, beside each other. */
INLINE void add_vectors(const int nv, int64_t keys, const struct tile *s, float *o, int64_t ldo)
{
    __m512 acc[8][3];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            acc[i][j] = _mm512_loadu_ps(o + i * ldo + j * 16);
    multiply(nv, keys, s, acc);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
#pragma GCC unroll 3
        for (int j = 0; j < nv; j++)
            if (j < 2 || i % 2 == 0)
                _mm512_storeu_ps(o + i * ldo + j * 16, acc[i][j]);
}

/* Sums of the powers, sixteen of each row, behind its results. */
static void add_powers(int64_t keys, const uint16_t *p, float *sums, int64_t ldo)
{
    const __m512i ones = _mm512_set1_epi16(0x3f80);
    for (int i = 0; i < QUERIES; i++, p += LD_POWERS, sums += ldo) {
        __m512 sum = _mm512_loadu_ps(sums);
        for (int64_t j = 0; j < keys; j += PAIR)
            sum = _mm512_dpbf16_ps(sum, pairs_at(p + j), (__m512bh)ones);
        _mm512_storeu_ps(sums, sum);
    }
}

/* All rows of a group, those that are not there, too. */
static void add_values(const struct tern_cpu_attend *a, const struct meeting *m, const uint16_t *p)
{
    const int64_t keys = filled(keys_of(a, m), PAIR), depth = filled(a->keys, PAIR);
    float *o = a->o + m->row * a->ldo;
    add_powers(keys, p, o + a->columns, a->ldo);
    for (int64_t half = 0; half < QUERIES; half += 8, p += 8 * LD_POWERS, o += 8 * a->ldo)
        for (int64_t j = 0; j < a->columns; j += 32) {
            const int64_t left = a->values - j;
            const struct tile s = {p, values_of(a) + j * depth + m->key * (left > 16 ? 32 : 16),
                                   values_of(a) + (j + 32) * depth + m->key * 16, LD_POWERS};
            if (left > 32 && half_vector(left - 32)) {
                add_vectors(3, keys, &s, o + j, a->ldo);
                break;
            }
            if (left > 16)
                add_vectors(2, keys, &s, o + j, a->ldo);
            else
                add_vectors(1, keys, &s, o + j, a->ldo);
        }
}

/* Powers of a whole block of keys from sums that are still in registers, so that the processor makes them while it multiplies for the next
 * tile. False: a row needs another `most`, and nothing is to be taken from here. */
static bool powers_at_once(const struct tern_cpu_attend *a, const struct meeting *m, uint16_t *to)
{
    const __m512 factor = _mm512_set1_ps(a->factor);
    __m512i high = _mm512_setzero_si512();
    for (int64_t j = 0; j < KEYS; j += PAIR)
        for (int64_t half = 0; half < QUERIES; half += 8) {
            const uint16_t *k = keys_at(a, m->key + j);
            const float *most = a->most + m->row + half;
            __m512 acc[8][3];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                acc[i][0] = acc[i][1] = _mm512_setzero_ps();
            multiply(2, a->depth, &(struct tile){queries_of(a, m->row + half), k, k, a->ldq}, acc);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                __m512i both = two_powers(acc[i][0], acc[i][1], factor, _mm512_set1_ps(most[i]));
                _mm512_storeu_si512(to + (half + i) * LD_POWERS + j, both);
                high = _mm512_max_epu16(high, both);
            }
        }
    return !_mm512_cmpge_epu16_mask(high, _mm512_set1_epi16((short)TOO_MUCH));
}

static void all_meetings(const struct tern_cpu_attend *a)
{
    struct attention_scratch *s = a->scratch;
    for (struct meeting m = {.there = true}; m.there; m = after(a, m)) {
        if (m.key == 0 || a->mask || a->causal || a->keys - m.key < KEYS || !powers_at_once(a, &m, s->powers[0])) {
            const struct factors f = score_factors(a, &m, s->scores[0]);
            product(&f, false);
            if (hides(a, &m))
                hide(a, &m, s->scores[0]);
            powers_for(a, &m, s->scores[0], s->powers[0]);
        }
        add_values(a, &m, s->powers[0]);
    }
}
#endif

/* Results of two rows, of 32 bits each, from where add_vectors keeps them. */
static void part_rows(void *o, int64_t ldo)
{
    const __m512i both = _mm512_loadu_si512(o);
    _mm512_storeu_si512(o, _mm512_maskz_compress_epi32(0x5555, both));
    _mm512_storeu_si512((int32_t *)o + ldo, _mm512_maskz_compress_epi32(0xaaaa, both));
}

/* Powers of small exponents are flushed to zero: a denormal takes 200 cycles. */
static void attend(const struct tern_cpu_attend *a)
{
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8000);
    bf16_begin();
    for (int64_t i = 0; i < filled(a->rows, QUERIES); i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    all_meetings(a);
    bf16_end();
    _mm_setcsr(control);
    for (int64_t i = 0; i < a->rows; i++) {
        float *o = a->o + i * a->ldo;
        if (i % 2 == 0 && shared_from(a->values) < a->columns)
            part_rows(o + shared_from(a->values), a->ldo);
        a->sum[i] = SUMS ? _mm512_reduce_add_ps(_mm512_loadu_ps(o + a->columns)) : o[a->values];
    }
}

#endif
#endif
