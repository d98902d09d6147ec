/* The prepare graph: nodes that depend on weights and constants alone run once for each binding, not at every run. */
#include "graph/passes/passes.h"

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        bool fixed = !n->dead && n->desc.n_in > 0 && !tern_graph_is_output(g, n->out);
        for (int k = 0; k < n->desc.n_in; k++)
            if (n->in[k] >= 0 && tern_graph_is_fixed(g, n->in[k]))
                n->desc.constant[k] = true;
            else if (n->in[k] >= 0)
                fixed = false;
        n->prepare = fixed;
    }
    return TERN_OK;
}

const struct tern_pass tern_pass_prepare = {"prepare", run};
