/* Tuning: the fastest kernel is found among slow, failing and hungry ones, within limits, and never fails a plan. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "ops/dispatch.h"
#include "ops/tuner.h"
#include "support.h"
#include "tune_help.h"

#define STEPS 8000 /* of a long plan */
#define SLOW 0.03  /* seconds: far from what a call of a quick kernel takes, also on a busy machine */

static int calls(void)
{
    int n = 0;
    for (int i = 0; i < TRIAL_COUNT; i++)
        n += trials[i].calls;
    return n;
}

/* The kernel of |x| at that level, with the file of `f`. */
static void expect(struct tune *f, const struct tern_tune_params *params, enum trial_kernel kernel)
{
    struct tern_context *ctx = tune_context_of(f, &(struct tern_context_params){.tune = *params});
    struct tern_plan *p = tune_plan(ctx, NULL);
    assert_string_equal(tune_kernel(p, 0), trial_names[kernel]);
    assert_int_equal(tern_error_status(ctx), TERN_OK);
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
}

static void keep(void *user, const struct tern_tuned_step *s)
{
    struct tern_tuned_step *kept = user;
    assert_null(kept->op); /* one row */
    *kept = *s;
    assert_string_equal(s->op, "abs");
    assert_string_equal(s->output, "(4096,) f32");
    assert_string_equal(s->kernel, "abs_other");
    assert_string_equal(s->usual, "abs_usual");
}

static void the_fastest_wins(void **state)
{
    struct tune f = tune_open();
    struct tern_tuned_step row = {0};
    trials[TRIAL_USUAL].seconds = SLOW;
    trials[TRIAL_DEAR].seconds = SLOW;
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_FULL);
    struct tern_plan *plain = tune_plan(ctx, &(struct tern_plan_params){.without = "tune"});
    assert_string_equal(tune_kernel(plain, 0), "abs_usual");
    assert_int_equal(calls(), 0);
    struct tern_plan *p = tune_plan(ctx, NULL);
    assert_string_equal(tune_kernel(p, 0), "abs_other");
    assert_true(trials[TRIAL_USUAL].calls <= 3 + 6 && trials[TRIAL_DEAR].calls <= 3); /* who is behind falls out */
    assert_int_equal(tern_plan_tuning(p, keep, &row), TERN_OK);
    assert_int_equal(row.steps, 1);
    assert_true(row.usual_seconds >= SLOW && row.seconds < SLOW && row.seconds > 0);
    int before = calls();
    struct tern_plan *again = tune_plan(ctx, NULL); /* nothing is measured twice */
    assert_string_equal(tune_kernel(again, 0), "abs_other");
    assert_int_equal(calls(), before);
    tune_check(p);
    tern_plan_unref(&plain);
    tern_plan_unref(&again);
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

/* Off measures nothing and takes what a file says; fast leaves out what the model finds dear, full does not. */
static void levels(void **state)
{
    struct tune f = tune_open();
    trials[TRIAL_USUAL].seconds = SLOW;
    trials[TRIAL_OTHER].seconds = 3 * SLOW;
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_OFF}, TRIAL_USUAL);
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_OFF, .cache = f.file}, TRIAL_USUAL);
    assert_int_equal(calls(), 0);
    assert_int_equal(f.warnings, 1); /* there is no such file */
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FAST, .cache = f.file}, TRIAL_USUAL);
    assert_int_equal(trials[TRIAL_DEAR].calls, 0);
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .cache = f.file}, TRIAL_DEAR);
    int before = calls();
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FAST, .cache = f.file}, TRIAL_DEAR); /* known better than it asks for */
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_OFF, .cache = f.file}, TRIAL_DEAR);
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_OFF}, TRIAL_USUAL);
    assert_int_equal(calls(), before);
    assert_int_equal(f.warnings, 1);
    tune_close(&f);
}

/* A failing kernel is out, whichever it is; with all of them failing the cost model decides. */
static void failures_are_left_out(void **state)
{
    for (int mask = 0; mask < 8; mask++) {
        struct tune f = tune_open();
        const double seconds[] = {2 * SLOW, SLOW, 0};
        for (int k = 0; k < 3; k++) {
            trials[k].seconds = seconds[k];
            trials[k].fails = mask >> k & 1;
        }
        int best = mask & 4 ? mask & 2 ? 0 : 1 : 2;
        expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .cache = f.file}, (enum trial_kernel)best);
        for (int k = 0; k < 3; k++)
            assert_true(trials[k].calls == 1 || !trials[k].fails);
        assert_int_equal(f.warnings, 0);
        tune_close(&f);
    }
}

static void memory_is_limited(void **state)
{
    struct tune f = tune_open();
    const size_t operands = 2 * TUNE_ELEMENTS * sizeof(float);
    trials[TRIAL_USUAL].seconds = SLOW;
    trials[TRIAL_DEAR].seconds = 3 * SLOW;
    trials[TRIAL_OTHER].workspace = 1 << 20;
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .bytes = operands - 1}, TRIAL_USUAL);
    assert_int_equal(calls(), 0);
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .bytes = operands + (1 << 20) - 1}, TRIAL_USUAL);
    assert_int_equal(trials[TRIAL_OTHER].calls, 0);
    assert_true(trials[TRIAL_DEAR].calls > 0);
    tune_close(&f);
    f = tune_open();
    trials[TRIAL_USUAL].seconds = SLOW;
    trials[TRIAL_OTHER].workspace = 1 << 20;
    trials[TRIAL_DEAR].fails = true;
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_FULL);
    assert_int_equal(tern_dispatch_prepare(ctx), TERN_OK);
    size_t used = tern_memory_used(ctx);
    tern_memory_reset_peak(ctx);
    struct tern_plan *p = tune_plan(ctx, NULL);
    assert_string_equal(tune_kernel(p, 0), "abs_other");
    assert_true(tern_memory_peak(ctx) - used > 1 << 20);
    assert_true(tern_memory_used(ctx) - used < 200000); /* the plan and its results, nothing of the measuring */
    tern_plan_unref(&p);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

static void time_is_limited(void **state)
{
    struct tune f = tune_open();
    trials[TRIAL_USUAL].seconds = trials[TRIAL_DEAR].seconds = SLOW;
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .cache = f.file, .seconds = 1e-9}, TRIAL_USUAL);
    assert_true(calls() == 0);
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .cache = f.file, .seconds = SLOW / 2}, TRIAL_USUAL);
    assert_int_equal(calls(), 1); /* the first call is not broken off */
    expect(&f, &(struct tern_tune_params){.level = TERN_TUNE_FULL, .cache = f.file, .seconds = 1e6}, TRIAL_OTHER);
    tune_close(&f);
}

/* |x| of many values, then - of one: below what is noticeable. */
static enum tern_status large_and_small(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_abs(in[0]);
    out[1] = tern_neg(in[1]);
    return tern_error_status(user);
}

static void fast_is_for_what_counts(void **state)
{
    for (int full = 0; full < 2; full++) {
        struct tune f = tune_open();
        const struct tern_graph_input in[] = {{"x", TERN_F32, 1, {TUNE_ELEMENTS}}, {"y", TERN_F32, 1, {1}}};
        struct tern_context *ctx = tune_context(&f, full ? TERN_TUNE_FULL : TERN_TUNE_FAST);
        struct tern_graph *g = tern_graph_trace(ctx, large_and_small, ctx, NULL, in, 2, 2);
        struct tern_plan *p = tern_plan_compile(g, NULL);
        assert_non_null(p);
        assert_true(trials[TRIAL_OTHER].calls > 0);
        assert_int_equal(trials[TRIAL_NEG].calls > 0, full);
        assert_int_equal(trials[TRIAL_NEG_OTHER].calls > 0, full);
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_context_destroy(&ctx);
        tune_close(&f);
    }
}

static enum tern_status long_chain(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = in[0];
    for (int i = 0; i < STEPS; i++)
        out[0] = tern_abs(out[0]);
    return tern_error_status(user);
}

/* What is done for each of many steps that take another kernel is not done again for all others. */
static void many_steps(void **state)
{
    const struct tern_graph_input x = {"x", TERN_F32, 1, {4}};
    struct tune f = tune_open();
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_FULL);
    trials[TRIAL_USUAL].seconds = trials[TRIAL_DEAR].seconds = SLOW;
    struct tern_graph *g = tern_graph_trace(ctx, long_chain, ctx, NULL, &x, 1, 1);
    alarm(20);
    struct tern_plan *p = tern_plan_compile(g, NULL);
    alarm(0);
    assert_string_equal(tune_kernel(p, 0), "abs_other");
    assert_string_equal(tune_kernel(p, STEPS - 1), "abs_other");
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

/* Another plan, of which nothing is measured, when a part of this one was. */
static enum tern_status exponential(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_exp(in[0]);
    return tern_error_status(user);
}

struct nested {
    struct tune f; /* first: what callbacks are given */
    struct tern_context *ctx;
    int plans;
};

static void compile_another(const struct tern_progress *progress, void *user)
{
    struct nested *n = user;
    const struct tern_graph_input in = {"x", TERN_F32, 1, {4}};
    if (strcmp(progress->stage, "tune") != 0 || n->plans++)
        return;
    struct tern_graph *g = tern_graph_trace(n->ctx, exponential, n->ctx, NULL, &in, 1, 1);
    struct tern_plan *p = tern_plan_compile(g, NULL);
    assert_non_null(p);
    assert_false(p->tuning_cut);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
}

/* The time of a plan is its own: it is over when the first call took longer, whatever is compiled meanwhile. */
static void plans_within_plans(void **state)
{
    const struct tern_graph_input in[] = {{"x", TERN_F32, 1, {TUNE_ELEMENTS}}, {"y", TERN_F32, 1, {1}}};
    struct nested n = {.f = tune_open()};
    trials[TRIAL_USUAL].seconds = trials[TRIAL_DEAR].seconds = SLOW;
    n.ctx = tune_context_of(&n.f, &(struct tern_context_params){.progress = compile_another,
                                                                .tune = {.level = TERN_TUNE_FULL, .seconds = SLOW / 2}});
    struct tern_graph *g = tern_graph_trace(n.ctx, large_and_small, n.ctx, NULL, in, 2, 2);
    struct tern_plan *p = tern_plan_compile(g, NULL);
    assert_non_null(p);
    assert_true(n.plans > 0);
    assert_int_equal(calls(), 1);
    assert_true(p->tuning_cut);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_context_destroy(&n.ctx);
    tune_close(&n.f);
}

static void a_job_can_be_cancelled(void **state)
{
    struct tune f = tune_open();
    struct tern_context *ctx = tune_context(&f, TERN_TUNE_FULL);
    struct tern_graph *g = tune_graph(ctx);
    f.cancel = true;
    assert_null(tern_plan_compile(g, NULL));
    support_error(ctx, TERN_E_CANCELLED, "");
    assert_int_equal(calls(), 0);
    f.cancel = false;
    struct tern_plan *p = tern_plan_compile(g, NULL);
    assert_non_null(p);
    tern_plan_unref(&p);
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

/* Each allocation fails once: a plan, perhaps of the model's choice, or the error; nothing is left. */
static void without_memory(void **state)
{
    long n = 1;
    bool done = false;
    for (; !done; n++) {
        struct tune f = tune_open();
        struct support_allocator a = {.fail_at = 0};
        struct tern_context *ctx = tune_context_of(&f, &(struct tern_context_params){.allocator = support_failing(&a),
                                                                                     .tune = {.level = TERN_TUNE_FULL, .cache = f.file}});
        struct tern_graph *g = tune_graph(ctx);
        a.fail_at = a.count + n;
        struct tern_plan *p = tern_plan_compile(g, NULL);
        done = a.count < a.fail_at;
        a.fail_at = 0;
        assert_int_equal(tern_error_status(ctx), p ? TERN_OK : TERN_E_NO_MEMORY);
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_context_destroy(&ctx);
        assert_int_equal(a.live, 0);
        tune_close(&f);
    }
    assert_true(n > 20);
}

/* What reading the file, measuring and writing find no error, as a candidate that fails, does not take it with it. */
static void errors_of_other_threads_stay(void **state)
{
    long n = 1;
    for (bool met = true; met; n++) {
        struct tune f = tune_open();
        struct support_other o = {.status = TERN_E_DEVICE};
        trials[TRIAL_OTHER].fails = true;
        o.ctx = tune_context_of(&f, &(struct tern_context_params){.allocator = support_other_thread(&o),
                                                                  .tune = {.level = TERN_TUNE_FULL, .cache = f.file}});
        struct tern_graph *g = tune_graph(o.ctx);
        o.at = o.count + n;
        struct tern_plan *p = tern_plan_compile(g, NULL);
        met = o.count >= o.at;
        o.at = 0;
        if (met && (tern_error_status(o.ctx) != TERN_E_DEVICE || !strstr(tern_error(o.ctx), "of another thread")))
            fail_msg("allocation %ld: \"%s\"", n, tern_error(o.ctx));
        tern_plan_unref(&p);
        tern_graph_destroy(&g);
        tern_context_destroy(&o.ctx);
        tune_close(&f);
    }
    assert_true(n > 20);
}

/* An eager op takes the fastest, too, and its context keeps the result when it ends. */
static void eager_ops(void **state)
{
    struct tune f = tune_open();
    const int64_t n = 1 << 20; /* enough work to be noticeable */
    trials[TRIAL_USUAL].seconds = 3 * SLOW;
    for (int i = 0; i < 2; i++) {
        struct tern_context *ctx = tune_context(&f, i ? TERN_TUNE_OFF : TERN_TUNE_FAST);
        tern_scope_begin(ctx);
        assert_non_null(tern_abs(tern_tensor_create(ctx, TERN_F32, 1, &n, NULL)));
        int before = trials[TRIAL_USUAL].calls, other = trials[TRIAL_OTHER].calls;
        assert_true(i || before > 0);
        assert_non_null(tern_abs(tern_tensor_create(ctx, TERN_F32, 1, &n, NULL)));
        assert_int_equal(trials[TRIAL_USUAL].calls, before);
        assert_int_equal(trials[TRIAL_OTHER].calls, other + 1);
        tern_scope_end(ctx, NULL);
        tern_context_destroy(&ctx);
    }
    tune_close(&f);
}

/* A layer of the CPU, whose candidates pack weights: the plan computes what it did. */
static enum tern_status layer(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_weights *w = user;
    out[0] = tern_silu(tern_conv2d(in[0], tern_weights_get(w, "w"), tern_weights_get(w, "b"), .padding = 1));
    return tern_error_status(tern_tensor_context(in[0]));
}

static void a_layer_of_the_cpu(void **state)
{
    struct tune f = tune_open();
    const int64_t shape[] = {2, 32, 24, 24}, filter[] = {48, 32, 3, 3}, out = 48;
    const struct tern_graph_input x = {"x", TERN_F32, 4, {2, 32, 24, 24}};
    struct tern_context *ctx = tune_context_of(&f, &(struct tern_context_params){.device = "cpu", .tune = {.level = TERN_TUNE_FULL}});
    struct tern_weights *w = tern_weights_create(ctx);
    tern_tensor *in, *y[2] = {NULL};
    int64_t n;
    tern_scope_begin(ctx);
    in = support_noise(ctx, 1, 4, shape, 1, TERN_F32);
    assert_int_equal(tern_weights_add(w, "w", support_noise(ctx, 2, 4, filter, 0.1, TERN_F32)), TERN_OK);
    assert_int_equal(tern_weights_add(w, "b", support_noise(ctx, 3, 1, &out, 1, TERN_F32)), TERN_OK);
    struct tern_graph *g = tern_graph_trace(ctx, layer, w, w, &x, 1, 1);
    float *values[2];
    for (int i = 0; i < 2; i++) {
        struct tern_plan *p = tern_plan_compile(g, &(struct tern_plan_params){.without = i ? NULL : "tune,algorithm"});
        struct tern_binding *b = tern_plan_bind(p, w);
        assert_int_equal(tern_plan_run(b, &in, &y[i]), TERN_OK);
        values[i] = support_values(y[i], &n);
        tern_binding_unref(&b);
        tern_plan_unref(&p);
    }
    assert_true(support_nmse(values[1], values[0], n) <= 1e-11);
    assert_true(ctx->tuner->known.n >= 1);
    free(values[0]);
    free(values[1]);
    tern_scope_end(ctx, NULL);
    tern_graph_destroy(&g);
    tern_weights_unref(&w);
    tern_context_destroy(&ctx);
    tune_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_fastest_wins),
        cmocka_unit_test(levels),
        cmocka_unit_test(failures_are_left_out),
        cmocka_unit_test(memory_is_limited),
        cmocka_unit_test(time_is_limited),
        cmocka_unit_test(fast_is_for_what_counts),
        cmocka_unit_test(many_steps),
        cmocka_unit_test(plans_within_plans),
        cmocka_unit_test(a_job_can_be_cancelled),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(errors_of_other_threads_stay),
        cmocka_unit_test(eager_ops),
        cmocka_unit_test(a_layer_of_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
