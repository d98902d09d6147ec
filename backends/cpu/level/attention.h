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

/* Tiles of AMX sum the powers with a column of ones behind the values. Without them SUMS places behind a row's results sum the powers, and
 * half a vector of columns is SHARED by two rows. */
#if defined(TERN_LEVEL_amx)
#define SUMS 0
#define TASK_ROWS 256
#define SHARED false
#else
#define SUMS 16
#define TASK_ROWS 64 /* queries, results and a block of keys and values lie in L1 */
#define SHARED true
#endif

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

/* Values of x beside those of y, as bf16. By hand: vcvtne2ps2bf16 takes as long as four additions. */
INLINE __m512i two_powers(__m512 x, __m512 y, __m512 factor, __m512 most)
{
    __m512 a = power_of_two(_mm512_fmsub_ps(x, factor, most)), b = power_of_two(_mm512_fmsub_ps(y, factor, most));
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32((__m512i)a, 16), (__m512i)b);
}

/* y[2 i] of x[i], y[2 i + 1] of x[i + 16] in each PAIR. */
INLINE bool powers_of(int64_t n, const float *x, float factor, float most, uint16_t *y)
{
    const __m512 c = _mm512_set1_ps(factor), m = _mm512_set1_ps(most);
    __m512i high = _mm512_setzero_si512();
    for (int64_t j = 0; j < n; j += PAIR) {
        __m512i both = two_powers(_mm512_loadu_ps(x + j), _mm512_loadu_ps(x + j + 16), c, m);
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
    bool fits = w->most[w->row] > -INFINITY;
    if (fits) /* a constant number of keys, of all blocks but the last, is unrolled */
        fits = w->keys == KEYS ? powers_of(KEYS, x, w->a->factor, w->most[w->row], to)
                               : powers_of(w->keys, x, w->a->factor, w->most[w->row], to);
    if (!fits)
        another_most(w, x, to);
    w->row++;
}

/* Columns of values from where on a row of results shares a vector with its neighbour, in the even row's place: at most half a vector
 * behind whole panels. */
INLINE bool half_vector(int64_t left) { return SHARED && left > 0 && left <= 8; }
INLINE int64_t shared_from(int64_t values) { return values > 32 && half_vector(values % 32) ? values / 32 * 32 : INT64_MAX; }

/* Results by an older `most` become those by the newer one. */
static void shrink_results(const struct powers *w, float *o)
{
    const int64_t shared = shared_from(w->a->values), ldo = w->a->ldo;
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t c = 0; w->shrink[i] != 1 && c < w->a->columns + SUMS; c += 16) {
            float *at = o + (c == shared ? i / 2 * 2 : i) * ldo + c;
            __mmask16 which = c == shared ? (i % 2 ? 0xaaaa : 0x5555) : 0xffff;
            __m512 x = _mm512_loadu_ps(at);
            _mm512_storeu_ps(at, _mm512_mask_mul_ps(x, which, x, _mm512_set1_ps(w->shrink[i])));
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
        bf16_block((int)f->rows, 1, &whole, f->b + j * f->depth, f->b + j * f->depth, f->n - j <= TERN_BF16_NR / 2, f->c + j, f->ldc,
                   accumulate);
}

/* Eight rows of A, rows of B: panels of two vectors, of one where nv is 1. third: where nv is 3, a panel behind b that is one vector wide,
 * of eight columns, each twice; acc[i][2] of an even row i has its sums in even places and those of row i + 1 in odd ones. */
struct tile {
    const uint16_t *a, *b, *third;
    int64_t lda;
};

/* nv is a constant wherever this is inlined, so that acc lives in registers. */
INLINE void multiply(const int nv, int64_t k, const struct tile *s, __m512 acc[8][3])
{
    const uint16_t *b = s->b, *third = s->third;
    for (int64_t t = 0; t < k; t += 2, b += nv == 1 ? 32 : 64, third += 32) {
        __m512bh y[3];
        __m512i x[8];
        y[0] = pairs_at(b);
        if (nv > 1)
            y[1] = pairs_at(b + 32);
        if (nv > 2)
            y[2] = pairs_at(third);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            int32_t pair;
            memcpy(&pair, s->a + i * s->lda + t, sizeof(pair));
            x[i] = _mm512_set1_epi32(pair);
            acc[i][0] = _mm512_dpbf16_ps(acc[i][0], (__m512bh)x[i], y[0]);
            if (nv > 1)
                acc[i][1] = _mm512_dpbf16_ps(acc[i][1], (__m512bh)x[i], y[1]);
            if (nv > 2 && i % 2)
                acc[i - 1][2] = _mm512_dpbf16_ps(acc[i - 1][2], (__m512bh)_mm512_mask_blend_epi32(0xaaaa, x[i - 1], x[i]), y[2]);
        }
    }
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

#if defined(TERN_LEVEL_amx)
static void add_values(const struct tern_cpu_attend *a, const struct meeting *m, const uint16_t *p)
{
    const struct factors f = {
        rows_of(a, m),         a->columns, filled(keys_of(a, m), PAIR), m->key, filled(a->keys, PAIR), LD_POWERS, a->ldo, p, a->v,
        a->o + m->row * a->ldo};
    product(&f, true);
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
            const struct tile s = {p, a->v + j * depth + m->key * (left > 16 ? 32 : 16), a->v + (j + 32) * depth + m->key * 16, LD_POWERS};
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
#endif

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

#if !defined(TERN_LEVEL_amx)
/* Powers of a whole block of keys from sums that are still in registers, so that the processor makes them while it multiplies for the next
 * tile. False: a row needs another `most`, and nothing is to be taken from here. */
static bool powers_at_once(const struct tern_cpu_attend *a, const struct meeting *m, uint16_t *to)
{
    const __m512 factor = _mm512_set1_ps(a->factor);
    __m512i high = _mm512_setzero_si512();
    for (int64_t j = 0; j < KEYS; j += PAIR)
        for (int64_t half = 0; half < QUERIES; half += 8) {
            const uint16_t *k = a->k + (m->key + j) * a->depth;
            const float *most = a->most + m->row + half;
            __m512 acc[8][3];
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++)
                acc[i][0] = acc[i][1] = _mm512_setzero_ps();
            multiply(2, a->depth, &(struct tile){a->q + (m->row + half) * a->ldq, k, k, a->ldq}, acc);
#pragma GCC unroll 8
            for (int i = 0; i < 8; i++) {
                __m512i both = two_powers(acc[i][0], acc[i][1], factor, _mm512_set1_ps(most[i]));
                _mm512_storeu_si512(to + (half + i) * LD_POWERS + j, both);
                high = _mm512_max_epu16(high, both);
            }
        }
    return !_mm512_cmpge_epu16_mask(high, _mm512_set1_epi16((short)TOO_MUCH));
}
#endif

/* Results of two rows from where add_vectors keeps them. */
static void part_rows(float *o, int64_t ldo)
{
    __m512 both = _mm512_loadu_ps(o);
    _mm512_storeu_ps(o, _mm512_maskz_compress_ps(0x5555, both));
    _mm512_storeu_ps(o + ldo, _mm512_maskz_compress_ps(0xaaaa, both));
}

/* Powers of small exponents are flushed to zero: a denormal takes 200 cycles. */
static void attend(const struct tern_cpu_attend *a)
{
    struct attention_scratch *s = a->scratch;
    const unsigned control = _mm_getcsr();
    _mm_setcsr(control | 0x8000);
    bf16_begin();
    for (int64_t i = 0; i < filled(a->rows, QUERIES); i++) /* rows that are not there, and zero, need no other */
        a->most[i] = i < a->rows ? -INFINITY : 0;
    for (struct meeting m = {.there = true}; m.there; m = after(a, m)) {
#if !defined(TERN_LEVEL_amx)
        if (m.key == 0 || a->mask || a->causal || a->keys - m.key < KEYS || !powers_at_once(a, &m, s->powers))
#endif
        {
            scores_of(a, &m, s->scores);
            powers_for(a, &m, s);
        }
        add_values(a, &m, s->powers);
    }
    bf16_end();
    _mm_setcsr(control);
    for (int64_t i = 0; i < a->rows; i++) {
        float *o = a->o + i * a->ldo;
        if (i % 2 == 0 && shared_from(a->values) < a->columns)
            part_rows(o + shared_from(a->values), a->ldo);
        a->sum[i] = SUMS ? _mm512_reduce_add_ps(_mm512_loadu_ps(o + a->columns)) : o[a->values];
    }
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
    const int64_t columns = filled(ev + (SUMS == 0), 16);
    __m512i low = _mm512_set_epi32(0x2f000f, 0x2e000e, 0x2d000d, 0x2c000c, 0x2b000b, 0x2a000a, 0x290009, 0x280008, 0x270007, 0x260006,
                                   0x250005, 0x240004, 0x230003, 0x220002, 0x210001, 0x200000);
    __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    __m512i twice = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), low);
    for (int64_t c = 0; c < columns; c += TERN_BF16_NR) {
        const int64_t width = columns - c <= TERN_BF16_NR / 2 ? TERN_BF16_NR / 2 : TERN_BF16_NR;
        uint16_t *at = to + c * depth + key * width;
        for (int64_t i = 0; i < filled(keys, PAIR); i += i % 16 == 15 ? 17 : 1, at += 2 * width) {
            __m512i zero = _mm512_setzero_si512();
            __m512i x = i < keys ? values_at(v + i * ld + c, ev - c) : zero;
            __m512i y = i + 16 < keys ? values_at(v + (i + 16) * ld + c, ev - c) : zero;
            _mm512_storeu_si512(at, _mm512_permutex2var_epi16(x, c == shared_from(ev) ? twice : low, y));
            if (width == TERN_BF16_NR)
                _mm512_storeu_si512(at + 32, _mm512_permutex2var_epi16(x, high, y));
        }
    }
}

#endif
#endif
