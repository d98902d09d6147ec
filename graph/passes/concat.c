/* Concatenation without a copy: where the inputs of a cat can be made in their places of its result, they are. */
#include "graph/passes/passes.h"

static enum tern_status run(struct tern_graph *g, const struct tern_plan_params *params)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (!n->dead && tern_node_computes(n) && tern_join_fits(g, n))
            tern_join_make(g, n);
    }
    return TERN_OK;
}

const struct tern_pass tern_pass_concat = {"concat", run, .revision = 1};
