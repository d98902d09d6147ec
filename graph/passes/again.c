/* Recording a graph anew. */
#include "graph/passes/again.h"

#include <tern/ops.h>

#include "core/context.h"

/* The values that no node makes. */
static enum tern_status add_values(struct tern_again *a)
{
    const struct tern_graph *g = a->from;
    for (int i = 0; i < g->n_values; i++) {
        const struct tern_value *v = &g->values[i];
        if (v->kind == TERN_VALUE_RESULT)
            continue;
        a->number[i] = tern_graph_add_value(a->to, v->kind, &v->meta, v->name, v->tensor);
        if (a->number[i] < 0)
            return tern_error_status(a->ctx);
    }
    for (int i = 0; i < g->n_inputs; i++)
        a->to->inputs[a->to->n_inputs++] = a->number[g->inputs[i]];
    return TERN_OK;
}

enum tern_status tern_again_begin(struct tern_again *a, struct tern_graph *g)
{
    size_t n = (size_t)g->n_values + 1;
    a->ctx = g->ctx;
    a->from = g;
    a->to = tern_graph_create(g->ctx);
    a->number = tern_calloc(g->ctx, n, sizeof(*a->number));
    a->map = tern_calloc(g->ctx, n, sizeof(*a->map));
    return a->to && a->number && a->map ? TERN_OK : tern_error_status(g->ctx);
}

static int made_by_cast(const struct tern_graph *g, int value)
{
    const struct tern_value *v = &g->values[value];
    return v->kind == TERN_VALUE_RESULT && g->nodes[v->node].desc.op == TERN_OP_cast ? g->nodes[v->node].in[0] : -1;
}

void tern_again_keep_wide(const struct tern_again *a, const struct tern_node *n)
{
    const int old = a->from->values[n->out].wide;
    const tern_tensor *out = a->map[n->out], *wide = old < 0 ? NULL : a->map[old];
    if (!out || !wide || out->buffer || wide->buffer)
        return;
    const int narrow = made_by_cast(a->to, out->value);
    if (narrow >= 0 && made_by_cast(a->to, narrow) == wide->value)
        a->to->values[out->value].wide = wide->value;
}

/* A tern_graph_fn. */
static enum tern_status record(void *user, tern_tensor *const *in, tern_tensor **out)
{
    struct tern_again *a = user;
    const struct tern_graph *g = a->from;
    for (int i = 0; i < g->n_values; i++)
        if (g->values[i].kind != TERN_VALUE_RESULT)
            a->map[i] = tern_graph_symbol(a->to, a->number[i]);
    for (int i = 0; i < g->n_nodes && !tern_failed(a->ctx); i++)
        if (!g->nodes[i].dead) {
            a->node(a, &g->nodes[i]);
            tern_again_keep_wide(a, &g->nodes[i]);
        }
    for (int i = 0; i < g->n_outputs; i++)
        out[i] = a->map[g->outputs[i]];
    return tern_error_status(a->ctx);
}

enum tern_status tern_again_record(struct tern_again *a, struct tern_graph *g)
{
    if (add_values(a) || tern_graph_extend(a->to, record, a, g->n_outputs))
        return tern_error_status(a->ctx);
    a->to->warned = g->warned;
    struct tern_graph old = *g;
    *g = *a->to;
    *a->to = old;
    return TERN_OK;
}

void tern_again_end(struct tern_again *a)
{
    tern_graph_destroy(&a->to);
    tern_free(a->ctx, a->number);
    tern_free(a->ctx, a->map);
}

tern_tensor *tern_again_same(const struct tern_again *a, const struct tern_node *n)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    for (int k = 0; k < n->desc.n_in; k++)
        in[k] = n->in[k] >= 0 ? a->map[n->in[k]] : NULL;
    return tern_op_call(a->ctx, n->desc.op, in, n->desc.n_in, &n->desc.attrs);
}
