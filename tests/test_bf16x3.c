/* Products of f32 by pieces of bf16: every edge against sums in double, as exact as those of f32, infinities, memory, threads, choice. */
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

#define LINEAR "linear_f32_bf16x3"
#define GEGLU "linear_geglu_f32_bf16x3"
#define CONV "conv2d_f32_bf16x3"

static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
static uint32_t seed = 1;
static int draw(int from, int to) { return from + (int)((seed = seed * 1664525u + 1013904223u) >> 8) % (to - from + 1); }

static struct tern_context *guarded(struct tern_guard *guard, int threads)
{
    struct tern_context *ctx = support_guarded(guard, threads);
    if (cpu_level(ctx)->bf16x3.dot.step)
        return ctx;
    print_message("not run: the level %s does not multiply f32 by pieces of bf16\n", ctx->device->level);
    tern_context_destroy(&ctx);
    skip();
    return NULL;
}

/* A product; its inputs are noise times `size`. */
struct product {
    enum tern_op op;
    int ndim;
    int64_t x[4], w[4];
    struct tern_conv2d_params p;
    enum tern_dtype weights;
    bool has_bias;
    float size;
};

static tern_tensor *multiply(struct tern_context *ctx, const struct product *c, const char *kernel)
{
    const bool conv = c->op == TERN_OP_conv2d;
    tern_tensor *x = tern_mul_scalar(support_noise(ctx, 1, c->ndim, c->x, 1, TERN_F32), c->size),
                *w = support_noise(ctx, 2, conv ? 4 : 2, c->w, 1, c->weights), *b = NULL;
    if (conv)
        x = tern_contiguous(x, TERN_CHANNELS_LAST);
    if (c->has_bias)
        b = tern_mul_scalar(support_noise(ctx, 3, 1, c->w, 1, TERN_F32), c->size);
    w->constant = true;
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = conv ? tern_conv2d_p(x, w, b, &c->p) : c->op == TERN_OP_linear ? tern_linear(x, w, b) : tern_linear_geglu(x, w, b);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    return y;
}

static void check(struct tern_context *ctx, struct tern_guard *guard, const struct product *c, const char *kernel)
{
    tern_scope_begin(ctx);
    const double e = support_tensor_nmse(multiply(ctx, c, kernel), multiply(ctx, c, "reference"));
    if (!(e <= 2e-13) || tern_guard_damage(guard))
        fail_msg("%s: (%d, %d, %d, %d) by (%d, %d, %d, %d), stride %d, padding %d, dilation %d, %s: NMSE %g, %d damages", kernel,
                 (int)c->x[0], (int)c->x[1], (int)c->x[2], (int)c->x[3], (int)c->w[0], (int)c->w[1], (int)c->w[2], (int)c->w[3],
                 (int)c->p.stride, (int)c->p.padding, (int)c->p.dilation, tern_dtype_name(c->weights), e, (int)tern_guard_damage(guard));
    tern_scope_end(ctx, NULL);
}

/* Rows, depths and columns with every rest to 16 and 32, parts of the depth and panels of one task and more. */
static void edges_of_linear(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, 2);
    for (int i = 0; i < 200; i++) {
        struct product c = {.op = i % 2 ? TERN_OP_linear : TERN_OP_linear_geglu, .ndim = 2, .size = 1}; /* one draw a statement */
        c.x[0] = draw(1, i % 10 ? 70 : 700);
        c.x[1] = c.w[1] = draw(1, i % 10 ? 200 : 700);
        c.w[0] = draw(1, i % 10 ? 70 : 700) * (i % 2 ? 1 : 2);
        c.weights = dtypes[draw(0, 2)];
        c.has_bias = draw(0, 1);
        check(ctx, &guard, &c, i % 2 ? LINEAR : GEGLU);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Strips in one row of the picture and in two, and patches; strides, paddings, dilations. */
static void edges_of_conv(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, 2);
    for (int i = 0; i < 200; i++) {
        struct product c = {.op = TERN_OP_conv2d, .ndim = 4, .size = 1, .x[0] = draw(1, 2)};
        c.x[1] = c.w[1] = i % 2 ? draw(1, 70) : 32 * draw(1, 6);
        c.w[0] = draw(1, 70);
        c.w[2] = draw(1, 3);
        c.w[3] = draw(1, 3);
        c.p.stride = draw(1, 2);
        c.p.dilation = draw(1, 2);
        c.p.padding = c.p.dilation * (c.w[3] - 1) / 2;
        c.x[2] = draw(5, 9);
        c.x[3] = i % 2 ? draw(5, 11) : 16 * draw(1, 4) * c.p.stride;
        c.weights = dtypes[draw(0, 2)];
        c.has_bias = draw(0, 1);
        check(ctx, &guard, &c, CONV);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* No less exact than products of f32 are, whatever the weights' dtype, for values of any size whose pieces are normal numbers. */
static void as_exact_as_f32(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, 2);
    static const float sizes[] = {1, 0x1p-90f, 0x1p90f};
    for (int i = 0; i < 18; i++) {
        const struct product linear = {
            .op = TERN_OP_linear, .ndim = 2, .x = {64, 1280}, .w = {64, 1280}, .weights = dtypes[i % 3], .size = sizes[i / 3 % 3]};
        const struct product conv = {.op = TERN_OP_conv2d,
                                     .ndim = 4,
                                     .x = {1, 320, 16, 16},
                                     .w = {32, 320, 3, 3},
                                     .p = {.padding = 1, .stride = 1, .dilation = 1},
                                     .weights = dtypes[i % 3],
                                     .size = sizes[i / 3 % 3]};
        const struct product *c = i < 9 ? &linear : &conv;
        tern_scope_begin(ctx);
        const tern_tensor *exact = multiply(ctx, c, "reference");
        const double e = support_tensor_nmse(multiply(ctx, c, i < 9 ? LINEAR : CONV), exact),
                     plain = support_tensor_nmse(multiply(ctx, c, i < 9 ? "linear_f32_gemm" : "conv2d_f32_igemm"), exact);
        print_message("%s, %s weights, size %g: NMSE %.2g, of products of f32 %.2g\n", i < 9 ? LINEAR : CONV, tern_dtype_name(c->weights),
                      (double)c->size, e, plain);
        assert_true(e <= plain);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* A row with an infinity, one with no number: as in f32, where weights have fewer bits than a piece, too, and where they are zero. The
 * other rows do not see it. */
static void infinities_stay(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, 2);
    float x[4 * 64], w[3 * 64], *y;
    int64_t n;
    for (int i = 0; i < 4 * 64; i++)
        x[i] = 1;
    x[5] = INFINITY;
    x[64 + 6] = -INFINITY;
    memcpy(&x[2 * 64 + 7], &(uint32_t){0x7f800001}, sizeof(float)); /* no number by its last bit alone */
    for (int i = 0; i < 64; i++) {
        w[i] = 0.5f;
        w[64 + i] = i == 5 ? 0 : -1.0f / 3;
        w[128 + i] = 0x1.234568p-20f;
    }
    for (int d = 0; d < 3; d++) {
        tern_scope_begin(ctx);
        tern_tensor *weight = tern_cast(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){3, 64}, w), dtypes[d]);
        assert_int_equal(tern_dispatch_force(ctx, LINEAR), TERN_OK);
        y = support_values(tern_linear(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){4, 64}, x), weight, NULL), &n);
        assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
        assert_int_equal(n, 12);
        assert_true(y[0] == INFINITY && isnan(y[1]) && y[2] == INFINITY);
        assert_true(y[3] == -INFINITY && y[4] == INFINITY && y[5] == -INFINITY);
        assert_true(isnan(y[6]) && isnan(y[7]) && isnan(y[8]));
        assert_true(y[9] == 32 && isfinite(y[10]) && isfinite(y[11]));
        free(y);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Threads cut tasks, not sums. */
static void same_bits_on_any_threads(void **state)
{
    static const int threads[] = {1, 2, 3, 5};
    const struct product c[] = {
        {.op = TERN_OP_linear, .ndim = 2, .x = {333, 500}, .w = {700, 500}, .weights = TERN_F16, .size = 1},
        {.op = TERN_OP_conv2d, .ndim = 4, .x = {2, 160, 16, 16}, .w = {96, 160, 3, 3}, .p = {1, 1, 1, 1}, .weights = TERN_F16, .size = 1}};
    for (int k = 0; k < 2; k++) {
        float *first = NULL;
        for (int i = 0; i < 4; i++) {
            struct tern_guard guard;
            struct tern_context *ctx = guarded(&guard, threads[i]);
            int64_t n;
            tern_scope_begin(ctx);
            float *y = support_values(multiply(ctx, &c[k], k ? CONV : LINEAR), &n);
            tern_scope_end(ctx, NULL);
            tern_context_destroy(&ctx);
            if (first)
                assert_memory_equal(y, first, (size_t)n * sizeof(float));
            if (!first)
                first = y;
            else
                free(y);
        }
        free(first);
    }
}

/* Few rows are multiplied in f32; how many pictures or prompts a batch has is no matter. */
static void the_choice(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = guarded(&guard, 1);
    for (int i = 0; i < 4; i++) {
        struct tern_op_desc d = {.op = TERN_OP_linear, .n_in = 2, .present = {true, true}, .constant = {false, true}};
        const int64_t rows = i % 2 ? 32 : 31, batch = i / 2 ? 8 : 1;
        d.in[0] = tern_meta_make(TERN_F32, 3, (const int64_t[]){batch, rows, 64});
        d.in[1] = tern_meta_make(TERN_F16, 2, (const int64_t[]){32, 64});
        d.out = tern_meta_make(TERN_F32, 3, (const int64_t[]){batch, rows, 32});
        const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, &d);
        assert_non_null(k);
        assert_string_equal(k->name, i % 2 ? LINEAR : "linear_f32_gemm");
    }
    tern_context_destroy(&ctx);
}

int main(void)
{
    setenv("TERN_CPU_LEVEL", "amx", 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(edges_of_linear),          cmocka_unit_test(edges_of_conv),
                                       cmocka_unit_test(as_exact_as_f32),          cmocka_unit_test(infinities_stay),
                                       cmocka_unit_test(same_bits_on_any_threads), cmocka_unit_test(the_choice)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
