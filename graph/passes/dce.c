/* Dead code: nodes whose results nothing uses. */
#include "graph/passes/passes.h"

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    tern_graph_count_uses(g);
    for (int i = g->n_nodes - 1; i >= 0; i--) {
        struct tern_node *n = &g->nodes[i];
        if (n->dead || g->values[n->out].uses)
            continue;
        n->dead = true;
        for (int k = 0; k < TERN_MAX_INPUTS; k++)
            if (n->in[k] >= 0)
                g->values[n->in[k]].uses--;
    }
    return TERN_OK;
}

const struct tern_pass tern_pass_dce = {"dce", run};
