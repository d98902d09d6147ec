/* Attention in f32 by the vectors of the level: a group of queries meets a block of keys, whose scores become powers while they are in
 * registers, and meet the values in L1. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_F32_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_F32_H

#include "backends/cpu/level/attention_f32_powers.h"
#include "backends/cpu/level/elementwise.h"

INLINE struct f32_tile f32_operands(const struct f32_meeting *m, int64_t j, int64_t i)
{
    const struct tern_cpu_attend *a = m->a;
    const float *k = (const float *)a->k + (m->key + j) * a->depth;
    return (struct f32_tile){(const float *)a->q + (m->row + i) * a->ldq, k, k, a->ldq};
}

/* Powers of a whole block of keys from sums that are still in registers. False: a row needs another `most`, and nothing is to be taken from
 * here. */
static bool f32_powers_at_once(const struct f32_meeting *m)
{
    float *sums = m->s->sums;
    vf acc[MR][NV + HALF_NV];
    for (int64_t j = 0; j < F32_KEYS; j += NR)
        for (int64_t i = 0; i < m->rows; i += MR) {
            const struct f32_tile t = f32_operands(m, j, i);
            const struct power_terms *terms = &power_terms;
            f32_multiply(MR, NV, false, m->a->depth, &t, acc);
            __asm__("" : "+r"(terms)); /* else they take registers from the sums */
#pragma GCC unroll 16
            for (int r = 0; r < MR; r++) {
                const vf most = v_set(m->a->most[m->row + i + r]);
                float *to = m->s->powers + (i + r) * F32_LD + j, *at = sums + (i + r) * VW;
                vf sum = j ? v_load(at) : v_set(0);
#pragma GCC unroll 8
                for (int v = 0; v < NV; v++) {
                    const vf p = v_power_of_two(terms, acc[r][v] - most);
                    v_store(to + v * VW, p);
                    sum += p;
                }
                v_store(at, sum);
            }
        }
    return f32_below(sums, m->rows * VW, F32_LIMIT);
}

/* Scores, to where their powers will be. */
static void f32_scores(const struct f32_meeting *m)
{
    vf acc[MR][NV + HALF_NV];
    for (int64_t j = 0; j < m->end; j += NR)
        for (int64_t i = 0; i < m->rows; i += MR) {
            const struct f32_tile t = f32_operands(m, j, i);
            float *to = m->s->powers + i * F32_LD + j;
            const int nv = m->end - j < NR ? HALF_NV : NV;
            if (nv == NV)
                f32_multiply(MR, NV, false, m->a->depth, &t, acc);
            else
                f32_multiply(MR, HALF_NV, false, m->a->depth, &t, acc);
#pragma GCC unroll 16
            for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
                for (int v = 0; v < NV; v++)
                    if (v < nv)
                        v_store(to + r * F32_LD + v * VW, acc[r][v]);
        }
}

/* What is no key, or invisible, has the score -infinity. */
static void f32_hide(const struct f32_meeting *m, int64_t i)
{
    const struct tern_cpu_attend *a = m->a;
    float *x = m->s->powers + i * F32_LD;
    int64_t visible = m->keys, last = a->first + m->row + i - m->key + 1;
    if (a->mask && m->row + i < a->rows)
        a->mask(a->mask_arg, m->row + i, m->key, m->keys, x);
    if (a->causal && last < visible)
        visible = last < 0 ? 0 : last;
    for (int64_t j = visible; j < m->end; j++)
        x[j] = -INFINITY;
}

/* Rows of powers times nv vectors of values, added to results; of a single tile of scores also some rows behind it, which mean nothing. */
INLINE void f32_add(const int rows, const int nv, const bool shared, const struct f32_meeting *m, struct f32_tile t, float *o)
{
    const int64_t ldo = m->a->ldo;
    for (int64_t i = 0; i < m->rows; i += rows, o += rows * ldo, t.a += rows * F32_LD) {
        vf acc[MR][NV + HALF_NV];
        f32_multiply(rows, nv, shared, m->keys, &t, acc);
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int v = 0; v < nv; v++)
                if (!shared || v < NV || r % 2 == 0)
                    v_store(o + r * ldo + v * VW, v_load(o + r * ldo + v * VW) + acc[r][v]);
    }
}

/* Panels of values have the depth of all keys. */
static void f32_add_values(const struct f32_meeting *m)
{
    const struct tern_cpu_attend *a = m->a;
    const int64_t shared = f32_shared_from(a->values);
    float *o = a->o + m->row * a->ldo;
    for (int64_t c = 0; c < a->columns; c += NR) {
        const int64_t left = a->columns - c, width = left < NR ? left : NR;
        const float *v = (const float *)a->v + c * a->keys;
        struct f32_tile t = {m->s->powers, v + m->key * width, v, F32_LD};
        if (left == NR + NR / 2) {
            t.half = v + NR * a->keys + m->key * (NR / 2);
            if (F32_SHARED && c + NR == shared)
                f32_add(F32_WIDE, NV + HALF_NV, true, m, t, o + c);
            else
                f32_add(F32_WIDE, NV + HALF_NV, false, m, t, o + c);
            break;
        }
        if (left >= NR)
            f32_add(MR, NV, false, m, t, o + c);
        else
            f32_add(MR, HALF_NV, false, m, t, o + c);
    }
}

static void f32_meet(struct f32_meeting *m)
{
    const struct tern_cpu_attend *a = m->a;
    if (m->key == 0 || a->mask || a->causal || m->keys < F32_KEYS || !f32_powers_at_once(m)) {
        f32_scores(m);
        for (int64_t i = 0; i < m->rows; i++) {
            f32_hide(m, i);
            f32_row_powers(m, i);
        }
    }
    for (int64_t i = 0; i < m->rows; i++) {
        float *sums = a->o + (m->row + i) * a->ldo + a->columns;
        v_store(sums, v_load(sums) + v_load(m->s->sums + i * VW));
    }
    f32_add_values(m);
}

static void f32_write(int64_t n, const float *x, float factor, void *to) { unary_mul_scalar(n, x, to, factor); }

/* Powers of small exponents are flushed to zero: products with denormals are slow. */
static void attend_f32(const struct tern_cpu_attend *a)
{
    struct f32_meeting m = {.a = a, .s = a->scratch};
    const int64_t rows = (a->rows + F32_QUERIES - 1) / F32_QUERIES * F32_QUERIES, shared = f32_shared_from(a->values);
#if defined(__x86_64__)
    const unsigned control = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(control | 0x8000);
#endif
    for (int64_t i = 0; i < rows; i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    for (m.key = 0; m.key < a->keys; m.key += F32_KEYS) {
        m.keys = a->keys - m.key < F32_KEYS ? a->keys - m.key : F32_KEYS;
        m.end = (m.keys + NR / 2 - 1) / (NR / 2) * (NR / 2);
        for (m.row = 0; m.row < rows; m.row += F32_QUERIES) {
            m.rows = a->rows - m.row <= MR ? MR : F32_QUERIES;
            if (!a->causal || m.key < a->first + m.row + F32_QUERIES)
                f32_meet(&m);
        }
    }
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(control);
#endif
    for (int64_t i = 0; i < a->rows; i++) {
        float *o = a->o + i * a->ldo;
        if (i % 2 == 0 && shared < a->columns)
            memcpy(o + a->ldo + shared, o + shared + VW / 2, VW / 2 * sizeof(float));
        a->sum[i] = v_sum(v_load(o + a->columns));
    }
}

#endif
