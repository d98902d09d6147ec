/* Recording: the calls that model code makes become nodes. */
#include <stdio.h>
#include <string.h>
#include <tern/ops.h>

#include "core/context.h"
#include "graph/graph.h"

struct recording {
    struct tern_recorder base;
    struct tern_graph *graph;
    const struct tern_weights *weights;
    struct known *known; /* tensors with values that the code has used, as an open hash table */
    int n_known, capacity;
};
struct known {
    tern_tensor *tensor; /* held, so that its address stays its own */
    int value;
};

static unsigned slot_of(const tern_tensor *t, int capacity)
{
    uint64_t h = (uint64_t)(uintptr_t)t * 0x9e3779b97f4a7c15u;
    return (unsigned)(h >> 32) & (unsigned)(capacity - 1);
}

static struct known *find(struct known *table, int capacity, const tern_tensor *t)
{
    unsigned i = slot_of(t, capacity);
    while (table[i].tensor && table[i].tensor != t)
        i = (i + 1) & (unsigned)(capacity - 1);
    return &table[i];
}

/* Keeps at least half of the table empty. */
static bool grow(struct recording *r)
{
    if (2 * r->n_known < r->capacity)
        return true;
    int n = r->capacity ? 2 * r->capacity : 256;
    struct known *table = tern_calloc(r->graph->ctx, (size_t)n, sizeof(*table));
    if (!table)
        return false;
    for (int i = 0; i < r->capacity; i++)
        if (r->known[i].tensor)
            *find(table, n, r->known[i].tensor) = r->known[i];
    tern_free(r->graph->ctx, r->known);
    r->known = table;
    r->capacity = n;
    return true;
}

static bool remember(struct recording *r, tern_tensor *t, int value)
{
    if (value < 0 || !grow(r))
        return false;
    *find(r->known, r->capacity, t) = (struct known){tern_tensor_ref(t), value};
    r->n_known++;
    return true;
}

/* All weights are slots from the start; those that nothing uses vanish with the dead code. A tensor is one slot: of two names the calls
 * could not tell which is meant, and another set may have two tensors there. */
static bool remember_weights(struct recording *r)
{
    int64_t n = r->weights ? tern_weights_count(r->weights) : 0;
    for (int64_t i = 0; i < n; i++) {
        tern_tensor *t = tern_weights_at(r->weights, i);
        const struct known *k = grow(r) ? find(r->known, r->capacity, t) : NULL;
        if (k && k->tensor)
            tern_fail(r->graph->ctx, TERN_E_INVALID,
                      "graph: expected another tensor for each name of the weight set, found one as \"%s\" and \"%s\"; a copy under one "
                      "of them would do",
                      r->graph->values[k->value].name, tern_weights_name(r->weights, i));
        if (!k || k->tensor)
            return false;
        int v = tern_graph_add_value(r->graph, TERN_VALUE_WEIGHT, &t->meta, tern_weights_name(r->weights, i), NULL);
        if (!remember(r, t, v))
            return false;
    }
    return true;
}

/* The value of a tensor that `what` uses; one with values that is no weight is a constant. -1 with the error recorded. */
static int value_of(struct recording *r, const char *what, tern_tensor *t)
{
    struct tern_context *ctx = r->graph->ctx;
    if (t->ctx != ctx) {
        tern_fail(ctx, TERN_E_INVALID, "graph: %s: expected tensors of the context that records, found one of another", what);
        return -1;
    }
    if (!t->buffer && t->recording == ctx->recording)
        return t->value;
    if (!t->buffer) {
        tern_fail(ctx, TERN_E_INVALID,
                  "graph: %s: expected tensors with values or of this recording, found one of a graph whose recording has ended; as an "
                  "input of this one it could be used",
                  what);
        return -1;
    }
    if (!grow(r))
        return -1;
    const struct known *k = find(r->known, r->capacity, t);
    if (k->tensor)
        return k->value;
    int v = tern_graph_add_value(r->graph, TERN_VALUE_CONSTANT, &t->meta, NULL, t);
    return remember(r, t, v) ? v : -1;
}

static tern_tensor *record(struct tern_recorder *base, enum tern_call_kind kind, const struct tern_op_desc *d, tern_tensor *const *in,
                           int64_t offset)
{
    struct recording *r = (struct recording *)base;
    int values[TERN_MAX_INPUTS];
    const char *name = tern_op_get(d->op).name;
    for (int i = 0; i < d->n_in; i++)
        if (d->present[i] && (values[i] = value_of(r, name, in[i])) < 0)
            return NULL;
    int out = tern_graph_add_node(r->graph, kind, d, values, offset);
    if (out >= 0 && d->op == TERN_OP_cast && d->out.dtype == TERN_F32)
        r->graph->values[out].wide = in[0]->wide - 1;
    return out < 0 ? NULL : tern_tensor_symbol(r->graph->ctx, &d->out, out);
}

static bool add_inputs(struct tern_graph *g, const struct tern_graph_input *inputs, int n, tern_tensor **tensors)
{
    for (int i = 0; i < n; i++) {
        int64_t numel;
        if (!tern_dtype_size(inputs[i].dtype) || !tern_shape_valid(inputs[i].ndim, inputs[i].shape, &numel)) {
            tern_fail(g->ctx, TERN_E_INVALID, "graph: input %d: dtype or shape is not valid", i);
            return false;
        }
        struct tern_meta m = tern_meta_make(inputs[i].dtype, inputs[i].ndim, inputs[i].shape);
        int v = tern_graph_add_value(g, TERN_VALUE_INPUT, &m, inputs[i].name ? inputs[i].name : "", NULL);
        tensors[i] = v < 0 ? NULL : tern_tensor_symbol(g->ctx, &m, v);
        if (!tensors[i])
            return false;
        g->inputs[g->n_inputs++] = v;
    }
    return true;
}

/* An output has memory of its own: not an input's, a weight's or another output's. */
static bool is_own(const struct tern_graph *g, int value)
{
    int root = tern_graph_root(g, value);
    const struct tern_meta *m = &g->values[value].meta, *of = &g->values[root].meta;
    if (g->values[root].kind != TERN_VALUE_RESULT || !tern_meta_is_dense(m) || tern_meta_span(m) != tern_meta_span(of))
        return false;
    for (int i = 0; i < g->n_outputs; i++)
        if (tern_graph_root(g, g->outputs[i]) == root)
            return false;
    return true;
}

/* cat of one tensor copies. */
static tern_tensor *copy(tern_tensor *t)
{
    struct tern_meta m = t->meta;
    tern_tensor *flat = tern_reshape(t, 1, (const int64_t[]){-1});
    return tern_reshape(tern_cat(&flat, 1, 0), m.ndim, m.shape);
}

static bool add_outputs(struct recording *r, tern_tensor *const *outputs, int n)
{
    struct tern_graph *g = r->graph;
    for (int i = 0; i < n; i++) {
        if (!outputs[i]) {
            tern_fail(g->ctx, TERN_E_INVALID, "graph: the function gave no output %d of %d", i, n);
            return false;
        }
        int v = value_of(r, "outputs", outputs[i]);
        if (v >= 0 && !is_own(g, v)) {
            tern_tensor *t = copy(outputs[i]);
            v = t ? value_of(r, "outputs", t) : -1;
        }
        if (v < 0)
            return false;
        g->outputs[g->n_outputs++] = v;
    }
    return true;
}

/* Runs fn with its calls recorded; what it gives becomes the graph's outputs. In an open scope. */
static void record_calls(struct recording *r, tern_graph_fn fn, void *user, tern_tensor *const *in, int n_outputs)
{
    struct tern_context *ctx = r->graph->ctx;
    tern_tensor *out[TERN_GRAPH_MAX_IO] = {NULL};
    ctx->recorder = &r->base;
    const int floor = tern_scopes_guard(ctx);
    enum tern_status st = fn(user, in, out);
    if (st && !tern_failed(ctx))
        tern_fail(ctx, st, "graph: the function failed without a message");
    tern_scopes_unguard(ctx, floor, "graph: the function");
    if (!tern_failed(ctx))
        add_outputs(r, out, n_outputs);
    ctx->recorder = NULL;
}

static void forget(struct recording *r)
{
    for (int i = 0; i < r->capacity; i++)
        tern_tensor_unref(&r->known[i].tensor);
    tern_free(r->graph->ctx, r->known);
}

struct tern_graph *tern_graph_trace(struct tern_context *ctx, tern_graph_fn fn, void *user, struct tern_weights *weights,
                                    const struct tern_graph_input *inputs, int n_inputs, int n_outputs)
{
    tern_tensor *in[TERN_GRAPH_MAX_IO] = {NULL};
    if (tern_failed(ctx))
        return NULL;
    if (n_inputs < 0 || n_inputs > TERN_GRAPH_MAX_IO || n_outputs < 1 || n_outputs > TERN_GRAPH_MAX_IO || ctx->recorder) {
        tern_fail(ctx, TERN_E_INVALID,
                  ctx->recorder ? "graph: a trace inside of a trace"
                                : "graph: expected at most %d inputs and 1..%d outputs, found %d and %d",
                  TERN_GRAPH_MAX_IO, TERN_GRAPH_MAX_IO, n_inputs, n_outputs);
        return NULL;
    }
    if (!fn || (n_inputs && !inputs)) {
        tern_fail(ctx, TERN_E_INVALID, "graph: expected a function and %d inputs, found NULL as the %s", n_inputs,
                  fn ? "inputs" : "function");
        return NULL;
    }
    struct recording r = {.base = {record}, .graph = tern_graph_create(ctx), .weights = weights};
    const unsigned outer = ctx->recording; /* of the trace in which it is asked to cancel */
    if (!r.graph)
        return NULL;
    ctx->recording = ++ctx->recordings;
    tern_scope_begin(ctx);
    if (remember_weights(&r) && add_inputs(r.graph, inputs, n_inputs, in))
        record_calls(&r, fn, user, in, n_outputs);
    tern_scope_end(ctx, NULL);
    ctx->recording = outer;
    forget(&r);
    if (tern_failed(ctx))
        tern_graph_destroy(&r.graph);
    return r.graph;
}

enum tern_status tern_graph_extend(struct tern_graph *g, tern_graph_fn fn, void *user, int n_outputs)
{
    struct recording r = {.base = {record}, .graph = g};
    const unsigned outer = g->ctx->recording;
    if (g->ctx->recorder)
        return tern_fail(g->ctx, TERN_E_INVALID, "graph: a trace inside of a trace");
    g->ctx->recording = ++g->ctx->recordings;
    tern_scope_begin(g->ctx);
    record_calls(&r, fn, user, NULL, n_outputs);
    tern_scope_end(g->ctx, NULL);
    g->ctx->recording = outer;
    forget(&r);
    return tern_error_status(g->ctx);
}

tern_tensor *tern_graph_symbol(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    tern_tensor *t = tern_tensor_symbol(g->ctx, &v->meta, value);
    if (t)
        t->constant = v->kind == TERN_VALUE_WEIGHT || (v->kind == TERN_VALUE_CONSTANT && v->tensor->constant);
    return t;
}
