/* Recording a graph anew with another form of weights. */
#include "graph/passes/weights.h"

#include "core/context.h"
#include "graph/passes/again.h"

struct reforming {
    struct tern_again again; /* first */
    const struct tern_weight_form *form;
    bool *constant;     /* by value of the old graph: a weight, or made of weights and constants alone, as the pass `smooth` does */
    bool *wants;        /* by node: whether it is to read its weight otherwise */
    tern_tensor **made; /* by value: the weight in that form; NULL: not met yet */
};

static void find_constants(struct reforming *r, const struct tern_graph *g)
{
    for (int i = 0; i < g->n_values; i++)
        r->constant[i] = tern_graph_is_fixed(g, i);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        bool all = !n->dead && n->desc.n_in > 0;
        for (int k = 0; all && k < n->desc.n_in; k++)
            all = n->in[k] < 0 || r->constant[n->in[k]];
        if (!n->dead)
            r->constant[n->out] = all;
    }
}

static void record(struct tern_again *again, const struct tern_node *n)
{
    struct reforming *r = (struct reforming *)again; /* its first member */
    if (!r->wants[n - again->from->nodes]) {
        again->map[n->out] = tern_again_same(again, n);
        return;
    }
    const int w = n->in[1];
    tern_tensor *const own = again->map[w];
    if (!r->made[w] || !r->form->serves(r->made[w], n))
        r->made[w] = r->form->make(own, n);
    again->map[w] = r->made[w];
    again->map[n->out] = r->made[w] ? tern_again_same(again, n) : NULL;
    again->map[w] = own;
}

static enum tern_status reform(struct reforming *r, struct tern_graph *g)
{
    bool any = false;
    find_constants(r, g);
    for (int i = 0; i < g->n_nodes; i++) {
        const struct tern_node *n = &g->nodes[i];
        const bool weighs = !n->dead && n->kind == TERN_CALL_LAUNCH && n->desc.n_in > 1 && n->in[1] >= 0 && r->constant[n->in[1]];
        r->wants[i] = weighs && r->form->wants(g, n);
        any = any || r->wants[i];
    }
    if (any && tern_again_begin(&r->again, g) == TERN_OK)
        tern_again_record(&r->again, g);
    if (any)
        tern_again_end(&r->again);
    return tern_error_status(g->ctx);
}

enum tern_status tern_reform_weights(struct tern_graph *g, const struct tern_weight_form *form)
{
    struct reforming r = {.again = {.node = record}, .form = form};
    r.constant = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*r.constant));
    r.wants = tern_calloc(g->ctx, (size_t)g->n_nodes + 1, sizeof(*r.wants));
    r.made = tern_calloc(g->ctx, (size_t)g->n_values + 1, sizeof(*r.made));
    if (r.constant && r.wants && r.made)
        reform(&r, g);
    tern_free(g->ctx, r.constant);
    tern_free(g->ctx, r.wants);
    tern_free(g->ctx, r.made);
    return tern_error_status(g->ctx);
}
