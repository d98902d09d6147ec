/* Attention in bf16 on the CPU: every edge of groups, blocks and tiles against sums in double of the same operands, masks, rows that see
 * nothing, values that are no numbers, threads, choice. */
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

#define FLASH "sdpa_bf16_flash"

/* Powers and results are rounded to bf16, and the reference's result, too, by up to 2^-8 each: for a few values the worst case, for many
 * the mean of the squares. */
#define LIMIT 1.2e-5
#define LIMIT_OF_FEW 1.4e-4

enum mask { NONE, CAUSAL, BOOLEAN, BIAS, MASKS };

struct attention {
    int64_t n, h, l, s, e, ev;
    enum mask mask;
    bool tokens; /* heads are views of (N, L, H, E), as a model has them */
    double scale;
};

static void skip_without_bf16(struct tern_context **ctx)
{
    if (cpu_level(*ctx)->attention.scratch)
        return;
    print_message("not run: the level %s computes no attention in bf16\n", (*ctx)->device->level);
    tern_context_destroy(ctx);
    skip();
}

static tern_tensor *heads(struct tern_context *ctx, const struct attention *a, uint64_t seed, int64_t length, int64_t size)
{
    const int64_t shape[2][4] = {{a->n, a->h, length, size}, {a->n, length, a->h, size}};
    tern_tensor *x = support_noise(ctx, seed, 4, shape[a->tokens], 1, TERN_BF16);
    return a->tokens ? tern_permute(x, 4, (const int[]){0, 2, 1, 3}) : x;
}

/* The same for all heads of a batch. */
static tern_tensor *mask_of(struct tern_context *ctx, const struct attention *a)
{
    tern_tensor *noise = support_noise(ctx, 4, 4, (const int64_t[]){a->n, 1, a->l, a->s}, 2, TERN_BF16);
    return a->mask == BIAS ? noise : a->mask == BOOLEAN ? tern_lt(noise, tern_mul_scalar(noise, 0)) : NULL;
}

static tern_tensor *attend(struct tern_context *ctx, const struct attention *a, tern_tensor *const x[3], const char *kernel)
{
    const struct tern_sdpa_params p = {.attn_mask = mask_of(ctx, a), .is_causal = a->mask == CAUSAL, .scale = a->scale};
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = tern_sdpa_p(x[0], x[1], x[2], &p);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    return y;
}

static void compare(const struct attention *a, const tern_tensor *y, const tern_tensor *exact, bool damage)
{
    int64_t n, m;
    float *found = support_values(y, &n), *expected = support_values(exact, &m);
    assert_int_equal(n, m);
    double nmse = support_nmse(found, expected, n);
    if (!(nmse <= (n < 256 ? LIMIT_OF_FEW : LIMIT)) || damage)
        fail_msg("(%d, %d, %d, %d), %d keys, values of %d, mask %d, scale %g: NMSE %g, damage %d", (int)a->n, (int)a->h, (int)a->l,
                 (int)a->e, (int)a->s, (int)a->ev, (int)a->mask, a->scale, nmse, (int)damage);
    free(found);
    free(expected);
}

static void check(struct tern_context *ctx, struct tern_guard *guard, const struct attention *a)
{
    tern_scope_begin(ctx);
    tern_tensor *const x[] = {heads(ctx, a, 1, a->l, a->e), heads(ctx, a, 2, a->s, a->e), heads(ctx, a, 3, a->s, a->ev)};
    compare(a, attend(ctx, a, x, FLASH), attend(ctx, a, x, "reference"), tern_guard_damage(guard) > 0);
    tern_scope_end(ctx, NULL);
}

static struct tern_context *guarded(struct tern_guard *guard)
{
    tern_guard_init(guard);
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2, .allocator = tern_guard_allocator(guard)});
    assert_non_null(ctx);
    skip_without_bf16(&ctx);
    return ctx;
}

/* Queries and keys around 16, 32, 64, 128 and 256; head sizes of the models and around 16 and 32; each with every kind of mask. */
static void edges(void **state)
{
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 48, 63, 77, 127, 128, 129, 160, 257, 300};
    static const int64_t sizes[] = {1, 2, 8, 15, 16, 17, 31, 32, 33, 40, 64, 72, 80, 97, 160};
    enum { LENGTHS = sizeof(lengths) / sizeof(*lengths), SIZES = sizeof(sizes) / sizeof(*sizes) };
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard);
    for (int i = 0; i < LENGTHS * SIZES; i++) {
        struct attention a = {.n = 1 + i % 2, .h = 1 + i % 3, .tokens = i % 5 < 3, .mask = i / 3 % MASKS};
        a.l = lengths[i % LENGTHS];
        a.s = lengths[(i * 7 + i / 16) % LENGTHS];
        a.e = sizes[i % SIZES];
        a.ev = i % 4 ? a.e : sizes[(i + 4) % SIZES];
        if (a.l * a.s * (a.e + a.ev) > 400000) /* the reference takes its time */
            a.n = a.h = 1;
        check(ctx, &guard, &a);
    }
    check(ctx, &guard, &(struct attention){1, 1, 70, 150, 512, 512, NONE, true, 0});
    check(ctx, &guard, &(struct attention){1, 2, 300, 9, 40, 40, CAUSAL, true, 0});
    check(ctx, &guard, &(struct attention){1, 3, 20, 9000, 64, 64, NONE, true, 0}); /* so many keys that not all heads are packed at once */
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Scores that grow from block to block by far more than a power may grow: results so far are scaled again; and a scale below zero. */
static void large_scores(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard);
    for (int i = 0; i < 2; i++) {
        const struct attention a = {1, 2, 37, 700, 24, 24, NONE, false, i ? -0.2 : 0.2};
        tern_scope_begin(ctx);
        tern_tensor *ramp = tern_reshape(tern_arange(ctx, TERN_F32, 0, 700, 1), 4, (const int64_t[]){1, 1, 700, 1});
        tern_tensor *k = tern_cast(tern_mul_scalar(tern_expand(ramp, 4, (const int64_t[]){1, 2, 700, 24}), 0.1), TERN_BF16);
        tern_tensor *const x[] = {heads(ctx, &a, 1, a.l, a.e), k, heads(ctx, &a, 3, a.s, a.ev)};
        compare(&a, attend(ctx, &a, x, FLASH), attend(ctx, &a, x, "reference"), false);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Row `hidden` sees no key and is zeros; the others are means of equal values, which have no rounding. */
static void a_row_that_sees_nothing(void **state)
{
    enum { L = 21, S = 150, E = 8, HIDDEN = 17 };
    bool keep[L * S];
    int64_t n;
    struct tern_context *ctx = support_context();
    skip_without_bf16(&ctx);
    for (int i = 0; i < L * S; i++)
        keep[i] = i / S != HIDDEN;
    tern_scope_begin(ctx);
    tern_tensor *q = support_noise(ctx, 1, 4, (const int64_t[]){1, 1, L, E}, 1, TERN_BF16);
    tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, S, E}, 1, TERN_BF16);
    tern_tensor *v = tern_add_scalar(tern_mul_scalar(k, 0), 3);
    float *y = support_values(tern_sdpa(q, k, v, .attn_mask = tern_tensor_create(ctx, TERN_BOOL, 2, (const int64_t[]){L, S}, keep)), &n);
    assert_int_equal(n, L * E);
    for (int i = 0; i < n; i++)
        assert_true(y[i] == (i / E == HIDDEN ? 0 : 3));
    free(y);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* The least float as a mask is finite: a row that is masked so sees all keys alike, where -inf would leave it none; another sees key 7. In
 * f32. */
static void the_least_float_as_a_mask(void **state)
{
    enum { L = 2, S = 300, E = 8, SEEN = 7 };
    static float mask[L * S];
    int64_t n;
    struct tern_context *ctx = support_context();
    for (int i = 0; i < L * S; i++)
        mask[i] = i == S + SEEN ? 0 : -FLT_MAX;
    tern_scope_begin(ctx);
    tern_tensor *q = support_noise(ctx, 1, 4, (const int64_t[]){1, 1, L, E}, 1, TERN_F32);
    tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, S, E}, 1, TERN_F32);
    float *v = support_values(k, &n);
    float *y = support_values(tern_sdpa(q, k, k, .attn_mask = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){L, S}, mask)), &n);
    assert_int_equal(n, L * E);
    for (int j = 0; j < E; j++) {
        double mean = 0;
        for (int i = 0; i < S; i++)
            mean += (double)v[i * E + j] / S;
        assert_true(fabs(y[j] - mean) < 1e-6);
        assert_true(fabs(y[E + j] - v[SEEN * E + j]) < 1e-6);
    }
    free(v);
    free(y);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* A query that is no number makes its row so and no other; a key that is infinite the rows that it is compared with. */
static void nan_stays_in_its_row(void **state)
{
    enum { L = 35, S = 45, E = 20, AT = 17 };
    struct tern_context *ctx = support_context();
    float x[L * E], *y;
    int64_t n;
    skip_without_bf16(&ctx);
    for (int i = 0; i < L * E; i++)
        x[i] = i == AT * E + 3 ? NAN : 0.25f;
    tern_scope_begin(ctx);
    tern_tensor *q = tern_cast(tern_tensor_create(ctx, TERN_F32, 4, (const int64_t[]){1, 1, L, E}, x), TERN_BF16);
    tern_tensor *k = support_noise(ctx, 2, 4, (const int64_t[]){1, 1, S, E}, 1, TERN_BF16);
    y = support_values(tern_sdpa(q, k, k), &n);
    assert_int_equal(n, L * E);
    for (int i = 0; i < n; i++)
        assert_true(i / E == AT ? isnan(y[i]) : isfinite(y[i]));
    free(y);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* What a row meets does not depend on its task: the same bits. */
static void threads_do_not_matter(void **state)
{
    const struct attention a = {1, 3, 500, 333, 40, 40, CAUSAL, true, 0};
    static uint16_t first[3 * 500 * 40];
    for (int threads = 1; threads <= 9; threads += 4) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
        assert_non_null(ctx);
        skip_without_bf16(&ctx);
        tern_scope_begin(ctx);
        tern_tensor *const x[] = {heads(ctx, &a, 1, a.l, a.e), heads(ctx, &a, 2, a.s, a.e), heads(ctx, &a, 3, a.s, a.ev)};
        tern_tensor *y = attend(ctx, &a, x, FLASH);
        if (threads == 1)
            memcpy(first, tern_tensor_host(y), sizeof(first));
        assert_memory_equal(first, tern_tensor_host(y), sizeof(first));
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
}

/* Keys and values of all 16 heads would take 11 MiB. */
static void some_heads_are_packed_at_a_time(void **state)
{
    struct tern_context *ctx = support_context();
    skip_without_bf16(&ctx);
    struct tern_op_desc d = {.op = TERN_OP_sdpa, .n_in = 3, .present = {true, true, true}, .attrs = {.sdpa = {.scale = 1}}};
    for (int j = 0; j < 3; j++)
        d.in[j] = tern_meta_make(TERN_BF16, 4, (const int64_t[]){2, 8, 4096, 40});
    d.out = d.in[0];
    const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, &d);
    assert_non_null(k);
    assert_string_equal(k->name, FLASH);
    assert_in_range(k->workspace(ctx, &d), 1 << 20, 5 << 20);
    tern_context_destroy(&ctx);
}

/* bf16 where the level has it, f32 as before; heads whose values are not side by side elsewhere. */
static void the_choice(void **state)
{
    struct tern_context *ctx = support_context();
    const bool has = cpu_level(ctx)->attention.scratch > 0;
    for (int i = 0; i < 3; i++) {
        struct tern_op_desc d = {.op = TERN_OP_sdpa, .n_in = 3, .present = {true, true, true}, .attrs = {.sdpa = {.scale = 1}}};
        for (int j = 0; j < 3; j++)
            d.in[j] = tern_meta_make(i == 1 ? TERN_F32 : TERN_BF16, 4, (const int64_t[]){1, 2, 8, 40});
        d.out = d.in[0];
        if (i == 2)
            d.in[1].stride[3] = 2;
        const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, &d);
        const char *expected = i == 0 && has ? FLASH : i == 1 ? "sdpa_f32_flash" : "none";
        assert_string_equal(k ? k->name : "none", expected);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges),
        cmocka_unit_test(large_scores),
        cmocka_unit_test(a_row_that_sees_nothing),
        cmocka_unit_test(the_least_float_as_a_mask),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(some_heads_are_packed_at_a_time),
        cmocka_unit_test(the_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
