/* Algorithms: nodes for which a kernel that only plans choose is the cheapest. Such a kernel rounds otherwise than the eager one. */
#include "core/context.h"
#include "graph/passes/passes.h"

static enum tern_status run(struct tern_graph *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        struct tern_node *n = &g->nodes[i];
        if (n->dead || n->prepare || n->kind != TERN_CALL_LAUNCH)
            continue;
        const struct tern_kernel *k = tern_kernel_choose_planned(g->ctx, g->ctx->device, &n->desc);
        n->planned = k && k->planned;
    }
    return tern_error_status(g->ctx);
}

const struct tern_pass tern_pass_algorithm = {"algorithm", run};
