/* Constant folding: nodes on constants alone (and nodes without inputs) are run now. */
#include "core/context.h"
#include "graph/passes/passes.h"

#define MOST ((int64_t)1 << 20) /* elements: a larger constant is cheaper made than kept */

static bool is_constant(const struct tern_graph *g, const struct tern_node *n)
{
    for (int k = 0; k < n->desc.n_in; k++)
        if (n->in[k] >= 0 && g->values[n->in[k]].kind != TERN_VALUE_CONSTANT)
            return false;
    return tern_meta_numel(&n->desc.out) <= MOST;
}

static enum tern_status fold(struct tern_graph *g, struct tern_node *n)
{
    tern_tensor *in[TERN_MAX_INPUTS] = {NULL};
    for (int k = 0; k < n->desc.n_in; k++)
        in[k] = n->in[k] >= 0 ? g->values[n->in[k]].tensor : NULL;
    tern_scope_begin(g->ctx);
    tern_tensor *t = tern_op_call(g->ctx, n->desc.op, in, n->desc.n_in, &n->desc.attrs);
    if (t) {
        struct tern_value *v = &g->values[n->out];
        v->kind = TERN_VALUE_CONSTANT;
        v->tensor = tern_tensor_ref(t);
        if (n->kind == TERN_CALL_VIEW)
            v->tensor->constant = true; /* of the plan: what it looks at may be the caller's (tern_graph_settle) */
        else
            tern_tensor_make_constant(v->tensor);
        v->node = -1;
        n->dead = true;
    }
    tern_scope_end(g->ctx, NULL);
    return tern_error_status(g->ctx);
}

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (n->dead || !is_constant(g, n) || tern_graph_is_output(g, n->out))
            continue;
        if (fold(g, n))
            return tern_error_status(g->ctx);
        for (int j = i + 1; j < g->n_nodes; j++)
            for (int k = 0; k < g->nodes[j].desc.n_in; k++)
                if (g->nodes[j].in[k] == n->out)
                    g->nodes[j].desc.constant[k] = true;
    }
    return TERN_OK;
}

const struct tern_pass tern_pass_fold = {"fold", run};
