/* What a plan is given at a run: inputs wherever their values are, and tensors that do not belong there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/graph.h>
#include <tern/ops.h>

#include "core/context.h"
#include "core/tensor.h"
#include "models/files/quantized.h"
#include "support.h"

static const struct tern_graph_input matrix = {"x", TERN_F32, 2, {2, 3}};

static enum tern_status negative(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_neg(in[0]);
    return TERN_OK;
}

/* A plan of one input and so many outputs, bound. */
static struct tern_binding *bound(struct tern_context *ctx, tern_graph_fn fn, int n_outputs)
{
    struct tern_graph *g = tern_graph_trace(ctx, fn, NULL, NULL, &matrix, 1, n_outputs);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    if (!b)
        fail_msg("%s", tern_error(ctx));
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    return b;
}

/* (2, 3) numbers of a file with a scale for each row: its buffer has no address. */
static tern_tensor *quantised(struct tern_context *ctx)
{
    const int64_t shape[] = {2, 3};
    struct tern_quantized_form form;
    assert_true(tern_quantized_form(8, 2, shape, &form));
    tern_tensor *numbers = tern_tensor_create(ctx, TERN_I8, 2, shape, (const int8_t[]){1, -2, 127, 0, 5, -6});
    tern_tensor *scales = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 1}, (const float[]){0.5f, 2});
    tern_tensor *t = tern_quantized_tensor(numbers, scales, &form, 0, 2, shape);
    tern_tensor_unref(&numbers);
    tern_tensor_unref(&scales);
    assert_non_null(t);
    return t;
}

static void assert_values(const tern_tensor *t, const float *expected)
{
    float found[6];
    assert_int_equal(tern_tensor_read(t, TERN_F32, found, sizeof(found)), TERN_OK);
    assert_memory_equal(found, expected, sizeof(found));
}

/* As it is and as a view of rows with steps between; and without memory for its values it is no input of zeros. */
static void values_without_an_address_are_read(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    struct tern_binding *b = bound(ctx, negative, 1);
    tern_tensor *t = quantised(ctx), *out = NULL;
    assert_int_equal(tern_plan_run(b, &t, &out), TERN_OK);
    assert_values(out, (const float[]){-0.5f, 1, -63.5f, -0.f, -10, 12});
    tern_tensor *turned = tern_reshape(t, 2, (const int64_t[]){3, 2}), *view = tern_transpose(turned, 0, 1);
    assert_int_equal(tern_plan_run(b, &view, &out), TERN_OK);
    assert_values(out, (const float[]){-0.5f, -63.5f, -10, 1, -0.f, 12});
    tern_tensor_unref(&view);
    tern_tensor_unref(&turned);
    for (long n = 1, failed = 1; failed; n++) {
        m.fail_at = m.count + n;
        enum tern_status st = tern_plan_run(b, &t, &out);
        m.fail_at = 0;
        failed = st != TERN_OK;
        assert_int_equal(tern_error_status(ctx), st);
        assert_true(n > 1 || failed);
        tern_error_clear(ctx);
    }
    assert_values(out, (const float[]){-0.5f, 1, -63.5f, -0.f, -10, 12});
    tern_tensor_unref(&t);
    tern_tensor_unref(&out);
    tern_binding_unref(&b);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

/* Symbols of a trace that has ended: an early one, whose number is one of every later trace, too, and a late one. */
static tern_tensor *early, *late;

static enum tern_status leaks(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *x = in[0];
    early = tern_tensor_ref(x);
    for (int i = 0; i < 200; i++)
        x = tern_exp(x);
    late = tern_tensor_ref(x);
    out[0] = x;
    return TERN_OK;
}

static enum tern_status uses(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *x = tern_exp(in[0]);
    out[0] = tern_add(x, *(tern_tensor **)user);
    return TERN_OK;
}

static enum tern_status hands_on(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = *(tern_tensor **)user;
    return TERN_OK;
}

static enum tern_status casts(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_cast(*(tern_tensor **)user, TERN_F32); /* itself */
    return TERN_OK;
}

static void symbols_belong_to_their_recording(void **state)
{
    static const tern_graph_fn fns[] = {uses, hands_on, casts};
    struct tern_context *ctx = support_context();
    struct tern_graph *g = tern_graph_trace(ctx, leaks, NULL, NULL, &matrix, 1, 1);
    assert_non_null(g);
    for (int i = 0; i < 6; i++) {
        assert_null(tern_graph_trace(ctx, fns[i / 2], i % 2 ? &late : &early, NULL, &matrix, 1, 1));
        support_error(ctx, TERN_E_INVALID, "a graph whose recording has ended");
    }
    tern_graph_destroy(&g);

    struct tern_binding *b = bound(ctx, negative, 1);
    tern_tensor *out = NULL;
    assert_int_equal(tern_plan_run(b, &early, &out), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "plan: input \"x\": expected values");
    assert_null(out);
    tern_binding_unref(&b);

    struct tern_weights *w = tern_weights_create(ctx);
    assert_int_equal(tern_weights_add(w, "x", early), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "tern_weights_add: \"x\": expected values");
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, NULL);
    assert_int_equal(tern_weights_add(w, "x", t), TERN_OK);
    assert_null(tern_weights_derive(w, &(struct tern_weights_change){"x", early}, 1));
    support_error(ctx, TERN_E_INVALID, "without a tensor that has values");
    tern_weights_unref(&w);
    tern_tensor_unref(&t);
    tern_tensor_unref(&early);
    tern_tensor_unref(&late);
    tern_context_destroy(&ctx);
}

/* A function that leaves a scope open, one that ends or renews a scope that is not its own, and one that stops within a scope of its own. */
static enum tern_status mistakes_scopes(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_context *ctx = tern_tensor_context(in[0]);
    const int how = *(int *)user;
    if (how == 0 || how == 3)
        tern_scope_begin(ctx);
    out[0] = how == 3 ? tern_reshape(in[0], 1, (const int64_t[]){7}) : tern_neg(in[0]);
    if (how == 1)
        tern_scope_end(ctx, NULL);
    if (how == 2)
        tern_scope_next(ctx, NULL);
    return how == 3 ? tern_error_status(ctx) : TERN_OK;
}

static void scopes_of_a_trace_are_its_own(void **state)
{
    static const char *const said[] = {"the function left 1 scope open", "tern_scope_end without", "tern_scope_next without", "reshape"};
    struct tern_context *ctx = support_context();
    for (int i = 0; i < 8; i++) {
        const bool within = i >= 4;
        int how = i % 4;
        float x = 0;
        if (within)
            tern_scope_begin(ctx);
        tern_tensor *t = tern_tensor_scalar(ctx, TERN_F32, 3);
        assert_null(tern_graph_trace(ctx, mistakes_scopes, &how, NULL, &matrix, 1, 1));
        support_error(ctx, how == 3 ? TERN_E_SHAPE : TERN_E_INVALID, said[how]);
        assert_int_equal(ctx->scopes.depth, within);
        assert_int_equal(tern_tensor_read(t, TERN_F32, &x, sizeof(x)), TERN_OK);
        assert_float_equal(x, 3, 0);
        if (within)
            tern_scope_end(ctx, NULL);
        else
            tern_tensor_unref(&t);
        assert_int_equal(ctx->scopes.depth, 0);
    }
    tern_context_destroy(&ctx);
}

static enum tern_status sign_and_square(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_neg(in[0]);
    out[1] = tern_square(in[0]);
    return TERN_OK;
}

/* An observer that leaves scopes open, and one that ends the run's. */
static void opens_scopes(void *user, const struct tern_step_profile *step) { tern_scope_begin(user); }
static void ends_scopes(void *user, const struct tern_step_profile *step) { tern_scope_end(user, NULL); }

static void scopes_of_a_run_are_its_own(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_binding *b = bound(ctx, sign_and_square, 2);
    for (int i = 0; i < 4; i++) {
        const bool within = i >= 2, ends = i % 2;
        if (within)
            tern_scope_begin(ctx);
        tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, (const float[]){1, 2, 3, 4, 5, 6}), *out[2] = {NULL};
        assert_int_equal(tern_plan_profile(b, &in, out, ends ? ends_scopes : opens_scopes, ctx), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, ends ? "tern_scope_end without" : "plan: a callback left");
        assert_int_equal(ctx->scopes.depth, within);
        assert_true(!out[0] && !out[1]);
        if (within)
            tern_scope_end(ctx, NULL);
        else
            tern_tensor_unref(&in);
        assert_int_equal(ctx->scopes.depth, 0);
    }
    tern_binding_unref(&b);
    tern_context_destroy(&ctx);
}

/* A callback that makes a tensor of its own. */
struct maker {
    struct tern_context *ctx;
    tern_tensor *made;
};

static bool makes(void *user)
{
    struct maker *m = user;
    if (m->ctx && !m->made)
        m->made = tern_tensor_create(m->ctx, TERN_F32, 2, matrix.shape, (const float[]){6, 5, 4, 3, 2, 1});
    return false;
}

static void makes_too(void *user, const struct tern_step_profile *step) { makes(user); }

/* It is the callback's wherever it is asked: in a run that makes its outputs, in one that is given them, for an op that has scopes of its
 * own (f16 that is computed in f32), and when the caller has a scope open. */
static void what_a_callback_makes_is_its_own(void **state)
{
    enum { MADE, GIVEN, OBSERVED, EAGER, WAYS };
    for (int i = 0; i < 2 * WAYS; i++) {
        struct maker m = {NULL, NULL};
        struct tern_context *ctx =
            tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = i % WAYS == OBSERVED ? NULL : makes, .user = &m});
        struct tern_binding *b = bound(ctx, sign_and_square, 2);
        tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, (const float[]){1, 2, 3, 4, 5, 6}), *out[2] = {NULL};
        tern_tensor *half = tern_cast(in, TERN_F16), *y = NULL;
        if (i % WAYS == GIVEN)
            assert_int_equal(tern_plan_run(b, &in, out), TERN_OK);
        assert_int_equal(tern_op_force(ctx, "reference"), TERN_OK);
        m.ctx = ctx;
        if (i >= WAYS)
            tern_scope_begin(ctx);
        if (i % WAYS == EAGER)
            y = tern_softmax(half, 1);
        else if (i % WAYS == OBSERVED)
            assert_int_equal(tern_plan_profile(b, &in, out, makes_too, &m), TERN_OK);
        else
            assert_int_equal(tern_plan_run(b, &in, out), TERN_OK);
        if (i >= WAYS)
            tern_scope_end_many(ctx, (tern_tensor *[]){NULL}, 1);
        assert_non_null(m.made);
        assert_values(m.made, (const float[]){6, 5, 4, 3, 2, 1});
        tern_tensor *all[] = {m.made,
                              in,
                              half,
                              i >= WAYS ? NULL : y,
                              i >= WAYS && i % WAYS != GIVEN ? NULL : out[0],
                              i >= WAYS && i % WAYS != GIVEN ? NULL : out[1]};
        for (int k = 0; k < 6; k++)
            tern_tensor_unref(&all[k]);
        assert_false(tern_failed(ctx));
        tern_binding_unref(&b);
        tern_context_destroy(&ctx);
    }
}

static void outputs_have_memory_of_their_own(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_binding *b = bound(ctx, sign_and_square, 2);
    tern_tensor *in = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, (const float[]){1, 2, 3, 4, 5, 6}), *out[2] = {NULL};
    assert_int_equal(tern_plan_run(b, &in, out), TERN_OK);
    tern_tensor *view = tern_reshape(out[0], 2, matrix.shape), *same[] = {out[0], out[0]}, *alike[] = {view, out[0]};
    assert_int_equal(tern_plan_run(b, &in, same), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "plan: output 1: expected memory of its own");
    assert_int_equal(tern_plan_run(b, &in, alike), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "plan: output 1: expected memory of its own");
    assert_int_equal(tern_plan_run(b, out, out), TERN_E_INVALID); /* the input would be gone before the second op reads it */
    support_error(ctx, TERN_E_INVALID, "plan: output 0: expected memory of its own");
    assert_int_equal(tern_plan_run(b, &view, out), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "plan: output 0: expected memory of its own");
    assert_int_equal(tern_plan_run(b, &in, out), TERN_OK);
    assert_values(out[0], (const float[]){-1, -2, -3, -4, -5, -6});
    assert_values(out[1], (const float[]){1, 4, 9, 16, 25, 36});
    tern_tensor *all[] = {in, view, out[0], out[1]};
    for (int i = 0; i < 4; i++)
        tern_tensor_unref(&all[i]);
    tern_binding_unref(&b);
    tern_context_destroy(&ctx);
}

static enum tern_status scales(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_mul(in[0], tern_weights_get(user, "w"));
    return TERN_OK;
}

static void refused(struct tern_context *ctx, const tern_tensor *result)
{
    assert_null(result);
    support_error(ctx, TERN_E_INVALID, "of another");
}

/* Of another context, on the same device and on one whose memory is nowhere. */
static void tensors_belong_to_their_context(void **state)
{
    static const char *const devices[] = {"cpu", "null"};
    struct tern_context *ctx = support_context();
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, NULL), *m = tern_reshape(x, 2, (const int64_t[]){3, 2});
    for (int i = 0; i < 2; i++) {
        struct tern_context *other = tern_context_create(&(struct tern_context_params){.device = devices[i], .threads = 1});
        tern_scope_begin(other);
        tern_tensor *y = tern_tensor_create(other, TERN_F32, 2, matrix.shape, NULL), *out = NULL;
        refused(ctx, tern_add(x, y));
        refused(other, tern_add(y, x));
        refused(ctx, tern_where(tern_eq(x, x), x, y));
        refused(ctx, tern_matmul(m, y));
        refused(ctx, tern_linear(x, y, NULL));
        refused(ctx, tern_sdpa(x, x, x, .attn_mask = y));
        refused(other, tern_cat((tern_tensor *[]){x, y}, 2, 0));

        struct tern_binding *b = bound(ctx, negative, 1);
        assert_int_equal(tern_plan_run(b, &y, &out), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "plan: input \"x\": expected a tensor of the plan's context");
        assert_int_equal(tern_plan_run(b, &x, &y), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "plan: output 0: expected a tensor of the plan's context");
        tern_binding_unref(&b);

        struct tern_weights *own = tern_weights_create(ctx), *w = tern_weights_create(other);
        tern_weights_add(own, "w", x);
        tern_weights_add(w, "w", y);
        assert_null(tern_graph_trace(ctx, uses, &y, NULL, &matrix, 1, 1));
        support_error(ctx, TERN_E_INVALID, "add: input 1 of (x other) is of another context");
        assert_null(tern_graph_trace(ctx, hands_on, &y, NULL, &matrix, 1, 1));
        support_error(ctx, TERN_E_INVALID, "graph: outputs: expected tensors of the context that records");
        struct tern_graph *g = tern_graph_trace(ctx, scales, own, own, &matrix, 1, 1);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        assert_non_null(plan);
        assert_null(tern_plan_bind(plan, w));
        support_error(ctx, TERN_E_INVALID, "plan: weight \"w\": expected a tensor of the plan's context");
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
        tern_weights_unref(&own);
        tern_weights_unref(&w);
        tern_context_destroy(&other);
    }
    tern_context_destroy(&ctx);
}

/* ---- what plans keep other forms of does not change */

static enum tern_status plus_weight(void *weights, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add(in[0], tern_weights_get(weights, "w"));
    return TERN_OK;
}

static enum tern_status plus_weights(void *user, tern_tensor *const *in, tern_tensor **out)
{
    tern_tensor *first = tern_add(in[0], tern_weights_get(user, "w"));
    out[0] = tern_add(first, tern_weights_get(user, "z"));
    return out[0] ? TERN_OK : TERN_E_INVALID;
}

/* Neither itself nor through a view from before; what a plan could not be bound to still is. */
static void bound_weights_are_not_written_to(void **state)
{
    static const float values[] = {1, 2, 3, 4, 5, 6}, zeros[6];
    struct tern_context *ctx = support_context();
    struct tern_weights *weights = tern_weights_create(ctx);
    tern_scope_begin(ctx);
    tern_tensor *w = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, zeros), *flat = tern_reshape(w, 1, (const int64_t[]){6});
    tern_tensor *again = tern_reshape(flat, 2, matrix.shape), *x = tern_tensor_create(ctx, TERN_F32, 2, matrix.shape, values);
    assert_int_equal(tern_weights_add(weights, "w", w), TERN_OK);
    assert_int_equal(tern_weights_add(weights, "z", x), TERN_OK);
    struct tern_graph *g = tern_graph_trace(ctx, plus_weight, weights, weights, &matrix, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_graph *more = tern_graph_trace(ctx, plus_weights, weights, weights, &matrix, 1, 1);
    struct tern_plan *wants = tern_plan_compile(more, NULL);
    tern_weights_unref(&weights);
    weights = tern_weights_create(ctx); /* without what only the second graph reads */
    assert_int_equal(tern_weights_add(weights, "w", w), TERN_OK);
    assert_null(tern_plan_bind(wants, weights));
    support_error(ctx, TERN_E_NOT_FOUND, "plan: weight \"z\"");
    tern_plan_unref(&wants);
    tern_graph_destroy(&more);
    assert_int_equal(tern_tensor_write(w, TERN_F32, values, sizeof(values)), TERN_OK); /* a set may be filled until it is bound */
    struct tern_binding *b = tern_plan_bind(plan, weights);
    assert_non_null(b);
    tern_tensor *const over[] = {w, flat, again};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tern_tensor_write(over[i], TERN_F32, zeros, sizeof(zeros)), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "found a weight");
    }
    for (int i = 0; i < 3; i += 2) {
        tern_tensor *out = over[i];
        assert_int_equal(tern_plan_run(b, &x, &out), TERN_E_INVALID);
        support_error(ctx, TERN_E_INVALID, "output 0: expected (2, 3) f32 from an earlier run, found (2, 3) f32 of a weight");
    }
    tern_tensor *out = NULL;
    assert_int_equal(tern_plan_run(b, &x, &out), TERN_OK);
    assert_values(out, (const float[]){2, 4, 6, 8, 10, 12});
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&weights);
    tern_context_destroy(&ctx);
}

#define SIDE 200 /* a matrix of f32 is more than the 64 KiB that were always copied */

static enum tern_status plus_constant(void *c, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add(in[0], c);
    out[1] = tern_mul(in[0], tern_transpose(c, 0, 1));
    return TERN_OK;
}

static void fill(tern_tensor *t, float value)
{
    static float values[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++)
        values[i] = value;
    assert_int_equal(tern_tensor_write(t, TERN_F32, values, sizeof(values)), TERN_OK);
}

/* Every value of a run on ones, with a constant whose values were that when the plan was compiled. */
static void assert_run(struct tern_binding *b, tern_tensor *x, float constant)
{
    static float found[SIDE * SIDE];
    tern_tensor *out[2] = {NULL, NULL};
    assert_int_equal(tern_plan_run(b, &x, out), TERN_OK);
    for (int o = 0; o < 2; o++) {
        assert_int_equal(tern_tensor_read(out[o], TERN_F32, found, sizeof(found)), TERN_OK);
        for (int i = 0; i < SIDE * SIDE; i++)
            assert_true(found[i] == (o ? constant : 1 + constant));
    }
}

/* And the plan that the context keeps is no other graph's, whose constant has other values. */
static void constants_are_those_of_the_compilation(void **state)
{
    const struct tern_graph_input input = {"x", TERN_F32, 2, {SIDE, SIDE}};
    struct tern_context *ctx = support_context();
    struct tern_binding *b[3];
    tern_scope_begin(ctx);
    tern_tensor *x = tern_tensor_create(ctx, TERN_F32, 2, input.shape, NULL), *c = tern_tensor_create(ctx, TERN_F32, 2, input.shape, NULL);
    fill(x, 1);
    for (int i = 0; i < 3; i++) { /* 2, 3 and 2 again */
        fill(c, (float)(2 + i % 2));
        struct tern_graph *g = tern_graph_trace(ctx, plus_constant, c, NULL, &input, 1, 2);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        b[i] = tern_plan_bind(plan, NULL);
        assert_non_null(b[i]);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
    }
    fill(c, 7);
    for (int i = 0; i < 3; i++) {
        assert_run(b[i], x, (float)(2 + i % 2));
        tern_binding_unref(&b[i]);
    }
    tern_scope_end(ctx, NULL);
    tern_context_destroy(&ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_without_an_address_are_read),     cmocka_unit_test(symbols_belong_to_their_recording),
        cmocka_unit_test(scopes_of_a_trace_are_its_own),          cmocka_unit_test(scopes_of_a_run_are_its_own),
        cmocka_unit_test(what_a_callback_makes_is_its_own),       cmocka_unit_test(outputs_have_memory_of_their_own),
        cmocka_unit_test(tensors_belong_to_their_context),        cmocka_unit_test(bound_weights_are_not_written_to),
        cmocka_unit_test(constants_are_those_of_the_compilation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
