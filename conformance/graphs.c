/* The stage of random graphs: the run of a plan, with every pass, against an eager run in which each op is its reference. */
#include <math.h>
#include <stdio.h>

#include "conformance/random_graph.h"
#include "conformance/suite.h"
#include "ops/dispatch.h"

#define GRAPHS 200
/* NMSE of an output. The CPU's kernels stay below 1e-12: they sum in f32, the references in double. A cast to bf16 inside of a
 * graph may round a value that lies between two of its numbers the other way, which is 2^-8 of that value. */
#define LIMIT 1e-6

bool tern_graphs_add(struct tern_conformance *c)
{
    char name[32];
    for (int i = 0; i < GRAPHS; i++) {
        snprintf(name, sizeof(name), "random.%d", i);
        const char *kept = tern_suite_keep(c, name);
        const struct tern_check check = {TERN_CONFORMANCE_GRAPHS, i, "random", kept, "plan"};
        if (!kept || !tern_suite_add(c, &check))
            return false;
    }
    return true;
}

/* The values of a tensor as f32; tern_free. */
static float *values_of(const tern_tensor *t)
{
    struct tern_context *ctx = tern_tensor_context(t);
    size_t size = (size_t)tern_tensor_numel(t) * sizeof(float);
    float *v = tern_alloc(ctx, size);
    if (v && tern_tensor_read(t, TERN_F32, v, size)) {
        tern_free(ctx, v);
        return NULL;
    }
    return v;
}

double tern_tensor_nmse(const tern_tensor *found, const tern_tensor *expected)
{
    float *a = values_of(found), *b = values_of(expected);
    double error = 0, power = 0;
    for (int64_t i = 0; a && b && i < tern_tensor_numel(found); i++) {
        error += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        power += (double)b[i] * (double)b[i];
    }
    bool bad = !a || !b || isnan(error) || isnan(power);
    tern_free(tern_tensor_context(found), a);
    tern_free(tern_tensor_context(expected), b);
    return bad ? INFINITY : error == 0 ? 0 : error / power;
}

/* Same shape, and near enough. */
static bool output_agrees(int i, tern_tensor *found, tern_tensor *expected, struct tern_verdict *v)
{
    char a[TERN_META_TEXT], b[TERN_META_TEXT];
    if (!tern_meta_same_shape(&found->meta, &expected->meta))
        return tern_verdict_fail(v, "output %d: expected %s, found %s", i, tern_meta_text(&expected->meta, a),
                                 tern_meta_text(&found->meta, b));
    double e = tern_tensor_nmse(found, expected);
    v->error = fmax(v->error, e / LIMIT);
    return e <= LIMIT || tern_verdict_fail(v, "output %d, %s: NMSE %.3g to the references, expected at most %g", i,
                                           tern_meta_text(&expected->meta, a), e, LIMIT);
}

/* The plan's outputs, twice: the second run has the memory of the first. */
static bool plan_agrees(struct tern_context *ctx, struct tern_random_graph *r, struct tern_binding *b, tern_tensor **in,
                        tern_tensor **expected, struct tern_verdict *v)
{
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    for (int again = 0; again < 2; again++) {
        if (!b || tern_plan_run(b, in, out))
            return tern_verdict_fail(v, "%s", tern_error(ctx));
        for (int i = 0; i < r->n_outputs; i++)
            if (!output_agrees(i, out[i], expected[i], v))
                return false;
    }
    return true;
}

static bool run_plan(struct tern_context *ctx, uint64_t seed, tern_tensor **expected, struct tern_verdict *v)
{
    tern_tensor *in[4];
    tern_scope_begin(ctx);
    struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
    tern_random_graph_inputs(&r, seed, in);
    struct tern_graph *g = tern_graph_trace(ctx, tern_random_graph_fn, &r, r.weights, r.inputs, r.n_inputs, r.n_outputs);
    struct tern_plan *plan = g ? tern_plan_compile(g, NULL) : NULL;
    struct tern_binding *b = plan ? tern_plan_bind(plan, r.weights) : NULL;
    bool good = plan_agrees(ctx, &r, b, in, expected, v);
    tern_scope_end(ctx, NULL);
    tern_binding_unref(&b);
    tern_plan_unref(&plan);
    tern_graph_destroy(&g);
    tern_random_graph_close(&r);
    return good;
}

void tern_graphs_run(struct tern_conformance *c, const struct tern_check *check)
{
    struct tern_context *ctx = c->judge;
    struct tern_verdict *v = &c->verdict;
    uint64_t seed = (uint64_t)check->item;
    tern_tensor *in[4], *expected[TERN_GRAPH_MAX_IO] = {NULL};
    if (!c->own->device->caps.computes) {
        tern_verdict_skip(v, "device %s computes nothing", c->own->device->name);
        return;
    }
    tern_scope_begin(ctx);
    struct tern_random_graph r = tern_random_graph_make(ctx, seed, 1);
    tern_random_graph_inputs(&r, seed, in);
    if (tern_dispatch_force(ctx, "reference") || tern_random_graph_fn(&r, in, expected)) {
        tern_verdict_fail(v, "the references: %s", tern_error(ctx));
    } else {
        tern_dispatch_force(ctx, NULL); /* it may be the context of the plan, too */
        run_plan(c->own, seed, expected, v);
    }
    tern_error_clear(ctx);
    tern_dispatch_force(ctx, NULL);
    tern_scope_end(ctx, NULL);
    tern_random_graph_close(&r);
    tern_error_clear(c->own);
}
