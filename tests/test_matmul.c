/* matmul on CPUs: matrices where they lie (heads, slices, transposed, expanded, vectors) and batches of any size, against sums in double;
 * memory, threads. */
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

static const struct kernel {
    const char *name;
    enum tern_dtype dtype;
    double limit; /* NMSE; of bf16: where few results are rounded the other way */
} kernels[] = {{"matmul_f32_gemm", TERN_F32, 1e-12}, {"matmul_bf16_gemm", TERN_BF16, 2e-5}};

static uint32_t seed = 1;
static int64_t draw(int64_t from, int64_t to) { return from + (int64_t)((seed = seed * 1664525u + 1013904223u) >> 8) % (to - from + 1); }

/* How a matrix lies: as a model's heads do, (batch, rows, heads, columns); with more columns than are taken; as its transposed. */
enum layout { DENSE, HEADS, SLICED, TRANSPOSED, EVERY_OTHER };

/* (batch[0], batch[1], rows, columns), noise */
static tern_tensor *matrices(struct tern_context *ctx, uint64_t noise, enum tern_dtype dtype, enum layout layout, const int64_t *batch,
                             int64_t rows, int64_t columns)
{
    const int64_t b = batch[0], h = batch[1];
    switch (layout) {
    case HEADS:
        return tern_transpose(support_noise(ctx, noise, 4, (const int64_t[]){b, rows, h, columns}, 1, dtype), 1, 2);
    case SLICED:
        return tern_slice(support_noise(ctx, noise, 4, (const int64_t[]){b, h, rows, columns + 3}, 1, dtype), 3, 1, columns + 1, 1);
    case TRANSPOSED:
        return tern_transpose(support_noise(ctx, noise, 4, (const int64_t[]){b, h, columns, rows}, 1, dtype), 2, 3);
    case EVERY_OTHER:
        return tern_slice(support_noise(ctx, noise, 4, (const int64_t[]){b, h, rows, 2 * columns}, 1, dtype), 3, 0, 2 * columns, 2);
    default:
        return support_noise(ctx, noise, 4, (const int64_t[]){b, h, rows, columns}, 1, dtype);
    }
}

static tern_tensor *forced(struct tern_context *ctx, const char *kernel, tern_tensor *x, tern_tensor *other)
{
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = tern_matmul(x, other);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    return y;
}

static bool has(struct tern_context *ctx, const struct kernel *k) { return k->dtype != TERN_BF16 || cpu_level(ctx)->bf16.dot.step; }

struct product {
    const struct kernel *kernel;
    enum layout x, other;
    int64_t x_batch[2], other_batch[2], m, k, n;
};

static void check(struct tern_context *ctx, struct tern_guard *guard, const struct product *p)
{
    tern_scope_begin(ctx);
    tern_tensor *x = matrices(ctx, 1, p->kernel->dtype, p->x, p->x_batch, p->m, p->k),
                *other = matrices(ctx, 2, p->kernel->dtype, p->other, p->other_batch, p->k, p->n);
    const double e = support_tensor_nmse(forced(ctx, p->kernel->name, x, other), forced(ctx, "reference", x, other));
    if (!(e <= p->kernel->limit) || tern_guard_damage(guard))
        fail_msg("%s: (%d, %d, %d, %d) as %d by (%d, %d, %d, %d) as %d: NMSE %g, %d damages", p->kernel->name, (int)p->x_batch[0],
                 (int)p->x_batch[1], (int)p->m, (int)p->k, p->x, (int)p->other_batch[0], (int)p->other_batch[1], (int)p->k, (int)p->n,
                 p->other, e, (int)tern_guard_damage(guard));
    tern_scope_end(ctx, NULL);
}

/* Rests to tiles, panels and words, depths of several parts; a batch of one operand, of the other, of both. */
static void matrices_where_they_lie(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    for (int i = 0; i < 240; i++) {
        struct product p = {.kernel = &kernels[i % 2]}; /* one draw a statement */
        if (!has(ctx, p.kernel))
            continue;
        p.x = (enum layout)draw(DENSE, SLICED);
        p.other = (enum layout)draw(DENSE, EVERY_OTHER);
        for (int j = 0; j < 2; j++) {
            const int64_t n = draw(1, 3), shared = draw(0, 3);
            p.x_batch[j] = shared == 1 ? 1 : n;
            p.other_batch[j] = shared == 2 ? 1 : n;
        }
        p.m = draw(1, i % 10 ? 70 : 110);
        p.k = draw(1, i % 10 ? 130 : 1100);
        p.n = draw(1, i % 10 ? 100 : 150);
        check(ctx, &guard, &p);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* More matrices than are packed at a time, the last ones fewer; two that are large. */
static void batches_in_chunks(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 3);
    for (int i = 0; i < 2; i++) {
        const struct product many = {&kernels[i], DENSE, HEADS, {40, 37}, {40, 37}, 3, 64, 64};
        const struct product large = {&kernels[i], HEADS, TRANSPOSED, {2, 1}, {2, 1}, 17, 1100, 1100};
        if (!has(ctx, &kernels[i]))
            continue;
        check(ctx, &guard, &many);
        check(ctx, &guard, &large);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

static void vectors(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    for (int i = 0; i < 2; i++) {
        const struct kernel *k = &kernels[i];
        if (!has(ctx, k))
            continue;
        tern_scope_begin(ctx);
        tern_tensor *v = support_noise(ctx, 1, 1, (const int64_t[]){75}, 1, k->dtype),
                    *m = support_noise(ctx, 2, 3, (const int64_t[]){3, 75, 41}, 1, k->dtype), *t = tern_transpose(m, 1, 2);
        tern_tensor *w = tern_slice(support_noise(ctx, 3, 1, (const int64_t[]){150}, 1, k->dtype), 0, 0, 150, 2);
        tern_tensor *rows = tern_expand(v, 2, (const int64_t[]){20, 75});
        tern_tensor *const pairs[][2] = {{v, m}, {tern_contiguous(t, TERN_CONTIGUOUS), v}, {v, v}, {v, w}, {rows, m}};
        for (size_t j = 0; j < sizeof(pairs) / sizeof(*pairs); j++) {
            const double e =
                support_tensor_nmse(forced(ctx, k->name, pairs[j][0], pairs[j][1]), forced(ctx, "reference", pairs[j][0], pairs[j][1]));
            if (!(e <= k->limit))
                fail_msg("%s: pair %d: NMSE %g", k->name, (int)j, e);
        }
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* The same bits for one thread, two and three, and for a product alone and in a batch. */
static void bits(void **state)
{
    const int64_t shape[] = {5, 2, 50, 1100}, other[] = {5, 2, 1100, 90};
    for (int i = 0; i < 2; i++) {
        float *first = NULL, *one = NULL;
        int64_t n = 0;
        for (int threads = 1; threads <= 3; threads++) {
            struct tern_guard guard;
            struct tern_context *ctx = support_guarded(&guard, threads);
            if (has(ctx, &kernels[i])) {
                tern_scope_begin(ctx);
                tern_tensor *x = support_noise(ctx, 1, 4, shape, 1, kernels[i].dtype),
                            *y = support_noise(ctx, 2, 4, other, 1, kernels[i].dtype);
                float *all = support_values(forced(ctx, kernels[i].name, x, y), &n);
                if (first)
                    assert_memory_equal(all, first, (size_t)n * sizeof(*all));
                one = support_values(forced(ctx, kernels[i].name, tern_slice(x, 0, 3, 4, 1), tern_slice(y, 0, 3, 4, 1)), &n);
                assert_memory_equal(one, all + 3 * n, (size_t)n * sizeof(*one));
                tern_scope_end(ctx, NULL);
                free(one);
                free(first);
                first = all;
            }
            tern_context_destroy(&ctx);
        }
        free(first);
    }
}

/* No row of any depth: the matrix, one number that is expanded, is not packed, whose bytes would be 0 modulo 2^64 in f32. */
static void no_rows(void **state)
{
    const int64_t deep = (int64_t)1 << 58;
    struct tern_context *ctx = support_context();
    for (int i = 0; i < 2; i++) {
        if (!has(ctx, &kernels[i]))
            continue;
        tern_scope_begin(ctx);
        tern_tensor *x = tern_tensor_create(ctx, kernels[i].dtype, 2, (const int64_t[]){0, deep}, NULL);
        tern_tensor *one = tern_tensor_create(ctx, kernels[i].dtype, 2, (const int64_t[]){1, 1}, NULL);
        tern_tensor *y = forced(ctx, kernels[i].name, x, tern_expand(one, 2, (const int64_t[]){deep, 1}));
        assert_int_equal(tern_tensor_size(y, 0), 0);
        assert_int_equal(tern_tensor_size(y, 1), 1);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(matrices_where_they_lie), cmocka_unit_test(batches_in_chunks),
                                       cmocka_unit_test(vectors), cmocka_unit_test(bits), cmocka_unit_test(no_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
