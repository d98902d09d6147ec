/* Powers of scores that are still in registers, by vdpbf16ps. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_AT_ONCE_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_AT_ONCE_H

#include "backends/cpu/level/attention_meeting.h"
#include "backends/cpu/level/attention_quick_powers.h"

struct at_once {
    const struct tern_cpu_attend *a;
    const struct meeting *m;
    uint16_t *to; /* powers of the group */
    float shift[QUERIES];
};

/* Keys of a meeting that some of its queries see, `most` of them at most, in whole panels where that leaves some out. */
INLINE int64_t seen_keys(const struct tern_cpu_attend *a, const struct meeting *m, int64_t most)
{
    const int64_t there = a->keys - m->key, keys = there < most ? there : most;
    const int64_t last = filled(a->first + m->row + QUERIES - m->key, PAIR);
    return a->causal && last < keys ? last : keys;
}

/* Of `keys` of these, keys of whole panels in front that all queries see. */
INLINE int64_t plain_keys(const struct tern_cpu_attend *a, const struct meeting *m, int64_t keys)
{
    const int64_t first = a->first + m->row + 1 - m->key, all = a->causal && first < keys ? first : keys;
    return all > 0 ? all / PAIR * PAIR : 0;
}

INLINE struct tile scores_tile(const struct at_once *w, int64_t row, int64_t key)
{
    const uint16_t *k = keys_at(w->a, w->m->key + key);
    return (struct tile){queries_of(w->a, w->m->row + row), k, k, w->a->ldq};
}

INLINE __m512i row_powers(struct quick_powers *q, const __m512 scores[3], float shift)
{
    return quick_pairs(q, scores[0], scores[1], _mm512_set1_ps(shift));
}

/* Eight rows of powers of the keys of a panel; of those that a row does not see, zeros. nv is 2, or 1 where the panel is half as wide. */
INLINE void panel_at_once(const int nv, const struct at_once *w, int64_t row, int64_t key, struct quick_powers *q)
{
    const struct tern_cpu_attend *a = w->a;
    const int64_t there = a->keys - w->m->key - key, last = a->first + w->m->row + row - w->m->key - key + 1;
    const struct tile s = scores_tile(w, row, key);
    __m512 acc[8][3];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    multiply(8, nv, a->depth, &s, acc);
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        const __m512i powers = row_powers(q, acc[i], w->shift[row + i]);
        const int64_t seen = a->causal && last + i < there ? last + i : there;
        _mm512_storeu_si512(w->to + (row + i) * LD_POWERS + key, seen < PAIR ? _mm512_maskz_mov_epi16(pairs_there(seen), powers) : powers);
    }
}

/* Powers of the keys from `key` on. The processor makes them while it multiplies for the next tile. */
static bool panels_at_once(const struct at_once *w, int64_t key, int64_t keys)
{
    struct quick_powers q = quick_powers_begin(NULL, NULL, w->a->factor, NULL);
    for (; key < keys; key += PAIR)
        for (int64_t row = 0; row < QUERIES; row += 8)
            if (keys - key > PAIR / 2)
                panel_at_once(2, w, row, key, &q);
            else
                panel_at_once(1, w, row, key, &q);
    return quick_powers_fit(&q);
}

#define FEW 4 /* rows */

/* The same of plain keys, for a processor that computes a vector in two halves: sums of four rows keep it busy. So these and the ones
 * before stay in registers, and powers of the latter are made between products, where they take no time. depth is that of the queries, a
 * constant for the usual ones. */
INLINE bool plain_panels(const int64_t depth, const struct at_once *w, int64_t keys)
{
    struct quick_powers q = quick_powers_begin(NULL, NULL, w->a->factor, NULL);
    const int64_t share = depth / (2 * FEW) * 2, rest = depth - (FEW - 1) * share;
    __m512 scores[FEW][3], acc[FEW][3];
    const float *shift = w->shift;
    uint16_t *to = w->to;
#pragma GCC unroll 4
    for (int i = 0; i < FEW; i++)
        acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    struct tile s = scores_tile(w, 0, 0);
    multiply(FEW, 2, depth, &s, acc);
#pragma GCC unroll 1
    for (int64_t row = FEW, key = 0; key < keys; row = 0, key += PAIR)
#pragma GCC unroll 1
        for (; row < QUERIES; row += FEW) {
            s = scores_tile(w, row, key);
#pragma GCC unroll 4
            for (int i = 0; i < FEW; i++) {
                scores[i][0] = acc[i][0];
                scores[i][1] = acc[i][1];
                acc[i][0] = acc[i][1] = _mm512_setzero_ps();
            }
#pragma GCC unroll 4
            for (int i = 0; i < FEW; i++) {
                multiply(FEW, 2, i < FEW - 1 ? share : rest, &s, acc);
                s.a += share;
                s.b += 32 * share;
                _mm512_storeu_si512(to + i * LD_POWERS, row_powers(&q, scores[i], shift[i]));
            }
            shift = w->shift + row;
            to = w->to + row * LD_POWERS + key;
        }
#pragma GCC unroll 4
    for (int i = 0; i < FEW; i++)
        _mm512_storeu_si512(to + i * LD_POWERS, row_powers(&q, acc[i], shift[i]));
    return quick_powers_fit(&q);
}

static bool plain_panels_at_once(const struct at_once *w, int64_t keys)
{
    switch (w->a->depth) {
    case 40:
        return plain_panels(40, w, keys);
    case 64:
        return plain_panels(64, w, keys);
    case 80:
        return plain_panels(80, w, keys);
    default:
        return plain_panels(w->a->depth, w, keys);
    }
}

/* Powers of some keys of a group. False: a row needs another `most` than its own here, or other powers, and nothing is to be taken from
 * here. */
static bool powers_at_once(const struct tern_cpu_attend *a, const struct meeting *m, int64_t keys, const float *most, uint16_t *to)
{
    struct at_once w = {a, m, to};
    if (!quick_mosts_fit(most))
        return false;
    _mm512_storeu_ps(w.shift, _mm512_sub_ps(_mm512_set1_ps(QUICK_SHIFT), _mm512_loadu_ps(most)));
    const int64_t plain = a->halves ? plain_keys(a, m, keys) : 0;
    return (!plain || plain_panels_at_once(&w, plain)) && (plain == keys || panels_at_once(&w, plain, keys));
}

/* The first keys, by a reference that is the same for all rows: powers of bf16 are as exact wherever they lie, so any will do from which
 * the scores are not too far. False: no row has one yet. */
static bool first_powers_at_once(const struct tern_cpu_attend *a, const struct meeting *m, int64_t keys, uint16_t *to)
{
    float most[QUERIES];
    for (int i = 0; i < QUERIES; i++)
        most[i] = FIRST_MOST;
    if (!powers_at_once(a, m, keys, most, to) || !first_powers_count(rows_of(a, m), filled(keys, PAIR), to))
        return false;
    memcpy(a->most + m->row, most, sizeof(most));
    return true;
}

#endif
