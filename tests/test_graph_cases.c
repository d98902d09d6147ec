/* Graphs that random ones do not make: what a plan gives is what eager calls give. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>
#include <tern/weights.h>

#include "graph/plan.h"
#include "support.h"

typedef tern_tensor *op_fn(tern_tensor *x);
static tern_tensor *sine(tern_tensor *x) { return tern_sin(x); }
static tern_tensor *logarithm(tern_tensor *x) { return tern_log(tern_abs(x)); }
static tern_tensor *lower(tern_tensor *x) { return tern_floor(tern_mul_scalar(x, 3)); }
static tern_tensor *root(tern_tensor *x) { return tern_pow_scalar(tern_abs(x), 0.5); }
static tern_tensor *total(tern_tensor *x) { return tern_sum(x, 1, (const int[]){1}, true); }
static tern_tensor *largest(tern_tensor *x) { return tern_amax(x, 1, (const int[]){1}, true); }
static tern_tensor *square(tern_tensor *x) { return tern_matmul(x, tern_transpose(x, 0, 1)); }
static tern_tensor *share(tern_tensor *x) { return tern_softmax(x, 1); }
static tern_tensor *norm(tern_tensor *x) { return tern_layer_norm(x, 1, NULL, NULL, 1e-5); }
static tern_tensor *negative(tern_tensor *x) { return tern_neg(x); }
static const struct {
    const char *name;
    op_fn *fn;
} ops[] = {{"sin", sine},     {"log", logarithm}, {"floor", lower},   {"pow", root},        {"sum", total},
           {"amax", largest}, {"matmul", square}, {"softmax", share}, {"layer_norm", norm}, {"neg", negative}};
#define OPS (int)(sizeof(ops) / sizeof(*ops))

/* What is made of two equal calls: both are used, one narrowed and widened again; only that one; both so. */
enum { ONE_WIDENED, THE_LAST, BOTH_WIDENED, SHAPES };
struct graph {
    const char *name;
    op_fn *op;
    int shape;
};

static tern_tensor *through_f32(tern_tensor *x) { return tern_cast(tern_cast(x, TERN_F32), tern_tensor_dtype(x)); }

static enum tern_status build(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct graph *g = user;
    tern_tensor *a = g->op(in[0]), *b = g->op(in[0]);
    out[0] = g->shape == ONE_WIDENED ? tern_add(a, through_f32(b))
             : g->shape == THE_LAST  ? through_f32(b)
                                     : tern_sub(through_f32(a), through_f32(b));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* The plan's result to the eager call's: an f16 or bf16 may be rounded once less. */
static void check(struct tern_context *ctx, struct graph *g, enum tern_dtype dtype, int64_t rows)
{
    const struct tern_graph_input input = {"x", dtype, 2, {rows, 40}};
    tern_scope_begin(ctx);
    tern_tensor *x = support_noise(ctx, 1, 2, input.shape, 1, dtype), *eager = NULL, *y = NULL;
    assert_int_equal(build(g, &x, &eager), TERN_OK);
    struct tern_graph *graph = tern_graph_trace(ctx, build, g, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(graph, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    if (tern_plan_run(b, &x, &y))
        fail_msg("%s", tern_error(ctx));
    int64_t n, m;
    float *expected = support_values(eager, &n), *found = support_values(y, &m);
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(expected[i] - found[i]) <= 0.02f * (1 + fabsf(expected[i]))))
            fail_msg("%s, shape %d, %s: value %d is %g in a plan and %g eager", g->name, g->shape, tern_dtype_name(dtype), (int)i,
                     (double)found[i], (double)expected[i]);
    free(expected);
    free(found);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&graph);
}

static void each(int64_t rows)
{
    static const enum tern_dtype dtypes[] = {TERN_F32, TERN_F16, TERN_BF16};
    struct tern_context *ctx = support_context();
    for (int i = 0; i < OPS; i++)
        for (int shape = 0; shape < SHAPES; shape++)
            for (int d = 0; d < 3; d++)
                check(ctx, &(struct graph){ops[i].name, ops[i].fn, shape}, dtypes[d], rows);
    tern_context_destroy(&ctx);
}

/* The value that was rounded is remembered, so that who widens it reads it: it has to be that of the call that is left. */
static void equal_calls_that_were_rounded(void **state) { each(6); }

static void nothing_in_tensors(void **state) { each(0); }

/* Of two layers the second one's weight is a view of one: by itself no weight, so it is packed at every run and not kept in the file of
 * those that are streamed. */
static enum tern_status by_a_view(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *h = tern_linear(in[0], tern_weights_get(user, "a"), NULL);
    out[0] = tern_linear(h, tern_reshape(tern_weights_get(user, "b"), 2, (const int64_t[]){8, 8}), NULL);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static void streamed_weights_and_views(void **state)
{
    const struct tern_graph_input input = {"x", TERN_F32, 2, {4, 8}};
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    struct tern_weights *w = tern_weights_create(ctx);
    tern_weights_add(w, "a", support_noise(ctx, 1, 2, (const int64_t[]){8, 8}, 1, TERN_F32));
    tern_weights_add(w, "b", support_noise(ctx, 2, 1, (const int64_t[]){64}, 1, TERN_F32));
    tern_tensor *x = support_noise(ctx, 3, 2, input.shape, 1, TERN_F32), *eager = NULL;
    assert_int_equal(by_a_view(w, &x, &eager), TERN_OK);
    struct tern_graph *graph = tern_graph_trace(ctx, by_a_view, w, w, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(graph, &(struct tern_plan_params){.without = "prepare", .resident = 1});
    struct tern_binding *b = tern_plan_bind(plan, w);
    for (int run = 0; run < 4; run++) { /* the second one writes the file */
        tern_tensor *y = NULL;
        assert_int_equal(tern_plan_run(b, &x, &y), TERN_OK);
        assert_true(support_tensor_nmse(y, eager) < 1e-12);
    }
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&graph);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* A binding of streamed weights is there, or an error is: never both. */
static void bindings_that_stream_fail_whole(void **state)
{
    const struct tern_graph_input input = {"x", TERN_F32, 2, {4, 8}};
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    struct tern_weights *w = tern_weights_create(ctx);
    tern_scope_begin(ctx);
    tern_weights_add(w, "a", support_noise(ctx, 1, 2, (const int64_t[]){8, 8}, 1, TERN_F32));
    tern_weights_add(w, "b", support_noise(ctx, 2, 1, (const int64_t[]){64}, 1, TERN_F32));
    struct tern_graph *graph = tern_graph_trace(ctx, by_a_view, w, w, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(graph, &(struct tern_plan_params){.without = "prepare", .resident = 1});
    assert_true(tern_plan_facts(plan).travels > 0);
    int faults = 0;
    for (bool failed = true; failed; faults += failed) {
        m.fail_at = m.count + faults + 1;
        struct tern_binding *b = tern_plan_bind(plan, w);
        m.fail_at = 0;
        failed = tern_error_status(ctx) != TERN_OK;
        assert_int_equal(!b, failed);
        tern_error_clear(ctx);
        tern_binding_unref(&b);
    }
    assert_true(faults > 4);
    tern_scope_end(ctx, NULL);
    tern_plan_unref(&plan);
    tern_graph_destroy(&graph);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

/* The query's heads have a stride of 0 rows. */
static enum tern_status attention_of_nothing(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *q = tern_transpose(in[0], 1, 2);
    out[0] = tern_silu(tern_sdpa(q, q, q, .is_causal = false));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static void plans_of_nothing_are_read_back(void **state)
{
    const struct tern_graph_input input = {"x", TERN_F32, 4, {2, 0, 2, 4}};
    struct tern_context *ctx = support_context();
    struct tern_graph *graph = tern_graph_trace(ctx, attention_of_nothing, NULL, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(graph, NULL);
    assert_int_equal(tern_plan_save(plan, "graph-cases.plan"), TERN_OK);
    struct tern_plan *again = tern_plan_load(ctx, "graph-cases.plan");
    if (!again)
        fail_msg("%s", tern_error(ctx));
    remove("graph-cases.plan");
    tern_plan_unref(&again);
    tern_plan_unref(&plan);
    tern_graph_destroy(&graph);
    tern_context_destroy(&ctx);
}

/* Layers of an f16 file beside f32: the kernels widen matrices, and vectors are widened for them. */
static enum tern_status mixed(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *y = tern_linear(in[0], tern_weights_get(user, "w"), tern_weights_get(user, "b"));
    out[0] = tern_conv2d(tern_reshape(y, 4, (const int64_t[]){1, 8, 2, 2}), tern_weights_get(user, "f"), tern_weights_get(user, "b"));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static void no_reference(void *user, const char *line)
{
    if (strstr(line, "by reference"))
        fail_msg("%s", line);
}

static void biases_of_halves_have_kernels(void **state)
{
    const struct tern_graph_input input = {"x", TERN_F32, 2, {4, 8}};
    struct tern_context *ctx = support_context();
    struct tern_weights *w = tern_weights_create(ctx);
    tern_scope_begin(ctx);
    tern_weights_add(w, "w", support_noise(ctx, 1, 2, (const int64_t[]){8, 8}, 1, TERN_F16));
    tern_weights_add(w, "f", support_noise(ctx, 2, 4, (const int64_t[]){8, 8, 1, 1}, 1, TERN_F16));
    tern_weights_add(w, "b", support_noise(ctx, 3, 1, (const int64_t[]){8}, 1, TERN_F16));
    struct tern_graph *graph = tern_graph_trace(ctx, mixed, w, w, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(graph, NULL);
    if (!plan)
        fail_msg("%s", tern_error(ctx));
    tern_graph_print(tern_plan_graph(plan), no_reference, NULL);
    /* what has gone through all passes is for reports: they would record it anew without what they have fused */
    assert_null(tern_plan_compile(tern_plan_graph(plan), NULL));
    support_error(ctx, TERN_E_INVALID, "found that of a plan");
    assert_null(tern_plan_cached(tern_plan_graph(plan), NULL));
    support_error(ctx, TERN_E_INVALID, "found that of a plan");
    tern_scope_end(ctx, NULL);
    tern_plan_unref(&plan);
    tern_graph_destroy(&graph);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

/* x times twice the weight, and in the second graph the sums of its rows, too. */
static tern_tensor *doubled(tern_tensor *x, struct tern_weights *w, tern_tensor **weight)
{
    *weight = tern_mul_scalar(tern_weights_get(w, "w"), 2);
    return tern_linear(x, *weight, NULL);
}

static enum tern_status product(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *weight;
    out[0] = doubled(in[0], user, &weight);
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

static enum tern_status product_and_sums(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *weight, *y = doubled(in[0], user, &weight);
    out[0] = tern_add(y, tern_sum(weight, 1, (const int[]){1}, false));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* The first binding keeps packed forms of the doubled weight alone: what the second one makes of it needs its elements. */
static void what_is_packed_is_made_again(void **state)
{
    enum { N = 64 };
    const struct tern_graph_input input = {"x", TERN_F32, 2, {N, N}};
    struct tern_context *ctx = support_context();
    struct tern_weights *w = tern_weights_create(ctx);
    struct tern_plan *plan[2];
    struct tern_binding *b[2] = {NULL};
    static float ones[N * N], found[N * N];
    tern_tensor *y = NULL;
    for (int i = 0; i < N * N; i++)
        ones[i] = 1;
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, input.shape, ones);
    assert_int_equal(tern_weights_add(w, "w", x), TERN_OK);
    for (int i = 0; i < 2; i++) {
        struct tern_graph *g = tern_graph_trace(ctx, i ? product_and_sums : product, w, w, &input, 1, 1);
        plan[i] = tern_plan_compile(g, NULL);
        tern_graph_destroy(&g);
        const size_t told = tern_plan_bind_bytes_beside(plan[i], i ? plan[0] : NULL, w, true), before = tern_memory_used(ctx);
        b[i] = tern_plan_bind_beside(plan[i], w, b[0]);
        if (!b[i])
            fail_msg("%s", tern_error(ctx));
        const size_t taken = tern_memory_used(ctx) - before;
        if (taken > told || told - taken > N * N * sizeof(float) + 4096) /* the weight's elements go when the forms are made */
            fail_msg("binding %d takes %zu bytes, told were %zu", i, taken, told);
        assert_int_equal(plan[i]->n_packed, 1);
    }
    assert_int_equal(tern_plan_run(b[1], &x, &y), TERN_OK);
    assert_int_equal(tern_tensor_read(y, TERN_F32, found, sizeof(found)), TERN_OK);
    for (int i = 0; i < N * N; i++)
        assert_true(found[i] == 4 * N); /* 64 products of 1 and 2, and 64 times 2 */
    tern_scope_end(ctx, NULL);
    for (int i = 1; i >= 0; i--) {
        tern_binding_unref(&b[i]);
        tern_plan_unref(&plan[i]);
    }
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_packed_is_made_again),
                                       cmocka_unit_test(equal_calls_that_were_rounded),
                                       cmocka_unit_test(nothing_in_tensors),
                                       cmocka_unit_test(streamed_weights_and_views),
                                       cmocka_unit_test(bindings_that_stream_fail_whole),
                                       cmocka_unit_test(plans_of_nothing_are_read_back),
                                       cmocka_unit_test(biases_of_halves_have_kernels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
