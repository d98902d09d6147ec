/* Plans that are made while another thread uses the context: it sees no error that is none, and what it records stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/key.h"
#include "graph/plan.h"
#include "support.h"

#define STEPS 130 /* so many are worth a file */

static const struct tern_plan_params params = {.without = "fuse"};

struct other {
    struct support_other is;
    char folder[64];
};

static struct other *other_open(enum tern_status status)
{
    struct other *o = calloc(1, sizeof(*o));
    assert_non_null(o);
    o->is.status = status;
    strcpy(o->folder, "/tmp/tern-other-XXXXXX");
    assert_non_null(mkdtemp(o->folder));
    o->is.ctx =
        tern_context_create(&(struct tern_context_params){.threads = 1, .cache_dir = o->folder, .allocator = support_other_thread(&o->is)});
    assert_non_null(o->is.ctx);
    return o;
}

static void other_close(struct other *o, const char *kind)
{
    char path[128];
    tern_context_destroy(&o->is.ctx);
    snprintf(path, sizeof(path), "%s/%s", o->folder, kind);
    rmdir(path);
    assert_int_equal(rmdir(o->folder), 0);
    free(o);
}

/* Makes something with the error coming at every of its last allocations, and at less and less of those before: it stays. `before` is
 * called before each. */
static void stays(struct other *o, void (*make)(struct other *o, void *user), void (*before)(void *user), void *user)
{
    before(user);
    const long start = o->is.count;
    make(o, user);
    const long total = o->is.count - start;
    assert_int_equal(tern_error_status(o->is.ctx), TERN_OK);
    assert_true(total > 1);
    for (long k = 0; k < total; k += 1 + k / 8) {
        before(user);
        o->is.at = o->is.count + total - k;
        make(o, user);
        const bool met = o->is.count >= o->is.at;
        o->is.at = 0;
        if (!met) /* less is allocated from the second time on */
            continue;
        if (tern_error_status(o->is.ctx) != o->is.status || !strstr(tern_error(o->is.ctx), "of another thread"))
            fail_msg("allocation %ld of %ld: \"%s\"", total - k, total, tern_error(o->is.ctx));
        tern_error_clear(o->is.ctx);
    }
}

struct planning {
    struct tern_graph *graph;
    char file[128];
    bool saves; /* there is no file yet */
};

static enum tern_status chain(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = in[0];
    for (int i = 0; i < *(const int *)user; i++)
        out[0] = tern_mul_scalar(out[0], 1.5);
    return tern_error_status(tern_tensor_context(in[0]));
}

static struct tern_graph *chain_of(struct tern_context *ctx, int steps)
{
    const struct tern_graph_input in = {"x", TERN_F32, 1, {4}};
    struct tern_graph *g = tern_graph_trace(ctx, chain, &steps, NULL, &in, 1, 1);
    assert_non_null(g);
    return g;
}

static void forget_file(void *user)
{
    const struct planning *p = user;
    if (p->saves)
        unlink(p->file);
    else
        assert_int_equal(access(p->file, R_OK), 0);
}

static void make_plan(struct other *o, void *user)
{
    const struct planning *p = user;
    struct tern_plan *plan = tern_plan_cached(p->graph, &params);
    tern_plan_unref(&plan);
    tern_plan_cache_drop(o->is.ctx);
}

static void errors_stay_where_plans_are_kept_on_disk(void **state)
{
    struct other *o = other_open(TERN_E_INVALID);
    struct planning p = {.graph = chain_of(o->is.ctx, STEPS)};
    struct tern_key key;
    char text[TERN_KEY_TEXT];
    assert_int_equal(tern_graph_key(p.graph, &params, &key), TERN_OK);
    snprintf(p.file, sizeof(p.file), "%s/plans/%s.plan", o->folder, tern_key_text(key, text));
    p.saves = true;
    stays(o, make_plan, forget_file, &p);
    make_plan(o, &p);
    p.saves = false;
    stays(o, make_plan, forget_file, &p);
    assert_int_equal(unlink(p.file), 0);
    tern_graph_destroy(&p.graph);
    other_close(o, "plans");
}

struct binding {
    struct tern_plan *plan;
    struct tern_weights *weights;
};

static enum tern_status layer(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_linear(in[0], tern_weights_get(user, "w"), NULL);
    return tern_error_status(tern_tensor_context(in[0]));
}

static void nothing(void *user) {}

static void bind(struct other *o, void *user)
{
    const struct binding *b = user;
    struct tern_binding *binding = tern_plan_bind(b->plan, b->weights);
    tern_binding_unref(&binding);
}

/* A folder that cannot be made is no error of such plans, another thread's of the same status is. */
static void errors_stay_where_weights_are_streamed(void **state)
{
    struct other *o = other_open(TERN_E_IO);
    const struct tern_graph_input in = {"x", TERN_F32, 2, {64, 64}};
    struct binding b = {.weights = tern_weights_create(o->is.ctx)};
    tern_scope_begin(o->is.ctx);
    assert_int_equal(tern_weights_add(b.weights, "w", support_noise(o->is.ctx, 1, 2, in.shape, 1, TERN_F32)), TERN_OK);
    tern_scope_end(o->is.ctx, NULL);
    struct tern_graph *g = tern_graph_trace(o->is.ctx, layer, b.weights, b.weights, &in, 1, 1);
    b.plan = tern_plan_compile(g, &(struct tern_plan_params){.resident = 1});
    assert_non_null(b.plan);
    assert_true(tern_plan_facts(b.plan).travels > 0);
    stays(o, bind, nothing, &b);
    tern_plan_unref(&b.plan);
    tern_graph_destroy(&g);
    tern_weights_unref(&b.weights);
    other_close(o, "stream");
}

/* Not for a moment: a run in another thread would end there. Who records one leaves its thread behind. */
static void a_plan_that_is_nowhere_is_no_error(void **state)
{
    struct other *o = other_open(TERN_E_INVALID);
    struct planning p = {.graph = chain_of(o->is.ctx, 2)};
    const pthread_t nobody = {0};
    make_plan(o, &p);
    assert_memory_equal(&o->is.ctx->failed, &nobody, sizeof(nobody));
    support_other_record(&o->is);
    assert_memory_not_equal(&o->is.ctx->failed, &nobody, sizeof(nobody));
    tern_graph_destroy(&p.graph);
    other_close(o, "plans");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_where_plans_are_kept_on_disk),
        cmocka_unit_test(errors_stay_where_weights_are_streamed),
        cmocka_unit_test(a_plan_that_is_nowhere_is_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
