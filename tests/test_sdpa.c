/* Attention in f32 and in bf16 on the CPU: every edge of groups, blocks and tiles against sums in double of the same operands, masks, rows
 * that see nothing, values that are no numbers, threads, choice. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "conformance/guard.h"
#include "core/context.h"
#include "ops/dispatch.h"
#include "support.h"

/* A dtype of attention; each test is there for both. Powers and results in bf16 are rounded by up to 2^-8 each, and so is the reference's
 * result: for a few values the worst case, for many the mean of the squares. */
struct kind {
    enum tern_dtype dtype;
    const char *kernel;
    double limit, few, large; /* NMSE: of many values, of few, of scores of 250, whose f32 is off by up to 2^-17 */
};
static const struct kind in_f32 = {TERN_F32, "sdpa_f32_flash", 1e-12, 1e-12, 1e-10};
static const struct kind in_bf16 = {TERN_BF16, "sdpa_bf16_flash", 1.2e-5, 1.4e-4, 1.2e-5};

enum mask { NONE, CAUSAL, BOOLEAN, BIAS, MASKS };

struct attention {
    int64_t n, h, l, s, e, ev;
    enum mask mask;
    bool tokens; /* heads are views of (N, L, H, E), as a model has them */
    double scale;
};

static bool computes(struct tern_context *ctx, const struct kind *kind)
{
    const struct tern_cpu_level *l = cpu_level(ctx);
    return (kind->dtype == TERN_F32 ? l->attention_f32 : l->attention_bf16).scratch > 0;
}

static void skip_without(struct tern_context **ctx, const struct kind *kind)
{
    if (computes(*ctx, kind))
        return;
    print_message("not run: the level %s has no %s\n", (*ctx)->device->level, kind->kernel);
    tern_context_destroy(ctx);
    skip();
}

static tern_tensor *heads(struct tern_context *ctx, const struct kind *kind, const struct attention *a, uint64_t seed, int64_t length,
                          int64_t size)
{
    const int64_t shape[2][4] = {{a->n, a->h, length, size}, {a->n, length, a->h, size}};
    tern_tensor *x = support_noise(ctx, seed, 4, shape[a->tokens], 1, kind->dtype);
    return a->tokens ? tern_permute(x, 4, (const int[]){0, 2, 1, 3}) : x;
}

/* The same for all heads of a batch. */
static tern_tensor *mask_of(struct tern_context *ctx, const struct kind *kind, const struct attention *a)
{
    tern_tensor *noise = support_noise(ctx, 4, 4, (const int64_t[]){a->n, 1, a->l, a->s}, 2, kind->dtype);
    return a->mask == BIAS ? noise : a->mask == BOOLEAN ? tern_lt(noise, tern_mul_scalar(noise, 0)) : NULL;
}

static tern_tensor *attend_by(struct tern_context *ctx, const struct kind *kind, const struct attention *a, tern_tensor *const x[3],
                              const char *kernel)
{
    const struct tern_sdpa_params p = {.attn_mask = mask_of(ctx, kind, a), .is_causal = a->mask == CAUSAL, .scale = a->scale};
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = tern_sdpa_p(x[0], x[1], x[2], &p);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    return y;
}

/* As on this processor, and with the same bits as on one whose vectors are not of the same kind. */
static tern_tensor *attend(struct tern_context *ctx, const struct kind *kind, const struct attention *a, tern_tensor *const x[3],
                           const char *kernel)
{
    bool *halves = &cpu_device_of(ctx)->halves;
    int64_t n, m;
    *halves = !*halves;
    float *other = support_values(attend_by(ctx, kind, a, x, kernel), &n);
    *halves = !*halves;
    tern_tensor *y = attend_by(ctx, kind, a, x, kernel);
    float *found = support_values(y, &m);
    assert_int_equal(n, m);
    if (n)
        assert_memory_equal(found, other, (size_t)n * sizeof(*found));
    free(found);
    free(other);
    return y;
}

static void compare(const struct kind *kind, double limit, const struct attention *a, const tern_tensor *y, const tern_tensor *exact,
                    bool damage)
{
    int64_t n, m;
    float *found = support_values(y, &n), *expected = support_values(exact, &m);
    assert_int_equal(n, m);
    double nmse = support_nmse(found, expected, n);
    if (!(nmse <= limit) || damage)
        fail_msg("%s: (%d, %d, %d, %d), %d keys, values of %d, mask %d, scale %g: NMSE %g, damage %d", kind->kernel, (int)a->n, (int)a->h,
                 (int)a->l, (int)a->e, (int)a->s, (int)a->ev, (int)a->mask, a->scale, nmse, (int)damage);
    free(found);
    free(expected);
}

static void check(struct tern_context *ctx, struct tern_guard *guard, const struct kind *kind, const struct attention *a)
{
    tern_scope_begin(ctx);
    tern_tensor *const x[] = {heads(ctx, kind, a, 1, a->l, a->e), heads(ctx, kind, a, 2, a->s, a->e), heads(ctx, kind, a, 3, a->s, a->ev)};
    tern_tensor *y = attend(ctx, kind, a, x, kind->kernel), *exact = attend(ctx, kind, a, x, "reference");
    const bool few = a->n * a->h * a->l * a->ev < 256;
    compare(kind, few ? kind->few : kind->limit, a, y, exact, tern_guard_damage(guard) > 0);
    tern_scope_end(ctx, NULL);
}

static struct tern_context *guarded(struct tern_guard *guard, const struct kind *kind)
{
    tern_guard_init(guard);
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2, .allocator = tern_guard_allocator(guard)});
    assert_non_null(ctx);
    skip_without(&ctx, kind);
    return ctx;
}

/* Queries and keys around 16, 32, 64, 128 and 256; head sizes of the models and around 16 and 32; each with every kind of mask. */
static void edges(void **state)
{
    const struct kind *kind = *state;
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 48, 63, 77, 127, 128, 129, 160, 257, 300};
    static const int64_t sizes[] = {1, 2, 8, 15, 16, 17, 31, 32, 33, 40, 64, 72, 80, 97, 160};
    enum { LENGTHS = sizeof(lengths) / sizeof(*lengths), SIZES = sizeof(sizes) / sizeof(*sizes) };
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, kind);
    for (int i = 0; i < LENGTHS * SIZES; i++) {
        struct attention a = {.n = 1 + i % 2, .h = 1 + i % 3, .tokens = i % 5 < 3, .mask = i / 3 % MASKS};
        a.l = lengths[i % LENGTHS];
        a.s = lengths[(i * 7 + i / 16) % LENGTHS];
        a.e = sizes[i % SIZES];
        a.ev = i % 4 ? a.e : sizes[(i + 4) % SIZES];
        if (a.l * a.s * (a.e + a.ev) > 400000) /* the reference takes its time */
            a.n = a.h = 1;
        check(ctx, &guard, kind, &a);
    }
    check(ctx, &guard, kind, &(struct attention){1, 1, 70, 150, 512, 512, NONE, true, 0});
    check(ctx, &guard, kind, &(struct attention){1, 2, 300, 9, 40, 40, CAUSAL, true, 0});
    /* Not all heads are packed at once: each thread has a region of them, or there is one. */
    check(ctx, &guard, kind, &(struct attention){1, 16, 20, 2100, 64, 64, NONE, true, 0});
    check(ctx, &guard, kind, &(struct attention){1, 15, 20, 2100, 64, 64, NONE, true, 0});
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Scores that grow from block to block by far more than a power may grow: results so far are scaled again; and a scale below zero. */
static void large_scores(void **state)
{
    const struct kind *kind = *state;
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, kind);
    for (int i = 0; i < 4; i++) {
        const int64_t e = i / 2 ? 40 : 24; /* whose results may share vectors */
        const double scale = e == 24 ? 0.2 : 0.15;
        const struct attention a = {1, 2, 37, 700, e, e, NONE, false, i % 2 ? -scale : scale};
        tern_scope_begin(ctx);
        tern_tensor *ramp = tern_reshape(tern_arange(ctx, TERN_F32, 0, 700, 1), 4, (const int64_t[]){1, 1, 700, 1});
        tern_tensor *k = tern_cast(tern_mul_scalar(tern_expand(ramp, 4, (const int64_t[]){1, 2, 700, e}), 0.1), kind->dtype);
        tern_tensor *const x[] = {heads(ctx, kind, &a, 1, a.l, a.e), k, heads(ctx, kind, &a, 3, a.s, a.ev)};
        compare(kind, kind->large, &a, attend(ctx, kind, &a, x, kind->kernel), attend(ctx, kind, &a, x, "reference"), false);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Scores that are all far from zero, and of each row so by itself; values so small that powers of theirs would vanish. */
static void scores_far_from_zero(void **state)
{
    const struct kind *kind = *state;
    static const float far[] = {-100, -60, -40, -25, -10, 0, 20, 28, 60, 90};
    enum { L = 40, S = 77, E = 40, FAR = sizeof(far) / sizeof(*far) };
    static float row[L];
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, kind);
    for (int i = 0; i < 2 * (FAR + 1); i++) {
        const struct attention a = {1, 1, L, S, E, E, i % 2 ? CAUSAL : NONE, false, 1}, less = {1, 1, L, S, E - 1, E, NONE, false, 1};
        for (int j = 0; j < L; j++)
            row[j] = far[i / 2 < FAR ? i / 2 : j % FAR];
        tern_scope_begin(ctx);
        tern_tensor *q = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, L, 1}, row), kind->dtype);
        tern_tensor *ones = tern_full(ctx, kind->dtype, 4, (const int64_t[]){1, 1, S, 1}, 1);
        tern_tensor *const rest[] = {tern_mul_scalar(heads(ctx, kind, &less, 1, L, E - 1), 0.2), heads(ctx, kind, &less, 2, S, E - 1)};
        tern_tensor *const x[] = {tern_cat((tern_tensor *const[]){rest[0], q}, 2, 3), tern_cat((tern_tensor *const[]){rest[1], ones}, 2, 3),
                                  tern_mul_scalar(heads(ctx, kind, &a, 3, S, E), 0x1p-60)};
        tern_tensor *found = attend(ctx, kind, &a, x, kind->kernel), *exact = attend(ctx, kind, &a, x, "reference");
        compare(kind, kind->large, &a, tern_mul_scalar(found, 0x1p60), tern_mul_scalar(exact, 0x1p60), false);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Of scores of up to 2^100 each row has the value of its largest: in the first block of keys, in another, with and without causality. */
static void huge_scores(void **state)
{
    const struct kind *kind = *state;
    enum { L = 33, S = 200, E = 40 };
    static const int keys[] = {1, 37, 200};
    static const double sizes[] = {0x1p26, 0x1p29, 0x1p32, 0x1p40, 0x1p96};
    struct tern_context *ctx = support_context();
    skip_without(&ctx, kind);
    for (int at = 0; at < 30; at++) {
        const int s = keys[at % 3];
        const bool causal = at / 15;
        int64_t n;
        tern_scope_begin(ctx);
        tern_tensor *q = tern_mul_scalar(support_noise(ctx, 1, 4, (const int64_t[]){1, 1, L, E}, 1, kind->dtype), sizes[at / 3 % 5]);
        tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, s, E}, 1, kind->dtype);
        tern_tensor *v = support_noise(ctx, 3, 4, (const int64_t[]){1, 1, s, E}, 1, kind->dtype);
        float *a = support_values(q, &n), *b = support_values(k, &n), *c = support_values(v, &n);
        float *y = support_values(tern_sdpa(q, k, v, .is_causal = causal), &n);
        assert_int_equal(n, L * E);
        for (int i = 0; i < L; i++) {
            double top = -INFINITY, second = -INFINITY;
            int best = 0;
            for (int j = 0; j < s && (j <= i || !causal); j++) {
                double score = 0;
                for (int e = 0; e < E; e++)
                    score += (double)a[i * E + e] * (double)b[j * E + e];
                second = fmax(second, fmin(score, top));
                best = score > top ? j : best;
                top = fmax(top, score);
            }
            for (int e = 0; e < E && top - second > 1e-4 * fabs(top); e++)
                assert_true(fabs(y[i * E + e] - c[best * E + e]) <= 1e-6 * fabs(c[best * E + e]));
        }
        free(a);
        free(b);
        free(c);
        free(y);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Keys that are alike count alike wherever they stand, however large the scores are. */
static void keys_that_are_alike(void **state)
{
    const struct kind *kind = *state;
    enum { L = 20, S = 1100, E = 40 };
    static const double scales[] = {1, 1e3, 2e4, 7.6e5, 8.4e6, 1.19e7, 1.3e8, 3e8, 1e12, 1e30, -1.19e7};
    struct tern_context *ctx = support_context();
    skip_without(&ctx, kind);
    static float unit[S * E], half[S];
    for (int i = 0; i < S; i++) {
        unit[i * E] = 1;
        half[i] = i < S / 2;
    }
    for (size_t at = 0; at < 2 * sizeof(scales) / sizeof(*scales); at++) {
        int64_t n;
        cpu_device_of(ctx)->halves = at % 2;
        tern_scope_begin(ctx);
        tern_tensor *q = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, L, E}, unit), kind->dtype);
        tern_tensor *k = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, S, E}, unit), kind->dtype);
        tern_tensor *v = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, S, 1}, half), kind->dtype);
        float *y = support_values(tern_sdpa(q, k, v, .scale = scales[at / 2]), &n);
        for (int i = 0; i < n; i++)
            if (!(fabs(y[i] - 0.5) <= 0.002))
                fail_msg("scale %g: row %d is %g", scales[at / 2], i, y[i]);
        free(y);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Queries of zeros see all keys alike by any scale that is a number, also one that f32 has not; a mask adds what it has. */
static void the_largest_scale(void **state)
{
    const struct kind *kind = *state;
    enum { L = 5, S = 40, E = 8 };
    int64_t n;
    float bias[L * S] = {0};
    struct tern_context *ctx = support_context();
    skip_without(&ctx, kind);
    tern_scope_begin(ctx);
    tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, S, E}, 1, kind->dtype);
    tern_tensor *q = tern_full(ctx, kind->dtype, 4, (const int64_t[]){1, 1, L, E}, 0);
    tern_tensor *v = tern_add_scalar(tern_mul_scalar(k, 0), 3);
    tern_tensor *mask = tern_cast(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){L, S}, bias), kind->dtype);
    for (int masked = 0; masked < 2; masked++) {
        float *y = support_values(tern_sdpa(q, k, v, .attn_mask = masked ? mask : NULL, .scale = 3e38), &n);
        assert_int_equal(n, L * E);
        for (int i = 0; i < n; i++)
            assert_true(fabs(y[i] - 3) < 1e-6);
        free(y);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* Row `hidden` sees no key and is zeros, of infinite values, too; the others are means of equal values. */
static void a_row_that_sees_nothing(void **state)
{
    const struct kind *kind = *state;
    enum { L = 21, S = 150, E = 8, HIDDEN = 17 };
    bool keep[L * S];
    int64_t n;
    struct tern_context *ctx = support_context();
    skip_without(&ctx, kind);
    for (int i = 0; i < L * S; i++)
        keep[i] = i / S != HIDDEN;
    tern_scope_begin(ctx);
    tern_tensor *q = support_noise(ctx, 1, 4, (const int64_t[]){1, 1, L, E}, 1, kind->dtype);
    tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, S, E}, 1, kind->dtype);
    tern_tensor *v = tern_add_scalar(tern_mul_scalar(k, 0), 3);
    tern_tensor *mask = tern_tensor_create(ctx, TERN_BOOL, 2, (const int64_t[]){L, S}, keep);
    for (int infinite = 0; infinite < 2; infinite++) {
        float *y = support_values(tern_sdpa(q, k, infinite ? tern_add_scalar(v, INFINITY) : v, .attn_mask = mask), &n);
        assert_int_equal(n, L * E);
        for (int i = 0; i < n; i++)
            assert_true(i / E == HIDDEN ? y[i] == 0 : infinite || fabs(y[i] - 3) < 1e-6);
        free(y);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* The least float as a mask is finite: a row that is masked so sees all keys alike, where -inf would leave it none; another sees key 7. */
static void the_least_float_as_a_mask(void **state)
{
    const struct kind *kind = *state;
    enum { L = 2, S = 300, E = 8, SEEN = 7 };
    const double most = kind->dtype == TERN_F32 ? 1e-6 : 1.0 / 256;
    static float mask[L * S];
    int64_t n;
    struct tern_context *ctx = support_context();
    skip_without(&ctx, kind);
    for (int i = 0; i < L * S; i++)
        mask[i] = i == S + SEEN ? 0 : kind->dtype == TERN_F32 ? -FLT_MAX : -0x1.fep127f;
    tern_scope_begin(ctx);
    tern_tensor *q = support_noise(ctx, 1, 4, (const int64_t[]){1, 1, L, E}, 1, kind->dtype);
    tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, S, E}, 1, kind->dtype);
    tern_tensor *hidden = tern_cast(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){L, S}, mask), kind->dtype);
    float *v = support_values(k, &n);
    float *y = support_values(tern_sdpa(q, k, k, .attn_mask = hidden), &n);
    assert_int_equal(n, L * E);
    for (int j = 0; j < E; j++) {
        double mean = 0;
        for (int i = 0; i < S; i++)
            mean += (double)v[i * E + j] / S;
        assert_true(fabs(y[j] - mean) < most);
        assert_true(fabs(y[E + j] - v[SEEN * E + j]) < 1e-6);
    }
    free(v);
    free(y);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* A query that is no number makes its row so and no other: with few keys, and with blocks of them and rows that share vectors. */
static void nan_stays_in_its_row(void **state)
{
    const struct kind *kind = *state;
    enum { L = 35, S = 300, E = 40 };
    struct tern_context *ctx = support_context();
    static float x[L * E];
    int64_t n;
    skip_without(&ctx, kind);
    for (int odd = 0; odd < 4; odd++) {
        const int at = 16 + odd % 2;
        const int64_t keys = odd / 2 ? S : 45, size = odd / 2 ? E : 20;
        for (int i = 0; i < L * size; i++)
            x[i] = i == at * size + 3 ? NAN : 0.25f;
        tern_scope_begin(ctx);
        tern_tensor *q = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, L, size}, x), kind->dtype);
        tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, keys, size}, 1, kind->dtype);
        float *y = support_values(tern_sdpa(q, k, k), &n);
        assert_int_equal(n, L * size);
        for (int i = 0; i < n; i++)
            assert_true(i / size == at ? isnan(y[i]) : isfinite(y[i]));
        free(y);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* What a row meets does not depend on its task: the same bits. */
static void threads_do_not_matter(void **state)
{
    const struct kind *kind = *state;
    static float first[3 * 500 * 40];
    const size_t size = sizeof(first) / sizeof(*first) * tern_dtype_size(kind->dtype);
    for (int i = 0; i < 6; i++) {
        const int threads = 1 + i % 3 * 4;
        const struct attention a = {1, 3, 500, 333, 40, 40, i < 3 ? NONE : CAUSAL, true, 0};
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
        assert_non_null(ctx);
        skip_without(&ctx, kind);
        tern_scope_begin(ctx);
        tern_tensor *const x[] = {heads(ctx, kind, &a, 1, a.l, a.e), heads(ctx, kind, &a, 2, a.s, a.e), heads(ctx, kind, &a, 3, a.s, a.ev)};
        tern_tensor *y = attend(ctx, kind, &a, x, kind->kernel);
        if (threads == 1)
            memcpy(first, tern_tensor_host(y), size);
        assert_memory_equal(first, tern_tensor_host(y), size);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
}

/* Two million keys and values (all 16 heads would be five), and what a thread needs for its queries. */
static void some_heads_are_packed_at_a_time(void **state)
{
    const struct kind *kind = *state;
    for (int threads = 1; threads <= 16; threads *= 2) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
        assert_non_null(ctx);
        skip_without(&ctx, kind);
        struct tern_op_desc d = {.op = TERN_OP_sdpa, .n_in = 3, .present = {true, true, true}, .attrs = {.sdpa = {.scale = 1}}};
        for (int j = 0; j < 3; j++)
            d.in[j] = tern_meta_make(kind->dtype, 4, (const int64_t[]){2, 8, 4096, 40});
        d.out = d.in[0];
        const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, &d);
        assert_non_null(k);
        assert_string_equal(k->name, kind->kernel);
        const size_t packed = tern_dtype_size(kind->dtype) << 21, of_a_thread = 192 << 10;
        assert_in_range(k->workspace(ctx, &d), packed / 4, packed + (size_t)threads * of_a_thread);
        tern_context_destroy(&ctx);
    }
}

/* One key, expanded to so many that the bytes of packed ones, of any number of values each, are few modulo 2^64. */
static void more_keys_than_can_be_packed(void **state)
{
    const struct kind *kind = *state;
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    tern_tensor *x = tern_cast(support_noise(ctx, 1, 4, (const int64_t[]){1, 1, 1, 1}, 1, TERN_F32), kind->dtype);
    for (int64_t values = 32 / (int64_t)tern_dtype_size(kind->dtype) + 1; values <= 256; values++) {
        const int64_t keys = (UINT64_MAX / tern_dtype_size(kind->dtype) / (uint64_t)values + 32) / 32 * 32;
        tern_tensor *k = tern_expand(x, 4, (const int64_t[]){1, 1, keys, 1});
        assert_non_null(k);
        assert_null(tern_sdpa(x, k, k));
        assert_int_equal(tern_error_status(ctx), TERN_E_NO_MEMORY);
        tern_error_clear(ctx);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* One query, expanded to more than anybody could go through, of values of nothing. */
static void nothing_takes_no_time(void **state)
{
    const struct kind *kind = *state;
    const int64_t many = (int64_t)1 << 58;
    struct tern_context *ctx = support_context();
    skip_without(&ctx, kind);
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, kind->dtype, 4, (const int64_t[]){1, 1, 1, 1}, NULL);
    tern_tensor *v = tern_tensor_create(ctx, kind->dtype, 4, (const int64_t[]){1, 1, 1, 0}, NULL);
    tern_tensor *y = tern_sdpa(tern_expand(x, 4, (const int64_t[]){1, 1, many, 1}), x, v);
    assert_true(tern_tensor_size(y, 2) == many && tern_tensor_size(y, 3) == 0);
    tern_tensor *keys = tern_expand(x, 4, (const int64_t[]){1, 1, (int64_t)1 << 40, 1}); /* no queries want no room for packed keys */
    tern_tensor *none = tern_tensor_create(ctx, kind->dtype, 4, (const int64_t[]){1, 1, 0, 1}, NULL);
    y = tern_sdpa(none, keys, keys);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(tern_tensor_size(y, 2), 0);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* bf16 where the level has it, f32 everywhere; heads whose values are not side by side elsewhere. */
static void the_choice(void **state)
{
    struct tern_context *ctx = support_context();
    const bool has = computes(ctx, &in_bf16);
    for (int i = 0; i < 3; i++) {
        struct tern_op_desc d = {.op = TERN_OP_sdpa, .n_in = 3, .present = {true, true, true}, .attrs = {.sdpa = {.scale = 1}}};
        for (int j = 0; j < 3; j++)
            d.in[j] = tern_meta_make(i == 1 ? TERN_F32 : TERN_BF16, 4, (const int64_t[]){1, 2, 8, 40});
        d.out = d.in[0];
        if (i == 2)
            d.in[1].stride[3] = 2;
        const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, &d);
        const char *expected = i == 0 && has ? in_bf16.kernel : i == 1 ? in_f32.kernel : "none";
        assert_string_equal(k ? k->name : "none", expected);
    }
    tern_context_destroy(&ctx);
}

/* A test of each kind. */
#define BOTH(name) \
    {#name "_f32", name, NULL, NULL, (void *)&in_f32}, { #name "_bf16", name, NULL, NULL, (void *)&in_bf16 }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(edges),
        BOTH(large_scores),
        BOTH(scores_far_from_zero),
        BOTH(huge_scores),
        BOTH(keys_that_are_alike),
        BOTH(the_largest_scale),
        BOTH(a_row_that_sees_nothing),
        BOTH(the_least_float_as_a_mask),
        BOTH(nan_stays_in_its_row),
        BOTH(threads_do_not_matter),
        BOTH(some_heads_are_packed_at_a_time),
        BOTH(more_keys_than_can_be_packed),
        BOTH(nothing_takes_no_time),
        cmocka_unit_test(the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
