/* Products of bf16 on the CPU: every edge of blocks and tiles against sums in double of the same operands, memory, threads, choice. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "conformance/guard.h"
#include "core/context.h"
#include "core/files.h"
#include "kernel_help.h"
#include "ops/dispatch.h"
#include "support.h"

#define CONV "conv2d_bf16_igemm"
#define LINEAR "linear_bf16_gemm"

/* Both are roundings of one sum, one of them by way of f32: the same but for the few that lie beside the middle of two values of bf16,
 * and those are neighbours. What is near zero against the rest is judged by the rest. */
static bool same_but_for_ties(const tern_tensor *y, const tern_tensor *exact)
{
    int64_t n, m, differ = 0;
    float *a = support_values(y, &n), *b = support_values(exact, &m), most = 0;
    bool near = n == m;
    for (int64_t i = 0; near && i < n; i++)
        most = fmaxf(most, fabsf(b[i]));
    for (int64_t i = 0; near && i < n; i++) {
        near = fabsf(a[i] - b[i]) <= fabsf(b[i]) / 127 + most * 1e-6f;
        differ += a[i] != b[i];
    }
    free(a);
    free(b);
    return near && differ <= 2 + n / 50;
}

static bool has_bf16(struct tern_context *ctx) { return cpu_level(ctx)->bf16.dot.step > 0; }

static void skip_without_bf16(struct tern_context **ctx)
{
    if (has_bf16(*ctx))
        return;
    print_message("not run: the level %s has no instructions for bf16\n", (*ctx)->device->level);
    tern_context_destroy(ctx);
    skip();
}

static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
static uint32_t seed = 1;
static int draw(int from, int to) { return from + (int)((seed = seed * 1664525u + 1013904223u) >> 8) % (to - from + 1); }

struct conv {
    int64_t x[4], w[4];
    struct tern_conv2d_params p;
    enum tern_dtype weights, bias;
    bool has_bias;
};

static tern_tensor *convolve(struct tern_context *ctx, const struct conv *c, const char *kernel, enum tern_dtype weights)
{
    tern_tensor *x = tern_contiguous(support_noise(ctx, 1, 4, c->x, 1, TERN_BF16), TERN_CHANNELS_LAST);
    tern_tensor *w = tern_cast(support_noise(ctx, 2, 4, c->w, 1, c->weights), weights),
                *b = c->has_bias ? support_noise(ctx, 3, 1, c->w, 1, c->bias) : NULL;
    w->constant = true;
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = tern_conv2d_p(x, w, b, &c->p);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    return y;
}

static void check_conv(struct tern_context *ctx, struct tern_guard *guard, const struct conv *c)
{
    tern_scope_begin(ctx);
    tern_tensor *y = convolve(ctx, c, CONV, c->weights), *exact = convolve(ctx, c, "reference", TERN_BF16);
    if (!same_but_for_ties(y, exact) || tern_guard_damage(guard))
        fail_msg("(%d, %d, %d, %d) by (%d, %d, %d, %d), stride %d, padding %d, dilation %d, %s: %d damages", (int)c->x[0], (int)c->x[1],
                 (int)c->x[2], (int)c->x[3], (int)c->w[0], (int)c->w[1], (int)c->w[2], (int)c->w[3], (int)c->p.stride, (int)c->p.padding,
                 (int)c->p.dilation, tern_dtype_name(c->weights), (int)tern_guard_damage(guard));
    tern_scope_end(ctx, NULL);
}

/* Pixels, channels and depths with every rest to 2, 12, 16 and 32; one pixel; strides, paddings, dilations; dtypes. */
static void edges_of_conv(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    for (int i = 0; i < 200; i++) {
        struct conv c = {.x[0] = draw(1, 2)}; /* one draw a statement: they have an order */
        c.x[1] = c.w[1] = draw(1, 70);
        c.w[0] = draw(1, 70);
        c.w[2] = draw(1, 3);
        c.w[3] = draw(1, 3);
        c.p.stride = draw(1, 3);
        c.p.padding = draw(0, 2);
        c.p.dilation = draw(1, 2);
        c.x[2] = draw(c.p.padding ? 1 : 5, 11) + (c.p.padding == 1 ? 2 : 0);
        c.x[3] = draw(c.p.padding ? 1 : 5, 11) + (c.p.padding == 1 ? 2 : 0);
        c.weights = dtypes[draw(0, 2)];
        c.bias = dtypes[draw(0, 2)];
        c.has_bias = draw(0, 2);
        check_conv(ctx, &guard, &c);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Taps of one output so far from each other that only one lies in the picture: what lies between them takes no memory. */
static void large_dilations(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    const struct conv c = {.x = {1, 32, 16, 16},
                           .w = {16, 32, 3, 3},
                           .p = {.stride = 1, .padding = 1 << 20, .dilation = 1 << 20},
                           .weights = TERN_F32,
                           .bias = TERN_F32};
    check_conv(ctx, &guard, &c);
    assert_true(tern_memory_peak(ctx) < (size_t)32 << 20);
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Filters with more taps than are packed at once, and with so many that a piece has one channel. */
static void large_filters(void **state)
{
    static const int64_t sides[][2] = {{17, 17}, {1, 257}, {13, 13}, {16, 16}, {8, 16}};
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    for (int i = 0; i < 15; i++) {
        const int64_t *side = sides[i % 5];
        struct conv c = {.x = {1, draw(1, 5), side[0] + 1, side[1] + 2}, .p = {.stride = 1, .dilation = 1}, .weights = dtypes[i / 5]};
        c.w[0] = draw(1, 40);
        c.w[1] = c.x[1];
        c.w[2] = side[0];
        c.w[3] = side[1];
        c.bias = TERN_F32;
        check_conv(ctx, &guard, &c);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Rows of 16, 32, 48 and 64 outputs of whole lines of channels: their taps are views of strips. With borders on each side, strides,
 * dilations, two pictures, and more channels than a part of the depth. */
static void strips_of_conv(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    for (int i = 0; i < 70; i++) {
        struct conv c = {.x[0] = draw(1, 2), .bias = TERN_F32, .has_bias = i % 2};
        c.x[1] = c.w[1] = i < 64 ? 32 * draw(1, 3) : 32 * draw(16, 36);
        c.w[0] = draw(1, 70);
        c.w[2] = draw(1, 3);
        c.w[3] = draw(1, 5);
        c.p.stride = draw(1, 2);
        c.p.padding = draw(0, 3);
        c.p.dilation = draw(1, 2);
        int64_t high = draw(1, 4), wide = 16 * draw(1, 4);
        c.x[2] = (high - 1) * c.p.stride + (c.w[2] - 1) * c.p.dilation + 1 - 2 * c.p.padding;
        c.x[3] = (wide - 1) * c.p.stride + (c.w[3] - 1) * c.p.dilation + 1 - 2 * c.p.padding;
        c.x[2] = c.x[2] < 1 ? 1 + (c.w[2] - 1) * c.p.dilation : c.x[2];
        c.weights = dtypes[draw(0, 2)];
        check_conv(ctx, &guard, &c);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Filters of one tap: pixels are rows of a matrix, of whole lines or not, unless some are left out or zeros lie around them. */
static void filters_of_one_tap(void **state)
{
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    for (int i = 0; i < 48; i++) {
        struct conv c = {.x[0] = draw(1, 2), .bias = TERN_F32, .has_bias = i % 2, .w = {draw(1, 70), 0, 1, 1}};
        c.p = (struct tern_conv2d_params){.stride = i % 8 == 5 ? 2 : 1, .padding = i % 8 == 7, .dilation = draw(1, 3)};
        c.x[1] = c.w[1] = i < 24 ? draw(1, 90) : i < 40 ? 32 * draw(1, 3) : draw(500, 1300);
        c.x[2] = draw(1, 7);
        c.x[3] = i % 3 ? draw(1, 19) : 16 * draw(1, 2);
        c.weights = dtypes[i % 3];
        check_conv(ctx, &guard, &c);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

struct linear {
    int64_t m, n, k;
    enum tern_dtype weights;
    bool has_bias;
};

static tern_tensor *project(struct tern_context *ctx, const struct linear *l, const char *kernel, enum tern_dtype weights)
{
    tern_tensor *x = support_noise(ctx, 4, 2, (const int64_t[]){l->m, l->k}, 1, TERN_BF16),
                *b = l->has_bias ? support_noise(ctx, 6, 1, &l->n, 1, TERN_F32) : NULL;
    tern_tensor *w = tern_cast(support_noise(ctx, 5, 2, (const int64_t[]){l->n, l->k}, 1, l->weights), weights);
    w->constant = true;
    assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK);
    tern_tensor *y = tern_linear(x, w, b);
    assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
    if (!y)
        fail_msg("%s", tern_error(ctx));
    return y;
}

static void check_linear(struct tern_context *ctx, struct tern_guard *guard, const struct linear *l)
{
    tern_scope_begin(ctx);
    if (!same_but_for_ties(project(ctx, l, LINEAR, l->weights), project(ctx, l, "reference", TERN_BF16)) || tern_guard_damage(guard))
        fail_msg("%d x %d x %d, %s: %d damages", (int)l->m, (int)l->n, (int)l->k, tern_dtype_name(l->weights),
                 (int)tern_guard_damage(guard));
    tern_scope_end(ctx, NULL);
}

/* Every rest of a block of rows, of a panel and of the depth; then several parts of the depth and tasks of several panels and blocks. */
static void edges_of_linear(void **state)
{
    static const struct linear large[] = {{67, 97, 1601, TERN_F16, true},  {1, 2100, 515, TERN_BF16, false},
                                          {300, 40, 1027, TERN_F32, true}, {70, 1500, 96, TERN_F16, false},
                                          {155, 400, 640, TERN_F32, true}, {45, 70, 2432, TERN_BF16, true}};
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    for (int i = 1; i <= 70; i++) {
        check_linear(ctx, &guard, &(struct linear){i, draw(1, 70), draw(1, 90), dtypes[i % 3], i % 2});
        check_linear(ctx, &guard, &(struct linear){draw(1, 70), i, draw(1, 90), dtypes[i % 3], i % 2});
        check_linear(ctx, &guard, &(struct linear){draw(1, 70), draw(1, 70), i, dtypes[i % 3], i % 2});
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(*large); i++)
        check_linear(ctx, &guard, &large[i]);
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* Layers so deep that panels come from L2, where a level does that: gates, and weights that are kept in few bits and expanded part by part.
 * Of weights on both sides as an op counts them; the reference in f32. */
static void deep_layers(void **state)
{
    static const struct {
        bool gated;
        int bits; /* 0: as they are */
        int64_t m, n, k;
    } rows[] = {{true, 0, 45, 50, 640},  {true, 0, 31, 33, 2500},  {false, 8, 47, 70, 700},  {false, 4, 33, 45, 2528},
                {true, 8, 20, 40, 1300}, {true, 4, 300, 33, 1280}, {false, 8, 300, 40, 1027}};
    struct tern_guard guard;
    struct tern_context *ctx = support_guarded(&guard, 2);
    skip_without_bf16(&ctx);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const int64_t out = rows[i].n * (rows[i].gated ? 2 : 1);
        tern_scope_begin(ctx);
        tern_tensor *x = support_noise(ctx, 1, 2, (const int64_t[]){rows[i].m, rows[i].k}, 1, TERN_BF16),
                    *w = support_noise(ctx, 2, 2, (const int64_t[]){out, rows[i].k}, 0.02, TERN_BF16),
                    *b = support_noise(ctx, 3, 1, &out, 1, TERN_F32), *y[2];
        w->constant = true;
        for (int exact = 0; exact < 2; exact++) {
            tern_tensor *in = exact ? tern_cast(x, TERN_F32) : x, *weight = exact ? tern_cast(w, TERN_F32) : w;
            assert_int_equal(tern_dispatch_force(ctx, exact ? "reference" : NULL), TERN_OK);
            y[exact] = rows[i].bits && rows[i].gated ? tern_weight_only_linear_geglu(in, weight, b, rows[i].bits)
                       : rows[i].bits                ? tern_weight_only_linear(in, weight, b, rows[i].bits)
                       : rows[i].gated               ? tern_linear_geglu(in, weight, b)
                                                     : tern_linear(in, weight, b);
            assert_int_equal(tern_dispatch_force(ctx, NULL), TERN_OK);
            if (!y[exact])
                fail_msg("%s", tern_error(ctx));
        }
        const double e = support_tensor_nmse(tern_cast(y[0], TERN_F32), y[1]);
        if (!(e <= 2e-5) || tern_guard_damage(&guard))
            fail_msg("row %d: NMSE %g, %d damages", (int)i, e, (int)tern_guard_damage(&guard));
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(tern_guard_damage(&guard), 0);
}

/* The parts of the depth do not depend on threads: the same bits. */
static void threads_do_not_matter(void **state)
{
    const struct linear l = {150, 700, 1300, TERN_F16, true};
    static uint16_t first[150 * 700];
    const size_t size = sizeof(first);
    for (int threads = 1; threads <= 7; threads += 3) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
        assert_non_null(ctx);
        skip_without_bf16(&ctx);
        tern_scope_begin(ctx);
        tern_tensor *y = project(ctx, &l, LINEAR, l.weights);
        if (threads == 1)
            memcpy(first, tern_tensor_host(y), size);
        assert_memory_equal(first, tern_tensor_host(y), size);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
}

/* Values that are no numbers reach what depends on them, and nothing else: not through the rest of a tile. */
static void nan_stays_in_its_row(void **state)
{
    enum { M = 35, N = 33, K = 45, AT = 17 };
    struct tern_context *ctx = support_context();
    float x[M * K], *y;
    int64_t n;
    skip_without_bf16(&ctx);
    for (int i = 0; i < M * K; i++)
        x[i] = i / K == AT ? NAN : 1;
    tern_scope_begin(ctx);
    tern_tensor *in = tern_cast(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){M, K}, x), TERN_BF16);
    tern_tensor *w = support_noise(ctx, 5, 2, (const int64_t[]){N, K}, 1, TERN_BF16);
    y = support_values(tern_linear(in, w, NULL), &n);
    for (int i = 0; i < M * N; i++)
        assert_true(i / N == AT ? isnan(y[i]) : isfinite(y[i]));
    free(y);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* f16 weights become bf16 while they are packed: beside the packed form there is never a copy. */
static void weights_are_converted_in_place(void **state)
{
    const int64_t n = 1024, k = 1024;
    const size_t packed = 1024 * 1024 * 2;
    struct tern_context *ctx = support_context();
    skip_without_bf16(&ctx);
    tern_scope_begin(ctx);
    tern_tensor *x = support_noise(ctx, 1, 2, (const int64_t[]){1, k}, 1, TERN_BF16),
                *w = support_noise(ctx, 2, 2, (const int64_t[]){n, k}, 1, TERN_F16);
    w->constant = true;
    tern_memory_trim(ctx);
    size_t before = tern_memory_used(ctx);
    tern_memory_reset_peak(ctx);
    assert_non_null(tern_linear(x, w, NULL));
    size_t most = tern_memory_peak(ctx) - before;
    print_message("%zu bytes packed, %zu in all\n", packed, most);
    assert_true(most >= packed && most < packed + packed / 2);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* silu and the sum with a tensor of bf16, on sums in f32: rounded once, behind both. */
static tern_tensor *project_with_posts(struct tern_context *ctx, tern_tensor *const in[4])
{
    struct tern_op_desc d = {.op = TERN_OP_linear, .n_in = 4, .out = in[3]->meta};
    kernel_post(&d, TERN_OP_silu, -1);
    kernel_post(&d, TERN_OP_add, 3);
    return kernel_run(ctx, &d, in, LINEAR);
}

static void posts_come_before_the_rounding(void **state)
{
    const int64_t m = 613, n = 331, k = 130; /* so many rows that a task has all columns: more than are widened at once */
    struct tern_context *ctx = support_context();
    skip_without_bf16(&ctx);
    tern_scope_begin(ctx);
    tern_tensor *in[] = {support_noise(ctx, 1, 2, (const int64_t[]){m, k}, 1, TERN_BF16),
                         support_noise(ctx, 2, 2, (const int64_t[]){n, k}, 1, TERN_BF16), support_noise(ctx, 3, 1, &n, 1, TERN_F16),
                         support_noise(ctx, 4, 2, (const int64_t[]){m, n}, 1, TERN_BF16)};
    tern_tensor *y = project_with_posts(ctx, in);
    assert_int_equal(tern_dispatch_force(ctx, "reference"), TERN_OK);
    tern_tensor *sum = tern_linear(tern_cast(in[0], TERN_F32), in[1], in[2]);
    tern_tensor *exact = tern_cast(tern_add(tern_silu(sum), tern_cast(in[3], TERN_F32)), TERN_BF16);
    if (!exact)
        fail_msg("%s", tern_error(ctx));
    assert_true(same_but_for_ties(y, exact));
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

static enum tern_status project_to_f32(void *model, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add_scalar(tern_cast(tern_linear(in[0], model, NULL), TERN_F32), 1);
    return TERN_OK;
}

/* In a plan, at every level: what is added in f32 to the result of a product of bf16 is added to its sums. Rounded to bf16 they would have
 * an NMSE of 3e-6. */
static void sums_that_are_cast_are_not_rounded(void **state)
{
    const int64_t m = 40, n = 50, k = 60;
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    tern_tensor *x = support_noise(ctx, 1, 2, (const int64_t[]){m, k}, 1, TERN_BF16), *y = NULL;
    tern_tensor *w = support_noise(ctx, 2, 2, (const int64_t[]){n, k}, 1, TERN_BF16);
    const struct tern_graph_input input = {.dtype = TERN_BF16, .ndim = 2, .shape = {m, k}};
    struct tern_weights *none = tern_weights_create(ctx);
    struct tern_graph *g = tern_graph_trace(ctx, project_to_f32, w, none, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, none);
    if (!b || tern_plan_run(b, &x, &y))
        fail_msg("%s", tern_error(ctx));
    assert_int_equal(y->meta.dtype, TERN_F32);
    int64_t count;
    float *found = support_values(y, &count), *left = support_values(x, &count), *right = support_values(w, &count);
    for (int64_t i = 0; i < m * n; i++) {
        double sum = 1;
        for (int64_t t = 0; t < k; t++)
            sum += (double)left[i / n * k + t] * right[i % n * k + t];
        assert_true(fabs(found[i] - sum) < 1e-5);
    }
    free(found);
    free(left);
    free(right);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&none);
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* A weight that lies in a mapped file, written for that. */
static struct tern_mapping *map_weight(struct tern_context *ctx, const tern_tensor *w)
{
    char path[] = "/tmp/tern-weight-XXXXXX";
    const size_t size = (size_t)tern_tensor_numel(w) * tern_dtype_size(w->meta.dtype);
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, tern_tensor_host(w), size) == (ssize_t)size);
    close(fd);
    struct tern_mapping *m = tern_map_file(ctx, path);
    unlink(path);
    assert_non_null(m);
    return m;
}

/* Panels of a mapped weight are read into the places of later ones: same bits, for panels of half the width, too, and for weights that find
 * no room because they are wider than what they become. */
static void mapped_weights_are_packed_alike(void **state)
{
    static const char *const kernels[] = {
        LINEAR, "linear_geglu_bf16_gemm", CONV, "linear_f32_gemm", "linear_geglu_f32_gemm", "conv2d_f32_igemm", "conv2d_f32_winograd_lean"};
    static const enum tern_dtype stored[] = {TERN_F16, TERN_BF16, TERN_F32};
    for (int i = 0; i < 7 * 3 * 4; i++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1 + i / 3 % 2});
        const struct tern_kernel *k = tern_kernel_find(ctx->device, kernels[i % 7]);
        const bool conv = k && k->op == TERN_OP_conv2d;
        const int64_t shape[] = {k && k->op == TERN_OP_linear_geglu ? 768 : i % 4 < 2 ? 320 : 330, 18, 3, 3};
        if (k) {
            tern_scope_begin(ctx);
            tern_tensor *w = support_noise(ctx, 2, conv ? 4 : 2, shape, 1, stored[i % 3]);
            struct tern_op_desc d = {.op = k->op, .n_in = 2, .present = {true, true}, .constant = {false, true}, .in[1] = w->meta};
            const int64_t n = k->op == TERN_OP_linear_geglu ? shape[0] / 2 : shape[0];
            d.in[0] = tern_meta_make(TERN_F32, conv ? 4 : 2, conv ? (const int64_t[]){1, 18, 8, 8} : (const int64_t[]){8, 18});
            d.out = tern_meta_make(TERN_F32, conv ? 4 : 2, conv ? (const int64_t[]){1, n, 8, 8} : (const int64_t[]){8, n});
            struct tern_mapping *m = map_weight(ctx, w);
            const size_t size = k->packed_size(ctx, &d);
            char *a = calloc(size, 1), *b = calloc(size, 1);
            assert_int_equal(k->pack(ctx, &d, tern_tensor_host(w), a), TERN_OK);
            assert_int_equal(k->pack(ctx, &d, m->data, b), TERN_OK);
            assert_memory_equal(a, b, size);
            free(a);
            free(b);
            tern_mapping_unref(&m);
            tern_scope_end(ctx, NULL);
        }
        tern_context_destroy(&ctx);
    }
}

/* bf16 where the level has it, f32 and f16 as before; matrices that are not dense or groups elsewhere. */
static void the_choice(void **state)
{
    struct tern_context *ctx = support_context();
    const bool has = has_bf16(ctx);
    for (int i = 0; i < 5; i++) {
        struct tern_op_desc d = {.op = TERN_OP_linear, .n_in = 2, .present = {true, true}, .constant = {false, true}};
        d.in[0] = tern_meta_make(i == 1 ? TERN_F32 : i == 2 ? TERN_F16 : TERN_BF16, 2, (const int64_t[]){8, 64});
        d.in[1] = tern_meta_make(i == 3 ? TERN_I8 : TERN_F16, 2, (const int64_t[]){32, 64});
        d.out = tern_meta_make(d.in[0].dtype, 2, (const int64_t[]){8, 32});
        if (i == 4)
            d.in[0].stride[0] = 128;
        const struct tern_kernel *k = tern_kernel_choose(ctx, ctx->device, &d);
        const char *expected = i == 0 && has ? LINEAR : i == 1 ? "linear_f32_gemm" : "none";
        assert_string_equal(k ? k->name : "none", expected);
    }
    assert_int_equal(tern_kernel_find(ctx->device, CONV) != NULL, has);
    tern_context_destroy(&ctx);
}

/* What `--dtype auto` takes: bf16 on the levels that have it only. */
static void the_fast_dtype(void **state)
{
    const char *given = getenv("TERN_CPU_LEVEL");
    char *before = given ? strdup(given) : NULL;
    static const char *const levels[] = {"scalar", "avx2", "avx512", "avx512bf16", "amx"};
    for (int i = -1; i < 5; i++) {
        if (i >= 0)
            setenv("TERN_CPU_LEVEL", levels[i], 1);
        struct tern_context *ctx = tern_context_create(NULL);
        if (ctx) { /* a level that this processor has */
            assert_int_equal(tern_context_fast_dtype(ctx), has_bf16(ctx) && (i < 0 || i >= 3) ? TERN_BF16 : TERN_F32);
            tern_context_destroy(&ctx);
        }
    }
    if (before)
        setenv("TERN_CPU_LEVEL", before, 1);
    else
        unsetenv("TERN_CPU_LEVEL");
    free(before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_of_conv),
        cmocka_unit_test(large_filters),
        cmocka_unit_test(large_dilations),
        cmocka_unit_test(strips_of_conv),
        cmocka_unit_test(filters_of_one_tap),
        cmocka_unit_test(edges_of_linear),
        cmocka_unit_test(deep_layers),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(nan_stays_in_its_row),
        cmocka_unit_test(weights_are_converted_in_place),
        cmocka_unit_test(posts_come_before_the_rounding),
        cmocka_unit_test(sums_that_are_cast_are_not_rounded),
        cmocka_unit_test(mapped_weights_are_packed_alike),
        cmocka_unit_test(the_choice),
        cmocka_unit_test(the_fast_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
