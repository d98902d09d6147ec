/* Graphs in two: what is known early and what is not compute together what the whole does, bit for bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "conformance/random_graph.h"
#include "core/context.h"
#include "graph/plan.h"
#include "graph/split.h"
#include "support.h"

#define GRAPHS 300

/* Failures of a context are the test's. */
static void good(struct tern_context *ctx, uint64_t seed)
{
    if (tern_failed(ctx))
        fail_msg("graph %llu: %s", (unsigned long long)seed, tern_error(ctx));
}

static void same(const tern_tensor *x, const tern_tensor *y)
{
    const size_t n = (size_t)tern_tensor_numel(x);
    float *a = calloc(2 * n + 1, sizeof(*a));
    assert_int_equal(n, tern_tensor_numel(y));
    assert_int_equal(tern_tensor_read(x, TERN_F32, a, n * sizeof(*a)), TERN_OK);
    assert_int_equal(tern_tensor_read(y, TERN_F32, a + n, n * sizeof(*a)), TERN_OK);
    assert_memory_equal(a, a + n, n * sizeof(*a));
    free(a);
}

/* Where Winograd is not taken the bits are those of an eager run. */
static void run(const struct tern_graph *g, const struct tern_weights *weights, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"});
    struct tern_binding *b = tern_plan_bind(plan, weights);
    tern_plan_run(b, in, out);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
}

/* The input of that name, or the next of the cut. */
static tern_tensor *input_of(const struct tern_random_graph *r, tern_tensor *const *in, const char *name, tern_tensor *const **cut)
{
    for (int i = 0; i < r->n_inputs; i++)
        if (!strcmp(r->inputs[i].name, name))
            return in[i];
    return *(*cut)++;
}

/* Both parts in turn against the eager run. How many values were handed over. */
static int check(struct tern_context *ctx, uint64_t seed, unsigned known)
{
    struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
    tern_tensor *in[4], *given[TERN_GRAPH_MAX_IO] = {NULL}, *expected[TERN_GRAPH_MAX_IO] = {NULL}, *cut[TERN_GRAPH_MAX_IO] = {NULL},
                        *out[TERN_GRAPH_MAX_IO] = {NULL}, *const *next = cut;
    const char *names[4];
    struct tern_graph_parts parts;
    int n = 0;
    tern_scope_begin(ctx);
    tern_random_graph_inputs(&r, seed, in);
    tern_random_graph_fn(&r, in, expected);
    struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
    good(ctx, seed);
    for (int i = 0; i < r.n_inputs; i++)
        if (known >> i & 1) {
            names[n] = r.inputs[i].name;
            given[n++] = in[i];
        }
    assert_int_equal(tern_graph_split(g, names, n, &parts), TERN_OK);
    const int handed = parts.early ? parts.early->n_outputs : 0;
    if (parts.early)
        run(parts.early, r.weights, given, cut);
    good(ctx, seed);
    for (int i = 0; i < parts.late->n_inputs; i++)
        given[i] = input_of(&r, in, parts.late->values[parts.late->inputs[i]].name, &next);
    assert_int_equal(next - cut, handed);
    run(parts.late, r.weights, given, out);
    good(ctx, seed);
    for (int i = 0; i < r.n_outputs; i++)
        same(out[i], expected[i]);
    tern_graph_parts_destroy(&parts);
    tern_graph_destroy(&g);
    tern_scope_end(ctx, NULL);
    tern_random_graph_close(&r);
    return handed;
}

/* Any inputs may be known: none, some, all. */
static void parts_compute_what_the_whole_does(void **state)
{
    struct tern_context *ctx = support_context();
    int split = 0, handed = 0;
    for (uint64_t seed = 0; seed < GRAPHS; seed++)
        for (unsigned known = 0; known < 8; known++) {
            const int n = check(ctx, seed, known);
            assert_true(known || !n);
            split += n > 0;
            handed += n;
        }
    print_message("%d of %d were split; %d values were handed over\n", split, 8 * GRAPHS, handed);
    assert_true(split > GRAPHS);
    tern_context_destroy(&ctx);
}

/* x (2, 3), of which linear, reshape and sum follow, and y (2, 4) that the sum is added to. */
static enum tern_status two_inputs(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_weights *w = user;
    tern_tensor *h = tern_silu(tern_linear(in[0], tern_weights_get(w, "a"), NULL)); /* (2, 4) */
    tern_tensor *turned = tern_permute(tern_reshape(h, 3, (const int64_t[]){2, 2, 2}), 3, (const int[]){0, 2, 1});
    tern_tensor *y = tern_linear(in[1], tern_weights_get(w, "b"), NULL);
    out[0] = tern_add(turned, tern_reshape(y, 3, (const int64_t[]){2, 2, 2}));
    return tern_error_status(tern_tensor_context(in[0]));
}

static tern_tensor *ones(struct tern_context *ctx, int64_t rows, int64_t columns)
{
    return tern_full(ctx, TERN_F32, 2, (const int64_t[]){rows, columns}, 1);
}

/* The weight of what is known is not the late part's; views of the cut are. */
static void the_cut_runs_before_views(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_weights *w = tern_weights_create(ctx);
    const struct tern_graph_input inputs[] = {{"x", TERN_F32, 2, {2, 3}}, {"y", TERN_F32, 2, {2, 4}}};
    struct tern_graph_parts parts;
    tern_scope_begin(ctx);
    tern_weights_add(w, "a", ones(ctx, 4, 3));
    tern_weights_add(w, "b", ones(ctx, 4, 4));
    struct tern_graph *g = tern_graph_trace(ctx, two_inputs, w, w, inputs, 2, 1);
    assert_int_equal(tern_graph_split(g, (const char *const[]){"x", "z"}, 2, &parts), TERN_OK);
    assert_int_equal(parts.kept, 0);
    assert_int_equal(parts.early->n_inputs, 1);
    assert_int_equal(parts.early->n_outputs, 1);
    assert_int_equal(parts.early->n_nodes, 2);
    assert_int_equal(parts.late->n_inputs, 2);
    assert_string_equal(parts.late->values[parts.late->inputs[0]].name, "y");
    assert_int_equal(parts.late->n_nodes, g->n_nodes - 2);
    for (int v = 0; v < parts.late->n_values; v++)
        assert_true(parts.late->values[v].kind != TERN_VALUE_WEIGHT || !strcmp(parts.late->values[v].name, "b"));
    tern_graph_parts_destroy(&parts);
    assert_int_equal(tern_graph_split(g, (const char *const[]){"x", "y"}, 2, &parts), TERN_OK); /* the output is made late */
    assert_int_equal(parts.early->n_outputs, 2);
    assert_int_equal(parts.kept, 0);
    tern_graph_parts_destroy(&parts);
    assert_int_equal(tern_graph_split(g, NULL, 0, &parts), TERN_OK);
    assert_null(parts.early);
    assert_int_equal(parts.late->n_nodes, g->n_nodes);
    tern_graph_parts_destroy(&parts);
    tern_graph_destroy(&g);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_compute_what_the_whole_does),
        cmocka_unit_test(the_cut_runs_before_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
