/* f16 and bf16 on the CPU without casts: which kernels take them, mixed dtypes, posts that are applied before the one rounding, rounds of
 * group_norm, and a UNet whose plan goes from op to op in bf16. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "backends/cpu/cpu.h"
#include "core/context.h"
#include "graph/plan.h"
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "ops/dispatch.h"
#include "support.h"

static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};

/* Values of y are those of `exact`, which is f32, rounded to the dtype of y or to a neighbour of that: sums are f32. */
static void assert_rounded(const tern_tensor *y, const tern_tensor *exact, const char *what)
{
    int64_t n = 0, m = 0;
    assert_true(y && exact);
    const double ulp = y->meta.dtype == TERN_F32 ? 2e-6 : y->meta.dtype == TERN_F16 ? 0x1p-10 : 0x1p-7;
    float *a = support_values(y, &n), *b = support_values(exact, &m);
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= ulp * fabsf(b[i]) + 4e-6))
            fail_msg("%s, %s: value %d is %g, expected %g", what, tern_dtype_name(y->meta.dtype), (int)i, a[i], b[i]);
    free(a);
    free(b);
}

static tern_tensor *wide(tern_tensor *t) { return tern_cast(t, TERN_F32); }

static void force(struct tern_context *ctx, const char *kernel) { assert_int_equal(tern_dispatch_force(ctx, kernel), TERN_OK); }

/* x, weight and bias of any three dtypes; by the kernel, and by the reference in f32. */
static void norms_take_any_dtypes(void **state)
{
    struct tern_context *ctx = support_context();
    for (int i = 0; i < 27; i++) {
        const enum tern_dtype dx = dtypes[i % 3], dw = dtypes[i / 3 % 3], db = dtypes[i / 9];
        tern_scope_begin(ctx);
        tern_tensor *rows = support_noise(ctx, 1, 2, (const int64_t[]){5, 37}, 2, dx);
        tern_tensor *w = support_noise(ctx, 2, 1, (const int64_t[]){37}, 1, dw),
                    *b = support_noise(ctx, 3, 1, (const int64_t[]){37}, 1, db);
        tern_tensor *picture = support_noise(ctx, 4, 4, (const int64_t[]){2, 12, 5, 7}, 2, dx),
                    *last = tern_contiguous(picture, TERN_CHANNELS_LAST);
        tern_tensor *gw = tern_slice(w, 0, 0, 12, 1), *gb = tern_slice(b, 0, 0, 12, 1), *y[4], *stats[2];
        force(ctx, "layer_norm_float");
        y[0] = tern_layer_norm(rows, 1, w, b, 1e-5);
        force(ctx, "rms_norm_float");
        y[1] = tern_rms_norm(rows, 1, w, 1e-5);
        force(ctx, "group_norm_float");
        y[2] = tern_group_norm(picture, 3, gw, gb, 1e-5);
        y[3] = tern_group_norm(last, 3, gw, gb, 1e-5);
        force(ctx, "group_norm_stats_float");
        stats[0] = tern_group_norm_stats(picture, 3);
        stats[1] = tern_group_norm_stats(last, 3);
        force(ctx, "reference");
        assert_rounded(y[0], tern_layer_norm(wide(rows), 1, wide(w), wide(b), 1e-5), "layer_norm");
        assert_rounded(y[1], tern_rms_norm(wide(rows), 1, wide(w), 1e-5), "rms_norm");
        tern_tensor *exact = tern_group_norm(wide(picture), 3, wide(gw), wide(gb), 1e-5);
        assert_rounded(y[2], exact, "group_norm");
        assert_rounded(y[3], exact, "group_norm, channels-last");
        for (int k = 0; k < 2; k++)
            assert_rounded(stats[k], tern_group_norm_stats(wide(picture), 3), "group_norm_stats");
        force(ctx, NULL);
        tern_scope_end(ctx, NULL);
    }
    tern_context_destroy(&ctx);
}

/* Pictures that fit into the caches together, one by one, or not at all; any number of threads: the same bits. */
static void rounds_do_not_matter(void **state)
{
    static uint16_t first[3 * 24 * 33 * 31];
    static const size_t caches[] = {1 << 20, 65536, 4096};
    for (int threads = 1; threads <= 5; threads += 2)
        for (int i = 0; i < 3; i++) {
            struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = threads});
            assert_non_null(ctx);
            cpu_device_of(ctx)->l2 = caches[i];
            tern_scope_begin(ctx);
            tern_tensor *x = support_noise(ctx, 1, 4, (const int64_t[]){3, 24, 33, 31}, 1, TERN_BF16);
            tern_tensor *y = tern_group_norm(tern_contiguous(x, TERN_CHANNELS_LAST), 4, NULL, NULL, 1e-5);
            assert_non_null(y);
            if (threads == 1 && i == 0)
                memcpy(first, tern_tensor_host(y), sizeof(first));
            assert_memory_equal(first, tern_tensor_host(y), sizeof(first));
            tern_scope_end(ctx, NULL);
            tern_context_destroy(&ctx);
        }
}

/* ---- plans */

static enum tern_status geglu(void *user, tern_tensor *const *in, tern_tensor **out)
{
    int64_t n = tern_tensor_size(in[0], 1) / 2;
    out[0] = tern_mul(tern_slice(in[0], 1, 0, n, 1), tern_gelu(tern_slice(in[0], 1, n, 2 * n, 1), TERN_GELU_NONE));
    return tern_error_status(tern_tensor_context(in[0]));
}

static enum tern_status norm_silu(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *x = user ? tern_contiguous(in[0], TERN_CHANNELS_LAST) : in[0];
    out[0] = tern_silu(tern_group_norm(x, 3, NULL, NULL, 1e-5));
    return tern_error_status(tern_tensor_context(in[0]));
}

/* Operands of its posts: one like the result, and a value for each channel of a picture. */
static enum tern_status norm_sum(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *x = user ? tern_contiguous(in[0], TERN_CHANNELS_LAST) : in[0];
    tern_tensor *y = tern_add(tern_silu(tern_group_norm(x, 3, NULL, NULL, 1e-5)), x);
    out[0] = tern_mul(y, tern_slice(tern_slice(x, 2, 1, 2, 1), 3, 2, 3, 1));
    return tern_error_status(tern_tensor_context(in[0]));
}

/* What runs at each run but copies. */
static void count_launch(void *user, const struct tern_step_profile *s) { *(int *)user += strcmp(s->op, "contiguous") != 0; }

/* fn of x in a dtype is one launch, and what the references give in f32, rounded once. */
static void check_plan(struct tern_context *ctx, tern_graph_fn fn, void *user, int ndim, const int64_t *shape, enum tern_dtype dtype,
                       const char *what)
{
    struct tern_graph_input input = {.name = "x", .dtype = dtype, .ndim = ndim};
    tern_tensor *y[1] = {NULL}, *exact[1] = {NULL};
    int launches = 0;
    memcpy(input.shape, shape, (size_t)ndim * sizeof(*shape));
    tern_scope_begin(ctx);
    tern_tensor *x[] = {support_noise(ctx, 7, ndim, shape, 3, dtype)};
    struct tern_graph *g = tern_graph_trace(ctx, fn, user, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    if (!b || tern_plan_profile(b, x, y, count_launch, &launches))
        fail_msg("%s: %s", what, tern_error(ctx));
    assert_int_equal(launches, 1);
    force(ctx, "reference");
    x[0] = wide(x[0]);
    assert_int_equal(fn(user, x, exact), TERN_OK);
    assert_rounded(y[0], exact[0], what);
    force(ctx, NULL);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
}

/* Rows longer than what is widened at once, and several rows at once. */
static void posts_come_before_the_rounding(void **state)
{
    struct tern_context *ctx = support_context();
    for (int d = 0; d < 3; d++)
        for (int large = 0; large < 2; large++) {
            const int64_t rows[] = {7, large ? 2 * 1100 : 2 * 19}, picture[] = {2, large ? 2100 : 9, 5, large ? 3 : 131};
            check_plan(ctx, geglu, NULL, 2, rows, dtypes[d], "geglu");
            check_plan(ctx, norm_silu, NULL, 4, picture, dtypes[d], "group_norm then silu");
            check_plan(ctx, norm_silu, ctx, 4, picture, dtypes[d], "group_norm then silu, channels-last");
            check_plan(ctx, norm_sum, NULL, 4, picture, dtypes[d], "group_norm then sums");
            check_plan(ctx, norm_sum, ctx, 4, picture, dtypes[d], "group_norm then sums, channels-last");
        }
    tern_context_destroy(&ctx);
}

static enum tern_status norm_cast(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *y = user ? tern_rms_norm(in[0], 1, NULL, 1e-5) : tern_layer_norm(in[0], 1, NULL, NULL, 1e-5);
    out[0] = tern_cast(y, TERN_BF16);
    return tern_error_status(tern_tensor_context(in[0]));
}

/* user: weight, bias and the f32 that is added */
static enum tern_status linear_cast_add(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor **t = user;
    out[0] = tern_add(t[2], tern_cast(tern_linear(in[0], t[0], t[1]), TERN_F32));
    return tern_error_status(tern_tensor_context(in[0]));
}

/* A cast is a post: nothing is rounded in front of one that widens. */
static void casts_are_posts(void **state)
{
    struct tern_context *ctx = support_context();
    const int64_t rows[] = {37, 130}, sum[] = {37, 331}, weight[] = {331, 130};
    tern_scope_begin(ctx);
    check_plan(ctx, norm_cast, NULL, 2, rows, TERN_F32, "layer_norm then cast");
    check_plan(ctx, norm_cast, ctx, 2, rows, TERN_F32, "rms_norm then cast");
    if (cpu_level(ctx)->bf16.dot.step) { /* elsewhere products are computed in f32, behind casts */
        tern_tensor *t[] = {support_noise(ctx, 1, 2, weight, 0.1, TERN_BF16), support_noise(ctx, 2, 1, sum + 1, 1, TERN_F32),
                            support_noise(ctx, 3, 2, sum, 1, TERN_F32)};
        check_plan(ctx, linear_cast_add, t, 2, rows, TERN_BF16, "linear, cast and sum");
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

/* What casts to bf16 and back wants the rounding. */
static enum tern_status round_trip(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_cast(tern_cast(tern_group_norm(in[0], 3, NULL, NULL, 1e-5), TERN_BF16), TERN_F32);
    return tern_error_status(tern_tensor_context(in[0]));
}

static void a_second_cast_keeps_the_rounding(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input input = {.name = "x", .dtype = TERN_F32, .ndim = 3, .shape = {5, 6, 37}};
    tern_tensor *y[1] = {NULL};
    int64_t n;
    tern_scope_begin(ctx);
    tern_tensor *x[] = {support_noise(ctx, 7, 3, input.shape, 3, TERN_F32)};
    struct tern_graph *g = tern_graph_trace(ctx, round_trip, NULL, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    if (!b || tern_plan_run(b, x, y))
        fail_msg("%s", tern_error(ctx));
    float *found = support_values(y[0], &n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, found + i, sizeof(bits));
        assert_int_equal(bits & 0xffff, 0);
    }
    free(found);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
}

/* Nodes of an op that run at each run; those with an input of that dtype. */
static int count(const struct tern_graph *g, enum tern_op op, enum tern_dtype dtype)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && !g->nodes[i].prepare && g->nodes[i].desc.op == op && g->nodes[i].desc.in[0].dtype == dtype;
    return n;
}

/* Attention that is computed in f32 has casts around itself, the time embedding one behind it, and norm_out, which is f32, one before it.
 * All else is bf16 to bf16, and what follows a product is fused into it as in f32. */
static void a_unet_has_no_casts_between_ops(void **state)
{
    struct tern_context *ctx = model_context(NULL, 1);
    char path[PATH_SIZE];
    if (!cpu_level(ctx)->bf16.dot.step) {
        print_message("not run: the level %s has no instructions for bf16, so products are computed in f32\n", ctx->device->level);
        tern_context_destroy(&ctx);
        skip();
    }
    int silent[2], casts = 0, attention = 0;
    for (int d = 0; d < 2; d++) {
        struct tern_pipeline *p =
            tern_pipeline_load(ctx, model_path("sd1", path), &(struct tern_pipeline_params){.dtype = d ? TERN_BF16 : TERN_F32});
        struct tern_graph *g = tern_pipeline_graph(p, "unet", NULL);
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"});
        if (!plan)
            fail_msg("%s", tern_error(ctx));
        silent[d] = 0;
        for (int op = TERN_OP_neg; op <= TERN_OP_where; op++) /* element-wise ops that are launches of their own */
            silent[d] +=
                count(plan->graph, (enum tern_op)op, d ? TERN_BF16 : TERN_F32) + (d ? count(plan->graph, (enum tern_op)op, TERN_F32) : 0);
        if (d) {
            casts = count(plan->graph, TERN_OP_cast, TERN_F32) + count(plan->graph, TERN_OP_cast, TERN_BF16);
            attention = count(plan->graph, TERN_OP_sdpa, TERN_F32);
        }
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
        tern_pipeline_destroy(&p);
    }
    print_message("%d casts, %d times attention in f32; %d and %d element-wise launches in f32 and bf16\n", casts, attention, silent[0],
                  silent[1]);
    assert_true(casts <= 4 * attention + 2);
    assert_true(silent[1] <= silent[0] + 1); /* the time embedding's silu, behind its cast */
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_take_any_dtypes),
        cmocka_unit_test(rounds_do_not_matter),
        cmocka_unit_test(posts_come_before_the_rounding),
        cmocka_unit_test(casts_are_posts),
        cmocka_unit_test(a_second_cast_keeps_the_rounding),
        cmocka_unit_test(a_unet_has_no_casts_between_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
