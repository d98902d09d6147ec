/* Attention in bf16: scores, powers and sums of values for queries of one head, a group of queries and a block of keys at a time, so that
 * what they have in common stays in L1. */
#ifndef TERN_BACKENDS_CPU_LEVEL_ATTENTION_H
#define TERN_BACKENDS_CPU_LEVEL_ATTENTION_H

#include <math.h>

#include "backends/cpu/level/bf16.h"

#if defined(TERN_LEVEL_BF16) && defined(TERN_LEVEL_512)
#define LEVEL_ATTENTION

#define QUERIES TERN_ATTENTION_ROWS /* of a tile */
#define KEYS TERN_ATTENTION_KEYS
#define PAIR 32 /* keys whose powers are rounded together: key i beside key i + 16, in P as in the packed values */
/* Values between rows: odd numbers of lines, so that rows do not share cache sets. */
#define LD_SCORES (KEYS + 16)
#define LD_POWERS (KEYS + 32)

/* 2^(x factor - most) for the powers above which a row gets another `most`. */
#define GROWTH 16
#define TOO_MUCH ((127 + GROWTH) << 7) /* as bf16; infinity and NaN are above it */

struct attention_scratch {
    float scores[QUERIES * LD_SCORES];
    uint16_t powers[QUERIES * LD_POWERS];
};

/* 2^x with half a unit of bf16 on top, so that what is cut to bf16 is rounded to nearest. floor(x) goes to the exponent; for the rest a
 * polynomial (minimax, by Remez' algorithm) whose error is 7.5e-5 of the result at most. Its values are in 1..2, where half a unit is
 * 2^-8. */
INLINE __m512 power_of_two(__m512 x)
{
    __m512 f = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    __m512 p = _mm512_fmadd_ps(f, _mm512_set1_ps(7.80245215e-2f), _mm512_set1_ps(2.26067156e-1f));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(6.95833564e-1f));
    p = _mm512_fmadd_ps(f, p, _mm512_set1_ps(9.99925196e-1f + 0x1p-8f));
    return _mm512_scalef_ps(p, x);
}

/* y[2 i] of x[i], y[2 i + 1] of x[i + 16] in each PAIR. By hand: vcvtne2ps2bf16 takes as long as four additions. */
INLINE bool powers_of(int64_t n, const float *x, float factor, float most, uint16_t *y)
{
    const __m512 c = _mm512_set1_ps(factor), m = _mm512_set1_ps(most);
    __m512i high = _mm512_setzero_si512();
    for (int64_t j = 0; j < n; j += PAIR) {
        __m512 a = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(x + j), c, m));
        __m512 b = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(x + j + 16), c, m));
        __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32((__m512i)a, 16), (__m512i)b);
        _mm512_storeu_si512(y + j, both);
        high = _mm512_max_epu16(high, both);
    }
    return !_mm512_cmpge_epu16_mask(high, _mm512_set1_epi16((short)TOO_MUCH));
}

static bool attention_power(int64_t n, const float *x, float factor, float most, uint16_t *y) { return powers_of(n, x, factor, most, y); }

/* The powers of a block of keys and a group of queries, row by row. */
struct powers {
    const struct tern_cpu_attend *a;
    float *x;     /* scores */
    uint16_t *to; /* powers */
    float *most;
    int64_t row, rows, keys; /* keys: filled up to PAIR */
    bool grown;
    float shrink[QUERIES]; /* where `most` has grown: what the row's results are to be multiplied by */
};

/* A row whose powers are too large for its `most`, as in its first block, or no numbers. */
static __attribute__((noinline)) void another_most(struct powers *w, const float *x, uint16_t *to)
{
    __m512 most = _mm512_set1_ps(-INFINITY);
    __mmask16 nan = 0;
    float *m = w->most + w->row;
    for (int64_t j = 0; j < w->keys; j += 16) {
        __m512 v = _mm512_loadu_ps(x + j);
        nan |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        most = _mm512_max_ps(most, v);
    }
    float top = _mm512_reduce_max_ps(most);
    if (nan || top == -INFINITY) { /* all of the row is no number; or nothing is visible so far */
        for (int64_t j = 0; j < w->keys; j++)
            to[j] = nan ? 0x7fc0 : 0;
        return;
    }
    top *= w->a->factor;
    if (top > *m) {
        w->shrink[w->row] = *m == -INFINITY ? 0 : exp2f(*m - top);
        w->grown = true;
        *m = top;
    }
    powers_of(w->keys, x, w->a->factor, top, to);
}

INLINE void next_row(struct powers *w)
{
    const float *x = w->x + w->row * LD_SCORES;
    uint16_t *to = w->to + w->row * LD_POWERS;
    bool fits = /* a constant number of keys, of all blocks but the last, is unrolled */
        w->keys == KEYS ? powers_of(KEYS, x, w->a->factor, w->most[w->row], to) : powers_of(w->keys, x, w->a->factor, w->most[w->row], to);
    if (!fits)
        another_most(w, x, to);
    w->row++;
}

/* Results by an older `most` become those by the newer one. */
static void shrink_results(const struct powers *w, float *o)
{
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t c = 0; w->shrink[i] != 1 && c < w->a->columns; c += 16) {
            float *at = o + i * w->a->ldo + c;
            _mm512_storeu_ps(at, _mm512_mul_ps(_mm512_loadu_ps(at), _mm512_set1_ps(w->shrink[i])));
        }
}

/* C (rows x n) = or += A (rows x k) times rows k0 .. k0 + k of panels that are `depth` deep. */
struct factors {
    int64_t rows, n, k, k0, depth, lda, ldc;
    const uint16_t *a, *b;
    float *c;
};

#if defined(TERN_LEVEL_amx)
/* A panel of 32 columns, or 16: sums in the tiles t0 and t1. */
#define MULTIPLY(t0, t1, j)                                                       \
    {                                                                             \
        const bool wide = f->n - (j) > 16;                                        \
        const int64_t b_row = wide ? 128 : 64;                                    \
        const uint16_t *b = f->b + (j)*f->depth + f->k0 * (b_row / 4), *a = f->a; \
        if (accumulate) {                                                         \
            _tile_loadd(t0, f->c + (j), c_row);                                   \
            if (wide)                                                             \
                _tile_loadd(t1, f->c + (j) + 16, c_row);                          \
        } else {                                                                  \
            _tile_zero(t0);                                                       \
            _tile_zero(t1);                                                       \
        }                                                                         \
        for (int64_t i = 0; i < f->k; i += BF16_STEP, b += 8 * b_row, a += 32) {  \
            _tile_loadd(4, a, a_row);                                             \
            _tile_loadd(6, b, b_row);                                             \
            _tile_dpbf16ps(t0, 4, 6);                                             \
            if (wide) {                                                           \
                _tile_loadd(7, b + 32, b_row);                                    \
                _tile_dpbf16ps(t1, 4, 7);                                         \
            }                                                                     \
        }                                                                         \
    }
#define STORE(t0, t1, j)                              \
    {                                                 \
        _tile_stored(t0, f->c + (j), c_row);          \
        if (f->n - (j) > 16)                          \
            _tile_stored(t1, f->c + (j) + 16, c_row); \
    }

/* Sums are stored when those of the next panel are on their way: a store waits for its tile, and what is behind it for the store. */
INLINE void product(const struct factors *f, const bool accumulate)
{
    const int64_t a_row = f->lda * 2, c_row = f->ldc * 4;
    for (int64_t j = 0; j < f->n; j += 64) {
        MULTIPLY(0, 1, j)
        if (j)
            STORE(2, 3, j - 32)
        if (j + 32 < f->n)
            MULTIPLY(2, 3, j + 32)
        STORE(0, 1, j)
        if (j + 32 < f->n && j + 64 >= f->n)
            STORE(2, 3, j + 32)
    }
}
#undef MULTIPLY
#undef STORE
#else
static void product(const struct factors *f, bool accumulate)
{
    const struct tern_bf16_piece whole = {.a = {f->a}, .ld = f->lda, .k0 = f->k0, .depth = f->k};
    for (int64_t j = 0; j < f->n; j += TERN_BF16_NR)
        bf16_block((int)f->rows, 1, &whole, f->b + j * f->depth, f->n - j <= TERN_BF16_NR / 2, f->c + j, f->ldc, accumulate);
}
#endif

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
INLINE int64_t filled(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

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

static void scores_of(const struct tern_cpu_attend *a, const struct meeting *m, float *x)
{
    int64_t keys = keys_of(a, m);
    const struct factors f = {
        rows_of(a, m), keys, a->depth, 0, a->depth, a->ldq, LD_SCORES, a->q + m->row * a->ldq, a->k + m->key * a->depth, x};
    product(&f, false);
    if (a->mask || a->causal || keys % PAIR)
        hide(a, m, x);
}

static void add_values(const struct tern_cpu_attend *a, const struct meeting *m, const uint16_t *p)
{
    const struct factors f = {
        rows_of(a, m),         a->columns, filled(keys_of(a, m), PAIR), m->key, filled(a->keys, PAIR), LD_POWERS, a->ldo, p, a->v,
        a->o + m->row * a->ldo};
    product(&f, true);
}

/* The powers of a meeting; results by an older `most` follow. */
static void powers_for(const struct tern_cpu_attend *a, const struct meeting *m, struct attention_scratch *s)
{
    struct powers w = {.a = a, .x = s->scores, .to = s->powers, .most = a->most + m->row};
    w.rows = rows_of(a, m);
    w.keys = filled(keys_of(a, m), PAIR);
    for (int i = 0; i < QUERIES; i++)
        w.shrink[i] = 1;
    while (w.row < w.rows)
        next_row(&w);
    if (w.grown)
        shrink_results(&w, a->o + m->row * a->ldo);
}

/* Powers of small exponents are flushed to zero: a denormal takes 200 cycles. */
static void attend(const struct tern_cpu_attend *a)
{
    struct attention_scratch *s = a->scratch;
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8000);
    bf16_begin();
    for (int64_t i = 0; i < a->rows; i++)
        a->most[i] = -INFINITY;
    for (struct meeting m = {.there = true}; m.there; m = after(a, m)) {
        scores_of(a, &m, s->scores);
        powers_for(a, &m, s);
        add_values(a, &m, s->powers);
    }
    bf16_end();
    _mm_setcsr(control);
}

/* ---- packing */

/* Pairs along the depth of each key beside those of the others, as bf16_block reads them. */
static void pack_keys(int64_t keys, int64_t e, const uint16_t *k, int64_t ld, int64_t depth, uint16_t *to)
{
    const int64_t width = keys <= TERN_BF16_NR / 2 ? TERN_BF16_NR / 2 : TERN_BF16_NR;
    memset(to, 0, (size_t)(width * depth) * sizeof(*to));
    for (int64_t j = 0; j < keys; j += 8) {
        const __m512i at = _mm512_mullo_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(ld));
        const __mmask8 there = (__mmask8)(keys - j >= 8 ? 0xff : (1 << (keys - j)) - 1);
        for (int64_t i = 0; i + 2 <= e; i += 2)
            _mm256_storeu_si256((__m256i *)(void *)(to + i * width + j * 2),
                                _mm512_mask_i64gather_epi32(_mm256_setzero_si256(), there, at, k + j * ld + i, 2));
    }
    for (int64_t j = 0; e % 2 && j < keys; j++)
        to[(e - 1) * width + j * 2] = k[j * ld + e - 1];
}

/* A key of a panel of values: those that are there, and the one behind them. */
INLINE __m512i values_at(const uint16_t *v, int64_t left)
{
    uint32_t there = left >= 32 ? ~0u : left <= 0 ? 0 : (1u << left) - 1, one = left >= 0 && left < 32 ? 1u << left : 0;
    return _mm512_mask_mov_epi16(_mm512_maskz_loadu_epi16(there, v), one, _mm512_set1_epi16(0x3f80));
}

static void pack_values(int64_t key, int64_t keys, int64_t ev, const uint16_t *v, int64_t ld, int64_t depth, uint16_t *to)
{
    const int64_t columns = filled(ev + 1, 16);
    __m512i low = _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007, 0x260006,
                                   0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (int64_t c = 0; c < columns; c += TERN_BF16_NR) {
        const int64_t width = columns - c <= TERN_BF16_NR / 2 ? TERN_BF16_NR / 2 : TERN_BF16_NR;
        uint16_t *at = to + c * depth + key * width;
        for (int64_t i = 0; i < filled(keys, PAIR); i += i % 16 == 15 ? 17 : 1, at += 2 * width) {
            __m512i zero = _mm512_setzero_si512();
            __m512i x = i < keys ? values_at(v + i * ld + c, ev - c) : zero;
            __m512i y = i + 16 < keys ? values_at(v + (i + 16) * ld + c, ev - c) : zero;
            _mm512_storeu_si512(at, _mm512_permutex2var_epi16(x, low, y));
            if (width == TERN_BF16_NR)
                _mm512_storeu_si512(at + 32, _mm512_permutex2var_epi16(x, high, y));
        }
    }
}

#endif
#endif
