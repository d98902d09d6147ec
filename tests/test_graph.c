/* Graphs: what is compiled gives what runs eagerly, for random graphs and every choice of passes. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tern/ops.h>

#include "conformance/random_graph.h"
#include "core/context.h"
#include "graph/graph.h"
#include "support.h"

#define GRAPHS 500

static float *values(const tern_tensor *t, int64_t *n)
{
    *n = tern_tensor_numel(t);
    float *v = calloc((size_t)*n + 1, sizeof(*v));
    assert_non_null(v);
    assert_int_equal(tern_tensor_read(t, TERN_F32, v, (size_t)*n * sizeof(*v)), TERN_OK);
    return v;
}

/* NMSE of y against x; 0 means the same bits. */
static double difference(const tern_tensor *y, const tern_tensor *x)
{
    int64_t n, m;
    assert_int_equal(tern_tensor_ndim(y), tern_tensor_ndim(x));
    float *a = values(y, &n), *b = values(x, &m);
    assert_int_equal(n, m);
    double e = memcmp(a, b, (size_t)n * sizeof(*a)) ? support_nmse(a, b, n) : 0;
    if (e == 0 && memcmp(a, b, (size_t)n * sizeof(*a)))
        e = 1e-300; /* equal values, other bits */
    free(a);
    free(b);
    return e;
}

static void fail_with(struct tern_context *ctx, const struct tern_random_graph *r, const char *what)
{
    if (tern_error_status(ctx))
        fail_msg("graph %llu: %s: %s", (unsigned long long)r->seed, what, tern_error(ctx));
}

/* A random graph, its inputs, and what it gives eagerly. */
struct subject {
    struct tern_context *ctx;
    struct tern_random_graph r;
    struct tern_graph *g;
    tern_tensor *in[4], *eager[TERN_GRAPH_MAX_IO];
};

static void open_subject(struct subject *s, struct tern_context *ctx, uint64_t seed)
{
    *s = (struct subject){.ctx = ctx, .r = tern_random_graph_make(ctx, seed, 1)};
    tern_scope_begin(ctx);
    tern_random_graph_inputs(&s->r, seed, s->in);
    tern_random_graph_fn(&s->r, s->in, s->eager);
    fail_with(ctx, &s->r, "eager");
    s->g = tern_graph_trace(ctx, tern_random_graph_fn, &s->r, s->r.weights, s->r.inputs, s->r.n_inputs, s->r.n_outputs);
    fail_with(ctx, &s->r, "trace");
}

static void close_subject(struct subject *s)
{
    tern_scope_end(s->ctx, NULL);
    tern_graph_destroy(&s->g);
    tern_random_graph_close(&s->r);
}

/* Runs it as a plan without some passes; the worst NMSE of its outputs. */
static double compare(const struct subject *s, const char *without)
{
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    double worst = 0;
    tern_scope_begin(s->ctx);
    struct tern_plan *plan = tern_plan_compile(s->g, &(struct tern_plan_params){.without = without});
    fail_with(s->ctx, &s->r, "compile");
    struct tern_binding *b = tern_plan_bind(plan, s->r.weights);
    fail_with(s->ctx, &s->r, "bind");
    for (int again = 0; again < 2; again++) { /* the second run has the memory of the first */
        assert_int_equal(tern_plan_run(b, s->in, out), TERN_OK);
        for (int i = 0; i < s->r.n_outputs; i++) {
            double e = difference(out[i], s->eager[i]);
            worst = e > worst ? e : worst;
        }
    }
    tern_scope_end(s->ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    return worst;
}

/* Plans give the bits of the eager run but where they may take another algorithm: the limit of the NMSE. */
static double limit_of(const char *without) { return without && (strstr(without, "algorithm") || strstr(without, "all")) ? 0 : 1e-10; }

/* "all" but these two passes, which may be the same. */
static const char *all_but(const char *a, const char *b, char out[128])
{
    strcpy(out, "");
    for (int i = 0; tern_passes[i]; i++)
        if (strcmp(tern_passes[i]->name, a) != 0 && strcmp(tern_passes[i]->name, b) != 0)
            snprintf(out + strlen(out), 128 - strlen(out), "%s%s", *out ? "," : "", tern_passes[i]->name);
    return out;
}

static void check(const struct subject *s, const char *without)
{
    double e = compare(s, without);
    if (!(e <= limit_of(without)))
        fail_msg("graph %llu without %s: NMSE %g", (unsigned long long)s->r.seed, without ? without : "nothing", e);
}

/* No pass, each pass alone, each pair, all. */
static void random_graphs_agree(void **state)
{
    struct tern_context *ctx = support_context();
    struct subject s;
    char without[128];
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        open_subject(&s, ctx, seed);
        check(&s, "all");
        check(&s, NULL);
        check(&s, "algorithm");
        for (int a = 0; tern_passes[a]; a++)
            for (int b = a; tern_passes[b]; b++)
                check(&s, all_but(tern_passes[a]->name, tern_passes[b]->name, without));
        close_subject(&s);
    }
    tern_context_destroy(&ctx);
}

/* A second set of weights through the same plan. */
static void one_plan_serves_many_sets(void **state)
{
    struct tern_context *ctx = support_context();
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct tern_random_graph a = tern_random_graph_make(ctx, seed, 1), b = tern_random_graph_make(ctx, seed, 2);
        tern_tensor *in[4], *expected[TERN_GRAPH_MAX_IO] = {NULL}, *out[TERN_GRAPH_MAX_IO] = {NULL};
        tern_scope_begin(ctx);
        tern_random_graph_inputs(&b, 5, in);
        tern_random_graph_fn(&b, in, expected);
        struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &a, a.weights, a.inputs, a.n_inputs, a.n_outputs);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        struct tern_binding *ba = tern_plan_bind(plan, a.weights), *bb = tern_plan_bind(plan, b.weights);
        tern_graph_destroy(&g);
        tern_plan_unref(&plan); /* the bindings hold it */
        assert_int_equal(tern_plan_run(ba, in, out), TERN_OK);
        assert_int_equal(tern_plan_run(bb, in, out), TERN_OK);
        for (int i = 0; i < a.n_outputs; i++)
            assert_true(difference(out[i], expected[i]) == 0);
        tern_scope_end(ctx, NULL);
        tern_binding_unref(&ba);
        tern_binding_unref(&bb);
        tern_random_graph_close(&a);
        tern_random_graph_close(&b);
    }
    tern_context_destroy(&ctx);
}

struct worker {
    struct tern_binding *binding;
    tern_tensor *const *in;
    tern_tensor *out[TERN_GRAPH_MAX_IO];
    const float *expected;
    int64_t n;
    int wrong;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    float *found = malloc((size_t)w->n * sizeof(*found));
    for (int i = 0; i < 200; i++)
        w->wrong += tern_plan_run(w->binding, w->in, w->out) != TERN_OK ||
                    tern_tensor_read(w->out[0], TERN_F32, found, (size_t)w->n * sizeof(*found)) != TERN_OK ||
                    memcmp(found, w->expected, (size_t)w->n * sizeof(*found)) != 0;
    free(found);
    return NULL;
}

static void *cleared_alloc(size_t size, size_t alignment, void *live)
{
    void *p = NULL;
    ++*(int *)live;
    return posix_memalign(&p, alignment, size) ? NULL : memset(p, 0, size);
}

/* Who looks at the memory afterwards finds no allocator there. */
static void cleared_free(void *p, size_t size, void *live)
{
    --*(int *)live;
    free(memset(p, 0, size));
}

static enum tern_status twice(void *user, tern_tensor *const *in, tern_tensor **out)
{
    out[0] = tern_add(in[0], in[0]);
    return TERN_OK;
}

/* The context goes with the last object that was made of it, whichever that is. */
static void a_binding_keeps_its_context(void **state)
{
    int live = 0;
    struct tern_context *ctx =
        tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = {cleared_alloc, cleared_free, &live}});
    const struct tern_graph_input input = {"x", TERN_F32, 1, {4}};
    struct tern_graph *g = tern_graph_trace(ctx, twice, NULL, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    assert_non_null(b);
    tern_graph_destroy(&g);
    tern_plan_unref(&plan);
    tern_context_destroy(&ctx);
    tern_binding_unref(&b);
    assert_int_equal(live, 0);
}

/* A capture that cannot begin; in the last run another thread has failed by then. */
static bool fails_elsewhere;

static void *fail_elsewhere(void *ctx)
{
    tern_fail(ctx, TERN_E_IO, "elsewhere");
    return NULL;
}

static enum tern_status begin_no_capture(struct tern_queue *q)
{
    pthread_t thread;
    if (fails_elsewhere) {
        assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, q->device->ctx), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return tern_fail(q->device->ctx, TERN_E_DEVICE, "no capture");
}

/* Launches that are not captured are launched, and that is no error; what another thread has to tell is not lost with it. */
static void errors_of_other_threads_stay(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_queue *q = ctx->device->queue;
    const struct tern_queue_fns *own = q->fns;
    struct tern_queue_fns fns = *own;
    const struct tern_graph_input input = {"x", TERN_F32, 1, {4}};
    struct tern_graph *g = tern_graph_trace(ctx, twice, NULL, NULL, &input, 1, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, NULL);
    tern_tensor *out = NULL;
    fns.capture_begin = begin_no_capture;
    q->fns = &fns;
    tern_scope_begin(ctx);
    tern_tensor *x = support_noise(ctx, 1, 1, input.shape, 1, TERN_F32);
    for (int i = 0; i < 3; i++) {
        fails_elsewhere = i == 2;
        assert_int_equal(tern_plan_run(b, &x, &out), TERN_OK);
        assert_int_equal(tern_failed(ctx), i == 2);
    }
    support_error(ctx, TERN_E_IO, "elsewhere");
    tern_scope_end(ctx, NULL);
    q->fns = own;
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
}

/* Two threads, two weight sets, one plan. */
static void threads_share_a_plan(void **state)
{
    struct tern_context *ctx = support_context();
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct tern_random_graph r[2] = {tern_random_graph_make(ctx, seed, 1), tern_random_graph_make(ctx, seed, 2)};
        struct worker w[2] = {{NULL}};
        pthread_t thread[2];
        tern_tensor *in[4];
        tern_scope_begin(ctx);
        tern_random_graph_inputs(&r[0], 5, in);
        struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r[0], r[0].weights, r[0].inputs, r[0].n_inputs, r[0].n_outputs);
        struct tern_plan *plan = tern_plan_compile(g, NULL);
        for (int i = 0; i < 2; i++) {
            w[i].binding = tern_plan_bind(plan, r[i].weights);
            w[i].in = in;
            assert_int_equal(tern_plan_run(w[i].binding, in, w[i].out), TERN_OK);
            w[i].expected = values(w[i].out[0], &w[i].n);
        }
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(thread[i], NULL), 0);
            assert_int_equal(w[i].wrong, 0);
            free((void *)(uintptr_t)w[i].expected);
            tern_binding_unref(&w[i].binding);
            tern_random_graph_close(&r[i]);
        }
        tern_scope_end(ctx, NULL);
        tern_plan_unref(&plan);
        tern_graph_destroy(&g);
    }
    tern_context_destroy(&ctx);
}

/* A random graph, its plan and its inputs, in an open scope. */
struct compiled {
    struct tern_context *ctx;
    struct tern_random_graph r;
    struct tern_graph *graph;
    struct tern_plan *plan;
    struct tern_binding *binding;
    tern_tensor *in[4], *out[TERN_GRAPH_MAX_IO];
};

static struct compiled open_compiled(struct tern_context *ctx, uint64_t seed)
{
    struct compiled c = {.ctx = ctx, .r = tern_random_graph_make(ctx, seed, 1)};
    tern_scope_begin(ctx);
    tern_random_graph_inputs(&c.r, 5, c.in);
    c.graph = tern_graph_trace(ctx, tern_random_graph_fn, &c.r, c.r.weights, c.r.inputs, c.r.n_inputs, c.r.n_outputs);
    c.plan = tern_plan_compile(c.graph, NULL);
    c.binding = tern_plan_bind(c.plan, c.r.weights);
    assert_int_equal(tern_plan_run(c.binding, c.in, c.out), TERN_OK);
    return c;
}

static void close_compiled(struct compiled *c)
{
    tern_scope_end(c->ctx, NULL);
    tern_binding_unref(&c->binding);
    tern_plan_unref(&c->plan);
    tern_graph_destroy(&c->graph);
    tern_random_graph_close(&c->r);
}

/* With given outputs nothing is allocated after the first run. */
static void steady_runs_allocate_nothing(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct compiled c = open_compiled(ctx, seed);
        long before = m.count;
        for (int i = 0; i < 3; i++)
            assert_int_equal(tern_plan_run(c.binding, c.in, c.out), TERN_OK);
        assert_int_equal(m.count, before);
        close_compiled(&c);
    }
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

/* Every allocation of trace, compile, bind and run fails once: a status, no leak, and the next try works. */
static void faults_are_statuses(void **state)
{
    int faults = 0;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct support_allocator m = {0};
        struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
        struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
        tern_tensor *in[4];
        tern_scope_begin(ctx);
        tern_random_graph_inputs(&r, 5, in);
        bool failed = true;
        for (long n = 1; failed; n++) {
            tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
            m.fail_at = m.count + n;
            tern_scope_begin(ctx);
            struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
            struct tern_plan *plan = tern_plan_compile(g, NULL);
            struct tern_binding *b = tern_plan_bind(plan, r.weights);
            enum tern_status st = tern_plan_run(b, in, out);
            m.fail_at = 0;
            failed = tern_error_status(ctx) != TERN_OK;
            assert_int_equal(st == TERN_OK, !failed);
            if (failed)
                assert_int_equal(tern_error_status(ctx), TERN_E_NO_MEMORY);
            tern_error_clear(ctx);
            tern_scope_end(ctx, NULL);
            tern_binding_unref(&b);
            tern_plan_unref(&plan);
            tern_graph_destroy(&g);
            faults += failed;
        }
        tern_scope_end(ctx, NULL);
        tern_random_graph_close(&r);
        tern_context_destroy(&ctx);
        assert_int_equal(m.live, 0);
    }
    print_message("%d faults\n", faults);
    assert_true(faults > 500);
}

static bool cancel_at(void *user)
{
    int *left = user;
    return --*left == 0;
}

/* Cancelled before each op in turn; the next run is whole. */
static void runs_can_be_cancelled(void **state)
{
    int left = 0;
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = cancel_at, .user = &left});
    struct compiled c = open_compiled(ctx, 7);
    tern_tensor *again[TERN_GRAPH_MAX_IO] = {NULL};
    int launches = tern_plan_facts(c.plan).launches;
    for (int i = 1; i <= launches; i++) {
        left = i;
        assert_int_equal(tern_plan_run(c.binding, c.in, again), TERN_E_CANCELLED);
        support_error(ctx, TERN_E_CANCELLED, "");
        for (int k = 0; k < c.r.n_outputs; k++)
            assert_null(again[k]);
        assert_int_equal(tern_plan_run(c.binding, c.in, again), TERN_OK);
        for (int k = 0; k < c.r.n_outputs; k++) {
            assert_true(difference(again[k], c.out[k]) == 0);
            again[k] = NULL; /* of the scope */
        }
    }
    close_compiled(&c);
    tern_context_destroy(&ctx);
}

struct asked {
    struct tern_context *ctx;
    int times, right;
};

/* Something of its own, with its value at once. */
static bool compute(void *user)
{
    struct asked *a = user;
    float found = 0;
    if (!a->ctx)
        return false;
    tern_scope_begin(a->ctx);
    tern_tensor *x = tern_tensor_scalar(a->ctx, TERN_F32, 3);
    a->right += tern_tensor_read(tern_add(x, x), TERN_F32, &found, sizeof(found)) == TERN_OK && found == 6;
    tern_scope_end(a->ctx, NULL);
    a->times++;
    return false;
}

/* Where it is asked whether to cancel, in the middle of a trace, ops run, and are no nodes of the graph. */
static void what_is_computed_meanwhile_is_not_traced(void **state)
{
    struct asked a = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = compute, .user = &a});
    const struct tern_graph_input input = {.name = "x", .ndim = 1, .shape = {4}};
    struct tern_graph *plain = tern_graph_trace(ctx, twice, NULL, NULL, &input, 1, 1);
    a.ctx = ctx;
    struct tern_graph *g = tern_graph_trace(ctx, twice, NULL, NULL, &input, 1, 1);
    a.ctx = NULL;
    assert_non_null(g);
    assert_true(a.times > 0);
    assert_int_equal(a.right, a.times);
    assert_int_equal(g->n_nodes, plain->n_nodes);
    tern_graph_destroy(&plain);
    tern_graph_destroy(&g);
    tern_context_destroy(&ctx);
}

struct traced {
    struct tern_context *ctx; /* NULL: nothing is traced where it is asked */
    tern_tensor *kept;        /* of that trace; owned */
    int times;
};

static enum tern_status keep(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct traced *t = user;
    tern_tensor_unref(&t->kept);
    out[0] = tern_mul(in[0], in[0]);
    t->kept = tern_tensor_ref(out[0]);
    return TERN_OK;
}

static bool trace(void *user)
{
    struct traced *t = user;
    const struct tern_graph_input input = {.name = "y", .ndim = 1, .shape = {4}};
    struct tern_graph *g = t->ctx ? tern_graph_trace(t->ctx, keep, t, NULL, &input, 1, 1) : NULL;
    t->times += g != NULL;
    tern_graph_destroy(&g);
    return false;
}

static enum tern_status use_kept(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct traced *t = user;
    out[0] = tern_add(in[0], in[0]);
    t->ctx = NULL;
    out[0] = tern_add(in[0], t->kept);
    return TERN_OK;
}

/* A trace where it is asked whether to cancel another one: both have what is theirs. */
static void a_trace_while_it_is_asked(void **state)
{
    struct traced t = {0};
    struct tern_context *ctx = tern_context_create(&(struct tern_context_params){.threads = 1, .cancel = trace, .user = &t});
    const struct tern_graph_input input = {.name = "x", .ndim = 1, .shape = {4}};
    t.ctx = ctx;
    struct tern_graph *g = tern_graph_trace(ctx, twice, NULL, NULL, &input, 1, 1);
    assert_string_equal(tern_error(ctx), "");
    assert_non_null(g);
    assert_true(t.times > 0);
    assert_int_equal(g->n_nodes, 1);
    assert_null(tern_graph_trace(ctx, use_kept, &t, NULL, &input, 1, 1));
    support_error(ctx, TERN_E_INVALID, "found one of a graph whose recording has ended");
    tern_graph_destroy(&g);
    tern_tensor_unref(&t.kept);
    tern_context_destroy(&ctx);
}

/* 300 times everything from the trace to the run: memory does not grow. */
static void memory_comes_back(void **state)
{
    struct tern_context *ctx = support_context();
    size_t idle = 0;
    for (int i = 0; i < 300; i++) {
        struct compiled c = open_compiled(ctx, (uint64_t)i % 10);
        close_compiled(&c);
        tern_memory_trim(ctx);
        if (i == 20)
            idle = tern_memory_used(ctx);
    }
    assert_int_equal(tern_memory_used(ctx), idle);
    tern_context_destroy(&ctx);
}

struct told {
    int steps;
    double end, flops;
};

static void tell(void *user, const struct tern_step_profile *step)
{
    struct told *t = user;
    assert_true(step->start >= t->end && step->seconds >= 0 && step->bytes > 0);
    assert_true(strlen(step->kernel) > 0 && step->output[0] == '(');
    t->end = step->start + step->seconds;
    t->flops += step->flops;
    t->steps++;
}

/* x (1, 4, 5, 6) by a filter of 3 x 3 to 8 channels, then a matrix of 6 x 6 */
static enum tern_status counted(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_random_graph *r = user;
    tern_tensor *y = tern_conv2d(in[0], tern_weights_get(r->weights, "conv.0.1.weight"), NULL, .padding = 1);
    out[0] = tern_matmul(tern_reshape(y, 2, (const int64_t[]){-1, 6}), in[1]);
    return tern_error_status(r->ctx);
}

static void profiles_tell_every_step(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_random_graph r = tern_random_graph_make(ctx, 1, 1);
    struct told told = {0};
    const struct tern_graph_input inputs[] = {{"x", TERN_F32, 4, {1, 4, 5, 6}}, {"y", TERN_F32, 2, {6, 6}}};
    tern_tensor *out[1] = {NULL}, *again[1] = {NULL};
    tern_scope_begin(ctx);
    tern_tensor *in[] = {tern_tensor_create(ctx, TERN_F32, 4, inputs[0].shape, NULL),
                         tern_tensor_create(ctx, TERN_F32, 2, inputs[1].shape, NULL)};
    struct tern_graph *g = tern_graph_trace(ctx, counted, &r, r.weights, inputs, 2, 1);
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_binding *b = tern_plan_bind(plan, r.weights);
    assert_int_equal(tern_plan_profile(b, in, out, tell, &told), TERN_OK);
    assert_int_equal(told.steps, tern_plan_facts(plan).launches);
    assert_float_equal(told.flops, 2.0 * (8 * 5 * 6) * (4 * 3 * 3) + 2.0 * (8 * 5 * 6) * 6, 0);
    assert_int_equal(tern_plan_run(b, in, again), TERN_OK);
    assert_true(difference(out[0], again[0]) == 0);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_random_graph_close(&r);
    tern_context_destroy(&ctx);
}

/* picture * mean of a weight */
static enum tern_status scaled(void *user, tern_tensor *const *in, tern_tensor **out)
{
    const struct tern_random_graph *r = user;
    out[0] = tern_mul(in[0], tern_mean(tern_weights_get(r->weights, "norm.0"), 0, NULL, false));
    return tern_error_status(r->ctx);
}

/* What takes the context while a graph is recorded. */
struct nested {
    struct tern_graph *graph;
    struct tern_plan *plan;
    struct tern_weights *weights;
    struct tern_binding *binding;
    tern_tensor *apart;
    int refused;
};

static enum tern_status others_within(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct nested *n = user;
    struct tern_context *ctx = tern_tensor_context(in[0]);
    tern_tensor *got[1] = {NULL};
    n->refused += !tern_plan_compile(n->graph, NULL);
    support_error(ctx, TERN_E_INVALID, "plan: cannot be compiled inside of a trace");
    n->refused += !tern_plan_bind(n->plan, n->weights);
    support_error(ctx, TERN_E_INVALID, "plan: cannot be bound inside of a trace");
    n->refused += tern_plan_run(n->binding, &n->apart, got) && !got[0];
    support_error(ctx, TERN_E_INVALID, "inputs that are not contiguous, or on another device, cannot be copied inside of a trace");
    out[0] = tern_relu(in[0]);
    return tern_error_status(ctx);
}

static enum tern_status with_a_constant(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct nested *n = user;
    out[0] = tern_add(tern_add(in[0], n->apart), tern_weights_get(n->weights, "w"));
    return tern_error_status(tern_tensor_context(in[0]));
}

static void a_trace_has_nothing_else_within(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input input = {"x", TERN_F32, 2, {2, 3}};
    struct nested n = {.weights = tern_weights_create(ctx)};
    tern_scope_begin(ctx);
    n.apart = tern_transpose(tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){3, 2}, (const float[]){1, 2, 3, 4, 5, 6}), 0, 1);
    assert_int_equal(tern_weights_add(n.weights, "w", tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){3}, NULL)), TERN_OK);
    n.graph = tern_graph_trace(ctx, with_a_constant, &n, n.weights, &input, 1, 1);
    n.plan = tern_plan_compile(n.graph, NULL);
    n.binding = tern_plan_bind(n.plan, n.weights);
    struct tern_graph *g = tern_graph_trace(ctx, others_within, &n, NULL, &input, 1, 1);
    assert_non_null(g);
    assert_int_equal(n.refused, 3);
    tern_tensor *out[1] = {NULL};
    const float expected[] = {2, 6, 10, 4, 8, 12};
    float values[6];
    assert_int_equal(tern_plan_run(n.binding, &n.apart, out), TERN_OK);
    assert_int_equal(tern_tensor_read(out[0], TERN_F32, values, sizeof(values)), TERN_OK);
    assert_memory_equal(values, expected, sizeof(values));
    tern_scope_end(ctx, NULL);
    tern_graph_destroy(&g);
    tern_binding_unref(&n.binding);
    tern_plan_unref(&n.plan);
    tern_graph_destroy(&n.graph);
    tern_weights_unref(&n.weights);
    tern_context_destroy(&ctx);
}

/* Another set may have two tensors under the names, and what the function uses could be either. The context goes all the same. */
static void a_tensor_has_one_name(void **state)
{
    struct support_allocator m = {0};
    struct tern_context *ctx = tern_context_create(&(const struct tern_context_params){.threads = 1, .allocator = support_failing(&m)});
    const struct tern_graph_input input = {"x", TERN_F32, 2, {2, 3}};
    struct nested n = {.weights = tern_weights_create(ctx)};
    tern_scope_begin(ctx);
    tern_tensor *t = tern_tensor_create(ctx, TERN_F32, 1, (const int64_t[]){3}, NULL);
    n.apart = tern_tensor_create(ctx, TERN_F32, 2, (const int64_t[]){2, 3}, NULL);
    assert_int_equal(tern_weights_add(n.weights, "v", t), TERN_OK);
    assert_int_equal(tern_weights_add(n.weights, "w", t), TERN_OK);
    assert_null(tern_graph_trace(ctx, with_a_constant, &n, n.weights, &input, 1, 1));
    support_error(ctx, TERN_E_INVALID, "found one as \"v\" and \"w\"");
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&n.weights);
    tern_context_destroy(&ctx);
    assert_int_equal(m.live, 0);
}

static void wrong_use_is_refused(void **state)
{
    struct tern_context *ctx = support_context();
    struct tern_random_graph r = tern_random_graph_make(ctx, 3, 1);
    tern_tensor *in[4], *out[TERN_GRAPH_MAX_IO] = {NULL};
    tern_scope_begin(ctx);
    tern_random_graph_inputs(&r, 5, in);
    struct tern_graph *g = tern_graph_trace(ctx, scaled, &r, r.weights, r.inputs, r.n_inputs, 1);
    assert_null(tern_plan_compile(g, &(struct tern_plan_params){.without = "cse,fusion"}));
    support_error(ctx, TERN_E_INVALID, "no pass has the name \"fusion\"; there are all,fold");
    struct tern_plan *plan = tern_plan_compile(g, NULL);
    struct tern_weights *few = tern_weights_create(ctx);
    assert_null(tern_plan_bind(plan, few));
    support_error(ctx, TERN_E_NOT_FOUND, "weight \"norm.0\" (4,) f32 is not in the set");
    tern_weights_add(few, "norm.0", in[1]);
    assert_null(tern_plan_bind(plan, few));
    support_error(ctx, TERN_E_SHAPE, "weight \"norm.0\": expected (4,) f32, found (");
    struct tern_binding *b = tern_plan_bind(plan, r.weights);
    assert_int_equal(tern_plan_facts(plan).prepared, 1);
    assert_int_equal(tern_plan_facts(plan).launches, 1);
    tern_tensor *first = in[0];
    in[0] = in[1];
    assert_int_equal(tern_plan_run(b, in, out), TERN_E_SHAPE);
    support_error(ctx, TERN_E_SHAPE, "input \"picture\": expected (");
    in[0] = first;
    out[0] = in[1];
    assert_int_equal(tern_plan_run(b, in, out), TERN_E_INVALID);
    support_error(ctx, TERN_E_INVALID, "output 0: expected");
    out[0] = NULL;
    assert_int_equal(tern_plan_run(b, in, out), TERN_OK);
    assert_null(tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, TERN_GRAPH_MAX_IO + 1, 1));
    char most[32];
    snprintf(most, sizeof(most), "at most %d inputs", TERN_GRAPH_MAX_IO);
    support_error(ctx, TERN_E_INVALID, most);
    tern_scope_end(ctx, NULL);
    tern_weights_unref(&few);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_random_graph_close(&r);
    tern_context_destroy(&ctx);
}

/* Code that looks at values cannot be recorded; what it keeps from a trace cannot be used afterwards. */
static tern_tensor *kept;
static enum tern_status looks_at_values(void *user, tern_tensor *const *in, tern_tensor **out)
{
    float x;
    kept = tern_tensor_ref(tern_mean(in[0], 0, NULL, false));
    return tern_tensor_read(kept, TERN_F32, &x, sizeof(x));
}

static void values_are_unknown_while_recording(void **state)
{
    struct tern_context *ctx = support_context();
    const struct tern_graph_input input = {"x", TERN_F32, 1, {4}};
    assert_null(tern_graph_trace(ctx, looks_at_values, NULL, NULL, &input, 1, 1));
    support_error(ctx, TERN_E_INVALID, "being recorded");
    assert_null(tern_neg(kept));
    support_error(ctx, TERN_E_INVALID, "whose recording has ended");
    tern_tensor_unref(&kept);
    tern_context_destroy(&ctx);
}

/* The argument is the pattern of a test's name; none: all. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_agree),
        cmocka_unit_test(one_plan_serves_many_sets),
        cmocka_unit_test(a_binding_keeps_its_context),
        cmocka_unit_test(errors_of_other_threads_stay),
        cmocka_unit_test(threads_share_a_plan),
        cmocka_unit_test(steady_runs_allocate_nothing),
        cmocka_unit_test(faults_are_statuses),
        cmocka_unit_test(runs_can_be_cancelled),
        cmocka_unit_test(what_is_computed_meanwhile_is_not_traced),
        cmocka_unit_test(a_trace_while_it_is_asked),
        cmocka_unit_test(memory_comes_back),
        cmocka_unit_test(profiles_tell_every_step),
        cmocka_unit_test(a_trace_has_nothing_else_within),
        cmocka_unit_test(a_tensor_has_one_name),
        cmocka_unit_test(wrong_use_is_refused),
        cmocka_unit_test(values_are_unknown_while_recording),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
