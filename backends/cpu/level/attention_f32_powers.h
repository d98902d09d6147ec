/* Powers of the scores of attention in f32, and the reference of each row that they are relative to. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_F32_POWERS_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_F32_POWERS_H

#include <math.h>

#include "backends/cpu/level/attention_f32_tiles.h"
#include "backends/cpu/level/mathfun.h"

/* A row's powers are relative to the maximum of the first block that it sees, until one lies 2^F32_GROWTH above, which costs no digits. The
 * powers of a whole block are summed in the places of a vector: from F32_LIMIT on, or where a sum is no number, a row is looked at again. */
#define F32_GROWTH 8
#define F32_LIMIT (F32_KEYS / VW * 256.0f)

/* A pair of a block of keys and a group of queries. */
struct f32_meeting {
    const struct tern_cpu_attend *a;
    struct f32_scratch *s;
    int64_t key, keys, row, rows; /* rows: a tile of them, or the whole group */
    int64_t end;                  /* keys filled up to what is multiplied */
};

/* Whether all are below the limit: no number is not. */
INLINE bool f32_below(const float *x, int64_t n, float limit)
{
    vi below = {0};
    int32_t all = -1, lanes[VW];
    below = ~below;
    for (int64_t i = 0; i < n; i += VW)
        below &= v_load(x + i) < limit;
    memcpy(lanes, &below, sizeof(lanes));
    for (int i = 0; i < VW; i++)
        all &= lanes[i];
    return all;
}

/* y = 2^(x - most); their sum, by places. */
INLINE vf f32_powers_of(int64_t n, const float *x, float most, float *y)
{
    vf sum = v_set(0);
    for (int64_t j = 0; j < n; j += VW) {
        const vf p = v_power_of_two(&power_terms, v_load(x + j) - most);
        v_store(y + j, p);
        sum += p;
    }
    return sum;
}

static bool f32_power(int64_t n, const float *x, float factor, float most, void *y)
{
    f32_powers_of(n, x, most, y);
    return f32_below(y, n, F32_LIMIT / (F32_KEYS / VW));
}

/* The row's results by an older `most` become those by the newer one. */
static void f32_shrink(const struct tern_cpu_attend *a, int64_t row, float shrink)
{
    const int64_t shared = f32_shared_from(a->values);
    for (int64_t c = 0; c < a->columns + VW; c += VW) {
        float *at = a->o + row * a->ldo + c;
        if (c != shared) {
            v_store(at, v_load(at) * shrink);
            continue;
        }
        at += row % 2 ? VW / 2 - a->ldo : 0;
        for (int j = 0; j < VW / 2; j++)
            at[j] *= shrink;
    }
}

/* Powers of a row of scores, with another `most` where it needs one. */
static void f32_row_powers(const struct f32_meeting *m, int64_t i)
{
    const struct tern_cpu_attend *a = m->a;
    float *x = m->s->powers + i * F32_LD, *most = a->most + m->row + i, *sums = m->s->sums + i * VW;
    vf top = v_set(-INFINITY);
    for (int64_t j = 0; j < m->end; j += VW)
        top = v_max(v_load(x + j), top);
    const float high = v_most(top);
    if (high == -INFINITY && *most == -INFINITY) { /* nothing is visible so far, or there are no numbers, which the maximum passes over */
        vf sum = v_set(0);
        for (int64_t j = 0; j < m->end; j += VW) {
            const vf v = v_load(x + j);
            sum = v_select(v == v, sum, v);
            v_store(x + j, v_set(0));
        }
        v_store(sums, sum);
        return;
    }
    if (high > *most + F32_GROWTH) {
        if (*most > -INFINITY)
            f32_shrink(a, m->row + i, exp2f(*most - high));
        *most = high;
    }
    v_store(sums, f32_powers_of(m->end, x, *most, x));
}

#endif
