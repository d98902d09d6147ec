/* The graph's tables. */
#include "graph/graph.h"

#include <string.h>

#include "core/context.h"

struct tern_graph *tern_graph_create(struct tern_context *ctx)
{
    struct tern_graph *g = tern_calloc(ctx, 1, sizeof(*g));
    if (!g)
        return NULL;
    tern_context_ref(ctx);
    g->ctx = ctx;
    g->device = ctx->device;
    return g;
}

bool tern_graph_reserve(struct tern_graph *g, int values, int nodes)
{
    g->values = tern_alloc(g->ctx, (size_t)values * sizeof(*g->values));
    g->nodes = tern_alloc(g->ctx, (size_t)nodes * sizeof(*g->nodes));
    g->value_capacity = g->values ? values : 0;
    g->node_capacity = g->nodes ? nodes : 0;
    return g->values && g->nodes;
}

size_t tern_graph_bytes(const struct tern_graph *g)
{
    return (size_t)g->node_capacity * sizeof(*g->nodes) + (size_t)g->value_capacity * sizeof(*g->values);
}

void tern_graph_destroy(struct tern_graph **graph)
{
    struct tern_graph *g = graph ? *graph : NULL;
    if (!g)
        return;
    *graph = NULL;
    struct tern_context *ctx = g->ctx;
    for (int i = 0; i < g->n_values; i++) {
        tern_free(ctx, g->values[i].name);
        tern_tensor_unref(&g->values[i].tensor);
    }
    tern_free(ctx, g->values);
    tern_free(ctx, g->nodes);
    tern_free(ctx, g);
    tern_context_unref(ctx);
}

int tern_graph_add_value(struct tern_graph *g, enum tern_value_kind kind, const struct tern_meta *meta, const char *name,
                         tern_tensor *tensor)
{
    char *copy = name ? tern_strdup(g->ctx, name) : NULL;
    if ((name && !copy) || !tern_grow(g->ctx, (void **)&g->values, g->n_values, &g->value_capacity, sizeof(*g->values))) {
        tern_free(g->ctx, copy);
        return -1;
    }
    g->values[g->n_values] = (struct tern_value){
        .kind = kind, .meta = *meta, .name = copy, .tensor = tern_tensor_ref(tensor), .node = -1, .whole = -1, .wide = -1};
    return g->n_values++;
}

int tern_graph_add_node(struct tern_graph *g, enum tern_call_kind kind, const struct tern_op_desc *d, const int *in, int64_t offset)
{
    if (!tern_grow(g->ctx, (void **)&g->nodes, g->n_nodes, &g->node_capacity, sizeof(*g->nodes)))
        return -1;
    int out = tern_graph_add_value(g, TERN_VALUE_RESULT, &d->out, NULL, NULL);
    if (out < 0)
        return -1;
    struct tern_node *n = &g->nodes[g->n_nodes];
    *n = (struct tern_node){.kind = kind, .out = out, .offset = offset, .desc = *d};
    for (int i = 0; i < TERN_MAX_INPUTS; i++)
        n->in[i] = i < d->n_in && d->present[i] ? in[i] : -1;
    g->values[out].node = g->n_nodes++;
    return out;
}

struct tern_graph *tern_graph_copy(const struct tern_graph *g)
{
    struct tern_graph *c = tern_graph_create(g->ctx);
    bool ok = c != NULL;
    if (ok)
        c->device = g->device;
    for (int i = 0; ok && i < g->n_values; i++) {
        const struct tern_value *v = &g->values[i];
        ok = tern_graph_add_value(c, v->kind, &v->meta, v->name, v->tensor) >= 0;
        if (ok) {
            c->values[i].node = v->node;
            c->values[i].whole = v->whole;
            c->values[i].whole_offset = v->whole_offset;
            c->values[i].wide = v->wide;
        }
    }
    for (int i = 0; ok && i < g->n_nodes; i++) {
        ok = tern_grow(c->ctx, (void **)&c->nodes, i, &c->node_capacity, sizeof(*c->nodes));
        if (ok)
            c->nodes[c->n_nodes++] = g->nodes[i];
    }
    if (!ok) {
        tern_graph_destroy(&c);
        return NULL;
    }
    memcpy(c->inputs, g->inputs, sizeof(c->inputs));
    memcpy(c->outputs, g->outputs, sizeof(c->outputs));
    c->n_inputs = g->n_inputs;
    c->n_outputs = g->n_outputs;
    return c;
}

void tern_graph_compact(struct tern_graph *g)
{
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_value *v = &g->values[g->nodes[i].out];
        if (g->nodes[i].dead && v->node == i)
            v->node = -1;
        if (g->nodes[i].dead)
            continue;
        v->node = n;
        if (n != i)
            g->nodes[n] = g->nodes[i];
        n++;
    }
    g->n_nodes = n;
}

void tern_graph_shrink(struct tern_graph *g)
{
    struct tern_value *values = g->n_values ? tern_realloc(g->ctx, g->values, (size_t)g->n_values * sizeof(*values)) : NULL;
    struct tern_node *nodes = g->n_nodes ? tern_realloc(g->ctx, g->nodes, (size_t)g->n_nodes * sizeof(*nodes)) : NULL;
    if (values) {
        g->values = values;
        g->value_capacity = g->n_values;
    }
    if (nodes) {
        g->nodes = nodes;
        g->node_capacity = g->n_nodes;
    }
}

void tern_graph_replace(struct tern_graph *g, int from, int to)
{
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            if (g->nodes[i].in[k] == from)
                g->nodes[i].in[k] = to;
    for (int i = 0; i < g->n_outputs; i++)
        if (g->outputs[i] == from)
            g->outputs[i] = to;
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].wide == from)
            g->values[i].wide = to;
}

void tern_graph_count_uses(struct tern_graph *g)
{
    for (int i = 0; i < g->n_values; i++)
        g->values[i].uses = 0;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; !g->nodes[i].dead && k < TERN_MAX_INPUTS; k++)
            if (g->nodes[i].in[k] >= 0)
                g->values[g->nodes[i].in[k]].uses++;
    for (int i = 0; i < g->n_outputs; i++)
        g->values[g->outputs[i]].uses++;
}

int tern_graph_root(const struct tern_graph *g, int value)
{
    for (;;) {
        const struct tern_value *v = &g->values[value];
        if (v->kind == TERN_VALUE_RESULT && v->node >= 0 && g->nodes[v->node].kind == TERN_CALL_VIEW)
            value = g->nodes[v->node].in[0];
        else if (v->whole >= 0)
            value = v->whole;
        else
            return value;
    }
}

bool tern_graph_is_fixed(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    return v->kind == TERN_VALUE_WEIGHT || v->kind == TERN_VALUE_CONSTANT || (v->kind == TERN_VALUE_RESULT && g->nodes[v->node].prepare);
}

bool tern_graph_is_output(const struct tern_graph *g, int value)
{
    int root = tern_graph_root(g, value);
    for (int i = 0; i < g->n_outputs; i++)
        if (tern_graph_root(g, g->outputs[i]) == root)
            return true;
    return false;
}

#define SMALL_CONSTANT ((size_t)64 << 10)

static enum tern_status own_constant(struct tern_graph *g, struct tern_value *v)
{
    void *copy;
    size_t size;
    const void *data = tern_constant_bytes(g->ctx, v->tensor, &size, &copy);
    tern_tensor *own = data ? tern_constant_make(g->ctx, &v->meta, v->tensor->constant, data, size) : NULL;
    tern_free(g->ctx, copy);
    if (!own)
        return tern_error_status(g->ctx);
    tern_tensor_unref(&v->tensor);
    v->tensor = own;
    return TERN_OK;
}

enum tern_status tern_graph_settle(struct tern_graph *g)
{
    enum tern_status st = TERN_OK;
    for (int i = 0; i < g->n_values && !st; i++) {
        struct tern_value *v = &g->values[i];
        bool constant = v->kind == TERN_VALUE_CONSTANT && v->tensor;
        const size_t size = tern_meta_bytes(&v->meta);
        if (v->uses && constant && (size <= SMALL_CONSTANT || !v->tensor->buffer->constant))
            st = own_constant(g, v);
        if (v->uses || v->kind == TERN_VALUE_INPUT || v->kind == TERN_VALUE_RESULT)
            continue;
        tern_free(g->ctx, v->name);
        tern_tensor_unref(&v->tensor);
        v->name = NULL;
        v->kind = TERN_VALUE_RESULT; /* of no node */
    }
    return st;
}
