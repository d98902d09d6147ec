/* Tiling: in bands of rows pictures come out as they do whole, in less memory. */
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
#include "model_help.h"
#include "models/pipelines/pipeline.h"
#include "support.h"

#define NEAR 1e-12 /* NMSE: statistics are rounded once more */

static int joins(const struct tern_plan *p)
{
    const struct tern_graph *g = tern_plan_graph(p);
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++)
        n += !g->nodes[i].dead && g->nodes[i].kind == TERN_CALL_JOIN;
    return n;
}

/* Runs the plan of a graph within `arena` bytes; the worst NMSE against the outputs of the plan without a limit. */
static double compare(struct tern_context *ctx, const struct tern_graph *g, const struct tern_weights *w, size_t arena,
                      tern_tensor *const *in, tern_tensor *const *expected, struct tern_plan_facts *facts, int *parts)
{
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    double worst = 0;
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm", .arena = arena});
    struct tern_binding *b = tern_plan_bind(plan, w);
    if (tern_plan_run(b, in, out))
        fail_msg("%s", tern_error(ctx));
    for (int i = 0; expected[i]; i++) {
        double e = support_tensor_nmse(out[i], expected[i]);
        worst = e > worst ? e : worst;
    }
    *facts = tern_plan_facts(plan);
    *parts = joins(plan);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    return worst;
}

/* Tall pictures, one at a time. */
static void random_graphs_agree(void **state)
{
    struct tern_context *ctx = support_context();
    int tiled = 0, smaller = 0;
    for (uint64_t seed = 0; seed < 450; seed++) {
        struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
        struct tern_plan_facts facts, whole;
        tern_tensor *in[4], *expected[TERN_GRAPH_MAX_IO] = {NULL};
        int parts, parts_whole;
        for (int i = 0; i < r.n_inputs; i++)
            r.inputs[i].shape[0] = 1;
        r.inputs[0].shape[2] = 33 + (int64_t)(seed % 20);
        tern_scope_begin(ctx);
        tern_random_graph_inputs(&r, seed, in);
        tern_random_graph_fn(&r, in, expected);
        struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
        double e = compare(ctx, g, r.weights, 0, in, expected, &whole, &parts_whole);
        assert_true(e == 0);
        e = compare(ctx, g, r.weights, 1, in, expected, &facts, &parts);
        if (!(e <= NEAR))
            fail_msg("graph %llu: NMSE %g", (unsigned long long)seed, e);
        assert_true(facts.arena <= whole.arena);
        tiled += parts > parts_whole;
        smaller += facts.arena < whole.arena;
        tern_scope_end(ctx, NULL);
        tern_graph_destroy(&g);
        tern_random_graph_close(&r);
    }
    print_message("%d of 450 graphs are tiled, %d are smaller\n", tiled, smaller);
    assert_true(tiled > 15 && smaller >= tiled);
    tern_context_destroy(&ctx);
}

/* Both halves of a VAE, of sizes that the bands do not divide, at several limits: the tighter, the smaller, down to a part of the
 * whole. */
static void halves_of_a_vae_agree(void **state)
{
    static const char *const components[] = {"vae_decoder", "vae_encoder"};
    static const struct tern_graph_size sizes[] = {{1, 256, 256}, {1, 192, 280}, {1, 128, 328}};
    struct tern_context *ctx = support_context();
    char path[PATH_SIZE];
    struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
    for (int c = 0; c < 2; c++)
        for (int s = 0; s < 3; s++) {
            struct tern_graph *g = tern_pipeline_graph(p, components[c], &sizes[s]);
            const struct tern_weights *w = tern_pipeline_weights(p, components[c]);
            tern_tensor *expected[TERN_GRAPH_MAX_IO] = {NULL};
            struct tern_plan_facts facts, whole;
            int parts;
            tern_scope_begin(ctx);
            const struct tern_value *v = &g->values[g->inputs[0]];
            float *noise = calloc((size_t)tern_meta_numel(&v->meta), sizeof(*noise));
            struct tern_generator random;
            tern_generator_seed(&random, TERN_GENERATOR_CPU, 1);
            tern_generator_randn(&random, noise, tern_meta_numel(&v->meta));
            tern_tensor *in = tern_tensor_create(ctx, TERN_F32, v->meta.ndim, v->meta.shape, noise);
            free(noise);
            struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"});
            struct tern_binding *b = tern_plan_bind(plan, w);
            assert_int_equal(tern_plan_run(b, &in, expected), TERN_OK);
            whole = tern_plan_facts(plan);
            size_t before = whole.arena;
            for (int part = 1; part <= 8; part *= 2) {
                double e = compare(ctx, g, w, whole.arena / (size_t)part, &in, expected, &facts, &parts);
                if (!(e <= NEAR))
                    fail_msg("%s %d: NMSE %g", components[c], s, e);
                print_message("%s %d x %d: arena %.3f of the whole, asked 1/%d, NMSE %.2g\n", components[c], sizes[s].width,
                              sizes[s].height, (double)facts.arena / (double)whole.arena, part, e);
                assert_true(facts.arena <= before && (part > 1) == (parts > 0));
                before = facts.arena;
            }
            assert_true(facts.arena < 0.7 * (double)whole.arena);
            tern_scope_end(ctx, NULL);
            tern_binding_unref(&b);
            tern_plan_unref(&plan);
            tern_graph_destroy(&g);
        }
    tern_pipeline_destroy(&p);
    tern_context_destroy(&ctx);
}

/* The decoder, on a device whose buffers hold little more than half of its largest result. */
static void what_no_buffer_holds_is_tiled(void **state)
{
    static float found[2][3 * 192 * 280];
    char path[PATH_SIZE];
    size_t window = 0;
    for (int small = 0; small < 2; small++) {
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 2, .cache_dir = "/proc/none"});
        struct tern_pipeline *p = model_load(ctx, model_path("demo", path));
        const struct tern_stage stage = {.component = "vae_decoder", .size = {1, 192, 280}};
        ctx->device->caps.max_buffer = window;
        struct tern_binding *b = tern_pipeline_binding(p, &stage);
        if (!b)
            fail_msg("buffers of %zu bytes: %s", window, tern_error(ctx));
        const struct tern_plan *plan = tern_binding_plan(b);
        assert_int_equal(joins(plan) > 0, small);
        for (int i = 0; i < plan->n_blocks; i++) {
            const size_t size = plan->blocks[i].size;
            assert_true(!small || size <= window);
            window = !small && !plan->blocks[i].scratch && size / 8 * 5 > window ? size / 8 * 5 : window;
        }
        model_run(b, found[small], sizeof(found[small]));
        tern_binding_unref(&b);
        tern_pipeline_destroy(&p);
        tern_context_destroy(&ctx);
    }
    assert_true(support_nmse(found[1], found[0], 3 * 192 * 280) <= 100 * NEAR); /* with Winograd */
}

/* A decoder's last block: three convolutions, norms, a shortcut, twice the size. */
static enum tern_status block(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_random_graph *r = user;
    tern_tensor *first = tern_weights_get(r->weights, "conv.2.0.weight"), *second = tern_weights_get(r->weights, "conv.0.0.weight");
    tern_tensor *shortcut = tern_weights_get(r->weights, "conv.2.0.weight");
    tern_tensor *same = tern_weights_get(r->weights, "conv.2.2.weight"), *x = tern_conv2d(in[0], same, NULL, .padding = 1);
    tern_tensor *up = tern_conv2d(tern_interpolate(x, .scale_factor = 2), same, NULL, .padding = 1);
    tern_tensor *h = tern_conv2d(tern_silu(tern_group_norm(up, 4, NULL, NULL, 1e-6)), first, NULL, .padding = 1);
    h = tern_conv2d(tern_silu(tern_group_norm(h, 4, NULL, NULL, 1e-6)), second, NULL, .padding = 1);
    out[0] = tern_tanh(tern_add(tern_conv2d(up, shortcut, NULL, .padding = 1), h));
    out[0] = tern_mean(out[0], 1, (const int[]){1}, true);
    return tern_error_status(r->ctx);
}

static struct tern_graph *trace_block(struct tern_random_graph *r)
{
    const struct tern_graph_input input = {"x", TERN_F32, 4, {1, 12, 128, 80}};
    return tern_graph_trace(r->ctx, block, r, r->weights, &input, 1, 1);
}

/* Every allocation of a tiled compilation fails once. */
static void faults_are_statuses(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct tern_graph *g = trace_block(&r);
    int faults = 0;
    bool failed = true;
    for (long n = 1; failed; n++, faults++) {
        m.fail_at = m.count + n;
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.arena = 1});
        m.fail_at = 0;
        failed = tern_error_status(ctx) != TERN_OK;
        assert_int_equal(plan != NULL, !failed);
        if (failed)
            assert_int_equal(tern_error_status(ctx), TERN_E_NO_MEMORY);
        else
            assert_true(joins(plan) > 0);
        tern_error_clear(ctx);
        tern_plan_unref(&plan);
    }
    print_message("%d faults\n", faults);
    assert_true(faults > 100);
    tern_graph_destroy(&g);
    tern_random_graph_close(&r);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

/* Without recomputing, the block needs its input twice the size, what the first convolution makes and the sum; then less and less. */
static void results_are_computed_again(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct tern_graph *g = trace_block(&r);
    const size_t up = 12 * 256 * 160 * sizeof(float), h = up / 3;
    const size_t slack = up * 3 / 4, limits[] = {up + 2 * h + slack, up + h + slack}; /* bands, and what the kernels work in */
    struct tern_plan *whole = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm"});
    assert_true(tern_plan_facts(whole).arena >= 2 * up);
    for (int i = 0; i < 2; i++) {
        struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "algorithm", .arena = limits[i]});
        if (tern_plan_facts(plan).arena > limits[i])
            fail_msg("asked %zu bytes, the arena has %zu of %zu", limits[i], tern_plan_facts(plan).arena, tern_plan_facts(whole).arena);
        assert_true(tern_plan_facts(plan).resident == tern_plan_facts(whole).resident); /* bands share prepared weights */
        tern_plan_unref(&plan);
    }
    tern_plan_unref(&whole);
    tern_graph_destroy(&g);
    tern_random_graph_close(&r);
    tern_context_destroy(&ctx);
}

#define DIAMONDS 40

/* x = a function of x, and another of x, again and again: 2^40 ways from the end to the beginning. */
static enum tern_status trace_diamonds(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *x = tern_interpolate(tern_conv2d(in[0], in[1], NULL), .scale_factor = 2);
    for (int i = 0; i < DIAMONDS; i++)
        x = tern_mul(tern_tanh(x), tern_sigmoid(x));
    out[0] = tern_conv2d(x, in[1], NULL, .stride = 2);
    return tern_error_status(user);
}

static void many_ways_are_one(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input in[] = {{.name = "x", .ndim = 4, .shape = {1, 8, 48, 32}},
                                          {.name = "w", .ndim = 4, .shape = {8, 8, 1, 1}}};
    struct tern_graph *g = tern_graph_trace(ctx, trace_diamonds, ctx, NULL, in, 2, 1);
    ctx->device->caps.max_buffer = 2 * 8 * 48 * 32 * sizeof(float); /* twice the input, half of each result between */
    struct tern_plan *plan = tern_plan_compile(g, &(struct tern_plan_params){.without = "fuse"});
    assert_null(plan); /* found out at once: what has to be computed so often is left whole */
    support_error(ctx, TERN_E_NO_MEMORY, "a smaller picture would help");
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_agree),           cmocka_unit_test(halves_of_a_vae_agree),
        cmocka_unit_test(what_no_buffer_holds_is_tiled), cmocka_unit_test(results_are_computed_again),
        cmocka_unit_test(faults_are_statuses),           cmocka_unit_test(many_ways_are_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
