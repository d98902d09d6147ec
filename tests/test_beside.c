/* What two plans of one model have in common is found, however deep it lies and with no memory left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/plan.h"
#include "support.h"

#define N 16

/* Two plans of one graph with a weight, N x N. */
struct pair {
    struct tern_context *ctx;
    struct tern_weights *weights;
    struct tern_plan *plan[2];
};

static struct pair pair_open(tern_graph_fn fn, const struct tern_allocator *allocator)
{
    const struct tern_graph_input in = {"x", TERN_F32, 2, {N, N}};
    struct pair p = {.ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = *allocator})};
    assert_non_null(p.ctx);
    p.weights = tern_weights_create(p.ctx);
    tern_scope_begin(p.ctx);
    assert_int_equal(tern_weights_add(p.weights, "w", support_noise(p.ctx, 1, 2, in.shape, 1, TERN_F32)), TERN_OK);
    tern_scope_end(p.ctx, NULL);
    struct tern_graph *g = tern_graph_trace(p.ctx, fn, p.weights, p.weights, &in, 1, 1);
    for (int i = 0; i < 2; i++) {
        p.plan[i] = tern_plan_compile(g, NULL);
        if (!p.plan[i])
            fail_msg("%s", tern_error(p.ctx));
        assert_int_equal(p.plan[i]->n_packed, 1);
    }
    tern_graph_destroy(&g);
    return p;
}

static void pair_close(struct pair *p)
{
    for (int i = 0; i < 2; i++)
        tern_plan_unref(&p->plan[i]);
    tern_weights_unref(&p->weights);
    tern_context_destroy(&p->ctx);
}

/* Of every second column of a constant and the weight. */
static enum tern_status spread(void *user, tern_tensor *const *in, tern_tensor **out)
{
    static const float values[2 * N * N] = {1, 2, 3};
    struct tern_context *ctx = tern_tensor_context(in[0]);
    tern_tensor *c = tern_slice(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){N, 2 * N}, values), 1, 0, 2 * N, 2);
    out[0] = tern_linear(in[0], tern_mul(tern_weights_get(user, "w"), c), NULL);
    return tern_error_status(ctx);
}

static bool has_spread_constant(const struct tern_plan *p)
{
    bool has = false;
    for (int i = 0; i < p->graph->n_values; i++)
        has = has || (p->graph->values[i].kind == TERN_VALUE_CONSTANT && !tern_meta_is_dense(&p->graph->values[i].meta));
    return has;
}

/* Constants are compared in copies, for which there may be no memory: a status, and no thread waits for itself. */
static void without_memory(void **state)
{
    struct support_allocator a = {0};
    const struct tern_allocator failing = support_failing(&a);
    struct pair p = pair_open(spread, &failing);
    const size_t alone = tern_plan_bind_bytes_beside(p.plan[1], NULL, p.weights, true),
                 beside = tern_plan_bind_bytes_beside(p.plan[1], p.plan[0], p.weights, true);
    const long live = a.live;
    bool done = false;
    assert_true(has_spread_constant(p.plan[0]));
    assert_true(beside < alone); /* the packed form is there */
    alarm(20);
    for (long n = 1; !done; n++) {
        a.fail_at = a.count + n;
        const size_t bytes = tern_plan_bind_bytes_beside(p.plan[1], p.plan[0], p.weights, true);
        done = a.count < a.fail_at;
        a.fail_at = 0;
        if (done)
            assert_int_equal(bytes, beside);
        else
            support_error(p.ctx, TERN_E_NO_MEMORY, "");
        assert_int_equal(a.live, live);
    }
    alarm(0);
    pair_close(&p);
    assert_int_equal(a.live, 0);
}

/* The weight, doubled so often. */
static enum tern_status doubled(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *y = tern_weights_get(user, "w");
    for (int i = 0; i < 60; i++)
        y = tern_add(y, y);
    out[0] = tern_linear(in[0], y, NULL);
    return tern_error_status(tern_tensor_context(in[0]));
}

/* Each value is looked for once, not once for each way that leads to it. */
static void many_ways_lead_to_a_weight(void **state)
{
    const struct tern_allocator none = {0};
    struct pair p = pair_open(doubled, &none);
    alarm(20);
    struct tern_binding *b = tern_plan_bind(p.plan[0], p.weights), *beside = tern_plan_bind_beside(p.plan[1], p.weights, b);
    const size_t alone = tern_plan_bind_bytes_beside(p.plan[1], NULL, p.weights, true);
    assert_non_null(beside);
    assert_true(tern_plan_bind_bytes_beside(p.plan[1], p.plan[0], p.weights, true) < alone);
    alarm(0);
    assert_ptr_equal(beside->packed[0], b->packed[0]);
    tern_binding_unref(&beside);
    tern_binding_unref(&b);
    pair_close(&p);
}

/* An arena of several buffers runs in another when each of them does: a smaller sum is not enough. */
static void arenas_fit_buffer_by_buffer(void **state)
{
    (void)state;
    size_t host[] = {600, 600}, even[] = {600, 64}, uneven[] = {700, 64}, many[] = {64, 64, 64};
    const struct tern_plan of = {.window = 1024, .buffers = host, .n_buffers = 2, .facts.arena = 1200};
    struct tern_plan guest = {.window = 1024, .buffers = even, .n_buffers = 2, .facts.arena = 664};
    assert_true(tern_plan_fits_beside(&guest, &of));
    guest.n_buffers = 0;
    guest.facts.arena = 0;
    assert_true(tern_plan_fits_beside(&guest, &of));
    guest = (struct tern_plan){.window = 1024, .buffers = uneven, .n_buffers = 2, .facts.arena = 764};
    assert_false(tern_plan_fits_beside(&guest, &of));
    guest = (struct tern_plan){.window = 1024, .buffers = many, .n_buffers = 3, .facts.arena = 192};
    assert_false(tern_plan_fits_beside(&guest, &of));
    guest = (struct tern_plan){.window = 2048, .buffers = even, .n_buffers = 2, .facts.arena = 664};
    assert_false(tern_plan_fits_beside(&guest, &of));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory),
        cmocka_unit_test(many_ways_lead_to_a_weight),
        cmocka_unit_test(arenas_fit_buffer_by_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
